"""A log in blocks of users that stay in Spark's executors, and what is asked of them.

Users fall to blocks by their hash, and within a block ratings are sorted by user and item: a block that is lost is built
again to the same bits. Sums over blocks are added in the order of the blocks, whichever is done first.
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

from unskew.data.ids import Ids, as_ids, encode, find_codes
from unskew.data.universe import Universe
from unskew.errors import UsageError
from unskew.factorization.objective import Objective, Offsets, SortedCells
from unskew.threads import Workers
from unskew.types import Floats, Vector

FAN_IN = 16
"""Sums that meet in one place at most: here, or in a task."""

Sum: TypeAlias = tuple[float, Floats]
Numbered: TypeAlias = tuple[int, Sum]


@dataclass(frozen=True, slots=True, eq=False)
class Block:
    """The users of one partition in their order, and the log sorted by them."""

    users: Ids
    side: SortedCells
    n_repeats: int
    """Rows that repeat a (user, item)."""

    @classmethod
    def of(cls, table: pa.Table, items: Ids, dtype: str) -> Block:
        """From columns ``user``, ``item``, ``rating`` and ``propensity`` in whatever order their rows came."""
        row, users = encode(as_ids(table["user"].to_numpy()))
        opposite = find_codes(as_ids(table["item"].to_numpy()), items)
        cell = row.astype(np.int64) * len(items) + opposite
        order = np.argsort(cell)
        n_repeats = int((np.diff(cell[order]) == 0).sum())
        rating, propensity = (table[name].to_numpy()[order] for name in ("rating", "propensity"))
        side = SortedCells.of(
            row[order],
            opposite[order],
            rating,
            1 / propensity,
            shape=(len(users), len(items)),
            dtype=dtype,
        )
        return cls(users, _in_one_task(side), n_repeats)

    @property
    def weight(self) -> Vector:
        """Of each rating."""
        return np.square(self.side.root_weight.astype(np.float64))


def _in_one_task(side: SortedCells) -> SortedCells:
    """A task of Spark is one thread, and needs the room of one gradient only."""
    return replace(side, tasks=((0, side.n_rows),))


@dataclass(frozen=True, slots=True, eq=False)
class Outer:
    """What is sent to the blocks: the problem without its cells, and the items' side."""

    problem: Objective
    factors: Floats
    offset: Floats
    constant: float

    def solve(self, block: Block) -> Solved:
        """The block's users; the minimum is NaN where one has no unique solution, for an error raised there would be retried."""
        problem = replace(self.problem, by_user=block.side)
        opposite_rows = problem.as_opposite_rows(self.factors, self.offset)
        try:
            solutions, minimum = problem.solve_rows(block.side, opposite_rows, self.constant)
        except UsageError:
            return Solved(problem, opposite_rows, problem.padded_zeros(block.side.n_rows), float("nan"))
        return Solved(problem, opposite_rows, solutions, minimum)

    def evaluate(self, block: Block) -> Sum:
        """The block's part of the reduced objective and of its gradient, before the items' own penalty."""
        solved = self.solve(block)
        _, gradient = solved.problem.loss_and_gradient(
            block.side, solved.opposite_rows, solved.solutions, self.constant
        )
        return solved.minimum, gradient

    def users(self, block: Block) -> tuple[Floats, Floats]:
        """Factors and offsets of the block's users."""
        solved = self.solve(block)
        return solved.problem.split_solved_rows(solved.solutions)


@dataclass(frozen=True, slots=True, eq=False)
class Solved:
    """A block whose users are solved."""

    problem: Objective
    opposite_rows: Floats
    solutions: Floats
    minimum: float


def problem_without_cells(n_factors: int, offsets: Offsets, l2: float, dtype: str) -> Objective:
    """The settings of a problem whose cells lie elsewhere."""
    none = np.empty(0, np.int32), np.empty(0, np.int32), np.empty(0), np.empty(0)
    empty = SortedCells.of(*none, shape=(0, 0), dtype=dtype)
    return Objective(empty, empty, n_factors, offsets, l2, Workers(1))


