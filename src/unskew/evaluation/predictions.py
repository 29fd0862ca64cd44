"""What a caller may pass as a model's predictions, and how each kind answers for the cells of a log."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol, TypeAlias, runtime_checkable

import numpy as np
import numpy.typing as npt

from unskew.data.columns import DEFAULTS, find_column
from unskew.data.factors import Factors
from unskew.data.frames import EagerFrame, id_column, is_frame, number_column, open_frame
from unskew.data.ids import find_codes
from unskew.data.ratings import Ratings
from unskew.errors import BadPredictionError, ColumnError
from unskew.ranking.positions import Positions, Ranker, positions
from unskew.types import IntVector, Scorer, Scores, Vector

BLOCK_CELLS = 1 << 22


@runtime_checkable
class Model(Protocol):
    """A fitted model, ours or anyone's, that predicts pairs of ids."""

    def predict(
        self, users: npt.NDArray[np.generic], items: npt.NDArray[np.generic], /
    ) -> npt.ArrayLike:
        """One prediction for each (user, item)."""
        ...


@runtime_checkable
class BlockModel(Model, Protocol):
    """A model that can also score users against all items at once, which ranking is made of."""

    def scorer(self, users: npt.NDArray[np.generic], items: npt.NDArray[np.generic], /) -> Scorer:
        """A scorer whose codes index ``users`` and whose columns are ``items``."""
        ...


PredictionsLike: TypeAlias = npt.ArrayLike | Model | Scorer | object


class Predictions(Protocol):
    """One model's answers for a log."""

    def values(self, log: Ratings, /) -> Vector:
        """A predicted rating for each cell, in the order of the log."""
        ...

    def positions(self, log: Ratings, /, *, n_items: int, top: int | None) -> Positions:
        """Each cell's place among all items, exact up to ``top``."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class Aligned:
    """One predicted rating for each row of the log."""

    name: str
    given: Vector

    def values(self, log: Ratings, /) -> Vector:
        """The values as given."""
        if self.given.shape != (len(log),):
            raise BadPredictionError(
                f"model {self.name!r}: got predictions of shape {self.given.shape} for a log of {len(log)} ratings; "
                f"give one for each row of the log, in its order, a matrix of shape {(log.n_users, log.n_items)}, "
                "a frame, a model, or a scorer."
            )
        return _finite(self.name, self.given, log)

    def positions(self, log: Ratings, /, *, n_items: int, top: int | None) -> Positions:  # noqa: ARG002
        """Not to be had: the rest of the ranking is unknown."""
        raise BadPredictionError(
            f"model {self.name!r}: ranking metrics need each cell's place among all items, which predictions of the logged cells "
            "alone do not tell. Pass a model, a callable that scores a block of users against all items, "
            "or a frame with a position column."
        )


@dataclass(frozen=True, slots=True, eq=False)
class Framed:
    """A frame of user, item, prediction and perhaps position; cells are matched by their ids."""

    name: str
    frame: EagerFrame

    def values(self, log: Ratings, /) -> Vector:
        """The prediction column, brought into the order of the log."""
        return _finite(self.name, self._column(log, "prediction"), log)

    def positions(self, log: Ratings, /, *, n_items: int, top: int | None) -> Positions:  # noqa: ARG002
        """The position column, brought into the order of the log."""
        place = self._column(log, "position")
        if place.max() > n_items:
            raise BadPredictionError(
                f"model {self.name!r}: positions go up to {place.max():g}, but there are {n_items} items."
            )
        return Positions.from_column(place)

    def _column(self, log: Ratings, role: str) -> Vector:
        return number_column(self.frame, self._name(role, None))[self._rows(log)]

    def _name(self, role: str, given: str | None) -> str:
        try:
            return find_column(role, given, self.frame.columns)
        except ColumnError as error:
            raise ColumnError(
                f"model {self.name!r}: which column of its frame is the {role}? Rename it to {DEFAULTS[role]!r}; "
                f"the columns are {', '.join(map(repr, self.frame.columns))}."
            ) from error

    def _rows(self, log: Ratings) -> npt.NDArray[np.intp]:
        """For each cell of the log, the row of the frame that holds it."""
        user, item = (
            self._codes(log, role, ids) for role, ids in (("user", log.users), ("item", log.items))
        )
        known = np.flatnonzero((user >= 0) & (item >= 0))
        key = user[known].astype(np.int64) * log.n_items + item[known]
        order = np.argsort(key, kind="stable")
        key, known = key[order], known[order]
        self._refuse_repeats(key, known)
        wanted = log.user.astype(np.int64) * log.n_items + log.item
        place = np.minimum(np.searchsorted(key, wanted), max(key.size - 1, 0))
        missing = key[place] != wanted if key.size else np.ones(len(log), dtype=bool)
        if missing.any():
            raise _missing(self.name, missing, log)
        return known[place]

    def _codes(self, log: Ratings, role: str, ids: npt.NDArray[np.generic]) -> IntVector:
        as_in_log = log.columns[role] if log.columns[role] in self.frame.columns else None
        return find_codes(id_column(self.frame, self._name(role, as_in_log)), ids)

    def _refuse_repeats(self, key: npt.NDArray[np.int64], rows: npt.NDArray[np.intp]) -> None:
        repeated = key[1:] == key[:-1]
        if repeated.any():
            raise BadPredictionError(
                f"model {self.name!r}: {int(repeated.sum())} cells have more than one prediction; "
                f"the first is repeated at row {int(rows[1:][repeated].min())} of the predictions. Keep one."
            )


@dataclass(frozen=True, slots=True, eq=False)
class Scored:
    """A scorer of user blocks against all items of the log's vocabulary."""

    name: str
    scorer: Scorer
    ranker: Ranker | None
    """Where factors are ranked; None is here."""

    def values(self, log: Ratings, /) -> Vector:
        """The scores of the logged cells, picked block by block."""
        values = np.empty(len(log))
        for users, rows in _blocks(log):
            values[rows] = self.block(log, users)[
                np.searchsorted(users, log.user[rows]), log.item[rows]
            ]
        return _finite(self.name, values, log)

    def positions(self, log: Ratings, /, *, n_items: int, top: int | None) -> Positions:
        """Places among all items."""
        if n_items != log.n_items:
            raise BadPredictionError(
                f"model {self.name!r}: the universe has {n_items} items, but the log knows the ids of only {log.n_items}, "
                "so that the others cannot be ranked. Build the log with items=[all item ids], "
                "or pass a frame with a position column."
            )
        if self.ranker is not None and isinstance(self.scorer, Factors):
            return self.ranker.positions(self.scorer, log.user, log.item)
        return positions(log.user, log.item, log.n_users, log.n_items, self.scorer, top=top)

    def block(self, log: Ratings, users: IntVector) -> Scores:
        """Scores of a block of users, of the right shape."""
        scores = np.asarray(self.scorer(users))
        if scores.shape != (users.size, log.n_items):
            raise BadPredictionError(
                f"model {self.name!r}: the scorer gave shape {scores.shape} for {users.size} users and {log.n_items} items."
            )
        return scores


