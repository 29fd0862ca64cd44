from __future__ import annotations

from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from unskew.kernels.mixture import count_clusters, share_clusters, solve_levels, solve_one
from unskew.types import Vector

RNG = np.random.default_rng(0)
STARTS = np.array([0, 3, 3, 5, 6])


def test_shares_are_the_softmax_of_a_users_scores() -> None:
    slot, begin, table = RNG.integers(0, 8, 6), RNG.normal(size=3), 400 * RNG.normal(size=(8, 3))
    shares, evidence = np.full((4, 3), np.nan), np.full(4, np.nan)

    for first, last in ((2, 4), (0, 2)):
        share_clusters(STARTS, slot, begin, table, first, last, shares, evidence)

    score = np.array([begin + table[slot[a:b]].sum(axis=0) for a, b in pairwise(STARTS)])
    np.testing.assert_allclose(evidence, np.logaddexp.reduce(score, axis=1))
    np.testing.assert_allclose(shares, np.exp(score - evidence[:, None]), atol=1e-300)


def test_counts_add_up_the_shares_of_raters() -> None:
    user, shares, counts = (
        RNG.integers(0, 5, 6).astype(np.int32),
        RNG.random((5, 3)),
        np.full((4, 3), np.nan),
    )

    for first, last in ((0, 1), (1, 4)):
        count_clusters(STARTS, user, shares, first, last, counts)

    expected = np.zeros((4, 3))
    np.add.at(expected, np.repeat(np.arange(4), np.diff(STARTS)), shares[user])
    np.testing.assert_allclose(counts, expected)


positive = st.floats(1e-6, 1e6)


@given(
    counts=arrays(np.float64, 4, elements=st.one_of(st.just(0.0), positive)),
    missing=st.one_of(st.just(0.0), positive),
    unlogged=arrays(np.float64, 4, elements=st.floats(1e-3, 1 - 1e-6)),
    smoothing=st.floats(1e-3, 10),
)
def test_levels_are_stationary(
    counts: Vector, missing: float, unlogged: Vector, smoothing: float
) -> None:
    """At the best B the derivative (A_r + smoothing) / B_r + M unlogged_r / m is the same for all r: N + M."""
    found = np.empty(4)

    solve_one(counts, counts.sum() + missing, unlogged, smoothing, found)

    assert (found > 0).all()
    assert np.isclose(found.sum(), 1)
    total = (counts + smoothing).sum() + missing
    slope = (counts + smoothing) / found + missing * unlogged / (unlogged @ found)
    np.testing.assert_allclose(slope, total, rtol=1e-6)


def test_without_unlogged_cells_and_with_equal_chances_levels_are_counts() -> None:
    counts, found = np.array([3.0, 0.0, 1.0]), np.empty(3)

    for size, unlogged in ((4.0, [0.9, 0.5, 0.1]), (100.0, [0.7, 0.7, 0.7])):
        solve_one(counts, size, np.array(unlogged), 0.5, found)
        np.testing.assert_allclose(found, [3.5 / 5.5, 0.5 / 5.5, 1.5 / 5.5], rtol=1e-12)


def test_a_single_level_has_it_all() -> None:
    found = np.empty(1)

    solve_one(np.array([3.0]), 50.0, np.array([0.8]), 1.0, found)

    assert found.tolist() == [1]


def test_items_are_solved_one_by_one_for_each_cluster() -> None:
    counts, sizes, unlogged = (
        RNG.random((3 * 4, 2)),
        np.array([20.0, 30.0]),
        RNG.uniform(0.1, 0.9, (3, 4)),
    )
    found, one = np.full((12, 2), np.nan), np.empty(4)

    for first, last in ((1, 3), (0, 1)):
        solve_levels(counts, sizes, unlogged, 1.0, first, last, found)

    for item in range(3):
        for k in range(2):
            solve_one(counts[item * 4 : item * 4 + 4, k], sizes[k], unlogged[item], 1.0, one)
            assert found[item * 4 : item * 4 + 4, k].tolist() == one.tolist()
