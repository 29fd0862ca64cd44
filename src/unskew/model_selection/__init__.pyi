"""Choosing settings and comparing learners."""

from unskew.data.leaks import find_leaks as find_leaks
from unskew.model_selection.comparison import LearnerComparison as LearnerComparison
from unskew.model_selection.leaderboard import Leaderboard as Leaderboard
from unskew.model_selection.leaderboard import rank_learners as rank_learners
from unskew.model_selection.learners import Learner as Learner
from unskew.model_selection.learners import find_learners as find_learners
from unskew.model_selection.protocols import LeaderboardData as LeaderboardData
from unskew.model_selection.protocols import RandomTestData as RandomTestData
from unskew.model_selection.search import CrossValidation as CrossValidation
from unskew.model_selection.splits import rolling_splits as rolling_splits
