"""What a log in a file holds, and what is wrong with it: everything at once, where reading it would stop at the first."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from unskew.data.columns import SPELLINGS
from unskew.data.ids import encode, format_id
from unskew.errors import ColumnError
from unskew.io.files import read_table
from unskew.io.formats import Source
from unskew.io.log_files import Fault, Wanted, faults_of, repeating
from unskew.io.table import Table, first_of
from unskew.types import BoolVector, Vector

MOST_LEVELS = 12
"""More distinct ratings are shown in ten bins."""


@dataclass(frozen=True, slots=True)
class Validation:
    """What a file holds; ``problems`` keep it from being used as a log."""

    file: str
    n_rows: int
    columns: dict[str, str]
    """The column that plays each role."""
    other_columns: tuple[str, ...]
    problems: tuple[str, ...]
    n_bad_rows: int = 0
    n_repeats: int = 0
    n_users: int = 0
    n_items: int = 0
    density: float | None = None
    """Of the log's own users and items."""
    rating_mean: float | None = None
    histogram: tuple[tuple[str, int], ...] = ()
    """Ratings, or bins of them, and how many there are."""

    @property
    def is_usable(self) -> bool:
        """Whether it can be read as a log as it is."""
        return not self.problems

    def to_json(self) -> str:
        """All of it as one object."""
        return json.dumps(asdict(self) | {"is_usable": self.is_usable})


def validate_log(source: Source, wanted: Wanted) -> Validation:
    """Look at every row. A file that cannot be read at all is an error."""
    table = read_table(source)
    columns, problems = _columns(table, wanted)
    others = tuple(name for name in table.names if name not in columns.values())
    if not {"user", "item", "rating"} <= columns.keys():
        return Validation(table.name, len(table), columns, others, problems)
    if len(table) == 0:
        return Validation(table.name, 0, columns, others, (*problems, "it has no rows"))
    return _counted(table, columns, others, problems)


def _columns(table: Table, wanted: Wanted) -> tuple[dict[str, str], tuple[str, ...]]:
    """Who plays which role, and what is in the way of knowing it."""
    found: dict[str, str] = {}
    problems = []
    named = {
        "user": wanted.user,
        "item": wanted.item,
        "rating": wanted.rating,
        "propensity": wanted.propensity,
    }
    for role in SPELLINGS:
        is_needed = role in ("user", "item", "rating") or named.get(role) is not None
        if not (is_needed or table.spells(role)):
            continue
        try:
            found[role] = table.find(role, named.get(role))
        except ColumnError as error:
            if is_needed:
                problems.append(str(error).removeprefix(f"{table.name}: "))
    return found, tuple(problems)


def _counted(
    table: Table, columns: dict[str, str], others: tuple[str, ...], problems: tuple[str, ...]
) -> Validation:
    roles = Wanted(
        columns["user"],
        columns["item"],
        columns["rating"],
        columns.get("propensity"),
        (columns["prediction"],) if "prediction" in columns else (),
        (columns["position"],) if "position" in columns else (),
    )
    faults = [fault for fault in faults_of(table, roles) if fault.count]
    good = ~_any(faults, len(table))
    cells = _Cells.of(table, roles, good)
    rating = table.columns[columns["rating"]].numbers()[good]
    return Validation(
        table.name,
        len(table),
        columns,
        others,
        (
            *problems,
            *(f"{fault.describe(table).removeprefix(f'{table.name}, ')}" for fault in faults),
            *cells.problems(table),
        ),
        int((~good).sum()),
        cells.n_repeats,
        cells.n_users,
        cells.n_items,
        cells.density,
        float(rating.mean()) if rating.size else None,
        tuple(_histogram(rating)),
    )


def _any(faults: list[Fault], n_rows: int) -> BoolVector:
    return (
        np.logical_or.reduce([fault.rows for fault in faults])
        if faults
        else np.zeros(n_rows, dtype=bool)
    )


@dataclass(frozen=True, slots=True, eq=False)
class _Cells:
    """Users, items and cells of the rows that can be used."""

    n_users: int = 0
    n_items: int = 0
    n_cells: int = 0
    n_repeats: int = 0
    repeat: tuple[int, int, Any, Any] | None = None
    """The first row that repeats a cell, the row that it repeats, the user and the item."""

    @classmethod
    def of(cls, table: Table, roles: Wanted, good: BoolVector) -> _Cells:
        rows = np.flatnonzero(good)
        if not rows.size:
            return cls()
        user, item = (
            table.columns[roles.roles["user"]].ids()[rows],
            table.columns[roles.roles["item"]].ids()[rows],
        )
        (user_code, users), (item_code, items) = encode(user), encode(item)
        cell = user_code.astype(np.int64) * len(items) + item_code
        distinct, first, group = np.unique(cell, return_index=True, return_inverse=True)
        repeats = first[group] != np.arange(cell.size)
        again = first_of(repeats)
        where = (
            (int(rows[again]), int(rows[first[group[again]]]), user[again], item[again])
            if repeats.any()
            else None
        )
        return cls(len(users), len(items), distinct.size, int(repeats.sum()), where)

    @property
    def density(self) -> float | None:
        return self.n_cells / (self.n_users * self.n_items) if self.n_cells else None

    def problems(self, table: Table) -> Iterator[str]:
        if not self.n_cells:
            yield "no row can be used"
        if self.repeat is not None:
            row, before, user, item = self.repeat
            yield (
                f"{table.locate(row)}: user {format_id(user)}, item {format_id(item)} is there already, in {table.locate(before)}; "
                f"{repeating(self.n_repeats)}"
            )


def _histogram(rating: Vector) -> Iterator[tuple[str, int]]:
    values, counts = np.unique(rating, return_counts=True)
    if values.size <= MOST_LEVELS:
        yield from ((f"{value:g}", int(count)) for value, count in zip(values, counts, strict=True))
        return
    try:
        counts, edges = np.histogram(rating, bins=10)
    except ValueError:  # too many or too wide for bins of a finite size
        yield f"{values[0]:g} to {values[-1]:g}", int(rating.size)
        return
    yield from (
        (f"{low:.4g} to {high:.4g}", int(count))
        for low, high, count in zip(edges[:-1], edges[1:], counts, strict=True)
    )
