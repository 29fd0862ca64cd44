"""Propensities that are scaled to add up to the number of ratings."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, field
from typing import Self

import numpy as np

from unskew.data.cells import iterate_cells, user_and_item
from unskew.data.ratings import Ratings
from unskew.data.universe import UniverseLike
from unskew.errors import BadPropensityError
from unskew.propensity import PROPENSITY_MODELS
from unskew.propensity.model import PropensityModel, SampleLike, draw_seed, require_listed_universe
from unskew.propensity.wrapper import PropensityWrapper
from unskew.settings import WholeNumber, check_random_state, setting
from unskew.types import IntVector, RandomState, Vector


@PROPENSITY_MODELS.declare(
    "scaled",
    label="Scaled",
    summary="min(1, k P), with k such that propensities add up to the number of ratings.",
    traits={"is_wrapper": True},
)
@dataclass(eq=False, repr=False)
class ScaledPropensity(PropensityWrapper):
    """min(1, k P), with k such that the propensities of all U I cells add up to n ratings.

    It turns scores that rank cells well into probabilities. The inner model predicts all cells,
    one block of users at a time, so it must support :meth:`predict_pairs`, and the log must list
    all users and items.

    Parameters
    ----------
    model
        The propensity model; if it is not fitted, a copy of it is.
    max_cells
        If there are more cells than this, the sum is estimated from this many cells, drawn
        uniformly. Its relative error is the coefficient of variation of P divided by
        ``sqrt(max_cells)``.
    random_state
        Seed of that draw.

    Attributes
    ----------
    model_ : the fitted inner model.
    scale_ : k.
    n_capped_ : cells whose propensity is 1 because of the limit; an estimate if cells are drawn.
    """

    model: PropensityModel
    _: KW_ONLY
    max_cells: int = setting(1 << 24, WholeNumber(least=1))
    random_state: RandomState = setting(0, check_random_state)

    model_: PropensityModel = field(init=False)
    scale_: float = field(init=False)
    n_capped_: int = field(init=False)

    def fit(
        self, log: Ratings, *, universe: UniverseLike = None, mcar: SampleLike | None = None
    ) -> Self:
        """Fit the inner model if it is not fitted, and find the scale k."""
        self._check_settings()
        size, seed = require_listed_universe(log, universe), draw_seed(self.random_state)
        self._require_all_cells()
        inner = self._fit_inner(log, mcar=mcar, universe=size)

        weight = size.n_cells / min(size.n_cells, self.max_cells)

        def sum_below_1(scale: float) -> CappedSum:
            n_capped = rest = 0.0
            rng = np.random.default_rng(seed)  # the same cells for every scale
            for cells in iterate_cells(
                size.n_users, size.n_items, max_cells=self.max_cells, rng=rng
            ):
                propensity = inner._predict_codes(*user_and_item(cells, size.n_items), None)
                is_below = scale * propensity < 1
                n_capped += weight * float(propensity.size - is_below.sum())
                rest += weight * float(propensity[is_below].sum())
            return CappedSum(n_capped, rest)

        scale, n_capped = scale_to_total(len(log), sum_below_1)
        self._record_log(log, size)
        self.model_, self.scale_, self.n_capped_ = inner, scale, round(n_capped)
        return self

    def _predict_codes(self, user: IntVector, item: IntVector, rating: Vector | None) -> Vector:
        return np.minimum(1.0, self.scale_ * self.model_._predict_codes(user, item, rating))


@dataclass(frozen=True, slots=True)
class CappedSum:
    """The effect of a scale k on scores s, split at k s = 1."""

    n_capped: float
    """How many scores have k s >= 1."""
    rest: float
    """The sum of the other scores s."""


def scale_to_total(total: float, sum_below_1: Callable[[float], CappedSum]) -> tuple[float, float]:
    """The k with ``sum min(1, k s) = total``, and how many scores it caps.

    ``sum_below_1(k)`` splits the scores. Newton's method from k = 0 is exact: the sum is concave
    and piecewise linear in k, so the steps approach the root from below and end on its piece.
    """
    scale, split = 0.0, sum_below_1(0.0)
    while split.rest > 0:
        scale = (total - split.n_capped) / split.rest
        next_split = sum_below_1(scale)
        if next_split.n_capped <= split.n_capped:
            return scale, split.n_capped
        split = next_split
    if split.n_capped < total * (1 - 1e-9):
        raise BadPropensityError(
            f"propensities cannot add up to {total:,.0f} ratings: only {split.n_capped:,.0f} "
            "cells have a propensity above 0.",
            remedy="Smooth the model to give other cells a positive propensity.",
        )
    return scale, split.n_capped
