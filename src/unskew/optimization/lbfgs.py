"""Limited-memory BFGS, one step at a time, so that a run can be saved and continue bit for bit.

Search directions by the two-loop recursion (Nocedal 1980). Step lengths by bisection for the weak
Wolfe conditions (Lewis & Overton 2013), which also works where the objective has kinks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np

from unskew.types import Matrix, Vector

Function: TypeAlias = Callable[[Vector], tuple[float, Vector]]
"""A function of a vector: its value and its gradient."""
Precondition: TypeAlias = Callable[[Vector], Vector]
"""An approximate inverse Hessian times a vector; it must be symmetric and positive definite."""

SUFFICIENT_DECREASE = 1e-4
CURVATURE = 0.9
MAX_TRIALS = 30


@dataclass(frozen=True, slots=True, eq=False)
class LbfgsState:
    """The current point, and the recent steps that approximate the Hessian."""

    point: Vector
    value: float
    gradient: Vector
    steps: Matrix
    """Recent differences of points, the latest last."""
    changes: Matrix
    """Recent differences of gradients."""
    has_stalled: bool = False
    """Whether no step length along the last direction gave a decrease."""


def start_at(function: Function, point: Vector) -> LbfgsState:
    """The state before the first step."""
    value, gradient = function(point)
    empty = np.empty((0, point.size))
    return LbfgsState(point, value, gradient, empty, empty)


def identity(vector: Vector) -> Vector:
    return vector


def take_step(
    function: Function,
    state: LbfgsState,
    *,
    memory: int = 10,
    first_length: float | None = None,
    precondition: Precondition = identity,
) -> LbfgsState:
    """One iteration. The very first tries ``first_length`` times the gradient, by default a step
    of length about 1. ``precondition`` is where the approximation of the Hessian begins; it may
    differ from step to step.
    """
    direction = -_times_inverse_hessian(state, precondition)
    descent = float(direction @ state.gradient)
    if descent >= 0:
        state = replace(state, steps=state.steps[:0], changes=state.changes[:0])
        direction, descent = -state.gradient, -float(state.gradient @ state.gradient)
    unit = first_length or min(1.0, 1.0 / max(float(np.abs(state.gradient).sum()), 1e-300))
    length = 1.0 if len(state.steps) else unit
    return _search_line(function, state, direction, descent, length, memory)


def _times_inverse_hessian(state: LbfgsState, precondition: Precondition) -> Vector:
    """The two-loop recursion: the approximate inverse Hessian times the gradient."""
    result = state.gradient.copy()
    inner = [
        1.0 / float(step @ change) for step, change in zip(state.steps, state.changes, strict=True)
    ]
    shares = np.empty(len(inner))
    for k in range(len(inner) - 1, -1, -1):
        shares[k] = inner[k] * float(state.steps[k] @ result)
        result -= shares[k] * state.changes[k]
    result = precondition(result)
    if inner:
        latest = state.changes[-1]
        result *= 1.0 / (inner[-1] * float(latest @ precondition(latest)))
    for k in range(len(inner)):
        result += (shares[k] - inner[k] * float(state.changes[k] @ result)) * state.steps[k]
    return result


def _search_line(
    function: Function,
    state: LbfgsState,
    direction: Vector,
    descent: float,
    length: float,
    memory: int,
) -> LbfgsState:
    """Bisect for a step that decreases enough and ends where the function is flatter.

    ``descent`` is the derivative along ``direction`` at the current point.
    """
    low, high = 0.0, np.inf
    best: tuple[Vector, float, Vector] | None = None
    for _ in range(MAX_TRIALS):
        if high - low < 1e-12 * high:
            break
        point = state.point + length * direction
        value, gradient = function(point)
        if not value <= state.value + SUFFICIENT_DECREASE * length * descent:
            high = length
        else:
            best = point, value, gradient
            if float(direction @ gradient) >= CURVATURE * descent:
                break
            low = length
        length = (low + high) / 2 if np.isfinite(high) else 2 * low
    if best is None:
        return replace(state, has_stalled=True)
    return _accept(state, *best, memory=memory)


def _accept(
    state: LbfgsState, point: Vector, value: float, gradient: Vector, *, memory: int
) -> LbfgsState:
    step, change = point - state.point, gradient - state.gradient
    moved = replace(state, point=point, value=value, gradient=gradient)
    if not float(step @ change) > 1e-12 * float(change @ change):
        return moved
    steps, changes = (
        np.vstack([old[-(memory - 1) :], new])
        for old, new in ((state.steps, step), (state.changes, change))
    )
    return replace(moved, steps=steps, changes=changes)
