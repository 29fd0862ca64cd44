"""The reduced objective: L-BFGS over one side, with the other side solved exactly.

    Phi(W, b, c) = minimum over (V, a) of the objective

By the envelope theorem the gradient of Phi is the partial gradient at that minimum: no derivative
of the inner solve is needed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from unskew.data.factors import Factors
from unskew.factorization.als import AlternatingLeastSquares
from unskew.factorization.lbfgs import LbfgsSolver
from unskew.factorization.objective import Objective, SortedCells
from unskew.factorization.penalty import Side
from unskew.optimization import LbfgsState, start_at
from unskew.types import Floats, Vector

FIRST_SWEEPS = 10


@dataclass(frozen=True, slots=True, eq=False)
class ReducedObjective(LbfgsSolver[Factors]):
    """Minimise squared loss by L-BFGS over (W, b, c) of the outer side.

    L-BFGS sees each unknown multiplied by ``scale`` of its row, which evens out the curvature.
    """

    objective: Objective
    inner: SortedCells
    """The cells by the side that is solved exactly."""
    scale: Vector
    """For each outer row the square root of its total weight and the ridge."""
    first_length: ClassVar[float | None] = 0.5
    """The curvature in scaled unknowns is at most about 2, so the first step can be long."""

    @classmethod
    def of(cls, objective: Objective) -> ReducedObjective:
        """Solve the larger side exactly, and search over the smaller one."""
        inner, outer = objective.by_user, objective.by_item
        if inner.n_rows < outer.n_rows:
            inner, outer = outer, inner
        return cls(
            objective, inner, np.sqrt(outer.row_weights + max(objective.penalty.factors, 1e-12))
        )

    def start(self, factors: Factors, /) -> LbfgsState:
        """A few sweeps of alternating least squares, which gain much at first, then L-BFGS."""
        alternating = AlternatingLeastSquares(self.objective)
        state = alternating.start(factors)
        for _ in range(FIRST_SWEEPS):
            state = alternating.advance(state)
        return self.start_without_sweeps(state.parameters)

    def start_without_sweeps(self, factors: Factors, /) -> LbfgsState:
        solves_users = self.inner is self.objective.by_user
        outer = factors.item_side if solves_users else factors.user_side
        return start_at(self.evaluate, self._pack(*outer, factors.global_offset, self.scale))

    def parameters(self, state: LbfgsState, /) -> Factors:
        factors, offset, c = self._unpack(state.point)
        opposite = self.objective.as_opposite_rows(factors, offset)
        solved, _ = self.objective.solve_rows(self.inner, opposite, c)
        inner_factors, inner_offset = self.objective.split_solved_rows(solved)
        if self.inner is self.objective.by_user:
            return Factors(inner_factors, factors, inner_offset, offset, c)
        return Factors(factors, inner_factors, offset, inner_offset, c)

    def evaluate(self, point: Vector) -> tuple[float, Vector]:
        objective, (factors, offset, c) = self.objective, self._unpack(point)
        penalty, offset_ridge = objective.penalty, objective.penalty.of_offset(self._outer_side)
        minimum, gradient = self.solve_inner(factors, offset, c)
        minimum += penalty.factors * float(np.square(factors).sum())
        by_factors = gradient[:, : objective.n_factors] + 2 * penalty.factors * factors
        by_offset = gradient[:, objective.n_factors + 1] if objective.has_offsets else offset
        by_constant = float(by_offset.sum()) + 2 * penalty.global_offset * c
        minimum += offset_ridge * float(np.square(offset).sum()) + penalty.global_offset * c**2
        by_offset = by_offset + 2 * offset_ridge * offset
        return minimum, self._pack(by_factors, by_offset, by_constant, 1 / self.scale)

    @property
    def _outer_side(self) -> Side:
        return "item" if self.inner.side == "user" else "user"

    def solve_inner(self, factors: Floats, offset: Floats, c: float) -> tuple[float, Floats]:
        """The sum of the inner row minima, and the gradient of the loss by the outer rows."""
        opposite = self.objective.as_opposite_rows(factors, offset)
        solved, minimum = self.objective.solve_rows(self.inner, opposite, c)
        _, gradient = self.objective.loss_and_gradient(self.inner, opposite, solved, c)
        return minimum, gradient

    def _pack(self, factors: Floats, offset: Floats, c: float, scale: Vector) -> Vector:
        scaled = (factors * scale[:, None]).ravel()
        if not self.objective.has_offsets:
            return scaled
        total = float(np.sqrt(np.square(self.scale).sum()))
        scaled_c = c * (total if scale is self.scale else 1 / total)
        return np.concatenate([scaled, offset * scale, [scaled_c]])

    def _unpack(self, point: Vector) -> tuple[Floats, Floats, float]:
        n_rows, n_factors = self.scale.size, self.objective.n_factors
        factors = point[: n_rows * n_factors].reshape(n_rows, n_factors) / self.scale[:, None]
        if not self.objective.has_offsets:
            return factors, np.zeros(n_rows), 0.0
        offset = point[n_rows * n_factors : -1] / self.scale
        return factors, offset, float(point[-1] / np.sqrt(np.square(self.scale).sum()))
