"""Sums over cells in blocks that fit into the cache."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations_with_replacement

import numpy as np
import numpy.typing as npt

from unskew.types import IntVector, Matrix, Vector

BLOCK = 1 << 13
"""BLAS uses several threads for longer vectors, and then the order of addition depends on them."""


def cut_rows(n: int, least: int = 0) -> Iterator[slice]:
    """The blocks of n cells, of at least so many cells; one empty block if there are none."""
    size = max(BLOCK, least)
    return (slice(start, start + size) for start in range(0, max(n, 1), size))


def dot(first: Vector, second: Vector) -> float:
    """The inner product of two vectors of at most BLOCK numbers."""
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
        for total, column in zip(sums, columns, strict=True):
            weights = column[rows] if factor is None else column[rows] * factor[rows]
            total += np.bincount(codes, weights=weights, minlength=n)
    return sums


def take_columns(table: Matrix, index: npt.NDArray[np.integer]) -> Matrix:
    """``table[:, index]``: K x cells, by reading the K numbers of each cell at once."""
    rows_of_table = np.ascontiguousarray(table.T)
    columns = np.empty((len(table), index.size))
    for rows in cut_rows(index.size):
        columns[:, rows] = rows_of_table.take(index[rows], axis=0).T
    return columns


def add_columns(columns: Matrix, table: Matrix, index: npt.NDArray[np.integer]) -> None:
    """Add ``table[:, index]`` to the columns, in place."""
    rows_of_table = np.ascontiguousarray(table.T)
    for rows in cut_rows(index.size):
        columns[:, rows] += rows_of_table.take(index[rows], axis=0).T
