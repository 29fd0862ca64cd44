"""Positions of logged cells among all items, from a block of score rows.

Row ``r`` of ``scores`` belongs to one user, whose logged cells are ``cells[starts[r]:starts[r + 1]]``, their columns the same
slice of ``items``. A cell is its place in the log, so its result is written to ``above[cell]`` and ``equal[cell]``, where

    above = #{j : s_j > s},    equal = #{j : s_j = s}, the cell itself included.

Rows with a NaN have no order; both kernels stop there and return the row, or -1 when all is well. Infinite scores are
ordinary. All indices in the inner loops are unsigned, which spares numba the test for negative ones.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias, TypeVar, cast

import numpy as np
import numpy.typing as npt
from numba import njit

from unskew.types import IntVector, Scores

Offsets: TypeAlias = npt.NDArray[np.int64]
Function = TypeVar("Function", bound=Callable[..., object])

LANES = 8
"""Scores compared at once inside a bucket; the rows in bucket order are padded by as many NaN."""

FEW_CELLS = 16
"""Up to so many logged cells in a row, a plain count for each is cheaper than buckets."""

CHUNKS_PER_PLACE = 8
"""Chunks of a row for each of the top places: more make a tighter bound, but a longer search for it."""

MOST_HALVINGS = 24
"""Of the search for a bound, which is valid from the start and only grows tighter."""

ONE = np.uint32(1)
STEP = np.uint64(LANES)


def compiled(function: Function) -> Function:
    """Machine code at the first call, kept on disk, free of the interpreter's lock, 1 / 0 = inf."""
    return cast(Function, njit(cache=True, nogil=True, error_model="numpy")(function))


@compiled
def cells_by_user(user: IntVector, item: IntVector, n_users: int) -> tuple[Offsets, IntVector, IntVector]:
    """Counting sort: user ``u``'s cells and items are at ``starts[u]:starts[u + 1]``, in the order of the log.

    A cell and its item lie side by side in memory, so that the scattered writes touch one place for each cell.
    """
    starts = np.zeros(n_users + 2, np.int64)
    for code in user:
        starts[code + 2] += 1
    for code in range(n_users):
        starts[code + 2] += starts[code + 1]
    logged = np.empty((user.size, 2), np.int32)
    for cell in range(user.size):
        place = starts[user[cell] + 1]
        starts[user[cell] + 1] += 1
        logged[place, 0] = cell
        logged[place, 1] = item[cell]
    return starts[:-1], logged[:, 0], logged[:, 1]


