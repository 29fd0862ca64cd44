"""Weights of observed cells: inverse propensities, perhaps transformed and normalised."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal, Protocol, TypeAlias

import numpy as np

from unskew.data.checks import float_array
from unskew.data.propensities import PropensitiesLike, as_propensities
from unskew.data.ratings import Ratings, require_log
from unskew.errors import UnknownNameError, UsageError
from unskew.types import IntVector, Vector

Normalization: TypeAlias = Literal["none", "self", "user", "item"]
BLOCK_CELLS = 1 << 16
"""Cells whose intermediate results stay in the cache."""


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
    require_log(log)
    return transform_weights(as_propensities(log, propensities).inverse, weight_transform)


def transform_weights(inverse: Vector, weight_transform: WeightTransform | None) -> Vector:
    """The transformed weights, which must be finite and at least 0; ``inverse`` without one."""
    if weight_transform is None:
        return inverse
    if not callable(weight_transform):
        raise UsageError(
            "`weight_transform` must be a function of weights, such as unskew.estimators.Clip(100);"
            f" got {weight_transform!r}.",
            parameter="weight_transform",
            value=weight_transform,
        )
    try:
        weight = float_array(weight_transform(inverse), "transformed weights")
    except Exception as error:
        raise UsageError(
            f"`weight_transform` failed: {type(error).__name__}: {error}",
            parameter="weight_transform",
            value=weight_transform,
            remedy="Pass a function of an array of weights, such as unskew.estimators.Clip(100).",
        ) from error
    is_valid = weight.shape == inverse.shape and np.isfinite(weight).all() and (weight >= 0).all()
    if not is_valid:
        raise UsageError(
            f"the weight transform {weight_transform!r} must return one finite weight of at least "
            "0 for each cell.",
            parameter="weight_transform",
            value=weight_transform,
        )
    return weight


def training_weights(
    log: Ratings,
    propensities: PropensitiesLike | None,
    *,
    normalize: Normalization = "none",
    weight_transform: WeightTransform | None = None,
) -> Vector:
    """The weight of each rating: 1 / P, transformed and then normalised.

    Without propensities each rating weighs U I / n (the naive model). In both cases the weights
    add up to about U I, so a penalty has the same meaning. A weight of 0 drops the rating.
    """
    if not isinstance(normalize, str) or normalize not in NORMALIZATIONS:
        raise UnknownNameError("normalize", normalize, NORMALIZATIONS)
    if propensities is None and weight_transform is not None:
        raise UsageError(
            f"`weight_transform={weight_transform!r}` transforms inverse propensities, but no "
            "propensities were passed.",
            parameter="weight_transform",
            value=weight_transform,
            remedy="Pass `propensities`, or leave `weight_transform` out.",
        )
    if propensities is None:
        weight = np.full(len(log), log.n_cells / len(log))
    else:
        weight = inverse_weights(log, propensities, weight_transform=weight_transform)
    if not weight.any():
        raise UsageError(
            f"`weight_transform={weight_transform!r}` sets every weight to 0.",
            parameter="weight_transform",
            value=weight_transform,
            remedy="Use a `weight_transform` that leaves some weights above 0, such as Clip(50).",
        )
    return NORMALIZATIONS[normalize](log, weight)


def _normalize_all(log: Ratings, weight: Vector) -> Vector:
    """Weights that add up to U I."""
    return weight * (log.n_cells / float(weight.sum()))


def _normalize_by_user(log: Ratings, weight: Vector) -> Vector:
    """The weights of each user add up to I."""
    return weight * (log.n_items / _sum_by_code(log.user, weight))


def _normalize_by_item(log: Ratings, weight: Vector) -> Vector:
    """The weights of each item add up to U."""
    return weight * (log.n_users / _sum_by_code(log.item, weight))


def _sum_by_code(code: IntVector, weight: Vector) -> Vector:
    """For each cell the total weight of its user or item; 1 where that total is 0."""
    totals: Vector = np.bincount(code, weights=weight).astype(np.float64)
    return np.where(totals > 0, totals, 1.0)[code]


NORMALIZATIONS: Mapping[str, Callable[[Ratings, Vector], Vector]] = {
    "none": lambda _, weight: weight,
    "self": _normalize_all,
    "user": _normalize_by_user,
    "item": _normalize_by_item,
}


def weighted_mean(rating: Vector, weight: Vector) -> float:
    """sum(w Y) / sum(w): with w = 1 / P the SNIPS estimate of the mean rating, Eq. (11).

    The sums are taken in blocks, without temporary arrays of the size of the log.
    """
    blocks = [slice(first, first + BLOCK_CELLS) for first in range(0, rating.size, BLOCK_CELLS)]
    total = sum(float((weight[block] * rating[block]).sum()) for block in blocks)
    return total / sum(float(weight[block].sum()) for block in blocks)


def drop_unweighted(log: Ratings, weight: Vector) -> tuple[Ratings, Vector]:
    """The log and its weights without the ratings of weight 0."""
    is_kept = weight > 0
    return (log, weight) if is_kept.all() else (log.take(is_kept), weight[is_kept])
