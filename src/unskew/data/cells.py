"""Cells by number, rows grouped by code, and samples of cells.

The cell of user code u and item code i has the number ``u * n_items + i``, so ascending numbers
list the matrix row by row. This module is the only place that computes these numbers, samples
them, and sorts the rows of a log by user or item (as in a CSR matrix).
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt

from unskew.types import BoolVector, IntVector

if TYPE_CHECKING:
    from unskew.data.ratings import Ratings

CellNumbers: TypeAlias = npt.NDArray[np.int64]
RowStarts: TypeAlias = npt.NDArray[np.int64]
"""Group c has the entries ``starts[c]:starts[c + 1]``; the last entry is the number of rows."""
RowNumbers: TypeAlias = npt.NDArray[np.intp]

BLOCK_CELLS = 1 << 20


def cell_numbers(user: npt.NDArray[Any], item: npt.NDArray[Any], n_items: int) -> CellNumbers:
    """``u * n_items + i`` for pairs of codes, as int64.

    >>> cell_numbers(np.array([0, 2]), np.array([1, 0]), 3).tolist()
    [1, 6]
    """
    cells: CellNumbers = user.astype(np.int64) * n_items + item
    return cells


def user_and_item(cells: CellNumbers, n_items: int) -> tuple[IntVector, IntVector]:
    """User and item codes of cell numbers: the inverse of :func:`cell_numbers`.

    >>> [codes.tolist() for codes in user_and_item(np.array([1, 6]), 3)]
    [[0, 2], [1, 0]]
    """
    user, item = np.divmod(cells, n_items)
    return user.astype(np.int32), item.astype(np.int32)


def hash_cells(cells: CellNumbers, start: np.uint64) -> npt.NDArray[np.uint64]:
    """64 bits that look random for each cell number, by SplitMix64."""
    mixed = cells.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15) + start
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
    mixed ^= mixed >> np.uint64(31)
    return mixed


def fingerprint_cells(cells: CellNumbers) -> str:
    """A text that is the same for the same set of cells in any order, and else nearly never."""
    return f"{len(cells)}-{int(hash_cells(cells, np.uint64(1)).sum()):016x}"


def observed_cells(log: Ratings) -> CellNumbers:
    """The cell numbers of a log in ascending order."""
    cells = cell_numbers(log.user, log.item, log.n_items)
    return cells if (cells[1:] > cells[:-1]).all() else np.sort(cells)


def find_cells(cells: CellNumbers, sorted_cells: CellNumbers) -> RowNumbers:
    """The position of each of ``cells`` in ``sorted_cells``, -1 if it is not among them.

    >>> find_cells(np.array([7, 3, 1]), np.array([1, 3, 5])).tolist()
    [-1, 1, 0]
    """
    if sorted_cells.size == 0:
        return np.full(cells.size, -1)
    position = _nearest_positions(cells, sorted_cells)
    return np.where(sorted_cells[position] == cells, position, -1)


def is_among(cells: CellNumbers, sorted_cells: CellNumbers) -> BoolVector:
    """Whether each of ``cells`` is one of ``sorted_cells``."""
    if sorted_cells.size == 0:
        return np.zeros(cells.size, dtype=bool)
    return np.asarray(sorted_cells[_nearest_positions(cells, sorted_cells)] == cells)


def _nearest_positions(cells: CellNumbers, sorted_cells: CellNumbers) -> RowNumbers:
    """Cells are searched in ascending order: in a large log that is ten times as fast."""
    order = np.argsort(cells)
    position = np.empty(cells.size, np.intp)
    position[order] = np.searchsorted(sorted_cells, cells[order])
    return np.minimum(position, sorted_cells.size - 1)


def find_duplicates(cells: CellNumbers) -> tuple[int, int, int]:
    """How many rows repeat the cell of an earlier row, the first of them, and the earlier row.

    All are 0 if every cell occurs once.

    >>> find_duplicates(np.array([5, 7, 5, 5]))
    (2, 2, 0)
    """
    in_order = cells if (cells[1:] > cells[:-1]).all() else np.sort(cells)
    n_duplicates = int((in_order[1:] == in_order[:-1]).sum())
    if n_duplicates == 0:
        return 0, 0, 0
    _, first, group = np.unique(cells, return_index=True, return_inverse=True)
    row = int((first[group] != np.arange(cells.size)).argmax())
    return n_duplicates, row, int(first[group[row]])


def last_rows(cells: CellNumbers) -> RowNumbers:
    """The row of the last occurrence of each cell, in ascending order.

    >>> last_rows(np.array([5, 7, 5])).tolist()
    [1, 2]
    """
    _, from_the_end = np.unique(cells[::-1], return_index=True)
    return np.sort(cells.size - 1 - from_the_end)


def drop_observed(cells: CellNumbers, log: Ratings) -> CellNumbers:
    """Those of ``cells`` that the log does not contain, in the same order."""
    return np.compress(~is_among(cells, observed_cells(log)), cells)


def all_or_sampled_cells(n_cells: int, max_cells: int, rng: np.random.Generator) -> CellNumbers:
    """Every cell once if there are at most ``max_cells``, else ``max_cells`` uniform draws.

    The draws are with replacement, from observed and unobserved cells alike.
    """
    return rng.integers(n_cells, size=max_cells) if n_cells > max_cells else np.arange(n_cells)


def iterate_cells(
    n_users: int, n_items: int, *, max_cells: int, rng: np.random.Generator
) -> Iterator[CellNumbers]:
    """The cells of :func:`all_or_sampled_cells` in the same order, about a million at a time.

    If all cells are listed, each block consists of whole users.
    """
    n_cells = n_users * n_items
    is_sampled = n_cells > max_cells
    size = BLOCK_CELLS if is_sampled else max(1, BLOCK_CELLS // n_items) * n_items
    for first in range(0, min(n_cells, max_cells), size):
        last = min(first + size, n_cells, max_cells)
        yield rng.integers(n_cells, size=last - first) if is_sampled else np.arange(first, last)


def sample_unobserved_cells(
    log: Ratings, n_expected: float, rng: np.random.Generator
) -> CellNumbers:
    """About ``n_expected`` distinct unobserved cells, uniform, in ascending order.

    Cells are drawn with replacement, then duplicates and observed cells are dropped. The number
    of draws is such that ``n_expected`` distinct unobserved cells remain on average. Given their
    number, they are a uniform sample without replacement. All unobserved cells are returned if
    ``n_expected`` is nine tenths of them or more. There must be at least one.
    """
    share = min(n_expected / (log.n_cells - len(log)), 1 - 1e-9)
    if share >= 0.9:
        return drop_observed(np.arange(log.n_cells), log)
    n_draws = max(1, round(float(np.log1p(-share) / np.log1p(-1 / log.n_cells))))
    return drop_observed(sort_distinct(rng.integers(log.n_cells, size=n_draws)), log)


def sort_distinct(cells: CellNumbers) -> CellNumbers:
    """``np.unique``, but sorted in place: there may be hundreds of millions of cells.

    >>> sort_distinct(np.array([7, 1, 7])).tolist()
    [1, 7]
    """
    if (cells[1:] > cells[:-1]).all():
        return cells
    cells.sort()
    is_first = np.empty(cells.size, dtype=bool)
    is_first[:1] = True
    np.not_equal(cells[1:], cells[:-1], out=is_first[1:])
    return np.compress(is_first, cells)


def row_starts(codes: npt.NDArray[np.integer], n: int) -> RowStarts:
    """Where each of the codes 0 to n - 1 starts when rows are sorted by code; n + 1 entries.

    >>> row_starts(np.array([2, 0, 2]), 3).tolist()
    [0, 1, 1, 3]
    """
    starts = np.zeros(n + 1, np.int64)
    np.cumsum(np.bincount(codes, minlength=n), out=starts[1:])
    return starts


def group_rows(codes: npt.NDArray[np.integer], n: int) -> tuple[RowStarts, RowNumbers]:
    """Rows sorted by code, as in a CSR matrix; rows with the same code keep their order.

    The rows with code c are ``order[starts[c]:starts[c + 1]]``.

    >>> starts, order = group_rows(np.array([2, 0, 2]), 3)
    >>> starts.tolist(), order.tolist()
    ([0, 1, 1, 3], [1, 0, 2])
    """
    return row_starts(codes, n), np.argsort(codes, kind="stable")


def split_groups(starts: RowStarts, n_parts: int) -> list[tuple[int, int]]:
    """At most ``n_parts`` ranges of consecutive groups with about equal numbers of rows.

    >>> split_groups(np.array([0, 4, 5, 6, 8]), 2)
    [(0, 1), (1, 4)]
    """
    cuts = np.searchsorted(starts, np.linspace(0, starts[-1], n_parts + 1)[1:-1])
    return list(pairwise(np.unique(np.concatenate([[0], cuts, [starts.size - 1]])).tolist()))


def describe_duplicates(count: int) -> str:
    """How errors and notes count rows whose cell occurs in an earlier row.

    >>> describe_duplicates(1)
    '1 row repeats a (user, item) of an earlier row'
    """
    verb = "row repeats" if count == 1 else "rows repeat"
    return f"{count:,} {verb} a (user, item) of an earlier row"
