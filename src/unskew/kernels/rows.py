"""Weighted ridge regressions, one for each row of a log, and the gradient of what they leave.

A row (a user, say) has cells ``starts[row]`` to ``starts[row + 1]``; each has a partner (an item), a rating, and the square root
of its weight. Two layouts of a line of numbers, of a width that is a multiple of 8, zeros at the end:

    a partner   [w, 1, b]   with offsets     [w]   without
    a solution  [v, a, 1]   with offsets     [v]   without

so that the product of the two is v . w + a + b, and one is the other's gradient direction. Per row, with x the first ``n_solved``
entries of the partner's line and t = rating - constant - b,

    min_z  sum w (t - x . z)^2 + sum_j ridge_j z_j^2.

``[x, t]`` scaled by the root of the weight fills a panel; the panel's Gram matrix holds normal matrix, right-hand side and
sum w t^2 at once, and after elimination its last corner is the minimum itself. Eight rows are eliminated side by side.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from unskew.kernels.compiling import compiled
from unskew.kernels.vectors import (
    BLOCK,
    SIDE_BY_SIDE,
    add_scaled,
    copy_scaled,
    dot,
    eliminate_lanes,
    gram_tile,
    invert_lanes,
    solve_lanes,
)

Floats: TypeAlias = npt.NDArray[np.floating]
Offsets: TypeAlias = npt.NDArray[np.int64]
Codes: TypeAlias = npt.NDArray[np.int32]
Number: TypeAlias = float | np.floating[Any]
Cells: TypeAlias = tuple[Offsets, Codes, Floats, Floats]
"""Where rows start, and each cell's partner, root of its weight, and rating."""

PANEL = 96
"""Cells in a panel: at 20 factors in float32 it stays in the first-level cache."""

TILE_4_3, TILE_4_2, TILE_8_1 = gram_tile(4, 3), gram_tile(4, 2), gram_tile(8, 1)


