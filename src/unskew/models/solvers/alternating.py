"""Alternating least squares: each side solved exactly in turn, then the constant, with momentum.

A sweep maps an item side to a better one. It starts a little beyond where the last one ended (Nesterov's step, with restarts as
in O'Donoghue & Candes 2015), which halves the sweeps of plain alternation or better; where the objective would rise, the sweep is
done again without momentum, so that it never does.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from unskew.models.parameters import Parameters
from unskew.models.problem import Problem


@dataclass(frozen=True, slots=True, eq=False)
class State:
    """Parameters, those before them, and the objective."""

    parameters: Parameters
    previous: Parameters
    momentum: float
    """Nesterov's t: 1 is none yet."""
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
        return State(parameters, parameters, 1.0, np.inf)

    def advance(self, state: State, /) -> State:
        """One sweep from beyond the last; from where the last ended, if that would rise."""
        momentum = (1 + np.sqrt(1 + 4 * state.momentum**2)) / 2
        ahead = _extrapolated(state.previous, state.parameters, (state.momentum - 1) / momentum)
        swept, value = self._sweep(ahead)
        if value > state.value:
            momentum = 1.0
            swept, value = self._sweep(state.parameters)
        return State(swept, state.parameters, float(momentum), value)

    def value(self, state: State, /) -> float:
        """The objective before the last step of the constant."""
        return state.value

    def has_stalled(self, state: State, /) -> bool:  # noqa: ARG002
        """It never does."""
        return False

    def parameters(self, state: State, /) -> Parameters:
        """As they stand."""
        return state.parameters

    def _sweep(self, now: Parameters) -> tuple[Parameters, float]:
        """Users, items, constant."""
        problem = self.problem
        solutions, _ = problem.solve(problem.by_user, problem.as_partners(now.item_factors, now.item_offset), now.constant)
        user_factors, user_offset = problem.from_solutions(solutions)
        solutions, minimum = problem.solve(problem.by_item, problem.as_partners(user_factors, user_offset), now.constant)
        item_factors, item_offset = problem.from_solutions(solutions)
        own = np.square(user_factors).sum() + (np.square(user_offset).sum() + now.constant**2) * problem.penalizes_offsets
        swept = Parameters(user_factors, item_factors, user_offset, item_offset, now.constant)
        return replace(swept, constant=self._best_constant(swept)), minimum + problem.l2 * float(own)

    def _best_constant(self, swept: Parameters) -> float:
        """After the items' solve, sum w e = l2 sum b, so that the best step of c needs no pass over the log."""
        if not self.problem.penalizes_offsets:
            return swept.constant
        l2, total = self.problem.l2, float(self.problem.by_item.weight_of_rows().sum())
        return swept.constant + l2 * (float(swept.item_offset.sum()) - swept.constant) / (total + l2)


def _extrapolated(before: Parameters, now: Parameters, share: float) -> Parameters:
    """``share`` of the last step beyond ``now``; of the users, who are solved first, nothing is needed."""
    return replace(
        now,
        item_factors=now.item_factors + share * (now.item_factors - before.item_factors),
        item_offset=now.item_offset + share * (now.item_offset - before.item_offset),
        constant=now.constant + share * (now.constant - before.constant),
    )
