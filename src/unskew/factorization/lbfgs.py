"""Limited-memory BFGS as a state and a step, so that a run can stop, be saved, and go on to the same bits.

Directions by the two-loop recursion (Nocedal 1980); step lengths by bisection for the weak Wolfe conditions (Lewis & Overton
2013), which also serves where the objective has kinks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np

from unskew.types import Matrix, Vector

Objective: TypeAlias = Callable[[Vector], tuple[float, Vector]]

ENOUGH_DECREASE = 1e-4
ENOUGH_CURVATURE = 0.9
MOST_TRIALS = 30


@dataclass(frozen=True, slots=True, eq=False)
class State:
    """Where the search stands."""

    point: Vector
    value: float
    gradient: Vector
    steps: Matrix
    """Recent differences of points, the latest last."""
    changes: Matrix
    """Recent differences of gradients."""
    n_iterations: int = 0
    n_evaluations: int = 1
    has_stalled: bool = False
    """No step length gave a decrease any more."""


def start(objective: Objective, point: Vector) -> State:
    """The state before the first step."""
    value, gradient = objective(point)
    empty = np.empty((0, point.size))
    return State(point, value, gradient, empty, empty)


def advance(
    objective: Objective, state: State, *, memory: int = 10, first_length: float | None = None
) -> State:
    """One iteration. The very first tries a step of ``first_length`` times the gradient, or one of length about 1."""
    direction = -_times_inverse_hessian(state)
    slope = float(direction @ state.gradient)
    if slope >= 0:
        state = replace(state, steps=state.steps[:0], changes=state.changes[:0])
        direction, slope = -state.gradient, -float(state.gradient @ state.gradient)
    unit = first_length or min(1.0, 1.0 / max(float(np.abs(state.gradient).sum()), 1e-300))
    return _search(objective, state, direction, slope, 1.0 if len(state.steps) else unit, memory)


def _times_inverse_hessian(state: State) -> Vector:
    """The two-loop recursion: H times the gradient."""
    result = state.gradient.copy()
    inner = [
        1.0 / float(step @ change) for step, change in zip(state.steps, state.changes, strict=True)
    ]
    shares = np.empty(len(inner))
    for k in range(len(inner) - 1, -1, -1):
        shares[k] = inner[k] * float(state.steps[k] @ result)
        result -= shares[k] * state.changes[k]
    if inner:
        latest = state.changes[-1]
        result *= 1.0 / (inner[-1] * float(latest @ latest))
    for k in range(len(inner)):
        result += (shares[k] - inner[k] * float(state.changes[k] @ result)) * state.steps[k]
    return result


def _search(
    objective: Objective, state: State, direction: Vector, slope: float, length: float, memory: int
) -> State:
    """Bisect for a step that decreases enough and ends where the slope is flatter."""
    low, high = 0.0, np.inf
    best: tuple[Vector, float, Vector] | None = None
    n_trials = 0
    while n_trials < MOST_TRIALS and not high - low < 1e-12 * high:
        n_trials += 1
        point = state.point + length * direction
        value, gradient = objective(point)
        if not value <= state.value + ENOUGH_DECREASE * length * slope:
            high = length
        else:
            best = point, value, gradient
            if float(direction @ gradient) >= ENOUGH_CURVATURE * slope:
                break
            low = length
        length = (low + high) / 2 if np.isfinite(high) else 2 * low
    tried = replace(
        state, n_iterations=state.n_iterations + 1, n_evaluations=state.n_evaluations + n_trials
    )
    return (
        replace(tried, has_stalled=True) if best is None else _accept(tried, *best, memory=memory)
    )


def _accept(state: State, point: Vector, value: float, gradient: Vector, *, memory: int) -> State:
    step, change = point - state.point, gradient - state.gradient
    moved = replace(state, point=point, value=value, gradient=gradient)
    if not float(step @ change) > 1e-12 * float(change @ change):
        return moved
    steps, changes = (
        np.vstack([old[-(memory - 1) :], new])
        for old, new in ((state.steps, step), (state.changes, change))
    )
    return replace(moved, steps=steps, changes=changes)
