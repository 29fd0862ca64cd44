from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from unskew.errors import UsageError
from unskew.estimators.estimate import Estimate

COVARIANCE = np.array([[4.0, 3.0], [3.0, 9.0]])
ESTIMATE = Estimate(np.array([10.0, 7.0]), COVARIANCE)


def test_normal_interval() -> None:
    interval = ESTIMATE.of(0, level=0.95)

    assert (interval.value, interval.std_error) == (10, 2)
    assert (interval.low, interval.high) == pytest.approx(stats.norm.interval(0.95, 10, 2))


def test_difference_uses_the_covariance() -> None:
    interval = ESTIMATE.difference(0, 1, level=0.9)

    assert interval.value == 3
    assert interval.std_error == pytest.approx(np.sqrt(4 + 9 - 2 * 3))
    assert interval.p_value == pytest.approx(2 * stats.norm.sf(3 / np.sqrt(7)))


def test_few_clusters_take_students_t() -> None:
    interval = Estimate(ESTIMATE.value, COVARIANCE, n_clusters=5).of(0, level=0.95)

    assert (interval.low, interval.high) == pytest.approx(stats.t.interval(0.95, 4, 10, 2))
    assert interval.p_value == pytest.approx(2 * stats.t.sf(5, 4))


def test_replicates_give_percentiles() -> None:
    replicates = np.column_stack([np.arange(101.0), np.zeros(101)])

    interval = Estimate(ESTIMATE.value, COVARIANCE, replicates=replicates).of(0, level=0.9)

    assert (interval.low, interval.high) == pytest.approx((5, 95))


def test_no_spread_is_no_doubt() -> None:
    certain = Estimate(np.array([1.0, 1.0]), np.zeros((2, 2)))

    assert certain.of(0, level=0.95).p_value == 0
    assert certain.difference(0, 1, level=0.95).p_value == 1


def test_rounding_is_no_difference() -> None:
    nearly = Estimate(np.array([0.3, 0.3 + 5e-17]), np.full((2, 2), 0.01) + np.diag([0, 1e-31]))

    interval = nearly.difference(0, 1, level=0.95)

    assert (interval.value, interval.low, interval.high, interval.p_value) == (0, 0, 0, 1)


def test_p_value_and_interval_of_a_bootstrap_agree() -> None:
    replicates = np.linspace(-0.1, 3.9, 1001)[:, None]

    interval = Estimate(np.array([2.0]), np.ones((1, 1)), replicates=replicates).of(0, level=0.95)

    assert interval.low == pytest.approx(0.0)
    assert interval.p_value == pytest.approx(2 * 27 / 1002)


def test_overflow_is_refused() -> None:
    with pytest.raises(UsageError, match="an estimate overflowed"):
        Estimate(np.array([np.inf]), np.ones((1, 1)))
