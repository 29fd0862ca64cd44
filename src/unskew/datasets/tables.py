"""Text files of numbers and words to arrays, with errors that name the file, the line and the field."""

from __future__ import annotations

import re
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from unskew.errors import DatasetFormatError
from unskew.types import BoolVector, Matrix, Vector

File: TypeAlias = Path | zipfile.Path
Integers: TypeAlias = npt.NDArray[np.int64]
Words: TypeAlias = npt.NDArray[np.str_]

BYTE_ORDER_MARK = "\u00ef\u00bb\u00bf"  # as Latin-1 reads the one that spreadsheets write in UTF-8
LARGEST_EXACT_INTEGER = 2**53
NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")


def read_lines(file: File) -> list[str]:
    """The lines of a Latin-1 (or ASCII) file without their ends, be those LF or CRLF; the last line needs none."""
    lines = file.read_text(encoding="latin-1").removeprefix(BYTE_ORDER_MARK).split("\n")
    while lines and not lines[-1].strip():
        lines.pop()
    if not lines:
        raise DatasetFormatError(f"{file} is empty. Take a fresh copy of the file.")
    return lines


@dataclass(frozen=True, slots=True, eq=False)
class Table:
    """Lines that all have the same number of fields; ``delimiter=None`` stands for any run of white space."""

    file: File
    lines: list[str]
    delimiter: str | None
    n_fields: int

    @classmethod
    def read(
        cls,
        file: File,
        *,
        delimiter: str | None = None,
        n_fields: int | None = None,
        n_lines: int | None = None,
    ) -> Table:
        """The table in ``file``; without ``n_fields`` its first line says how many fields there are."""
        lines = read_lines(file)
        if n_lines is not None and len(lines) != n_lines:
            raise DatasetFormatError(
                f"{file}: found {len(lines)} lines, expected {n_lines}. Take a fresh copy of the file."
            )
        return cls(file, lines, delimiter, n_fields or len(lines[0].split(delimiter)))

    def __post_init__(self) -> None:
        for row, line in enumerate(self.lines):
            found = len(line.split(self.delimiter))
            if found != self.n_fields:
                raise DatasetFormatError(
                    f"{self.file}, line {row + 1}: found {found} fields in {_shortened(line)!r}, "
                    f"expected {self.n_fields}. Take a fresh copy of the file."
                )

    def __len__(self) -> int:
        return len(self.lines)

    def numbers(self) -> Matrix:
        """All fields as finite numbers, one row a line."""
        try:
            values = np.loadtxt(self.lines, delimiter=self.delimiter, comments=None, ndmin=2)
        except ValueError:
            fields = [line.split(self.delimiter) for line in self.lines]
            self.require(
                np.array([[_is_number(text) for text in row] for row in fields]), "a number"
            )
            raise
        self.require(np.isfinite(values), "a finite number")
        return values

    def words(self, field: int) -> Words:
        """One field of every line, as text."""
        return np.array([line.split(self.delimiter)[field].strip() for line in self.lines])

    def integer_words(self, field: int) -> Integers:
        """One field of every line of a table that also has words, as whole numbers."""
        words = self.words(field)
        self.require(
            np.array([_is_number(word) for word in words.tolist()]), "a whole number", field=field
        )
        return self.integers(words.astype(np.float64), field=field)

    def integers(self, values: Vector, *, field: int) -> Integers:
        """The numbers of one field, which must be whole."""
        self.require(
            (values == np.rint(values)) & (np.abs(values) <= LARGEST_EXACT_INTEGER),
            "a whole number",
            field=field,
        )
        return values.astype(np.int64)

    def require(self, good: BoolVector, expected: str, *, field: int = 0) -> None:
        """Raise at the first place that is not ``good``: a mask over the lines, or over lines x fields from ``field`` on."""
        if not good.all():
            row, offset = np.argwhere(~good.reshape(len(self), -1))[0].tolist()
            raise self.fault(row, field + offset, expected)

    def fault(self, row: int, field: int, expected: str) -> DatasetFormatError:
        """The error that points at one field."""
        found = self.lines[row].split(self.delimiter)[field]
        return DatasetFormatError(
            f"{self.file}, line {row + 1}, field {field + 1}: found {_shortened(found)!r}, expected {expected}. "
            "Take a fresh copy of the file."
        )


def _is_number(text: str) -> bool:
    return NUMBER.fullmatch(text.strip()) is not None


def _shortened(text: str) -> str:
    return text if len(text) <= 60 else f"{text[:57]}..."
