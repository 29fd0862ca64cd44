"""The content of a log file, and everything that is wrong with it.

Reading a log stops at the first problem; validation lists all of them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from unskew.data.columns import RATING_ROLES, find_column
from unskew.data.leaks import Leaks, find_leaks
from unskew.errors import BadFileError, ColumnError, DataError, DuplicateCellError, EmptyLogError
from unskew.io.log_files import ColumnNames, Repeats, find_problems
from unskew.io.table import FileTable
from unskew.types import Vector
from unskew.workflows.inputs import match_ids, read_log, read_log_table
from unskew.workflows.requests import ValidationRequest

MAX_LEVELS = 12
"""With more distinct ratings, the histogram has ten bins."""
REQUIRED_ROLES = ("user", "item", "rating")


@dataclass(frozen=True, slots=True)
class Validation:
    """The content of a file. It cannot be used as a log if there are ``errors``."""

    file: str
    n_rows: int
    columns: dict[str, str]
    """The column of each role."""
    other_columns: tuple[str, ...]
    errors: tuple[DataError, ...]
    n_bad_rows: int = 0
    n_repeats: int = 0
    n_users: int = 0
    n_items: int = 0
    density: float | None = None
    """The share of observed cells among all cells of the log's users and items."""
    rating_mean: float | None = None
    histogram: tuple[tuple[str, int], ...] = ()
    """Ratings, or bins of them, with their counts."""
    leaks: Leaks | None = None
    """What the log shares with a training log; None without one."""

    @property
    def is_usable(self) -> bool:
        return not self.errors

    def to_json(self) -> str:
        """All fields as one object, the errors as texts under ``problems``."""
        record: dict[str, Any] = {}
        for field in fields(self):
            if field.name == "errors":
                record["problems"] = [str(error) for error in self.errors]
            elif field.name == "leaks":
                record["leaks"] = None if self.leaks is None else self.leaks.to_record()
            else:
                record[field.name] = getattr(self, field.name)
        return json.dumps(record | {"is_usable": self.is_usable})


def validate_log(request: ValidationRequest) -> Validation:
    """Check every row of the file; an error if the file cannot be read at all.

    If it can be used and a training log is named, what the two share is found too.
    """
    table = read_log_table(request)
    validation = _validate_table(table, request)
    if request.train is None or not validation.is_usable:
        return validation
    return replace(validation, leaks=find_file_leaks(request, table, request.train))


def find_file_leaks(request: ValidationRequest, table: FileTable, path: str) -> Leaks:
    """Compare the log with a training log in a file; times are compared if both have them."""
    train = read_log_table(request, path)
    tables = (train, table)
    timestamp = request.timestamp
    names = [
        timestamp or (each.find_column("timestamp") if each.has_column_for("timestamp") else None)
        for each in tables
    ]
    reads_times = None not in names
    logs = [
        read_log(
            replace(request, log=each.name),
            each,
            columns=ColumnNames(timestamp=name if reads_times else None),
        ).ratings
        for each, name in zip(tables, names, strict=True)
    ]
    return find_leaks(match_ids(logs[0], logs[1]), logs[1])


def _validate_table(table: FileTable, request: ValidationRequest) -> Validation:
    columns, errors = _find_columns(table, request)
    others = tuple(name for name in table.names if name not in columns.values())
    if not columns.keys() >= set(REQUIRED_ROLES):
        return Validation(table.name, len(table), columns, others, errors)
    if len(table) == 0:
        errors = (*errors, EmptyLogError("it has no rows"))
        return Validation(table.name, 0, columns, others, errors)
    return _validate_rows(table, columns, others, errors)


def _find_columns(
    table: FileTable, request: ValidationRequest
) -> tuple[dict[str, str], tuple[DataError, ...]]:
    """The column of each role, and errors about roles whose column is not clear."""
    columns: dict[str, str] = {}
    errors: list[DataError] = []
    for role in RATING_ROLES:
        is_required = role in REQUIRED_ROLES
        if is_required or table.has_column_for(role):
            name = getattr(request, role) if is_required else None
            try:
                columns[role] = find_column(role, name, table.names, takes_number=True)
            except ColumnError as error:
                if is_required:
                    errors.append(error)
    return columns, tuple(errors)


def _validate_rows(
    table: FileTable,
    columns: dict[str, str],
    others: tuple[str, ...],
    errors: tuple[DataError, ...],
) -> Validation:
    roles = ColumnNames(
        columns["user"],
        columns["item"],
        columns["rating"],
        columns.get("propensity"),
        (columns["prediction"],) if "prediction" in columns else (),
    )
    problems = list(find_problems(table, roles))
    is_good = np.ones(len(table), dtype=bool)
    for problem in problems:
        is_good &= ~problem.is_bad
    errors = (*errors, *(BadFileError(problem.describe(table)) for problem in problems))
    n_bad_rows = int((~is_good).sum())
    if not is_good.any():
        errors = (*errors, EmptyLogError("no row can be used"))
        return Validation(table.name, len(table), columns, others, errors, n_bad_rows)
    rows = np.flatnonzero(is_good)
    user, item = (table.columns[columns[role]].ids()[rows] for role in ("user", "item"))
    repeats = Repeats.find(table, user, item, rows)
    if repeats.count:
        errors = (*errors, DuplicateCellError(repeats.problem, where=repeats.where))
    rating = table.columns[columns["rating"]].numbers()[rows]
    with np.errstate(over="ignore"):
        mean = float(rating.mean())
    return Validation(
        file=table.name,
        n_rows=len(table),
        columns=columns,
        other_columns=others,
        errors=errors,
        n_bad_rows=n_bad_rows,
        n_repeats=repeats.count,
        n_users=repeats.n_users,
        n_items=repeats.n_items,
        density=(rating.size - repeats.count) / (repeats.n_users * repeats.n_items),
        rating_mean=mean if np.isfinite(mean) else None,
        histogram=tuple(_count_ratings(rating)),
    )


def _count_ratings(rating: Vector) -> Iterator[tuple[str, int]]:
    values, counts = np.unique(rating, return_counts=True)
    if values.size <= MAX_LEVELS:
        yield from ((f"{value:g}", int(count)) for value, count in zip(values, counts, strict=True))
        return
    try:
        counts, edges = np.histogram(rating, bins=10)
    except ValueError:  # the range is too wide for bins of a finite width
        yield f"{values[0]:g} to {values[-1]:g}", int(rating.size)
        return
    for low, high, count in zip(edges[:-1], edges[1:], counts, strict=True):
        yield f"{low:.4g} to {high:.4g}", int(count)
