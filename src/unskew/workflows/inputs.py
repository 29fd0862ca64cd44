"""What workflows read from files: logs, features of users and items, and saved models."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib.util import find_spec
from typing import Any, Literal, TypeAlias, TypeVar

import numpy as np

from unskew.data.frames import make_frame
from unskew.data.ids import Ids, find_codes, missing_ids
from unskew.data.ratings import Ratings
from unskew.errors import BadFileError, UnskewWarning, UsageError
from unskew.io.files import read_table
from unskew.io.log_files import ColumnNames, FileLog, find_id_rows, match_id_types, read_ids
from unskew.io.log_files import read_log as read_log_table
from unskew.io.sources import FileSource
from unskew.io.table import FileTable
from unskew.loading import load
from unskew.workflows.requests import LogRequest

Model = TypeVar("Model")
IdKind: TypeAlias = Literal["user", "item"]


@dataclass(frozen=True, slots=True)
class FeatureTables:
    """Features of users and of items, each a table with a column of ids; None without a file."""

    user: FileTable | None = None
    item: FileTable | None = None

    @classmethod
    def read(cls, user_features: str | None, item_features: str | None) -> FeatureTables:
        files = (user_features, item_features)
        return cls(*(None if file is None else read_table(file) for file in files))

    def ids(self, kind: IdKind) -> Ids | None:
        """The ids that a table lists; None without a table."""
        table = getattr(self, kind)
        return None if table is None else read_ids(table, kind)

    def frame(self, kind: IdKind, ids: Ids) -> Any:
        """A frame with one row for each of ``ids``, in their order; None without a table.

        A column is numeric if all its values are numbers, else categorical.
        """
        table = getattr(self, kind)
        if table is None:
            return None
        rows, key = find_id_rows(table, kind, ids), table.find_column(kind)
        columns = {f"{kind}_id": ids.tolist()}
        for name, column in table.columns.items():
            if name != key:
                numbers, values = column.numbers()[rows], column.ids()[rows]
                is_numeric = bool(np.isfinite(numbers[~missing_ids(values)]).all())
                texts = [None if value is None else str(value) for value in values.tolist()]
                columns[name] = numbers.tolist() if is_numeric else texts
        return make_frame(columns, "pyarrow" if find_spec("pyarrow") else None)


def open_log(request: LogRequest) -> FileSource:
    """The file of the log; nothing is read yet."""
    return FileSource.from_name(request.log, format=request.format, columns=request.columns)


def read_log(
    request: LogRequest,
    table: FileTable | None = None,
    *,
    columns: ColumnNames | None = None,
    features: FeatureTables | None = None,
) -> FileLog:
    """The log of a request, with a warning about rows that were dropped.

    ``table`` saves reading the file again. ``columns`` names columns beside user, item and rating.
    Users and items that only ``features`` lists are users and items of the log without ratings.
    """
    listed = features or FeatureTables()
    log = read_log_table(
        read_table(open_log(request)) if table is None else table,
        replace(
            columns or ColumnNames(), user=request.user, item=request.item, rating=request.rating
        ),
        universe=request.universe,
        on_bad=request.on_bad,
        duplicates=request.duplicates,
        users=listed.ids("user"),
        items=listed.ids("item"),
    )
    for note in log.notes:
        warnings.warn(UnskewWarning(note), stacklevel=3)
    return log


@contextmanager
def refuse_overflow(name: str) -> Iterator[None]:
    """Raise an error if a sum of NumPy numbers exceeds the largest float; ``name`` is the file."""
    try:
        with np.errstate(over="raise"):
            yield
    except FloatingPointError as error:
        raise BadFileError(
            f"{name}: values are too large: a sum of them or of their squares exceeds 1.8e308.",
            remedy="Correct the ratings and predictions.",
        ) from error


def load_model(path: str, kind: type[Model], command: str) -> Model:
    """A saved model of this kind; an error that names the command that writes such files."""
    model = load(path)
    if not isinstance(model, kind):
        raise UsageError(
            f"{path} has a {type(model).__name__}, not a {kind.__name__}.",
            value=path,
            remedy=f"Use a file that {command} wrote.",
        )
    return model


def match_log_ids(log: Ratings, model: Any) -> Ratings:
    """The log with ids of the type that a fitted model has, numbers or text; itself if it has."""
    users = match_id_types(log.users, model.users_)
    items = match_id_types(log.items, model.items_)
    is_same = users is log.users and items is log.items
    return log if is_same else replace(log, users=users, items=items)


def count_unknown(ids: Ids, vocabulary: Ids) -> int:
    """The number of ids that are not in the vocabulary, whether as numbers or as text."""
    return int((find_codes(match_id_types(ids, vocabulary), vocabulary) < 0).sum())
