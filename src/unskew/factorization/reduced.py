"""The reduced objective: one side solved exactly, L-BFGS over the other.

    Phi(W, b, c) = min over (V, a) of the objective

By the envelope theorem its gradient is the partial gradient at that minimum: no derivative of the inner solve is needed.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unskew.factorization import lbfgs
from unskew.factorization.als import Alternating
from unskew.factorization.objective import Objective, SortedCells
from unskew.factorization.parameters import Floats, Parameters
from unskew.types import Vector

FIRST_SWEEPS = 10
FIRST_LENGTH = 0.5
"""In scaled unknowns the curvature is at most about 2, so that the first step can be long."""


@dataclass(frozen=True, slots=True, eq=False)
class Reduced:
    """A solver of squared loss. The vector that L-BFGS sees is (W, b, c) of the smaller side, scaled to even curvature."""

    problem: Objective
    solved: SortedCells
    """The log by the side that is solved exactly."""
    scale: Vector
    """For each row of the other side the root of its weight: its unknowns are multiplied by it."""

    @property
    def n_steps(self) -> int:
        """Each is one."""
        return 1

    @classmethod
    def of(cls, problem: Objective) -> Reduced:
        """Solve the larger side, search over the smaller one."""
        solved, outer = problem.by_user, problem.by_item
        if solved.n_rows < outer.n_rows:
            solved, outer = outer, solved
        return cls(problem, solved, np.sqrt(outer.weight_of_rows + max(problem.l2, 1e-12)))

    def start(self, parameters: Parameters, /) -> lbfgs.State:
        """A few sweeps of alternating least squares, which are quick at first, and then the outer side of where they end."""
        alternating = Alternating(self.problem)
        swept = alternating.start(parameters)
        for _ in range(FIRST_SWEEPS):
            swept = alternating.advance(swept)
        return self.start_at(swept.parameters)

    def start_at(self, parameters: Parameters, /) -> lbfgs.State:
        """At the outer side of ``parameters``."""
        users_solved = self.solved is self.problem.by_user
        factors = parameters.item_factors if users_solved else parameters.user_factors
        offset = parameters.item_offset if users_solved else parameters.user_offset
        return lbfgs.start(
            self.evaluate, self._pack(factors, offset, parameters.constant, self.scale)
        )

    def advance(self, state: lbfgs.State, /) -> lbfgs.State:
        """One L-BFGS iteration."""
        return lbfgs.advance(self.evaluate, state, first_length=FIRST_LENGTH)

    def value(self, state: lbfgs.State, /) -> float:
        """Phi."""
        return state.value

    def has_stalled(self, state: lbfgs.State, /) -> bool:
        """No step length gives a decrease any more."""
        return state.has_stalled

    def parameters(self, state: lbfgs.State, /) -> Parameters:
        """The outer side, and the solution for it of the other."""
        factors, offset, constant = self._unpack(state.point)
        solutions, _ = self.problem.solve(
            self.solved, self.problem.as_partners(factors, offset), constant
        )
        own_factors, own_offset = self.problem.from_solutions(solutions)
        if self.solved is self.problem.by_user:
            return Parameters(own_factors, factors, own_offset, offset, constant)
        return Parameters(factors, own_factors, offset, own_offset, constant)

    def evaluate(self, point: Vector) -> tuple[float, Vector]:
        """Phi and its gradient."""
        problem = self.problem
        factors, offset, constant = self._unpack(point)
        minimum, slope = self.solve_inner(factors, offset, constant)
        penalty = float(np.square(factors).sum())
        by_factors = slope[:, : problem.n_factors] + 2 * problem.l2 * factors
        by_offset = slope[:, problem.n_factors + 1] if problem.has_offsets else offset
        by_constant = float(by_offset.sum())
        if problem.penalizes_offsets:
            penalty += float(np.square(offset).sum()) + constant**2
            by_offset = by_offset + 2 * problem.l2 * offset
            by_constant += 2 * problem.l2 * constant
        return minimum + problem.l2 * penalty, self._pack(
            by_factors, by_offset, by_constant, 1 / self.scale
        )

    def solve_inner(self, factors: Floats, offset: Floats, constant: float) -> tuple[float, Floats]:
        """The sum of the solved rows' penalised minima, and the gradient of the loss there by the outer side's lines."""
        partners = self.problem.as_partners(factors, offset)
        solutions, minimum = self.problem.solve(self.solved, partners, constant)
        _, slope = self.problem.slope(self.solved, partners, solutions, constant)
        return minimum, slope

    def _pack(self, factors: Floats, offset: Floats, constant: float, scale: Vector) -> Vector:
        scaled = (factors * scale[:, None]).ravel()
        if not self.problem.has_offsets:
            return scaled
        whole = float(np.sqrt(np.square(self.scale).sum()))
        return np.concatenate(
            [scaled, offset * scale, [constant * (whole if scale is self.scale else 1 / whole)]]
        )

    def _unpack(self, point: Vector) -> tuple[Floats, Floats, float]:
        n_rows, n_factors = self.scale.size, self.problem.n_factors
        factors = point[: n_rows * n_factors].reshape(n_rows, n_factors) / self.scale[:, None]
        if not self.problem.has_offsets:
            return factors, np.zeros(n_rows), 0.0
        offset = point[n_rows * n_factors : -1] / self.scale
        return factors, offset, float(point[-1] / np.sqrt(np.square(self.scale).sum()))
