"""Probabilities of the Plackett-Luce model, in which items arrive in an exponential race.

Item a arrives after a time of rate l_a = exp(score of a); the first K to arrive are the slate.

    step:      P(s_k = a given those before) = l_a / sum of l over the items that have not arrived
    marginal:  P(s_k = a) = int l_a exp(-l_a t) P(k - 1 of the others arrive before t) dt

The number of others that arrive before t is a sum of independent 0/1 variables. The integral is
computed by Gauss-Legendre quadrature in log t.
"""

from __future__ import annotations

import math
from functools import cache

import numpy as np
import numpy.typing as npt

from unskew.kernels.compiling import compiled
from unskew.types import IntVector, Matrix, RowStarts, Vector

NODES_PER_UNIT = 5
"""Quadrature nodes for each unit of log t; about 40 to 60 units are needed."""
SMALLEST = 1e-17
"""What is cut off at each end of the integral."""


def find_marginals(score: Vector, n_slots: int) -> Matrix:
    """Items x slots: the probability that each item has each position, given its score.

    >>> find_marginals(np.zeros(3), 2).round(6).tolist()
    [[0.333333, 0.333333], [0.333333, 0.333333], [0.333333, 0.333333]]
    """
    rate = np.exp(score - score.max())
    low = math.log(SMALLEST / float(rate.sum()))
    high = math.log(-math.log(SMALLEST) / float(rate.min()))
    node, weight = _legendre(16 * math.ceil(NODES_PER_UNIT * (high - low) / 16))
    time = np.exp(low + (high - low) * (node + 1) / 2)
    return _integrate(rate, time, weight * time * (high - low) / 2, n_slots)


@cache
def _legendre(n_nodes: int) -> tuple[Vector, Vector]:
    return np.polynomial.legendre.leggauss(n_nodes)


@compiled
def _integrate(rate: Vector, time: Vector, weight: Vector, n_slots: int) -> Matrix:
    """Sum over nodes of the density of each item's arrival as the k-th."""
    n = rate.size
    marginal = np.zeros((n, n_slots))
    after = np.zeros((n + 1, n_slots))
    before = np.zeros(n_slots)
    for node in range(time.size):
        t = time[node]
        after[n] = 0.0
        after[n, 0] = 1.0
        for a in range(n - 1, -1, -1):  # P(k of the items a, a + 1, ... arrive before t)
            late = math.exp(-rate[a] * t)
            early = -math.expm1(-rate[a] * t)
            after[a, 0] = after[a + 1, 0] * late
            for k in range(1, n_slots):
                after[a, k] = after[a + 1, k] * late + after[a + 1, k - 1] * early
        before[:] = 0.0
        before[0] = 1.0
        for a in range(n):
            late = math.exp(-rate[a] * t)
            early = -math.expm1(-rate[a] * t)
            density = weight[node] * rate[a] * late
            for k in range(n_slots):
                others = 0.0
                for j in range(k + 1):
                    others += before[j] * after[a + 1, k - j]
                marginal[a, k] += density * others
            for k in range(n_slots - 1, 0, -1):
                before[k] = before[k] * late + before[k - 1] * early
            before[0] *= late
    return marginal


@compiled
def find_steps(
    score: Vector, starts: RowStarts, chosen: npt.NDArray[np.int64], group: IntVector
) -> Matrix:
    """Requests x slots: the probability of each shown item, given the items above it.

    Group g has the candidates ``starts[g]:starts[g + 1]`` of ``score``, and request r is of group
    ``group[r]``; ``chosen[r, k]`` is the candidate at slot k. Where it is -1, the probability is 1.
    An item that is shown again has the probability 0.
    """
    steps = np.ones(chosen.shape)
    is_left = np.ones(score.size, dtype=np.bool_)
    for r in range(chosen.shape[0]):
        first, last = starts[group[r]], starts[group[r] + 1]
        for k in range(chosen.shape[1]):
            if chosen[r, k] < 0:
                continue
            if not is_left[chosen[r, k]]:
                steps[r, k] = 0.0
                continue
            largest = -np.inf
            for a in range(first, last):
                if is_left[a] and score[a] > largest:
                    largest = score[a]
            total = 0.0
            for a in range(first, last):
                if is_left[a]:
                    total += math.exp(score[a] - largest)
            steps[r, k] = math.exp(score[chosen[r, k]] - largest) / total
            is_left[chosen[r, k]] = False
        is_left[first:last] = True
    return steps
