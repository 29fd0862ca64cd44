"""The reduced objective: one side solved exactly, L-BFGS over the other.

    Phi(W, b, c) = min over (V, a) of the objective

By the envelope theorem its gradient is the partial gradient at that minimum: no derivative of the inner solve is needed.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unskew.models.problem import Floats, Problem, Side
from unskew.types import Vector


@dataclass(frozen=True, slots=True, eq=False)
class Reduced:
    """The objective as a function of one packed vector (W, b, c) of the outer side, scaled so that its curvature is even."""

    problem: Problem
    side: Side
    """The log by the side that is solved."""
    scale: Vector
    """For each outer row the square root of its weight: unknowns are multiplied by it."""

    @classmethod
    def of(cls, problem: Problem) -> Reduced:
        """Solve the larger side, search over the smaller one."""
        solved, outer = problem.by_user, problem.by_item
        if solved.n_rows < outer.n_rows:
            solved, outer = outer, solved
        total = np.add.reduceat(np.append(outer.root_weight.astype(np.float64) ** 2, 0.0), outer.starts[:-1])
        total[outer.starts[:-1] == outer.starts[1:]] = 0.0
        return cls(problem, solved, np.sqrt(total + problem.l2))

    def __call__(self, packed: Vector) -> tuple[float, Vector]:
        """Value and gradient."""
        problem = self.problem
        factors, offset, constant = self.unpack(packed)
        partners = problem.as_partners(factors, offset)
        solutions, loss = problem.solve(self.side, partners, constant)
        _, slope = problem.slope(self.side, partners, solutions, constant)
        by_factors, by_offset = slope[:, : problem.n_factors], slope[:, problem.n_factors + 1 if problem.has_offsets else 0]
        by_constant = by_offset.sum() if problem.has_offsets else 0.0
        penalty = float(np.square(factors).sum())
        by_factors = by_factors + 2 * problem.l2 * factors
        if problem.offsets == "regularized":
            penalty += float(np.square(offset).sum()) + constant**2
            by_offset = by_offset + 2 * problem.l2 * offset
            by_constant = by_constant + 2 * problem.l2 * constant
        return loss + problem.l2 * penalty, self._pack_slope(by_factors, by_offset, by_constant)

    def pack(self, factors: Floats, offset: Floats, constant: float) -> Vector:
        """One vector of scaled unknowns."""
        if not self.problem.has_offsets:
            return (factors * self.scale[:, None]).ravel().astype(np.float64)
        return np.concatenate([(factors * self.scale[:, None]).ravel(), offset * self.scale, [constant * self._constant_scale]])

    def unpack(self, packed: Vector) -> tuple[Floats, Floats, float]:
        """Factors, offset and constant of the outer side."""
        n, d = self.scale.size, self.problem.n_factors
        factors = packed[: n * d].reshape(n, d) / self.scale[:, None]
        if not self.problem.has_offsets:
            return factors, np.zeros(n), 0.0
        return factors, packed[n * d : n * d + n] / self.scale, float(packed[-1] / self._constant_scale)

    @property
    def _constant_scale(self) -> float:
        return float(np.sqrt(np.square(self.scale).sum()))

    def _pack_slope(self, factors: Floats, offset: Floats, constant: float) -> Vector:
        by_factors = (factors / self.scale[:, None]).ravel()
        if not self.problem.has_offsets:
            return by_factors
        return np.concatenate([by_factors, offset / self.scale, [constant / self._constant_scale]])
