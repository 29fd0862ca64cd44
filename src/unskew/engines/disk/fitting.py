"""A fit to a log on disk: the sweeps of the local engine over cells in mapped files."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np

from unskew.data.universe import Universe
from unskew.engines.disk.cells import CellWriter, MappedCells, map_file
from unskew.errors import DuplicateCellError, UsageError
from unskew.factorization.als import AlternatingLeastSquares
from unskew.factorization.engine import FrameFitRequest, FrameFitResult
from unskew.factorization.initialization import small_random
from unskew.factorization.objective import Objective
from unskew.factorization.solution import minimize
from unskew.io.sorted_files import BATCH_ROWS, ParquetLog
from unskew.threads import Workers, single_blas_thread
from unskew.types import SeenItems

if TYPE_CHECKING:
    from unskew.engines.disk.engine import DiskEngine


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
            by_user, by_item = _sort_both_ways(request, log, folder)
        finally:
            log.close()
        return _fit_cells(engine, request, log, by_user, by_item, _write_seen(by_user, folder))


def _sort_both_ways(
    request: FrameFitRequest, log: ParquetLog, folder: Path
) -> tuple[MappedCells, MappedCells]:
    normalize = request.normalize
    if request.propensity is None and normalize == "none":
        normalize = "self"
    if normalize != "none":
        log.scale_weights(normalize)
    universe = Universe(len(log.users), len(log.items))
    cells = []
    for side in ("user", "item"):
        writer = CellWriter(folder / f"by_{side}", side, universe, request.dtype)
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
    by_user: MappedCells,
    by_item: MappedCells,
    seen: SeenItems,
) -> FrameFitResult:
    universe = Universe(len(log.users), len(log.items))
    mean = _weighted_mean(by_user)
    start: Any = request.initial_factors or small_random(
        (universe.n_users, universe.n_items),
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
