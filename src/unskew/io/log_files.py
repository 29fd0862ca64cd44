"""A log from the table of a file: its columns, its usable rows, and where the others are."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

import numpy as np

from unskew.data.cells import (
    CellNumbers,
    RowNumbers,
    cell_numbers,
    describe_duplicates,
    find_cells,
    find_duplicates,
    last_rows,
)
from unskew.data.ids import (
    Ids,
    encode,
    find_codes,
    find_repeated_ids,
    format_id,
    missing_ids,
    object_array,
)
from unskew.data.propensities import SMALLEST
from unskew.data.ratings import Ratings
from unskew.data.timestamps import Timestamps, parse_dates
from unskew.data.universe import UniverseLike
from unskew.errors import BadFileError, DuplicateCellError, EmptyLogError
from unskew.io.table import FileTable, TableColumn
from unskew.tables import count_noun
from unskew.types import BoolVector, Vector

OnBad: TypeAlias = Literal["raise", "drop"]
FileDuplicates: TypeAlias = Literal["raise", "last"]
FindBadRows: TypeAlias = Callable[[FileTable, str], BoolVector]
"""Which rows of a column cannot be used."""


@dataclass(frozen=True, slots=True)
class ColumnNames:
    """The columns of a log; None for a column that is found by its common name."""

    user: str | None = None
    item: str | None = None
    rating: str | None = None
    propensity: str | None = None
    """Only read if it is named."""
    predictions: tuple[str, ...] = ()
    positions: tuple[str, ...] = ()
    timestamp: str | None = None
    """Only read if it is named."""

    def resolve(self, table: FileTable) -> ColumnNames:
        """The table's column for each role: the one named, else one with a common name."""
        propensity = self.propensity
        return replace(
            self,
            user=table.find_column("user", self.user),
            item=table.find_column("item", self.item),
            rating=table.find_column("rating", self.rating),
            propensity=propensity and table.find_column("propensity", propensity),
            predictions=tuple(table.find_column("prediction", name) for name in self.predictions),
            positions=tuple(table.find_column("position", name) for name in self.positions),
            timestamp=self.timestamp and table.find_column("timestamp", self.timestamp),
        )

    @property
    def roles(self) -> Mapping[str, str]:
        """The resolved columns that every log has."""
        return {"user": str(self.user), "item": str(self.item), "rating": str(self.rating)}


@dataclass(frozen=True, slots=True, eq=False)
class FileProblem:
    """The rows of one column that cannot be used."""

    column: str
    expected: str
    is_bad: BoolVector

    @property
    def count(self) -> int:
        """The number of bad rows."""
        return int(self.is_bad.sum())

    @property
    def first_row(self) -> int:
        return int(self.is_bad.argmax())

    def describe(self, table: FileTable) -> str:
        """The first bad value, its place in the file, and the number of the others."""
        others = f", and in {self.count - 1:,} more rows" if self.count > 1 else ""
        value = table.describe_value(self.first_row, self.column)
        return f"{value}, expected {self.expected}{others}"


@dataclass(frozen=True, slots=True, eq=False)
class FileLog:
    """A log, and the rows of the table that it consists of, in their order."""

    ratings: Ratings
    table: FileTable
    rows: RowNumbers
    columns: ColumnNames
    notes: tuple[str, ...] = ()
    """Which rows were dropped, as sentences."""
    n_dropped: int = 0

    def numbers(self, column: str) -> Vector:
        """A column as numbers, for the rows of the log."""
        return self.table.columns[column].numbers()[self.rows]

    def ids(self, column: str) -> Ids:
        """A column as ids, for the rows of the log."""
        return self.table.columns[column].ids()[self.rows]

    def values(self, column: str) -> Ids:
        """A column as it is in the file, for the rows of the log.

        Text is read as numbers if all of it is decimal numbers.
        """
        values = self.ids(column)
        if values.dtype.kind != "O" or missing_ids(values).any():
            return values
        numbers = self.numbers(column)
        has_integers = any(isinstance(value, int) for value in values)
        return numbers if np.isfinite(numbers).all() and not has_integers else values

    @property
    def propensities(self) -> Vector | None:
        """The propensities of the log's rows; None without such a column."""
        return None if self.columns.propensity is None else self.numbers(self.columns.propensity)


