"""Plackett-Luce probabilities against an enumeration of all slates."""

from __future__ import annotations

from itertools import permutations
from math import fsum

import numpy as np
import pytest

from unskew.kernels.plackett_luce import find_marginals, find_steps
from unskew.types import Matrix, Vector


def enumerate_marginals(score: Vector, n_slots: int) -> Matrix:
    rate = np.exp(score - score.max())
    marginal = np.zeros((score.size, n_slots))
    for slate in permutations(range(score.size), n_slots):
        probability, left = 1.0, set(range(score.size))
        for item in slate:
            probability *= rate[item] / fsum(rate[each] for each in left)
            left.remove(item)
        marginal[slate, range(n_slots)] += probability
    return marginal


@pytest.mark.parametrize("spread", [0.0, 0.5, 2.0, 4.0, 10.0])
@pytest.mark.parametrize(("n_items", "n_slots"), [(5, 3), (6, 1), (7, 7), (2, 2), (1, 1)])
def test_marginals_equal_the_enumeration(n_items: int, n_slots: int, spread: float) -> None:
    score = spread * np.random.default_rng(n_items).normal(size=n_items)

    marginal = find_marginals(score, n_slots)

    np.testing.assert_allclose(marginal, enumerate_marginals(score, n_slots), atol=1e-12)
    np.testing.assert_allclose(marginal.sum(axis=0), 1, atol=1e-12)


def test_steps_leave_out_the_items_above() -> None:
    score = np.log([1.0, 2.0, 5.0, 4.0, 4.0])
    starts = np.array([0, 3, 5])
    chosen = np.array([[2, 0], [4, -1]])

    steps = find_steps(score, starts, chosen[[0, 1, 0]], np.array([0, 1, 0], dtype=np.int32))

    np.testing.assert_allclose(steps, [[5 / 8, 1 / 3], [1 / 2, 1], [5 / 8, 1 / 3]])
