from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.special import logit

import unskew
from unskew.data.ratings import Ratings
from unskew.errors import (
    BadPropensityError,
    BadRatingError,
    NotFittedError,
    UniverseError,
    UsageError,
)
from unskew.latent.missingness import (
    BetaPrior,
    DependsOnRating,
    DependsOnRatingAndItem,
    MissingAtRandom,
    SelectionEffects,
    check_value_propensities,
    encode_levels,
    require_full_vocabulary,
    resolve_value_propensities,
)
from unskew.propensity.naive_bayes import NaiveBayesPropensity
from unskew.types import Matrix, Vector

LOG = Ratings.from_codes([0, 0, 1, 2], [0, 1, 1, 3], [5, 5, 1, 2.5], shape=(4, 5))
LEVELS = np.array([1.0, 2.5, 5.0])


def test_levels_are_the_distinct_ratings_and_codes_their_indices() -> None:
    levels, codes = encode_levels(LOG)

    assert levels.tolist() == [1, 2.5, 5]
    assert codes.tolist() == [2, 2, 0, 1]


def test_one_level_is_a_level() -> None:
    levels, codes = encode_levels(Ratings.from_codes([0, 1], [0, 0], [3, 3], shape=(2, 1)))

    assert (levels.tolist(), codes.tolist()) == ([3], [0, 0])


@pytest.mark.parametrize("n", [100, 101])
def test_a_continuous_scale_is_refused(n: int) -> None:
    log = Ratings.from_codes(np.zeros(n, int), np.arange(n), np.linspace(0, 1, n), shape=(1, n))

    if n == 100:
        assert encode_levels(log)[1].tolist() == list(range(100))
        return
    with pytest.raises(
        UsageError, match=r"101 distinct ratings, and this model takes at most 100 .* round them"
    ):
        encode_levels(log)


def test_a_table_an_array_and_naive_bayes_are_equivalent() -> None:
    bayes = NaiveBayesPropensity().fit(LOG, mcar=[1, 1, 2.5, 5])
    values = bayes.propensity_by_level_

    forms: list[Any] = [
        values,
        values.tolist(),
        {5: values[2], 1: values[0], 2.5: values[1], 7: 0.5},
        bayes,
    ]

    for form in forms:
        np.testing.assert_array_equal(check_value_propensities(LEVELS, form), values)


@pytest.mark.parametrize(
    ("values", "match"),
    [
        ([0.1, 0.2], r"has shape \(2,\), but the log has 3 rating levels \(1, 2.5, 5\)"),
        (0.1, r"has shape \(\), but"),
        (
            [0.1, 1.0, 0.2],
            r"1 of 3 value_propensities lie outside \(0, 1\); the first is 1, for rating 2.5",
        ),
        ([0.1, 0.2, 0.0], "the first is 0, for rating 5"),
        ([np.nan, 0.2, np.inf], "2 of 3 .* the first is nan, for rating 1"),
        ({1: 0.1, 2: 0.1}, "has no entry for rating 2.5, 5, which the log has"),
        (["a", "b", "c"], "value_propensities must be numbers; got text"),
        ({"one": 0.1}, "the ratings of value_propensities must be numbers"),
    ],
)
def test_values_are_checked(values: Any, match: str) -> None:
    with pytest.raises(BadPropensityError, match=match):
        check_value_propensities(LEVELS, values)


def test_a_model_that_needs_more_than_the_rating_is_refused() -> None:
    with pytest.raises(
        UsageError, match="PopularityPropensity cannot predict a propensity from a rating alone"
    ):
        check_value_propensities(LEVELS, unskew.propensity.PopularityPropensity())


def test_a_rating_that_naive_bayes_has_never_seen_is_refused() -> None:
    bayes = NaiveBayesPropensity().fit(LOG, mcar=[1, 1, 2.5, 5])

    with pytest.raises(BadRatingError, match="the first is 4"):
        check_value_propensities(np.array([1.0, 4.0]), bayes)
    with pytest.raises(NotFittedError):
        check_value_propensities(LEVELS, NaiveBayesPropensity())


