"""Propensities that add up to the number of ratings."""

from __future__ import annotations

from typing import Self

import numpy as np

from unskew.data.checks import whole_number
from unskew.data.ratings import Ratings
from unskew.data.universe import UniverseLike
from unskew.propensity.density import Capped, scale_to_total
from unskew.propensity.model import PropensityModel, listed_universe
from unskew.propensity.sample import SampleLike
from unskew.propensity.wrappers.cell_blocks import cell_blocks
from unskew.propensity.wrappers.wrapper import Wrapper
from unskew.types import IntVector, Vector


class ScaledPropensity(Wrapper):
    """min(1, k P), with k such that the propensities of all U I cells add up to the number of ratings.

    For scores that rank cells well but are no probabilities yet. The inner model is asked for every cell, a block of users at a
    time, so it must be one that can :meth:`predict_pairs`, and the log must list all users and items.

    Parameters
    ----------
    model
        The propensity model: fitted, or not yet.
    max_cells
        Beyond this many cells the sum is that of so many cells drawn uniformly; its relative error is the coefficient of
        variation of P over the square root of ``max_cells``.
    random_state
        Seed of that draw.
    """

    model_: PropensityModel
    scale_: float
    """k."""
    n_capped_: int
    """Cells whose propensity is 1, or would be above it; estimated where cells are drawn."""

    def __init__(
        self, model: PropensityModel, *, max_cells: int = 1 << 24, random_state: int = 0
    ) -> None:
        self.model = model
        self.max_cells = max_cells
        self.random_state = random_state

    def fit(
        self, log: Ratings, *, mcar: SampleLike | None = None, universe: UniverseLike = None
    ) -> Self:
        """Fit the inner model, unless it is fitted, and find the scale."""
        max_cells = whole_number("max_cells", self.max_cells, least=1)
        seed = whole_number("random_state", self.random_state, least=0)
        space = listed_universe(log, universe)
        self._require_every_cell()
        inner = self._fit_inner(log, mcar=mcar, universe=space)

        def capped_at(scale: float) -> Capped:
            n_capped = rest = 0.0
            for block in cell_blocks(
                space.n_users, space.n_items, max_cells=max_cells, random_state=seed
            ):
                chance = inner._predict_codes(block.user, block.item, None)
                below = scale * chance < 1
                n_capped += block.weight * float(chance.size - below.sum())
                rest += block.weight * float(chance[below].sum())
            return Capped(n_capped, rest)

        scale, n_capped = scale_to_total(len(log), capped_at)
        self._remember(log, space)
        self.model_, self.scale_, self.n_capped_ = inner, scale, round(n_capped)
        return self

    def _predict_codes(self, user: IntVector, item: IntVector, rating: Vector | None) -> Vector:
        return np.minimum(1.0, self.scale_ * self.model_._predict_codes(user, item, rating))
