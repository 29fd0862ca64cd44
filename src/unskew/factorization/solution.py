"""Running a solver until it converges, and what a model keeps of the run."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Generic, Literal, TypeAlias, TypeVar

import numpy.typing as npt

from unskew.errors import ConvergenceWarning, warn_caller
from unskew.factorization.checkpoints import (
    Checkpoint,
    load_state,
    make_checkpoint,
    save_state,
)
from unskew.progress import progress_line
from unskew.settings import Configurable, Number, OneOf, WholeNumber, check_random_state, setting
from unskew.tables import count_noun
from unskew.threads import Workers, single_blas_thread, stop_if_interrupted
from unskew.types import RandomState

S = TypeVar("S")
P = TypeVar("P")
StopReason: TypeAlias = Literal["converged", "stalled", "max_iter"]
Dtype: TypeAlias = Literal["float64", "float32"]
Report: TypeAlias = Callable[[int, float], None]
"""Is called with the number of a step and the objective after it."""
WINDOW = 3
"""Steps over which convergence is checked: a single step may be short by accident, as the step
after a restart of the momentum is."""


@dataclass(frozen=True, slots=True, eq=False)
class Solution(Generic[P]):
    """What a solver found, and why it stopped."""

    parameters: P
    history: tuple[float, ...]
    """The objective at the start and after each step; inf where the start has none yet."""
    stop_reason: StopReason
    """``"converged"``: the objective no longer decreases. ``"stalled"``: the solver found no
    better point in its search direction. ``"max_iter"``: all steps were used."""

    @property
    def has_converged(self) -> bool:
        """Whether the solver stopped by itself: also True if it stalled, see ``stop_reason``."""
        return self.stop_reason != "max_iter"


class Solver(ABC, Generic[S, P]):
    """An algorithm that lowers an objective step by step.

    A state is a frozen dataclass of arrays and numbers; by default it has the fields ``value``
    (the objective) and ``parameters``.
    """

    __slots__ = ()
    steps_per_advance: ClassVar[int] = 1
    """How many of ``max_iter`` steps one call of :meth:`advance` counts as."""

    @abstractmethod
    def start(self, parameters: P, /) -> S:
        """The state before the first step."""

    @abstractmethod
    def advance(self, state: S, /) -> S:
        """The state after the next step."""

    def value(self, state: S, /) -> float:
        """The objective in this state."""
        value: float = state.value  # type: ignore[attr-defined]
        return value

    def parameters(self, state: S, /) -> P:
        """The parameters that the state stands for."""
        parameters: P = state.parameters  # type: ignore[attr-defined]
        return parameters

    @property
    def least_steps(self) -> int:
        """Convergence is checked from this step on.

        A fit that starts near a saddle point needs it, such as one with factors of almost zero:
        the first steps there lower the objective by little as well.
        """
        return 0

    def stop_reason(self, state: S, /) -> StopReason | None:
        """Why the solver itself wants to stop; None if it can go on."""
        return None


def minimize(
    solver: Solver[Any, P],
    start: P,
    *,
    max_iter: int,
    tol: float | None,
    checkpoint: Checkpoint | None = None,
    report: Report | None = None,
) -> Solution[P]:
    """Run a solver until it has converged, or for ``max_iter`` steps.

    A run has converged when its last steps lowered the objective by at most ``tol`` times its
    size per step. With ``tol=None`` only :meth:`Solver.stop_reason` decides. ``report`` is called
    with the number of the step and the objective. If the file of ``checkpoint`` exists, the run
    continues from it.
    """
    state = solver.start(start)
    history: tuple[float, ...] = (float(solver.value(state)),)
    if checkpoint is not None and checkpoint.path.exists():
        state, history = load_state(checkpoint, state)
    stop_reason = _find_stop_reason(solver, state, history, tol)
    while stop_reason is None and (len(history) - 1) * solver.steps_per_advance < max_iter:
        stop_if_interrupted()
        state = solver.advance(state)
        history = (*history, float(solver.value(state)))
        stop_reason = _find_stop_reason(solver, state, history, tol)
        if report is not None:
            report(len(history) - 1, history[-1])
        if checkpoint is not None and (len(history) - 1) % checkpoint.every == 0:
            save_state(checkpoint, state, history)
    return Solution(solver.parameters(state), history, stop_reason or "max_iter")


def _find_stop_reason(
    solver: Solver[S, P], state: S, history: tuple[float, ...], tol: float | None
) -> StopReason | None:
    if len(history) == 1:
        return None
    is_early = len(history) - 1 < solver.least_steps
    if tol is not None and not is_early and is_flat(history, tol, solver.steps_per_advance):
        return "converged"
    return solver.stop_reason(state)


def is_flat(history: tuple[float, ...], tol: float, steps_per_advance: int) -> bool:
    """Whether the last few steps lowered the objective by at most ``tol`` times its size a step."""
    window = WINDOW // steps_per_advance or 1
    if len(history) <= window:
        return False
    change = abs(history[-1 - window] - history[-1])
    return bool(change <= tol * window * steps_per_advance * abs(history[-1]))


@dataclass(eq=False, repr=False)
class IterativeModel(Configurable):
    """A model that is fitted step by step, and keeps how its fit went.

    :class:`unskew.models.MatrixFactorization` describes the settings.

    Attributes
    ----------
    history_ : the objective at the start and after each step. A solver that alternates between
        users and items solves the users first, so its start has no objective: there
        ``history_[0]`` is inf.
    objective_, n_iter_ : the last objective, and the number of steps.
    converged_, stop_reason_ : whether the fit stopped before ``max_iter`` steps, and why it
        stopped: ``"converged"``, ``"stalled"`` (no better point was found; ``converged_`` is True)
        or ``"max_iter"``.
    """

    _: KW_ONLY
    max_iter: int = setting(500, WholeNumber(least=1))
    tol: float = setting(1e-6, Number(least=0))
    n_threads: int | None = setting(None, WholeNumber(least=1, allow_none=True))
    random_state: RandomState = setting(0, check_random_state)
    verbose: bool = setting(False)

    history_: tuple[float, ...] = field(init=False)
    objective_: float = field(init=False)
    n_iter_: int = field(init=False)
    converged_: bool = field(init=False)
    stop_reason_: str = field(init=False)
    _NOT_IN_FINGERPRINT: ClassVar = frozenset(
        {"n_threads", "verbose", "max_iter", "tol", "statistic"}
    )
    """Settings that do not change the steps of a fit, only their number or what is made of them."""

    def _record_solution(self, solution: Solution[Any]) -> None:
        """Keep how the fit went; warn if it did not converge. Call it from ``fit``."""
        self.history_ = solution.history
        self.objective_ = solution.history[-1]
        self.n_iter_ = len(solution.history) - 1
        self.converged_ = solution.has_converged
        self.stop_reason_ = solution.stop_reason
        if not self.converged_:
            warn_caller(
                ConvergenceWarning(
                    f"{type(self).__name__} stopped after "
                    f"{count_noun(self.max_iter, 'step')} before it converged.",
                    parameter="max_iter",
                    value=self.max_iter,
                    remedy="Raise `max_iter` or `tol`.",
                )
            )

    def _fit_facts(self) -> list[str]:
        ended = "converged" if self.converged_ else "did not converge"
        steps = f"{ended} after {count_noun(self.n_iter_, 'step')}"
        return [*super()._fit_facts(), f"{steps}, objective {self.objective_:.6g}"]

    def _make_checkpoint(
        self,
        path: str | Path | None,
        every: int,
        *arrays: npt.NDArray[Any],
        shape: tuple[int, int],
        start: Any = None,
    ) -> Checkpoint | None:
        """The checkpoint of a fit that settings, ``arrays``, ``shape`` and ``start`` identify."""
        settings = {
            name: value
            for name, value in self.get_params(deep=False).items()
            if name not in self._NOT_IN_FINGERPRINT
        }
        return make_checkpoint(path, every, settings, *arrays, shape=shape, start=start)

    @contextmanager
    def _show_steps(self) -> Iterator[Report | None]:
        """A function that shows a step and its objective on one line; None if not ``verbose``."""
        if not self.verbose:
            yield None
            return
        with progress_line(True) as show:
            yield lambda step, value: show(f"step {step}, objective {value:.6g}")

    def _minimize(
        self,
        make_solver: Callable[[Workers], Solver[Any, P]],
        start: P,
        checkpoint: Checkpoint | None,
        *,
        tol: float | None = None,
    ) -> Solution[P]:
        """Run a solver with the settings of this model, or with another ``tol``."""
        with Workers(self.n_threads) as workers, single_blas_thread(), self._show_steps() as report:
            return minimize(
                make_solver(workers),
                start,
                max_iter=self.max_iter,
                tol=self.tol if tol is None else tol,
                checkpoint=checkpoint,
                report=report,
            )


@dataclass(eq=False, repr=False)
class FitOptions(IterativeModel):
    """A model that is fitted step by step in a chosen precision."""

    _: KW_ONLY
    dtype: Dtype = setting("float64", OneOf(("float64", "float32")))