@given(p=arrays(np.float64, 4, elements=st.floats(0.01, 0.99)))
def test_propensities_of_cells_give_the_share_of_observed_ones_at_each_level(p: Vector) -> None:
    """Two fives represent 1 / p0 + 1 / p1 cells."""
    resolved = resolve_value_propensities(LOG, *encode_levels(LOG), p, None)

    np.testing.assert_allclose(resolved, [p[2], p[3], 2 / (1 / p[0] + 1 / p[1])])


def test_naive_bayes_propensities_of_cells_give_those_of_the_ratings() -> None:
    bayes = NaiveBayesPropensity().fit(LOG, mcar=[1, 1, 2.5, 5])
    levels, codes = encode_levels(LOG)

    resolved = resolve_value_propensities(LOG, levels, codes, bayes, None)

    np.testing.assert_allclose(
        resolved, resolve_value_propensities(LOG, levels, codes, None, bayes)
    )


def test_neither_or_both_arguments() -> None:
    levels, codes = encode_levels(LOG)

    assert resolve_value_propensities(LOG, levels, codes, None, None) is None
    with pytest.raises(
        UsageError, match=r"propensities and value_propensities both state .* Pass only one"
    ):
        resolve_value_propensities(LOG, levels, codes, np.full(4, 0.5), np.full(3, 0.5))


def test_a_log_that_lists_only_a_part_of_its_universe_is_refused() -> None:
    require_full_vocabulary(LOG)
    require_full_vocabulary(Ratings.from_arrays([1, 2], [3, 4], [5, 5]))
    with pytest.raises(UniverseError, match="the log has the ids of only 2 users and 2 items"):
        require_full_vocabulary(Ratings.from_arrays([1, 2], [3, 4], [5, 5], universe=(10, 10)))


def test_a_series_is_read_by_its_index() -> None:
    series = pd.Series({5.0: 0.5, 4.0: 0.4, 1.0: 0.1})

    assert check_value_propensities(np.array([1.0, 4.0, 5.0]), series).tolist() == [0.1, 0.4, 0.5]


# Mechanisms

RNG = np.random.default_rng(0)
OBSERVED, UNOBSERVED = RNG.uniform(0, 20, (6, 3)), RNG.uniform(50, 300, (6, 3))
START = SelectionEffects(np.array([-2.0, -1.0, 0.5]), RNG.normal(size=6))
PRIOR = BetaPrior(np.array([3.0, 2.0, 8.0]), np.array([40.0, 9.0, 30.0]))


