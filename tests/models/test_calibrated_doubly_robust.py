"""Calibration of propensities and of an imputation, by groups of users."""

from __future__ import annotations

import numpy as np
import pytest

import unskew
from unskew.data.factors import Factors
from unskew.errors import UsageError
from unskew.models import CalibratedDoublyRobust
from unskew.models.calibrated_doubly_robust import (
    apply_lines,
    calibrate_odds,
    fit_lines,
    group_users,
)


def some_log(seed: int = 0) -> unskew.Ratings:
    rng = np.random.default_rng(seed)
    activity = rng.uniform(0.1, 0.6, (60, 1))
    seen = rng.random((60, 40)) < activity
    return unskew.Ratings.from_dense(np.where(seen, rng.integers(1, 6, seen.shape), 0))


def test_groups_have_equal_sizes_and_rising_activity() -> None:
    log = some_log()
    group, count = group_users(log, 4), np.bincount(log.user, minlength=60)

    assert np.bincount(group).tolist() == [15, 15, 15, 15]
    assert all(count[group == g].max() <= count[group == g + 1].min() for g in range(3))


def test_weights_of_each_group_add_up_to_its_cells() -> None:
    log = some_log()
    model = CalibratedDoublyRobust(2).fit(log, np.linspace(0.1, 0.9, len(log)))

    weight, group = 1 / model.propensities_, group_users(log, 4)[log.user]
    assert np.bincount(group, weight) == pytest.approx(np.full(4, 15 * 40.0))
    assert ((model.propensities_ > 0) & (model.propensities_ <= 1)).all()


def test_propensities_of_one_are_left_alone() -> None:
    log = some_log()

    assert calibrate_odds(log, np.zeros(len(log)), group_users(log, 2), 2).tolist() == [1.0, 1.0]


def test_a_line_is_recovered_and_noise_is_not_fitted() -> None:
    rng = np.random.default_rng(0)
    deviation, weight = rng.standard_normal(20_000), rng.uniform(1, 5, 20_000)
    group = np.repeat([0, 1], 10_000)
    error = np.where(group == 0, 0.5 - 0.3 * deviation, 0.0) + rng.standard_normal(20_000)

    lines = fit_lines(error, deviation, weight, group, 3)

    assert lines[0] == pytest.approx([0.5, -0.3], abs=0.05)
    assert np.abs(lines[1]).max() < 0.03
    assert lines[2].tolist() == [0, 0]


def test_lines_are_applied_to_the_predictions_of_each_user() -> None:
    rng = np.random.default_rng(1)
    factors = Factors(
        rng.standard_normal((4, 2)),
        rng.standard_normal((5, 2)),
        rng.standard_normal(4),
        rng.standard_normal(5),
        3.0,
    )
    lines = np.array([[0.1, 0.2], [0.0, 0.0], [0.3, -0.5], [0.1, 0.2]])
    users = np.arange(4, dtype=np.int32)

    found = apply_lines(factors, 2.5, lines)(users)

    imputed = factors(users)
    expected = imputed + lines[:, :1] + lines[:, 1:] * (imputed - 2.5)
    assert found == pytest.approx(expected)


def test_propensities_are_needed() -> None:
    with pytest.raises(UsageError, match="needs propensities to calibrate") as caught:
        CalibratedDoublyRobust().fit(some_log())
    assert caught.value.parameter == "propensities"
