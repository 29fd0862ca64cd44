"""Tests of propensities: their level, their power, and what they cannot see."""

from __future__ import annotations

import numpy as np
import pytest

import unskew
from unskew.data.propensities import Propensities
from unskew.data.ratings import Ratings
from unskew.data.universe import Universe
from unskew.diagnostics.specification import run_tests
from unskew.errors import PropensityWarning
from unskew.propensity import PopularityPropensity

N_USERS, N_ITEMS = 200, 80
RNG = np.random.default_rng(0)
TRUTH = np.clip(
    np.round(
        2.8
        + 0.5 * RNG.normal(size=(N_USERS, 1))
        + 0.7 * RNG.normal(size=(1, N_ITEMS))
        + RNG.normal(size=(N_USERS, N_ITEMS))
    ),
    1,
    5,
)
BY_RATING = np.array([0, 0.03, 0.05, 0.1, 0.2, 0.3])[TRUTH.astype(int)]
UNIVERSE = Universe(N_USERS, N_ITEMS)


def draw_log(propensity: np.ndarray, rng: np.random.Generator) -> Ratings:
    seen = rng.random(TRUTH.shape) < propensity
    return Ratings.from_dense(np.where(seen, TRUTH, 0))


def draw_sample(n: int, rng: np.random.Generator) -> Ratings:
    cells = rng.choice(TRUTH.size, n, replace=False)
    user, item = cells // N_ITEMS, cells % N_ITEMS
    return Ratings.from_arrays(user, item, TRUTH[user, item])


def test_right_propensities_are_rejected_in_about_5_percent_of_logs() -> None:
    rng = np.random.default_rng(1)
    rejected = []
    for _ in range(150):
        log, sample = draw_log(BY_RATING, rng), draw_sample(300, rng)
        model = unskew.NaiveBayesPropensity().fit(log, mcar=draw_sample(1000, rng).rating)
        rejected += [t.rejects for t in run_tests(log, model.predict(log), UNIVERSE, sample, rng)]
        known = Propensities(BY_RATING[log.user, log.item])
        rejected += [t.rejects for t in run_tests(log, known, UNIVERSE, sample, rng)]

    assert len(rejected) == 150 * 3
    assert np.mean(rejected) < 0.09  # 0.05 + 4 standard errors of 0.0103


def test_popularity_under_selection_by_rating_fails_the_test_of_the_mean_rating() -> None:
    rng = np.random.default_rng(2)
    log, sample = draw_log(BY_RATING, rng), draw_sample(200, rng)
    model = PopularityPropensity("item").fit(log)

    with pytest.warns(PropensityWarning, match="selection depends on the ratings in a way that"):
        diagnosis = unskew.diagnose(log, {"popularity": model}, mcar=sample)
    tests = {test.subject: test for test in diagnosis["popularity"].tests}
    assert tests["mean rating"].p_value < 1e-6
    assert "item popularity" not in tests  # right by construction
    assert "cannot tell whether people rate what they like" in " ".join(repr(diagnosis).split())


def test_naive_bayes_fails_if_selection_also_depends_on_the_item() -> None:
    rng = np.random.default_rng(3)
    factor = np.exp(0.7 * rng.normal(size=(1, N_ITEMS)))
    log = draw_log(np.clip(BY_RATING * factor, 0, 0.95), rng)
    model = unskew.NaiveBayesPropensity().fit(log, mcar=draw_sample(1000, rng).rating)
    tests = {t.subject: t for t in run_tests(log, model.predict(log), UNIVERSE, None, rng)}

    assert tests["item popularity"].rejects
    assert "fails the test of item popularity" in str(tests["item popularity"])


def test_values_without_a_model_are_compared_with_the_sample_only() -> None:
    rng = np.random.default_rng(4)
    log = draw_log(BY_RATING, rng)
    known = Propensities(BY_RATING[log.user, log.item])

    assert run_tests(log, known, UNIVERSE, None, rng) == ()
    (test,) = run_tests(log, known, UNIVERSE, draw_sample(100, rng), rng)
    assert test.subject == "mean rating"


@pytest.mark.parametrize("kept", [1.0, 0.8])
def test_activity_is_not_tested_if_every_user_rated_a_set_number_of_items(kept: float) -> None:
    """Such users with more ratings in one half of the log have fewer in the other one."""
    rng = np.random.default_rng(5)
    priority = rng.gumbel(size=TRUTH.shape) + np.log(BY_RATING)
    seen = priority >= np.sort(priority, axis=1)[:, [-24]]
    log = Ratings.from_dense(np.where(seen & (rng.random(seen.shape) < kept), TRUTH, 0))
    model = unskew.NaiveBayesPropensity().fit(log, mcar=draw_sample(1000, rng).rating)
    tests = {t.subject: t for t in run_tests(log, model.predict(log), UNIVERSE, None, rng)}

    assert set(tests) == {"item popularity"}
    assert not tests["item popularity"].rejects
