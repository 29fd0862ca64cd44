"""Weighted means over the nearest neighbours of many pairs."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from unskew.kernels.compiling import compiled
from unskew.types import IntVector, Matrix, Vector

Offsets: TypeAlias = npt.NDArray[np.int64]


@compiled
def add_up_neighbors(
    similarity: Matrix,
    x: IntVector,
    y: IntVector,
    starts: Offsets,
    neighbor: IntVector,
    value: Vector,
    n_neighbors: int,
) -> Matrix:
    """Pairs x 3: sum of s, sum of s times value, and number, over the neighbours with s > 0.

    The candidates of a pair are ``neighbor[starts[y]:starts[y + 1]]``, with similarities s to x.
    The ``n_neighbors`` most similar ones count, of equally similar ones the first.
    """
    results = np.zeros((x.size, 3))
    nearest, values = np.empty(n_neighbors), np.empty(n_neighbors)
    for pair in range(x.size):
        row, n = similarity[x[pair]], 0
        first, last = starts[y[pair]], starts[y[pair] + 1]
        has_choice = last - first > n_neighbors
        for index in range(first, last):
            s = row[neighbor[index]]
            if not s > 0 or (n == n_neighbors and s <= nearest[n - 1]):
                continue
            position = n if n < n_neighbors else n - 1
            while has_choice and position > 0 and nearest[position - 1] < s:
                nearest[position], values[position] = nearest[position - 1], values[position - 1]
                position -= 1
            nearest[position], values[position] = s, value[index]
            n = min(n + 1, n_neighbors)
        for position in range(n):
            results[pair, 0] += nearest[position]
            results[pair, 1] += nearest[position] * values[position]
        results[pair, 2] = n
    return results
