"""Where each logged cell stands when its user's scores of all items are sorted decreasingly.

No U x I array: the scorer is asked for blocks of users, and each block is counted and dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass
from threading import local
from typing import NoReturn, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from unskew.data.factors import Factors
from unskew.errors import BadPredictionError, UniverseError, UsageError
from unskew.plugins import find_engine
from unskew.threads import count_threads, single_blas_thread
from unskew.types import IntVector, Scorer, Scores, Vector

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
                f"{bad.sum()} of {bad.size} positions are not whole numbers from 1 on; "
                f"the first is {column[row]:g} at row {row}. "
                "Position 1 is the user's best item among all items."
            )
        return cls(
            above=column.astype(np.int32) - np.int32(1), equal=np.ones(column.size, np.int32)
        )

    def mean(self, worth: Callable[[Vector], Vector], *, last: int) -> Vector:
        """The mean of ``worth(place)`` over the places that a cell's tie fills; places beyond ``last`` are worth nothing."""
        up_to = np.concatenate([[0.0], np.cumsum(worth(np.arange(1.0, last + 1)))])
        before, end = np.minimum(self.above, last), np.minimum(self.above + self.equal, last)
        mean: Vector = (up_to[end] - up_to[before]) / self.equal
        return mean


@runtime_checkable
class Ranker(Protocol):
    """An engine that ranks the items of factor models somewhere else."""

    def positions(self, factors: Factors, user: IntVector, item: IntVector, /) -> Positions:
        """Exact positions, as :func:`positions` finds them."""
        ...

    def best(
        self, factors: Factors, n_best: int, starts: npt.NDArray[np.int64], hidden: IntVector, /
    ) -> tuple[npt.NDArray[np.integer], Scores]:
        """The best items of every user and their scores, without the items ``hidden[starts[u]:starts[u + 1]]``.

        Equal scores come in the order of the items; places beyond the last item left have -inf.
        """
        ...