def find_problems(table: FileTable, columns: ColumnNames) -> Iterator[FileProblem]:
    """The bad rows of each of the columns that has some."""
    propensities = [] if columns.propensity is None else [columns.propensity]
    times = [] if columns.timestamp is None else [columns.timestamp]
    ratings = (columns.rating, *columns.predictions)
    checks: Iterable[tuple[str, str, FindBadRows]] = (
        *((str(name), "an id", is_missing_id) for name in (columns.user, columns.item)),
        *((str(name), "a number", is_not_finite) for name in ratings),
        *((name, "a propensity, above 0 and up to 1", is_bad_propensity) for name in propensities),
        *((name, "a position, from 1 on", _is_bad_position) for name in columns.positions),
        *((name, "a time: a number or a date", _is_bad_time) for name in times),
    )
    yield from find_bad_rows(table, checks)


def find_bad_rows(
    table: FileTable, checks: Iterable[tuple[str, str, FindBadRows]]
) -> Iterator[FileProblem]:
    """The bad rows of each column that has some, from (column, what is expected, check)."""
    for column, expected, find_bad in checks:
        problem = FileProblem(column, expected, find_bad(table, column))
        if problem.count:
            yield problem


def is_missing_id(table: FileTable, column: str) -> BoolVector:
    return missing_ids(table.columns[column].ids())


def is_not_finite(table: FileTable, column: str) -> BoolVector:
    return ~np.isfinite(table.columns[column].numbers())


def is_bad_propensity(table: FileTable, column: str) -> BoolVector:
    values = table.columns[column].numbers()
    return ~((values >= SMALLEST) & (values <= 1))


def _is_bad_position(table: FileTable, column: str) -> BoolVector:
    return ~(table.columns[column].numbers() >= 1)


def _is_bad_time(table: FileTable, column: str) -> BoolVector:
    return ~np.isfinite(read_times(table.columns[column]))


def read_times(column: TableColumn) -> Timestamps:
    """Times as numbers or as dates, whichever the first usable value is; NaN or NaT for others.

    Dates are ISO 8601 texts or dates of the file; those with a time zone are converted to UTC.
    """
    numbers = column.numbers()
    is_number = np.isfinite(numbers)
    if is_number.all():
        return numbers
    dates = parse_dates(column.ids().tolist())
    first_date = int((~np.isnat(dates)).argmax()) if not np.isnat(dates).all() else dates.size
    return numbers if is_number[: first_date + 1].any() else dates


def extract_log(
    table: FileTable,
    columns: ColumnNames,
    *,
    universe: UniverseLike = None,
    on_bad: OnBad = "raise",
    duplicates: FileDuplicates = "raise",
    users: Ids | None = None,
    items: Ids | None = None,
) -> FileLog:
    """The log in a table, after a check of every value.

    ``users`` and ``items`` list all ids that could have been logged. ``on_bad="drop"`` drops rows
    with a bad value; ``duplicates="last"`` keeps the last of several rows for a cell.
    """
    resolved = columns.resolve(table)
    problems = list(find_problems(table, resolved))
    rows, notes = find_usable_rows(table, problems, on_bad, np.ones(len(table), dtype=bool))
    n_dropped = len(table) - rows.size
    if rows.size == 0:
        usable = " that can be used" if n_dropped else ""
        raise EmptyLogError(
            f"{table.name} has no rating{usable}.", remedy="Check the program that wrote it."
        )
    user, item = (table.columns[resolved.roles[role]].ids()[rows] for role in ("user", "item"))
    kept = _drop_duplicates(table, user, item, rows, duplicates)
    if kept.size < rows.size:
        count = describe_duplicates(rows.size - kept.size)
        notes = (*notes, f"{count} in {table.name}; the last row of each was kept")
        user, item, rows = user[kept], item[kept], rows[kept]
    users, user = _match_listed(users, user)
    items, item = _match_listed(items, item)
    rating = table.columns[resolved.roles["rating"]].numbers()[rows]
    timestamp = None
    if resolved.timestamp is not None:
        timestamp = read_times(table.columns[resolved.timestamp])[rows]
    ratings = Ratings.from_arrays(
        user,
        item,
        rating,
        timestamp=timestamp,
        users=users,
        items=items,
        universe=universe,
    )
    return FileLog(
        replace(ratings, columns=resolved.roles), table, rows, resolved, notes, n_dropped
    )


