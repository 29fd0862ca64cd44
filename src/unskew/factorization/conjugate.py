"""Conjugate gradient steps: better rows at less cost than their exact solutions.

Rows with many cells are solved exactly. Both happen in the principal axes of the opposite factors,
where the normal matrix of a row is nearly diagonal.
"""

from __future__ import annotations

import numpy as np
from scipy import linalg

from unskew.errors import UsageError
from unskew.factorization.objective import MAX_CELLS, VECTOR_BYTES, Objective, SortedCells
from unskew.types import Floats, Matrix, Vector

MAX_BYTES_FOR_STEPS = 1 << 21
"""Bytes of opposite rows up to which conjugate gradients are as fast as one Gram matrix."""
CONJUGATE_STEPS = 2
"""One step halves the progress of a sweep; a third one costs more than it gains."""
ROWS_PER_PIECE = 4096
"""Rows that a thread rotates at a time."""


def improve_rows(
    objective: Objective,
    cells: SortedCells,
    opposite: Floats,
    global_offset: float,
    *,
    start: tuple[Floats, Floats],
) -> tuple[Floats, float]:
    """Lower the objective of every row from ``start`` (factors and offset) at little cost.

    Returns the rows and the sum of their losses and penalties. ``opposite`` is rotated to its
    principal axes and back.
    """
    from unskew.kernels.conjugate import improve_rows as take_steps
    from unskew.kernels.rows import solve_rows

    opposite_weights = objective.opposite_cells(cells).row_weights
    axes, mean_squares = _principal_axes(objective, opposite, opposite_weights)
    solved, minima = objective.as_solved_rows(*start), np.zeros(cells.n_rows)
    _rotate(objective, axes, opposite, solved)
    no_gram = np.empty((0, 0), opposite.dtype)
    lanes = VECTOR_BYTES // opposite.itemsize
    max_cells = MAX_BYTES_FOR_STEPS // (opposite.shape[1] * opposite.itemsize)
    data = cells.cells, opposite.dtype.type(global_offset), opposite
    ridges = objective.unknown_ridges, cells.penalty_scale
    options = objective.has_offsets, CONJUGATE_STEPS, max_cells

    def improve(rows: tuple[int, int]) -> int:
        take_steps(rows, *data, mean_squares, *ridges, *options, solved, minima)
        return solve_rows(
            rows, *data, no_gram, *ridges, lanes, (max_cells + 1, MAX_CELLS), solved, minima
        )

    objective.require_solutions(cells, objective.workers.map(improve, cells.tasks))
    objective.solve_long_rows(cells, opposite, global_offset, no_gram, solved, minima)
    _rotate(objective, axes.T, opposite, solved)
    return solved, float(minima.sum())


def _principal_axes(
    objective: Objective, opposite: Floats, weight: Vector
) -> tuple[Floats, Floats]:
    """The principal axes of the opposite factors, and the mean square along each axis.

    With offsets a 1 follows, the mean square of the column of ones.
    """
    share = (weight / weight.sum()).astype(opposite.dtype)

    def add(first: int) -> Matrix:
        rows = slice(first, first + ROWS_PER_PIECE)
        factors = opposite[rows, : objective.n_factors]
        moments: Matrix = (share[rows, None] * factors).T @ factors
        return moments.astype(np.float64)

    moments = np.add.reduce(objective.workers.map(add, range(0, len(opposite), ROWS_PER_PIECE)))
    if not np.isfinite(moments).all():
        raise UsageError(
            f"ratings or weights are too large for {opposite.dtype}.",
            remedy="Rescale them, or use `dtype='float64'`.",
        )
    squares, axes = linalg.eigh(moments)
    smallest = np.finfo(opposite.dtype).eps * squares[-1]
    squares = np.maximum(squares, smallest)  # rounding can make the smallest ones negative
    mean_squares = np.append(squares, [1.0] * objective.has_offsets)
    return axes.astype(opposite.dtype), mean_squares.astype(opposite.dtype)


def _rotate(objective: Objective, axes: Floats, *row_arrays: Floats) -> None:
    """Express the factors of padded rows in other axes, in place."""
    pieces = [(rows, first) for rows in row_arrays for first in range(0, len(rows), ROWS_PER_PIECE)]

    def rotate(piece: tuple[Floats, int]) -> None:
        rows, first = piece
        factors = rows[first : first + ROWS_PER_PIECE, : objective.n_factors]
        factors[:] = factors @ axes

    objective.workers.map(rotate, pieces)
