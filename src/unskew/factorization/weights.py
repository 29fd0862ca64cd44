"""What each rating weighs in training, and what the penalty then means."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal, TypeAlias

import numpy as np

from unskew.data.propensities import PropensitiesLike, as_propensities
from unskew.data.ratings import Ratings
from unskew.data.universe import Universe
from unskew.errors import UnknownNameError, UsageError
from unskew.estimators.transforms import WeightTransform
from unskew.estimators.weights import inverse_weights
from unskew.types import IntVector, Vector

Normalization: TypeAlias = Literal["none", "self", "user", "item"]


BLOCK_CELLS = 1 << 16
"""What the arithmetic makes of so many stays in the cache."""


def training_propensities(
    log: Ratings,
    propensities: PropensitiesLike | None,
    normalize: Normalization,
    transform: WeightTransform | None = None,
) -> Vector:
    """The P that ratings are weighted by the inverse of, normalised as asked; n / (U I) for all of them where none are given.

    They need not lie below 1, and are infinite where a ``transform`` of 1 / P drops a rating. Naive and weighted fits have
    weights that add up to about U * I, so that penalties mean the same.
    """
    if normalize not in NORMALIZATIONS:
        raise UnknownNameError("normalize", normalize, NORMALIZATIONS)
    return NORMALIZATIONS[normalize](log, _known(log, propensities, transform))


def _known(
    log: Ratings, propensities: PropensitiesLike | None, transform: WeightTransform | None
) -> Vector:
    if transform is None:
        uniform = len(log) / log.n_cells
        return (
            np.full(len(log), uniform)
            if propensities is None
            else as_propensities(log, propensities).values
        )
    return as_propensity(transformed_weights(log, propensities, transform))


def transformed_weights(
    log: Ratings, propensities: PropensitiesLike | None, transform: WeightTransform | None
) -> Vector:
    """What each rating weighs: 1 / P, or what ``transform`` makes of it."""
    if propensities is None:
        raise UsageError(
            f"weight_transform={transform!r} changes inverse propensities, and there are none: "
            "pass propensities to fit, or leave it out."
        )
    weight = inverse_weights(log, propensities, transform=transform)
    if not weight.any():
        raise UsageError(f"weight_transform={transform!r} leaves no rating any weight. Loosen it.")
    return weight


def as_propensity(weight: Vector) -> Vector:
    """1 / weight, infinite where that is 0."""
    with np.errstate(divide="ignore"):
        return 1.0 / weight


def _self(log: Ratings, propensity: Vector) -> Vector:
    """Weights that add up to U * I."""
    return propensity * (float((1 / propensity).sum()) / log.n_cells)


def _by_user(log: Ratings, propensity: Vector) -> Vector:
    """Weights of each user that add up to I."""
    return propensity * (_total_of_own(log.user, propensity) / log.n_items)


def _by_item(log: Ratings, propensity: Vector) -> Vector:
    """Weights of each item that add up to U."""
    return propensity * (_total_of_own(log.item, propensity) / log.n_users)


def _total_of_own(code: IntVector, propensity: Vector) -> Vector:
    totals: Vector = np.bincount(code, weights=1 / propensity).astype(np.float64)
    return np.where(totals > 0, totals, 1.0)[
        code
    ]  # a row whose ratings were all dropped keeps its infinite P


NORMALIZATIONS: Mapping[str, Callable[[Ratings, Vector], Vector]] = {
    "none": lambda _, propensity: propensity,
    "self": _self,
    "user": _by_user,
    "item": _by_item,
}


def weighted_mean(rating: Vector, propensity: Vector) -> float:
    """The SNIPS mean, sum (Y / P) / sum (1 / P), in blocks, so that nothing of the size of the log is made."""
    blocks = [slice(first, first + BLOCK_CELLS) for first in range(0, rating.size, BLOCK_CELLS)]
    total = sum(float((rating[block] / propensity[block]).sum()) for block in blocks)
    return total / sum(float((1 / propensity[block]).sum()) for block in blocks)


def effective_l2(
    l2: float, log: Ratings | Universe, *, n_factors: int, penalizes_offsets: bool
) -> float:
    """The ridge on a sum of losses that add up to U * I: ``l2 * U I / (U + I)`` over the penalised parameters of a row.

    This is the scale of the authors' code, so that their grid 0.008 ... 125 means the same here. On Coat, 290 users x 300 items,
    ``l2 = 25`` with 40 factors and penalised offsets is ``25 * 147.46 / 41 = 89.9``.
    """
    parameters_of_a_row = max(1, n_factors + penalizes_offsets)
    return l2 * log.n_cells / (log.n_users + log.n_items) / parameters_of_a_row
