"""Metrics of recommended items: the estimate is normalised by the slots that were observed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from enumeration import expectation
from unskew.data.estimation import RandomSample, Strata
from unskew.data.propensities import Propensities
from unskew.data.universe import Universe
from unskew.errors import UsageError
from unskew.estimators.estimate import Estimate
from unskew.estimators.intervals import wilson_limits
from unskew.estimators.observed import Clusters, Deltas, ObservedCells
from unskew.estimators.point import find_estimator
from unskew.types import BoolVector, Matrix, Vector

U, I, TOP = 40, 10, 3  # noqa: E741
rng = np.random.default_rng(5)
P_ALL = rng.uniform(0.2, 0.8, (U, I))
SEEN = rng.random((U, I)) < P_ALL
GAIN = (rng.random((U, I)) < 0.4).astype(float)
POSITION = np.stack([rng.permuted(np.tile(np.arange(1, I + 1), (U, 1)), axis=1) for _ in range(2)])
SLOTS = I / TOP * (POSITION <= TOP)


def observe(seen: Matrix = SEEN, p: Matrix = P_ALL, **changes: Any) -> ObservedCells:
    user, item = (codes.astype(np.int32) for codes in np.nonzero(seen))
    return ObservedCells(
        Clusters(user, U),
        Clusters(item, I),
        Propensities(p[seen]),
        **({"universe": Universe(U, I)} | changes),
    )


def cut(seen: Matrix = SEEN, gain: Matrix = GAIN) -> Deltas:
    """Precision@3 of two models on the observed cells."""
    slots = SLOTS[:, seen]
    return Deltas(slots * gain[seen], slots=slots, bounds=(0.0, 1.0))


def snips(deltas: Deltas, cells: ObservedCells) -> Estimate:
    return find_estimator("snips").estimate(deltas, cells)


@pytest.mark.parametrize("cluster", [None, "user", "item", "both"])
def test_snips_is_the_weighted_share_of_hits_among_the_observed_slots(cluster: Any) -> None:
    estimate = snips(cut(), observe(cluster=cluster))

    for model in range(2):
        weight = (SEEN & (POSITION[model] <= TOP)) / P_ALL
        assert estimate.value[model] == pytest.approx((weight * GAIN).sum() / weight.sum())
    assert estimate.slots is not None
    np.testing.assert_array_equal(estimate.slots.count, (SEEN & (POSITION <= TOP)).sum(axis=(1, 2)))


def test_covariance_of_independent_cells_by_hand() -> None:
    estimate = snips(cut(), observe())

    weight = SEEN * (POSITION <= TOP) / P_ALL
    residual = weight * (GAIN - estimate.value[:, None, None]) * np.sqrt(1 - P_ALL)
    influence = residual / weight.sum(axis=(1, 2), keepdims=True)
    expected = np.einsum("ica,jca->ij", influence, influence)
    np.testing.assert_allclose(estimate.covariance, expected)


@pytest.mark.parametrize("cluster", [None, "user", "item", "both"])
def test_the_interval_of_a_model_does_not_depend_on_the_others(cluster: Any) -> None:
    """Also if their lists were observed to a different extent. Graded gains have no bounds."""
    deltas, cells = cut(gain=GAIN + 0.3 * POSITION[0]), observe(cluster=cluster)
    slots = deltas.slots
    assert slots is not None
    slots[1, ::2] = 0.0
    value = deltas.value * (slots > 0)
    together = snips(Deltas(value, slots=slots), cells)

    for model in range(2):
        alone = snips(Deltas(value[[model]], slots=slots[[model]]), cells).of(0, level=0.95)
        found = together.of(model, level=0.95)
        assert (found.value, found.std_error) == pytest.approx((alone.value, alone.std_error))
        assert (found.low, found.high) == pytest.approx((alone.low, alone.high))


def test_ips_keeps_its_definition() -> None:
    estimate = find_estimator("ips").estimate(cut(), observe())

    np.testing.assert_allclose(estimate.value, (SEEN / P_ALL * SLOTS * GAIN).mean(axis=(1, 2)))
    assert estimate.slots is None


def test_snips_with_equal_propensities_is_the_naive_share() -> None:
    cells = observe(p=np.full((U, I), 0.5))

    naive = find_estimator("naive").estimate(cut(), cells)

    np.testing.assert_allclose(snips(cut(), cells).value, naive.value)
    is_slot = SEEN & (POSITION[0] <= TOP)
    assert naive.value[0] == pytest.approx(GAIN[is_slot].mean())


def test_the_normaliser_is_right_on_average() -> None:
    """By enumeration: E[sum h slots] = U * I, and E[sum h slots gain] = U * I * risk."""
    p, slots = np.array([0.2, 0.5, 0.9, 0.4]), np.array([2.0, 0.0, 2.0, 0.0])

    assert expectation(p, lambda seen: float((seen * slots / p).sum())) == pytest.approx(4.0)


@given(
    gain=arrays(np.float64, (U, I), elements=st.sampled_from([0.0, 0.5, 1.0])),
    p=arrays(np.float64, (U, I), elements=st.floats(0.001, 1.0)),
    cluster=st.sampled_from([None, "user", "item"]),
)
def test_snips_and_its_interval_never_leave_the_range(
    gain: Matrix, p: Matrix, cluster: Any
) -> None:
    estimate = snips(cut(gain=gain), observe(p=p, cluster=cluster))

    assert not estimate.is_outside.any()
    for model in range(2):
        interval = estimate.of(model, level=0.95)
        assert -1e-12 <= interval.low <= interval.value + 1e-12
        assert interval.value - 1e-12 <= interval.high <= 1 + 1e-12
    difference = estimate.difference(0, 1, level=0.95)
    assert -1 <= difference.low <= difference.high <= 1


def judge_equal_weights(gain: Vector, p: float) -> Estimate:
    """All items are slots, and all have the same propensity."""
    code = np.arange(gain.size, dtype=np.int32)
    cells = ObservedCells(
        Clusters(code, gain.size), Clusters(code, gain.size), Propensities(np.full(gain.size, p))
    )
    return snips(Deltas(gain[None], slots=np.ones((1, gain.size)), bounds=(0.0, 1.0)), cells)


@pytest.mark.parametrize("n_hits", [0, 1, 7, 19, 20])
def test_equal_weights_give_plain_wilson(n_hits: int) -> None:
    """With tiny propensities, 20 slots are a simple random sample of many."""
    interval = judge_equal_weights(np.arange(20) < n_hits, 1e-6).of(0, level=0.95)

    expected = wilson_limits(n_hits / 20, 20, level=0.95)
    assert (interval.low, interval.high) == pytest.approx(expected, rel=2e-2, abs=1e-5)


def test_slots_that_were_all_certain_to_be_seen_leave_no_doubt() -> None:
    interval = judge_equal_weights(np.arange(20) < 7, 1.0).of(0, level=0.95)

    assert (interval.low, interval.high) == (0.35, 0.35)


def test_an_outside_sample_shrinks_the_effective_size() -> None:
    """Propensities by rating from a few random ratings: the interval is much wider."""
    user, item = (codes.astype(np.int32) for codes in np.nonzero(SEEN))
    level = GAIN[SEEN].astype(np.int32)
    counts = np.bincount(level).astype(float)
    widths = []
    for size in (50, 1_000_000):
        share = np.array([0.6, 0.4])
        strata = Strata(
            model="naive Bayes",
            group=level,
            n_observed=counts,
            propensity=counts / (U * I * share),
            kind="rating",
            sample=RandomSample(share, share * size),
        )
        propensities = Propensities((counts / (U * I * share))[level], strata)
        cells = ObservedCells(
            Clusters(user, U), Clusters(item, I), propensities, universe=Universe(U, I)
        )
        interval = snips(cut(), cells).of(0, level=0.95)
        widths.append(interval.high - interval.low)

    assert widths[0] > 1.3 * widths[1]


def test_gains_related_to_weights_shrink_the_effective_size() -> None:
    """Misses are rarely logged, so the few that are seen decide, whatever Kish's number says."""
    gain = np.r_[np.ones(90), np.zeros(10)]
    p = np.where(gain == 1, 0.5, 0.05)
    code = np.arange(100, dtype=np.int32)
    cells = ObservedCells(Clusters(code, 100), Clusters(code, 100), Propensities(p))
    estimate = snips(Deltas(gain[None], slots=np.ones((1, 100)), bounds=(0.0, 1.0)), cells)

    interval = estimate.of(0, level=0.95)

    assert estimate.slots is not None
    by_kish = wilson_limits(interval.value, float(estimate.slots.binomial[0]), level=0.95)
    assert interval.high - interval.low >= by_kish[1] - by_kish[0]
    variance = float(estimate.covariance[0, 0])
    assert interval.high - interval.low > 2 * 1.9 * np.sqrt(variance)


