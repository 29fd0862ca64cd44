"""Positions of logged cells among all items, from a block of score rows.

Row ``r`` of ``scores`` belongs to one user, whose logged cells are ``cells[starts[r]:starts[r + 1]]``, their columns the same
slice of ``items``. A cell is its place in the log, so its result is written to ``above[cell]`` and ``equal[cell]``, where

    above = #{j : s_j > s},    equal = #{j : s_j = s}, the cell itself included.

Rows with a NaN have no order; both kernels stop there and return the row, or -1 when all is well. Infinite scores are
ordinary. All indices in the inner loops are unsigned, which spares numba the test for negative ones.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias, TypeVar, cast

import numpy as np
import numpy.typing as npt
from numba import njit

from unskew.types import IntVector, Scores

Score: TypeAlias = np.floating[Any]
Offsets: TypeAlias = npt.NDArray[np.int64]
Pairs: TypeAlias = npt.NDArray[np.int32]
Places: TypeAlias = npt.NDArray[np.uint32]
Buckets: TypeAlias = npt.NDArray[np.uint16]
Function = TypeVar("Function", bound=Callable[..., object])

LANES = 8
"""Scores compared at once inside a bucket."""

ITEMS_PER_BUCKET = 8
"""On average. Fewer leave less to compare inside a bucket, but more buckets to add up."""

FEW_CELLS = 16
"""Up to so many logged cells in a row, a plain count for each is cheaper than buckets."""

CHUNKS_PER_PLACE = 4
"""Chunks of a row for each of the top places: more make a tighter bound, but a longer search for it."""

MOST_HALVINGS = 24
"""Of the search for a bound, which is valid from the start and only grows tighter."""

TOP_BIT = np.uint32(31)
HOLDS_LOGGED = np.uint32(2**31)
ONE = np.uint32(1)
STEP = np.uint64(LANES)


def compiled(function: Function) -> Function:
    """Machine code at the first call, kept on disk, free of the interpreter's lock, 1 / 0 = inf."""
    return cast(Function, njit(cache=True, nogil=True, error_model="numpy")(function))


@compiled
def count_users(user: IntVector, counts: Offsets) -> None:
    """counts_u += #{cells of user u}."""
    for cell in range(user.size):
        counts[user[cell]] += 1


@compiled
def place_cells(user: IntVector, item: IntVector, first_cell: int, places: Offsets, logged: Pairs) -> None:
    """The scatter of a counting sort: (cell, item) goes to ``logged[places[user]]``, and that place moves on by one.

    ``first_cell`` is where these users and items begin in the log, so that the log can be placed slice by slice.
    """
    for offset in range(user.size):
        place = places[user[offset]]
        places[user[offset]] += 1
        logged[place, 0] = first_cell + offset
        logged[place, 1] = item[offset]


