"""Minimisation of smooth functions: L-BFGS, and approximate Hessians for its start.

Limited-memory BFGS takes one step at a time, so that a run can be saved and continue bit for bit.
Search directions by the two-loop recursion (Nocedal 1980). Step lengths by bisection for the weak
Wolfe conditions (Lewis & Overton 2013), which also works where the objective has kinks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Self, TypeAlias

import numpy as np

from unskew.types import IntVector, Matrix, Vector

Function: TypeAlias = Callable[[Vector], tuple[float, Vector]]
"""A function of a vector: its value and its gradient."""
Precondition: TypeAlias = Callable[[Vector], Vector]
"""An approximate inverse Hessian times a vector; it must be symmetric and positive definite."""

SUFFICIENT_DECREASE = 1e-4
CURVATURE = 0.9
MAX_TRIALS = 30


@dataclass(frozen=True, slots=True, eq=False)
class LbfgsState:
    """The current point, and the recent steps that approximate the Hessian."""

    point: Vector
    value: float
    gradient: Vector
    steps: Matrix
    """Recent differences of points, the latest last."""
    changes: Matrix
    """Recent differences of gradients."""
    has_stalled: bool = False
    """Whether no step length along the last direction gave a decrease."""


def start_at(function: Function, point: Vector) -> LbfgsState:
    """The state before the first step."""
    value, gradient = function(point)
    empty = np.empty((0, point.size))
    return LbfgsState(point, value, gradient, empty, empty)


def identity(vector: Vector) -> Vector:
    return vector


def take_step(
    function: Function,
    state: LbfgsState,
    *,
    memory: int = 10,
    first_length: float | None = None,
    precondition: Precondition = identity,
) -> LbfgsState:
    """One iteration. The very first tries ``first_length`` times the gradient, by default a step
    of length about 1. ``precondition`` is where the approximation of the Hessian begins; it may
    differ from step to step.
    """
    direction = -_multiply_by_inverse_hessian(state, precondition)
    descent = float(direction @ state.gradient)
    if descent >= 0:
        state = replace(state, steps=state.steps[:0], changes=state.changes[:0])
        direction, descent = -state.gradient, -float(state.gradient @ state.gradient)
    unit = first_length or min(1.0, 1.0 / max(float(np.abs(state.gradient).sum()), 1e-300))
    length = 1.0 if len(state.steps) else unit
    return _search_line(function, state, direction, descent, length, memory)


def _multiply_by_inverse_hessian(state: LbfgsState, precondition: Precondition) -> Vector:
    """The two-loop recursion: the approximate inverse Hessian times the gradient."""
    result = state.gradient.copy()
    inner = [
        1.0 / float(step @ change) for step, change in zip(state.steps, state.changes, strict=True)
    ]
    shares = np.empty(len(inner))
    for k in range(len(inner) - 1, -1, -1):
        shares[k] = inner[k] * float(state.steps[k] @ result)
        result -= shares[k] * state.changes[k]
    result = precondition(result)
    if inner:
        latest = state.changes[-1]
        result *= 1.0 / (inner[-1] * float(latest @ precondition(latest)))
    for k in range(len(inner)):
        result += (shares[k] - inner[k] * float(state.changes[k] @ result)) * state.steps[k]
    return result


def _search_line(
    function: Function,
    state: LbfgsState,
    direction: Vector,
    descent: float,
    length: float,
    memory: int,
) -> LbfgsState:
    """Bisect for a step that decreases enough and ends where the function is flatter.

    ``descent`` is the derivative along ``direction`` at the current point.
    """
    low, high = 0.0, np.inf
    best: tuple[Vector, float, Vector] | None = None
    for _ in range(MAX_TRIALS):
        if high - low < 1e-12 * high:
            break
        point = state.point + length * direction
        value, gradient = function(point)
        if not value <= state.value + SUFFICIENT_DECREASE * length * descent:
            high = length
        else:
            best = point, value, gradient
            if float(direction @ gradient) >= CURVATURE * descent:
                break
            low = length
        length = (low + high) / 2 if np.isfinite(high) else 2 * low
    if best is None:
        return replace(state, has_stalled=True)
    return _accept(state, *best, memory=memory)


def _accept(
    state: LbfgsState, point: Vector, value: float, gradient: Vector, *, memory: int
) -> LbfgsState:
    step, change = point - state.point, gradient - state.gradient
    moved = replace(state, point=point, value=value, gradient=gradient)
    if not float(step @ change) > 1e-12 * float(change @ change):
        return moved
    steps, changes = (
        np.vstack([old[-(memory - 1) :], new])
        for old, new in ((state.steps, step), (state.changes, change))
    )
    return replace(moved, steps=steps, changes=changes)


@dataclass(frozen=True, slots=True, eq=False)
class RowHessians:
    """One block for each row: H_r = diag(precision) + weight_r G, with the same G for all rows.

    In coordinates in which the precision is 1, all blocks have the eigenvectors of G, so solving
    costs two matrix products.
    """

    root_precision: Vector
    axes: Matrix
    eigenvalues: Matrix
    """Rows x columns."""

    @classmethod
    def of(cls, precision: Vector, weight: Vector, gram: Matrix) -> Self:
        """``precision`` has a positive number for each column, ``weight`` one for each row."""
        root = np.sqrt(precision)
        values, axes = np.linalg.eigh(gram / np.outer(root, root))
        return cls(root, axes, 1 + weight[:, None] * np.maximum(values, 0))

    def solve(self, right: Matrix) -> Matrix:
        """z with H_r z_r = ``right[r]``."""
        solution: Matrix = (right / self.root_precision) @ self.axes / self.eigenvalues
        return solution @ self.axes.T / self.root_precision


LEAST_EIGENVALUE = 1e-8
"""Of the Schur complement in units of the covariates: offsets can replace covariates."""
JITTER = 1e-6
"""Added to the diagonal of offsets, as a share: without a penalty, those of users and items can
replace one another."""


@dataclass(frozen=True, slots=True, eq=False)
class SideTerms:
    """The terms of all user units, or of all item units."""

    design: Matrix
    n_crossed: int
    """How many of the first columns are multiplied by those of the other side."""
    has_offset: bool
    weight: Vector
    """a or b: the sum of P (1 - P) of each unit."""

    @property
    def with_one(self) -> Matrix:
        return np.column_stack([np.ones(len(self.design)), self.design])


@dataclass(frozen=True, slots=True, eq=False)
class ProductHessian:
    """An approximate Hessian of the all-cells log-likelihood of a logistic model, solved exactly.

    The Hessian is the sum over cells of w t t' with w = P (1 - P), where t has the terms of a cell:
    intercept, covariates, their products, offsets of users and items. Here w_ui is replaced by
    a_u b_i / sum a, where a and b are about the sums of w by user unit and by item unit. Then no
    pass over the cells is needed.

    With the offsets' block K, which is a diagonal plus a matrix of rank two, and the border B of
    covariates, the rest is the Schur complement H - B' K^-1 B.
    """

    diagonal: Vector
    """The diagonal of K without its matrix of rank two."""
    factors: Matrix
    """U of K = diagonal + U M U'; no columns unless both sides have offsets."""
    core: Matrix
    """The inverse of M^-1 + U' diagonal^-1 U, for Woodbury's identity."""
    solved_border: Matrix
    """K^-1 times B, for every covariate."""
    inverse: Matrix
    """The inverse of the Schur complement."""

    @classmethod
    def of(cls, user: SideTerms, item: SideTerms, penalty: Vector) -> Self:
        """``penalty`` is added to the diagonal; it has an entry for each coefficient."""
        total, rows, columns = float(user.weight.sum()), *_columns(user, item)
        weights = user.weight, item.weight * (total / item.weight.sum())
        sides = (user, rows, weights[0]), (item, columns, weights[1])
        squares = [
            (side.with_one * weight[:, None]).T @ side.with_one / total for side, _, weight in sides
        ]
        by_rows, by_columns = squares[0][np.ix_(rows, rows)], squares[1][np.ix_(columns, columns)]
        block = total * by_rows * by_columns
        n_covariates = rows.size
        block += np.diag(penalty[:n_covariates])
        means = [square[0] for square in squares]
        borders = [
            weight[:, None] * side.with_one[:, chosen] * means[1 - k][sides[1 - k][1]]
            for k, (side, chosen, weight) in enumerate(sides)
            if side.has_offset
        ]
        offsets = [weight for side, _, weight in sides if side.has_offset]
        border = np.vstack([np.empty((0, n_covariates)), *borders])
        diagonal = np.concatenate([np.empty(0), *offsets]) * (1 + JITTER) + 1e-12
        diagonal += penalty[n_covariates:]
        factors: Matrix = np.empty((diagonal.size, 0))
        core: Matrix = np.empty((0, 0))
        if len(offsets) == 2:
            factors = np.zeros((diagonal.size, 2))
            factors[: weights[0].size, 0], factors[weights[0].size :, 1] = weights
            exchange = np.array([[0.0, total], [total, 0.0]])
            small = exchange + factors.T @ (factors / diagonal[:, None])
            core = np.linalg.inv(small).astype(np.float64)
        solved = _solve_offsets(diagonal, factors, core, border)
        return cls(diagonal, factors, core, solved, _invert(block - border.T @ solved, block))

    def solve(self, right: Vector) -> Vector:
        """The inverse of the Hessian times a vector."""
        n_covariates = len(self.inverse)
        covariate_part, offset_part = right[:n_covariates], right[n_covariates:]
        top = self.inverse @ (covariate_part - self.solved_border.T @ offset_part)
        offsets = _solve_offsets(self.diagonal, self.factors, self.core, offset_part[:, None])[:, 0]
        return np.concatenate([top, offsets - self.solved_border @ top])


