"""Alternating least squares with momentum.

One sweep of plain alternation is

    users = best rows given the items
    items = best rows given the users
    c     = best constant given both

and ``minimize`` of ``factorization/solution.py`` repeats it until it has converged. A sweep needs
only the items of its start, because it solves the users first. With momentum it starts a little
beyond the last items, in the direction of the last change: Nesterov's step, with restarts as in
O'Donoghue & Candes (2015). This at least halves the number of sweeps. If the objective would rise,
the sweep is repeated from the last items, so the objective never rises.

With many factors the first sweeps take conjugate gradient steps instead of exact solutions. Rows
with many cells are still solved exactly. Both happen in the principal axes of the opposite factors,
where the normal matrix of a row is nearly diagonal.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass, replace

import numpy as np
from scipy import linalg

from unskew.data.factors import Factors
from unskew.errors import UsageError
from unskew.factorization.objective import MAX_CELLS, VECTOR_BYTES, Objective, SortedCells
from unskew.factorization.penalty import Penalty
from unskew.factorization.solution import Solver
from unskew.types import Floats, Matrix, Vector

MANY_UNKNOWNS = 48
"""Unknowns of a row from which on conjugate gradient steps are faster than the exact solution."""
MIN_ROUGH_GAIN = 1e-4
"""Share of the objective that a rough sweep must gain; otherwise all later sweeps are exact."""
MAX_BYTES_FOR_STEPS = 1 << 21
"""Bytes of opposite rows up to which conjugate gradients are as fast as one Gram matrix."""
CONJUGATE_STEPS = 2
"""One step halves the progress of a sweep; a third one costs more than it gains."""
MAX_MOMENTUM = 1e15
"""Beyond every fit: the momentum grows by about a half in each sweep."""
ROWS_PER_PIECE = 4096
"""Rows that a thread rotates at a time."""


@dataclass(frozen=True, slots=True, eq=False)
class ItemSide:
    """The part of the factors that a sweep starts from."""

    factors: Floats
    offset: Floats
    global_offset: float

    @classmethod
    def of(cls, factors: Factors) -> ItemSide:
        return cls(factors.item_factors, factors.item_offset, factors.global_offset)


@dataclass(frozen=True, slots=True, eq=False)
class SweepState:
    """The factors after a sweep, the items before it, and the objective."""

    parameters: Factors
    previous: ItemSide
    momentum: float
    """Nesterov's t, which starts at 1 and grows with every sweep until a restart."""
    value: float
    needs_exact_sweeps: bool = False


class SweepingSolver(Solver[SweepState, Factors]):
    """A solver that alternates between users and items, with momentum."""

    __slots__ = ()

    @abstractmethod
    def _sweep(self, start: Factors, *, is_exact: bool) -> tuple[Factors, float]:
        """Better factors, from the items and c of ``start`` alone, and their objective.

        A sweep that is not exact may save time while there is much to gain.
        """

    def start(self, factors: Factors, /) -> SweepState:
        """The objective is inf: it is known only after the first sweep."""
        return SweepState(factors, ItemSide.of(factors), 1.0, math.inf)

    def advance(self, state: SweepState, /) -> SweepState:
        if not 1 <= state.momentum <= MAX_MOMENTUM:
            raise UsageError(
                f"the momentum {state.momentum:g} of the checkpoint is impossible: the file is "
                "damaged.",
                parameter="checkpoint",
                remedy="Delete the checkpoint, or choose another file.",
            )
        is_exact = state.needs_exact_sweeps
        momentum = (1 + math.sqrt(1 + 4 * state.momentum**2)) / 2
        ahead = _extrapolate(state.previous, state.parameters, (state.momentum - 1) / momentum)
        factors, value = self._sweep(ahead, is_exact=is_exact)
        if value > state.value:
            momentum = 1.0
            factors, value = self._sweep(state.parameters, is_exact=is_exact)
        gain = state.value - value
        needs_exact_sweeps = is_exact or gain < MIN_ROUGH_GAIN * abs(value)
        previous = ItemSide.of(state.parameters)
        return SweepState(factors, previous, momentum, value, needs_exact_sweeps)


def _extrapolate(previous: ItemSide, current: Factors, share: float) -> Factors:
    """The items beyond ``current`` by ``share`` of the change since ``previous``."""
    item_factors, item_offset = current.item_factors, current.item_offset
    global_offset = current.global_offset
    return replace(
        current,
        item_factors=item_factors + share * (item_factors - previous.factors),
        item_offset=item_offset + share * (item_offset - previous.offset),
        global_offset=global_offset + share * (global_offset - previous.global_offset),
    )


@dataclass(frozen=True, slots=True, eq=False)
class AlternatingLeastSquares(SweepingSolver):
    """Minimise the squared loss of an :class:`Objective`."""

    objective: Objective

    def sweep(self, factors: Factors) -> Factors:
        """One exact sweep from the items and the constant of ``factors``."""
        return self._sweep(factors, is_exact=True)[0]

    def _sweep(self, start: Factors, *, is_exact: bool) -> tuple[Factors, float]:
        """Users, items, constant. The objective is that before the step of the constant."""
        objective, c = self.objective, start.global_offset
        by_user, by_item = objective.by_user, objective.by_item
        takes_steps = not is_exact and self._prefers_steps

        def solve(
            cells: SortedCells, opposite: Floats, rows: tuple[Floats, Floats]
        ) -> tuple[Floats, float]:
            if takes_steps:
                return improve_rows(objective, cells, opposite, c, start=rows)
            return objective.solve_rows(cells, opposite, c)

        users, items = start.user_side, start.item_side
        solved, _ = solve(by_user, objective.as_opposite_rows(*items), users)
        users = objective.split_solved_rows(solved)
        solved, minimum = solve(by_item, objective.to_opposite_rows(solved), items)
        items = objective.split_solved_rows(solved)
        penalty = objective.side_penalty(by_user, *users) + objective.penalty.global_offset * c**2
        new_c = c
        if objective.has_offsets:
            total_weight = float(by_item.row_weights.sum())
            new_c = best_constant(c, float(items[1].sum()), total_weight, objective.penalty)
        factors = Factors(users[0], items[0], users[1], items[1], new_c)
        return factors, minimum + penalty + objective.constant

    @property
    def _prefers_steps(self) -> bool:
        """Whether conjugate gradient steps improve a row at less cost than its exact solution."""
        objective = self.objective
        has_many_unknowns = objective.n_unknowns >= MANY_UNKNOWNS
        return (
            has_many_unknowns and objective.penalty.factors > 0 and not objective.unobserved_weight
        )


def best_constant(
    c: float, sum_of_item_offsets: float, total_weight: float, penalty: Penalty
) -> float:
    """The minimum over c, without a pass over the log.

    After the items' solve the weighted residuals of each item add up to p_b b.
    """
    gradient = penalty.item_offset * sum_of_item_offsets - penalty.global_offset * c
    return c + gradient / (total_weight + penalty.global_offset)


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
    ridges = objective.unknown_ridges(cells), cells.penalty_scale
    options = objective.has_offsets, CONJUGATE_STEPS, max_cells

    def improve(rows: tuple[int, int]) -> int:
        unsolved = -1
        for part in cells.cut(rows):
            take_steps(part, *data, mean_squares, *ridges, *options, solved, minima)
            limits = max_cells + 1, MAX_CELLS
            row = solve_rows(part, *data, no_gram, *ridges, lanes, limits, solved, minima)
            unsolved = max(unsolved, row)
        cells.release(rows)
        return unsolved

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
