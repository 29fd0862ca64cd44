"""Which items are ranked for each user: all of them, a list, or a list for each user.

Items that are not candidates get the score -inf. There is no U x I array: they are hidden in the
scores of one block of users at a time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from unskew.data.cells import (
    CellNumbers,
    cell_numbers,
    find_cells,
    row_starts,
    sort_distinct,
    user_and_item,
)
from unskew.data.columns import find_column
from unskew.data.frames import id_column, is_frame, open_frame
from unskew.data.ids import Ids, as_listed_ids, describe_id_types, find_codes, format_id
from unskew.data.ratings import Ratings
from unskew.errors import UnknownIdError, UsageError
from unskew.types import BoolVector, IntVector, RowStarts, Scores, SeenItems

CandidatesLike: TypeAlias = npt.ArrayLike | object
"""Item ids for all users, or a frame of users and items."""

USERS_AT_ONCE = 1 << 14
"""Users whose items are copied at once: an index takes twice the memory of the items."""


@dataclass(frozen=True, slots=True, eq=False)
class Candidates:
    """The items that are ranked for each user, by codes."""

    n_users: int
    n_items: int
    """All items, candidates or not."""
    is_listed: BoolVector | None = None
    """By item: whether it is a candidate of any user; None if all are."""
    hidden: SeenItems | None = None
    """The listed items of each user that are not candidates of this user, such as seen ones."""
    lists: SeenItems | None = None
    """The candidates of each user, in place of ``is_listed`` and ``hidden``."""

    @property
    def count(self) -> IntVector:
        """The number of candidates of each user."""
        if self.lists is not None:
            return np.diff(self.lists[0]).astype(np.int32)
        n_listed = self.n_items if self.is_listed is None else int(self.is_listed.sum())
        n_hidden = 0 if self.hidden is None else np.diff(self.hidden[0])
        return np.full(self.n_users, n_listed - n_hidden, np.int32)

    def contain(self, user: IntVector, item: IntVector) -> BoolVector:
        """Whether the item of each cell is a candidate of its user."""
        cells = cell_numbers(user, item, self.n_items)
        if self.lists is not None:
            return find_cells(cells, self._cells_of(self.lists)) >= 0
        is_inside = np.ones(user.size, bool) if self.is_listed is None else self.is_listed[item]
        if self.hidden is not None:
            is_inside &= find_cells(cells, self._cells_of(self.hidden)) < 0
        return is_inside

    def without(self, starts: RowStarts, items: IntVector) -> Candidates:
        """The same, without ``items[starts[u]:starts[u + 1]]`` of user u."""
        if self.is_listed is None and self.hidden is None and self.lists is None:
            return replace(self, hidden=(starts, items))
        cells = sort_distinct(self._cells_of((starts, items)))
        shape = self.n_users, self.n_items
        if self.lists is not None:
            listed = self._cells_of(self.lists)
            return replace(self, lists=group_items(listed[find_cells(listed, cells) < 0], *shape))
        if self.is_listed is not None:
            cells = cells[self.is_listed[cells % self.n_items]]
        if self.hidden is not None:
            cells = np.union1d(cells, self._cells_of(self.hidden))
        return replace(self, hidden=group_items(cells, *shape))

    def take(self, users: IntVector) -> Candidates:
        """The candidates of some users, in their order; users may be repeated."""
        parts = self.lists, self.hidden
        lists, hidden = (None if each is None else select_users(each, users) for each in parts)
        return replace(self, n_users=users.size, lists=lists, hidden=hidden)

    def hide_others(self, users: IntVector, scores: Scores) -> None:
        """Set the scores of all items that are not candidates to -inf, in place.

        ``scores`` has one row for each of ``users``.
        """
        from unskew.kernels.positions import hide_items, hide_other_items

        if self.lists is not None:
            hide_other_items(scores, users, *self.lists)
            return
        if self.is_listed is not None:
            np.copyto(scores, -np.inf, where=~self.is_listed)
        if self.hidden is not None:
            hide_items(scores, users, *self.hidden)

    def _cells_of(self, items_by_user: SeenItems) -> CellNumbers:
        starts, items = items_by_user
        return cell_numbers(
            np.repeat(np.arange(self.n_users), np.diff(starts)), items, self.n_items
        )


def read_candidates(
    users: Ids, items: Ids, candidates: CandidatesLike | None, exclude: Ratings | None
) -> Candidates | None:
    """The candidates of users and items with these ids; None if all items are candidates.

    Cells of ``exclude`` with other ids are ignored: those items are not ranked anyway.
    """
    if candidates is None and exclude is None:
        return None
    if isinstance(candidates, Mapping):
        raise UsageError(
            "`candidates` must be a list of items, or a frame of users and items; got a "
            f"{type(candidates).__name__}.",
            parameter="candidates",
            remedy="Make a frame with one row for each user and item.",
        )
    chosen = Candidates(len(users), len(items))
    if is_frame(candidates):
        cells = _read_frame(users, items, candidates)
        chosen = replace(chosen, lists=group_items(cells, len(users), len(items)))
    elif candidates is not None:
        is_listed = np.zeros(len(items), bool)
        is_listed[_find_items(candidates, items)] = True
        chosen = replace(chosen, is_listed=is_listed)
    if exclude is None:
        return chosen
    excluded = _find_excluded(users, items, exclude)
    return chosen.without(*group_items(excluded, len(users), len(items)))


def select_users(seen: SeenItems, users: IntVector) -> SeenItems:
    """The seen items of the given users, in their order; -1 is a user who has seen none.

    The items of consecutive users, such as all of them, are not copied.
    """
    all_starts, all_items = seen
    first = int(users[0]) if users.size else 0
    if first >= 0 and np.array_equal(users, np.arange(first, first + users.size)):
        starts = all_starts[first : first + users.size + 1]
        return starts - starts[0], all_items[starts[0] : starts[-1]]
    length = np.where(users >= 0, np.diff(all_starts, append=0)[users], 0)
    starts = np.concatenate([[0], np.cumsum(length)])
    moved, items = all_starts[users] - starts[:-1], np.empty(starts[-1], all_items.dtype)
    for first in range(0, users.size, USERS_AT_ONCE):
        rows = slice(first, first + USERS_AT_ONCE)
        part = slice(starts[first], starts[min(first + USERS_AT_ONCE, users.size)])
        index = np.arange(part.start, part.stop) + np.repeat(moved[rows], length[rows])
        items[part] = all_items[index]
    return starts, items


def keep_candidates(log: Ratings, candidates: Candidates) -> BoolVector:
    """Which cells of the log are candidates; an error if none is."""
    is_inside = candidates.contain(log.user, log.item)
    if not is_inside.any():
        raise UsageError(
            f"none of the {len(log):,} logged cells is a candidate, so there is nothing to test; "
            f"the first is {log.name_cell(0)}.",
            parameter="candidates",
            where=log.name_cell(0),
            remedy="Pass the items that can be recommended as `candidates`, and the training log, "
            "not the log of the test, as `exclude`.",
        )
    return is_inside


def _find_excluded(users: Ids, items: Ids, exclude: object) -> CellNumbers:
    """The cells of ``exclude``, distinct and in ascending order."""
    if not isinstance(exclude, Ratings):
        raise UsageError(
            f"`exclude` must be a log of items that are not ranked; got a "
            f"{type(exclude).__name__}.",
            parameter="exclude",
            remedy="Pass a Ratings, such as the training log.",
        )
    user = _translate(exclude.users, users)[exclude.user]
    item = _translate(exclude.items, items)[exclude.item]
    is_known = (user >= 0) & (item >= 0)
    if not is_known.any():
        types = describe_id_types(exclude.users, users) or describe_id_types(exclude.items, items)
        raise UnknownIdError(
            f"no cell of `exclude` has a known user and a known item{types}; the first is "
            f"{exclude.name_cell(0)}.",
            parameter="exclude",
            where=exclude.name_cell(0),
            remedy="Use the same ids in both logs.",
        )
    return sort_distinct(cell_numbers(user[is_known], item[is_known], len(items)))


def _translate(ids: Ids, vocabulary: Ids) -> IntVector:
    if np.array_equal(ids, vocabulary):
        return np.arange(len(ids), dtype=np.int32)
    return find_codes(ids, vocabulary)


def _read_frame(users: Ids, items: Ids, candidates: object) -> CellNumbers:
    """The cells of a frame of users and items; users without a test are ignored."""
    frame = open_frame(candidates)
    user = find_codes(id_column(frame, find_column("user", None, frame.columns)), users)
    item = _find_items(id_column(frame, find_column("item", None, frame.columns)), items)
    return sort_distinct(cell_numbers(user, item, len(items))[user >= 0])


def _find_items(ids: CandidatesLike, vocabulary: Ids) -> IntVector:
    """The code of each candidate; an error if one is not in the vocabulary of items."""
    ids = as_listed_ids(ids, "candidates")  # type: ignore[arg-type]
    if ids.size == 0:
        raise UsageError("`candidates` is empty: nothing can be ranked.", parameter="candidates")
    codes = find_codes(ids, vocabulary)
    is_unknown = codes < 0
    if is_unknown.any():
        row = int(is_unknown.argmax())
        raise UnknownIdError(
            f"{int(is_unknown.sum())} of {codes.size} candidates are not items that can be "
            f"scored; the first is {format_id(ids[row])} at row {row}"
            f"{describe_id_types(ids, vocabulary)}.",
            parameter="candidates",
            value=ids[row],
            where=f"row {row}",
            remedy="Build the log with items=[all item ids], or leave them out.",
        )
    return codes


def group_items(cells: CellNumbers, n_users: int, n_items: int) -> SeenItems:
    """Where the items of each user start, and the items, of cells in ascending order."""
    user, item = user_and_item(cells, n_items)
    return row_starts(user, n_users), item
