"""EM for a mixture of user clusters: two passes over the log, and one over items and levels.

A slot is a pair of an item and a rating level, ``item * n_levels + level``. A table of slots has
one column for each cluster. Users are independent of one another, and so are slots: ranges of them
may be processed in any order.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from unskew.kernels.compiling import compiled
from unskew.types import IntVector, Matrix, RowStarts, Vector

Slots: TypeAlias = npt.NDArray[np.int64]

MAX_STEPS = 100
"""Newton's method takes four or five steps; bisection outside of its range takes about fifty."""
TOLERANCE = 1e-13
"""How close to 1 the probabilities add up. The objective is flat there, so this is enough."""


@compiled
def fill_responsibilities(
    starts: RowStarts,
    slot: Slots,
    log_prior: Vector,
    log_terms: Matrix,
    first: int,
    last: int,
    responsibilities: Matrix,
    log_evidence: Vector,
) -> None:
    """Expectation step for users ``first`` to ``last``: P(cluster | ratings of the user).

    ``log_prior`` is the log probability of each cluster and of no ratings in it; ``log_terms``
    has what a rating of each slot adds. ``log_evidence`` gets the log probability of the ratings.
    """
    n_clusters = log_prior.size
    for user in range(first, last):
        score = responsibilities[user]
        for k in range(n_clusters):
            score[k] = log_prior[k]
        for cell in range(starts[user], starts[user + 1]):
            row = log_terms[slot[cell]]
            for k in range(n_clusters):
                score[k] += row[k]
        top = score.max()
        total = 0.0
        for k in range(n_clusters):
            score[k] = np.exp(score[k] - top)
            total += score[k]
        for k in range(n_clusters):
            score[k] /= total
        log_evidence[user] = top + np.log(total)


@compiled
def count_ratings(
    starts: RowStarts,
    user: IntVector,
    responsibilities: Matrix,
    first: int,
    last: int,
    counts: Matrix,
) -> None:
    """The expected number of ratings of each slot by users of each cluster.

    Users are added in the order of the log.
    """
    n_clusters = responsibilities.shape[1]
    for slot in range(first, last):
        total = counts[slot]
        for k in range(n_clusters):
            total[k] = 0.0
        for cell in range(starts[slot], starts[slot + 1]):
            row = responsibilities[user[cell]]
            for k in range(n_clusters):
                total[k] += row[k]


@compiled
def maximize_rating_probabilities(
    counts: Matrix,
    cluster_sizes: Vector,
    p_unobserved: Matrix,
    smoothing: float,
    first: int,
    last: int,
    probabilities: Matrix,
) -> None:
    """Maximization step for items ``first`` to ``last``: the rating probabilities B that maximize

        sum_r (A_r + smoothing) log B_r + M log(sum_r p_unobserved_r B_r),    sum_r B_r = 1

    in each cluster. A_r is the number of ratings of each level, and M the number of unobserved
    cells: the size of the cluster minus the number of ratings.
    """
    n_levels, n_clusters = p_unobserved.shape[1], cluster_sizes.size
    for item in range(first, last):
        slots = slice(item * n_levels, (item + 1) * n_levels)
        for k in range(n_clusters):
            solve_probabilities(
                counts[slots, k],
                cluster_sizes[k],
                p_unobserved[item],
                smoothing,
                probabilities[slots, k],
            )


@compiled
def solve_probabilities(
    counts: Vector, size: float, p_unobserved: Vector, smoothing: float, probabilities: Vector
) -> None:
    """One item and cluster: B_r = (A_r + smoothing) / (N + M (1 - (1 - x) c_r)).

    N = sum (A_r + smoothing) and c_r = p_unobserved_r / max p_unobserved. The sum f(x) of B_r
    increases as x decreases and is at most 1 at x = 0; the solution is the x with f(x) = 1. It is
    found by Newton's method on 1 / f, which is nearly linear. In terms of x, nothing cancels where
    M is many times N; in terms of 1 - x it would.
    """
    total_count = smoothing * counts.size + counts.sum()
    n_unobserved = max(size - counts.sum(), 0.0)
    largest = p_unobserved.max()
    low, high, x = max(-total_count / n_unobserved, 1 - largest / p_unobserved.min()), 0.0, 0.0
    for _ in range(MAX_STEPS):
        total, derivative, is_past_pole = 0.0, 0.0, False
        for r in range(counts.size):
            ratio = p_unobserved[r] / largest
            denominator = total_count + n_unobserved * ((1 - ratio) + x * ratio)
            is_past_pole |= denominator <= 0
            probabilities[r] = (counts[r] + smoothing) / denominator
            total += probabilities[r]
            derivative += probabilities[r] * n_unobserved * ratio / denominator
        if not is_past_pole and abs(total - 1) <= TOLERANCE:
            break
        if is_past_pole or total > 1:
            low = x
        else:
            high = x
        candidate = x - total * (1 - total) / derivative
        if is_past_pole or not low < candidate < high:
            candidate = (low + high) / 2
        if candidate == x:
            break
        x = candidate
    probabilities /= probabilities.sum()
