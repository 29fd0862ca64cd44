"""Propensities of all cells, observed and unobserved, or of a sample of the unobserved ones."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, TypeAlias, runtime_checkable

import numpy as np
import numpy.typing as npt

from unskew.data.cells import all_or_sampled_cells, drop_observed, user_and_item
from unskew.data.frames import is_frame
from unskew.data.ids import format_id
from unskew.data.propensities import (
    Propensities,
    PropensitiesLike,
    PropensityPredictor,
    as_propensities,
)
from unskew.data.ratings import Ratings
from unskew.errors import BadPropensityError
from unskew.types import IntVector, RandomState, Vector

PredictCells: TypeAlias = Callable[[IntVector, IntVector], npt.ArrayLike]
"""P of cells, given the codes of their users and items in the log."""


@runtime_checkable
class PairPredictor(Protocol):
    """A fitted model that predicts the propensity of any pair of ids."""

    def predict_pairs(self, users: npt.ArrayLike, items: npt.ArrayLike, /) -> npt.ArrayLike:
        """One propensity for each pair."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class PropensitySource:
    """Propensities of one model: of the logged cells, and of any others that it can predict."""

    name: str
    observed: Propensities
    predict: PredictCells | None = None
    """None if only logged cells have a propensity."""
    limitation: str = ""
    """Why unobserved cells have no propensity."""

    @classmethod
    def read(cls, name: str, propensities: PropensitiesLike, log: Ratings) -> PropensitySource:
        """Tell apart a model of pairs, a model of logged cells, a matrix, and a list of values."""
        observed = as_propensities(log, propensities)
        if isinstance(propensities, PropensityPredictor):
            kind = type(propensities).__name__
            if getattr(propensities, "sees_ratings", False):
                limitation = f"{kind} needs ratings, which unobserved cells do not have"
                return cls(name, observed, limitation=limitation)
            if not isinstance(propensities, PairPredictor):
                limitation = f"{kind} has no method predict_pairs(users, items)"
                return cls(name, observed, limitation=limitation)
            predict_pairs = propensities.predict_pairs
            return cls(
                name, observed, lambda user, item: predict_pairs(log.users[user], log.items[item])
            )
        if is_frame(propensities) or np.ndim(propensities) == 2:
            matrix = np.asarray(propensities)
            return cls(name, observed, lambda user, item: matrix[user, item])
        return cls(name, observed, limitation="only values of the logged cells were passed")


@dataclass(frozen=True, slots=True, eq=False)
class UnobservedCells:
    """Cells without a rating, by codes of the log: all of them, or a sample."""

    user: IntVector
    item: IntVector
    multiplicity: float
    """How many unobserved cells each of these represents: 1 if all are listed."""
    is_sample: bool

    @classmethod
    def of(cls, log: Ratings, *, max_cells: int, random_state: RandomState) -> UnobservedCells:
        """All, if the log has at most ``max_cells`` cells; else the unobserved of that many draws.

        The draws are uniform over all cells, with replacement.
        """
        rng = np.random.default_rng(random_state)
        cells = drop_observed(all_or_sampled_cells(log.n_cells, max_cells, rng), log)
        multiplicity = (log.n_cells - len(log)) / max(cells.size, 1)
        is_sample = log.n_cells > max_cells
        return cls(*user_and_item(cells, log.n_items), multiplicity, is_sample)

    def predict(self, source: PropensitySource, log: Ratings) -> CellPropensities | None:
        """Propensities of the logged cells and of these; None if the source has none for these."""
        if source.predict is None:
            return None
        values = np.asarray(source.predict(self.user, self.item), dtype=np.float64)
        self._check(values, source.name, log)
        return CellPropensities(source.observed.values, values, self.multiplicity, self.is_sample)

    def _check(self, values: Vector, name: str, log: Ratings) -> None:
        if values.shape != self.user.shape:
            raise BadPropensityError(
                f"{name!r} returned propensities of shape {values.shape} "
                f"for {self.user.size:,} pairs.",
                parameter="propensities",
                remedy="Return one number for each pair of user and item.",
            )
        is_valid = (values >= 0) & (values <= 1)
        if not is_valid.all():
            first = int(is_valid.argmin())
            user, item = log.users[self.user[first]], log.items[self.item[first]]
            where = f"user {format_id(user)}, item {format_id(item)}"
            raise BadPropensityError(
                f"{name!r}: {int((~is_valid).sum()):,} of {values.size:,} propensities of "
                f"unobserved cells are outside [0, 1]; the first is {values[first]} at {where}.",
                parameter="propensities",
                value=float(values[first]),
                where=where,
                remedy="A propensity is a probability: correct the model or the matrix.",
            )


@dataclass(frozen=True, slots=True, eq=False)
class CellPropensities:
    """P of every observed cell, and of the unobserved cells or a sample of them."""

    observed: Vector
    unobserved: Vector
    multiplicity: float
    """How many unobserved cells each value of ``unobserved`` represents."""
    is_sample: bool

    @property
    def n_cells(self) -> int:
        """The number of all cells, observed and unobserved."""
        return self.observed.size + round(self.multiplicity * self.unobserved.size)

    @property
    def values(self) -> Vector:
        """P of observed cells, then of unobserved ones."""
        return np.concatenate([self.observed, self.unobserved])

    @property
    def weight(self) -> Vector:
        """How many cells each of ``values`` represents."""
        return np.repeat([1.0, self.multiplicity], [self.observed.size, self.unobserved.size])

    @property
    def is_observed(self) -> Vector:
        """O of each of ``values``: 1 for observed cells and 0 for others."""
        return np.repeat([1.0, 0.0], [self.observed.size, self.unobserved.size])

    def mean(self, observed: Vector, unobserved: Vector) -> tuple[float, float | None]:
        """The mean over all cells of one number per cell, and its standard error.

        The error is None if ``unobserved`` is not a sample.
        """
        total = float(observed.sum()) + self.multiplicity * float(unobserved.sum())
        mean = total / self.n_cells
        if not self.is_sample:
            return mean, None
        deviation = float(unobserved.std(ddof=1)) if unobserved.size > 1 else 0.0
        total_error = self.multiplicity * math.sqrt(unobserved.size) * deviation
        return mean, total_error / self.n_cells