@dataclass(frozen=True, slots=True, eq=False)
class Totals:
    """Of all blocks: their users, rows that repeat a cell, and each item's weight and weighted ratings."""

    universe: Universe
    n_repeats: int
    item_weight: Vector
    item_rating: Vector

    @property
    def mean(self) -> float:
        """The weighted mean rating."""
        return float(self.item_rating.sum() / self.item_weight.sum())


SHARES: Mapping[str, Callable[[SortedCells, Totals], Any]] = {
    "self": lambda side, all_: all_.universe.n_cells / all_.item_weight.sum(),  # noqa: ARG005
    "item": lambda side, all_: (all_.universe.n_users / all_.item_weight)[side.opposite],
    "user": lambda side, all_: np.repeat(
        all_.universe.n_items / side.row_weights, np.diff(side.starts)
    ),
}
"""What weights are multiplied by, for each way to normalise them."""


@dataclass(frozen=True, slots=True, eq=False)
class Blocks:
    """All blocks, kept in the executors' memory, or on their disks where that is full."""

    rdd: RDD[Block]
    n_items: int
    n_blocks: int

    @classmethod
    def of(cls, frame: DataFrame, items: Broadcast[Ids], n_blocks: int, dtype: str) -> Blocks:
        """Send every rating to the block of its user, once."""

        def build(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            held = list(batches)
            if sum(len(batch) for batch in held):
                block = Block.of(pa.Table.from_batches(held), items.value, dtype)
                yield pa.record_batch({"block": [pickle.dumps(block, pickle.HIGHEST_PROTOCOL)]})

        rows = frame.repartition(n_blocks, "user").mapInArrow(build, "block binary").rdd
        return cls(rows.map(lambda row: pickle.loads(row[0])), len(items.value), n_blocks).kept()

    def kept(self) -> Blocks:
        """Marked to be kept once built."""
        return replace(self, rdd=self.rdd.persist(StorageLevel.MEMORY_AND_DISK))

    def drop(self) -> None:
        """Give the memory back."""
        self.rdd.unpersist()

    def totals(self) -> Totals:
        """Builds the blocks where that has not happened."""
        n_items = self.n_items
        counts = np.array(self.rdd.map(lambda block: (len(block.users), block.n_repeats)).collect())

        def add(block: Block) -> Sum:
            weight, opposite = block.weight, block.side.opposite
            both = weight, weight * block.side.rating
            return 0.0, np.stack(
                [np.bincount(opposite, values, minlength=n_items) for values in both]
            )

        _, (item_weight, item_rating) = self.add_up(add)
        n_users, n_repeats = counts.sum(axis=0)
        return Totals(Universe(int(n_users), n_items), int(n_repeats), item_weight, item_rating)

    def normalized(self, how: str, totals: Totals) -> Blocks:
        """With weights multiplied as :data:`SHARES` says."""
        share = SHARES[how]

        def rescale(block: Block) -> Block:
            root = block.side.root_weight * np.sqrt(share(block.side, totals))
            return replace(block, side=block.side.with_root_weights(root))

        return replace(self, rdd=self.rdd.map(rescale)).kept()

    def add_up(self, work: Callable[[Block], Sum]) -> Sum:
        """The sum of ``work`` over blocks, in their order; beyond ``FAN_IN`` of them by a tree of tasks."""
        parts: RDD[Any] = self.rdd.mapPartitionsWithIndex(
            lambda index, blocks: ((index, work(block)) for block in blocks),
            preservesPartitioning=True,
        )
        n_parts, fan_in = self.n_blocks, FAN_IN
        while n_parts > fan_in:
            n_parts = -(-n_parts // fan_in)
            parts = (
                parts.map(lambda part: (part[0] // fan_in, part))
                .partitionBy(n_parts, int)
                .mapPartitions(_add_group)
            )
        return _in_order(parts.collect())


def _add_group(parts: Iterable[tuple[int, Numbered]]) -> Iterator[Numbered]:
    """The parts of one group, as one."""
    groups, members = zip(*parts, strict=True) if (parts := list(parts)) else ((), ())
    if groups:
        yield groups[0], _in_order(members)


def _in_order(parts: Iterable[Numbered]) -> Sum:
    first, *rest = (part for _, part in sorted(parts, key=lambda numbered: numbered[0]))
    value, total = first[0], first[1].copy()
    for more, matrix in rest:
        value += more
        total += matrix
    return value, total