def _columns(user: SideTerms, item: SideTerms) -> tuple[IntVector, IntVector]:
    """For each covariate term, the columns of both sides' ``with_one`` whose product it is."""
    n_user, n_item = user.design.shape[1], item.design.shape[1]
    crossed = np.indices((user.n_crossed, item.n_crossed)).reshape(2, -1) + 1
    rows = [0, *range(1, n_user + 1), *[0] * n_item, *crossed[0]]
    columns = [0, *[0] * n_user, *range(1, n_item + 1), *crossed[1]]
    return np.array(rows, dtype=np.int32), np.array(columns, dtype=np.int32)


def _solve_offsets(diagonal: Vector, factors: Matrix, core: Matrix, right: Matrix) -> Matrix:
    """The inverse of K times a matrix, by Woodbury's identity."""
    solved: Matrix = right / diagonal[:, None]
    return solved - factors / diagonal[:, None] @ (core @ (factors.T @ solved))


def _invert(matrix: Matrix, block: Matrix) -> Matrix:
    """The inverse, positive definite even if ``matrix`` is singular."""
    unit = 1 / np.sqrt(np.diag(block) + 1e-300)
    values, axes = np.linalg.eigh(unit[:, None] * matrix * unit)
    scaled = unit[:, None] * axes
    inverse: Matrix = scaled / np.maximum(values, LEAST_EIGENVALUE) @ scaled.T
    return inverse
