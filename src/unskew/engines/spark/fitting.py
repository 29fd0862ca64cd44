"""A fit on Spark: users stay in their partitions, and only item-sized vectors travel."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark import StorageLevel
from pyspark.core.broadcast import Broadcast
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.classic.dataframe import DataFrame as ClassicFrame
from pyspark.sql.types import ArrayType, DoubleType, StructField, StructType

from unskew.data.binarize import require_threshold
from unskew.data.checks import whole_number
from unskew.data.factors import Factors
from unskew.data.ids import Ids, as_ids, encode
from unskew.data.universe import Universe
from unskew.engines.spark.blocks import Block, Blocks, Outer, Totals, problem_without_cells
from unskew.engines.spark.engine import SparkEngine
from unskew.engines.spark.frame import Counted, Log
from unskew.errors import DuplicateCellError, UnknownNameError, UsageError
from unskew.factorization import initialization
from unskew.factorization.engine import FrameFitRequest, FrameFitResult
from unskew.factorization.lbfgs import LbfgsState
from unskew.factorization.reduced import ReducedObjective
from unskew.factorization.solution import Solution, minimize
from unskew.factorization.weights import NORMALIZATIONS
from unskew.types import Floats, SeenItems

CELLS_A_BLOCK = 1 << 24
MOST_COLLECTED = 200_000_000
"""Numbers of user factors, and ratings, that are brought to the driver."""


def fit_on(engine: SparkEngine, fit: FrameFitRequest) -> FrameFitResult:
    """One pass to count and check, one shuffle into blocks, then one job for each evaluation."""
    _check(fit)
    log = Log.of(
        frame_of(engine, fit.frame),
        engine.names,
        propensity=fit.propensity,
        threshold=fit.relevance_threshold,
    )
    counted = log.count()
    context = log.frame.sparkSession.sparkContext
    n_blocks = _n_blocks(engine, context.defaultParallelism, counted.n_ratings)
    blocks = Blocks.of(log.frame, context.broadcast(counted.items), n_blocks, fit.dtype)
    try:
        return _fit_blocks(engine, fit, log, counted, blocks)
    finally:
        blocks.drop()


def _fit_blocks(
    engine: SparkEngine, fit: FrameFitRequest, log: Log, counted: Counted, blocks: Blocks
) -> FrameFitResult:
    totals = _universe_of(engine, blocks.totals())
    _check_totals(fit, totals)
    if engine.collect_users:
        _require_room(totals, fit, counted)
    how = "self" if fit.propensity is None and fit.normalize == "none" else fit.normalize
    if how == "none":
        return _descend(engine, fit, log, counted, blocks, totals)
    scaled = blocks.normalized(how, totals)
    try:
        return _descend(engine, fit, log, counted, scaled, _universe_of(engine, scaled.totals()))
    finally:
        scaled.drop()


def _descend(
    engine: SparkEngine, fit: FrameFitRequest, log: Log, counted: Counted, blocks: Blocks, totals: Totals
) -> FrameFitResult:
    session = log.frame.sparkSession
    problem = problem_without_cells(
        fit.n_factors, fit.offsets, fit.ridge(totals.universe), fit.dtype
    )
    scale = np.sqrt(totals.item_weight + max(problem.ridge, 1e-12))
    solver = SparkReduced(problem, problem.by_user, scale, blocks)
    outcome = minimize(
        solver,
        fit.initial_factors or _begin(fit, counted, totals),
        max_iter=fit.max_iter,
        tol=fit.tol,
        checkpoint=fit.make_checkpoint([counted.digest, np.array([counted.n_ratings, blocks.n_blocks])]),
        report=fit.report,
    )
    found = outcome.parameters
    outer = session.sparkContext.broadcast(
        Outer(problem, found.item_factors, found.item_offset, found.global_offset)
    )
    factors = _user_frame(session, blocks, outer, log)
    users, parameters, seen = (
        _collect(blocks, outer, found) if engine.collect_users else _nobody(found)
    )
    whole = Solution(parameters, outcome.history, outcome.stop_reason)
    return FrameFitResult(whole, totals.mean, users, counted.items, seen, factors)


def frame_of(engine: SparkEngine, given: object) -> DataFrame:
    """A frame of Spark, read from Parquet where a path is given."""
    if isinstance(given, (str, Path)):
        return _session(engine).read.parquet(str(given))
    if isinstance(given, ClassicFrame):
        return given
    if isinstance(given, DataFrame):
        raise UsageError(
            "engine='spark' keeps the log as RDDs, which Spark Connect does not have. Fit in a session of the cluster itself."
        )
    raise UsageError(
        f"engine='spark' fits a Spark data frame, or the path of Parquet files; got {type(given).__module__}."
        f"{type(given).__name__}. Make one with session.createDataFrame(...), or leave engine=... out and pass Ratings."
    )


def _session(engine: SparkEngine) -> SparkSession:
    if engine.session is not None:
        return engine.session
    if (
        SparkSession.getActiveSession() is None
        and shutil.which("java") is None
        and "JAVA_HOME" not in os.environ
    ):
        raise UsageError(
            "engine='spark' needs Java, and there is none. Install a JDK (17 or later), or set JAVA_HOME."
        )
    return SparkSession.builder.getOrCreate()


def _n_blocks(engine: SparkEngine, n_at_once: int, n_ratings: int) -> int:
    if engine.n_blocks is not None:
        return whole_number("n_blocks", engine.n_blocks, least=1)
    return max(n_at_once, -(-n_ratings // CELLS_A_BLOCK))


def _universe_of(engine: SparkEngine, totals: Totals) -> Totals:
    """With the users and items that the engine was told of."""
    return (
        totals if engine.universe is None else replace(totals, universe=Universe(*engine.universe))
    )


@dataclass(frozen=True, slots=True, eq=False)
class SparkReduced(ReducedObjective):
    """The reduced objective whose users are solved in blocks elsewhere; its parameters are those of the items."""

    blocks: Blocks

    def start(self, parameters: Factors, /) -> LbfgsState:
        """At the items of ``parameters``: a sweep of alternation would need more than item-sized vectors."""
        return self.start_without_sweeps(parameters)

    def parameters(self, state: LbfgsState, /) -> Factors:
        """The items' side, and no users."""
        factors, offset, constant = self._unpack(state.point)
        return Factors(
            np.empty((0, self.objective.n_factors)), factors, np.empty(0), offset, constant
        )

    def solve_inner(self, factors: Floats, offset: Floats, constant: float) -> tuple[float, Floats]:
        """One job: the items' side goes to every executor, and a sum of the size of it comes back."""
        outer = self.blocks.rdd.context.broadcast(Outer(self.objective, factors, offset, constant))
        try:
            minimum, gradient = self.blocks.add_up(lambda block: outer.value.evaluate(block))
        finally:
            outer.destroy()
        if np.isnan(minimum):
            raise UsageError(
                f"a user has no unique solution at l2 = {self.objective.ridge:g}. Raise l2."
            )
        return minimum, gradient


