"""Text files of public data sets as arrays; errors name the file, line, column and value."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from unskew.data.cells import cell_numbers, find_duplicates, is_among, observed_cells
from unskew.data.ids import find_codes
from unskew.data.ratings import Ratings
from unskew.errors import BadFileError, DatasetFormatError
from unskew.io.sources import FilePath, FileSource
from unskew.io.table import FileTable
from unskew.io.text_files import read_plain
from unskew.types import BoolVector, Matrix, Vector

Integers: TypeAlias = npt.NDArray[np.int64]
TextVector: TypeAlias = npt.NDArray[np.str_]

LARGEST_EXACT_INTEGER = 2**53
DOWNLOAD_AGAIN = "Download the file again."


def read_dataset_table(
    file: FilePath,
    columns: Sequence[str] = (),
    *,
    delimiter: str | None = None,
    n_rows: int | None = None,
) -> DatasetTable:
    """The table in a Latin-1 file without a header line.

    ``delimiter=None`` is any run of white space. Without names, columns are called 1, 2, 3, ...
    """
    try:
        table = read_plain(FileSource(file, columns=tuple(columns)), delimiter)
    except BadFileError as error:
        raise DatasetFormatError(error.problem, where=error.where, remedy=DOWNLOAD_AGAIN) from error
    if n_rows is not None and len(table) != n_rows:
        raise DatasetFormatError(
            f"{file}: found {len(table)} lines, expected {n_rows}.",
            value=len(table),
            remedy=DOWNLOAD_AGAIN,
        )
    return DatasetTable(table)


@dataclass(frozen=True, slots=True, eq=False)
class DatasetTable:
    """The table of one file, whose values are checked as they are taken out."""

    table: FileTable

    def __len__(self) -> int:
        return len(self.table)

    def numbers(self, column: str) -> Vector:
        """A column of finite numbers."""
        values = self.table.columns[column].numbers()
        self.require(np.isfinite(values), "a number", column)
        return values

    def integers(self, column: str) -> Integers:
        """A column of whole numbers, possibly written as 2.0."""
        values = self.table.columns[column].numbers()
        is_exact = np.abs(values) <= LARGEST_EXACT_INTEGER
        self.require(is_exact & (values == np.rint(values)), "a whole number", column)
        return values.astype(np.int64)

    def text(self, column: str) -> TextVector:
        """A column of text without white space at its ends."""
        values = self.table.columns[column]
        return np.array([(values.value(row) or "").strip() for row in range(len(self))])

    def matrix(self, columns: Sequence[str] = ()) -> Matrix:
        """Several columns, or all, of finite numbers."""
        names = columns or self.table.names
        values = np.column_stack([self.table.columns[name].numbers() for name in names])
        self.require(np.isfinite(values), "a number", *names)
        return values

    def require(self, is_valid: BoolVector, expected: str, *columns: str) -> None:
        """Raise an error at the first value that is not valid.

        ``is_valid`` has one entry for each row, or one for each row and each of ``columns``.
        """
        if not is_valid.all():
            row, position = np.argwhere(~is_valid.reshape(len(self), -1))[0].tolist()
            raise self._format_error(row, columns[position], expected)

    def ratings(self, *, users: Integers, items: Integers, max_rating: int) -> Ratings:
        """The log of the columns user, item and rating, with whole ratings from 1 on.

        ``users`` and ``items`` are all that the data set has.
        """
        rating = self.numbers("rating")
        is_valid = np.isin(rating, np.arange(1, max_rating + 1))
        self.require(is_valid, f"a rating from 1 to {max_rating}", "rating")
        user, item = self.integers("user"), self.integers("item")
        cells = find_codes(user, users), find_codes(item, items)
        self.require(cells[0] >= 0, "a user that the data set lists", "user")
        self.require(cells[1] >= 0, "an item that the data set lists", "item")
        n_duplicates, row, earlier_row = find_duplicates(cell_numbers(*cells, items.size))
        if n_duplicates:
            earlier = self.table.locate(earlier_row)
            expected = f"an item that user {user[row]} has not rated in {earlier}"
            raise self._format_error(row, "item", expected)
        return Ratings.from_codes(
            *cells, rating, shape=(users.size, items.size), users=users, items=items
        )

    def _format_error(self, row: int, column: str, expected: str) -> DatasetFormatError:
        return DatasetFormatError(
            f"{self.table.name}, {self.table.describe_value(row, column)}, expected {expected}.",
            parameter=column,
            value=self.table.columns[column].value(row),
            where=self.table.locate(row),
            remedy=DOWNLOAD_AGAIN,
        )


def find_overlap(log: Ratings, other: Ratings) -> BoolVector:
    """Which rows of ``log`` are cells of ``other``, a log over the same users and items."""
    return is_among(cell_numbers(log.user, log.item, log.n_items), observed_cells(other))


def sha256_of(*parts: npt.NDArray[Any] | Sequence[str] | Ratings) -> str:
    """SHA-256 over shapes and values: numbers as little-endian float64, text as UTF-8 lines.

    It is the same for files that differ in line ends or spacing only.
    """
    digest = hashlib.sha256()
    for part in parts:
        for array in _split_arrays(part):
            digest.update(str(array.shape).encode())
            digest.update(_to_bytes(array))
    return digest.hexdigest()


def _split_arrays(part: npt.NDArray[Any] | Sequence[str] | Ratings) -> list[npt.NDArray[Any]]:
    if isinstance(part, Ratings):
        return [part.users[part.user], part.items[part.item], part.rating]
    return [np.asarray(part)]


def _to_bytes(array: npt.NDArray[Any]) -> bytes:
    if array.dtype.kind == "U":
        return "\n".join(array.tolist()).encode()
    return array.astype("<f8").tobytes()
