"""Absolute loss by iteratively reweighted squares: abs(e) <= e^2 / (2 m) + m / 2 with m = max(abs(e now), smallest)."""

from __future__ import annotations

from dataclasses import dataclass

from unskew.factorization import lbfgs
from unskew.factorization.objective import Objective
from unskew.factorization.parameters import Parameters
from unskew.factorization.reduced import Reduced

SMALLEST_ERROR = 1e-3
STEPS_A_ROUND = 10


@dataclass(frozen=True, slots=True, eq=False)
class State:
    """Parameters, the absolute objective at them, and how many rounds brought them there."""

    parameters: Parameters
    value: float
    n_rounds: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class Reweighted:
    """A solver of absolute loss: a parabola above every error, a few reduced steps on their sum, and again."""

    problem: Objective

    @property
    def n_steps(self) -> int:
        """Reduced steps in a round."""
        return STEPS_A_ROUND

    def start(self, parameters: Parameters, /) -> State:
        """At ``parameters``."""
        return State(parameters, self._objective(parameters))

    def advance(self, state: State, /) -> State:
        """One round. The parabolas grow narrower from round to round, down to the smallest error that counts."""
        smallest = max(SMALLEST_ERROR, 0.5**state.n_rounds)
        problem = self.problem.reweighed(state.parameters, smallest)
        solver = Reduced.of(problem)
        inner: lbfgs.State = solver.start_at(state.parameters)
        for _ in range(STEPS_A_ROUND):
            inner = solver.advance(inner)
        parameters = solver.parameters(inner)
        return State(parameters, self._objective(parameters), state.n_rounds + 1)

    def value(self, state: State, /) -> float:
        """The absolute objective."""
        return state.value

    def has_stalled(self, state: State, /) -> bool:  # noqa: ARG002
        """It never does."""
        return False

    def parameters(self, state: State, /) -> Parameters:
        """As they stand."""
        return state.parameters

    def _objective(self, parameters: Parameters) -> float:
        problem = self.problem
        partners = problem.as_partners(parameters.item_factors, parameters.item_offset)
        solutions = problem.as_solutions(parameters.user_factors, parameters.user_offset)
        loss, _ = problem.slope(
            problem.by_user, partners, solutions, parameters.constant, is_absolute=True
        )
        return loss + problem.l2 * parameters.penalty(with_offsets=problem.penalizes_offsets)