@compiled
def exact_positions(
    scores: Scores, starts: Offsets, cells: IntVector, items: IntVector, above: IntVector, equal: IntVector
) -> int:
    """``above`` and ``equal`` of every logged cell. Returns the first row with a NaN, or -1."""
    n_items = scores.shape[1]
    n_buckets = max(1, min(n_items // ITEMS_PER_BUCKET, 2**16))
    bucket = np.empty(n_items, np.uint16)
    tally = np.empty(n_buckets, np.uint32)
    first = np.empty(n_buckets, np.uint32)
    slot = np.empty(n_buckets + 1, np.uint32)
    shared = np.empty(n_items + 1, np.uint32)
    order = np.empty(n_items + LANES, scores.dtype)
    for r in range(scores.shape[0]):
        row, own = scores[r], slice(starts[r], starts[r + 1])
        if starts[r + 1] - starts[r] <= FEW_CELLS:
            has_nan = _count_all(row, cells[own], items[own], above, equal)
        else:
            has_nan = _to_buckets(row, items[own], n_buckets, bucket)
            n_shared = _tally_buckets(bucket, items[own], tally, shared)
            _add_up(tally, first, slot)
            _sort_by_bucket(row, bucket, shared[:n_shared], tally, slot, order)
            _count_in_buckets(row, cells[own], items[own], bucket, first, slot, order, above, equal)
        if has_nan:
            return r
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
    chosen = np.empty(maxima.size + 1, np.uint32)
    reaching = np.empty(n_items + 1, scores.dtype)
    for r in range(scores.shape[0]):
        row = scores[r]
        if _chunk_maxima(row, maxima):
            return r
        bound = _reached_by(maxima, top)
        n_reaching = _gather_reaching(row, maxima, bound, chosen, reaching)
        for place in range(starts[r], starts[r + 1]):
            score = row[items[place]]
            if score >= bound:
                above[cells[place]], equal[cells[place]] = _count(reaching[:n_reaching], score)
    return -1


@compiled
def _count(values: Scores, score: Score) -> tuple[np.int32, np.int32]:
    """#{v > score} and #{v = score}."""
    above, equal = np.int32(0), np.int32(0)
    for j in range(values.size):
        above += np.int32(values[j] > score)
        equal += np.int32(values[j] == score)
    return above, equal


@compiled
def _count_all(row: Scores, cells: IntVector, items: IntVector, above: IntVector, equal: IntVector) -> np.bool_:
    """Counts the whole row for each cell; tells whether the row has a NaN."""
    for place in range(cells.size):
        above[cells[place]], equal[cells[place]] = _count(row, row[items[place]])
    n_nan = np.int32(0)
    for j in range(row.size):
        n_nan += np.int32(row[j] != row[j])
    return n_nan > 0


@compiled
def _finite_range(values: Scores) -> tuple[Score, Score]:
    """Smallest and largest finite value; (inf, -inf) when there is none."""
    low, high = values.dtype.type(np.inf), values.dtype.type(-np.inf)
    for j in range(values.size):
        low = values[j] if -np.inf < values[j] < low else low
        high = values[j] if high < values[j] < np.inf else high
    return low, high


@compiled
def _to_buckets(row: Scores, items: IntVector, n_buckets: int, bucket: Buckets) -> np.bool_:
    """bucket_j = floor((high - s_j) / width), s_j cut to the finite range [low, high] of the row's logged scores.

    Rounding keeps the order: a larger score never has a larger bucket. Without a usable width all is one bucket.
    Tells whether the row has a NaN.
    """
    low, high = _finite_range(row[items])
    per_width = row.dtype.type((n_buckets - 1) / (high - low))
    if not 0 < per_width < np.inf:
        low = high = per_width = row.dtype.type(0)
    n_nan = np.int32(0)
    for j in range(row.size):
        score = row[j] if row[j] > low else low
        score = score if score < high else high
        bucket[j] = np.uint16(np.int32((high - score) * per_width))
        n_nan += np.int32(row[j] != row[j])
    return n_nan > 0


@compiled
def _tally_buckets(bucket: Buckets, items: IntVector, tally: Places, shared: Places) -> np.int64:
    """tally_b = #{j : bucket_j = b}, with the top bit set where a logged item lies in b.

    Items of such buckets are written to ``shared``: only those need to be told apart one by one. Returns how many they are.
    """
    tally[:] = 0
    for place in range(items.size):
        tally[bucket[items[place]]] = HOLDS_LOGGED
    n_shared = np.uint64(0)
    for j in range(bucket.size):
        count = tally[bucket[j]]
        tally[bucket[j]] = count + ONE
        shared[n_shared] = j
        n_shared += np.uint64(count >> TOP_BIT)
    return np.int64(n_shared)


@compiled
def _add_up(tally: Places, first: Places, slot: Places) -> None:
    """first_b = items in buckets before b, slot_b = shared ones among them; clears the top bits of the tally."""
    n_items, n_shared = np.uint32(0), np.uint32(0)
    for b in range(tally.size):
        count = tally[b] & ~HOLDS_LOGGED
        first[b], slot[b] = n_items, n_shared
        n_items += count
        n_shared += count * (tally[b] >> TOP_BIT)
        tally[b] = count
    slot[tally.size] = n_shared


@compiled
def _sort_by_bucket(row: Scores, bucket: Buckets, shared: Places, tally: Places, slot: Places, order: Scores) -> None:
    """Counting sort of the shared items: bucket b is ``order[slot[b]:slot[b + 1]]``, and all that follows is smaller or NaN."""
    for place in range(shared.size):
        j = shared[place]
        b = bucket[j]
        tally[b] -= ONE
        order[slot[b] + tally[b]] = row[j]
    order[shared.size : shared.size + LANES] = np.nan


@compiled
def _count_in_buckets(
    row: Scores,
    cells: IntVector,
    items: IntVector,
    bucket: Buckets,
    first: Places,
    slot: Places,
    order: Scores,
    above: IntVector,
    equal: IntVector,
) -> None:
    """``above`` = items in earlier buckets + larger ones in its own.

    Compares ``LANES`` at a time; those past the end of the bucket are smaller or NaN, and count nothing.
    """
    for place in range(cells.size):
        score, b = row[items[place]], bucket[items[place]]
        n_above, n_equal = np.int32(first[b]), np.int32(0)
        at = np.uint64(slot[b])
        while at < slot[b + ONE]:
            for lane in range(LANES):
                n_above += np.int32(order[at + np.uint64(lane)] > score)
                n_equal += np.int32(order[at + np.uint64(lane)] == score)
            at += STEP
        above[cells[place]], equal[cells[place]] = n_above, n_equal


@compiled
def _chunk_maxima(row: Scores, maxima: Scores) -> np.bool_:
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
def _reached_by(maxima: Scores, top: int) -> Score:
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
def _n_reaching(values: Scores, bound: Score) -> np.int32:
    n_reaching = np.int32(0)
    for j in range(values.size):
        n_reaching += np.int32(values[j] >= bound)
    return n_reaching


@compiled
def _gather_reaching(row: Scores, maxima: Scores, bound: Score, chosen: Places, reaching: Scores) -> np.int64:
    """Writes all scores >= bound to the front of ``reaching`` and returns how many; looks only into chunks that hold one."""
    n_chosen = np.uint64(0)
    for c in range(maxima.size):
        chosen[n_chosen] = c
        n_chosen += np.uint64(maxima[c] >= bound)
    n_reaching = np.uint64(0)
    for c in chosen[:n_chosen]:
        for j in range(c, row.size, maxima.size):
            reaching[n_reaching] = row[j]
            n_reaching += np.uint64(row[j] >= bound)
    return np.int64(n_reaching)
