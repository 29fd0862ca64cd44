"""A propensity model with known propensities, to test wrappers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from unskew.data.ratings import Ratings
from unskew.data.universe import UniverseLike
from unskew.propensity.model import PropensityModel, require_universe
from unskew.types import IntVector, Matrix, Vector


@dataclass(eq=False, repr=False)
class KnownPropensity(PropensityModel):
    """P as a given matrix, for any log."""

    matrix: Matrix

    def fit(self, log: Ratings, *, universe: UniverseLike = None) -> Self:
        self._record_log(log, require_universe(log, universe))
        return self

    def _predict_codes(self, user: IntVector, item: IntVector, rating: Vector | None) -> Vector:
        return np.asarray(self.matrix)[user, item]


def every_cell(model: Any) -> Matrix:
    """The predictions of a fitted model for all pairs of its users and items."""
    users, items = (
        np.repeat(model.users_, len(model.items_)),
        np.tile(model.items_, len(model.users_)),
    )
    return model.predict_pairs(users, items).reshape(len(model.users_), len(model.items_))


def draw(propensity: Matrix, seed: int = 0) -> Ratings:
    """A log of ratings 1 to 5 in which each cell is observed with its propensity."""
    rng = np.random.default_rng(seed)
    rating = rng.integers(1, 6, propensity.shape)
    return Ratings.from_dense(np.where(rng.random(propensity.shape) < propensity, rating, 0))
