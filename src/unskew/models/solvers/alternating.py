"""Alternating least squares: each side solved exactly in turn, then the constant. Monotone, simple, slow at the end."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from unskew.models.parameters import Parameters
from unskew.models.problem import Problem


@dataclass(frozen=True, slots=True, eq=False)
class State:
    """Parameters and the objective at them."""

    parameters: Parameters
    value: float


@dataclass(frozen=True, slots=True, eq=False)
class Alternating:
    """A solver of squared loss."""

    problem: Problem

    @property
    def n_steps(self) -> int:
        """Each is one."""
        return 1

    def start(self, parameters: Parameters, /) -> State:
        """As given; the objective is known after the first sweep."""
        return State(parameters, np.inf)

    def advance(self, state: State, /) -> State:
        """Users, items, constant."""
        problem, now = self.problem, state.parameters
        solutions, _ = problem.solve(problem.by_user, problem.as_partners(now.item_factors, now.item_offset), now.constant)
        user_factors, user_offset = problem.from_solutions(solutions)
        solutions, minimum = problem.solve(problem.by_item, problem.as_partners(user_factors, user_offset), now.constant)
        item_factors, item_offset = problem.from_solutions(solutions)
        own = np.square(user_factors).sum() + (np.square(user_offset).sum() + now.constant**2) * problem.penalizes_offsets
        swept = Parameters(user_factors, item_factors, user_offset, item_offset, now.constant)
        return State(replace(swept, constant=self._best_constant(swept)), minimum + problem.l2 * float(own))

    def value(self, state: State, /) -> float:
        """The objective before the last step of the constant."""
        return state.value

    def has_stalled(self, state: State, /) -> bool:  # noqa: ARG002
        """It never does."""
        return False

    def parameters(self, state: State, /) -> Parameters:
        """As they stand."""
        return state.parameters

    def _best_constant(self, swept: Parameters) -> float:
        """After the items' solve, sum w e = l2 sum b, so that the best step of c needs no pass over the log."""
        if not self.problem.penalizes_offsets:
            return swept.constant
        l2, total = self.problem.l2, float(self.problem.by_item.weight_of_rows().sum())
        return swept.constant + l2 * (float(swept.item_offset.sum()) - swept.constant) / (total + l2)
