"""Positions of logged cells among all items, from a block of score rows.

Row ``r`` of ``scores`` belongs to one user, whose logged cells are ``cells[starts[r]:starts[r + 1]]``, their columns the same
slice of ``items``. A cell is its place in the log, so its result is written to ``above[cell]`` and ``equal[cell]``, where

    above = #{j : s_j > s},    equal = #{j : s_j = s}, the cell itself included.

Rows with a NaN have no order; both kernels stop there and return the row, or -1 when all is well. Infinite scores are
ordinary. All indices in the inner loops are unsigned, which spares numba the test for negative ones.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from unskew.kernels.compiling import compiled
from unskew.kernels.intrinsics import LANES, count_lanes, fetch_row
from unskew.types import IntVector, Scores

Score: TypeAlias = np.floating[Any]
Offsets: TypeAlias = npt.NDArray[np.int64]
Pairs: TypeAlias = npt.NDArray[np.int32]
Places: TypeAlias = npt.NDArray[np.uint32]
Buckets: TypeAlias = npt.NDArray[np.uint16]

ITEMS_PER_BUCKET = 4
"""On average. Fewer leave less to compare inside a bucket, but more buckets to add up."""

FEW_CELLS = 8
"""Up to so many logged cells in a row, a plain count for each is cheaper than buckets."""

CELLS_AHEAD = 64
"""Cells between asking for the place of one and writing it, while cells are grouped by user."""

FOLD = 4
"""Parts of an array that are folded onto its maxima at a time, and scores below each of the finer maxima."""

CHUNKS_PER_PLACE = 4
"""Chunks of a row for each of the top places: more make a tighter bound, but a longer search for it."""

MOST_HALVINGS = 24
"""Of the search for a bound, which is valid from the start and only grows tighter."""

TOP_BIT = np.uint32(31)
HOLDS_LOGGED = np.uint32(2**31)
ONE = np.uint32(1)
STEP = np.uint64(LANES)


@compiled
def count_users(user: IntVector, item: IntVector, n_items: int, counts: Offsets) -> int:
    """counts_u += #{cells of user u}. Returns the first cell whose user or item has no place in the universe, or -1."""
    for cell in range(user.size):
        if not (0 <= user[cell] < counts.size and 0 <= item[cell] < n_items):
            return cell
        counts[user[cell]] += 1
    return -1


@compiled
def place_cells(
    user: IntVector, item: IntVector, first_cell: int, places: Offsets, logged: Pairs
) -> None:
    """The scatter of a counting sort: (cell, item) goes to ``logged[places[user]]``, and that place moves on by one.

    ``first_cell`` is where these users and items begin in the log, so that the log can be placed slice by slice.
    """
    for offset in range(user.size):
        if offset + CELLS_AHEAD < user.size:
            fetch_row(logged, places[user[offset + CELLS_AHEAD]])
        place = places[user[offset]]
        places[user[offset]] += 1
        logged[place, 0] = first_cell + offset
        logged[place, 1] = item[offset]