def _check(fit: FrameFitRequest) -> None:
    if fit.normalize not in NORMALIZATIONS:
        raise UnknownNameError("normalize", fit.normalize, NORMALIZATIONS)
    require_column(fit.propensity)
    if fit.relevance_threshold is not None:
        require_threshold(fit.relevance_threshold)


def require_column(propensity: object) -> None:
    """Refuse propensities that are no column's name."""
    if not (propensity is None or isinstance(propensity, str)):
        raise UsageError(
            f"engine='spark' reads propensities from a column: pass its name; got {type(propensity).__name__}."
        )


def _check_totals(fit: FrameFitRequest, totals: Totals) -> None:
    if totals.n_repeats:
        raise DuplicateCellError(
            f"{totals.n_repeats:,} rows repeat a (user, item) that is already there. Aggregate first, with groupBy."
        )
    if fit.relevance_threshold is not None and totals.mean in (0.0, 1.0):
        which = "every" if totals.mean else "no"
        raise UsageError(
            f"{which} rating reaches threshold={fit.relevance_threshold:g}; there must be clicks and others to tell apart."
        )


def _require_room(totals: Totals, fit: FrameFitRequest, counted: Counted) -> None:
    needed = totals.universe.n_users * (fit.n_factors + 1) + counted.n_ratings
    if needed > MOST_COLLECTED:
        raise UsageError(
            f"{totals.universe.n_users:,} users and {counted.n_ratings:,} ratings are too many for the driver. Pass "
            "engine=SparkEngine(collect_users=False): user factors then stay in model.user_factors_frame."
        )


def _begin(fit: FrameFitRequest, counted: Counted, totals: Totals) -> Factors:
    """As everywhere on the items' side; users are solved where they are."""
    return initialization.small_random(
        (1, len(counted.items)),
        totals.mean,
        n_factors=fit.n_factors,
        has_offsets=fit.offsets != "none",
        random_state=fit.random_state,
        with_users=False,
    )


def _user_frame(
    session: SparkSession, blocks: Blocks, outer: Broadcast[Outer], log: Log
) -> DataFrame:
    """User, factors and offset, kept in the executors; blocks travel there as Arrow."""

    def packed(block: Block) -> tuple[bytes]:
        factors, offset = outer.value.users(block)
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

    def unpacked(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for part in batch.column(0):
                yield from pa.ipc.open_stream(part.as_py())

    kind = log.frame.schema["user"].dataType
    arrow_type = _arrow_type(kind)
    fields = [
        StructField("user", kind),
        StructField("factors", ArrayType(DoubleType())),
        StructField("offset", DoubleType()),
    ]
    parts = session.createDataFrame(blocks.rdd.map(packed), "part binary")
    frame = parts.mapInArrow(unpacked, StructType(fields)).withColumnRenamed("user", log.user_name)
    frame = frame.persist(StorageLevel.MEMORY_AND_DISK)
    frame.count()
    return frame


def _arrow_type(kind: Any) -> Any:
    from pyspark.sql.pandas.types import to_arrow_type

    return to_arrow_type(kind)


def _collect(
    blocks: Blocks, outer: Broadcast[Outer], items: Factors
) -> tuple[Ids, Factors, SeenItems]:
    """Users in the order of their ids, their parameters, and what they rated."""

    def fetched(block: Block) -> tuple[Any, ...]:
        factors, offset = outer.value.users(block)
        return block.users.tolist(), factors, offset, np.diff(block.side.starts), block.side.opposite

    ids, factors, offset, lengths, opposite = zip(*blocks.rdd.map(fetched).collect(), strict=True)
    code, users = encode(as_ids([user for part in ids for user in part]))
    order, length = np.argsort(code), np.concatenate(lengths)
    first = (np.cumsum(length) - length)[order]
    starts = np.concatenate([[0], np.cumsum(length[order])])
    place = np.arange(starts[-1]) - np.repeat(starts[:-1] - first, length[order])
    seen = starts.astype(np.int64), np.concatenate(opposite)[place].astype(np.int32)
    own = np.concatenate(factors)[order], np.concatenate(offset)[order]
    return (
        users,
        Factors(own[0], items.item_factors, own[1], items.item_offset, items.global_offset),
        seen,
    )


def _nobody(items: Factors) -> tuple[Ids, Factors, SeenItems]:
    """A model of the items alone."""
    return np.empty(0, np.int64), items, (np.zeros(1, np.int64), np.empty(0, np.int32))