def padded_width(n_columns: int) -> int:
    """The next multiple of 8."""
    return -(-n_columns // BLOCK) * BLOCK


@compiled
def add_gram(panel: Floats, n: int, lanes: int, gram: Floats) -> None:
    """The upper triangle of gram += panel' panel over the first ``n`` lines, in tiles that stay in registers."""
    width = panel.shape[1]
    for top in range(0, width, BLOCK):
        left = top
        while width - left >= 3 * lanes:
            TILE_4_3(panel, n, top, left, gram)
            TILE_4_3(panel, n, top + 4, left, gram)
            left += 3 * lanes
        if width - left == 2 * lanes:
            TILE_4_2(panel, n, top, left, gram)
            TILE_4_2(panel, n, top + 4, left, gram)
        elif width - left == lanes:
            TILE_8_1(panel, n, top, left, gram)


@compiled
def fill_panel(first: int, n: int, cells: Cells, constant: Number, partners: Floats, n_solved: int, panel: Floats) -> None:
    """panel[k] = root_weight * [x, t, ...] for the ``n`` cells from ``first`` on."""
    _, partner, root_weight, rating = cells
    for k in range(n):
        scale = root_weight[first + k]
        copy_scaled(partners, np.int64(partner[first + k]), scale, panel, k)
        panel[k, n_solved] = scale * (rating[first + k] - constant) - panel[k, n_solved]


@compiled
def put_aside(gram: Floats, ridge: Floats, lane: int, systems: Floats) -> None:
    """The upper triangle of a system, its ridge added, into one lane of the systems side by side."""
    n_solved = np.uint64(ridge.size)
    line = np.uint64(0)
    for row in range(n_solved + np.uint64(1)):
        systems[line, lane] = gram[row, row] + (ridge[row] if row < n_solved else 0)
        line += np.uint64(1)
        for column in range(row + np.uint64(1), n_solved + np.uint64(1)):
            systems[line, lane] = gram[row, column]
            line += np.uint64(1)


@compiled
def solve_side_by_side(systems: Floats, n_solved: int, inverses: Floats, solution: Floats) -> None:
    """Gaussian elimination and back substitution in all lanes at once; lines are the rows of upper triangles, packed."""
    pivot_line = 0
    for pivot in range(n_solved):
        invert_lanes(systems, pivot_line, inverses, pivot)
        line = pivot_line
        for row in range(pivot + 1, n_solved + 1):
            line += n_solved + 2 - row
            eliminate_lanes(systems, line, pivot_line + row - pivot, n_solved + 1 - row, inverses, pivot)
        pivot_line += n_solved + 1 - pivot
    line = pivot_line
    for row in range(n_solved - 1, -1, -1):
        line -= n_solved + 1 - row
        solve_lanes(systems, line + n_solved - row, line + 1, n_solved - 1 - row, inverses, solution, row)


@compiled
def solve_rows(
    rows: tuple[int, int],
    cells: Cells,
    constant: Number,
    partners: Floats,
    ridge: Floats,
    lanes: int,
    solutions: Floats,
    minima: Floats,
) -> int:
    """Solve rows ``rows[0]`` to ``rows[1]``; ``minima`` gets each penalised minimum. Returns a row without a solution, or -1."""
    starts = cells[0]
    n_solved, width = ridge.size, partners.shape[1]
    panel, gram = np.zeros((PANEL, width), partners.dtype), np.empty((width, width), partners.dtype)
    systems = np.empty(((n_solved + 1) * (n_solved + 2) // 2, SIDE_BY_SIDE), partners.dtype)
    inverses, solution = np.ones((n_solved, SIDE_BY_SIDE), partners.dtype), np.zeros((n_solved, SIDE_BY_SIDE), partners.dtype)
    systems[:] = 1
    for batch in range(rows[0], rows[1], SIDE_BY_SIDE):
        n_rows = min(SIDE_BY_SIDE, rows[1] - batch)
        for lane in range(n_rows):
            row = batch + lane
            gram[:] = 0
            for first in range(starts[row], starts[row + 1], PANEL):
                n = min(PANEL, starts[row + 1] - first)
                fill_panel(first, n, cells, constant, partners, n_solved, panel)
                add_gram(panel, n, lanes, gram)
            put_aside(gram, ridge, lane, systems)
        solve_side_by_side(systems, n_solved, inverses, solution)
        for lane in range(n_rows):
            row = batch + lane
            empty = starts[row] == starts[row + 1]
            for j in range(n_solved):
                if not (empty or inverses[j, lane] > 0):
                    return row
                solutions[row, j] = 0 if empty else solution[j, lane]
            minima[row] = 0 if empty else systems[systems.shape[0] - 1, lane]
    return -1


@compiled
def add_gradient(
    rows: tuple[int, int],
    cells: Cells,
    constant: Number,
    partners: Floats,
    solutions: Floats,
    is_absolute: bool,
    gradient: Floats,
) -> float:
    """gradient[partner] += dl/de * -solution, in the layout of a partner. Returns the loss, sum w e^2 or sum w abs(e).

    A partner's ``b`` gets the plain sum of -dl/de; the place of its 1 gets nothing of use. The subgradient of abs(e) at 0 is 0.
    """
    starts, partner, root_weight, rating = cells
    loss = 0.0
    for row in range(rows[0], rows[1]):
        for cell in range(starts[row], starts[row + 1]):
            i = np.int64(partner[cell])
            weight = root_weight[cell] * root_weight[cell]
            error = rating[cell] - constant - dot(solutions, row, partners, i)
            slope = weight * np.sign(error) if is_absolute else 2 * weight * error
            loss += weight * (abs(error) if is_absolute else error * error)
            add_scaled(solutions, row, -slope, gradient, i, 0)
    return loss


@compiled
def reweigh(
    rows: tuple[int, int],
    cells: Cells,
    constant: Number,
    partners: Floats,
    solutions: Floats,
    smallest: Number,
    new_root_weight: Floats,
) -> None:
    """New weights w / (2 max(abs(e), smallest)): the parabola above w abs(e) that touches it at the present error."""
    starts, partner, root_weight, rating = cells
    for row in range(rows[0], rows[1]):
        for cell in range(starts[row], starts[row + 1]):
            error = abs(rating[cell] - constant - dot(solutions, row, partners, np.int64(partner[cell])))
            new_root_weight[cell] = root_weight[cell] / np.sqrt(2 * max(error, smallest))
