"""Evaluate and train recommenders on logs that are missing not at random.

Names load when they are first used, so that ``import unskew`` is quick.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from unskew._version import __version__

if TYPE_CHECKING:
    from unskew import errors, theory
    from unskew.data.datasets.cm100k import load_cm100k
    from unskew.data.datasets.coat import load_coat
    from unskew.data.datasets.jester import load_jester
    from unskew.data.datasets.movielens import load_movielens_100k
    from unskew.data.datasets.yahoo_r3 import load_yahoo_r3
    from unskew.data.factors import Factors
    from unskew.data.observation import ByCovariates, ByRating, Observation, Uniform
    from unskew.data.propensities import Propensities
    from unskew.data.ratings import Ratings
    from unskew.data.simulation import Simulation, simulate
    from unskew.data.universe import Universe
    from unskew.errors import PropensityWarning, UnskewError, UnskewWarning
    from unskew.estimators.transforms import Clip, Shrink, SubGaussian, Switch
    from unskew.evaluation.evaluate import evaluate
    from unskew.evaluation.result import Comparison, Evaluation
    from unskew.loading import load
    from unskew.models.baselines import GlobalMean, OffsetsOnly, Popularity
    from unskew.models.estimator import Recommendations
    from unskew.models.factorization import MatrixFactorization
    from unskew.selection.search import CrossValidation, cross_validate

_HOMES = {
    "ByCovariates": "unskew.data.observation",
    "ByRating": "unskew.data.observation",
    "Clip": "unskew.estimators.transforms",
    "Comparison": "unskew.evaluation.result",
    "CrossValidation": "unskew.selection.search",
    "Evaluation": "unskew.evaluation.result",
    "Factors": "unskew.data.factors",
    "GlobalMean": "unskew.models.baselines",
    "MatrixFactorization": "unskew.models.factorization",
    "Observation": "unskew.data.observation",
    "OffsetsOnly": "unskew.models.baselines",
    "Popularity": "unskew.models.baselines",
    "Propensities": "unskew.data.propensities",
    "PropensityWarning": "unskew.errors",
    "Ratings": "unskew.data.ratings",
    "Recommendations": "unskew.models.estimator",
    "Shrink": "unskew.estimators.transforms",
    "Simulation": "unskew.data.simulation",
    "SubGaussian": "unskew.estimators.transforms",
    "Switch": "unskew.estimators.transforms",
    "Uniform": "unskew.data.observation",
    "Universe": "unskew.data.universe",
    "UnskewError": "unskew.errors",
    "UnskewWarning": "unskew.errors",
    "cross_validate": "unskew.selection.search",
    "evaluate": "unskew.evaluation.evaluate",
    "load": "unskew.loading",
    "load_cm100k": "unskew.data.datasets.cm100k",
    "load_coat": "unskew.data.datasets.coat",
    "load_jester": "unskew.data.datasets.jester",
    "load_movielens_100k": "unskew.data.datasets.movielens",
    "load_yahoo_r3": "unskew.data.datasets.yahoo_r3",
    "simulate": "unskew.data.simulation",
}
_ROOMS = ("errors", "theory")

__all__ = [
    "ByCovariates",
    "ByRating",
    "Clip",
    "Comparison",
    "CrossValidation",
    "Evaluation",
    "Factors",
    "GlobalMean",
    "MatrixFactorization",
    "Observation",
    "OffsetsOnly",
    "Popularity",
    "Propensities",
    "PropensityWarning",
    "Ratings",
    "Recommendations",
    "Shrink",
    "Simulation",
    "SubGaussian",
    "Switch",
    "Uniform",
    "Universe",
    "UnskewError",
    "UnskewWarning",
    "__version__",
    "cross_validate",
    "errors",
    "evaluate",
    "load",
    "load_cm100k",
    "load_coat",
    "load_jester",
    "load_movielens_100k",
    "load_yahoo_r3",
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
