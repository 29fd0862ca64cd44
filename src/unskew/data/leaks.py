"""Leaks between a training log and a test log: what the test must not share with training."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from unskew.data.cells import cell_numbers, is_among, observed_cells
from unskew.data.ids import find_codes
from unskew.data.parts import SplitUnit
from unskew.data.ratings import Ratings, require_log
from unskew.data.result import Result
from unskew.errors import UnskewWarning
from unskew.tables import count_noun
from unskew.types import IntVector


@dataclass(frozen=True, slots=True, repr=False)
class Leaks(Result):
    """What a training log and a test log have in common, or in the wrong order."""

    kind: ClassVar[str] = "leaks"
    n_test: int
    n_shared: int
    """Ratings of the test whose (user, item) is in the training log."""
    first_shared: str | None
    """The first of them."""
    n_early: int | None
    """Ratings of the test before the last rating of the training log; None without times."""
    n_new_users: int
    """Users of the test without a rating in the training log."""
    n_new_items: int
    n_later_items: int | None = None
    """Items whose first rating is later than the last of the training log; None without times."""
    split: SplitUnit | None = None
    """How one log was split into the two; None if it was not."""

    def warnings(self, *, is_shared_dropped: bool = False) -> Iterator[UnskewWarning]:
        """What makes the test unfair; without the shared ratings if they are dropped from it."""
        if self.n_shared and not is_shared_dropped:
            yield UnskewWarning(
                f"{self.n_shared:,} of {self.n_test:,} test ratings are also in the training log; "
                f"the first is {self.first_shared}. A model knows these ratings, so "
                "the test is too easy unless they are dropped.",
                remedy="Split one log with unskew.split, or drop those rows.",
                shell_remedy="Split one log with `unskew split`, or drop those rows.",
            )
        if self.n_early and self.split not in ("random", "user"):
            yield UnskewWarning(
                f"{self._describe_early()}, so models were trained on what came later.",
                remedy="Split by time: unskew.split(log, `by='time'`).",
                shell_remedy="Split by time with `unskew split`.",
            )

        if self.n_later_items:
            verb = "is" if self.n_later_items == 1 else "are"
            yield UnskewWarning(
                f"{count_noun(self.n_later_items, 'item')} of the test {verb} newer than the "
                "latest training rating: models could not know what did not exist yet.",
                remedy="Rank the items of the training log alone: "
                "`candidates=np.unique(train.items[train.item])`.",
                shell_remedy="Rank only the items of the training log, listed in a file: "
                "`unskew evaluate --items FILE`.",
            )

    def _describe_early(self) -> str:
        return (
            f"{self.n_early:,} of {self.n_test:,} test ratings are older than the latest training "
            "rating"
        )

    def notes(self) -> Iterator[str]:
        """What a random split implies, and what a model cannot know."""
        if self.n_early and self.split in ("random", "user"):
            yield f"the split is not by time: {self._describe_early()}"
        for count, noun in ((self.n_new_users, "user"), (self.n_new_items, "item")):
            if count and noun != self.split:
                verb = "has" if count == 1 else "have"
                yield f"{count_noun(count, noun)} of the test {verb} no training rating"

    def to_columns(self) -> dict[str, list[object]]:
        """All counts, as a table of one row."""
        return {name: [value] for name, value in self.to_record().items()}

    def to_record(self) -> dict[str, object]:
        return {
            "n_test": self.n_test,
            "n_shared": self.n_shared,
            "n_early": self.n_early,
            "n_new_users": self.n_new_users,
            "n_new_items": self.n_new_items,
            "n_later_items": self.n_later_items,
        }

    def __repr__(self) -> str:
        lines = [str(each) for each in self.warnings()] + list(self.notes())
        return "\n".join(lines) or "no leak: no shared rating, and the test is not older"

    def _headline(self) -> str:
        return repr(self)


def find_leaks(train: Ratings, test: Ratings) -> Leaks:
    """Compare a test log with the log that models were trained on.

    >>> train = Ratings.from_arrays([0, 1], [0, 1], [5, 3])
    >>> test = Ratings.from_arrays([0, 2], [0, 1], [5, 4])
    >>> find_leaks(train, test).n_shared
    1
    """
    require_log(train)
    require_log(test)
    users = find_codes(test.users, train.users)[test.user]
    items = find_codes(test.items, train.items)[test.item]
    are_parts = are_disjoint_parts(train, test)
    is_shared = np.zeros(len(test), bool)
    if not are_parts:
        is_known = (users >= 0) & (items >= 0)
        cells = cell_numbers(users, items, train.n_items)
        is_shared = is_known & is_among(np.where(is_known, cells, -1), observed_cells(train))
    n_shared = int(is_shared.sum())
    n_early = n_later_items = None
    if train.timestamp is not None and test.timestamp is not None:
        is_later = test.timestamp > train.timestamp.max()
        n_early = int((test.timestamp < train.timestamp.max()).sum())
        n_later_items = np.setdiff1d(
            _list_new(test.item, items, train.item), test.item[~is_later]
        ).size
    return Leaks(
        len(test),
        n_shared,
        test.name_cell(int(is_shared.argmax())) if n_shared else None,
        n_early,
        _list_new(test.user, users, train.user).size,
        _list_new(test.item, items, train.item).size,
        n_later_items,
        test.part.by if are_parts and test.part is not None else None,
    )


def are_disjoint_parts(first: Ratings, second: Ratings) -> bool:
    """Whether both were split from one log and share no row of it."""
    if first.part is None or second.part is None:
        return False
    is_same = first.part.n_whole == second.part.n_whole
    is_same = is_same and np.array_equal(first.users, second.users)
    return is_same and np.intersect1d(first.part.rows, second.part.rows).size == 0


def _list_new(test_codes: IntVector, train_codes: IntVector, trained: IntVector) -> IntVector:
    """The users (or items) of the test that have no rating in the training log.

    ``test_codes`` and ``train_codes`` are their codes in the two logs, -1 if there is none.
    """
    new: IntVector = np.unique(test_codes[~np.isin(train_codes, trained)])
    return new
