"""From deltas and weights of observed cells to risks with standard errors and intervals."""

from __future__ import annotations

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