def test_a_list_that_was_never_seen_has_no_estimate() -> None:
    seen = SEEN & (POSITION[1] > TOP)

    with pytest.raises(UsageError, match="no item that model 2 of 2 recommends was rated"):
        snips(cut(seen), observe(seen))


def test_weights_of_zero_leave_nothing_to_average_over() -> None:
    with pytest.raises(UsageError, match="every cell that this metric counts has weight 0"):
        snips(cut(), observe(weight_transform=lambda weight: 0.0 * weight))


def wilson_covers(p: Matrix, gain: Matrix, is_slot: BoolVector, n_draws: int) -> float:
    draws = np.random.default_rng(0)
    risk, slots = gain[is_slot].mean(), I / TOP * is_slot
    n_covered = 0
    for _ in range(n_draws):
        seen = draws.random(p.shape) < p
        deltas = Deltas((slots * gain)[seen][None], slots=slots[seen][None], bounds=(0.0, 1.0))
        interval = snips(deltas, observe(seen, p)).of(0, level=0.95)
        n_covered += interval.low <= risk <= interval.high
    return n_covered / n_draws


@pytest.mark.parametrize("by_rating", [False, True])
def test_wilson_intervals_cover(by_rating: bool) -> None:
    """400 draws; with 95 %, a share below 0.915 has a probability of 1 in 1,000.

    If misses are logged less often than hits, the size by weights alone would cover about 80 %.
    """
    world = np.random.default_rng(8)
    gain = (world.random((U, I)) < 0.8).astype(float)
    p = np.where(gain == 1, 0.5, 0.12) if by_rating else world.uniform(0.05, 0.5, (U, I))

    assert wilson_covers(p, gain, POSITION[0] <= 8, 400) >= 0.915
