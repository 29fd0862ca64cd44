"""A log in blocks of users that stay in Spark's executors.

The hash of a user decides the block, and the ratings of a block are sorted by user and item. So a
block that is lost is built again bit for bit. Blocks are rows of a data frame, so that the same
code runs in a session of the cluster and through Spark Connect, which has no RDDs.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

import numpy as np
import pyarrow as pa
from pyspark import StorageLevel, TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from unskew.data.ids import Ids, as_ids, encode, find_codes
from unskew.data.universe import Universe
from unskew.engines.spark.sums import BlockSum, Finish, ItemSums, keep_sums
from unskew.factorization.objective import SortedCells
from unskew.types import Vector

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
BLOCK_COLUMNS = "block int, data binary"
BlockWork: TypeAlias = "Callable[[UserBlock], BlockSum]"


@dataclass(frozen=True, slots=True, eq=False)
class UserBlock:
    """Some users in the order of their ids, and their cells."""

    users: Ids
    cells: SortedCells
    n_repeats: int
    """Rows that repeat a (user, item)."""

    @classmethod
    def of(cls, table: pa.Table, items: Ids, dtype: str) -> UserBlock:
        """From columns ``user``, ``item``, ``rating`` and ``weight``, with rows in any order."""
        row, users = encode(as_ids(table["user"].to_numpy()))
        opposite = find_codes(as_ids(table["item"].to_numpy()), items)
        cell = row.astype(np.int64) * len(items) + opposite
        order = np.argsort(cell)
        n_repeats = int((np.diff(cell[order]) == 0).sum())
        cells = SortedCells.of(
            row[order],
            opposite[order],
            *(table[name].to_numpy()[order] for name in ("rating", "weight")),
            shape=(len(users), len(items)),
            dtype=dtype,
        )
        # A Spark task has one thread, and one range of rows needs the memory of one gradient.
        return cls(users, replace(cells, tasks=((0, cells.n_rows),)), n_repeats)

    @property
    def weight(self) -> Vector:
        """The weight of each cell, in float64."""
        return np.square(self.cells.root_weight.astype(np.float64))

    def take_users(self, chosen: slice) -> UserBlock:
        """Some of the users and all their cells."""
        cells = self.cells
        is_taken = np.zeros(cells.n_rows, bool)
        is_taken[chosen] = True
        lengths = np.diff(cells.starts)
        taken = replace(
            cells,
            starts=np.concatenate([[0], np.cumsum(lengths[is_taken])]),
            entries=cells.entries[np.repeat(is_taken, lengths)],
            penalty_scale=cells.penalty_scale[is_taken],
            tasks=((0, int(is_taken.sum())),),
        )
        return replace(self, users=self.users[is_taken], cells=taken)

    @classmethod
    def join(cls, numbered: Iterable[tuple[int, UserBlock]]) -> UserBlock:
        """All blocks as one, in the order of their numbers."""
        blocks = [block for _, block in sorted(numbered, key=lambda each: each[0])]
        lengths = np.concatenate([np.diff(block.cells.starts) for block in blocks])
        cells = replace(
            blocks[0].cells,
            starts=np.concatenate([[0], np.cumsum(lengths)]),
            entries=np.concatenate([block.cells.entries for block in blocks]),
            penalty_scale=np.concatenate([block.cells.penalty_scale for block in blocks]),
            tasks=((0, lengths.size),),
        )
        users = np.concatenate([block.users for block in blocks])
        return cls(users, cells, sum(block.n_repeats for block in blocks))

    def sort_by_item(self, n_items: int) -> SortedCells:
        """The same cells sorted by item.

        Sorting them takes less time than a second copy of them takes from Spark to Python.
        """
        cells = self.cells
        user = np.repeat(np.arange(cells.n_rows, dtype=np.int32), np.diff(cells.starts))
        return SortedCells.of(
            cells.opposite.astype(np.int32),
            user,
            cells.rating.astype(np.float64),
            self.weight,
            shape=(n_items, cells.n_rows),
            dtype=cells.dtype,
            side="item",
        )


@dataclass(frozen=True, slots=True, eq=False)
class BlockTotals:
    """The number of users and items, and the total weight and weighted rating of each item."""

    universe: Universe
    n_users: int
    """Users of the log."""
    n_repeats: int
    item_weight: Vector
    item_rating: Vector

    @property
    def mean(self) -> float:
        """The weighted mean of all ratings."""
        return float(self.item_rating.sum() / self.item_weight.sum())


WEIGHT_FACTORS: Mapping[str, Callable[[SortedCells, BlockTotals], Any]] = {
    "self": lambda _, totals: totals.universe.n_cells / totals.item_weight.sum(),
    "item": lambda cells, totals: (totals.universe.n_users / totals.item_weight)[cells.opposite],
    "user": lambda cells, totals: np.repeat(
        totals.universe.n_items / cells.row_weights, np.diff(cells.starts)
    ),
}
"""By which the weights of cells are multiplied, for each value of ``normalize``."""


class Shared(Protocol[T_co]):
    """A value that tasks read, such as a broadcast of Spark."""

    @property
    def value(self) -> T_co: ...


@dataclass(frozen=True, slots=True, eq=False)
class SentWithTasks(Generic[T]):
    """A value that is sent with the tasks themselves: Spark Connect has no broadcasts."""

    value: T


@contextmanager
def share(session: SparkSession, value: T) -> Iterator[Shared[T]]:
    """Send a value to all executors; a broadcast is destroyed when the tasks are done."""
    if is_remote(session):
        yield SentWithTasks(value)
        return
    broadcast = session.sparkContext.broadcast(value)
    try:
        yield broadcast
    finally:
        broadcast.destroy()


def is_remote(session: SparkSession) -> bool:
    """Whether the session is one of Spark Connect."""
    return type(session).__module__.startswith("pyspark.sql.connect")


@dataclass(frozen=True, slots=True, eq=False)
class UserBlocks:
    """All blocks, in the memory of the executors or on their disks."""

    frame: DataFrame
    """The number of each block and its pickled :class:`UserBlock`."""
    n_items: int
    n_blocks: int

    @classmethod
    def of(cls, frame: DataFrame, items: Ids, n_blocks: int, dtype: str) -> UserBlocks:
        """Send every rating to the block of its user: one shuffle."""

        def build(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            parts = list(batches)
            if sum(len(part) for part in parts):
                block = UserBlock.of(pa.Table.from_batches(parts), items, dtype)
                context = TaskContext.get()
                yield pack_block(context.partitionId() if context else 0, block)

        blocks = frame.repartition(n_blocks, "user").mapInArrow(build, BLOCK_COLUMNS)
        return cls(_persist(blocks), len(items), n_blocks)

    @property
    def session(self) -> SparkSession:
        return self.frame.sparkSession

    def drop(self) -> None:
        """Free the memory of the executors."""
        self.frame.unpersist()

    def map(
        self,
        work: Callable[[int, UserBlock], Iterator[pa.RecordBatch]],
        schema: str | StructType,
    ) -> DataFrame:
        """A data frame of what ``work`` makes of the number and the content of each block."""

        def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for number, block in unpack_blocks(batches):
                yield from work(number, block)

        return self.frame.mapInArrow(run, schema)

    def count(self) -> BlockTotals:
        """Totals over all blocks. The first call builds the blocks."""

        def count(_: int, block: UserBlock) -> Iterator[pa.RecordBatch]:
            columns = [
                pa.array([value], pa.int64()) for value in (len(block.users), block.n_repeats)
            ]
            yield pa.record_batch(columns, names=["n_users", "n_repeats"])

        counted = self.map(count, "n_users long, n_repeats long").toArrow()
        n_users, n_repeats = (int(column.to_numpy().sum()) for column in counted.columns)
        universe = Universe(n_users, self.n_items)
        return BlockTotals(universe, n_users, n_repeats, *self.add_by_item())

    def add_by_item(self, weigh: Callable[[Vector], Vector] | None = None) -> tuple[Vector, Vector]:
        """The total weight and weighted rating of each item; ``weigh`` gives other weights."""
        n_items = self.n_items

        def add(block: UserBlock) -> BlockSum:
            weight = block.weight if weigh is None else weigh(block.weight)
            values, opposite = (weight, weight * block.cells.rating), block.cells.opposite
            by_item = [np.bincount(opposite, value, minlength=n_items) for value in values]
            return 0.0, np.stack(by_item, axis=1)

        _, sums = self.add_up(add, width=2, dtype="float64")
        item_weight, item_rating = sums.T.astype(np.float64)
        return item_weight, item_rating

    def normalize(self, how: str, totals: BlockTotals) -> UserBlocks:
        """Blocks whose weights are multiplied by :data:`WEIGHT_FACTORS`."""
        factor = WEIGHT_FACTORS[how]

        def rescale(number: int, block: UserBlock) -> Iterator[pa.RecordBatch]:
            root_weight = block.cells.root_weight * np.sqrt(factor(block.cells, totals))
            cells = block.cells.with_root_weights(root_weight)
            yield pack_block(number, replace(block, cells=cells))

        return self.rebuild(rescale)

    def rebuild(self, work: Callable[[int, UserBlock], Iterator[pa.RecordBatch]]) -> UserBlocks:
        """What ``work`` makes of the number and the content of each block, kept as new blocks."""
        return replace(self, frame=_persist(self.map(work, BLOCK_COLUMNS)))

    def add_up(
        self,
        work: BlockWork,
        *,
        width: int,
        dtype: str,
        finish: Finish = keep_sums,
        n_more_rows: int = 0,
    ) -> BlockSum:
        """The sum of ``work(block)`` over all blocks in order, with ``finish`` for its rows.

        ``work`` returns a number and ``width`` numbers for each item, and for ``n_more_rows``. They
        are sent in ``dtype``, and added in float64.
        """
        sums = ItemSums(self.n_items + n_more_rows, width, dtype, self.n_blocks, finish)
        mapped = self.map(lambda number, block: sums.split(number, work(block)), sums.schema)
        return sums.collect(mapped)


def unpack_blocks(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[int, UserBlock]]:
    """The number and the content of each block in rows of a data frame."""
    for batch in batches:
        for number, data in zip(batch["block"], batch["data"], strict=True):
            yield number.as_py(), pickle.loads(data.as_buffer())


def pack_block(number: int, block: UserBlock) -> pa.RecordBatch:
    """The row of a data frame that holds a block."""
    data = pickle.dumps(block, pickle.HIGHEST_PROTOCOL)
    return pa.record_batch({"block": pa.array([number], pa.int32()), "data": [data]})


def _persist(frame: DataFrame) -> DataFrame:
    return frame.persist(StorageLevel.MEMORY_AND_DISK)
