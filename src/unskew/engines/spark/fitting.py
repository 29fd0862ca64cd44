"""A fit on Spark: users stay in their partitions, and only vectors of item size are sent."""

from __future__ import annotations

import pickle
import re
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NoReturn, Protocol
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark import StorageLevel, cloudpickle
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import ArrayType, BinaryType, DoubleType, StructField, StructType

from unskew._version import __version__
from unskew.data.clicks import require_threshold
from unskew.data.factors import Factors
from unskew.data.ids import Ids, as_ids, encode
from unskew.data.universe import Universe
from unskew.engines.spark.blocks import BlockTotals, UserBlock, UserBlocks
from unskew.engines.spark.frame import LogCounts, SparkLog
from unskew.engines.spark.solving import (
    ItemFactors,
    SampleFit,
    SparkReducedObjective,
    SparkSweeps,
    UserSolver,
    fit_sample,
    packed_width,
)
from unskew.errors import DuplicateCellError, UnskewWarning, UsageError
from unskew.factorization.als import ItemSide
from unskew.factorization.engine import FrameFitRequest, FrameFitResult
from unskew.factorization.initialization import small_random
from unskew.factorization.objective import Objective, SortedCells
from unskew.factorization.solution import Solution, Solver, minimize
from unskew.settings import WholeNumber
from unskew.threads import Workers, cancel_jobs_on_interrupt
from unskew.types import Floats, SeenItems

if TYPE_CHECKING:
    from unskew.engines.spark.engine import SparkEngine


CELLS_PER_BLOCK = 1 << 24
MAX_SUM_BYTES = 1 << 29
"""Bytes of the normal equations of all items up to which sweeps are chosen."""
MIN_SAMPLED = 50_000
"""Ratings from which on the start is fitted to some users first."""
MAX_COLLECTED = 200_000_000
"""The most numbers, user factors and ratings together, that are copied to the driver."""


def fit_on_spark(engine: SparkEngine, request: FrameFitRequest) -> FrameFitResult:
    """Count and check the log, shuffle it into blocks of users, and sweep over users and items.

    A sweep is one Spark job.
    """
    log = SparkLog.read(engine, request.frame, request.propensity)
    with cancel_jobs_on_interrupt(log.frame.sparkSession):
        return _fit_log(engine, request, log)


def _fit_log(engine: SparkEngine, request: FrameFitRequest, log: SparkLog) -> FrameFitResult:
    with shuffle_log(engine, request, log) as shuffled:
        log, totals = shuffled.log, shuffled.totals
        normalize = request.normalize
        if not log.is_weighted and normalize == "none":
            normalize = "self"
        if normalize == "none":
            return _fit_blocks(engine, request, shuffled)
        normalized = shuffled.blocks.normalize(normalize, totals)
        try:
            totals = _count_blocks(engine, normalized)
            return _fit_blocks(engine, request, replace(shuffled, blocks=normalized, totals=totals))
        finally:
            normalized.drop()


@dataclass(frozen=True, slots=True, eq=False)
class ShuffledLog:
    """A log in blocks of users, and what was counted in it."""

    log: SparkLog
    counts: LogCounts
    blocks: UserBlocks
    totals: BlockTotals

    @property
    def identity(self) -> list[npt.NDArray[Any]]:
        """Arrays that identify the log, and the order of sums, in a checkpoint."""
        return [self.counts.digest, np.array([self.counts.n_ratings, self.blocks.n_blocks])]


