"""What every recommender can do once it is fitted: predict, recommend, be copied, be saved."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from numbers import Integral
from pathlib import Path
from typing import Any, ClassVar, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from unskew.data.factors import Factors
from unskew.data.frames import make_frame
from unskew.data.ids import Ids, as_ids, describe_id_types, find_codes, format_id
from unskew.data.ratings import Ratings
from unskew.errors import BadPredictionError, UnknownIdError, UnknownNameError, UsageError
from unskew.io.model_files import write_model
from unskew.ranking.positions import Ranker, ranker_named
from unskew.settings import Configurable, require_fitted
from unskew.tables import count_noun
from unskew.types import IntVector, Scorer, Scores, Vector

OnUnknown: TypeAlias = Literal["fallback", "nan", "raise"]
Seen: TypeAlias = tuple[npt.NDArray[np.int64], IntVector]
"""Where each user's items start, and the items."""
Shapes: TypeAlias = dict[str, tuple[Any, tuple[int, ...]]]
BLOCK_PAIRS = 1 << 20


@dataclass(frozen=True, slots=True, eq=False)
class Recommendations:
    """The best items of each user, best first; fewer than k leave NaN scores at the end."""

    users: Ids
    items: Ids
    """Users x k."""
    scores: Vector
    """Users x k."""
    backend: str | None = None

    def to_columns(self) -> dict[str, Any]:
        """One row a recommendation: user_id, item_id, score, position."""
        held = np.isfinite(self.scores)
        row, place = np.nonzero(held)
        return {
            "user_id": self.users[row],
            "item_id": self.items[held],
            "score": self.scores[held],
            "position": place + 1,
        }

    def to_frame(self, backend: str | None = None) -> Any:
        """The same as a data frame."""
        return make_frame(self.to_columns(), backend or self.backend)

    def __repr__(self) -> str:
        return f"Recommendations({count_noun(len(self.users), 'user')}, {count_noun(self.items.shape[1], 'item')} each)"


class Recommender(Configurable, ABC):
    """Predicts any pair of ids and recommends the best items; how a pair is predicted is the subclass's part."""

    predicts_ratings: ClassVar[bool] = True
    """False where predictions only rank items, as those learnt from clicks do."""
    users_: Ids
    items_: Ids
    seen_starts_: npt.NDArray[np.int64]
    seen_items_: IntVector
    """Items that each user rated in the log, for ``exclude_seen``."""

    def predict(
        self, users: npt.ArrayLike, items: npt.ArrayLike, *, on_unknown: OnUnknown = "fallback"
    ) -> Vector:
        """A predicted rating for each pair of ids.

        Where a user or an item is unknown, ``"fallback"`` predicts from what is known (offsets, or the mean rating), ``"nan"``
        gives NaN, and ``"raise"`` an error that names the first.
        """
        user, item = self._pairs(users, items, on_unknown)
        pieces = (slice(first, first + BLOCK_PAIRS) for first in range(0, user.size, BLOCK_PAIRS))
        values = np.concatenate(
            [self._predict_codes(user[piece], item[piece]) for piece in pieces] or [np.empty(0)]
        )
        return (
            np.where((user >= 0) & (item >= 0), values, np.nan) if on_unknown == "nan" else values
        )

    @abstractmethod
    def _predict_codes(self, user: IntVector, item: IntVector) -> Vector:
        """A rating for each pair of codes; -1 is an unknown user or item."""

    @abstractmethod
    def scorer(self, users: Ids, items: Ids, /) -> Scorer:
        """A scorer whose codes index ``users`` and whose columns are ``items``, unknown ones included."""

    def recommend(
        self,
        users: npt.ArrayLike,
        k: int = 10,
        *,
        exclude_seen: bool = True,
        on_unknown: OnUnknown = "fallback",
        engine: str | Ranker = "auto",
    ) -> Recommendations:
        """The ``k`` best items of each user, without those rated in the log, scored in blocks of users.

        An unknown user gets the items that are best without knowing who asks (``"fallback"``), none (``"nan"``), or an error.
        ``engine="gpu"`` ranks there if the model's predictions are products of factors, and here if not.
        """
        require_fitted(self)
        ranker = ranker_named(engine)
        ids = as_ids(users)
        codes = self._codes(ids, self.users_, "user", on_unknown)
        if not (isinstance(k, Integral) and k >= 1):
            raise UsageError(f"k must be a whole number, at least 1; got {k!r}.")
        n_best = min(int(k), len(self.items_))
        score, hidden = (
            self.scorer(ids, self.items_),
            self._seen_by(codes if exclude_seen else np.full_like(codes, -1)),
        )
        if ranker is not None and isinstance(score, Factors):
            best, scores = ranker.best(score, n_best, *hidden)
        else:
            best, scores = _best_items(score, n_best, (ids.size, len(self.items_)), *hidden)
        scores = np.where(np.isneginf(scores), np.nan, scores)
        if on_unknown == "nan":
            scores[codes < 0] = np.nan
        return Recommendations(ids, self.items_[best], scores)

    def _seen_by(self, codes: IntVector) -> Seen:
        """What these users rated; an unknown one nothing."""
        length = np.where(codes >= 0, np.diff(self.seen_starts_, append=0)[codes], 0)
        starts = np.concatenate([[0], np.cumsum(length)])
        place = np.arange(starts[-1]) + np.repeat(self.seen_starts_[codes] - starts[:-1], length)
        return starts, self.seen_items_[place]

    def n_seen(self, log: Ratings) -> int:
        """How many cells of ``log`` are in the log that the model was fitted to, where its errors say little."""
        require_fitted(self)
        user, item = (
            find_codes(log.users, self.users_)[log.user],
            find_codes(log.items, self.items_)[log.item],
        )
        n_items, of_user = (
            len(self.items_),
            np.repeat(np.arange(len(self.users_)), np.diff(self.seen_starts_)),
        )
        known = (user >= 0) & (item >= 0)
        cells = user[known].astype(np.int64) * n_items + item[known]
        return int(np.isin(cells, of_user * np.int64(n_items) + self.seen_items_).sum())

    def save(self, path: str | Path) -> None:
        """Write the fitted model: a zip of arrays and a JSON manifest, never code. It replaces an old file in one step."""
        write_model(self, Path(path))

    def _remember_log(self, log: Ratings, seen: Seen | None = None) -> None:
        """Keep ids, and who rated what; ``seen`` spares sorting the log again."""
        self.users_, self.items_ = log.users, log.items
        self.seen_starts_, self.seen_items_ = _items_by_user(log) if seen is None else seen

    def _pairs(
        self, users: npt.ArrayLike, items: npt.ArrayLike, on_unknown: OnUnknown
    ) -> tuple[IntVector, IntVector]:
        """Codes of as many users as items."""
        require_fitted(self)
        user, item = (
            self._codes(users, self.users_, "user", on_unknown),
            self._codes(items, self.items_, "item", on_unknown),
        )
        if user.shape != item.shape:
            raise UsageError(f"give as many users as items; got {user.size} and {item.size}.")
        return user, item

    def _codes(
        self, ids: npt.ArrayLike, vocabulary: Ids, kind: str, on_unknown: OnUnknown
    ) -> IntVector:
        if on_unknown not in ("fallback", "nan", "raise"):
            raise UnknownNameError("on_unknown", on_unknown, ("fallback", "nan", "raise"))
        asked = as_ids(ids)
        codes = find_codes(asked, vocabulary)
        if on_unknown == "raise" and (codes < 0).any():
            row = int((codes < 0).argmax())
            raise UnknownIdError(
                f"{int((codes < 0).sum())} of {codes.size} {kind}s were not in the log; "
                f"the first is {format_id(asked[row])} at place {row}{describe_id_types(asked, vocabulary)}. "
                "Leave them out, or use on_unknown='fallback'."
            )
        return codes

    def _find_inconsistency(self) -> str | None:
        """Arrays must have the shapes that the ids call for."""
        shapes = {
            "seen_starts": (self.seen_starts_, (len(self.users_) + 1,)),
            "seen_items": (self.seen_items_, (int(self.seen_starts_[-1]),)),
            **self._shapes(),
        }
        for name, (array, expected) in shapes.items():
            if np.shape(array) != expected:
                return f"{name} has shape {np.shape(array)} where the ids call for {expected}."
        return None

    @abstractmethod
    def _shapes(self) -> Shapes:
        """What a subclass adds: each array by name, and the shape that the ids call for."""


