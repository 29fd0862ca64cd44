"""A log in blocks of users that stay in Spark's executors.

The hash of a user decides the block, and the ratings of a block are sorted by user and item. So a
block that is lost is built again bit for bit. Sums over blocks are added in the order of the
blocks, whichever is finished first.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
from pyspark import RDD, StorageLevel
from pyspark.core.broadcast import Broadcast
from pyspark.sql import DataFrame

from unskew.data.ids import Ids, as_ids, encode, find_codes, format_id
from unskew.data.universe import Universe
from unskew.factorization.als import ItemSide
from unskew.factorization.objective import NoUniqueSolutionError, Objective, SortedCells
from unskew.factorization.reduced import ReducedObjective
from unskew.types import Floats, Vector

MAX_SUMMANDS = 16
"""The most sums that the driver, or one task, adds up."""

BlockSum: TypeAlias = tuple[float, Floats]
NumberedSum: TypeAlias = tuple[int, BlockSum]


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


@dataclass(frozen=True, slots=True, eq=False)
class UserSolver:
    """Solves the users of blocks, given the items: what is sent to the executors."""

    objective: Objective
    """Its settings; the cells are those of the blocks."""
    items: ItemSide

    def evaluate(self, block: UserBlock) -> BlockSum:
        """The sum of the user minima, and the gradient of the loss by the opposite rows.

        The sum is NaN if a user has no unique solution: Spark repeats a task that raises an error.
        """
        items, objective = self.items, replace(self.objective, by_user=block.cells)
        reduced = ReducedObjective(objective, block.cells, scale=np.empty(0))
        try:
            return reduced.solve_inner(items.factors, items.offset, items.global_offset)
        except NoUniqueSolutionError:
            return float("nan"), objective.padded_zeros(len(items.factors)).astype(np.float64)

    def solve(self, block: UserBlock) -> tuple[Floats, Floats]:
        """The factors and offsets of the block's users."""
        items, objective = self.items, replace(self.objective, by_user=block.cells)
        opposite = objective.as_opposite_rows(items.factors, items.offset)
        solved, _ = objective.solve_rows(block.cells, opposite, items.global_offset)
        return objective.split_solved_rows(solved)

    def describe_unsolved(self, block: UserBlock) -> list[str]:
        """A user without a unique solution, for an error message; nothing if all have one."""
        try:
            self.solve(block)
        except NoUniqueSolutionError as error:
            user = format_id(block.users[error.row])
            return [f"user {user} ({error.n_cells:,} ratings, {error.n_factors} factors)"]
        return []


@dataclass(frozen=True, slots=True, eq=False)
class BlockTotals:
    """The number of users and items, and the total weight and weighted rating of each item."""

    universe: Universe
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


@dataclass(frozen=True, slots=True, eq=False)
class UserBlocks:
    """All blocks, in the memory of the executors or on their disks."""

    rdd: RDD[UserBlock]
    n_items: int
    n_blocks: int

    @classmethod
    def of(cls, frame: DataFrame, items: Broadcast[Ids], n_blocks: int, dtype: str) -> UserBlocks:
        """Send every rating to the block of its user: one shuffle."""

        def build(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            parts = list(batches)
            if sum(len(part) for part in parts):
                block = UserBlock.of(pa.Table.from_batches(parts), items.value, dtype)
                yield pa.record_batch({"block": [pickle.dumps(block, pickle.HIGHEST_PROTOCOL)]})

        rows = frame.repartition(n_blocks, "user").mapInArrow(build, "block binary").rdd
        blocks = rows.map(lambda row: pickle.loads(row[0]))
        return cls(blocks, len(items.value), n_blocks)._persist()

    def _persist(self) -> UserBlocks:
        return replace(self, rdd=self.rdd.persist(StorageLevel.MEMORY_AND_DISK))

    def drop(self) -> None:
        """Free the memory of the executors."""
        self.rdd.unpersist()

    def count(self) -> BlockTotals:
        """Totals over all blocks. The first call builds the blocks."""
        n_items = self.n_items
        counts = np.array(self.rdd.map(lambda block: (len(block.users), block.n_repeats)).collect())

        def add(block: UserBlock) -> BlockSum:
            values = block.weight, block.weight * block.cells.rating
            opposite = block.cells.opposite
            by_item = [np.bincount(opposite, value, minlength=n_items) for value in values]
            return 0.0, np.stack(by_item)

        _, (item_weight, item_rating) = self.add_up(add)
        n_users, n_repeats = counts.sum(axis=0)
        universe = Universe(int(n_users), n_items)
        return BlockTotals(universe, int(n_repeats), item_weight, item_rating)

    def normalize(self, how: str, totals: BlockTotals) -> UserBlocks:
        """Blocks whose weights are multiplied by :data:`WEIGHT_FACTORS`."""
        factor = WEIGHT_FACTORS[how]

        def rescale(block: UserBlock) -> UserBlock:
            root_weight = block.cells.root_weight * np.sqrt(factor(block.cells, totals))
            return replace(block, cells=block.cells.with_root_weights(root_weight))

        return replace(self, rdd=self.rdd.map(rescale))._persist()

    def add_up(self, work: Callable[[UserBlock], BlockSum]) -> BlockSum:
        """The sum of ``work(block)`` over all blocks, in order.

        The driver adds up to ``MAX_SUMMANDS`` sums; more blocks are first added up by a tree of
        tasks.
        """
        parts: RDD[Any] = self.rdd.mapPartitionsWithIndex(
            lambda index, blocks: ((index, work(block)) for block in blocks),
            preservesPartitioning=True,
        )
        n_parts, n_summands = self.n_blocks, MAX_SUMMANDS
        while n_parts > n_summands:
            n_parts = -(-n_parts // n_summands)
            parts = (
                parts.map(lambda part: (part[0] // n_summands, part))
                .partitionBy(n_parts, int)
                .mapPartitions(_add_group)
            )
        return _add_in_order(parts.collect())


def _add_group(parts: Iterable[tuple[int, NumberedSum]]) -> Iterator[NumberedSum]:
    """The sum of the parts of one group; nothing if there are none."""
    members = list(parts)
    if members:
        yield members[0][0], _add_in_order(part for _, part in members)


def _add_in_order(parts: Iterable[NumberedSum]) -> BlockSum:
    first, *others = (part for _, part in sorted(parts, key=lambda numbered: numbered[0]))
    value, total = first[0], first[1].copy()
    for other_value, other_total in others:
        value += other_value
        total += other_total
    return value, total
