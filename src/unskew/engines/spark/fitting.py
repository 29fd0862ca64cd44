"""A fit on Spark: users stay in their partitions, and only vectors of item size are sent."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pyspark import StorageLevel
from pyspark.core.broadcast import Broadcast
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import ArrayType, DoubleType, StructField, StructType

from unskew.data.checks import whole_number
from unskew.data.clicks import require_threshold
from unskew.data.factors import Factors
from unskew.data.ids import Ids, as_ids, encode
from unskew.data.universe import Universe
from unskew.engines.spark.blocks import BlockTotals, UserBlock, UserBlocks, UserSolver
from unskew.engines.spark.frame import LogCounts, SparkLog
from unskew.errors import DuplicateCellError, UsageError
from unskew.factorization.als import ItemSide
from unskew.factorization.engine import FrameFitRequest, FrameFitResult
from unskew.factorization.initialization import small_random
from unskew.factorization.lbfgs import LbfgsState
from unskew.factorization.objective import (
    UNSOLVED_REMEDY,
    Objective,
    SortedCells,
    describe_unsolved,
)
from unskew.factorization.reduced import ReducedObjective
from unskew.factorization.solution import Solution, minimize
from unskew.threads import Workers
from unskew.types import Floats, SeenItems

if TYPE_CHECKING:
    from unskew.engines.spark.engine import SparkEngine

CELLS_PER_BLOCK = 1 << 24
MAX_COLLECTED = 200_000_000
"""The most numbers, user factors and ratings together, that are copied to the driver."""


def fit_on_spark(engine: SparkEngine, request: FrameFitRequest) -> FrameFitResult:
    """Count and check the log, shuffle it into blocks of users, and run L-BFGS over the items.

    L-BFGS takes one Spark job for each evaluation of the objective.
    """
    log = SparkLog.read(engine, request.frame, request.propensity)
    if request.relevance_threshold is not None:
        require_threshold(request.relevance_threshold)
        log = log.binarize(request.relevance_threshold)
    counts = log.count()
    context = log.frame.sparkSession.sparkContext
    n_blocks = max(context.defaultParallelism, -(-counts.n_ratings // CELLS_PER_BLOCK))
    if engine.n_blocks is not None:
        n_blocks = whole_number("n_blocks", engine.n_blocks, least=1)
    blocks = UserBlocks.of(log.frame, context.broadcast(counts.items), n_blocks, request.dtype)
    try:
        totals = _count_blocks(engine, blocks)
        _check_totals(request, totals)
        if engine.collect_users:
            require_driver_memory(totals.universe.n_users, request.n_factors, counts.n_ratings)
        normalize = request.normalize
        if not log.is_weighted and normalize == "none":
            normalize = "self"
        if normalize == "none":
            return _fit_blocks(engine, request, log, counts, blocks, totals)
        normalized = blocks.normalize(normalize, totals)
        try:
            totals = _count_blocks(engine, normalized)
            return _fit_blocks(engine, request, log, counts, normalized, totals)
        finally:
            normalized.drop()
    finally:
        blocks.drop()


def _count_blocks(engine: SparkEngine, blocks: UserBlocks) -> BlockTotals:
    """The totals of the blocks, with the universe of the engine if it has one."""
    totals = blocks.count()
    return replace(totals, universe=Universe(*engine.universe)) if engine.universe else totals


def _check_totals(request: FrameFitRequest, totals: BlockTotals) -> None:
    if totals.n_repeats:
        raise DuplicateCellError(
            f"{totals.n_repeats:,} rows repeat a (user, item) of another row.",
            remedy="Aggregate them first, with groupBy.",
        )
    if request.relevance_threshold is not None and totals.mean in (0.0, 1.0):
        raise UsageError(
            f"{'every' if totals.mean else 'no'} rating reaches the threshold "
            f"{request.relevance_threshold:g}.",
            parameter="relevance_threshold",
            value=request.relevance_threshold,
            remedy="Choose a threshold that some ratings reach and others do not.",
        )


def require_driver_memory(n_users: int, n_factors: int, n_ratings: int) -> None:
    """Raise an error if users and their items are too many to be copied to the driver."""
    if n_users * (n_factors + 1) + n_ratings > MAX_COLLECTED:
        raise UsageError(
            f"{n_users:,} users and {n_ratings:,} ratings are too many for the driver.",
            parameter="engine",
            remedy="Pass `engine=SparkEngine(collect_users=False)`; user factors are then in "
            "model.user_factors_frame.",
        )


def _fit_blocks(
    engine: SparkEngine,
    request: FrameFitRequest,
    log: SparkLog,
    counts: LogCounts,
    blocks: UserBlocks,
    totals: BlockTotals,
) -> FrameFitResult:
    no_codes, no_values = np.empty(0, np.int32), np.empty(0)
    no_cells = SortedCells.of(
        no_codes, no_codes, no_values, no_values, shape=(0, 0), dtype=request.dtype
    )
    penalty = request.penalty(totals.universe)
    objective = Objective(
        no_cells, no_cells, request.n_factors, request.offsets, penalty, Workers(1)
    )
    scale = np.sqrt(totals.item_weight + max(penalty.factors, 1e-12))
    solution = minimize(
        SparkReducedObjective(objective, no_cells, scale, blocks),
        request.initial_factors or _make_start(request, counts, totals),
        max_iter=request.max_iter,
        tol=request.tol,
        checkpoint=request.make_checkpoint(
            [counts.digest, np.array([counts.n_ratings, blocks.n_blocks])]
        ),
        report=request.report,
    )
    items = solution.parameters
    context = log.frame.sparkSession.sparkContext
    solver = context.broadcast(UserSolver(objective, ItemSide.of(items)))
    user_factors = _make_user_frame(log, blocks, solver)
    users, factors = np.empty(0, np.int64), items
    seen: SeenItems = np.zeros(1, np.int64), np.empty(0, np.int32)
    if engine.collect_users:
        users, factors, seen = _collect_users(blocks, solver, items)
    whole = Solution(factors, solution.history, solution.stop_reason)
    size = totals.universe, counts.n_ratings, counts.rating_range
    return FrameFitResult(whole, totals.mean, users, counts.items, seen, user_factors, *size)


def _make_start(request: FrameFitRequest, counts: LogCounts, totals: BlockTotals) -> Factors:
    """Random item factors, as the local engine starts.

    The one user is a placeholder, which the solver never reads.
    """
    return small_random(
        (1, len(counts.items)),
        totals.mean,
        n_factors=request.n_factors,
        has_offsets=request.offsets != "none",
        random_state=request.random_state,
        with_users=False,
    )


@dataclass(frozen=True, slots=True, eq=False)
class SparkReducedObjective(ReducedObjective):
    """The reduced objective with users in Spark's executors; its parameters have no users."""

    blocks: UserBlocks

    def start(self, factors: Factors, /) -> LbfgsState:
        """No sweeps come first: they would need more than vectors of item size."""
        return self.start_without_sweeps(factors)

    def parameters(self, state: LbfgsState, /) -> Factors:
        """The items that the state stands for, without users."""
        factors, offset, c = self._unpack(state.point)
        no_users = np.empty((0, self.objective.n_factors))
        return Factors(no_users, factors, np.empty(0), offset, c)

    def solve_inner(self, factors: Floats, offset: Floats, c: float) -> tuple[float, Floats]:
        """The sums over all blocks of what :class:`UserSolver` returns: one Spark job."""
        rdd = self.blocks.rdd
        solver = rdd.context.broadcast(UserSolver(self.objective, ItemSide(factors, offset, c)))
        try:
            minimum, gradient = self.blocks.add_up(lambda block: solver.value.evaluate(block))
            if np.isnan(minimum):
                unsolved = rdd.flatMap(lambda block: solver.value.describe_unsolved(block)).take(1)
                user = unsolved[0] if unsolved else "a user"
                raise UsageError(
                    describe_unsolved(user),
                    parameter="l2",
                    where=user,
                    remedy=UNSOLVED_REMEDY,
                )
        finally:
            solver.destroy()
        return minimum, gradient


