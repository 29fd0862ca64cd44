"""Sums over cells in blocks that fit into the cache."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations_with_replacement

import numpy as np
import numpy.typing as npt

from unskew.types import IntVector, Matrix, Vector

BLOCK = 1 << 15
"""Shorter blocks spend more time in calls than in sums."""
MIN_RUN = 32
"""Runs of equal codes that are shorter on average are not used."""


def cut_rows(n: int, least: int = 0) -> Iterator[slice]:
    """The blocks of n cells, of at least so many cells; one empty block if there are none."""
    size = max(BLOCK, least)
    return (slice(start, start + size) for start in range(0, max(n, 1), size))


def dot(first: Vector, second: Vector) -> float:
    """The inner product of two vectors.

    BLAS can use several threads, and then the order of addition depends on them: callers use
    :func:`unskew.threads.single_blas_thread`.
    """
    return float(np.dot(first, second))


def sum_products(first: Matrix, second: Matrix) -> Matrix:
    """Sum over cells of the products of columns, K x K, which must be symmetric."""
    size = len(first)
    products = np.empty((size, size))
    for i, j in combinations_with_replacement(range(size), 2):
        products[i, j] = products[j, i] = dot(first[i], second[j])
    return products


def sum_by_code(columns: Matrix, code: IntVector, n: int, factor: Vector | None = None) -> Matrix:
    """K x n: the sum of each column, times ``factor``, over the cells of each code below n."""
    sums = np.zeros((len(columns), n))
    if n == 0:
        return sums
    for rows in cut_rows(code.size, 8 * n):
        codes = code[rows].astype(np.intp)
        starts = _find_runs(codes)
        for total, column in zip(sums, columns, strict=True):
            values = column[rows] if factor is None else column[rows] * factor[rows]
            if starts is None:
                total += np.bincount(codes, weights=values, minlength=n)
            else:
                run_sums = np.add.reduceat(values, starts)
                total += np.bincount(codes[starts], weights=run_sums, minlength=n)
    return sums


def _find_runs(codes: npt.NDArray[np.intp]) -> npt.NDArray[np.intp] | None:
    """Where runs of equal codes start, as in a log that is sorted by user; None if they are short.

    Runs are added up several times as fast as single cells.
    """
    is_start = np.ones(codes.size, dtype=bool)
    np.not_equal(codes[1:], codes[:-1], out=is_start[1:])
    if np.count_nonzero(is_start) * MIN_RUN > codes.size or not codes.size:
        return None
    return np.flatnonzero(is_start)


def take_columns(table: Matrix, index: npt.NDArray[np.integer]) -> Matrix:
    """``table[:, index]``: K x cells. Every index is below the number of columns."""
    columns = np.empty((len(table), index.size))
    for rows in cut_rows(index.size):
        codes = index[rows].astype(np.intp, copy=False)
        for column, values in zip(columns, table, strict=True):
            values.take(codes, out=column[rows], mode="clip")
    return columns


def add_pairs(
    first: Matrix,
    first_index: npt.NDArray[np.integer],
    second: Matrix,
    second_index: npt.NDArray[np.integer],
) -> Matrix:
    """``first[:, first_index] + second[:, second_index]``: K x cells."""
    sums = take_columns(first, first_index)
    add_columns(sums, second, second_index)
    return sums


def add_columns(columns: Matrix, table: Matrix, index: npt.NDArray[np.integer]) -> None:
    """Add ``table[:, index]`` to the columns, in place."""
    for rows in cut_rows(index.size):
        columns[:, rows] += take_columns(table, index[rows])