@dataclass(frozen=True, slots=True, eq=False)
class Predicted(Scored):
    """A model that predicts pairs of ids; its scorer serves where whole rows are needed."""

    model: Model

    def values(self, log: Ratings, /) -> Vector:
        """What the model predicts for the logged pairs."""
        given = np.asarray(
            self.model.predict(log.users[log.user], log.items[log.item]), dtype=np.float64
        )
        return Aligned(self.name, given).values(log)


def read_predictions(
    name: str, given: PredictionsLike, log: Ratings, *, ranker: Ranker | None = None
) -> Predictions:
    """Tell apart a frame, a model, a scorer, a matrix and an aligned array."""
    if is_frame(given):
        return Framed(name, open_frame(given))
    if isinstance(given, BlockModel):
        return Predicted(name, given.scorer(log.users, log.items), ranker, given)
    if isinstance(given, Model):
        return Predicted(name, _scorer_from_pairs(name, given, log), ranker, given)
    if isinstance(given, Factors) and (given.n_users, given.n_items) != (log.n_users, log.n_items):
        raise BadPredictionError(
            f"model {name!r}: factors of {given.n_users} users and {given.n_items} items cannot be matched with a log "
            f"of {log.n_users} and {log.n_items}; bring them into the order of log.users and log.items."
        )
    if callable(given):
        return Scored(name, given, ranker)
    values = _numbers(name, given)
    if values.shape == (log.n_users, log.n_items):
        return Scored(name, values.__getitem__, ranker)
    return Aligned(name, values)


def _numbers(name: str, given: PredictionsLike) -> Vector:
    try:
        return np.asarray(given, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise BadPredictionError(
            f"model {name!r}: a {type(given).__name__} cannot be read as predictions ({error}). "
            "Pass an array of numbers, an eager frame, a model with predict(users, items), or a scorer."
        ) from error


def _scorer_from_pairs(name: str, model: Model, log: Ratings) -> Scorer:
    def score(users: IntVector, /) -> Scores:
        pairs = np.repeat(log.users[users], log.n_items), np.tile(log.items, users.size)
        scores = np.asarray(model.predict(*pairs), dtype=np.float64)
        if scores.size != pairs[0].size:
            raise BadPredictionError(
                f"model {name!r}: predict gave shape {scores.shape} for {pairs[0].size} pairs of ids."
            )
        return scores.reshape(users.size, log.n_items)

    return score


def _blocks(log: Ratings) -> Iterator[tuple[IntVector, npt.NDArray[np.intp]]]:
    """Users with logged cells, some at a time, and the rows of their cells."""
    order = np.argsort(log.user, kind="stable")
    users, starts = np.unique(log.user[order], return_index=True)
    ends = np.append(starts[1:], len(log))
    size = max(1, BLOCK_CELLS // log.n_items)
    for first in range(0, users.size, size):
        last = min(first + size, users.size)
        yield users[first:last], order[starts[first] : ends[last - 1]]


def _finite(name: str, values: Vector, log: Ratings) -> Vector:
    bad = ~np.isfinite(values)
    if bad.any():
        raise _missing(name, bad, log)
    return values


def _missing(name: str, bad: npt.NDArray[np.bool_], log: Ratings) -> BadPredictionError:
    return BadPredictionError(
        f"model {name!r}: predictions are missing for {int(bad.sum())} of {len(log)} logged cells; "
        f"the first is {log.name_cell(int(bad.argmax()))}. "
        "Predict those too, or judge the model on log.take(rows) of the cells it covers."
    )
