"""How far propensities can be trusted."""

from unskew.diagnostics.planning import SamplePlan as SamplePlan
from unskew.diagnostics.result import Diagnosis as Diagnosis
from unskew.diagnostics.result import DiagnosisRow as DiagnosisRow
from unskew.diagnostics.specification import SpecificationTest as SpecificationTest
