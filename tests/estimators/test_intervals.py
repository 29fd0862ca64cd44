"""Confidence limits: closed forms, and the two intervals that they combine."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from unskew.estimators.intervals import (
    Moments,
    ShareTest,
    combine_degrees,
    conservative_limits,
    conservative_p_value,
    conservative_quantiles,
)

HALVES = (slice(0, 20), slice(20, 50))


def test_without_skewness_the_limits_are_those_of_student() -> None:
    low, high = conservative_limits(2.0, 0.5, level=0.9, degrees=7, skewness=0.0)

    assert (low, high) == pytest.approx(stats.t.interval(0.9, 7, 2.0, 0.5))


@given(skewness=st.floats(-0.8, 0.8), degrees=st.floats(3, 200))
def test_limits_are_never_narrower_than_those_of_student(skewness: float, degrees: float) -> None:
    low, high = conservative_limits(0.0, 1.0, level=0.95, degrees=degrees, skewness=skewness)
    t = stats.t.ppf(0.975, degrees)

    assert low <= -t + 1e-12
    assert high >= t - 1e-12


@given(
    value=st.floats(-4, 4).filter(lambda value: abs(value) > 1e-3),
    skewness=st.floats(-0.5, 0.5),
    degrees=st.floats(5, 100),
)
def test_the_p_value_is_below_5_percent_exactly_if_the_interval_excludes_zero(
    value: float, skewness: float, degrees: float
) -> None:
    low, high = conservative_limits(value, 1.0, level=0.95, degrees=degrees, skewness=skewness)
    p_value = conservative_p_value(value, 1.0, degrees=degrees, skewness=skewness)

    if min(abs(low), abs(high)) > 1e-6:
        assert (p_value < 0.05) == (not low <= 0 <= high)


def test_two_levels_give_the_wilson_interval() -> None:
    test = ShareTest.of_levels(np.array([0.0, 1.0]), np.array([43.0, 7.0]), 0.0)
    low, high = test.limits(level=0.95, degrees=math.inf)
    wilson = stats.binomtest(7, 50).proportion_ci(0.95, method="wilson")

    assert (low, high) == pytest.approx((wilson.low, wilson.high), rel=1e-6)


def test_a_design_effect_is_a_smaller_sample() -> None:
    values, counts = np.array([0.0, 1.0]), np.array([40.0, 10.0])
    large = replace(ShareTest.of_levels(values, counts, 0.0), design_effect=2.0)
    half = ShareTest.of_levels(values, counts / 2, 0.0)

    assert large.limits(level=0.95, degrees=9) == pytest.approx(half.limits(level=0.95, degrees=9))


def test_a_level_that_the_sample_lacks_widens_the_interval_towards_it() -> None:
    values, counts = np.array([0.0, 1.0, 10.0]), np.array([30.0, 20.0, 0.0])
    without = ShareTest.of_levels(values[:2], counts[:2], 0.0).limits(level=0.95, degrees=49)
    low, high = ShareTest.of_levels(values, counts, 0.0).limits(level=0.95, degrees=49)

    assert high > without[1] + 0.1
    assert low == pytest.approx(without[0], rel=0.05)


@given(
    counts=st.lists(st.integers(0, 30), min_size=2, max_size=5).filter(lambda c: sum(c) > 4),
    data=st.data(),
)
def test_the_limits_of_the_share_test_agree_with_the_test(
    counts: list[int], data: st.DataObject
) -> None:
    values = data.draw(
        st.lists(st.integers(-5, 5), min_size=len(counts), max_size=len(counts), unique=True)
    )
    test = ShareTest.of_levels(np.array(values, float), np.array(counts, float), 0.01)
    low, high = test.limits(level=0.95, degrees=20)
    t = stats.t.ppf(0.975, 20)

    assert low <= test.mean <= high
    for limit in (low, high):
        assert abs(test.statistic(limit)) == pytest.approx(t, rel=1e-4)


@given(skewness=st.floats(-0.6, 0.6), shift=st.floats(-1.0, 1.0))
def test_skewness_moves_the_limits_of_the_share_test_as_it_moves_others(
    skewness: float, shift: float
) -> None:
    values, counts = np.array([-1.0, 0.2, 1.5]) + shift, np.array([20.0, 15.0, 15.0])
    plain, skewed = (ShareTest.of_levels(values, counts, 0.01, each) for each in (0.0, skewness))
    low, high = skewed.limits(level=0.95, degrees=30)
    down, up = conservative_quantiles(0.95, degrees=30, skewness=skewness)

    assert plain.limits(level=0.95, degrees=30)[0] >= low - 1e-9
    assert plain.limits(level=0.95, degrees=30)[1] <= high + 1e-9
    assert skewed.statistic(low) == pytest.approx(down, rel=1e-6)
    assert skewed.statistic(high) == pytest.approx(-up, rel=1e-6)
    if min(abs(low), abs(high)) > 1e-6:
        assert (skewed.p_value(30) < 0.05) == (not low <= 0 <= high)


def test_the_share_test_of_a_ratio_inverts_the_test_of_its_mean_difference() -> None:
    """R = sum q a / sum q b is rejected exactly if the mean of a - R b is told apart from 0."""
    a, b = np.array([1.0, 0.4, 3.0]), np.array([0.5, 1.0, 1.2])
    counts = np.array([12.0, 20.0, 8.0])
    value = float(counts @ a / (counts @ b))
    test = ShareTest(value, a - value * b, b, counts, 0.0)
    low, high = test.limits(level=0.95, degrees=39)

    assert test.mean == pytest.approx(value)
    for mean in (low, high):
        of_mean = ShareTest.of_levels(a - mean * b, counts, 0.0)
        limits = of_mean.limits(level=0.95, degrees=39)
        assert min(map(abs, limits)) == pytest.approx(0, abs=1e-9)


def test_two_way_moments_have_the_fewer_degrees_and_the_larger_third_moment() -> None:
    rng = np.random.default_rng(0)
    users, items = Moments.of(rng.normal(size=(2, 40))), Moments.of(rng.gamma(0.5, size=(2, 10)))
    covariance = users.covariance + items.covariance
    both = users.combine(items, covariance)
    variance, degrees, skewness = both.of_contrast(0, None)

    assert both.covariance == pytest.approx(covariance)
    assert degrees == pytest.approx(min(users.degrees[0, 0], items.degrees[0, 0]))
    assert skewness == pytest.approx(items.third[0, 0] / variance**1.5)


def test_moments_of_equal_normal_contributions_have_two_thirds_of_their_number_as_degrees() -> None:
    z = np.random.default_rng(0).normal(size=(1, 200_000))
    variance, degrees, skewness = Moments.of(z).of_contrast(0, None)

    assert variance == pytest.approx(200_000, rel=0.01)
    assert degrees == pytest.approx(2 / 3 * 200_000, rel=0.02)
    assert abs(skewness) < 0.05


@pytest.mark.parametrize("n_models", [1, 2, 5])
def test_moments_are_those_of_each_risk_and_each_difference(n_models: int) -> None:
    rng = np.random.default_rng(n_models)
    z = rng.gamma(2.0, size=(n_models, 50))
    variance, third = rng.uniform(size=50), rng.normal(size=50)
    moments = Moments.add_up((z[:, rows], variance[rows], third[rows]) for rows in HALVES)

    for i in range(n_models):
        for j in range(i, n_models):
            row = z[i] if i == j else z[i] - z[j]
            assert moments.second[i, j] == pytest.approx((variance * row**2).sum())
            assert moments.third[i, j] == pytest.approx((variance * third * row**3).sum())
            assert moments.fourth[i, j] == pytest.approx(np.square(variance * row**2).sum())


def test_moments_of_a_difference_change_sign_with_its_direction() -> None:
    z = np.random.default_rng(0).gamma(1.0, size=(2, 100))
    moments = Moments.of(z)

    forward, backward = moments.of_contrast(0, 1), moments.of_contrast(1, 0)
    assert forward[:2] == backward[:2]
    assert forward[2] == -backward[2]
    assert forward[0] == pytest.approx(np.square(z[0] - z[1]).sum())


def test_degrees_of_a_sum_lie_between_the_smaller_ones_and_their_sum() -> None:
    assert combine_degrees((1.0, 10), (0.0, 5)) == pytest.approx(10)
    assert combine_degrees((1.0, 10), (1.0, 10)) == pytest.approx(20)
