"""Conjugate gradients for the same ridge regressions as in :mod:`unskew.kernels.rows`, from where each row stands.

A Gram matrix takes d^2 operations a cell and its elimination d^3 a row; a step along a conjugate direction takes 4 d a cell.
Where a row is solved again and again while its partners move a little, a few steps do as much for it as the solution.
"""

from __future__ import annotations

import numpy as np

from unskew.kernels.compiling import compiled
from unskew.kernels.rows import AHEAD, PANEL, Cells, Floats, Number, end_of_fetching, padded_width
from unskew.kernels.vectors import BLOCK, WIDEST, copy_scaled, dot, fetch, leave

SOLUTION, FALL, SCALED, DIRECTION, CHANGE, SCALE = range(6)
"""Lines of a row: its unknowns; half the way that the sum falls there; that, scaled; the direction; what a step changes of the
fall; and the scale of each unknown, 0 in columns beyond them, whatever else a partner's line has there."""


@compiled
def line_width(n_solved: int, itemsize: int) -> int:
    """Columns of a line: whole vectors for :func:`leave`, and whole blocks for everything else."""
    step = max(WIDEST // (8 * itemsize), BLOCK)
    return -(-n_solved // step) * step


@compiled
def begin_row(
    first: int,
    n: int,
    cells: Cells,
    constant: Number,
    partners: Floats,
    n_solved: int,
    has_offset: bool,
    panel: Floats,
    targets: Floats,
    lines: Floats,
) -> tuple[float, float]:
    """Fill ``panel[k] = root_weight * x`` and ``targets[k] = root_weight * t``, zeros up to a multiple of 8, and find the fall.

    Returns the sum of squares, and that of the weights.
    """
    entries, squares, total = cells[1], 0.0, 0.0
    end, n_read = end_of_fetching(entries, partners), n_solved + has_offset
    lines[FALL] = 0
    for start in range(0, n, PANEL):
        for k in range(start, min(start + PANEL, n)):
            if first + k < end:
                fetch(partners, np.int64(entries[first + k + AHEAD].partner), n_read)
            scale, partner = entries[first + k].root_weight, np.int64(entries[first + k].partner)
            copy_scaled(partners, partner, scale, panel, k)
            t = entries[first + k].rating - constant
            if has_offset:
                t -= partners[partner, n_solved]
            targets[k] = scale * t
            total += np.float64(scale) * np.float64(scale)
        if start + PANEL >= n:
            panel[n : padded_width(n)], targets[n : padded_width(n)] = 0, 0
        squares += np.float64(
            leave(panel, start, min(start + PANEL, padded_width(n)), targets, lines, SOLUTION, FALL)
        )
    return squares, total


@compiled
def take_steps(
    n_steps: int, panel: Floats, n: int, zeros: Floats, penalty: Floats, lines: Floats
) -> float:
    """Move the solution along conjugate directions, the first of which is there; returns by how much the penalised sum falls."""
    fallen, width = 0.0, panel.shape[1]
    slope: Number = dot(lines, FALL, lines, SCALED)
    for _ in range(n_steps):
        for j in range(width):
            lines[CHANGE, j] = -penalty[j] * lines[DIRECTION, j]
        leave(panel, 0, n, zeros, lines, DIRECTION, CHANGE)
        bend = -dot(lines, DIRECTION, lines, CHANGE)
        if not bend > 0:
            break
        step = slope / bend
        fallen += np.float64(step * slope)
        for j in range(width):
            lines[SOLUTION, j] += step * lines[DIRECTION, j]
            lines[FALL, j] += step * lines[CHANGE, j]
            lines[SCALED, j] = lines[SCALE, j] * lines[FALL, j]
        before, slope = slope, dot(lines, FALL, lines, SCALED)
        for j in range(width):
            lines[DIRECTION, j] = lines[SCALED, j] + slope / before * lines[DIRECTION, j]
    return fallen


@compiled
def improve_rows(
    rows: tuple[int, int],
    cells: Cells,
    constant: Number,
    partners: Floats,
    spread: Floats,
    ridge: Floats,
    row_ridge: Floats,
    has_offset: bool,
    n_steps: int,
    longest: int,
    solutions: Floats,
    minima: Floats,
) -> None:
    """Take ``n_steps`` from where ``solutions`` stand; ``minima`` gets what each row's penalised sum has come to.

    ``spread`` has the mean square of each column of the partners: unknowns are scaled as if every row met all of them. With
    ``has_offset`` the last unknown is the row's offset, which is solved for alone in the end, so that the errors of a row add up
    to its penalty as they do at the solution. Rows without a cell get zeros; those of more than ``longest`` cells are left alone.
    """
    starts = cells[0]
    n_solved, dtype, last = ridge.size, partners.dtype, ridge.size - 1
    width, most = line_width(n_solved, partners.itemsize), 0
    for row in range(rows[0], rows[1]):
        n = starts[row + 1] - starts[row]
        most = max(most, padded_width(n) if n <= longest else 0)
    panel = np.empty(
        (padded_width(longest), width), dtype
    )  # as large for every call, so that the next takes the same place
    panel[:most, partners.shape[1] :] = 0
    targets, zeros = np.zeros(most, dtype), np.zeros(most, dtype)
    lines, penalty = np.zeros((6, width), dtype), np.zeros(width, dtype)
    for row in range(rows[0], rows[1]):
        first, n = starts[row], starts[row + 1] - starts[row]
        if n > longest:
            continue
        if n == 0:
            solutions[row, :n_solved] = 0
            continue
        for j in range(n_solved):
            lines[SOLUTION, j] = solutions[row, j]
        value, total = begin_row(
            first, n, cells, constant, partners, n_solved, has_offset, panel, targets, lines
        )
        for j in range(n_solved):
            penalty[j] = row_ridge[row] * ridge[j]
            lines[SCALE, j] = 1 / (total * spread[j] + penalty[j])
        for j in range(width):
            value += np.float64(penalty[j] * lines[SOLUTION, j] * lines[SOLUTION, j])
            lines[FALL, j] -= penalty[j] * lines[SOLUTION, j]
            lines[SCALED, j] = lines[SCALE, j] * lines[FALL, j]
            lines[DIRECTION, j] = lines[SCALED, j]
        value -= take_steps(n_steps, panel, padded_width(n), zeros, penalty, lines)
        if has_offset:
            bend = total + penalty[last]
            lines[SOLUTION, last] += lines[FALL, last] / bend
            value -= np.float64(lines[FALL, last] * lines[FALL, last] / bend)
        for j in range(n_solved):
            solutions[row, j] = lines[SOLUTION, j]
        minima[row] = value
