"""Positions of logged cells among all items of their user, from a block of score rows.

Row ``r`` of ``scores`` belongs to one user. The logged cells of that user are
``cells[starts[r]:starts[r + 1]]``, and their columns are the same slice of ``items``. A cell is an
index into the log, so its result is written to ``above[cell]`` and ``equal[cell]``:

    above = #{j : s_j > s},    equal = #{j : s_j = s}, including the cell itself.

A row with a NaN has no order: both kernels stop there and return the row, or -1 if there is none.
Infinite scores are allowed. All indices in the inner loops are unsigned, because numba would test
signed ones for negative values.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from unskew.kernels.compiling import compiled
from unskew.kernels.intrinsics import LANES, count_lanes, prefetch_for_write
from unskew.types import IndexVector, IntVector, Scores

Score: TypeAlias = np.floating[Any]
Offsets: TypeAlias = npt.NDArray[np.int64]
Pairs: TypeAlias = IndexVector
"""Columns of rows of the log and of items."""
Indices: TypeAlias = npt.NDArray[np.uint32]
Buckets: TypeAlias = npt.NDArray[np.uint16]

ITEMS_PER_BUCKET = 4
"""The average. Fewer items need fewer comparisons in a bucket, but more buckets to add up."""

FEW_CELLS = 8
"""Up to this many logged cells in a row, one count for each is cheaper than buckets."""

PREFETCH_CELLS = 64
"""Cells between the prefetch of a slot and its use, while cells are grouped by user."""

FOLD = 4
"""Parts of an array that are folded onto its maxima at a time; scores for each fine maximum."""

CHUNKS_PER_POSITION = 4
"""Chunks of a row for each top position: more give a tighter bound, but a longer search."""

MAX_HALVINGS = 24
"""Limit of the search for a bound, which is valid from the start and only gets tighter."""

TOP_BIT = np.uint32(31)
HAS_LOGGED = np.uint32(2**31)
ONE = np.uint32(1)
STEP = np.uint64(LANES)


@compiled
def count_users(user: IntVector, item: IntVector, n_items: int, counts: Offsets) -> int:
    """counts_u += #{cells of user u}.

    Returns the first cell whose user or item is outside the universe, or -1.
    """
    for cell in range(user.size):
        if not (0 <= user[cell] < counts.size and 0 <= item[cell] < n_items):
            return cell
        counts[user[cell]] += 1
    return -1


@compiled
def group_cells(
    user: IntVector, item: IntVector, first_cell: int, next_slot: Offsets, logged: Pairs
) -> None:
    """The scatter of a counting sort: (cell, item) goes to ``logged[next_slot[user]]``.

    ``first_cell`` is the index in the log of the first of these cells, so the log can be grouped
    slice by slice.
    """
    for k in range(user.size):
        if k + PREFETCH_CELLS < user.size:
            prefetch_for_write(logged, next_slot[user[k + PREFETCH_CELLS]])
        slot = next_slot[user[k]]
        next_slot[user[k]] += 1
        logged[slot, 0] = first_cell + k
        logged[slot, 1] = item[k]


@compiled
def exact_positions(
    scores: Scores,
    starts: Offsets,
    cells: IndexVector,
    items: IndexVector,
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
        row, row_cells = scores[r], slice(starts[r], starts[r + 1])
        if starts[r + 1] - starts[r] <= FEW_CELLS:
            has_nan = _count_all(row, cells[row_cells], items[row_cells], above, equal)
        else:
            has_nan = _assign_buckets(row, items[row_cells], n_buckets, bucket)
            n_shared = _tally_buckets(bucket, items[row_cells], tally, shared)
            _accumulate_buckets(tally, first, slot)
            _sort_by_bucket(row, bucket, shared[:n_shared], tally, slot, order)
            _count_in_buckets(
                row, cells[row_cells], items[row_cells], bucket, first, slot, order, above, equal
            )
        if has_nan:
            return r
    return -1


@compiled
def top_positions(
    scores: Scores,
    starts: Offsets,
    cells: IndexVector,
    items: IndexVector,
    top: int,
    above: IntVector,
    equal: IntVector,
) -> int:
    """``above`` and ``equal`` of every logged cell with ``above < top``.

    Other cells keep their values or also become exact. If at least ``top`` scores reach a bound L,
    a cell below L has ``above >= top``, and a cell that reaches L is compared with the few scores
    that do. Maxima of a few scores, and maxima of those, give L; only scores under maxima that
    reach L are read again. Returns the first row with a NaN, or -1.
    """
    n_items = scores.shape[1]
    top = min(top, n_items)
    fine_maxima = np.empty(max(1, n_items // FOLD), scores.dtype)
    maxima = np.empty(min(fine_maxima.size, CHUNKS_PER_POSITION * top), scores.dtype)
    first_chunk, indices, finer_indices = (
        np.zeros(1, np.uint32),
        np.empty(n_items + 1, np.uint32),
        np.empty(n_items + 1, np.uint32),
    )
    reaching_scores = np.empty(n_items + LANES, scores.dtype)
    for r in range(scores.shape[0]):
        row = scores[r]
        if _fold(row, fine_maxima):
            return r
        _fold(fine_maxima, maxima)
        bound = _find_bound(maxima, top)
        chosen = _find_reaching(maxima, bound, first_chunk, 1, indices)
        chosen = _find_reaching(fine_maxima, bound, chosen, maxima.size, finer_indices)
        chosen = _find_reaching(row, bound, chosen, fine_maxima.size, indices)
        for index in range(chosen.size):
            reaching_scores[index] = row[chosen[index]]
        reaching_scores[chosen.size : chosen.size + LANES] = np.nan
        for index in range(starts[r], starts[r + 1]):
            score = row[items[index]]
            if score >= bound:
                above[cells[index]], equal[cells[index]] = _count_between(
                    reaching_scores, 0, chosen.size, score
                )
    return -1


@compiled
def hide_items(scores: Scores, users: IntVector, starts: Offsets, items: IntVector) -> None:
    """Row r gets -inf at ``items[starts[u]:starts[u + 1]]`` of its user u = ``users[r]``."""
    for r in range(users.size):
        for index in range(starts[users[r]], starts[users[r] + 1]):
            scores[r, items[index]] = -np.inf


@compiled
def hide_other_items(scores: Scores, users: IntVector, starts: Offsets, items: IntVector) -> None:
    """Row r keeps its scores at ``items[starts[u]:starts[u + 1]]``; all others become -inf."""
    for r in range(users.size):
        listed = items[starts[users[r]] : starts[users[r] + 1]]
        kept = scores[r][listed]
        scores[r, :] = -np.inf
        for index in range(listed.size):
            scores[r, listed[index]] = kept[index]


@compiled
def uncount_hidden(
    scores: Scores,
    starts: Offsets,
    cells: IndexVector,
    items: IndexVector,
    n_hidden: IntVector,
    equal: IntVector,
) -> None:
    """Subtract hidden items, which have the score -inf, from ``equal`` of cells that have it too.

    A cell that was not counted, because it is below the top, has ``equal = 1`` and keeps it.
    """
    for r in range(starts.size - 1):
        for index in range(starts[r], starts[r + 1]):
            cell = cells[index]
            if scores[r, items[index]] == -np.inf and equal[cell] > n_hidden[r]:
                equal[cell] -= n_hidden[r]


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
    row: Scores, cells: IndexVector, items: IndexVector, above: IntVector, equal: IntVector
) -> np.bool_:
    """Count the whole row for each cell; returns whether the row has a NaN."""
    for index in range(cells.size):
        above[cells[index]], equal[cells[index]] = _count(row, row[items[index]])
    n_nan = np.int32(0)
    for j in range(row.size):
        n_nan += np.int32(row[j] != row[j])
    return n_nan > 0


@compiled
def _finite_range(values: Scores) -> tuple[Score, Score]:
    """The smallest and largest finite value; (inf, -inf) if there is none."""
    inf = values.dtype.type(np.inf)
    low, high = inf, -inf
    for j in range(values.size):
        from_below = values[j] if values[j] > -inf else inf
        from_above = values[j] if values[j] < inf else -inf
        low = from_below if from_below < low else low
        high = from_above if from_above > high else high
    return low, high


@compiled
def _assign_buckets(row: Scores, items: IndexVector, n_buckets: int, bucket: Buckets) -> np.bool_:
    """bucket_j = floor((high - s_j) / width), with s_j clipped to [low, high].

    [low, high] is the finite range of the logged scores of the row. Rounding keeps the order: a
    larger score never has a larger bucket. Without a usable width there is one bucket. Returns
    whether the row has a NaN.
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
def _tally_buckets(
    bucket: Buckets, items: IndexVector, tally: Indices, shared: Indices
) -> np.int64:
    """tally_b = #{j : bucket_j = b}, with the top bit set if bucket b has a logged item.

    The items of such buckets are written to ``shared``: only they have to be compared one by one.
    Returns their number.
    """
    tally[:] = 0
    for index in range(items.size):
        tally[bucket[items[index]]] = HAS_LOGGED
    n_shared = np.uint64(0)
    for j in range(bucket.size):
        count = tally[bucket[j]]
        tally[bucket[j]] = count + ONE
        shared[n_shared] = j
        n_shared += np.uint64(count >> TOP_BIT)
    return np.int64(n_shared)


