"""Choosing settings and comparing learners."""

from unskew.data.leaks import find_leaks as find_leaks
from unskew.model_selection.comparison import Learner as Learner
from unskew.model_selection.comparison import LearnerComparison as LearnerComparison
from unskew.model_selection.search import CrossValidation as CrossValidation
from unskew.model_selection.splits import rolling_splits as rolling_splits
