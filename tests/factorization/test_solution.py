"""When a run stops, and what a model keeps of it."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pytest

from unskew.errors import ConvergenceWarning, UnknownNameError, UsageError
from unskew.factorization.solution import FitOptions, Solution, Solver, StopReason, minimize


@dataclass(frozen=True)
class Halves:
    """A number that every step halves, down to ``lowest``."""

    parameters: float
    lowest: float = 0.0

    @property
    def value(self) -> float:
        return self.parameters


@dataclass(frozen=True, slots=True)
class Halving(Solver[Halves, float]):
    lowest: float = 0.0
    stops_at: float = -1.0
    reason: StopReason = "stalled"

    def start(self, number: float, /) -> Halves:
        return Halves(number)

    def advance(self, state: Halves, /) -> Halves:
        return Halves(max(self.lowest, state.parameters / 2))

    def stop_reason(self, state: Halves, /) -> StopReason | None:
        return self.reason if state.parameters <= self.stops_at else None


class TwoStepHalving(Halving):
    steps_per_advance: ClassVar[int] = 2


def test_a_run_converges_when_three_steps_change_nothing() -> None:
    solution = minimize(Halving(lowest=1.0), 8.0, max_iter=50, tol=1e-9)

    assert solution.history == (8.0, 4.0, 2.0, 1.0, 1.0, 1.0, 1.0)
    assert (solution.parameters, solution.stop_reason) == (1.0, "converged")
    assert solution.has_converged


def test_a_run_without_progress_limits_stops_at_max_iter() -> None:
    solution = minimize(Halving(), 8.0, max_iter=3, tol=0.0)

    assert solution.history == (8.0, 4.0, 2.0, 1.0)
    assert (solution.stop_reason, solution.has_converged) == ("max_iter", False)


@pytest.mark.parametrize("reason", ["stalled", "converged"])
def test_a_solver_can_stop_by_itself(reason: Any) -> None:
    for tol in (0.0, None):
        solution = minimize(Halving(stops_at=2.0, reason=reason), 8.0, max_iter=50, tol=tol)

        assert solution.history == (8.0, 4.0, 2.0)
        assert (solution.stop_reason, solution.has_converged) == (reason, True)


def test_without_a_tolerance_only_the_solver_decides() -> None:
    assert minimize(Halving(lowest=1.0), 1.0, max_iter=9, tol=None).stop_reason == "max_iter"


def test_one_advance_can_count_as_several_steps() -> None:
    assert len(minimize(TwoStepHalving(), 8.0, max_iter=5, tol=0.0).history) == 1 + 3


@dataclass(eq=False, repr=False)
class Model(FitOptions):
    n_factors: int = 3


def test_a_model_keeps_how_its_fit_went() -> None:
    model = Model()

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model._record_solution(Solution(1.0, (3.0, 2.0, 1.0), "stalled"))

    assert (model.history_, model.objective_, model.n_iter_) == ((3.0, 2.0, 1.0), 1.0, 2)
    assert (model.converged_, model.stop_reason_) == (True, "stalled")


def test_a_fit_that_does_not_converge_warns_with_the_remedy() -> None:
    model = Model(max_iter=7)

    with pytest.warns(
        ConvergenceWarning,
        match=r"Model stopped after 7 steps before it converged\. Raise max_iter or tol\.",
    ):
        model._record_solution(Solution(1.0, (3.0, 2.0), "max_iter"))

    assert not model.converged_


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ({"max_iter": 0}, "max_iter must be a whole number, at least 1; got 0"),
        ({"tol": -1.0}, "tol must be a finite number, at least 0"),
        ({"n_threads": 0}, "n_threads must be a whole number, at least 1 or None"),
        ({"random_state": -1}, "random_state must be a whole number, at least 0"),
        ({"dtype": "float16"}, "unknown value 'float16' of dtype"),
    ],
)
def test_options_out_of_range_are_refused(settings: dict[str, Any], match: str) -> None:
    with pytest.raises((UsageError, UnknownNameError), match=match):
        Model(**settings)._check_settings()


@pytest.mark.parametrize("random_state", [None, 0, 12, np.random.default_rng(0)])
def test_a_random_state_is_none_a_seed_or_a_generator(random_state: Any) -> None:
    Model(random_state=random_state)._check_settings()
