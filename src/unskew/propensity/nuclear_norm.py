"""1-bit matrix completion as a convex problem, for matrices that fit into memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.special import expit, logit

from unskew.propensity.low_rank import ObservedMatrix, shift_to_total
from unskew.types import Matrix, Vector

LIPSCHITZ = 0.25
"""The derivative of sigma is at most 1/4."""
MAX_PROJECTIONS = 1000
"""Rounds of Dykstra's alternating projections."""


@dataclass(frozen=True, slots=True, eq=False)
class ConvexFit:
    """logit P = intercept + deviation."""

    intercept: float
    deviation: Matrix
    history: tuple[float, ...]
    """The loss at the start and after each step."""
    has_converged: bool


def solve_in_nuclear_ball(
    observed: Matrix,
    *,
    radius: float,
    max_logit: float | None,
    max_iter: int,
    tol: float,
    report: Callable[[int, float], None],
) -> ConvexFit:
    """Minimise sum_D [log(1 + e^(c + A)) - O (c + A)] over c and A
    subject to ||A||_* <= radius and max abs(A) <= max_logit.

    Accelerated projected gradient on A, with the best intercept for every A: then propensities
    add up to n, and the gradient by A is P - O. The momentum is reset when the loss would rise.
    """
    current, ahead, momentum = np.zeros_like(observed), np.zeros_like(observed), 1.0
    intercept, value = best_intercept(observed, current, float(logit(observed.mean())))
    history = [value]
    while len(history) <= max_iter:
        intercept, _ = best_intercept(observed, ahead, intercept)
        gradient = expit(intercept + ahead) - observed
        stepped = project(ahead - gradient / LIPSCHITZ, radius, max_logit)
        intercept, value = best_intercept(observed, stepped, intercept)
        if value > history[-1] and momentum > 1:
            ahead, momentum = current, 1.0
            continue
        next_momentum = (1 + np.sqrt(1 + 4 * momentum**2)) / 2
        ahead = stepped + (momentum - 1) / next_momentum * (stepped - current)
        current, momentum = stepped, next_momentum
        history.append(value)
        report(len(history) - 1, value)
        if history[-2] - value <= tol * abs(value):
            return ConvexFit(intercept, current, tuple(history), True)
    return ConvexFit(intercept, current, tuple(history), False)


def project(matrix: Matrix, radius: float, max_abs: float | None) -> Matrix:
    """The nearest matrix with ||A||_* <= radius and max abs(A) <= max_abs.

    Dykstra's alternating projections.
    """
    if max_abs is None:
        return project_on_nuclear_ball(matrix, radius)
    point = matrix
    box_correction, ball_correction = np.zeros_like(matrix), np.zeros_like(matrix)
    for _ in range(MAX_PROJECTIONS):
        in_ball = project_on_nuclear_ball(point + ball_correction, radius)
        ball_correction = point + ball_correction - in_ball
        in_box = np.clip(in_ball + box_correction, -max_abs, max_abs)
        box_correction = in_ball + box_correction - in_box
        point = in_box
        if np.abs(in_box - in_ball).max() <= 1e-10 * max_abs:
            break
    return point


def project_on_nuclear_ball(matrix: Matrix, radius: float) -> Matrix:
    """The nearest matrix with ||A||_* <= radius: singular values are reduced by one amount."""
    left, values, right = np.linalg.svd(matrix, full_matrices=False)
    if values.sum() <= radius:
        return matrix
    projected: Matrix = (left * reduce_to_sum(values, radius)) @ right
    return projected


def reduce_to_sum(values: Vector, total: float) -> Vector:
    """max(values - t, 0) with the t at which they add up to ``total``.

    ``values`` are in descending order and add up to more than ``total``.
    """
    amounts = (np.cumsum(values) - total) / np.arange(1, values.size + 1)
    amount = amounts[np.flatnonzero(values > amounts)[-1]]
    reduced: Vector = np.maximum(values - amount, 0)
    return reduced


def best_intercept(observed: Matrix, deviation: Matrix, start: float) -> tuple[float, float]:
    """The c at which sum_D sigma(c + A) = n, and the loss there."""
    intercept = shift_to_total(deviation, float(observed.sum()), start=start)
    x = intercept + deviation
    return intercept, float(np.logaddexp(0, x).sum() - np.vdot(observed, x))


def to_dense(observed: ObservedMatrix) -> Matrix:
    """O as a dense matrix of the whole universe; unlisted users and items are last."""
    shape = (int(observed.user_count.sum()), int(observed.item_count.sum()))
    dense = np.zeros(shape)
    dense[observed.user, observed.item] = 1
    return dense


def factorize(deviation: Matrix) -> tuple[Matrix, Matrix]:
    """A = Q S' with (||Q||^2 + ||S||^2) / 2 = ||A||_*.

    Both factors have the square roots of the positive singular values.
    """
    left, values, right = np.linalg.svd(deviation, full_matrices=False)
    rank = max(1, int((values > 1e-12 * max(values[0], 1e-300)).sum()))
    root = np.sqrt(values[:rank])
    return left[:, :rank] * root, right[:rank].T * root
