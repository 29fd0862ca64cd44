"""Cells of a log in a file that is mapped into memory."""

from __future__ import annotations

import mmap
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from unskew.data.universe import Universe
from unskew.factorization.objective import SortedCells, even_ranges
from unskew.factorization.penalty import Side
from unskew.io.sorted_files import CellBatch
from unskew.kernels.rows import add_weights, entry_type
from unskew.types import IntVector, Vector


def map_file(path: Path, dtype: npt.DTypeLike) -> tuple[npt.NDArray[Any], mmap.mmap]:
    """The array in a file, and its mapping. Pages are read when they are used.

    The file may be deleted while the array is in use.
    """
    with path.open("rb") as file:
        mapping = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
    return np.frombuffer(mapping, dtype), mapping


@dataclass(frozen=True, eq=False)
class MappedCells(SortedCells):
    """Sorted cells whose entries are in a mapped file."""

    row_weights: Vector = None  # type: ignore[assignment]  # the base class has defaults
    """The sum of the weights of each row, added up range by range."""
    mapping: mmap.mmap = None  # type: ignore[assignment]

    def release(self, rows: tuple[int, int]) -> None:
        """Remove the entries of these rows from the memory of this process."""
        size, page = self.entries.itemsize, mmap.PAGESIZE
        first = int(self.starts[rows[0]]) * size // page * page
        end = int(self.starts[rows[1]]) * size
        if end > first and hasattr(mmap, "MADV_DONTNEED"):
            self.mapping.madvise(mmap.MADV_DONTNEED, first, end - first)


@dataclass(slots=True, eq=False)
class CellWriter:
    """Writes sorted cells to a file, batch by batch, and adds up what a fit needs of each row."""

    path: Path
    side: Side
    universe: Universe
    dtype: npt.DTypeLike
    n_repeats: int = 0
    """Cells that are equal to the cell before them."""

    def write(self, batches: Iterable[CellBatch]) -> MappedCells:
        """Write all batches, and map the file."""
        n_rows, n_opposite = self.universe.n_users, self.universe.n_items
        if self.side == "item":
            n_rows, n_opposite = n_opposite, n_rows
        lengths = np.zeros(n_rows, np.int64)
        last = (-1, -1)
        with self.path.open("wb") as file:
            for batch in batches:
                row, opposite = batch.user, batch.item
                if self.side == "item":
                    row, opposite = opposite, row
                self._count_repeats(row, opposite, last)
                last = int(row[-1]), int(opposite[-1])
                entries = np.empty(row.size, entry_type(self.dtype, n_opposite))
                entries["opposite"], entries["rating"] = opposite, batch.rating
                entries["root_weight"] = np.sqrt(batch.weight)
                entries.tofile(file)
                lengths += np.bincount(row, minlength=n_rows)
        entries, mapping = map_file(self.path, entry_type(self.dtype, n_opposite))
        starts = np.concatenate([[0], np.cumsum(lengths)])
        scale, weights = np.ones(n_rows, self.dtype), np.zeros(n_rows)
        cells = MappedCells(
            starts, entries, scale, even_ranges(starts), self.side, weights, mapping
        )
        for first, end in cells.tasks:
            add_weights((starts[first : end + 1], entries), weights[first:end])
            cells.release((first, end))
        return cells

    def _count_repeats(self, row: IntVector, opposite: IntVector, last: tuple[int, int]) -> None:
        is_repeat = (np.diff(row) == 0) & (np.diff(opposite) == 0)
        self.n_repeats += int(is_repeat.sum()) + ((int(row[0]), int(opposite[0])) == last)
