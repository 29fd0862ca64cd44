"""Impressions from the table of a file, in parts of whole requests."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
import numpy.typing as npt

from unskew.data.impression_checks import MAX_POSITION, REMEDIES
from unskew.data.impressions import Impressions, ProbabilityKind
from unskew.errors import BadFileError, DataError, EmptyLogError
from unskew.io.files import iterate_tables
from unskew.io.log_files import (
    FileProblem,
    FindBadRows,
    find_bad_rows,
    is_bad_propensity,
    is_missing_id,
)
from unskew.io.sources import FileSource
from unskew.io.table import FLAGS, WHITE_SPACE, FileTable, TableColumn
from unskew.types import BoolVector, Vector

ROWS_AT_ONCE = 1 << 21
"""Rows of one part of a file; a request is never cut."""
IDS = ("request", "user", "item")
Rows = dict[str, npt.NDArray[Any]]
"""Columns of ids and numbers by role, and others by name."""


@dataclass(frozen=True, slots=True)
class ImpressionColumns:
    """The columns of a file of impressions; None for a column that is found by a common name."""

    request: str | None = None
    user: str | None = None
    item: str | None = None
    position: str | None = None
    reward: str | None = None
    probability: str | None = None
    """Only read if it is named."""
    other: Mapping[str, str] = field(default_factory=dict)
    """Further columns of numbers, such as target probabilities, and the argument of each."""

    def resolve(self, table: FileTable) -> dict[str, str]:
        """By role: the names of the columns in the table."""
        return {role: table.find_column(role, name) for role, name in self.list_roles(table)}

    def list_roles(self, table: FileTable) -> Iterator[tuple[str, str | None]]:
        """The roles whose columns are read, and their names if they are given.

        Without a column of positions each request shows one item. Without columns of requests and
        positions each row is a request.
        """
        names: dict[str, str | None] = {
            each.name: getattr(self, each.name) for each in fields(self) if each.name != "other"
        }
        optional = {"probability"}
        if not table.has_column_for("position"):
            optional.add("position")
            optional |= {"request"} if not table.has_column_for("request") else set()
        for role, name in names.items():
            if name is not None or role not in optional:
                yield role, name


def find_impression_problems(table: FileTable, columns: Mapping[str, str]) -> Iterator[FileProblem]:
    """The rows of each column that cannot be used."""
    checks: tuple[tuple[str, str, FindBadRows], ...] = (
        *((role, "an id", is_missing_id) for role in IDS),
        ("position", "a position, a whole number from 1 on", _is_bad_position),
        ("reward", "a number, or true or false", _is_bad_reward),
        ("probability", "a probability, above 0 and up to 1", is_bad_propensity),
    )
    named = ((columns[role], expected, find) for role, expected, find in checks if role in columns)
    yield from find_bad_rows(table, named)


def _is_bad_reward(table: FileTable, column: str) -> BoolVector:
    return ~np.isfinite(read_rewards(table.columns[column]))


def read_rewards(column: TableColumn) -> Vector:
    """The values as numbers; true and false, in any capitals, are 1 and 0."""
    rewards = column.numbers()
    rows = np.flatnonzero(np.isnan(rewards)).tolist()
    if rows and _find_flag(column, rows[0]) is not None:
        flags = [_find_flag(column, row) for row in rows]
        rewards = rewards.copy()
        rewards[rows] = [np.nan if flag is None else flag for flag in flags]
    return rewards


def _find_flag(column: TableColumn, row: int) -> float | None:
    """1 for ``true`` and 0 for ``false``, else None."""
    text = str(column.value(row)).strip(WHITE_SPACE).lower()
    return FLAGS.get(text)


def _is_bad_position(table: FileTable, column: str) -> BoolVector:
    values = table.columns[column].numbers()
    is_whole: BoolVector = values == np.floor(values)
    return ~((values >= 1) & (values <= MAX_POSITION) & is_whole)


def iterate_impressions(
    source: FileSource,
    columns: ImpressionColumns,
    *,
    probability_is: ProbabilityKind | None = None,
    repeats: bool = False,
    rows_at_once: int = ROWS_AT_ONCE,
) -> Iterator[Impressions]:
    """The log of a file in parts of whole requests, each of about ``rows_at_once`` rows.

    A file with more rows must be sorted by request.
    """
    n_before = 0
    for rows in _cut_requests(_read_rows(source, columns, rows_at_once), rows_at_once):
        other = {name: rows.pop(name) for name in list(rows) if name not in _ROLES}
        try:
            yield Impressions.from_arrays(
                **rows, other=other, probability_is=probability_is, repeats=repeats
            )
        except DataError as error:
            start = f" (row 0 is row {n_before:,} of the file)" if n_before else ""
            error.problem = f"{source.label}{start}: {error.problem}"
            raise
        n_before += len(rows["user"])
    if n_before == 0:
        raise EmptyLogError(f"{source.label} has no rows.", remedy="Check how it was written.")


_ROLES = frozenset({*IDS, "position", "reward", "probability"})


def find_remedy(names: Mapping[str, str], column: str) -> str:
    """What to do about a bad value of a column."""
    role = next((role for role, name in names.items() if name == column), "")
    return REMEDIES.get(role, "Correct the file, or leave out the whole request.")


def _read_rows(source: FileSource, columns: ImpressionColumns, rows_at_once: int) -> Iterator[Rows]:
    """The columns of each part of the file; an error names the first bad value and its place."""
    n_before = 0
    for table in iterate_tables(source, rows_at_once):
        names = columns.resolve(table)
        problems = sorted(find_impression_problems(table, names), key=lambda each: each.first_row)
        if problems:
            raise BadFileError(
                f"{table.name}, {problems[0].describe(table)}.",
                parameter=problems[0].column,
                where=table.locate(problems[0].first_row),
                remedy=find_remedy(names, problems[0].column),
            )
        rows: Rows = {role: table.columns[names[role]].ids() for role in IDS if role in names}
        rows |= {
            role: read_rewards(column) if role == "reward" else column.numbers()
            for role, column in (
                (role, table.columns[name]) for role, name in names.items() if role not in IDS
            )
        }
        rows |= {
            name: table.columns[table.find_column(argument, name)].numbers()
            for name, argument in columns.other.items()
        }
        if "request" not in rows:
            rows["request"] = np.arange(n_before, n_before + len(table))
        n_before += len(table)
        if len(table):
            yield rows


def _cut_requests(parts: Iterator[Rows], rows_at_once: int) -> Iterator[Rows]:
    """The same rows in parts that end where a request ends."""
    rest: Rows | None = None
    for rows in parts:
        if rest is not None:
            rows = {name: np.concatenate([rest[name], column]) for name, column in rows.items()}
        request = rows["request"]
        while request.size > rows_at_once:
            cut = _find_end(request, rows_at_once)
            yield {name: column[:cut] for name, column in rows.items()}
            rows = {name: column[cut:] for name, column in rows.items()}
            request = rows["request"]
        rest = rows
    if rest is not None and rest["request"].size:
        yield rest


def _find_end(request: npt.NDArray[Any], size: int) -> int:
    """The end of the last request that ends within ``size`` rows, or of the first one."""
    changes = np.flatnonzero(request[1:] != request[:-1]) + 1
    inside = changes[changes <= size]
    if inside.size:
        return int(inside[-1])
    return int(changes[0]) if changes.size else request.size
