"""Evaluate and train recommenders on logs that are missing not at random.

Names load when they are first used, so that ``import unskew`` is quick.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from unskew._version import __version__

if TYPE_CHECKING:
    from unskew import errors, theory
    from unskew.data.factors import Factors
    from unskew.data.propensities import Propensities
    from unskew.data.ratings import Ratings
    from unskew.data.universe import Universe
    from unskew.data.weights import inverse_weights
    from unskew.datasets.cm100k import load_cm100k
    from unskew.datasets.coat import load_coat
    from unskew.datasets.jester import load_jester
    from unskew.datasets.movielens import load_movielens_100k
    from unskew.datasets.yahoo_r3 import load_yahoo_r3
    from unskew.diagnostics.diagnose import diagnose
    from unskew.diagnostics.result import Diagnosis
    from unskew.engines.gpu.engine import GpuEngine
    from unskew.engines.spark.engine import SparkEngine
    from unskew.errors import PropensityWarning, UnskewError, UnskewWarning
    from unskew.estimators.transforms import Clip, Dynamic, Shrink, SubGaussian, Switch
    from unskew.evaluation.evaluate import evaluate
    from unskew.evaluation.frame import evaluate_frame
    from unskew.evaluation.frame import GroupedEvaluation
    from unskew.evaluation.random_test import ranking_on_test
    from unskew.evaluation.result import Comparison, Evaluation
    from unskew.evaluation.sensitivity import Robustness, Sensitivity, sensitivity
    from unskew.loading import load
    from unskew.model_selection.comparison import Learner, LearnerComparison, compare_learners
    from unskew.model_selection.search import CrossValidation, cross_validate
    from unskew.models.all_rank import AllRank
    from unskew.models.balanced import IPSV2, StableDR
    from unskew.models.baselines import GlobalMean, OffsetsOnly, Popularity
    from unskew.models.doubly_robust import DoublyRobustFactorization
    from unskew.models.exposure import ExposureFactorization
    from unskew.models.logistic import LogisticFactorization
    from unskew.models.matrix_factorization import MatrixFactorization
    from unskew.models.mixture import MultinomialMixture
    from unskew.models.ordinal import OrdinalFactorization
    from unskew.models.recommender import Recommendations
    from unskew.models.relevance import RelevanceFactorization
    from unskew.models.robust_variants import DRV2, EIB, TDR
    from unskew.models.tri_training import TriTraining
    from unskew.models.weighted import WeightedFactorization
    from unskew.propensity.boosted import BoostedPropensity
    from unskew.propensity.calibrated import CalibratedPropensity
    from unskew.propensity.classifier import ClassifierPropensity
    from unskew.propensity.clipped import ClippedPropensity
    from unskew.propensity.cross_fitted import CrossFittedPropensity
    from unskew.propensity.logistic import LogisticPropensity
    from unskew.propensity.naive_bayes import NaiveBayesPropensity
    from unskew.propensity.one_bit import OneBitPropensity
    from unskew.propensity.poisson import PoissonPropensity
    from unskew.propensity.popularity import PopularityPropensity, UniformPropensity
    from unskew.propensity.scaled import ScaledPropensity
    from unskew.simulation.observation import ByCovariates, ByRating, Observation, Uniform
    from unskew.simulation.simulator import Simulation, simulate

_HOMES = {
    "AllRank": "unskew.models.all_rank",
    "BoostedPropensity": "unskew.propensity.boosted",
    "ByCovariates": "unskew.simulation.observation",
    "ByRating": "unskew.simulation.observation",
    "CalibratedPropensity": "unskew.propensity.calibrated",
    "ClassifierPropensity": "unskew.propensity.classifier",
    "Clip": "unskew.estimators.transforms",
    "ClippedPropensity": "unskew.propensity.clipped",
    "Comparison": "unskew.evaluation.result",
    "CrossFittedPropensity": "unskew.propensity.cross_fitted",
    "CrossValidation": "unskew.model_selection.search",
    "DRV2": "unskew.models.robust_variants",
    "Diagnosis": "unskew.diagnostics.result",
    "DoublyRobustFactorization": "unskew.models.doubly_robust",
    "Dynamic": "unskew.estimators.transforms",
    "EIB": "unskew.models.robust_variants",
    "Evaluation": "unskew.evaluation.result",
    "ExposureFactorization": "unskew.models.exposure",
    "Factors": "unskew.data.factors",
    "GlobalMean": "unskew.models.baselines",
    "GpuEngine": "unskew.engines.gpu.engine",
    "SparkEngine": "unskew.engines.spark.engine",
    "GroupedEvaluation": "unskew.evaluation.frame",
    "IPSV2": "unskew.models.balanced",
    "Learner": "unskew.model_selection.comparison",
    "LearnerComparison": "unskew.model_selection.comparison",
    "LogisticFactorization": "unskew.models.logistic",
    "LogisticPropensity": "unskew.propensity.logistic",
    "MatrixFactorization": "unskew.models.matrix_factorization",
    "MultinomialMixture": "unskew.models.mixture",
    "NaiveBayesPropensity": "unskew.propensity.naive_bayes",
    "Observation": "unskew.simulation.observation",
    "OffsetsOnly": "unskew.models.baselines",
    "OneBitPropensity": "unskew.propensity.one_bit",
    "OrdinalFactorization": "unskew.models.ordinal",
    "PoissonPropensity": "unskew.propensity.poisson",
    "Popularity": "unskew.models.baselines",
    "PopularityPropensity": "unskew.propensity.popularity",
    "Propensities": "unskew.data.propensities",
    "PropensityWarning": "unskew.errors",
    "Ratings": "unskew.data.ratings",
    "Recommendations": "unskew.models.recommender",
    "RelevanceFactorization": "unskew.models.relevance",
    "Robustness": "unskew.evaluation.sensitivity",
    "ScaledPropensity": "unskew.propensity.scaled",
    "Sensitivity": "unskew.evaluation.sensitivity",
    "Shrink": "unskew.estimators.transforms",
    "Simulation": "unskew.simulation.simulator",
    "StableDR": "unskew.models.balanced",
    "SubGaussian": "unskew.estimators.transforms",
    "Switch": "unskew.estimators.transforms",
    "TDR": "unskew.models.robust_variants",
    "TriTraining": "unskew.models.tri_training",
    "Uniform": "unskew.simulation.observation",
    "UniformPropensity": "unskew.propensity.popularity",
    "Universe": "unskew.data.universe",
    "UnskewError": "unskew.errors",
    "UnskewWarning": "unskew.errors",
    "WeightedFactorization": "unskew.models.weighted",
    "compare_learners": "unskew.model_selection.comparison",
    "cross_validate": "unskew.model_selection.search",
    "diagnose": "unskew.diagnostics.diagnose",
    "evaluate": "unskew.evaluation.evaluate",
    "evaluate_frame": "unskew.evaluation.frame",
    "inverse_weights": "unskew.data.weights",
    "load": "unskew.loading",
    "load_cm100k": "unskew.datasets.cm100k",
    "load_coat": "unskew.datasets.coat",
    "load_jester": "unskew.datasets.jester",
    "load_movielens_100k": "unskew.datasets.movielens",
    "load_yahoo_r3": "unskew.datasets.yahoo_r3",
    "ranking_on_test": "unskew.evaluation.random_test",
    "sensitivity": "unskew.evaluation.sensitivity",
    "simulate": "unskew.simulation.simulator",
}
_ROOMS = ("errors", "theory")

__all__ = [
    "DRV2",
    "EIB",
    "IPSV2",
    "TDR",
    "AllRank",
    "BoostedPropensity",
    "ByCovariates",
    "ByRating",
    "CalibratedPropensity",
    "ClassifierPropensity",
    "Clip",
    "ClippedPropensity",
    "Comparison",
    "CrossFittedPropensity",
    "CrossValidation",
    "Diagnosis",
    "DoublyRobustFactorization",
    "Dynamic",
    "Evaluation",
    "ExposureFactorization",
    "Factors",
    "GlobalMean",
    "GpuEngine",
    "GroupedEvaluation",
    "Learner",
    "LearnerComparison",
    "LogisticFactorization",
    "LogisticPropensity",
    "MatrixFactorization",
    "MultinomialMixture",
    "NaiveBayesPropensity",
    "Observation",
    "OffsetsOnly",
    "OneBitPropensity",
    "OrdinalFactorization",
    "PoissonPropensity",
    "Popularity",
    "PopularityPropensity",
    "Propensities",
    "PropensityWarning",
    "Ratings",
    "Recommendations",
    "RelevanceFactorization",
    "Robustness",
    "ScaledPropensity",
    "Sensitivity",
    "Shrink",
    "Simulation",
    "SparkEngine",
    "StableDR",
    "SubGaussian",
    "Switch",
    "TriTraining",
    "Uniform",
    "UniformPropensity",
    "Universe",
    "UnskewError",
    "UnskewWarning",
    "WeightedFactorization",
    "__version__",
    "compare_learners",
    "cross_validate",
    "diagnose",
    "errors",
    "evaluate",
    "evaluate_frame",
    "inverse_weights",
    "load",
    "load_cm100k",
    "load_coat",
    "load_jester",
    "load_movielens_100k",
    "load_yahoo_r3",
    "ranking_on_test",
    "sensitivity",
    "simulate",
    "theory",
]


def __getattr__(name: str) -> Any:
    if name in _ROOMS:
        return import_module(f"unskew.{name}")
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'unskew' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
