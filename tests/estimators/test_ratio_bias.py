"""The bias of a mean over users of ratios of few cells."""

from __future__ import annotations

import math

import numpy as np
import pytest

from enumeration import patterns
from unskew.data.propensities import Propensities
from unskew.data.universe import Universe
from unskew.estimators.estimate import Estimate
from unskew.estimators.observed import Clusters, Deltas, ObservedCells
from unskew.estimators.point import find_estimator
from unskew.types import BoolVector, Matrix, Vector

DELTA = np.array([0.0, 1.0, 7.0, 2.0, 9.0, 3.0])
BASE = np.array([1.0, 0.5, 2.0, 1.0, 1.0, 0.0])


def estimate_users(
    delta: Matrix, p: Matrix, seen: BoolVector, base: Matrix | None = None
) -> Estimate:
    """User-normalised risks; with a base, the mean over users of their ratios."""
    n_users, n_items = p.shape
    user, item = (codes.astype(np.int32) for codes in np.nonzero(seen))
    cells = ObservedCells(
        Clusters(user, n_users),
        Clusters(item, n_items),
        Propensities(p[seen]),
        universe=Universe(n_users, n_items),
    )
    if base is None:
        return find_estimator("user_normalized").estimate(Deltas(delta[seen][None]), cells)
    deltas = Deltas(delta[seen][None], base[seen], is_mean_of_users=True)
    return find_estimator("snips").estimate(deltas, cells)


def ratio_and_bias(delta: Vector, base: Vector | None, p: Vector, seen: BoolVector) -> Vector:
    """The ratio of one user, beside a second one with the same cells, and its estimated bias."""
    twice = [np.stack([each, each]) for each in (delta, p, seen)]
    bases = None if base is None else np.stack([base, base])
    estimate = estimate_users(twice[0], twice[1], twice[2].astype(bool), bases)
    assert estimate.ratio_bias is not None
    return np.array([estimate.value[0], estimate.ratio_bias.first_order[0]])


@pytest.mark.parametrize(("base", "tolerance"), [(None, 0.005), (BASE, 0.3)])
def test_the_estimated_bias_is_the_true_one_to_first_order(
    base: Vector | None, tolerance: float
) -> None:
    """By enumeration of all 64 logs of a user with propensities 1 - epsilon * missing.

    If only one cell can be missing, with weight l in the ratio, the ratio changes by
    -e / (B (1 - l)). The estimate has the mean of 1 - l, which is exact if all l are equal.
    """
    missing, epsilon = np.array([1.0, 3.0, 2.0, 0.5, 1.5, 1.0]), 1e-4
    p = 1 - epsilon * missing
    mean = np.zeros(2)
    for seen, probability in patterns(p):
        if probability > 1e-12:
            mean += probability * ratio_and_bias(DELTA, base, p, seen)
    ones = np.ones(6) if base is None else base
    true_bias = mean[0] - DELTA.sum() / ones.sum()

    residual = DELTA - DELTA.sum() / ones.sum() * ones
    by_hand = -epsilon * (missing * residual * ones / (ones.sum() - ones)).sum() / ones.sum()
    assert true_bias == pytest.approx(by_hand, rel=2e-3)
    assert mean[1] == pytest.approx(true_bias, rel=tolerance)


def draw(n_users: int, p_by_level: Vector, seed: int) -> tuple[Estimate, float]:
    """A hundred items of five levels, logged by level: the estimate and the truth."""
    rng = np.random.default_rng(seed)
    level = rng.choice(5, size=(n_users, 100), p=[0.3, 0.25, 0.2, 0.15, 0.1])
    delta = (level - 1.0) ** 2
    p = p_by_level[level]
    return estimate_users(delta, p, rng.random(p.shape) < p), float(delta.mean())


def test_no_interval_where_the_bias_is_large() -> None:
    estimate, truth = draw(300, np.array([0.02, 0.03, 0.06, 0.12, 0.20]), 0)
    interval = estimate.of(0, level=0.95)

    assert estimate.value[0] - truth > 3 * estimate.plain_std_error(0)
    assert estimate.find_ratio_bias(0) == pytest.approx(estimate.value[0] - truth, rel=0.5)
    numbers = (interval.std_error, interval.low, interval.high, interval.p_value)
    assert all(math.isnan(number) for number in numbers)
    assert interval.value == estimate.value[0]


def test_equal_propensities_have_no_bias_and_keep_their_interval() -> None:
    estimate, truth = draw(300, np.full(5, 0.1), 1)
    interval = estimate.of(0, level=0.95)

    assert estimate.ratio_bias is not None
    assert estimate.ratio_bias.first_order[0] == pytest.approx(0.0, abs=1e-12)
    assert interval.low < truth < interval.high


def test_a_difference_of_models_with_the_same_bias_keeps_its_interval() -> None:
    rng = np.random.default_rng(2)
    level = rng.choice(5, size=(300, 100))
    p = np.array([0.02, 0.03, 0.06, 0.12, 0.20])[level]
    seen = rng.random(p.shape) < p
    noise = rng.normal(0, 0.3, p.shape)
    user, item = (codes.astype(np.int32) for codes in np.nonzero(seen))
    deltas = Deltas(np.stack([level[seen] + noise[seen], level[seen] * 1.0]))
    cells = ObservedCells(Clusters(user, 300), Clusters(item, 100), Propensities(p[seen]))
    estimate = find_estimator("user_normalized").estimate(deltas, cells)

    assert math.isnan(estimate.of(0, level=0.95).low)
    assert estimate.difference(0, 1, level=0.95).std_error > 0


def test_users_with_a_single_cell_do_not_show_their_bias() -> None:
    seen = np.array([[True, False], [False, True], [True, False]])
    estimate = estimate_users(np.arange(6.0).reshape(3, 2), np.full((3, 2), 0.5), seen)

    assert estimate.ratio_bias is not None
    assert math.isnan(estimate.ratio_bias.first_order[0])
    assert math.isnan(estimate.of(0, level=0.95).low)