def read_numbers(table: FileTable, role: str, name: str | None = None) -> Vector:
    """The column with a role as numbers; an error if a value is not a number."""
    column = table.find_column(role, name)
    _raise_first(table, [FileProblem(column, "a number", is_not_finite(table, column))])
    return table.columns[column].numbers()


def read_ids(table: FileTable, role: str, name: str | None = None) -> Ids:
    """The column with a role as ids; an error if one is missing."""
    column = table.find_column(role, name)
    _raise_first(table, [FileProblem(column, "an id", is_missing_id(table, column))])
    return table.columns[column].ids()


def match_id_types(ids: Ids, vocabulary: Ids) -> Ids:
    """Ids of one file in the type that another file has them in.

    If only one of the two could be read as numbers, ids become text or numbers like the
    vocabulary. Otherwise they are returned unchanged.
    """
    is_text = _has_text(ids)
    if is_text == _has_text(vocabulary):
        return ids
    if not is_text:
        return _as_text(ids)
    by_text = {str(value): value for value in vocabulary.tolist()}
    return object_array([by_text.get(value, value) for value in ids.tolist()])


def unite_ids(*lists: Ids) -> Ids:
    """All distinct ids of several files; if some are text, all become text."""
    has_text = [_has_text(ids) for ids in lists]
    if any(has_text) and not all(has_text):
        lists = tuple(map(_as_text, lists))
    return encode(np.concatenate(lists))[1]


def find_id_rows(table: FileTable, role: str, ids: Ids) -> RowNumbers:
    """For each id its row in a table with one row an id; an error if an id is not there."""
    listed = read_ids(table, role)
    repeated = find_repeated_ids(listed)
    if repeated:
        raise BadFileError(
            f"{table.name} lists {count_noun(len(repeated), role)} more than once; the first is "
            f"{format_id(repeated[0])}.",
            remedy="Keep one row for each.",
        )
    rows = find_codes(match_id_types(ids, listed), listed)
    is_missing = rows < 0
    if is_missing.any():
        first = format_id(ids[int(is_missing.argmax())])
        raise BadFileError(
            f"{table.name} lacks {int(is_missing.sum()):,} of the log's {len(ids):,} {role}s; "
            f"the first is {first}.",
            remedy="Add a row for each.",
        )
    return rows.astype(np.intp)


def find_cell_rows(table: FileTable, log: Ratings) -> RowNumbers:
    """For each cell of the log its row in a table of users and items; -1 if it has none."""
    user, item = (
        find_codes(match_id_types(read_ids(table, role), ids), ids)
        for role, ids in (("user", log.users), ("item", log.items))
    )
    rows = np.flatnonzero((user >= 0) & (item >= 0))
    cells, first, count = np.unique(
        cell_numbers(user[rows], item[rows], log.n_items), return_index=True, return_counts=True
    )
    n_duplicates = int((count > 1).sum())
    if n_duplicates:
        row = int(rows[first[int((count > 1).argmax())]])
        raise BadFileError(
            f"{table.name} has more than one row for {count_noun(n_duplicates, 'cell')} of the "
            f"log, such as that of {table.locate(row)}.",
            where=table.locate(row),
            remedy="Keep one row for each.",
        )
    position = find_cells(cell_numbers(log.user, log.item, log.n_items), cells)
    return np.append(rows[first], -1)[position]


