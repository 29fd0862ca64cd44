"""Evaluation of models, and its results."""

from unskew.evaluation.adapters import ADAPTERS as ADAPTERS
from unskew.evaluation.adapters.wrap import wrap_model as wrap_model
from unskew.evaluation.frame import GroupedEvaluation as GroupedEvaluation
from unskew.evaluation.imputation import Imputation as Imputation
from unskew.evaluation.lists import ListDescription as ListDescription
from unskew.evaluation.lists import describe_lists as describe_lists
from unskew.evaluation.model_set import ModelSet as ModelSet
from unskew.evaluation.monitor import Monitor as Monitor
from unskew.evaluation.monitor import Watch as Watch
from unskew.evaluation.result import Comparison as Comparison
from unskew.evaluation.result import Evaluation as Evaluation
from unskew.evaluation.result import Risk as Risk
from unskew.evaluation.sensitivity import Robustness as Robustness
from unskew.evaluation.sensitivity import Sensitivity as Sensitivity
from unskew.evaluation.weight_changes import odds_error_between as odds_error_between
