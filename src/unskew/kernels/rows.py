"""Weighted ridge regressions, one for each row of a log, and the gradient of what they leave.

A row (a user, say) has cells ``starts[row]:starts[row + 1]``, each with the number of its partner (an item) and ``root_weight``, the
square root of its weight. A partner's line is ``[factors, 1, offset, 0 ...]`` with offsets, ``[factors, 0 ...]`` without: the first
``n_solved`` entries are the design x, the next is subtracted from the target. Per row this solves

    min_z  sum_k w_k (t_k - x_k . z)^2 + sum_j ridge_j z_j^2,      t_k = rating_k - constant - offset_k.

``[x, t]`` scaled by root_weight fills a panel; its Gram matrix holds normal matrix, right-hand side and sum w t^2 at once, and after
elimination the last corner is the minimum itself.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from numba import njit

from unskew.kernels.vectors import add_scaled, copy_scaled, dot, gram_tile

PANEL = 96
"""Cells in a panel: in float32 at 20 factors it stays in the first-level cache."""
BLOCK = 8
"""Widths are multiples of it, and rows of the Gram matrix are worked through by so many."""

TILE_4_3, TILE_4_2, TILE_8_1 = gram_tile(4, 3), gram_tile(4, 2), gram_tile(8, 1)

compiled = njit(cache=True, nogil=True, error_model="numpy")


def padded_width(n_columns: int) -> int:
    """The next multiple of 8."""
    return -(-n_columns // BLOCK) * BLOCK


@compiled
def add_gram(panel: npt.NDArray, n: int, lanes: int, gram: npt.NDArray) -> None:
    """The upper triangle of gram += panel' panel over the first ``n`` lines, in register tiles."""
    width = panel.shape[1]
    for top in range(0, width, BLOCK):
        left = top
        while width - left >= 3 * lanes:
            TILE_4_3(panel, n, top, left, gram)
            TILE_4_3(panel, n, top + 4, left, gram)
            left += 3 * lanes
        if width - left >= 2 * lanes:
            TILE_4_2(panel, n, top, left, gram)
            TILE_4_2(panel, n, top + 4, left, gram)
        elif width - left >= lanes:
            TILE_8_1(panel, n, top, left, gram)


@compiled
def eliminate(gram: npt.NDArray, n_solved: int) -> bool:
    """Gaussian elimination of the first ``n_solved`` columns in the upper triangle, the rest riding along; False if not definite."""
    for pivot in range(n_solved):
        if not gram[pivot, pivot] > 0:
            return False
        inverse = -1 / gram[pivot, pivot]
        for row in range(pivot + 1, n_solved + 1):
            add_scaled(gram, pivot, gram[pivot, row] * inverse, gram, row, row // BLOCK * BLOCK)
    return True


@compiled
def substitute_back(gram: npt.NDArray, n_solved: int, solution: npt.NDArray) -> None:
    """The solution of an eliminated system whose right-hand side is column ``n_solved``."""
    for row in range(n_solved - 1, -1, -1):
        value = gram[row, n_solved]
        for column in range(row + 1, n_solved):
            value -= gram[row, column] * solution[column]
        solution[row] = value / gram[row, row]


@compiled
def fill_panel(
    first: int,
    n: int,
    partner: npt.NDArray,
    root_weight: npt.NDArray,
    rating: npt.NDArray,
    constant: float,
    partners: npt.NDArray,
    n_solved: int,
    panel: npt.NDArray,
) -> None:
    """panel[k] = root_weight * [x, t, ...] for cells ``first`` to ``first + n``."""
    for k in range(n):
        cell = first + k
        scale = root_weight[cell]
        copy_scaled(partners, np.int64(partner[cell]), scale, panel, k)
        panel[k, n_solved] = scale * (rating[cell] - constant) - panel[k, n_solved]


@compiled
def solve_rows(
    rows: npt.NDArray,
    starts: npt.NDArray,
    partner: npt.NDArray,
    root_weight: npt.NDArray,
    rating: npt.NDArray,
    constant: float,
    partners: npt.NDArray,
    ridge: npt.NDArray,
    lanes: int,
    solutions: npt.NDArray,
    minima: npt.NDArray,
) -> int:
    """Solve rows ``rows[0]`` to ``rows[1]``; ``minima`` gets each penalised minimum. Returns a row without a solution, or -1."""
    n_solved, width = ridge.size, partners.shape[1]
    panel, gram = np.zeros((PANEL, width), partners.dtype), np.empty((width, width), partners.dtype)
    for row in range(rows[0], rows[1]):
        gram[:] = 0
        for first in range(starts[row], starts[row + 1], PANEL):
            n = min(PANEL, starts[row + 1] - first)
            fill_panel(first, n, partner, root_weight, rating, constant, partners, n_solved, panel)
            add_gram(panel, n, lanes, gram)
        for j in range(n_solved):
            gram[j, j] += ridge[j]
        if starts[row + 1] == starts[row]:
            solutions[row, :n_solved] = 0
        elif eliminate(gram, n_solved):
            substitute_back(gram, n_solved, solutions[row])
        else:
            return row
        minima[row] = gram[n_solved, n_solved]
    return -1
