"""A table that was read from a file: columns as ids or as numbers, and where each row is."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from unskew.data.columns import find_column, has_column
from unskew.data.ids import Ids, object_array
from unskew.errors import BadFileError, ColumnError
from unskew.io.sources import FileSource
from unskew.types import Vector

NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
INTEGER = re.compile(r"0|-?[1-9][0-9]{0,17}")
"""A whole number in its usual form: 007 is text."""
INTEGER_LIMIT = 10**18
WHITE_SPACE = " \t\n\v\f\r"
"""What may surround a number."""
DECIMAL_CHARACTERS = re.compile(r"[0-9+\-.eE\n]*")
"""Text of these characters is a number to Python exactly if it matches :data:`NUMBER`."""
FLAGS = {"true": 1.0, "false": 0.0}
"""The numbers of what programs write for flags, such as clicks, in lower case."""
MAX_SHOWN_CHARACTERS = 60


class TableColumn(Protocol):
    """One column of a table."""

    def __len__(self) -> int: ...

    def ids(self) -> Ids:
        """The values as ids; None where one is missing.

        Texts become int64 if all are whole numbers such as '12' (not '012' or '+12'), or Python
        ints, with None for missing ids, if some are missing or too large for int64. Otherwise
        they stay texts.
        """
        ...

    def numbers(self) -> Vector:
        """The values as numbers; NaN where one is missing or not a number."""
        ...

    def value(self, row: int) -> Any:
        """The value of one row as it is in the file."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class PythonColumn:
    """Python values, None where one is missing."""

    values: Sequence[Any]
    is_text: bool
    """Whether they come from a text file, where numbers are not told from text."""

    def __len__(self) -> int:
        return len(self.values)

    def ids(self) -> Ids:
        if self.is_text:
            return _parse_ids(self.values)
        if {type(value) for value in self.values} == {int}:
            integers = np.array(self.values)
            if integers.dtype.kind in "iu":  # not if one is too large for NumPy
                return integers
        return object_array(self.values)

    def numbers(self) -> Vector:
        numbers = _parse_decimals(self.values) if self.is_text else None
        if numbers is None:
            return np.fromiter(map(parse_number, self.values), np.float64, len(self))
        return numbers

    def value(self, row: int) -> Any:
        return self.values[row]


@dataclass(frozen=True, slots=True, eq=False)
class ConstantColumn:
    """The same number in every row."""

    number: float
    size: int

    def __len__(self) -> int:
        return self.size

    def ids(self) -> Ids:
        return self.numbers()

    def numbers(self) -> Vector:
        return np.full(self.size, self.number)

    def value(self, row: int) -> float:
        return self.number


@dataclass(frozen=True, slots=True, eq=False)
class FileTable:
    """Columns of one length, with the place of each row in the file."""

    name: str
    """The file, as errors name it."""
    columns: Mapping[str, TableColumn]
    locate: Callable[[int], str]
    """The place of a row in the file, such as ``line 7`` or ``row 5``."""

    def __len__(self) -> int:
        return len(next(iter(self.columns.values()))) if self.columns else 0

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the columns, in the order of the file."""
        return tuple(self.columns)

    def find_column(self, role: str, name: str | None = None) -> str:
        """The column with a role, by ``name`` or by a common name; see ``unskew.data.columns``."""
        try:
            return find_column(role, name, self.names, takes_number=True)
        except ColumnError as error:
            error.problem = f"{self.name}: {error.problem}"
            raise

    def with_constant(self, text: str | None) -> FileTable:
        """With a column that has this number in every row; itself if the text is no new number."""
        if text is None or text in self.columns or not is_number(text):
            return self
        column = ConstantColumn(parse_number(text), len(self))
        return replace(self, columns={**self.columns, text: column})

    def has_column_for(self, role: str) -> bool:
        """Whether at least one column has a common name for the role."""
        return has_column(role, self.names)

    def describe_value(self, row: int, column: str) -> str:
        """``line 4, column 'rating': found 'five'``: a value and its place, as errors say it."""
        value = self.columns[column].value(row)
        text = "nothing" if value is None or value == "" else shorten(repr(value))
        return f"{self.locate(row)}, column {column!r}: found {text}"


def require_column_names(source: FileSource, names: Sequence[str]) -> None:
    """Raise an error unless there are names, each is unique, and one is not a number."""
    if not names:
        raise BadFileError(f"{source.label} is empty.", remedy="Check the program that wrote it.")
    if not source.columns and all(NUMBER.fullmatch(name.strip()) for name in names):
        raise ColumnError(
            f"{source.label}, line 1: found {shorten(repr(','.join(names)))}, "
            "expected the names of the columns.",
            where="line 1",
            remedy="If the file has no header line, pass `columns=[...]`.",
        )
    duplicate = next((name for name, count in Counter(names).items() if count > 1), None)
    if duplicate is not None and duplicate.strip():
        raise ColumnError(
            f"{source.label}: two columns are called {duplicate!r}.", remedy="Rename one."
        )
    if not all(name.strip() for name in names):
        number = [bool(name.strip()) for name in names].index(False) + 1
        raise ColumnError(f"{source.label}: column {number} has no name.", remedy="Name it.")


def parse_number(value: Any) -> float:
    """A number, or text that is a decimal number; NaN for anything else.

    >>> parse_number(" 1e3 "), parse_number("five"), parse_number(None)
    (1000.0, nan, nan)
    """
    if isinstance(value, str):
        text = value.strip(WHITE_SPACE)
        return float(text) if NUMBER.fullmatch(text) else np.nan
    if isinstance(value, (int, float)):
        try:
            return float(value)
        except OverflowError:
            return np.inf
    return np.nan


def is_number(text: str) -> bool:
    """Whether the text is a finite decimal number."""
    return bool(np.isfinite(parse_number(text)))


def shorten(text: str) -> str:
    """At most 60 characters of a text."""
    if len(text) <= MAX_SHOWN_CHARACTERS:
        return text
    return f"{text[: MAX_SHOWN_CHARACTERS - 3]}..."


def _parse_ids(texts: Sequence[str | None]) -> Ids:
    """int64 if all texts are whole numbers such as '12' (not '012' or '+12').

    Python ints, with None for missing ids, if some are missing or too large for int64. Otherwise
    the texts.
    """
    integers = _parse_integers(texts)
    if integers is not None:
        return np.array(integers, dtype=np.int64)
    if all(text is None or INTEGER.fullmatch(text) for text in texts):
        return object_array([None if text is None else int(text) for text in texts])
    return object_array(texts)


def _parse_integers(texts: Sequence[str | None]) -> list[int] | None:
    """All texts as whole numbers at once, which is faster than one by one; None if one is not."""
    try:
        integers = [int(text) for text in texts]  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return None
    if not integers or min(integers) <= -INTEGER_LIMIT or max(integers) >= INTEGER_LIMIT:
        return None
    has_usual_form = all(map(str.__eq__, map(str, integers), texts))
    return integers if has_usual_form else None


def _parse_decimals(texts: Sequence[str | None]) -> Vector | None:
    """All texts as numbers at once, which is faster than one by one; None if one is not."""
    try:
        if DECIMAL_CHARACTERS.fullmatch("\n".join(texts)):  # type: ignore[arg-type]
            return np.fromiter(map(float, texts), np.float64, len(texts))  # type: ignore[arg-type]
    except (TypeError, ValueError):
        pass
    return None
