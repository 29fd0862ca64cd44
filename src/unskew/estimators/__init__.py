"""From deltas and weights of observed cells to risks with standard errors and intervals."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from unskew.registry import Registry, exported_names

if TYPE_CHECKING:
    from unskew.data.weights import WeightTransform
    from unskew.estimators.point import Estimator

ESTIMATORS: Registry[type[Estimator]] = Registry("estimator", "unskew.estimators")
WEIGHT_TRANSFORMS: Registry[type[WeightTransform]] = Registry(
    "weight transform", "unskew.estimators"
)
__getattr__, __dir__ = exported_names(
    (ESTIMATORS, WEIGHT_TRANSFORMS),
    {
        "Estimate": "estimate",
        "Estimator": "point",
        "Interval": "estimate",
        "SumSpec": "observed",
        "Sums": "sums",
        "find_estimator": "point",
    },
)


def corrects_selection(estimator: str) -> bool:
    """Whether an estimator weights or imputes. Estimators of the caller are assumed to do so."""
    if estimator not in ESTIMATORS:
        return True
    target = ESTIMATORS[estimator].target
    return target.is_weighted or target.imputes or target.needs_random_test


def split_estimators(estimators: Sequence[str]) -> tuple[str | None, str | None]:
    """The first estimator that does not correct for selection, and the best-ranked that does."""
    plain = next((name for name in estimators if not corrects_selection(name)), None)
    corrected = [name for name in estimators if corrects_selection(name)]
    return plain, min(corrected, key=_headline_rank, default=None)


def _headline_rank(estimator: str) -> float:
    traits = ESTIMATORS[estimator].traits if estimator in ESTIMATORS else {}
    return float(traits.get("headline_rank", math.inf))


def main_estimator(estimators: Sequence[str]) -> str:
    """The estimator of the headline: the best-ranked one that corrects, else the first one."""
    return split_estimators(estimators)[1] or estimators[0]