def _items_by_user(log: Ratings) -> Seen:
    starts = np.zeros(log.n_users + 1, np.int64)
    np.cumsum(np.bincount(log.user, minlength=log.n_users), out=starts[1:])
    return starts, log.item[np.argsort(log.user, kind="stable")]


def _best_items(
    score: Scorer,
    n_best: int,
    shape: tuple[int, int],
    starts: npt.NDArray[np.int64],
    hidden: IntVector,
) -> tuple[npt.NDArray[np.intp], Vector]:
    """As :class:`~unskew.ranking.positions.Ranker` has it, of any scorer."""
    n_users, size = shape[0], max(1, BLOCK_PAIRS // shape[1])
    items, scores = np.empty((n_users, n_best), np.intp), np.empty((n_users, n_best))
    for first in range(0, n_users, size):
        rows = np.arange(first, min(first + size, n_users), dtype=np.int32)
        block = np.array(score(rows), dtype=np.float64)
        if np.isnan(block).any():
            raise BadPredictionError(
                "a score is NaN, which has no place. Fit the model again, with a stronger penalty."
            )
        of_block = starts[first : rows.size + first + 1]
        block[
            np.repeat(np.arange(rows.size), np.diff(of_block)), hidden[of_block[0] : of_block[-1]]
        ] = -np.inf
        items[rows] = _best_columns(block, n_best)
        scores[rows] = np.take_along_axis(block, items[rows], axis=1)
    return items, scores


def _best_columns(block: Scores, n_best: int) -> npt.NDArray[np.intp]:
    """The columns of the ``n_best`` largest of each row, best first; equal scores in the order of the items."""
    if n_best == block.shape[1]:
        return np.argsort(-block, axis=1, kind="stable")
    last = np.partition(block, -n_best, axis=1)[:, -n_best, None]
    above, level = block > last, block == last
    room = n_best - above.sum(axis=1, keepdims=True)
    some = np.nonzero(above | (level & (np.cumsum(level, axis=1) <= room)))[1].reshape(-1, n_best)
    order = np.argsort(-np.take_along_axis(block, some, axis=1), axis=1, kind="stable")
    return np.take_along_axis(some, order, axis=1)
