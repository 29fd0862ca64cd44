"""A table that was read from a file, with columns that are ids or numbers once somebody asks for them as such."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from unskew.data.columns import find_column
from unskew.data.ids import Ids
from unskew.errors import ColumnError
from unskew.types import BoolVector, Vector

NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
WHOLE = re.compile(r"0|-?[1-9][0-9]{0,17}")
"""A whole number as it is always written: 007 is a name."""
BEYOND_WHOLE = 10**18
DECIMAL = re.compile(r"[0-9+\-.eE\n]*")
"""Of these letters alone Python makes a number exactly where :data:`NUMBER` does."""
LONGEST = 60


class Column(Protocol):
    """One column of a table."""

    def __len__(self) -> int:
        """How many rows there are."""
        ...

    def ids(self) -> Ids:
        """As ids: whole numbers, or what it holds; None where there is nothing."""
        ...

    def numbers(self) -> Vector:
        """As numbers; NaN where there is none, or something else."""
        ...

    def at(self, row: int) -> Any:
        """What the file has there."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class Words:
    """Text, None where a field is empty."""

    words: Sequence[str | None]

    def __len__(self) -> int:
        return len(self.words)

    def ids(self) -> Ids:
        """Whole numbers where all of it is written so, else text."""
        plain = _all_whole(self.words)
        if plain is not None:
            return np.array(plain, dtype=np.int64)
        if not all(word is None or WHOLE.fullmatch(word) for word in self.words):
            return _objects(self.words)
        whole = [None if word is None else int(word) for word in self.words]
        return _objects(whole) if None in whole or not whole else np.array(whole, dtype=np.int64)

    def numbers(self) -> Vector:
        """Decimal numbers."""
        plain = _all_decimal(self.words)
        return (
            np.fromiter(map(number_of, self.words), np.float64, len(self.words))
            if plain is None
            else plain
        )

    def at(self, row: int) -> str | None:
        """The word."""
        return self.words[row]


@dataclass(frozen=True, slots=True, eq=False)
class Values:
    """Values that know what they are."""

    values: Sequence[Any]

    def __len__(self) -> int:
        return len(self.values)

    def ids(self) -> Ids:
        """As they are."""
        if {type(value) for value in self.values} == {int}:
            whole = np.array(self.values)
            return whole if whole.dtype.kind in "iu" else _objects(self.values)
        return _objects(self.values)

    def numbers(self) -> Vector:
        """Numbers, and numbers that are written as text."""
        return np.fromiter(
            (number_of(value) for value in self.values), np.float64, len(self.values)
        )

    def at(self, row: int) -> Any:
        """The value."""
        return self.values[row]


@dataclass(frozen=True, slots=True, eq=False)
class Table:
    """Columns of one length, and where their rows are in the file."""

    name: str
    columns: Mapping[str, Column]
    locate: Callable[[int], str]
    """``line 7`` or ``row 5``."""

    def __len__(self) -> int:
        return len(next(iter(self.columns.values()))) if self.columns else 0

    @property
    def names(self) -> tuple[str, ...]:
        """Of the columns."""
        return tuple(self.columns)

    def find(self, role: str, given: str | None = None) -> str:
        """The column that plays a role, by the name that is given or as it is spelled."""
        try:
            return find_column(role, given, self.names)
        except ColumnError as error:
            raise ColumnError(f"{self.name}: {error}") from error

    def spells(self, role: str) -> bool:
        """Whether a column is spelled so that it could play the role."""
        try:
            self.find(role)
        except ColumnError as error:
            return "several" in str(error)
        return True

    def place(self, row: int, column: str) -> str:
        """Where a value is: file, line and column."""
        return f"{self.name}, {self.locate(row)}, column {column!r}"

    def found(self, row: int, column: str) -> str:
        """What is there, in words."""
        value = self.columns[column].at(row)
        return (
            "found nothing" if value is None or value == "" else f"found {shortened(repr(value))}"
        )


def number_of(value: Any) -> float:
    """A number, or text that is one; else NaN."""
    if isinstance(value, str):
        word = value.strip()
        return float(word) if NUMBER.fullmatch(word) else np.nan
    if isinstance(value, (int, float)):
        try:
            return float(value)
        except OverflowError:
            return np.inf
    return np.nan


def _all_whole(words: Sequence[str | None]) -> list[int] | None:
    """The words as whole numbers where every one is, and as it is always written: at once, not word by word."""
    try:
        whole = [int(word) for word in words]  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return None
    is_plain = bool(whole) and min(whole) > -BEYOND_WHOLE and max(whole) < BEYOND_WHOLE
    return whole if is_plain and all(map(str.__eq__, map(str, whole), words)) else None


def _all_decimal(words: Sequence[str | None]) -> Vector | None:
    """The words as numbers where every one is written without blanks: at once, not word by word."""
    try:
        if DECIMAL.fullmatch("\n".join(words)):  # type: ignore[arg-type]
            return np.fromiter(map(float, words), np.float64, len(words))  # type: ignore[arg-type]
    except (TypeError, ValueError):
        pass
    return None


def shortened(text: str) -> str:
    """Enough of a text to know it again."""
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 3]}..."


def as_text(ids: Ids) -> Ids:
    """Ids as they would be written."""
    return _objects([str(value) for value in ids.tolist()])


def first_of(mask: BoolVector) -> int:
    """The first row of a mask that marks one."""
    return int(mask.argmax())


def _objects(values: Sequence[Any]) -> Ids:
    ids = np.empty(len(values), dtype=object)
    ids[:] = values
    return ids
