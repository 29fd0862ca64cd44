"""A log read from a table: which columns it is made of, which rows can be used, and where the others are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from unskew.data.ids import Ids, encode, find_codes, format_id, missing_ids
from unskew.data.propensities import SMALLEST
from unskew.data.ratings import Ratings
from unskew.data.universe import UniverseLike
from unskew.errors import BadFileError, DuplicateCellError, EmptyLogError
from unskew.io.table import Table, as_text, first_of
from unskew.tables import count_noun
from unskew.types import BoolVector, Vector

OnBad: TypeAlias = Literal["raise", "drop"]
Repeats: TypeAlias = Literal["raise", "last"]
Rows: TypeAlias = npt.NDArray[np.intp]


@dataclass(frozen=True, slots=True)
class Wanted:
    """The columns that a log is to be made of; None where the spelling is to tell."""

    user: str | None = None
    item: str | None = None
    rating: str | None = None
    propensity: str | None = None
    """Read only where it is named."""
    predictions: tuple[str, ...] = ()
    positions: tuple[str, ...] = ()

    def among(self, table: Table) -> Wanted:
        """The same with names that the table has."""
        return replace(
            self,
            user=table.find("user", self.user),
            item=table.find("item", self.item),
            rating=table.find("rating", self.rating),
            propensity=None
            if self.propensity is None
            else table.find("propensity", self.propensity),
            predictions=tuple(table.find("prediction", name) for name in self.predictions),
            positions=tuple(table.find("position", name) for name in self.positions),
        )

    @property
    def roles(self) -> Mapping[str, str]:
        """Names of the columns that make a log."""
        return {"user": str(self.user), "item": str(self.item), "rating": str(self.rating)}


@dataclass(frozen=True, slots=True, eq=False)
class Fault:
    """The rows of one column that cannot be used."""

    column: str
    expected: str
    rows: BoolVector

    @property
    def count(self) -> int:
        """How many they are."""
        return int(self.rows.sum())

    def describe(self, table: Table) -> str:
        """The first of them, and how many there are."""
        row = first_of(self.rows)
        others = f", and in {self.count - 1:,} more rows" if self.count > 1 else ""
        return f"{table.place(row, self.column)}: {table.found(row, self.column)}, expected {self.expected}{others}"


@dataclass(frozen=True, slots=True, eq=False)
class Logged:
    """A log, and the rows of the table that it is made of, in their order."""

    ratings: Ratings
    table: Table
    rows: Rows
    wanted: Wanted
    notes: tuple[str, ...] = ()
    """What was left out, in words."""
    n_dropped: int = 0

    def numbers(self, column: str) -> Vector:
        """Numbers of the log's rows."""
        return self.table.columns[column].numbers()[self.rows]

    def ids(self, column: str) -> Ids:
        """Ids, or groups, of the log's rows."""
        return self.table.columns[column].ids()[self.rows]

    @property
    def propensities(self) -> Vector | None:
        """Of the log's rows, where the table has them."""
        return None if self.wanted.propensity is None else self.numbers(self.wanted.propensity)


def faults_of(table: Table, wanted: Wanted) -> Iterator[Fault]:
    """Every column that is wanted and has rows that cannot be used."""
    for name in (wanted.user, wanted.item):
        yield Fault(str(name), "an id", missing_ids(table.columns[str(name)].ids()))
    for name in (str(wanted.rating), *wanted.predictions):
        yield Fault(name, "a number", ~np.isfinite(table.columns[name].numbers()))
    if wanted.propensity is not None:
        chance = table.columns[wanted.propensity].numbers()
        yield Fault(
            wanted.propensity,
            "a propensity, above 0 and up to 1",
            ~((chance >= SMALLEST) & (chance <= 1)),
        )
    for name in wanted.positions:
        yield Fault(name, "a position, from 1 on", ~(table.columns[name].numbers() >= 1))


def read_log(
    table: Table,
    wanted: Wanted,
    *,
    universe: UniverseLike = None,
    on_bad: OnBad = "raise",
    repeats: Repeats = "raise",
    users: Ids | None = None,
    items: Ids | None = None,
) -> Logged:
    """The log in a table, every value of which is checked; ``users`` and ``items`` list those that could have been logged."""
    chosen = wanted.among(table)
    rows, notes = _usable_rows(table, chosen, on_bad)
    n_dropped = len(table) - rows.size
    if rows.size == 0:
        raise EmptyLogError(
            f"{table.name} has no rating{' that can be used' * bool(n_dropped)}. Check where it came from."
        )
    user, item = (
        table.columns[name].ids()[rows] for name in (chosen.roles["user"], chosen.roles["item"])
    )
    kept = _each_cell_once(table, user, item, rows, repeats)
    if kept.size < rows.size:
        notes = (
            *notes,
            f"{repeating(rows.size - kept.size)} in {table.name}; the last row of each was kept",
        )
        user, item, rows = user[kept], item[kept], rows[kept]
    (users, user), (items, item) = _spelled_alike(users, user), _spelled_alike(items, item)
    rating = table.columns[chosen.roles["rating"]].numbers()[rows]
    ratings = Ratings.from_arrays(user, item, rating, users=users, items=items, universe=universe)
    return Logged(replace(ratings, columns=chosen.roles), table, rows, chosen, notes, n_dropped)


def read_numbers(table: Table, role: str, given: str | None = None) -> Vector:
    """A column that holds numbers in every row."""
    name = table.find(role, given)
    _refuse(table, [Fault(name, "a number", ~np.isfinite(table.columns[name].numbers()))])
    return table.columns[name].numbers()


