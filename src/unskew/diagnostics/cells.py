"""All cells, observed or not: each of them, or every observed one and a uniform sample of the others."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from unskew.data.cells import Cells, are_among, observed_cells
from unskew.data.ratings import Ratings
from unskew.types import IntVector, Vector


@dataclass(frozen=True, slots=True, eq=False)
class Unobserved:
    """Cells without a rating, by codes of the log."""

    user: IntVector
    item: IntVector
    stands_for: float
    """How many unobserved cells each of these stands for: 1 where they are all there."""
    is_sample: bool

    @classmethod
    def of(cls, log: Ratings, *, max_cells: int, random_state: int) -> Unobserved:
        """All, where the log has at most ``max_cells`` cells; else what is unobserved of that many, drawn with replacement."""
        logged = observed_cells(log)
        is_sample = log.n_cells > max_cells
        cell = (
            _drawn(logged, log.n_cells, max_cells, random_state)
            if is_sample
            else _others(logged, log.n_cells)
        )
        user, item = (part.astype(np.int32) for part in np.divmod(cell, log.n_items))
        return cls(user, item, (log.n_cells - len(log)) / max(cell.size, 1), is_sample)


@dataclass(frozen=True, slots=True, eq=False)
class Chances:
    """P of every observed cell and of the unobserved ones, or of a sample of these."""

    observed: Vector
    unobserved: Vector
    stands_for: float
    is_sample: bool

    @property
    def n_cells(self) -> int:
        """Observed and unobserved ones."""
        return self.observed.size + round(self.stands_for * self.unobserved.size)

    @property
    def all(self) -> Vector:
        """Observed cells first."""
        return np.concatenate([self.observed, self.unobserved])

    @property
    def weight(self) -> Vector:
        """How many cells each of ``all`` stands for."""
        return np.repeat([1.0, self.stands_for], [self.observed.size, self.unobserved.size])

    @property
    def is_observed(self) -> Vector:
        """O of each of ``all``."""
        return np.repeat([1.0, 0.0], [self.observed.size, self.unobserved.size])

    def mean(self, observed: Vector, unobserved: Vector) -> tuple[float, float | None]:
        """The mean over all cells of a number known for each of these, and its standard error where they are a sample."""
        total = float(observed.sum()) + self.stands_for * float(unobserved.sum())
        if not self.is_sample:
            return total / self.n_cells, None
        spread = float(unobserved.std(ddof=1)) if unobserved.size > 1 else 0.0
        return total / self.n_cells, self.stands_for * math.sqrt(
            unobserved.size
        ) * spread / self.n_cells


def _others(logged: Cells, n_cells: int) -> Cells:
    is_missing = np.ones(n_cells, dtype=bool)
    is_missing[logged] = False
    return np.flatnonzero(is_missing)


def _drawn(logged: Cells, n_cells: int, n_draws: int, random_state: int) -> Cells:
    cell = np.random.default_rng(random_state).integers(0, n_cells, n_draws)
    return np.compress(~are_among(cell, logged), cell)
