"""Limits that hold at every look: closed forms, slow twins, batches, and coverage."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import special

from unskew.errors import UsageError
from unskew.estimators.intervals import Moments, conservative_limits
from unskew.estimators.sequences import BernsteinSequence, SequenceClock, UnitMoments
from unskew.types import Matrix, Vector

N_ARRIVALS, MAX_WEIGHT = 30_000, 50.0


def test_the_limits_are_half_again_as_wide_as_ordinary_ones_at_the_planned_size() -> None:
    clock = SequenceClock(5_000, 5_000, 5_000)

    assert clock.multiplier(0.95) / 1.959964 == pytest.approx(1.5486, abs=1e-4)
    low, high = clock.limits(2.0, 0.1, level=0.95)
    assert (low + high) / 2 == pytest.approx(2.0)
    assert high - 2.0 == pytest.approx(0.1 * clock.multiplier(0.95))


@given(
    t=st.integers(1, 10**6),
    planned=st.integers(1, 10**6),
    level=st.sampled_from([0.5, 0.9, 0.95, 0.999]),
)
def test_the_multiplier_is_that_of_the_published_formula(
    t: int, planned: int, level: float
) -> None:
    """sd sqrt(2 (t rho^2 + 1) / (t^2 rho^2) log(sqrt(t rho^2 + 1) / alpha)) over sd / sqrt(t)."""
    alpha = 1 - level
    rho2 = (-2 * math.log(alpha) + math.log(1 - 2 * math.log(alpha))) / planned
    width = math.sqrt(
        2 * (t * rho2 + 1) / (t**2 * rho2) * math.log(math.sqrt(t * rho2 + 1) / alpha)
    )

    assert SequenceClock(t, planned, 1e9).multiplier(level) == pytest.approx(
        width * math.sqrt(t), rel=1e-9
    )


@given(value=st.floats(-5, 5), t=st.integers(1, 10_000))
def test_the_p_value_agrees_with_the_limits(value: float, t: int) -> None:
    clock = SequenceClock(t, 1_000, 500)

    low, high = clock.limits(value, 1.0, level=0.95)
    p_value = clock.p_value(value, 1.0, level=0.95)

    assert 0 < p_value <= 1
    if abs(p_value - 0.05) > 1e-9:
        assert (p_value < 0.05) == (low > 0 or high < 0)


def test_it_is_too_early_below_an_effective_sample_size_of_100() -> None:
    clock = SequenceClock(5_000, 5_000, 99.9)

    assert clock.is_early
    assert clock.limits(1.0, 0.0, level=0.95) == (-math.inf, math.inf)
    assert clock.p_value(9.0, 0.1, level=0.95) == 1.0
    assert not SequenceClock(5_000, 5_000, 100.0).is_early


def test_units_that_are_all_equal_so_far_prove_nothing() -> None:
    """A rare unit that differs may come later: without clicks, a click rate of 0 is not certain."""
    clock = SequenceClock(5_000, 5_000, 4_000)

    assert clock.limits(0.0, 0.0, level=0.95) == (-math.inf, math.inf)
    assert clock.p_value(2.0, 0.0, level=0.95) == 1.0


def units(n: int, seed: int = 0) -> Matrix:
    rng = np.random.default_rng(seed)
    weight = rng.exponential(3.0, n) * (rng.random(n) < 0.5)
    return np.column_stack([weight * rng.normal(1, 1, n), weight * rng.normal(2, 1, n), weight])


def test_moments_give_ips_and_snips_with_their_variances() -> None:
    x = units(400)
    moments = UnitMoments.empty(2).update(x)

    value, covariance, of_errors = moments.ratio()
    snips = x[:, :2].sum(axis=0) / x[:, 2].sum()
    influence = (x[:, :2] - snips * x[:, 2:]) / x[:, 2].sum()
    np.testing.assert_allclose(value, snips)
    np.testing.assert_allclose(covariance, influence.T @ influence, rtol=1e-10)
    require_equal_moments(of_errors, Moments.of(influence.T))

    value, covariance, of_errors = moments.mean(size=4)
    np.testing.assert_allclose(value, x[:, :2].mean(axis=0) / 4)
    np.testing.assert_allclose(covariance, np.cov(x[:, :2].T, bias=True) / 400 / 16, rtol=1e-10)
    require_equal_moments(of_errors, Moments.of((x[:, :2].T / 4 - value[:, None]) / 400))
    assert moments.effective_size == pytest.approx(x[:, 2].sum() ** 2 / (x[:, 2] ** 2).sum())

    # Units without weight can be counted instead of stored.
    seen = x[x[:, 2] > 0]
    few = UnitMoments.empty(2).update(seen).mean(n_units=400, size=4)
    np.testing.assert_allclose(few.value, value)
    np.testing.assert_allclose(few.covariance, covariance, rtol=1e-10)
    require_equal_moments(few.moments, of_errors)


def require_equal_moments(found: Moments, expected: Moments) -> None:
    upper = np.triu_indices(len(expected.second))
    for name in ("second", "third", "fourth"):
        np.testing.assert_allclose(
            getattr(found, name)[upper], getattr(expected, name)[upper], rtol=1e-9
        )


def test_moments_of_units_that_hardly_differ_are_not_too_small() -> None:
    """Their fourth powers cancel: what is left is a rounding error, perhaps a negative one."""
    weight = np.random.default_rng(1).exponential(3.0, 500)
    delta = 1 + 1e-6 * np.random.default_rng(2).normal(size=500)
    moments = UnitMoments.empty(1).update(np.column_stack([weight * delta, weight])).ratio().moments
    z = weight * (delta - (weight * delta).sum() / weight.sum()) / weight.sum()

    assert moments.fourth[0, 0] >= (z**4).sum()
    assert abs(moments.third[0, 0]) >= abs((z**3).sum())


@given(
    degrees=st.floats(1, 1e4) | st.just(math.inf),
    skewness=st.floats(-1, 1),
    value=st.floats(-30, 30),
    t=st.sampled_from([10, 300, 100_000]),
)
def test_limits_of_few_or_skewed_units_are_wider_and_agree_with_the_p_value(
    degrees: float, skewness: float, value: float, t: int
) -> None:
    clock = SequenceClock(t, 1_000, 500)
    shape: Any = {"level": 0.95, "degrees": degrees, "skewness": skewness}
    low, high = clock.limits(value, 1.0, **shape)
    plain = clock.limits(value, 1.0, level=0.95)
    p_value = clock.p_value(value, 1.0, **shape)

    assert low <= plain[0] + 1e-9
    assert high >= plain[1] - 1e-9
    assert p_value >= clock.p_value(value, 1.0, level=0.95) * (1 - 1e-9)
    if min(abs(low), abs(high)) > 1e-6:
        assert (p_value < 0.05) == (low > 0 or high < 0)
    mirrored = clock.limits(-value, 1.0, **shape | {"skewness": -skewness})
    assert mirrored == pytest.approx((-high, -low))


def test_limits_are_the_ordinary_ones_at_the_level_of_the_multiplier() -> None:
    clock = SequenceClock(700, 1_000, 500)
    level = float(special.erf(clock.multiplier(0.95) / math.sqrt(2)))
    shape = {"degrees": 12.0, "skewness": 0.2}

    found = clock.limits(2.0, 0.1, level=0.95, **shape)
    assert found == pytest.approx(conservative_limits(2.0, 0.1, level=level, **shape), rel=1e-6)


def test_moments_of_disjoint_units_add_up_and_do_not_depend_on_batches() -> None:
    x = units(70_000)
    whole = UnitMoments.empty(2).update(x)
    parts = UnitMoments.empty(2)
    for start, stop in ((0, 1), (1, 40_000), (40_000, 40_000), (40_000, 70_000)):
        parts = parts.update(x[start:stop])
    added = UnitMoments.empty(2).update(x[:123]) + UnitMoments.empty(2).update(x[123:])

    assert whole.n_units == parts.n_units == added.n_units == 70_000
    assert np.array_equal(whole.total, parts.total)
    assert np.array_equal(whole.moment, parts.moment)
    assert np.array_equal(whole.powers, parts.powers)
    np.testing.assert_allclose(added.moment, whole.moment)
    np.testing.assert_allclose(added.powers, whole.powers)


def test_no_weight_at_all_is_an_error() -> None:
    with pytest.raises(UsageError, match="all weights are zero"):
        UnitMoments.empty(1).update(np.zeros((3, 2))).ratio()
    assert UnitMoments.empty(1).effective_size == 0.0


def bernstein_slowly(u: Vector, level: float) -> tuple[float, float, float]:
    """The exact limits, one value after the other."""
    log_term = math.log(2 / (1 - level))
    total = square = bets = weighted = penalty = 0.0
    mean, variance = 0.5, 0.25
    for i, value in enumerate(u, start=1):
        bet = min(math.sqrt(2 * log_term / (variance * i * math.log(1 + i))), 0.5)
        psi = (-math.log(1 - bet) - bet) / 4
        penalty += 4 * (value - mean) ** 2 * psi
        bets, weighted, total = bets + bet, weighted + bet * value, total + value
        mean = (0.5 + total) / (i + 1)
        square += (value - mean) ** 2
        variance = (0.25 + square) / (i + 1)
    return (
        weighted / bets,
        weighted / bets - (log_term + penalty) / bets,
        (weighted / bets + (log_term + penalty) / bets),
    )


@pytest.mark.parametrize("level", [0.9, 0.95])
def test_exact_limits_are_those_of_the_formula(level: float) -> None:
    u = np.random.default_rng(0).beta(0.2, 2.0, 2_000)

    state = BernsteinSequence(low=0.0, high=1.0, level=level).update(u)
    value, low, high = bernstein_slowly(u, level)

    assert state.value == pytest.approx(value, rel=1e-12)
    assert state.limits() == pytest.approx((max(low, 0), high), rel=1e-10)

    shifted = BernsteinSequence(low=-3.0, high=5.0, level=level).update(8 * u - 3)
    assert shifted.value == pytest.approx(8 * value - 3)
    assert shifted.limits() == pytest.approx((8 * max(low, 0) - 3, 8 * high - 3))


def test_exact_limits_do_not_depend_on_batches() -> None:
    u = np.random.default_rng(1).random(40_000)
    parts = BernsteinSequence(low=0.0, high=1.0)
    for part in np.split(u, [1, 2, 500, 33_333]):
        parts = parts.update(part)

    assert parts == BernsteinSequence(low=0.0, high=1.0).update(u)


def test_exact_limits_refuse_values_outside_the_promised_range() -> None:
    state = BernsteinSequence(low=0.0, high=2.0)

    assert math.isnan(state.value)
    assert state.limits() == (0.0, 2.0)
    with pytest.raises(
        UsageError, match=r"1 of 2 values lie outside .* from 0 to 2; the first is 3"
    ):
        state.update(np.array([1.0, 3.0]))
    with pytest.raises(UsageError, match="must be below"):
        BernsteinSequence(low=1.0, high=1.0)


def draw_arrivals(rng: np.random.Generator) -> tuple[Vector, Vector]:
    """Weights up to 50, of which 15 % are above 0, and deltas that fall with the propensity."""
    quality = rng.random(N_ARRIVALS)
    propensity = np.maximum(1 / MAX_WEIGHT, 0.6 * quality**3)
    delta = 0.5 + (1 - quality) + rng.uniform(-0.5, 0.5, N_ARRIVALS)
    return np.where(rng.random(N_ARRIVALS) < propensity, 1 / propensity, 0.0), delta


def test_limits_hold_at_all_looks_together_and_ordinary_intervals_do_not() -> None:
    """300 growing logs, 60 looks each. 95 % minus three standard errors is 91.2 %."""
    truth, n_logs = 1.0, 300
    looks = np.unique(np.geomspace(200, N_ARRIVALS, 60).astype(int))
    clocks = [SequenceClock(look, 10_000, 1e9) for look in looks]
    multiplier = np.array([clock.multiplier(0.95) for clock in clocks])
    n_wrong = {"snips": 0, "ordinary": 0, "exact": 0}
    rng = np.random.default_rng(17)
    for _ in range(n_logs):
        weight, delta = draw_arrivals(rng)
        columns = np.stack([weight, weight * delta])
        products = np.stack([columns[0] ** 2, columns[0] * columns[1], columns[1] ** 2])
        w, wd, ww, wwd, wdwd = np.cumsum(np.vstack([columns, products]), axis=1)[:, looks - 1]
        risk = wd / w
        distance = np.abs(risk - truth) / (np.sqrt(wdwd - 2 * risk * wwd + risk**2 * ww) / w)
        can_look = w**2 / ww >= 100
        n_wrong["snips"] += bool((distance > multiplier)[can_look].any())
        n_wrong["ordinary"] += bool((distance > 1.96)[can_look].any())
        n_wrong["exact"] += _misses_once(columns[1], looks, truth)

    assert n_wrong["snips"] <= 0.088 * n_logs
    assert n_wrong["exact"] <= 0.088 * n_logs
    assert n_wrong["ordinary"] > 0.2 * n_logs


def _misses_once(values: Vector, looks: Vector, truth: float) -> bool:
    state, start = BernsteinSequence(low=0.0, high=MAX_WEIGHT * 2), 0
    for look in looks:
        state, start = state.update(values[start:look]), look
        low, high = state.limits()
        if not low <= truth <= high:
            return True
    return False
