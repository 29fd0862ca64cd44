"""How far propensities can be trusted."""

from unskew.diagnostics.result import Diagnosis as Diagnosis
from unskew.diagnostics.result import DiagnosisRow as DiagnosisRow
