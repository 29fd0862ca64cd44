"""What a caller may pass as propensities, and which cells each kind can answer for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

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
from unskew.types import IntVector, Vector


@runtime_checkable
class PairModel(Protocol):
    """A fitted model that tells the propensity of any pair of ids."""

    def predict_pairs(self, users: npt.ArrayLike, items: npt.ArrayLike, /) -> npt.ArrayLike:
        """One propensity for each pair."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class Source:
    """Propensities of the logged cells."""

    name: str
    observed: Propensities


@dataclass(frozen=True, slots=True, eq=False)
class LoggedOnly(Source):
    """Nothing is known of unobserved cells."""

    reason: str
    """Why, in words."""


@dataclass(frozen=True, slots=True, eq=False)
class Gridded(Source):
    """A users x items matrix."""

    matrix: npt.NDArray[np.generic]

    def chances(self, log: Ratings, user: IntVector, item: IntVector) -> Vector:
        """P(O = 1) of cells given by codes of the log."""
        return _checked(self, self.matrix[user, item], log, user, item)


@dataclass(frozen=True, slots=True, eq=False)
class Paired(Source):
    """A model of pairs."""

    model: PairModel

    def chances(self, log: Ratings, user: IntVector, item: IntVector) -> Vector:
        """P(O = 1) of cells given by codes of the log."""
        return _checked(
            self, self.model.predict_pairs(log.users[user], log.items[item]), log, user, item
        )


def read_source(name: str, given: PropensitiesLike, log: Ratings) -> LoggedOnly | Gridded | Paired:
    """Tell apart a model of pairs, a model of logged cells, a matrix and values in the order of the log."""
    observed = as_propensities(log, given)
    if isinstance(given, PropensityPredictor):
        kind = type(given).__name__
        if getattr(given, "sees_ratings", False):
            return LoggedOnly(
                name,
                observed,
                f"{kind} needs the rating of a cell, which an unobserved one does not have",
            )
        if not isinstance(given, PairModel):
            return LoggedOnly(name, observed, f"{kind} has no predict_pairs(users, items)")
        return Paired(name, observed, given)
    if is_frame(given) or np.ndim(given) == 2:
        return Gridded(name, observed, np.asarray(given))
    return LoggedOnly(name, observed, "values of the logged cells were given, and no others")


def _checked(
    source: Source, given: npt.ArrayLike, log: Ratings, user: IntVector, item: IntVector
) -> Vector:
    values = np.asarray(given, dtype=np.float64)
    if values.shape != user.shape:
        raise BadPropensityError(
            f"{source.name!r} gave propensities of shape {values.shape} for {user.size:,} pairs."
        )
    good = (values >= 0) & (values <= 1)
    if not good.all():
        place = int(good.argmin())
        raise BadPropensityError(
            f"{source.name!r}: {int((~good).sum()):,} of {good.size:,} propensities of unobserved cells lie outside [0, 1]; the "
            f"first is {values[place]} at user {format_id(log.users[user[place]])}, item {format_id(log.items[item[place]])}."
        )
    return values