def ranker_named(given: str | Ranker) -> Ranker | None:
    """Where items are ranked; None is here."""
    engine = find_engine(given)
    if engine is None or isinstance(engine, Ranker):
        return engine
    raise UsageError(
        f"{type(engine).__name__} does not rank items. Pass engine='gpu', or leave engine=... out."
    )


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

    ``user`` and ``item`` are codes in the order of the log. ``scorer`` is asked for users with a logged cell only, and from
    this thread only unless it is :class:`Factors`. With ``top``, a cell with ``top`` or more items above it may get any
    ``above >= top`` and any ``equal``: all that a metric cut at ``top`` reads, and faster. ``n_threads`` (one a core by
    default) never changes a result.
    """
    user, item = np.ascontiguousarray(user, np.int32), np.ascontiguousarray(item, np.int32)
    if user.size != item.size:
        raise UsageError(
            f"{user.size} user codes and {item.size} item codes; give one of each for every logged cell."
        )
    if top is not None and top < 1:
        raise UsageError(
            f"top is {top}; ask for at least the first place, or for all places with top=None."
        )

    from unskew.kernels.positions import CHUNKS_PER_PLACE

    top = None if top is None or CHUNKS_PER_PLACE * top > n_items else top
    found = _unfound(user.size, top)
    threads = count_threads(n_threads)
    with ThreadPoolExecutor(threads) as pool:
        log = _Grouped.by_user(user, item, n_users, n_items, pool, n_slices=threads)
        work = _Work(log, n_items, top, found)
        blocks = list(_pieces(log.users.size, block_cells // max(1, n_items)))
        if isinstance(scorer, Factors):
            _score_anywhere(scorer, work, blocks, pool)
        else:
            _score_here(scorer, work, blocks, pool, n_parts=threads)
    return found


def _unfound(n_cells: int, top: int | None) -> Positions:
    """``top`` above each cell, until it is found; without ``top`` every cell will be, and nothing is written yet.

    A cell's two numbers lie side by side, so that scattered writes touch one place a cell.
    """
    pairs = np.empty(n_cells, np.int64)
    if top is not None:
        pairs.fill(np.array([top, 1], np.int32).view(np.int64)[0])
    above, equal = pairs.view(np.int32).reshape(n_cells, 2).T
    return Positions(above, equal)


@dataclass(frozen=True, slots=True, eq=False)
class _Grouped:
    """The log by users that have a logged cell: row r is user ``users[r]``, with cells ``cells[starts[r]:starts[r + 1]]``."""

    users: IntVector
    starts: npt.NDArray[np.int64]
    cells: IntVector
    items: IntVector

    @classmethod
    def by_user(
        cls,
        user: IntVector,
        item: IntVector,
        n_users: int,
        n_items: int,
        pool: Executor,
        *,
        n_slices: int,
    ) -> _Grouped:
        """Stable counting sort, the log cut into slices: by user, then by slice, then as in the log.

        A slice needs a count for each user, so there are never more of them than cells for the mean user.
        """
        from unskew.kernels.positions import count_users, place_cells

        n_slices = max(1, min(n_slices, user.size // max(1, n_users)))
        slices = list(_pieces(user.size, -(-user.size // n_slices)))
        counts = np.zeros((len(slices), n_users), np.int64)

        def count(cells: slice, counts: npt.NDArray[np.int64]) -> None:
            bad = count_users(user[cells], item[cells], n_items, counts)
            if bad >= 0:
                _refuse(cells.start + bad, user, item, n_users, n_items)

        list(pool.map(count, slices, counts))
        ends = np.cumsum(counts.T).reshape(n_users, len(slices)).T
        logged = np.empty((user.size, 2), np.int32)

        def place(cells: slice, places: npt.NDArray[np.int64]) -> None:
            place_cells(user[cells], item[cells], cells.start, places, logged)

        list(pool.map(place, slices, np.ascontiguousarray(ends - counts)))
        n_logged = counts.sum(axis=0)
        users = np.flatnonzero(n_logged).astype(np.int32)
        return cls(users, np.append(0, np.cumsum(n_logged[users])), logged[:, 0], logged[:, 1])


@dataclass(frozen=True, slots=True, eq=False)
class _Work:
    """Counts blocks of rows; a row is counted by one thread, so that threads are not seen in the result."""

    log: _Grouped
    n_items: int
    top: int | None
    found: Positions

    def count(self, rows: slice, scores: Scores) -> None:
        """Writes the positions of the cells in these rows."""
        from unskew.kernels.positions import exact_positions, top_positions

        log, above, equal = self.log, self.found.above, self.found.equal
        starts = log.starts[rows.start : rows.stop + 1]
        if self.top is None:
            bad = exact_positions(scores, starts, log.cells, log.items, above, equal)
        else:
            bad = top_positions(scores, starts, log.cells, log.items, self.top, above, equal)
        if bad >= 0:
            raise BadPredictionError(
                f"the score of user code {log.users[rows][bad]} for item code {np.isnan(scores[bad]).argmax()} is NaN, "
                "which has no position. Make the scorer return a number for every item; -inf puts an item last."
            )

    def checked(self, rows: slice, returned: Scores) -> Scores:
        """One contiguous float32 or float64 row a user; other numbers are widened."""
        users, scores = self.log.users[rows], np.asarray(returned)
        asked = f"for {users.size} users from code {users[0]} on the scorer returned"
        if scores.shape != (users.size, self.n_items):
            raise BadPredictionError(
                f"{asked} shape {scores.shape}; it must return shape {(users.size, self.n_items)}: "
                "one row a user, and a column for each of all items."
            )
        if scores.dtype.kind not in "fiub" or scores.dtype.itemsize > 8:
            raise BadPredictionError(
                f"{asked} {scores.dtype} scores; it must return float32 or float64, for instance scores.astype(np.float32)."
            )
        return np.ascontiguousarray(
            scores, np.float32 if scores.dtype in (np.float16, np.float32) else np.float64
        )


def _score_anywhere(factors: Factors, work: _Work, blocks: Sequence[slice], pool: Executor) -> None:
    """Each thread scores a block with one BLAS thread, into memory of its own, and counts it while it is in cache."""
    memory = local()

    def score_and_count(rows: slice) -> None:
        if not hasattr(memory, "block"):
            memory.block = np.empty((blocks[0].stop, factors.n_items), factors.dtype)
        users = work.log.users[rows]
        work.count(rows, work.checked(rows, factors(users, out=memory.block[: users.size])))

    with single_blas_thread():
        list(pool.map(score_and_count, blocks))


def _score_here(
    scorer: Scorer, work: _Work, blocks: Sequence[slice], pool: Executor, *, n_parts: int
) -> None:
    """The calling thread scores, then all count; a scorer may reuse its memory, since no block outlives the next call."""
    for rows in blocks:
        scores = work.checked(rows, scorer(work.log.users[rows]))
        parts = list(_pieces(len(scores), -(-len(scores) // n_parts)))
        parts_of_log = (slice(rows.start + part.start, rows.start + part.stop) for part in parts)
        list(pool.map(work.count, parts_of_log, [scores[part] for part in parts]))


def _pieces(size: int, length: int) -> Iterator[slice]:
    """Consecutive slices of ``length``, at least 1, that cover 0 to ``size``; the last may be shorter."""
    step = max(1, length)
    return (slice(start, min(start + step, size)) for start in range(0, size, step))


def _refuse(row: int, user: IntVector, item: IntVector, n_users: int, n_items: int) -> NoReturn:
    """Names the code at this row that lies outside 0 to size - 1."""
    user_is_bad = not 0 <= user[row] < n_users
    kind, code, size = ("user", user[row], n_users) if user_is_bad else ("item", item[row], n_items)
    raise UniverseError(
        f"{kind} code {code} at row {row} lies outside 0 to {size - 1}. "
        f"Pass codes, not ids, and the number of all {kind}s as n_{kind}s."
    )
