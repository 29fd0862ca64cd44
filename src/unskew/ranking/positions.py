"""Candidates by decreasing score: the position of each logged cell, and the best items of users.

There is no U x I array: the scorer is called for blocks of users, one block at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass
from threading import local
from typing import NoReturn, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from unskew.data.cells import CellNumbers, cell_numbers, group_rows
from unskew.data.checks import float_array
from unskew.data.factors import Factors
from unskew.data.ids import Ids, format_id
from unskew.data.ratings import Ratings
from unskew.errors import BadPredictionError, UniverseError, UsageError
from unskew.ranking.candidates import Candidates, group_items
from unskew.registry import find_engine
from unskew.threads import count_threads, single_blas_thread
from unskew.types import (
    IndexVector,
    IntVector,
    RowStarts,
    Scorer,
    Scores,
    SeenItems,
    Vector,
    row_type,
)

BLOCK_CELLS = 2**19
"""Scores that a thread holds at a time: 2 MB in float32, which stay in the cache."""
TOP_CELLS = 1 << 20
"""Scores among which the best are sought at a time."""
NAN_REMEDY = (
    "Return a number for every item (-inf puts an item last), or fit the model again with a "
    "stronger penalty."
)


@dataclass(frozen=True, slots=True, eq=False)
class Positions:
    """Positions of the logged cells among the candidates of their user, in the order of the log.

    A cell shares positions above + 1 to above + equal with the items that have the same score.
    """

    above: IntVector
    """Candidates of the same user with a strictly larger score."""
    equal: IntVector
    """Candidates of the same user with exactly this score, including the cell itself."""

    @property
    def tie_counts(self) -> tuple[IntVector, IntVector]:
        """``above`` and ``equal``, for metrics that read them directly."""
        return self.above, self.equal

    @classmethod
    def from_column(cls, position: npt.ArrayLike) -> Positions:
        """From positions 1, 2, ... without ties: above = position - 1."""
        column = np.asarray(position)
        is_bad = ~((column >= 1) & (column == np.floor(column)) & (column < 2**31))
        if is_bad.any():
            row = int(is_bad.argmax())
            raise BadPredictionError(
                f"{is_bad.sum()} of {is_bad.size} positions are not whole numbers from 1 on; the "
                f"first is {column[row]:g} at row {row}.",
                parameter="position",
                value=column[row],
                where=f"row {row}",
                remedy="Number each user's items 1, 2, 3, ...; 1 is the best.",
            )
        above = column.astype(np.int32) - np.int32(1)
        return cls(above=above, equal=np.ones(column.size, np.int32))

    def mean(self, value_at_position: Callable[[Vector], Vector], *, last: int) -> Vector:
        """The mean of ``value_at_position`` over the positions that a cell shares with ties.

        Positions after ``last`` have the value 0.
        """
        values = value_at_position(np.arange(1.0, last + 1))
        sum_up_to = np.concatenate([[0.0], np.cumsum(values)])
        start, end = np.minimum(self.above, last), np.minimum(self.above + self.equal, last)
        mean: Vector = (sum_up_to[end] - sum_up_to[start]) / self.equal
        return mean


class NanScoreError(BadPredictionError):
    """A score that is NaN; it cannot be ranked. The cell is known by its codes."""

    def __init__(self, user: int, item: int) -> None:
        super().__init__("", parameter="predictions", remedy=NAN_REMEDY)
        self.codes = user, item
        self._name_cell(f"user code {user} for item code {item}", "")

    def name_ids(self, users: Ids, items: Ids, model: str = "") -> None:
        """Say which cell it is by its ids, and perhaps which model."""
        user, item = self.codes
        self._name_cell(f"user {format_id(users[user])} for item {format_id(items[item])}", model)

    def _name_cell(self, where: str, model: str) -> None:
        self.where = where
        self.problem = f"{model}the score of {where} is NaN, which has no position."


@runtime_checkable
class Ranker(Protocol):
    """An engine that ranks the items of factor models on another device."""

    def positions(
        self,
        factors: Factors,
        user: IntVector,
        item: IntVector,
        candidates: Candidates | None = None,
        /,
    ) -> Positions:
        """Exact positions, the same as those of :func:`compute_positions`."""
        ...

    def best(
        self, factors: Factors, n_best: int, candidates: Candidates, /
    ) -> tuple[npt.NDArray[np.integer], Scores]:
        """The best items and their scores, as :func:`best_items` has them."""
        ...


def find_ranker(engine: str | Ranker) -> Ranker | None:
    """The engine that ranks items; None ranks in this process."""
    ranker = find_engine(engine)
    if ranker is None or isinstance(ranker, Ranker):
        return ranker
    raise UsageError(
        f"the engine {type(ranker).__name__} cannot rank items.",
        parameter="engine",
        value=engine,
        remedy="Pass `engine='gpu'` or `engine='local'`.",
    )


def compute_positions(
    user: IntVector,
    item: IntVector,
    n_users: int,
    n_items: int,
    scorer: Scorer,
    *,
    top: int | None = None,
    candidates: Candidates | None = None,
    block_cells: int = BLOCK_CELLS,
    n_threads: int | None = None,
) -> Positions:
    """above_ui = #{j : s_uj > s_ui} and equal_ui = #{j : s_uj = s_ui} for each logged (u, i).

    j runs over all ``n_items`` items, or over the ``candidates`` of the user; then every logged
    cell must be a candidate. ``user`` and ``item`` are codes in the order of the log.
    ``scorer`` is called for users with a logged cell only, and from this thread only unless it is
    :class:`Factors`. With ``top``, the counts are exact only for cells with fewer than ``top``
    items above them; other cells have some ``above >= top`` and any ``equal``. That is faster, and
    enough for a metric of the first ``top`` positions. The result does not depend on
    ``n_threads`` (by default the number of cores).
    """
    user, item = np.ascontiguousarray(user, np.int32), np.ascontiguousarray(item, np.int32)
    if user.size != item.size:
        raise UsageError(
            f"got {user.size} user codes and {item.size} item codes.",
            remedy="Pass one of each for every logged cell.",
        )
    if top is not None and top < 1:
        raise UsageError(
            f"`top` must be at least 1; got {top}.",
            parameter="top",
            value=top,
            remedy="Pass `top=None` for all positions.",
        )

    from unskew.kernels.positions import CHUNKS_PER_POSITION

    top = None if top is None or CHUNKS_PER_POSITION * top > n_items else top
    positions = _allocate_positions(user.size, top)
    threads = count_threads(n_threads)
    with ThreadPoolExecutor(threads) as pool:
        log = _CellsByUser.sort(user, item, n_users, n_items, pool, n_slices=threads)
        n_hidden = None if candidates is None else n_items - candidates.count
        counter = _PositionCounter(log, n_items, top, positions, candidates, n_hidden)
        blocks = list(_slices(log.users.size, block_cells // max(1, n_items)))
        if isinstance(scorer, Factors):
            _score_in_threads(scorer, counter, blocks, pool)
        else:
            _score_here(scorer, counter, blocks, pool, n_parts=threads)
    return positions


def _allocate_positions(n_cells: int, top: int | None) -> Positions:
    """Memory for the counts; with ``top``, ``top`` items above each cell until it is counted.

    The two counts of a cell are adjacent, so a scattered write touches one cache line.
    """
    pairs = np.empty(n_cells, np.int64)
    if top is not None:
        pairs.fill(np.array([top, 1], np.int32).view(np.int64)[0])
    above, equal = pairs.view(np.int32).reshape(n_cells, 2).T
    return Positions(above, equal)


@dataclass(frozen=True, slots=True, eq=False)
class _CellsByUser:
    """The log sorted by user. Row r is ``users[r]``, with ``cells[starts[r]:starts[r + 1]]``."""

    users: IntVector
    """Users with a logged cell."""
    starts: RowStarts
    cells: IndexVector
    """Indices into the log."""
    items: IndexVector

    @classmethod
    def sort(
        cls,
        user: IntVector,
        item: IntVector,
        n_users: int,
        n_items: int,
        pool: Executor,
        *,
        n_slices: int,
    ) -> _CellsByUser:
        """Stable counting sort by user; slices of the log are counted in parallel.

        A slice needs a count for each user, so there are at most as many slices as cells of the
        mean user.
        """
        from unskew.kernels.positions import count_users, group_cells

        n_slices = max(1, min(n_slices, user.size // max(1, n_users)))
        slices = list(_slices(user.size, -(-user.size // n_slices)))
        counts = np.zeros((len(slices), n_users), np.int64)

        def count(cells: slice, counts: npt.NDArray[np.int64]) -> None:
            bad = count_users(user[cells], item[cells], n_items, counts)
            if bad >= 0:
                _refuse_code(cells.start + bad, user, item, n_users, n_items)

        list(pool.map(count, slices, counts))
        ends = np.cumsum(counts.T).reshape(n_users, len(slices)).T
        logged = np.empty((user.size, 2), row_type(user.size))

        def write(cells: slice, starts: npt.NDArray[np.int64]) -> None:
            group_cells(user[cells], item[cells], cells.start, starts, logged)

        list(pool.map(write, slices, np.ascontiguousarray(ends - counts)))
        n_logged = counts.sum(axis=0)
        users = np.flatnonzero(n_logged).astype(np.int32)
        return cls(users, np.append(0, np.cumsum(n_logged[users])), logged[:, 0], logged[:, 1])


@dataclass(frozen=True, slots=True, eq=False)
class _PositionCounter:
    """Counts blocks of users. One thread counts a user, so threads do not change the result."""

    log: _CellsByUser
    n_items: int
    top: int | None
    positions: Positions
    candidates: Candidates | None
    n_hidden: IntVector | None
    """By user: items that are not candidates."""

    def count(self, rows: slice, scores: Scores) -> None:
        """Write the positions of the cells in these rows; hides items that are not candidates."""
        from unskew.kernels.positions import exact_positions, top_positions, uncount_hidden

        log, above, equal = self.log, self.positions.above, self.positions.equal
        if self.candidates is not None:
            self.candidates.hide_others(log.users[rows], scores)
        starts = log.starts[rows.start : rows.stop + 1]
        if self.top is None:
            bad = exact_positions(scores, starts, log.cells, log.items, above, equal)
        else:
            bad = top_positions(scores, starts, log.cells, log.items, self.top, above, equal)
        if bad >= 0:
            user, item = log.users[rows][bad], np.isnan(scores[bad]).argmax()
            raise NanScoreError(int(user), int(item))
        if self.n_hidden is not None:
            n_hidden = self.n_hidden[log.users[rows]]
            uncount_hidden(scores, starts, log.cells, log.items, n_hidden, equal)

    def check(self, rows: slice, returned: Scores) -> Scores:
        """What the scorer returned for these rows of ``log``, contiguous and checked.

        float16 becomes float32, and numbers that are not floats become float64.
        """
        users, scores = self.log.users[rows], np.asarray(returned)
        problem = f"for {users.size} users, starting at user code {users[0]}, the scorer returned"
        if scores.shape != (users.size, self.n_items):
            raise BadPredictionError(
                f"{problem} shape {scores.shape}.",
                parameter="predictions",
                remedy=f"Return shape {(users.size, self.n_items)}: one row for each user and one "
                "column for each of all items.",
            )
        if scores.dtype.kind not in "fiub" or scores.dtype.itemsize > 8:
            raise BadPredictionError(
                f"{problem} {scores.dtype} scores.",
                parameter="predictions",
                remedy="Return float32 or float64, for instance scores.astype(np.float32).",
            )
        is_short = scores.dtype in (np.float16, np.float32)
        return np.ascontiguousarray(scores, np.float32 if is_short else np.float64)


def _score_in_threads(
    factors: Factors, counter: _PositionCounter, blocks: Sequence[slice], pool: Executor
) -> None:
    """Each thread scores a block into its own memory and counts it while it is in the cache.

    A thread uses one BLAS thread.
    """
    memory = local()

    def score_and_count(rows: slice) -> None:
        if not hasattr(memory, "block"):
            memory.block = np.empty((blocks[0].stop, factors.n_items), factors.dtype)
        users = counter.log.users[rows]
        scores = factors(users, out=memory.block[: users.size])
        counter.count(rows, counter.check(rows, scores))

    with single_blas_thread():
        list(pool.map(score_and_count, blocks))


def _score_here(
    scorer: Scorer,
    counter: _PositionCounter,
    blocks: Sequence[slice],
    pool: Executor,
    *,
    n_parts: int,
) -> None:
    """The calling thread scores a block, then all threads count it.

    No block is used after the next call, so a scorer may reuse its memory.
    """
    for rows in blocks:
        scores = counter.check(rows, scorer(counter.log.users[rows]))
        if counter.candidates is not None:
            scores = scores.copy()  # the scorer may own the memory, and items will be hidden in it
        parts = list(_slices(len(scores), -(-len(scores) // n_parts)))
        parts_of_log = (slice(rows.start + part.start, rows.start + part.stop) for part in parts)
        list(pool.map(counter.count, parts_of_log, [scores[part] for part in parts]))


def _slices(size: int, length: int) -> Iterator[slice]:
    """Consecutive slices of ``length`` (at least 1) that cover 0 to ``size``."""
    step = max(1, length)
    return (slice(start, min(start + step, size)) for start in range(0, size, step))


def _refuse_code(
    row: int, user: IntVector, item: IntVector, n_users: int, n_items: int
) -> NoReturn:
    """Raise an error that names the code at this row, which lies outside 0 to size - 1."""
    kind, code, size = "user", user[row], n_users
    if 0 <= code < n_users:
        kind, code, size = "item", item[row], n_items
    raise UniverseError(
        f"{kind} code {code} at row {row} lies outside 0 to {size - 1}.",
        parameter=kind,
        value=code,
        where=f"row {row}",
        remedy=f"Pass codes, not ids, and the number of all {kind}s as n_{kind}s.",
    )


def best_items(
    scorer: Scorer,
    n_best: int,
    n_users: int,
    n_items: int,
    candidates: Candidates | None,
) -> tuple[npt.NDArray[np.intp], Vector]:
    """The ``n_best`` items of each user and their scores, best first: two users x n_best arrays.

    Items that are not candidates of the user get the score -inf, and so come last. Equal scores
    are in the order of the items. Users are scored in blocks.
    """
    items, scores = np.empty((n_users, n_best), np.intp), np.empty((n_users, n_best))
    size = max(1, TOP_CELLS // n_items)
    for first in range(0, n_users, size):
        users = np.arange(first, min(first + size, n_users), dtype=np.int32)
        block = float_array(scorer(users), "scores", BadPredictionError).copy()
        if block.shape != (users.size, n_items):
            raise BadPredictionError(
                f"for {users.size} users the scorer returned shape {block.shape}.",
                parameter="predictions",
                remedy=f"Return shape {(users.size, n_items)}: a row for each user.",
            )
        if np.isnan(block).any():
            user, item = np.argwhere(np.isnan(block))[0]
            raise NanScoreError(int(first + user), int(item))
        if candidates is not None:
            candidates.hide_others(users, block)
        items[users] = best_columns(block, n_best)
        scores[users] = np.take_along_axis(block, items[users], axis=1)
    return items, scores


def rank_cells(
    user: IntVector,
    item: IntVector,
    n_users: int,
    n_items: int,
    scorer: Scorer,
    hidden: CellNumbers,
) -> IntVector:
    """The position of each cell among the items of its user, without those of ``hidden`` cells.

    The item of a cell is never hidden itself. Cells with equal scores get the middle one of their
    positions. An item with the code -1 is not ranked, and comes after all others.
    """
    is_known = item >= 0
    cells = cell_numbers(user[is_known], item[is_known], n_items)
    others = np.setdiff1d(hidden, cells)
    candidates = Candidates(n_users, n_items).without(*group_items(others, n_users, n_items))
    position: IntVector = candidates.count[user] + np.int32(1)
    if cells.size:
        counts = compute_positions(
            user[is_known], item[is_known], n_users, n_items, scorer, candidates=candidates
        )
        position[is_known] = counts.above + (counts.equal + 1) // 2
    return position


def best_columns(scores: Scores, n_best: int) -> npt.NDArray[np.intp]:
    """The columns of the ``n_best`` largest scores of each row, best first.

    Equal scores are in the order of the columns.
    """
    if n_best == scores.shape[1]:
        return np.argsort(-scores, axis=1, kind="stable")
    smallest = np.partition(scores, -n_best, axis=1)[:, -n_best, None]
    is_above, is_tied = scores > smallest, scores == smallest
    n_tied = n_best - is_above.sum(axis=1, keepdims=True)
    is_best = is_above | (is_tied & (np.cumsum(is_tied, axis=1) <= n_tied))
    columns = np.nonzero(is_best)[1].reshape(-1, n_best)
    best_scores = np.take_along_axis(scores, columns, axis=1)
    order = np.argsort(-best_scores, axis=1, kind="stable")
    return np.take_along_axis(columns, order, axis=1)


def items_by_user(log: Ratings) -> SeenItems:
    """The items of each user in the log: where those of a user start, and the item codes."""
    starts, order = group_rows(log.user, log.n_users)
    return starts, log.item[order]