@compiled
def _accumulate_buckets(tally: Indices, first: Indices, slot: Indices) -> None:
    """first_b = items in buckets before b; slot_b = shared items among them.

    Clears the top bits of the tally.
    """
    n_items, n_shared = np.uint32(0), np.uint32(0)
    for b in range(tally.size):
        count = tally[b] & ~HAS_LOGGED
        first[b], slot[b] = n_items, n_shared
        n_items += count
        n_shared += count * (tally[b] >> TOP_BIT)
        tally[b] = count
    slot[tally.size] = n_shared


@compiled
def _sort_by_bucket(
    row: Scores, bucket: Buckets, shared: Indices, tally: Indices, slot: Indices, order: Scores
) -> None:
    """Counting sort of the shared items: bucket b is ``order[slot[b]:slot[b + 1]]``.

    Everything after it is smaller or NaN.
    """
    for index in range(shared.size):
        j = shared[index]
        b = bucket[j]
        tally[b] -= ONE
        order[slot[b] + tally[b]] = row[j]
    order[shared.size : shared.size + LANES] = np.nan


@compiled
def _count_in_buckets(
    row: Scores,
    cells: IndexVector,
    items: IndexVector,
    bucket: Buckets,
    first: Indices,
    slot: Indices,
    order: Scores,
    above: IntVector,
    equal: IntVector,
) -> None:
    """``above`` = items in earlier buckets + larger items in the same bucket."""
    for index in range(cells.size):
        score, b = row[items[index]], bucket[items[index]]
        n_above, n_equal = _count_between(order, slot[b], slot[b + ONE], score)
        above[cells[index]], equal[cells[index]] = np.int32(first[b]) + n_above, n_equal


