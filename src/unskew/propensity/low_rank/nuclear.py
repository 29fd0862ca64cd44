"""1-bit matrix completion as the convex problem it is, for matrices small enough to hold."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.special import expit, logit

from unskew.propensity.low_rank.bits import Bits
from unskew.types import Matrix, Vector

LIPSCHITZ = 0.25
"""The slope of sigma is at most 1/4."""
MOST_ROUNDS = 1000
"""Of Dykstra's alternating projections."""


@dataclass(frozen=True, slots=True, eq=False)
class Solution:
    """logit P = intercept + deviation, the loss at the start and after each step, and whether it had become flat."""

    intercept: float
    deviation: Matrix
    history: tuple[float, ...]
    has_converged: bool


def solve_in_nuclear_ball(
    seen: Matrix,
    *,
    radius: float,
    max_logit: float | None,
    max_iter: int,
    tol: float,
    report: Callable[[int, float], None],
) -> Solution:
    """The c and A with the least sum_D [log(1 + e^(c + A)) - O (c + A)]
    subject to ||A||_* <= radius and max abs(A) <= max_logit.

    Accelerated projected gradient on A, with the best intercept for every A: at it the propensities add up to n, and the
    gradient by A is P - O. The momentum starts anew where the loss would rise.
    """
    current, ahead, momentum = np.zeros_like(seen), np.zeros_like(seen), 1.0
    intercept, value = best_intercept(seen, current, float(logit(seen.mean())))
    history = [value]
    while len(history) <= max_iter:
        intercept, _ = best_intercept(seen, ahead, intercept)
        stepped = project(ahead - (expit(intercept + ahead) - seen) / LIPSCHITZ, radius, max_logit)
        intercept, value = best_intercept(seen, stepped, intercept)
        if value > history[-1] and momentum > 1:
            ahead, momentum = current, 1.0
            continue
        following = (1 + np.sqrt(1 + 4 * momentum**2)) / 2
        ahead = stepped + (momentum - 1) / following * (stepped - current)
        current, momentum = stepped, following
        history.append(value)
        report(len(history) - 1, value)
        if history[-2] - value <= tol * abs(value):
            return Solution(intercept, current, tuple(history), True)
    return Solution(intercept, current, tuple(history), False)


def project(matrix: Matrix, radius: float, bound: float | None) -> Matrix:
    """The nearest matrix with ||A||_* <= radius and max abs(A) <= bound, by Dykstra's alternating projections."""
    if bound is None:
        return project_on_nuclear_ball(matrix, radius)
    point = matrix
    off_box, off_ball = np.zeros_like(matrix), np.zeros_like(matrix)
    for _ in range(MOST_ROUNDS):
        in_ball = project_on_nuclear_ball(point + off_ball, radius)
        off_ball = point + off_ball - in_ball
        in_box = np.clip(in_ball + off_box, -bound, bound)
        off_box = in_ball + off_box - in_box
        point = in_box
        if np.abs(in_box - in_ball).max() <= 1e-10 * bound:
            break
    return point


def project_on_nuclear_ball(matrix: Matrix, radius: float) -> Matrix:
    """The nearest matrix with ||A||_* <= radius: its singular values are lowered by one amount, those below it to 0."""
    left, values, right = np.linalg.svd(matrix, full_matrices=False)
    if values.sum() <= radius:
        return matrix
    projected: Matrix = (left * lowered(values, radius)) @ right
    return projected


def lowered(values: Vector, total: float) -> Vector:
    """max(values - amount, 0), adding up to ``total``; ``values`` fall and add up to more."""
    amounts = (np.cumsum(values) - total) / np.arange(1, values.size + 1)
    amount = amounts[np.flatnonzero(values > amounts)[-1]]
    lower: Vector = np.maximum(values - amount, 0)
    return lower


def best_intercept(seen: Matrix, deviation: Matrix, guess: float) -> tuple[float, float]:
    """The c at which sum_D sigma(c + A) = n, and the loss there."""

    def chances(intercept: float) -> tuple[float, float]:
        chance = expit(intercept + deviation)
        return float(chance.sum()), float(np.vdot(chance, 1 - chance))

    middle = float(logit(seen.mean()))
    intercept = balance(
        chances,
        float(seen.sum()),
        guess,
        middle - float(deviation.max()),
        middle - float(deviation.min()),
    )
    x = intercept + deviation
    return intercept, float(np.logaddexp(0, x).sum() - np.vdot(seen, x))


def balance(
    chances: Callable[[float], tuple[float, float]],
    total: float,
    guess: float,
    low: float,
    high: float,
) -> float:
    """The c in [low, high] at which a rising sum of chances is ``total``: Newton, and bisection where Newton leaves the bracket.

    ``chances(c)`` gives the sum and its slope.
    """
    intercept = guess
    for _ in range(100):
        found, slope = chances(intercept)
        if abs(found - total) <= 1e-11 * total:
            break
        low, high = (intercept, high) if found < total else (low, intercept)
        step = intercept + (total - found) / slope if slope > 0 else np.inf
        intercept = step if low <= step <= high else (low + high) / 2
    return intercept


def dense_bits(bits: Bits) -> Matrix:
    """O as a matrix of the whole universe, unlisted users and items last."""
    seen = np.zeros((int(bits.user_count.sum()), int(bits.item_count.sum())))
    seen[bits.user, bits.item] = 1
    return seen


def in_factors(deviation: Matrix) -> tuple[Matrix, Matrix]:
    """A = Q S' with (||Q||^2 + ||S||^2) / 2 = ||A||_*: both sides get the root of the singular values that are not 0."""
    left, values, right = np.linalg.svd(deviation, full_matrices=False)
    rank = max(1, int((values > 1e-12 * max(values[0], 1e-300)).sum()))
    root = np.sqrt(values[:rank])
    return left[:, :rank] * root, right[:rank].T * root
