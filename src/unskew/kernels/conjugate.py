"""Conjugate gradients for the ridge regressions of :mod:`unskew.kernels.rows`.

A Gram matrix takes d^2 operations for each cell and its elimination d^3 for each row; a conjugate
gradient step takes 4 d for each cell. When a row is solved again and again while the opposite rows
change little, a few steps from its last solution gain as much as the exact solution.
"""

from __future__ import annotations

import numpy as np

from unskew.kernels.compiling import compiled
from unskew.kernels.rows import (
    PANEL_CELLS,
    PREFETCH_CELLS,
    Cells,
    Floats,
    Number,
    last_prefetch,
    padded_width,
)
from unskew.kernels.vectors import (
    BLOCK,
    MAX_VECTOR_BITS,
    copy_scaled,
    dot,
    prefetch_for_read,
    subtract_projection,
)

SOLUTION, RESIDUAL, PRECONDITIONED, DIRECTION, CHANGE, SCALE = range(6)
"""The vectors of a row: its unknowns; the residual of the normal equations, which is minus half the
gradient; the scaled residual; the search direction; the change of the residual along it; and the
scale of each unknown, which is 0 in the columns beyond the unknowns."""


@compiled
def vector_width(n_unknowns: int, itemsize: int) -> int:
    """Columns of the vectors of a row: a multiple of the widest vectors, and of 8."""
    step = max(MAX_VECTOR_BITS // (8 * itemsize), BLOCK)
    return -(-n_unknowns // step) * step


@compiled
def start_row(
    first: int,
    n: int,
    cells: Cells,
    global_offset: Number,
    opposite_rows: Floats,
    n_unknowns: int,
    has_offset: bool,
    panel: Floats,
    targets: Floats,
    vectors: Floats,
) -> tuple[float, float]:
    """Fill the panel and compute the residual of the normal equations.

    ``panel[k] = root_weight * x`` and ``targets[k] = root_weight * t``, with zeros up to a multiple
    of 8. Returns the sum of squared errors and the sum of weights.
    """
    entries, squares, total_weight = cells[1], 0.0, 0.0
    end, n_read = last_prefetch(entries, opposite_rows), n_unknowns + has_offset
    vectors[RESIDUAL] = 0
    for start in range(0, n, PANEL_CELLS):
        for k in range(start, min(start + PANEL_CELLS, n)):
            if first + k < end:
                prefetch_for_read(
                    opposite_rows, np.int64(entries[first + k + PREFETCH_CELLS].opposite), n_read
                )
            scale, opposite = entries[first + k].root_weight, np.int64(entries[first + k].opposite)
            copy_scaled(opposite_rows, opposite, scale, panel, k)
            t = entries[first + k].rating - global_offset
            if has_offset:
                t -= opposite_rows[opposite, n_unknowns]
            targets[k] = scale * t
            total_weight += np.float64(scale) * np.float64(scale)
        if start + PANEL_CELLS >= n:
            panel[n : padded_width(n)], targets[n : padded_width(n)] = 0, 0
        squares += np.float64(
            subtract_projection(
                panel,
                start,
                min(start + PANEL_CELLS, padded_width(n)),
                targets,
                vectors,
                SOLUTION,
                RESIDUAL,
            )
        )
    return squares, total_weight


@compiled
def take_steps(
    n_steps: int, panel: Floats, n: int, zeros: Floats, penalty: Floats, vectors: Floats
) -> float:
    """Take conjugate gradient steps; DIRECTION holds the first direction.

    Returns the decrease of the penalised sum of squares.
    """
    decrease, width = 0.0, panel.shape[1]
    product: Number = dot(vectors, RESIDUAL, vectors, PRECONDITIONED)
    for _ in range(n_steps):
        for j in range(width):
            vectors[CHANGE, j] = -penalty[j] * vectors[DIRECTION, j]
        subtract_projection(panel, 0, n, zeros, vectors, DIRECTION, CHANGE)
        curvature = -dot(vectors, DIRECTION, vectors, CHANGE)
        if not curvature > 0:
            break
        step = product / curvature
        decrease += np.float64(step * product)
        for j in range(width):
            vectors[SOLUTION, j] += step * vectors[DIRECTION, j]
            vectors[RESIDUAL, j] += step * vectors[CHANGE, j]
            vectors[PRECONDITIONED, j] = vectors[SCALE, j] * vectors[RESIDUAL, j]
        previous, product = product, dot(vectors, RESIDUAL, vectors, PRECONDITIONED)
        for j in range(width):
            vectors[DIRECTION, j] = (
                vectors[PRECONDITIONED, j] + product / previous * vectors[DIRECTION, j]
            )
    return decrease


@compiled
def improve_rows(
    rows: tuple[int, int],
    cells: Cells,
    global_offset: Number,
    opposite_rows: Floats,
    mean_squares: Floats,
    ridges: Floats,
    penalty_scale: Floats,
    has_offset: bool,
    n_steps: int,
    max_cells: int,
    solved_rows: Floats,
    minima: Floats,
) -> None:
    """Take ``n_steps`` steps from ``solved_rows``; ``minima`` receives the penalised losses.

    ``mean_squares`` has the mean square of each column of the opposite rows: unknowns are scaled as
    if every row had all of them as cells. With ``has_offset`` the last unknown is the offset of the
    row. It is solved for exactly at the end, so that the weighted errors of a row add up to its
    penalty, as they do at the solution. Rows without cells become zeros; rows with more than
    ``max_cells`` cells stay as they are.
    """
    starts = cells[0]
    n_unknowns, dtype, last = ridges.size, opposite_rows.dtype, ridges.size - 1
    width, max_padded = vector_width(n_unknowns, opposite_rows.itemsize), 0
    for row in range(rows[0], rows[1]):
        n = starts[row + 1] - starts[row]
        max_padded = max(max_padded, padded_width(n) if n <= max_cells else 0)
    panel = np.empty(
        (padded_width(max_cells), width), dtype
    )  # always the same size, so that the next call reuses the memory
    panel[:max_padded, opposite_rows.shape[1] :] = 0
    targets, zeros = np.zeros(max_padded, dtype), np.zeros(max_padded, dtype)
    vectors, penalty = np.zeros((6, width), dtype), np.zeros(width, dtype)
    for row in range(rows[0], rows[1]):
        first, n = starts[row], starts[row + 1] - starts[row]
        if n > max_cells:
            continue
        if n == 0:
            solved_rows[row, :n_unknowns] = 0
            continue
        for j in range(n_unknowns):
            vectors[SOLUTION, j] = solved_rows[row, j]
        value, total_weight = start_row(
            first,
            n,
            cells,
            global_offset,
            opposite_rows,
            n_unknowns,
            has_offset,
            panel,
            targets,
            vectors,
        )
        for j in range(n_unknowns):
            penalty[j] = penalty_scale[row] * ridges[j]
            vectors[SCALE, j] = 1 / (total_weight * mean_squares[j] + penalty[j])
        for j in range(width):
            value += np.float64(penalty[j] * vectors[SOLUTION, j] * vectors[SOLUTION, j])
            vectors[RESIDUAL, j] -= penalty[j] * vectors[SOLUTION, j]
            vectors[PRECONDITIONED, j] = vectors[SCALE, j] * vectors[RESIDUAL, j]
            vectors[DIRECTION, j] = vectors[PRECONDITIONED, j]
        value -= take_steps(n_steps, panel, padded_width(n), zeros, penalty, vectors)
        if has_offset:
            curvature = total_weight + penalty[last]
            vectors[SOLUTION, last] += vectors[RESIDUAL, last] / curvature
            value -= np.float64(vectors[RESIDUAL, last] * vectors[RESIDUAL, last] / curvature)
        for j in range(n_unknowns):
            solved_rows[row, j] = vectors[SOLUTION, j]
        minima[row] = value