@compiled
def _count_between(
    values: Scores, start: int, stop: int, score: Score
) -> tuple[np.int32, np.int32]:
    """#{v > score} and #{v = score} in ``values[start:stop]``.

    The ``LANES`` values after ``stop`` must be smaller or NaN.
    """
    above, equal = np.int32(0), np.int32(0)
    start_lane, end = np.uint64(start), np.uint64(stop)
    while start_lane < end:
        larger, same = count_lanes(values, start_lane, score)
        above += larger
        equal += same
        start_lane += STEP
    return above, equal


@compiled
def _maximum(left: Score, right: Score) -> Score:
    """The larger of two numbers; ``right`` if ``left`` is NaN."""
    return left if left > right else right


@compiled
def _fold(values: Scores, maxima: Scores) -> np.bool_:
    """maxima_c = max of v_c, v_{c + C}, v_{c + 2C}, ... for the C chunks of ``values``.

    Returns whether there is a NaN.
    """
    size = maxima.size
    n_folded = values.size - values.size % (FOLD * size)
    n_nan = np.int32(0)
    maxima[:] = -np.inf
    for start in range(0, n_folded, FOLD * size):
        parts = values[start : start + FOLD * size].reshape(FOLD, size)
        for c in range(size):
            first, second, third, fourth = parts[0, c], parts[1, c], parts[2, c], parts[3, c]
            maxima[c] = _maximum(
                _maximum(first, second), _maximum(third, _maximum(fourth, maxima[c]))
            )
            n_nan += np.int32((first != first) | (second != second)) + np.int32(
                (third != third) | (fourth != fourth)
            )
    for start in range(n_folded, values.size, size):
        part = values[start : start + size]
        for c in range(part.size):
            maxima[c] = _maximum(part[c], maxima[c])
            n_nan += np.int32(part[c] != part[c])
    return n_nan > 0


@compiled
def _find_bound(maxima: Scores, top: int) -> Score:
    """A bound L with #{maxima >= L} >= top, by bisection until hardly more than ``top`` reach it.

    The smallest of any ``top`` maxima is such a bound, and the largest rarely is.
    """
    low, high = _finite_range(maxima[:top])
    if _count_reaching(maxima, low) < top:
        return maxima.dtype.type(-np.inf)
    half = maxima.dtype.type(0.5)
    for _ in range(MAX_HALVINGS):
        middle = half * low + half * high
        n_reaching = _count_reaching(maxima, middle)
        if n_reaching < top:
            high = middle
        else:
            low = middle
            if n_reaching <= top + top // 4:
                break
    return low


@compiled
def _count_reaching(values: Scores, bound: Score) -> np.int32:
    n_reaching = np.int32(0)
    for j in range(values.size):
        n_reaching += np.int32(values[j] >= bound)
    return n_reaching


@compiled
def _find_reaching(
    values: Scores, bound: Score, chunks: Indices, n_chunks: int, indices: Indices
) -> Indices:
    """Indices of the values in some of the ``n_chunks`` chunks that reach the bound.

    They are written to the front of ``indices``. Chunk c is v_c, v_{c + C}, ... as in
    :func:`_fold`. A ``range`` with this step would divide for each chunk.
    """
    n_reaching, size, step = np.uint64(0), np.uint64(values.size), np.uint64(n_chunks)
    for index in range(chunks.size):
        j = np.uint64(chunks[index])
        while j < size:
            indices[n_reaching] = j
            n_reaching += np.uint64(values[j] >= bound)
            j += step
    return indices[:n_reaching]
