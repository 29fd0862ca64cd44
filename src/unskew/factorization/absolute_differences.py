"""Doubly robust absolute loss: a sum of absolute errors, less another one.

    sum over all cells of abs(G - F)  +  sum over the log of h (abs(Y - F) - abs(G - F))

An abs() that is added lies below a parabola that touches it, as in ``solvers/reweighted.py``; one that is taken away lies below
its tangent. With m = max(abs(Y - F0), smallest) and s the sign of F0 - G,

    h (F - Y)^2 / (2 m) - h s F  =  h / (2 m) (F - (Y + m s))^2 + constant,

so that the whole is bounded by a weighted squared problem, whose cells are those of the log and those that stand for all.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np

from unskew.data.ratings import Ratings
from unskew.factorization.parameters import Parameters
from unskew.models.imputation import values_at
from unskew.types import IntVector, Vector

MOST_CELLS = 1_000_000
SMALLEST_ERROR = 1e-3


@dataclass(frozen=True, slots=True, eq=False)
class AbsoluteDifferences:
    """The cells of the log first, then those that stand for all."""

    user: IntVector
    item: IntVector
    shape: tuple[int, int]
    rating: Vector
    """Y on the log."""
    guess: Vector
    """G, of both."""
    weight: Vector
    """The weights h of the log; then how many cells each one stands for."""

    @classmethod
    def of(
        cls, log: Ratings, weight: Vector, guess: Vector, imputed: Parameters, *, random_state: int
    ) -> Self:
        """All cells where they are few, else a sample of them."""
        size = max(MOST_CELLS, len(log))
        rng = np.random.default_rng(random_state)
        chosen = (
            np.arange(log.n_cells) if log.n_cells <= size else rng.integers(0, log.n_cells, size)
        )
        user, item = (
            (chosen // log.n_items).astype(np.int32),
            (chosen % log.n_items).astype(np.int32),
        )
        return cls(
            np.concatenate([log.user, user]),
            np.concatenate([log.item, item]),
            (log.n_users, log.n_items),
            log.rating,
            np.concatenate([guess, values_at(imputed, user, item)]),
            np.concatenate([weight, np.full(chosen.size, log.n_cells / chosen.size)]),
        )

    def loss(self, prediction: Vector, /) -> float:
        """The doubly robust absolute loss, summed."""
        n, off = self.rating.size, np.abs(prediction - self.guess)
        return float(
            self.weight[:n] @ (np.abs(prediction[:n] - self.rating) - off[:n])
            + self.weight[n:] @ off[n:]
        )

    def above(self, prediction: Vector, n_rounds: int, /) -> tuple[Vector, Vector]:
        """Parabolas grow narrower from round to round, down to the smallest error that counts."""
        n, target = self.rating.size, self.guess.copy()
        target[:n] = self.rating
        size = np.maximum(np.abs(prediction - target), max(SMALLEST_ERROR, 0.5**n_rounds))
        target[:n] += size[:n] * np.sign(prediction[:n] - self.guess[:n])
        return target, self.weight / (2 * size)
