"""Alternating least squares: each side solved exactly in turn, then the constant, with momentum."""

from __future__ import annotations

from dataclasses import dataclass, replace

from unskew.models.parameters import Parameters
from unskew.models.problem import Problem
from unskew.models.solvers.momentum import Sweeping


@dataclass(frozen=True, slots=True, eq=False)
class Alternating(Sweeping):
    """A solver of squared loss. The objective is that before the last step of the constant."""

    problem: Problem

    def _sweep(self, now: Parameters) -> tuple[Parameters, float]:
        """Users, items, constant."""
        problem = self.problem
        solutions, _ = problem.solve(problem.by_user, problem.as_partners(now.item_factors, now.item_offset), now.constant)
        user_factors, user_offset = problem.from_solutions(solutions)
        solutions, minimum = problem.solve(problem.by_item, problem.as_partners(user_factors, user_offset), now.constant)
        item_factors, item_offset = problem.from_solutions(solutions)
        own = problem.penalty(problem.by_user, user_factors, user_offset)
        own += problem.l2 * now.constant**2 * problem.penalizes_offsets
        swept = Parameters(user_factors, item_factors, user_offset, item_offset, now.constant)
        return replace(swept, constant=self._best_constant(swept)), minimum + own + problem.fixed

    def _best_constant(self, swept: Parameters) -> float:
        """After the items' solve, sum w e = l2 sum b, so that the best step of c needs no pass over the log."""
        if not self.problem.penalizes_offsets:
            return swept.constant
        l2, total = self.problem.l2, float(self.problem.by_item.weight_of_rows().sum())
        return swept.constant + l2 * (float(swept.item_offset.sum()) - swept.constant) / (total + l2)
