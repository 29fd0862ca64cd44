"""Where each logged cell stands when its user's scores of all items are sorted decreasingly.

No U x I array: the scorer is asked for blocks of users, and each block is counted and dropped.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from unskew.data.factors import Factors
from unskew.errors import BadPredictionError, UniverseError, UsageError
from unskew.types import IntVector, Scorer, Scores

BLOCK_CELLS = 2**19
"""Scores that a thread holds at a time: 2 MB in float32, still in cache when they are counted."""


@dataclass(frozen=True, slots=True, eq=False)
class Positions:
    """Places of the logged cells among all items, in the order of the log; ties share places above + 1 to above + equal."""

    above: IntVector
    """Items of the same user with a strictly larger score."""
    equal: IntVector
    """Items of the same user with exactly this score, the cell itself included."""

    @classmethod
    def from_column(cls, position: npt.ArrayLike) -> Positions:
        """From places 1, 2, ... that the caller already knows: above = position - 1, no ties."""
        column = np.asarray(position)
        bad = ~((column >= 1) & (column == np.floor(column)) & (column < 2**31))
        if bad.any():
            row = int(bad.argmax())
            raise BadPredictionError(
                f"{bad.sum()} of {bad.size} positions are not whole numbers from 1 on; the first is {column[row]:g} at row {row}. "
                "Position 1 is the user's best item among all items."
            )
        return cls(above=column.astype(np.int32) - np.int32(1), equal=np.ones(column.size, np.int32))


def positions(
    user: IntVector,
    item: IntVector,
    n_users: int,
    n_items: int,
    scorer: Scorer,
    *,
    top: int | None = None,
    block_cells: int = BLOCK_CELLS,
    n_threads: int | None = None,
) -> Positions:
    """above_ui = #{j : s_uj > s_ui} and equal_ui = #{j : s_uj = s_ui}, over all ``n_items`` items j, for each logged (u, i).

    ``user`` and ``item`` are codes in the order of the log. ``scorer`` is called from this thread only, for users with a
    logged cell only. With ``top``, cells beyond the first ``top`` places may get any ``above >= top`` and then ``equal``
    of 1: all that a metric cut at ``top`` reads, and faster. ``n_threads`` (all of them by default) never changes a result.
    """
    from numba import get_num_threads

    from threadpoolctl import threadpool_limits

    user, item = np.ascontiguousarray(user, np.int32), np.ascontiguousarray(item, np.int32)
    _check_codes("user", user, n_users)
    _check_codes("item", item, n_items)
    if user.size != item.size:
        raise UsageError(f"{user.size} user codes and {item.size} item codes; give one of each for every logged cell.")
    if top is not None and top < 1:
        raise UsageError(f"top is {top}; ask for at least the first place, or for all with top=None.")

    threads = n_threads or get_num_threads()
    written = np.empty((user.size, 2), np.int32)  # side by side: scattered writes touch one place for each cell
    written[:] = (n_items if top is None else top, 1)
    found = Positions(written[:, 0], written[:, 1])
    with ThreadPoolExecutor(threads) as pool:
        log = _Grouped.by_user(user, item, n_users, pool, threads)
        blocks = _pieces(log.users.size, max(1, block_cells // max(1, n_items)))

        def score(rows: slice) -> Scores:
            return _checked_scores(scorer(log.users[rows]), log.users[rows], n_items)

        def count(rows: slice, scores: Scores) -> None:
            log.count(rows, scores, top, found)

        if isinstance(scorer, Factors):
            with threadpool_limits(1, "blas"):
                list(pool.map(lambda rows: count(rows, score(rows)), blocks))
        else:
            waiting: deque[Future[None]] = deque()
            for rows in blocks:
                waiting.append(pool.submit(count, rows, score(rows)))
                if len(waiting) > threads:
                    waiting.popleft().result()
            for future in waiting:
                future.result()
    return found


@dataclass(frozen=True, slots=True, eq=False)
class _Grouped:
    """The log by users that have a logged cell: row r is user ``users[r]``, with cells ``cells[starts[r]:starts[r + 1]]``."""

    users: IntVector
    starts: npt.NDArray[np.int64]
    cells: IntVector
    items: IntVector

    @classmethod
    def by_user(cls, user: IntVector, item: IntVector, n_users: int, pool: Executor, n_slices: int) -> _Grouped:
        """Stable counting sort, the log cut into slices: first by user, then by slice, then as in the log."""
        from unskew.kernels.positions import count_users, place_cells

        slices = list(_pieces(user.size, max(1, -(-user.size // n_slices))))
        counts = np.zeros((len(slices), n_users), np.int64)
        list(pool.map(count_users, [user[cells] for cells in slices], counts))
        ends = np.cumsum(counts.T).reshape(n_users, len(slices)).T
        places = np.ascontiguousarray(ends - counts)
        logged = np.empty((user.size, 2), np.int32)

        def place(cells: slice, own_places: npt.NDArray[np.int64]) -> None:
            place_cells(user[cells], item[cells], cells.start, own_places, logged)

        list(pool.map(place, slices, places))
        users = np.flatnonzero(counts.sum(axis=0)).astype(np.int32)
        return cls(users, np.append(0, ends[-1:, users]), logged[:, 0], logged[:, 1])

    def count(self, rows: slice, scores: Scores, top: int | None, found: Positions) -> None:
        """Writes the positions of the cells in these rows."""
        from unskew.kernels.positions import CHUNKS_PER_PLACE, exact_positions, top_positions

        starts = self.starts[rows.start : rows.stop + 1]
        if top is None or CHUNKS_PER_PLACE * top > scores.shape[1]:
            bad = exact_positions(scores, starts, self.cells, self.items, found.above, found.equal)
        else:
            bad = top_positions(scores, starts, self.cells, self.items, top, found.above, found.equal)
        if bad >= 0:
            raise BadPredictionError(
                f"the score of user code {self.users[rows][bad]} for item code {np.isnan(scores[bad]).argmax()} is NaN, "
                "which has no position. Make the scorer return a number for every item; -inf puts an item last."
            )


def _pieces(size: int, length: int) -> Iterator[slice]:
    """Consecutive slices of ``length`` that cover 0 to ``size``; the last may be shorter."""
    return (slice(start, min(start + length, size)) for start in range(0, size, length))


def _check_codes(kind: str, codes: IntVector, size: int) -> None:
    """Every code lies in 0 to size - 1."""
    if codes.size and not 0 <= codes.min() <= codes.max() < size:
        row = int(((codes < 0) | (codes >= size)).argmax())
        raise UniverseError(
            f"{kind} code {codes[row]} at row {row} lies outside 0 to {size - 1}. "
            f"Pass codes, not ids, and the number of all {kind}s as n_{kind}s."
        )


def _checked_scores(returned: Any, users: IntVector, n_items: int) -> Scores:
    """What the scorer returned, as one contiguous float32 or float64 row a user; float16 is widened."""
    scores = np.asarray(returned)
    asked = f"for {users.size} users from code {users[0]} on the scorer returned"
    if scores.shape != (users.size, n_items):
        raise BadPredictionError(
            f"{asked} shape {scores.shape}; it must return {(users.size, n_items)}: one row a user, one column for each of all items."
        )
    if scores.dtype.kind != "f" or scores.dtype.itemsize > 8:
        raise BadPredictionError(
            f"{asked} {scores.dtype} scores; it must return float32 or float64, for instance scores.astype(np.float32)."
        )
    return np.ascontiguousarray(scores, np.float64 if scores.dtype.itemsize == 8 else np.float32)