@compiled
def exact_positions(
    scores: Scores,
    starts: Offsets,
    cells: IntVector,
    items: IntVector,
    above: IntVector,
    equal: IntVector,
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
    scores: Scores,
    starts: Offsets,
    cells: IntVector,
    items: IntVector,
    top: int,
    above: IntVector,
    equal: IntVector,
) -> int:
    """``above`` and ``equal`` of every logged cell with ``above < top``; other cells stay as they are or become exact too.

    With L such that at least ``top`` scores reach L, a cell below L has ``above >= top``, and a cell that reaches L is
    counted among the few that do. Maxima of a few scores each, and maxima of those, lead up to L; the way back down passes
    only maxima that reach it. Returns the first row with a NaN, or -1.
    """
    n_items = scores.shape[1]
    top = min(top, n_items)
    few_maxima = np.empty(max(1, n_items // FOLD), scores.dtype)
    maxima = np.empty(min(few_maxima.size, CHUNKS_PER_PLACE * top), scores.dtype)
    whole, places, finer = (
        np.zeros(1, np.uint32),
        np.empty(n_items + 1, np.uint32),
        np.empty(n_items + 1, np.uint32),
    )
    reaching = np.empty(n_items + LANES, scores.dtype)
    for r in range(scores.shape[0]):
        row = scores[r]
        if _fold(row, few_maxima):
            return r
        _fold(few_maxima, maxima)
        bound = _reached_by(maxima, top)
        chosen = _reaching(maxima, bound, whole, 1, places)
        chosen = _reaching(few_maxima, bound, chosen, maxima.size, finer)
        chosen = _reaching(row, bound, chosen, few_maxima.size, places)
        for place in range(chosen.size):
            reaching[place] = row[chosen[place]]
        reaching[chosen.size : chosen.size + LANES] = np.nan
        for place in range(starts[r], starts[r + 1]):
            score = row[items[place]]
            if score >= bound:
                above[cells[place]], equal[cells[place]] = _count_between(
                    reaching, 0, chosen.size, score
                )
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
def _count_all(
    row: Scores, cells: IntVector, items: IntVector, above: IntVector, equal: IntVector
) -> np.bool_:
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
    inf = values.dtype.type(np.inf)
    low, high = inf, -inf
    for j in range(values.size):
        from_below = values[j] if values[j] > -inf else inf
        from_above = values[j] if values[j] < inf else -inf
        low = from_below if from_below < low else low
        high = from_above if from_above > high else high
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
def _sort_by_bucket(
    row: Scores, bucket: Buckets, shared: Places, tally: Places, slot: Places, order: Scores
) -> None:
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
    """``above`` = items in earlier buckets + larger ones in its own."""
    for place in range(cells.size):
        score, b = row[items[place]], bucket[items[place]]
        n_above, n_equal = _count_between(order, slot[b], slot[b + ONE], score)
        above[cells[place]], equal[cells[place]] = np.int32(first[b]) + n_above, n_equal


@compiled
def _count_between(
    values: Scores, start: int, stop: int, score: Score
) -> tuple[np.int32, np.int32]:
    """#{v > score} and #{v = score} in ``values[start:stop]``, if the next ``LANES`` values are smaller or NaN."""
    above, equal = np.int32(0), np.int32(0)
    at, end = np.uint64(start), np.uint64(stop)
    while at < end:
        larger, same = count_lanes(values, at, score)
        above += larger
        equal += same
        at += STEP
    return above, equal


@compiled
def _larger(one: Score, other: Score) -> Score:
    """The larger of two; ``other`` where ``one`` is NaN."""
    return one if one > other else other


@compiled
def _fold(values: Scores, maxima: Scores) -> np.bool_:
    """maxima_c = max of v_c, v_{c + C}, v_{c + 2C}, ... for the C chunks of ``values``; tells whether there is a NaN."""
    size = maxima.size
    n_folded = values.size - values.size % (FOLD * size)
    n_nan = np.int32(0)
    maxima[:] = -np.inf
    for start in range(0, n_folded, FOLD * size):
        parts = values[start : start + FOLD * size].reshape(FOLD, size)
        for c in range(size):
            first, second, third, fourth = parts[0, c], parts[1, c], parts[2, c], parts[3, c]
            maxima[c] = _larger(_larger(first, second), _larger(third, _larger(fourth, maxima[c])))
            n_nan += np.int32((first != first) | (second != second)) + np.int32(
                (third != third) | (fourth != fourth)
            )
    for start in range(n_folded, values.size, size):
        part = values[start : start + size]
        for c in range(part.size):
            maxima[c] = _larger(part[c], maxima[c])
            n_nan += np.int32(part[c] != part[c])
    return n_nan > 0


@compiled
def _reached_by(maxima: Scores, top: int) -> Score:
    """A bound L with #{maxima >= L} >= top, by bisection until hardly more than ``top`` reach it.

    The smallest of any ``top`` maxima is such a bound, and the largest is hardly ever one.
    """
    low, high = _finite_range(maxima[:top])
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
def _reaching(
    values: Scores, bound: Score, chunks: Places, n_chunks: int, places: Places
) -> Places:
    """Where the values of some of the ``n_chunks`` chunks reach the bound, written to the front of ``places``.

    Chunk c is v_c, v_{c + C}, ... as in :func:`_fold`. A ``range`` with this step would divide for each chunk.
    """
    n_reaching, size, step = np.uint64(0), np.uint64(values.size), np.uint64(n_chunks)
    for place in range(chunks.size):
        j = np.uint64(chunks[place])
        while j < size:
            places[n_reaching] = j
            n_reaching += np.uint64(values[j] >= bound)
            j += step
    return places[:n_reaching]
