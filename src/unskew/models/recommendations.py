"""The best items of users, as a table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from unskew.data.ids import Ids, format_id
from unskew.data.result import Result
from unskew.tables import count_noun
from unskew.types import (
    Scores,
)

MAX_SHOWN = 10
"""Users that the table of recommendations shows."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Recommendations(Result):
    """The best items of each user, best first. Missing items have NaN scores at the end."""

    kind: ClassVar[str] = "recommendations"
    users: Ids
    items: Ids
    """Users x k."""
    scores: Scores
    """Users x k. They are on the scale of ratings, the order is that of the scores before."""
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