def _make_user_frame(log: SparkLog, blocks: UserBlocks, solver: Broadcast[UserSolver]) -> DataFrame:
    """A cached data frame of user, factors and offset, made of Arrow batches."""

    def solve(block: UserBlock) -> tuple[bytes]:
        factors, offset = solver.value.solve(block)
        ends = pa.array(np.arange(len(factors) + 1) * factors.shape[1], pa.int32())
        columns = {
            "user": pa.array(block.users.tolist(), arrow_type),
            "factors": pa.ListArray.from_arrays(ends, pa.array(factors.ravel(), pa.float64())),
            "offset": pa.array(offset, pa.float64()),
        }
        batch, sink = pa.record_batch(columns), pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, batch.schema) as writer:
            writer.write_batch(batch)
        return (sink.getvalue().to_pybytes(),)

    def unpack(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for part in batch.column(0):
                yield from pa.ipc.open_stream(part.as_py())

    user_type = log.frame.schema["user"].dataType
    arrow_type = to_arrow_type(user_type)
    schema = StructType(
        [
            StructField("user", user_type),
            StructField("factors", ArrayType(DoubleType())),
            StructField("offset", DoubleType()),
        ]
    )
    parts = log.frame.sparkSession.createDataFrame(blocks.rdd.map(solve), "part binary")
    frame = parts.mapInArrow(unpack, schema).withColumnRenamed("user", log.user_name)
    frame = frame.persist(StorageLevel.MEMORY_AND_DISK)
    frame.count()
    return frame


def _collect_users(
    blocks: UserBlocks, solver: Broadcast[UserSolver], items: Factors
) -> tuple[Ids, Factors, SeenItems]:
    """The users in the order of their ids, all factors, and the items of each user."""

    def solve(block: UserBlock) -> tuple[Any, ...]:
        lengths, opposite = np.diff(block.cells.starts), block.cells.opposite
        return block.users.tolist(), *solver.value.solve(block), lengths, opposite

    parts = zip(*blocks.rdd.map(solve).collect(), strict=True)
    ids, factors, offset, lengths, opposite = parts
    code, users = encode(as_ids([user for part in ids for user in part]))
    order, length = np.argsort(code), np.concatenate(lengths)
    first = (np.cumsum(length) - length)[order]
    starts = np.concatenate([[0], np.cumsum(length[order])])
    index = np.arange(starts[-1]) - np.repeat(starts[:-1] - first, length[order])
    seen = starts.astype(np.int64), np.concatenate(opposite)[index].astype(np.int32)
    user_factors, user_offset = np.concatenate(factors)[order], np.concatenate(offset)[order]
    return users, replace(items, user_factors=user_factors, user_offset=user_offset), seen
