from __future__ import annotations

from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from unskew.kernels.mixture import (
    count_ratings,
    fill_responsibilities,
    maximize_rating_probabilities,
    solve_probabilities,
)
from unskew.types import Vector

RNG = np.random.default_rng(0)
STARTS = np.array([0, 3, 3, 5, 6])


def test_responsibilities_are_the_softmax_of_a_users_scores() -> None:
    slot, log_prior, log_terms = (
        RNG.integers(0, 8, 6),
        RNG.normal(size=3),
        400 * RNG.normal(size=(8, 3)),
    )
    responsibilities, log_evidence = np.full((4, 3), np.nan), np.full(4, np.nan)

    for first, last in ((2, 4), (0, 2)):
        fill_responsibilities(
            STARTS, slot, log_prior, log_terms, first, last, responsibilities, log_evidence
        )

    score = np.array([log_prior + log_terms[slot[a:b]].sum(axis=0) for a, b in pairwise(STARTS)])
    np.testing.assert_allclose(log_evidence, np.logaddexp.reduce(score, axis=1))
    np.testing.assert_allclose(responsibilities, np.exp(score - log_evidence[:, None]), atol=1e-300)


def test_counts_add_up_the_responsibilities_of_raters() -> None:
    user, responsibilities, counts = (
        RNG.integers(0, 5, 6).astype(np.int32),
        RNG.random((5, 3)),
        np.full((4, 3), np.nan),
    )

    for first, last in ((0, 1), (1, 4)):
        count_ratings(STARTS, user, responsibilities, first, last, counts)

    expected = np.zeros((4, 3))
    np.add.at(expected, np.repeat(np.arange(4), np.diff(STARTS)), responsibilities[user])
    np.testing.assert_allclose(counts, expected)


positive = st.floats(1e-6, 1e6)


@given(
    counts=arrays(np.float64, 4, elements=st.one_of(st.just(0.0), positive)),
    n_unobserved=st.one_of(st.just(0.0), positive),
    p_unobserved=arrays(np.float64, 4, elements=st.floats(1e-3, 1 - 1e-6)),
    smoothing=st.floats(1e-3, 10),
)
def test_levels_are_stationary(
    counts: Vector, n_unobserved: float, p_unobserved: Vector, smoothing: float
) -> None:
    """At the optimum the derivative (A_r + smoothing) / B_r + M p_r / m equals N + M for all r."""
    probabilities = np.empty(4)

    solve_probabilities(counts, counts.sum() + n_unobserved, p_unobserved, smoothing, probabilities)

    assert (probabilities > 0).all()
    assert np.isclose(probabilities.sum(), 1)
    total = (counts + smoothing).sum() + n_unobserved
    derivative = (counts + smoothing) / probabilities + n_unobserved * p_unobserved / (
        p_unobserved @ probabilities
    )
    np.testing.assert_allclose(derivative, total, rtol=1e-6)


def test_without_unobserved_cells_or_with_equal_propensities_levels_are_counts() -> None:
    counts, probabilities = np.array([3.0, 0.0, 1.0]), np.empty(3)

    for size, p_unobserved in ((4.0, [0.9, 0.5, 0.1]), (100.0, [0.7, 0.7, 0.7])):
        solve_probabilities(counts, size, np.array(p_unobserved), 0.5, probabilities)
        np.testing.assert_allclose(probabilities, [3.5 / 5.5, 0.5 / 5.5, 1.5 / 5.5], rtol=1e-12)


def test_a_single_level_has_probability_1() -> None:
    probabilities = np.empty(1)

    solve_probabilities(np.array([3.0]), 50.0, np.array([0.8]), 1.0, probabilities)

    assert probabilities.tolist() == [1]


def test_items_are_solved_one_by_one_for_each_cluster() -> None:
    counts, sizes, p_unobserved = (
        RNG.random((3 * 4, 2)),
        np.array([20.0, 30.0]),
        RNG.uniform(0.1, 0.9, (3, 4)),
    )
    probabilities, one = np.full((12, 2), np.nan), np.empty(4)

    for first, last in ((1, 3), (0, 1)):
        maximize_rating_probabilities(counts, sizes, p_unobserved, 1.0, first, last, probabilities)

    for item in range(3):
        for k in range(2):
            solve_probabilities(
                counts[item * 4 : item * 4 + 4, k], sizes[k], p_unobserved[item], 1.0, one
            )
            assert probabilities[item * 4 : item * 4 + 4, k].tolist() == one.tolist()
