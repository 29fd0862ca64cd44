"""Propensities from counts alone: of the log, of each item, of each user."""

from __future__ import annotations

from typing import Self

import numpy as np

from unskew.data.ratings import Ratings
from unskew.data.universe import UniverseLike
from unskew.propensity.model import PropensityEstimator, known_universe
from unskew.types import IntVector, Vector


class UniformPropensity(PropensityEstimator):
    """P = n / (U I): every cell alike, which makes SNIPS the naive average."""

    def fit(self, log: Ratings, *, universe: UniverseLike = None) -> Self:
        """Count the log."""
        self._remember(log, known_universe(log, universe))
        return self

    def _chances(self, user: IntVector, item: IntVector, rating: Vector | None) -> Vector:  # noqa: ARG002
        return np.full(user.size, self.n_observed_ / self.n_cells_)
