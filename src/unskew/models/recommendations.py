"""The best items of users, and similar items or users, as tables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from unskew.data.ids import Ids, format_id
from unskew.data.result import Result
from unskew.errors import UsageError
from unskew.tables import count_noun
from unskew.types import (
    Floats,
    IntVector,
    Scores,
)

MAX_SHOWN = 10
"""Users that the table of recommendations shows."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Recommendations(Result):
    """The best items of each user, best first.

    A user with fewer candidates than the others has a shorter list. Its row is filled up at the
    end: there ``scores`` are NaN, and ``items`` are ids that mean nothing. ``np.isfinite(scores)``
    tells which entries are recommendations; :meth:`to_frame` and :meth:`to_columns` have only
    these.
    """

    kind: ClassVar[str] = "recommendations"
    users: Ids
    items: Ids
    """Users x k; an id whose score is NaN only fills up the row, and is no recommendation."""
    scores: Scores
    """Users x k; NaN where there is no further candidate. They are on the scale of ratings, the
    order is that of the scores before."""
    n_clipped: int = 0
    """Scores that were outside the range of the log's ratings, and are shown at its limit."""
    backend: str | None = None

    def to_columns(self) -> dict[str, Any]:
        """One row for each recommendation: user_id, item_id, score, position."""
        has_item = np.isfinite(self.scores)
        row, column = np.nonzero(has_item)
        return {
            "user_id": self.users[row],
            "item_id": self.items[has_item],
            "score": self.scores[has_item],
            "position": column + 1,
        }

    def to_record(self) -> Mapping[str, Any]:
        columns = {name: values.tolist() for name, values in self.to_columns().items()}
        rows = zip(*columns.values(), strict=True)
        shown = [dict(zip(columns, row, strict=True)) for row in rows]
        return {"rows": shown, "n_clipped": self.n_clipped}

    def _shown_columns(self) -> dict[str, list[Any]]:
        """A row for each of the first users: items and scores, best first."""
        rows = zip(self.items[:MAX_SHOWN], self.scores[:MAX_SHOWN], strict=True)
        return {
            "user": [format_id(user) for user in self.users[:MAX_SHOWN]],
            "items (scores), best first": [
                ", ".join(
                    f"{format_id(item)} ({score:.3g})"
                    for item, score in zip(items, scores, strict=True)
                    if np.isfinite(score)
                )
                for items, scores in rows
            ],
        }

    def _footer(self) -> list[str]:
        n_users, n_items = len(self.users), self.items.shape[1]
        rest = f"; {MAX_SHOWN} shown" if n_users > MAX_SHOWN else ""
        outside = (
            f"; {self.n_clipped:,} of {np.isfinite(self.scores).sum():,} scores were outside the "
            "range of the log's ratings and are shown at its limit"
            if self.n_clipped
            else ""
        )
        size = f"{count_noun(n_users, 'user')}, {count_noun(n_items, 'item')} each"
        return [f"{size}{rest}{outside}"]


MIN_PRODUCT = 1e-3
"""Factors whose largest product with the other side is below this have no direction."""
BLOCK_ROWS = 1024


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Neighbors(Result):
    """The most similar items (or users) of each id, most similar first."""

    kind: ClassVar[str] = "neighbors"
    ids: Ids
    neighbors: Ids
    """Ids x k."""
    similarity: Scores
    """Ids x k: cosines of the factors, from -1 to 1."""
    backend: str | None = None

    def to_columns(self) -> dict[str, Any]:
        """One row for each pair: id, neighbor, similarity, position."""
        n_ids, k = self.neighbors.shape
        return {
            "id": np.repeat(self.ids, k),
            "neighbor": self.neighbors.ravel(),
            "similarity": self.similarity.ravel(),
            "position": np.tile(np.arange(1, k + 1), n_ids),
        }

    def to_record(self) -> Mapping[str, Any]:
        columns = {name: values.tolist() for name, values in self.to_columns().items()}
        rows = zip(*columns.values(), strict=True)
        return {"rows": [dict(zip(columns, row, strict=True)) for row in rows]}


def find_neighbors(rows: Floats, codes: IntVector, k: int) -> tuple[IntVector, Scores]:
    """The ``k`` rows with the largest cosine to each of ``codes``, without the row itself.

    Users and items may be rotated together without changing a prediction; cosines stay the same.
    """
    length = np.linalg.norm(rows, axis=1)
    unit = rows / np.where(length > 0, length, 1.0)[:, None]
    best = np.empty((codes.size, k), np.int32)
    cosines = np.empty((codes.size, k))
    for first in range(0, codes.size, BLOCK_ROWS):
        block = codes[first : first + BLOCK_ROWS]
        scores = unit[block] @ unit.T
        scores[np.arange(block.size), block] = -np.inf
        top = np.argpartition(-scores, k - 1, axis=1)[:, :k]
        order = np.argsort(-np.take_along_axis(scores, top, axis=1), axis=1, kind="stable")
        best[first : first + block.size] = np.take_along_axis(top, order, axis=1)
        chosen = np.take_along_axis(scores, best[first : first + block.size], axis=1)
        cosines[first : first + block.size] = chosen
    return best, cosines


def require_directions(rows: Floats, opposite: Floats) -> None:
    """Raise an error if there are no factors, or if they are all practically zero."""
    longest = [np.linalg.norm(side, axis=1).max(initial=0.0) for side in (rows, opposite)]
    if longest[0] * longest[1] < MIN_PRODUCT:
        raise UsageError(
            "the factors of this model are zero, so nothing is similar.",
            parameter="l2",
            remedy="The log shows no structure beyond offsets, or the penalty is too strong: "
            "use a smaller `l2`, or more ratings.",
        )