def sigma(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


def score(value: Vector, item: Vector, prior: BetaPrior | None) -> float:
    """The expected log posterior, term by term."""
    total = 0.0
    for i in range(6):
        for r in range(3):
            p = sigma(value[r] + item[i])
            total += OBSERVED[i, r] * np.log(p) + UNOBSERVED[i, r] * np.log(1 - p)
    if prior is not None:
        total += float(
            (
                prior.observed * np.log(sigma(value)) + prior.unobserved * np.log(1 - sigma(value))
            ).sum()
        )
    return total - float((item**2).sum()) / 20


def gradient(point: Vector, prior: BetaPrior | None) -> Vector:
    def log_posterior(x: Vector) -> float:
        return score(x[:3], x[3:], prior)

    return np.array(
        [(log_posterior(point + h) - log_posterior(point - h)) / 2e-5 for h in 1e-5 * np.eye(9)]
    )


def test_log_odds_and_probabilities() -> None:
    probability = np.array([0.2, 0.5, 0.9])
    effects = SelectionEffects(logit(probability), np.zeros(2))

    np.testing.assert_allclose(effects.p_observed, [probability, probability])
    log_observed, log_unobserved = DependsOnRating(None).log_probabilities(effects)
    np.testing.assert_allclose(np.exp(log_observed) + np.exp(log_unobserved), 1)
    np.testing.assert_allclose(np.exp(log_observed), effects.p_observed)


def test_extreme_odds_stay_finite() -> None:
    log_observed, log_unobserved = DependsOnRating(None).log_probabilities(
        SelectionEffects(np.array([-800.0, 800.0]), np.zeros(1))
    )

    np.testing.assert_allclose(log_observed, [[-800, 0]])
    np.testing.assert_allclose(log_unobserved, [[0, -800]])


@pytest.mark.parametrize("prior", [PRIOR, BetaPrior(np.ones(3), np.ones(3))])
def test_the_propensity_of_a_value_is_the_share_of_its_observed_cells(prior: BetaPrior) -> None:
    updated = DependsOnRating(prior).update(
        SelectionEffects(START.value, np.zeros(6)), OBSERVED, UNOBSERVED
    )

    observed, all_cells = (
        prior.observed + OBSERVED.sum(axis=0),
        (OBSERVED + UNOBSERVED).sum(axis=0) + prior.observed + prior.unobserved,
    )
    np.testing.assert_allclose(updated.p_observed[0], observed / all_cells)


@pytest.mark.parametrize("mechanism", [MissingAtRandom(), DependsOnRating(None)])
def test_fixed_effects_do_not_change(mechanism: Any) -> None:
    assert mechanism.update(START, OBSERVED, UNOBSERVED) is START
    assert mechanism.log_prior(START) == 0


def test_the_log_prior_is_what_it_says() -> None:
    zeros: Matrix = np.zeros((6, 3))
    for prior in (PRIOR, None):
        expected = (
            score(START.value, START.item, prior)
            - score(START.value, START.item, None)
            - (START.item**2).sum() / 20
        )
        assert DependsOnRatingAndItem(prior).log_prior(START) == pytest.approx(expected)
        assert DependsOnRatingAndItem(prior)._log_posterior(START, zeros, zeros) == pytest.approx(
            expected
        )
    assert DependsOnRating(PRIOR).log_prior(START) == pytest.approx(
        expected + PRIOR.log_density(START.value) + (START.item**2).sum() / 20
    )


def test_newtons_step_solves_the_full_system() -> None:
    """The Hessian of levels and items, written out as one 9 x 9 matrix of finite differences."""
    point = np.concatenate([START.value, START.item])
    hessian = np.array(
        [(gradient(point + h, PRIOR) - gradient(point - h, PRIOR)) / 2e-3 for h in 1e-3 * np.eye(9)]
    )

    step = DependsOnRatingAndItem(PRIOR)._newton_step(START, OBSERVED, UNOBSERVED)

    expected = -np.linalg.solve(hessian, gradient(point, PRIOR))
    np.testing.assert_allclose(np.concatenate([step.value, step.item]), expected, atol=1e-4)


@pytest.mark.parametrize("prior", [PRIOR, None])
def test_newtons_method_reaches_the_maximum(prior: BetaPrior | None) -> None:
    mechanism, effects = DependsOnRatingAndItem(prior), START
    scores = [score(effects.value, effects.item, prior)]
    for _ in range(8):
        effects = mechanism.update(effects, OBSERVED, UNOBSERVED)
        scores.append(score(effects.value, effects.item, prior))

    assert (np.diff(scores) >= -1e-9).all()
    derivatives = gradient(np.concatenate([effects.value, effects.item]), prior)
    np.testing.assert_allclose(derivatives[0 if prior else 3 :], 0, atol=1e-5)
    if prior is None:
        assert effects.value.tolist() == START.value.tolist()


def test_a_step_that_would_lower_the_posterior_is_halved() -> None:
    """Far from the optimum Newton's step for a single item overshoots."""
    start = SelectionEffects(np.zeros(1), np.array([12.0]))
    mechanism = DependsOnRatingAndItem(None)
    observed, unobserved = np.array([[1.0]]), np.array([[1e4]])
    step = mechanism._newton_step(start, observed, unobserved)
    full_step = SelectionEffects(start.value, start.item + step.item)
    assert mechanism._log_posterior(full_step, observed, unobserved) < mechanism._log_posterior(
        start, observed, unobserved
    )

    updated = mechanism.update(start, observed, unobserved)

    assert mechanism._log_posterior(updated, observed, unobserved) > mechanism._log_posterior(
        start, observed, unobserved
    )