def read_ids(table: Table, role: str, given: str | None = None) -> Ids:
    """A column that holds an id in every row."""
    name = table.find(role, given)
    _refuse(table, [Fault(name, "an id", missing_ids(table.columns[name].ids()))])
    return table.columns[name].ids()


def spelled_as(ids: Ids, vocabulary: Ids) -> Ids:
    """Ids of one file as another file spells them: as text where only one of the two could be read as numbers."""
    are_text = [_holds_text(each) for each in (ids, vocabulary)]
    if are_text == [False, True]:
        return as_text(ids)
    if are_text == [True, False]:
        known = {str(value): value for value in vocabulary.tolist()}
        spelled = np.empty(len(ids), dtype=object)
        spelled[:] = [known.get(value, value) for value in ids.tolist()]
        return spelled
    return ids


def rows_of_ids(table: Table, role: str, ids: Ids) -> Rows:
    """For each id the row of a table that lists every id once; an id that is not there is an error."""
    listed = read_ids(table, role)
    known = encode(listed)[1]
    if len(known) < len(listed):
        raise BadFileError(
            f"{table.name} lists {count_noun(len(listed) - len(known), role)} more than once. Keep one row for each."
        )
    rows = find_codes(spelled_as(ids, listed), listed)
    if (rows < 0).any():
        raise BadFileError(
            f"{table.name} lacks {int((rows < 0).sum()):,} of the log's {len(ids):,} {role}s; "
            f"the first is {format_id(ids[first_of(rows < 0)])}. Add a row for each."
        )
    return rows.astype(np.intp)


def rows_of_cells(table: Table, log: Ratings) -> Rows:
    """For each cell of the log its row of a table of users and items; -1 where it has none."""
    user, item = (
        find_codes(spelled_as(read_ids(table, role), ids), ids)
        for role, ids in (("user", log.users), ("item", log.items))
    )
    known = np.flatnonzero((user >= 0) & (item >= 0))
    key = user[known].astype(np.int64) * log.n_items + item[known]
    distinct, first, count = np.unique(key, return_index=True, return_counts=True)
    if (count > 1).any():
        twice = int(known[first[first_of(count > 1)]])
        raise BadFileError(
            f"{table.name}: {int((count > 1).sum()):,} cells are there more than once, such as that of {table.locate(twice)}. "
            "Keep one row for each."
        )
    if not distinct.size:
        return np.full(len(log), -1, dtype=np.intp)
    cell = log.user.astype(np.int64) * log.n_items + log.item
    place = np.minimum(np.searchsorted(distinct, cell), distinct.size - 1)
    return np.where(distinct[place] == cell, known[first[place]], -1).astype(np.intp)


def repeating(count: int) -> str:
    """So many rows that are there again, in words."""
    return "1 row repeats a (user, item)" if count == 1 else f"{count:,} rows repeat a (user, item)"


def _spelled_alike(listed: Ids | None, used: Ids) -> tuple[Ids | None, Ids]:
    """Both as text where one of them is."""
    if listed is None or _holds_text(listed) == _holds_text(used):
        return listed, used
    return as_text(listed), as_text(used)


def _holds_text(ids: Ids) -> bool:
    return ids.dtype.kind == "U" or (
        ids.dtype.kind == "O" and any(isinstance(value, str) for value in ids.tolist())
    )


def _usable_rows(table: Table, wanted: Wanted, on_bad: OnBad) -> tuple[Rows, tuple[str, ...]]:
    faults = [fault for fault in faults_of(table, wanted) if fault.count]
    if on_bad == "raise":
        _refuse(table, faults)
    bad = np.zeros(len(table), dtype=bool)
    for fault in faults:
        bad |= fault.rows
    if not faults:
        return np.flatnonzero(~bad), ()
    note = f"dropped {int(bad.sum()):,} of {len(table):,} rows that cannot be used; the first: {_first(faults).describe(table)}"
    return np.flatnonzero(~bad), (note,)


def _refuse(table: Table, faults: Sequence[Fault]) -> None:
    found = [fault for fault in faults if fault.count]
    if found:
        raise BadFileError(
            f"{_first(found).describe(table)}. Correct the file, or leave such rows out with on_bad='drop'."
        )


def _first(faults: Sequence[Fault]) -> Fault:
    return min(faults, key=lambda fault: first_of(fault.rows))


def _each_cell_once(table: Table, user: Ids, item: Ids, rows: Rows, repeats: Repeats) -> Rows:
    """The rows, each cell's last one where it repeats."""
    (user_code, _), (item_code, items) = encode(user), encode(item)
    cell = user_code.astype(np.int64) * len(items) + item_code
    distinct, first, group = np.unique(cell, return_index=True, return_inverse=True)
    if distinct.size == cell.size:
        return np.arange(cell.size)
    if repeats == "last":
        last = np.zeros(distinct.size, dtype=np.intp)
        np.maximum.at(last, group, np.arange(cell.size))
        return np.sort(last)
    again = first_of(first[group] != np.arange(cell.size))
    before = table.locate(int(rows[first[group[again]]]))
    raise DuplicateCellError(
        f"{table.name}, {table.locate(int(rows[again]))}: user {format_id(user[again])}, item {format_id(item[again])} is there already, "
        f"in {before}; {repeating(cell.size - distinct.size)}. "
        "Keep one row for each, or take the last one with duplicates='last'."
    )
