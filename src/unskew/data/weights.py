"""Weights of observed cells: inverse propensities, perhaps transformed."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from unskew.data.propensities import PropensitiesLike, as_propensities
from unskew.data.ratings import Ratings
from unskew.errors import UsageError
from unskew.types import Vector


class WeightTransform(Protocol):
    """Maps inverse propensities to the weights that are used in their place."""

    def __call__(self, weight: Vector, /) -> Vector: ...


def inverse_weights(
    log: Ratings,
    propensities: PropensitiesLike,
    *,
    weight_transform: WeightTransform | None = None,
) -> Vector:
    """1 / P of each rating, in the order of the log: how many of all U * I cells it represents.

    Passed as ``sample_weight`` to any model, these weights make its training loss the IPS estimate
    of its loss over all cells, Eq. (12). Weights are clipped or changed only by
    ``weight_transform``, such as ``unskew.estimators.Clip(100)``.

    >>> log = Ratings.from_arrays(["ann", "bob"], ["up", "up"], [5, 3])
    >>> inverse_weights(log, [0.5, 0.01]).tolist()
    [2.0, 100.0]
    """
    return transform_weights(as_propensities(log, propensities).inverse, weight_transform)


def transform_weights(inverse: Vector, weight_transform: WeightTransform | None) -> Vector:
    """The transformed weights, which must be finite and at least 0; ``inverse`` without one."""
    if weight_transform is None:
        return inverse
    weight = np.asarray(weight_transform(inverse), dtype=np.float64)
    is_valid = weight.shape == inverse.shape and np.isfinite(weight).all() and (weight >= 0).all()
    if not is_valid:
        raise UsageError(
            f"the weight transform {weight_transform!r} must return one finite weight of at least "
            "0 for each cell.",
            parameter="weight_transform",
            value=weight_transform,
        )
    return weight
