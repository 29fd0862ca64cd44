"""Sums over blocks of what each block adds for each item.

Items are divided into ranges. Each block sends its sums of a range to one task, which adds the
blocks in their order, whichever is finished first, and may turn the sums into something smaller.
So no task and no driver holds the sums of all blocks, and results are the same bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import ClassVar, TypeAlias

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame

from unskew.types import Floats

BlockSum: TypeAlias = tuple[float, Floats]
"""A number, and a row of numbers for each item."""
SentSum: TypeAlias = tuple[int, int, float, Floats]
"""The number of a range, the number of a block, and what the block adds there."""
Finish: TypeAlias = Callable[[Floats], BlockSum]
"""What is made of the sums of some items: a number to add to that of the blocks, and rows."""
RANGE_BYTES = 1 << 24
"""Bytes of the sums of one block for a range of items."""
DRIVER_BYTES = 1 << 24
"""Bytes of all blocks together up to which the driver adds them, which saves a stage of tasks."""


def keep_sums(sums: Floats) -> BlockSum:
    """The sums themselves."""
    return 0.0, sums


@dataclass(frozen=True, slots=True, eq=False)
class ItemSums:
    """How the sums of ``n_items`` rows are divided, sent, added up and finished."""

    n_items: int
    width: int
    """Numbers for each item."""
    dtype: str
    """The precision in which blocks send them."""
    n_blocks: int
    finish: Finish = keep_sums
    schema: ClassVar[str] = "part int, block int, value double, width int, sums binary"

    @property
    def bytes_of_block(self) -> int:
        """What one block sends."""
        return self.n_items * self.width * np.dtype(self.dtype).itemsize

    @property
    def cuts(self) -> list[int]:
        """Where the ranges of items start, and the end of the last one."""
        n_parts = max(1, min(self.n_items, -(-self.bytes_of_block // RANGE_BYTES)))
        return [self.n_items * part // n_parts for part in range(n_parts + 1)]

    def split(self, number: int, total: BlockSum) -> Iterator[pa.RecordBatch]:
        """The rows that a block sends: one for each range. The number goes with the first."""
        value, sums = total
        rows = sums.astype(self.dtype, copy=False)
        for part, (first, end) in enumerate(pairwise(self.cuts)):
            yield _pack_sum(part, number, value if part == 0 else 0.0, rows[first:end])

    def collect(self, mapped: DataFrame) -> BlockSum:
        """Add up the rows of :meth:`split` and finish them: one job."""
        if self.bytes_of_block * self.n_blocks <= DRIVER_BYTES:
            finished = list(self._add(iter(mapped.toArrow().to_batches())))
        else:
            by_range = mapped.repartition(len(self.cuts) - 1, "part").mapInArrow(
                self._add, self.schema
            )
            finished = by_range.toArrow().to_batches()
        parts = [row for batch in finished for row in _unpack_sums(batch, "float64")]
        parts.sort(key=lambda row: row[0])
        return sum(value for _, _, value, _ in parts), np.concatenate([rows for *_, rows in parts])

    def _add(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The finished sum of each range among these rows."""
        received = [row for batch in batches for row in _unpack_sums(batch, self.dtype)]
        received.sort(key=lambda row: row[:2])
        for part, rows in groupby(received, key=lambda row: row[0]):
            value, total = _add_in_order(rows)
            finished, result = self.finish(total)
            yield _pack_sum(part, 0, value + finished, result)


def _add_in_order(rows: Iterable[SentSum]) -> BlockSum:
    """The sum of the rows of one range, in float64 and in the order of ``rows``."""
    (_, _, value, first), *others = rows
    total = first.astype(np.float64)
    for _, _, other_value, other in others:
        value += other_value
        total += other
    return value, total


def _pack_sum(part: int, number: int, value: float, rows: Floats) -> pa.RecordBatch:
    return pa.record_batch(
        {
            "part": pa.array([part], pa.int32()),
            "block": pa.array([number], pa.int32()),
            "value": pa.array([value], pa.float64()),
            "width": pa.array([rows.shape[1]], pa.int32()),
            "sums": pa.array([np.ascontiguousarray(rows).tobytes()], pa.binary()),
        }
    )


def _unpack_sums(batch: pa.RecordBatch, dtype: str) -> Iterator[SentSum]:
    for row in range(batch.num_rows):
        part, block, value, width = (batch[name][row].as_py() for name in batch.schema.names[:4])
        rows = np.frombuffer(batch["sums"][row].as_buffer(), dtype).reshape(-1, width)
        yield part, block, value, rows
