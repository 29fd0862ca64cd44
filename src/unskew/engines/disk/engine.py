"""The engine of ``engine="disk"``: sweeps over cells in mapped files, sorted by DuckDB.

It imports DuckDB when it is used.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from unskew.data.universe import Universe
from unskew.errors import DuplicateCellError, UsageError
from unskew.factorization.als import AlternatingLeastSquares
from unskew.factorization.engine import FrameFitRequest, FrameFitResult
from unskew.factorization.initialization import small_random
from unskew.factorization.objective import Objective, SortedCells, even_ranges
from unskew.factorization.penalty import Side
from unskew.factorization.solution import minimize
from unskew.io.duckdb_files import BATCH_ROWS, CellBatch, ParquetLog
from unskew.kernels.rows import add_weights, entry_type
from unskew.threads import Workers, single_blas_thread
from unskew.types import IntVector, SeenItems, Vector


@dataclass(frozen=True, slots=True)
class DiskEngine:
    """Fits a log in Parquet files that is larger than memory.

    DuckDB sorts the log once by user and once by item, outside of memory. Both copies are files
    of 10 to 20 bytes for each rating, which every sweep reads from start to end. The factors, and
    the ids of users and items, are in memory.

    Parameters
    ----------
    folder
        Where the sorted copies are written; they are deleted after the fit. By default the folder
        for temporary files.
    memory
        Bytes that DuckDB may use to sort.
    n_threads
        The number of threads; by default one for each processor.
    user, item, rating
        Names of columns. By default columns with common names are used.
    universe
        (n_users, n_items) if there are more than those in the log. It scales the penalty.
    """

    folder: str | None = None
    memory: int = 600_000_000
    n_threads: int | None = None
    user: str | None = None
    item: str | None = None
    rating: str | None = None
    universe: tuple[int, int] | None = None
    name: ClassVar[str] = "disk"

    def fit_frame(self, request: FrameFitRequest, /) -> FrameFitResult:
        """Fit Eq. (14) by the sweeps of the local engine, to the same optimum."""
        return fit_on_disk(self, request)


def fit_on_disk(engine: DiskEngine, request: FrameFitRequest) -> FrameFitResult:
    """Sort the log into two files, and alternate between users and items."""
    if not isinstance(request.frame, str | Path):
        raise UsageError(
            "`engine='disk'` fits the path of Parquet files; got "
            f"{type(request.frame).__module__}.{type(request.frame).__name__}.",
            parameter="log",
            remedy="Write the log to Parquet, or leave `engine` out and pass Ratings.",
        )
    if request.solver == "reduced":
        raise UsageError(
            "`engine='disk'` alternates between users and items.",
            parameter="solver",
            value=request.solver,
            remedy="Use `solver='auto'`.",
        )
    with TemporaryDirectory(prefix="unskew-", dir=engine.folder) as name:
        folder = Path(name)
        log = ParquetLog.open(
            str(request.frame),
            folder=folder,
            memory=engine.memory,
            names={"user": engine.user, "item": engine.item, "rating": engine.rating},
            propensity=request.propensity,
            relevance_threshold=request.relevance_threshold,
        )
        try:
            universe = Universe(*(engine.universe or (len(log.users), len(log.items))))
            by_user, by_item = _sort_both_ways(request, log, universe, folder)
        finally:
            log.close()
        seen = _write_seen(by_user, folder)
        return _fit_cells(engine, request, log, universe, by_user, by_item, seen)


def _sort_both_ways(
    request: FrameFitRequest, log: ParquetLog, universe: Universe, folder: Path
) -> tuple[MappedCells, MappedCells]:
    normalize = request.normalize
    if request.propensity is None and normalize == "none":
        normalize = "self"
    if normalize != "none":
        log.scale_weights(normalize, universe)
    shape = Universe(len(log.users), len(log.items))
    cells = []
    for side in ("user", "item"):
        writer = CellWriter(folder / f"by_{side}", side, shape, request.dtype)
        cells.append(writer.write(log.read_sorted(side, is_scaled=normalize != "none")))
        if writer.n_repeats:
            raise DuplicateCellError(
                f"{writer.n_repeats:,} rows repeat a (user, item) of another row.",
                remedy="Aggregate them first.",
            )
    return cells[0], cells[1]


def _write_seen(by_user: MappedCells, folder: Path) -> SeenItems:
    """Where the items of each user start, and the items, in a mapped file of their own."""
    path = folder / "seen"
    with path.open("wb") as file:
        for first in range(0, by_user.entries.size, BATCH_ROWS):
            by_user.opposite[first : first + BATCH_ROWS].astype(np.int32).tofile(file)
    by_user.release((0, by_user.n_rows))
    return by_user.starts, map_file(path, np.int32)[0]


def _fit_cells(
    engine: DiskEngine,
    request: FrameFitRequest,
    log: ParquetLog,
    universe: Universe,
    by_user: MappedCells,
    by_item: MappedCells,
    seen: SeenItems,
) -> FrameFitResult:
    mean = _weighted_mean(by_user)
    start: Any = request.initial_factors or small_random(
        (len(log.users), len(log.items)),
        mean,
        n_factors=request.n_factors,
        has_offsets=request.offsets != "none",
        random_state=request.random_state,
        dtype=request.dtype,
        with_users=False,
    )
    size = np.array([log.n_ratings, mean])
    with Workers(engine.n_threads) as workers, single_blas_thread():
        penalty = request.penalty(universe)
        cells = by_user, by_item
        objective = Objective(*cells, request.n_factors, request.offsets, penalty, workers)
        solution = minimize(
            AlternatingLeastSquares(objective),
            start,
            max_iter=request.max_iter,
            tol=request.tol,
            checkpoint=request.make_checkpoint([size, by_user.row_weights, by_item.row_weights]),
            report=request.report,
        )
    counts = universe, log.n_ratings, log.rating_range
    return FrameFitResult(solution, mean, log.users, log.items, seen, None, *counts)


def _weighted_mean(cells: MappedCells) -> float:
    """The mean of the ratings with the weights of the file, in batches."""
    total = 0.0
    for first in range(0, cells.entries.size, BATCH_ROWS):
        batch = cells.entries[first : first + BATCH_ROWS]
        weight = np.square(batch["root_weight"].astype(np.float64))
        total += float(weight @ batch["rating"].astype(np.float64))
    cells.release((0, cells.n_rows))
    return total / float(cells.row_weights.sum())


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