@compiled
def exact_positions(
    scores: Scores, starts: Offsets, cells: IntVector, items: IntVector, above: IntVector, equal: IntVector
) -> int:
    """``above`` and ``equal`` of every logged cell. Returns the first row with a NaN, or -1."""
    n_items = scores.shape[1]
    order = np.full(n_items + LANES, np.nan, scores.dtype)
    bucket = np.empty(n_items, np.uint16)
    first = np.empty(min(n_items // 4, 2**16 - 1) + 2, np.uint32)
    for r in range(scores.shape[0]):
        row, own = scores[r], slice(starts[r], starts[r + 1])
        if _has_nan(row):
            return r
        if starts[r + 1] - starts[r] <= FEW_CELLS:
            _count_all(row, cells[own], items[own], above, equal)
        else:
            _to_buckets(row, items[own], bucket, first)
            _sort_by_bucket(row, bucket, first, order)
            _count_in_buckets(row, cells[own], items[own], bucket, first, order, above, equal)
    return -1


@compiled
def top_positions(
    scores: Scores, starts: Offsets, cells: IntVector, items: IntVector, top: int, above: IntVector, equal: IntVector
) -> int:
    """``above`` and ``equal`` of every logged cell with ``above < top``; other cells stay as they are or become exact too.

    With L such that at least ``top`` scores reach L, a cell below L has ``above >= top``, and a cell that reaches L is
    counted among the few that do. Returns the first row with a NaN, or -1.
    """
    n_items = scores.shape[1]
    top = min(top, n_items)
    maxima = np.empty(min(n_items, CHUNKS_PER_PLACE * top), scores.dtype)
    reaching = np.empty(n_items + 1, scores.dtype)
    for r in range(scores.shape[0]):
        row = scores[r]
        if _chunk_maxima(row, maxima):
            return r
        bound = _reached_by(maxima, top)
        n_reaching = _gather_reaching(row, maxima, bound, reaching)
        for place in range(starts[r], starts[r + 1]):
            score = row[items[place]]
            if score >= bound:
                above[cells[place]], equal[cells[place]] = _count(reaching[:n_reaching], score)
    return -1


@compiled
def _has_nan(row: Scores) -> bool:
    n_nan = np.int32(0)
    for score in row:
        n_nan += np.int32(score != score)
    return n_nan > 0


@compiled
def _count(values: Scores, score: float) -> tuple[int, int]:
    """#{v > score} and #{v = score}."""
    above, equal = np.int32(0), np.int32(0)
    for value in values:
        above += np.int32(value > score)
        equal += np.int32(value == score)
    return above, equal


@compiled
def _count_all(row: Scores, cells: IntVector, items: IntVector, above: IntVector, equal: IntVector) -> None:
    for cell, column in zip(cells, items):
        above[cell], equal[cell] = _count(row, row[column])


@compiled
def _finite_range(values: Scores) -> tuple[float, float]:
    """Smallest and largest finite value; (inf, -inf) when there is none."""
    low, high = values.dtype.type(np.inf), values.dtype.type(-np.inf)
    for value in values:
        low = value if -np.inf < value < low else low
        high = value if high < value < np.inf else high
    return low, high


@compiled
def _to_buckets(row: Scores, items: IntVector, bucket: npt.NDArray[np.uint16], first: Offsets) -> None:
    """bucket_j = floor((high - s_j) / width), s_j cut to the finite range [low, high] of the row's logged cells.

    Rounding keeps the order: a larger score never has a larger bucket. Without a usable width all is one bucket.
    """
    low, high = _finite_range(row[items])
    per_width = row.dtype.type((first.size - 2) / (high - low))
    if not 0 < per_width < np.inf:
        low = high = per_width = row.dtype.type(0)
    for j in range(row.size):
        score = row[j] if row[j] > low else low
        score = score if score < high else high
        bucket[j] = np.uint16(np.int32((high - score) * per_width))


@compiled
def _sort_by_bucket(row: Scores, bucket: npt.NDArray[np.uint16], first: Offsets, order: Scores) -> None:
    """Counting sort: bucket b is ``order[first[b]:first[b + 1]]``; every score there exceeds all scores after it."""
    first[:] = 0
    for j in range(row.size):
        first[bucket[j]] += ONE
    for b in range(1, first.size):
        first[b] += first[b - 1]
    for j in range(row.size):
        place = first[bucket[j]] - ONE
        first[bucket[j]] = place
        order[place] = row[j]


@compiled
def _count_in_buckets(
    row: Scores,
    cells: IntVector,
    items: IntVector,
    bucket: npt.NDArray[np.uint16],
    first: Offsets,
    order: Scores,
    above: IntVector,
    equal: IntVector,
) -> None:
    """above = scores in earlier buckets + larger ones in its own.

    Whole steps of ``LANES`` may read past the bucket: what follows is smaller, or the NaN at the end, and counts nothing.
    """
    for cell, column in zip(cells, items):
        score, place = row[column], np.uint64(first[bucket[column]])
        n_above, n_equal = np.int32(place), np.int32(0)
        while place < first[bucket[column] + ONE]:
            for lane in range(LANES):
                other = order[place + np.uint64(lane)]
                n_above += np.int32(other > score)
                n_equal += np.int32(other == score)
            place += STEP
        above[cell], equal[cell] = n_above, n_equal


@compiled
def _chunk_maxima(row: Scores, maxima: Scores) -> bool:
    """maxima_c = max of s_c, s_{c + C}, s_{c + 2C}, ... for the C chunks of the row; tells whether the row has a NaN."""
    maxima[:] = -np.inf
    n_nan = np.int32(0)
    for start in range(0, row.size, maxima.size):
        part = row[start : start + maxima.size]
        for c in range(part.size):
            maxima[c] = part[c] if part[c] > maxima[c] else maxima[c]
            n_nan += np.int32(part[c] != part[c])
    return n_nan > 0


@compiled
def _reached_by(maxima: Scores, top: int) -> float:
    """A bound L with #{maxima >= L} >= top, by bisection until hardly more than ``top`` reach it."""
    low, high = _finite_range(maxima)
    if _n_reaching(maxima, low) < top:
        return maxima.dtype.type(-np.inf)
    half = maxima.dtype.type(0.5)
    for _ in range(MOST_HALVINGS):
        middle = half * low + half * high
        n_reaching = _n_reaching(maxima, middle)
        if n_reaching < top:
            high = middle
        else:
            low = middle
            if n_reaching <= top + top // 4:
                break
    return low


@compiled
def _n_reaching(values: Scores, bound: float) -> int:
    n_reaching = np.int32(0)
    for value in values:
        n_reaching += np.int32(value >= bound)
    return n_reaching


@compiled
def _gather_reaching(row: Scores, maxima: Scores, bound: float, reaching: Scores) -> int:
    """Writes all scores >= bound to the front of ``reaching`` and returns how many; chunks below the bound are skipped."""
    n_reaching = np.uint64(0)
    for c in range(maxima.size):
        if maxima[c] >= bound:
            for j in range(c, row.size, maxima.size):
                reaching[n_reaching] = row[j]
                n_reaching += np.uint64(row[j] >= bound)
    return np.int64(n_reaching)
