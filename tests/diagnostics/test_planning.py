"""The number of random ratings for an interval of a given width."""

from __future__ import annotations

import numpy as np
import pytest

import unskew
from unskew import plan_random_sample

WORLD = unskew.simulate(200, 300, random_state=4)
LOSS = np.abs(WORLD.log.rating - 3.5 + 0.3 * np.sin(np.arange(len(WORLD.log))))
LEVELS, COUNTS = np.unique(WORLD.truth, return_counts=True)
SHARES = dict(zip(LEVELS.tolist(), (COUNTS / COUNTS.sum()).tolist(), strict=True))


def test_the_planned_number_gives_an_interval_of_the_planned_width() -> None:
    plan = plan_random_sample(WORLD.log, width=0.1, losses=LOSS, shares=SHARES)
    assert plan.n_ratings is not None
    sample = np.random.default_rng(0).choice(WORLD.truth.ravel(), plan.n_ratings)
    model = unskew.NaiveBayesPropensity().fit(WORLD.log, mcar=sample)
    predictions = WORLD.log.rating - LOSS
    (risk,) = unskew.evaluate(
        WORLD.log,
        predictions,
        propensities=model,
        metrics=["mae"],
        estimators=["snips"],
        cluster=None,
    )

    assert risk.ci_high - risk.ci_low == pytest.approx(0.1, rel=0.1)


def test_the_worst_case_needs_at_least_as_many_ratings() -> None:
    worst = plan_random_sample(WORLD.log, width=0.1, losses=LOSS)
    known = plan_random_sample(WORLD.log, width=0.1, losses=LOSS, shares=SHARES)

    assert worst.n_ratings is not None
    assert known.n_ratings is not None
    assert worst.n_ratings >= known.n_ratings
    assert "for any distribution of the ratings" in str(worst)


def test_a_width_that_the_log_does_not_allow_is_named() -> None:
    plan = plan_random_sample(WORLD.log, width=1e-4, losses=LOSS)

    assert plan.n_ratings is None
    assert "no number of random ratings" in repr(plan)
    assert plan.to_record()["smallest_width"] > 1e-4


def test_losses_that_are_equal_need_no_random_rating() -> None:
    assert plan_random_sample(WORLD.log, width=0.1, losses=np.ones(len(WORLD.log))).n_ratings == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"width": 0}, "`?width`? must be a finite number, above 0; got 0"),
        ({"width": 1, "losses": [1.0]}, "losses must have one finite number for each of the"),
        ({"width": 1, "shares": {1: 0.5}}, "shares must be at least 0 and add up to 1"),
    ],
)
def test_arguments_are_checked(options: dict[str, object], message: str) -> None:
    with pytest.raises(unskew.errors.UsageError, match=message):
        plan_random_sample(WORLD.log, **options)  # type: ignore[arg-type]