def _match_listed(listed: Ids | None, ids: Ids) -> tuple[Ids | None, Ids]:
    """Both as text if one of them is."""
    if listed is None or _has_text(listed) == _has_text(ids):
        return listed, ids
    return _as_text(listed), _as_text(ids)


def _has_text(ids: Ids) -> bool:
    return ids.dtype.kind == "U" or (
        ids.dtype.kind == "O" and any(isinstance(value, str) for value in ids.tolist())
    )


def _as_text(ids: Ids) -> Ids:
    return object_array([str(value) for value in ids.tolist()])


def find_usable_rows(
    table: FileTable,
    problems: Sequence[FileProblem],
    on_bad: OnBad,
    among: BoolVector,
    noun: str = "rows",
) -> tuple[RowNumbers, tuple[str, ...]]:
    """Those of the rows ``among`` without a problem, and a note on those that are dropped."""
    problems = [problem for problem in problems if problem.count]
    if not problems:
        return np.flatnonzero(among), ()
    if on_bad == "raise":
        _raise_first(table, problems)
    is_bad = np.logical_or.reduce([problem.is_bad for problem in problems])
    note = (
        f"dropped {int(is_bad.sum()):,} of {int(among.sum()):,} {noun} that cannot be used; "
        f"the first: {table.name}, {_find_first(problems).describe(table)}"
    )
    return np.flatnonzero(among & ~is_bad), (note,)


def _raise_first(table: FileTable, problems: Sequence[FileProblem]) -> None:
    """Raise an error for the first bad row, if there is one."""
    problems = [problem for problem in problems if problem.count]
    if problems:
        first = _find_first(problems)
        raise BadFileError(
            f"{table.name}, {first.describe(table)}.",
            parameter=first.column,
            value=table.columns[first.column].value(first.first_row),
            where=table.locate(first.first_row),
            remedy="Correct the file, or drop such rows with `on_bad='drop'`.",
        )


def _find_first(problems: Sequence[FileProblem]) -> FileProblem:
    return min(problems, key=lambda problem: problem.first_row)


def _drop_duplicates(
    table: FileTable, user: Ids, item: Ids, rows: RowNumbers, rule: FileDuplicates
) -> RowNumbers:
    """Positions in ``rows`` of the last row of each cell; an error if the rule is ``raise``."""
    repeats = Repeats.find(table, user, item, rows)
    if repeats.count == 0:
        return np.arange(rows.size)
    if rule == "last":
        return last_rows(repeats.cells)
    raise DuplicateCellError(
        f"{table.name}, {repeats.problem}.",
        where=repeats.where,
        remedy="Keep one row for each, or the last one with `duplicates='last'`.",
    )


@dataclass(frozen=True, slots=True, eq=False)
class Repeats:
    """Rows of a table that repeat a user and item."""

    cells: CellNumbers
    """The number of the cell of each row."""
    n_users: int
    n_items: int
    count: int
    where: str = ""
    """The place of the first one."""
    problem: str = ""

    @classmethod
    def find(cls, table: FileTable, user: Ids, item: Ids, rows: RowNumbers) -> Repeats:
        """Compare the users and items of these rows of the table."""
        (user_codes, users), (item_codes, items) = encode(user), encode(item)
        cells = cell_numbers(user_codes, item_codes, len(items))
        count, later, earlier = find_duplicates(cells)
        if count == 0:
            return cls(cells, len(users), len(items), count)
        where = table.locate(int(rows[later]))
        problem = (
            f"{where}: user {format_id(user[later])}, item {format_id(item[later])} is already in "
            f"{table.locate(int(rows[earlier]))}; {describe_duplicates(count)}"
        )
        return cls(cells, len(users), len(items), count, where, problem)
