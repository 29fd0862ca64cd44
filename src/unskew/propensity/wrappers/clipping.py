"""Propensities with a floor."""

from __future__ import annotations

from typing import Self

import numpy as np

from unskew.data.checks import is_finite_number
from unskew.data.ratings import Ratings
from unskew.data.universe import UniverseLike
from unskew.errors import UsageError
from unskew.propensity.model import PropensityModel, known_universe
from unskew.propensity.sample import SampleLike
from unskew.propensity.wrappers.wrapper import Wrapper
from unskew.settings import require_fitted
from unskew.types import IntVector, Vector


class ClippedPropensity(Wrapper):
    """max(P, low): weights of at most 1 / low, for a little bias. Nothing else in unskew puts a floor under propensities unasked.

    Parameters
    ----------
    model
        The propensity model: fitted, or not yet.
    low
        The floor, in (0, 1].
    """

    model_: PropensityModel
    share_touched_: float
    """Share of the ratings of the fit whose propensity was raised."""

    def __init__(self, model: PropensityModel, *, low: float) -> None:
        self.model = model
        self.low = low

    def fit(
        self, log: Ratings, *, mcar: SampleLike | None = None, universe: UniverseLike = None
    ) -> Self:
        """Fit the inner model, unless it is fitted, and count what the floor touches; ``mcar`` goes to the inner model."""
        if not (is_finite_number(self.low) and 0 < self.low <= 1):
            raise UsageError(
                f"low must lie in (0, 1]: the smallest propensity to use; got {self.low!r}."
            )
        space = known_universe(log, universe)
        inner = self._fit_inner(log, mcar=mcar, universe=space)
        self._remember(log, space)
        self.model_ = inner
        self.share_touched_ = self.share_touched(log)
        return self

    def share_touched(self, log: Ratings) -> float:
        """The share of the ratings of ``log`` whose propensity the floor raises."""
        require_fitted(self)
        user = self._codes(log.users, self.users_, "user")[log.user]
        item = self._codes(log.items, self.items_, "item")[log.item]
        return float((self.model_._in_blocks(user, item, log.rating) < self.low).mean())

    def _predict_codes(self, user: IntVector, item: IntVector, rating: Vector | None) -> Vector:
        return np.maximum(self.model_._predict_codes(user, item, rating), self.low)