@contextmanager
def shuffle_log(
    engine: SparkEngine, request: FrameFitRequest, log: SparkLog
) -> Iterator[ShuffledLog]:
    """Count and check the log and send it to blocks of users, which are dropped at the end."""
    n_tasks = check_executors(log.frame.sparkSession)
    if request.relevance_threshold is not None:
        require_threshold(request.relevance_threshold)
        log = log.binarize(request.relevance_threshold)
    counts = log.count()
    n_blocks = max(n_tasks, -(-counts.n_ratings // CELLS_PER_BLOCK))
    if engine.n_blocks is not None:
        WholeNumber(least=1)("n_blocks", engine.n_blocks)
        n_blocks = int(engine.n_blocks)
    blocks = UserBlocks.of(log.frame, counts.items, n_blocks, request.dtype)
    try:
        totals = _count_blocks(engine, blocks)
        _check_totals(request, totals)
        if engine.collect_users:
            require_driver_memory(totals.universe.n_users, request.n_factors, counts.n_ratings)
        yield ShuffledLog(log, counts, blocks, totals)
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
    engine: SparkEngine, request: FrameFitRequest, shuffled: ShuffledLog
) -> FrameFitResult:
    objective, solution = minimize_over_blocks(request, shuffled)
    # Sent with the tasks and not as a broadcast: the data frame of users may outlive this fit.
    solver = UserSolver(objective, solution.parameters.start)
    return make_result(engine, shuffled, solution, solver, shuffled.totals.mean)


def minimize_over_blocks(
    request: FrameFitRequest, shuffled: ShuffledLog
) -> tuple[Objective, Solution[ItemFactors]]:
    """The objective of Eq. (14), without its cells, and the items that minimise it."""
    blocks, totals, dtype = shuffled.blocks, shuffled.totals, request.dtype
    no_codes, no_values = np.empty(0, np.int32), np.empty(0)
    no_cells = SortedCells.of(no_codes, no_codes, no_values, no_values, shape=(0, 0), dtype=dtype)
    penalty = request.penalty(totals.universe)
    objective = Objective(
        no_cells, no_cells, request.n_factors, request.offsets, penalty, Workers(1)
    )
    solution = minimize(
        _choose_solver(request, objective, blocks, totals),
        _make_start(request, shuffled.counts, blocks, totals, objective),
        max_iter=request.max_iter,
        tol=request.tol,
        checkpoint=request.make_checkpoint(shuffled.identity),
        report=request.report,
    )
    return objective, solution


class BlockSolver(Protocol):
    """Gives the users of a block their factors; it is sent to the executors."""

    def solve(self, block: Any, /) -> tuple[Floats, Floats]:
        """The factors and offsets of the block's users."""
        ...


def make_result(
    engine: SparkEngine,
    shuffled: ShuffledLog,
    solution: Solution[ItemFactors],
    solver: BlockSolver,
    mean: float,
) -> FrameFitResult:
    """The items of a solution, and its users as a data frame and, if asked for, on the driver."""
    log, counts, blocks, items = (
        *(shuffled.log, shuffled.counts, shuffled.blocks),
        solution.parameters,
    )
    user_factors = _make_user_frame(log, blocks, solver)
    users, factors = np.empty(0, np.int64), items.with_users(items.user_factors, items.user_offset)
    seen: SeenItems = np.zeros(1, np.int64), np.empty(0, np.int32)
    if engine.collect_users:
        users, factors, seen = collect_users(log, blocks, solver, items)
    whole = Solution(factors, solution.history, solution.stop_reason)
    size = shuffled.totals.universe, counts.n_ratings, counts.rating_range
    return FrameFitResult(whole, mean, users, counts.items, seen, user_factors, *size)


def _choose_solver(
    request: FrameFitRequest, objective: Objective, blocks: UserBlocks, totals: BlockTotals
) -> Solver[Any, Any]:
    """Sweeps, or L-BFGS if it was asked for or the normal equations of a block are too large."""
    n_bytes = blocks.n_items * packed_width(objective) * objective.by_user.dtype.itemsize
    solver = request.solver
    if solver == "auto" and n_bytes > MAX_SUM_BYTES:
        solver = "reduced"
        warnings.warn(
            UnskewWarning(
                f"the normal equations of {blocks.n_items:,} items have {n_bytes / 1e9:.1f} GB in "
                "each task, so L-BFGS is used: it sends less, in more rounds.",
                remedy="Pass `solver='als'` if every task has that memory, or use fewer factors.",
            ),
            stacklevel=2,
        )
    if solver == "reduced":
        scale = np.sqrt(totals.item_weight + max(objective.penalty.factors, 1e-12))
        return SparkReducedObjective(objective, objective.by_user, scale, blocks)
    return SparkSweeps(objective, blocks, float(totals.item_weight.sum()))


def _make_start(
    request: FrameFitRequest,
    counts: LogCounts,
    blocks: UserBlocks,
    totals: BlockTotals,
    objective: Objective,
) -> ItemFactors:
    """The items of a fit to some users, or small random ones if there are few ratings."""
    if request.initial_factors is not None:
        return ItemFactors.of(ItemSide.of(request.initial_factors))
    if counts.n_ratings >= MIN_SAMPLED and request.n_factors and request.solver != "reduced":
        size = totals.n_users, blocks.n_items, totals.mean
        stop = request.max_iter, request.tol
        sample = SampleFit(objective, *size, request.random_state, *stop)
        return ItemFactors.of(fit_sample(blocks, sample, counts.n_ratings))
    start = small_random(
        (0, len(counts.items)),
        totals.mean,
        n_factors=request.n_factors,
        has_offsets=request.offsets != "none",
        random_state=request.random_state,
        with_users=False,
    )
    return ItemFactors.of(ItemSide.of(start))


def _make_user_frame(log: SparkLog, blocks: UserBlocks, solver: BlockSolver) -> DataFrame:
    """A cached data frame of user, factors and offset."""

    def solve(_: int, block: UserBlock) -> Iterator[pa.RecordBatch]:
        factors, offset = solver.solve(block)
        ends = pa.array(np.arange(len(factors) + 1) * factors.shape[1], pa.int32())
        columns = {
            "user": pa.array(block.users.tolist(), arrow_type),
            "factors": pa.ListArray.from_arrays(ends, pa.array(factors.ravel(), pa.float64())),
            "offset": pa.array(offset, pa.float64()),
        }
        yield pa.record_batch(columns)

    user_type = log.frame.schema["user"].dataType
    arrow_type = to_arrow_type(user_type)
    schema = StructType(
        [
            StructField("user", user_type),
            StructField("factors", ArrayType(DoubleType())),
            StructField("offset", DoubleType()),
        ]
    )
    frame = blocks.map(solve, schema).withColumnRenamed("user", log.user_name)
    frame = frame.persist(StorageLevel.MEMORY_AND_DISK)
    frame.count()
    return frame


def collect_users(
    log: SparkLog, blocks: UserBlocks, solver: BlockSolver, items: ItemFactors
) -> tuple[Ids, Factors, SeenItems]:
    """The users in the order of their ids, all factors, and the items of each user."""
    arrow_type = to_arrow_type(log.frame.schema["user"].dataType)

    def solve(_: int, block: UserBlock) -> Iterator[pa.RecordBatch]:
        arrays = *solver.solve(block), np.diff(block.cells.starts), block.cells.opposite
        yield pa.record_batch(
            {
                "users": pa.array([block.users.tolist()], pa.list_(arrow_type)),
                "data": [pickle.dumps(arrays, pickle.HIGHEST_PROTOCOL)],
            }
        )

    user_type = log.frame.schema["user"].dataType
    schema = StructType(
        [StructField("users", ArrayType(user_type)), StructField("data", BinaryType())]
    )
    rows = blocks.map(solve, schema).toArrow().to_pylist()
    code, users = encode(as_ids([user for row in rows for user in row["users"]]))
    factors, offset, lengths, opposite = zip(
        *(pickle.loads(row["data"]) for row in rows), strict=True
    )
    order, length = np.argsort(code), np.concatenate(lengths)
    first = (np.cumsum(length) - length)[order]
    starts = np.concatenate([[0], np.cumsum(length[order])])
    index = np.arange(starts[-1]) - np.repeat(starts[:-1] - first, length[order])
    seen = starts.astype(np.int64), np.concatenate(opposite)[index].astype(np.int32)
    user_factors, user_offset = np.concatenate(factors)[order], np.concatenate(offset)[order]
    return users, items.with_users(user_factors, user_offset), seen


def describe_python(batches: Iterator[Any]) -> Iterator[Any]:
    """One row for a task: the version of ``unskew`` there, and the modules that are missing.

    It must run where ``unskew`` is missing: it is sent to the executors by value, and reads
    nothing of this module.
    """
    from importlib.util import find_spec
    from socket import gethostname

    import pyarrow

    for _ in batches:
        pass
    missing = [name for name in ("unskew", "numba", "scipy") if find_spec(name) is None]
    version: str | None = None
    if "unskew" not in missing:
        from unskew import _version

        version = _version.__version__
    columns = {"host": [gethostname()], "version": [version], "missing": [" ".join(missing)]}
    text = pyarrow.string()
    yield pyarrow.record_batch({name: pyarrow.array(v, text) for name, v in columns.items()})


ROWS = 1 << 16
"""Rows of the job that tries all executors: Spark divides them among all tasks."""
PROBLEMS = {
    r"Python in worker has different version:? *\(?([\d.]+)": "run Python {0}, and this process "
    f"runs Python {sys.version_info.major}.{sys.version_info.minor}",
    r"No module named '?([\w.]+)": "have no Python module {0!r}",
    r'Cannot run program "([^"]+)"': "cannot start {0}",
}
"""What Spark's error says of a Python that cannot run tasks, and what we say of the executors."""
_N_TASKS: WeakKeyDictionary[Any, int] = WeakKeyDictionary()


def check_executors(session: SparkSession) -> int:
    """How many tasks the cluster runs at once; raise an error if its Python cannot run them.

    The job is run once for a session. It has as many tasks as run at once, so it usually, but not
    surely, reaches every executor.
    """
    if session not in _N_TASKS:
        _N_TASKS[session] = _probe_executors(session)
    return _N_TASKS[session]


def _probe_executors(session: SparkSession) -> int:
    this_module = sys.modules[__name__]
    cloudpickle.register_pickle_by_value(this_module)  # type: ignore[no-untyped-call]
    try:
        rows = session.range(ROWS).mapInArrow(
            describe_python, "host string, version string, missing string"
        )
        tasks = rows.toArrow().to_pylist()
    except Exception as error:  # Spark wraps what a worker says in errors of many types
        _raise_named(error)
    finally:
        cloudpickle.unregister_pickle_by_value(this_module)  # type: ignore[no-untyped-call]
    for row in tasks:
        if row["missing"]:
            missing = " and ".join(map(repr, row["missing"].split()))
            raise _executor_error(f"have no Python module {missing}", row["host"])
        if row["version"] != __version__:
            raise _executor_error(
                f"have unskew {row['version']}, and this process has {__version__}", row["host"]
            )
    return len(tasks)


def _raise_named(error: Exception) -> NoReturn:
    """Raise one sentence for what Spark says in a page, or the error itself if it is another."""
    for pattern, problem in PROBLEMS.items():
        match = re.search(pattern, str(error))
        if match:
            raise _executor_error(problem.format(*match.groups())) from None
    raise error


def _executor_error(problem: str, host: str | None = None) -> UsageError:
    where = "" if host is None else f" on {host}"
    return UsageError(
        f"the executors of Spark{where} {problem}.",
        parameter="engine",
        remedy="Before the session starts, set PYSPARK_PYTHON to a Python with 'unskew[spark]' on "
        f"every machine (here {sys.executable}), or ship one with spark.archives.",
    )
