from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from unskew.latent.value_effects import (
    given_value_propensities,
    levels_of,
    require_listed,
    value_propensities_of,
)

import unskew
from unskew.data.ratings import Ratings
from unskew.errors import (
    BadPropensityError,
    BadRatingError,
    NotFittedError,
    UniverseError,
    UsageError,
)
from unskew.propensity.naive_bayes import NaiveBayesPropensity
from unskew.types import Vector

LOG = Ratings.from_codes([0, 0, 1, 2], [0, 1, 1, 3], [5, 5, 1, 2.5], shape=(4, 5))
LEVELS = np.array([1.0, 2.5, 5.0])


def test_levels_are_the_distinct_ratings_and_codes_their_places() -> None:
    levels, codes = levels_of(LOG)

    assert levels.tolist() == [1, 2.5, 5]
    assert codes.tolist() == [2, 2, 0, 1]


def test_one_level_is_a_level() -> None:
    levels, codes = levels_of(Ratings.from_codes([0, 1], [0, 0], [3, 3], shape=(2, 1)))

    assert (levels.tolist(), codes.tolist()) == ([3], [0, 0])


@pytest.mark.parametrize("n", [100, 101])
def test_a_continuous_scale_is_refused(n: int) -> None:
    log = Ratings.from_codes(np.zeros(n, int), np.arange(n), np.linspace(0, 1, n), shape=(1, n))

    if n == 100:
        assert levels_of(log)[1].tolist() == list(range(100))
        return
    with pytest.raises(
        UsageError, match=r"101 distinct ratings, more than the 100 .* Bin the ratings first"
    ):
        levels_of(log)


def test_a_table_an_array_and_naive_bayes_say_the_same() -> None:
    bayes = NaiveBayesPropensity().fit(LOG, mcar=[1, 1, 2.5, 5])
    values = bayes.propensity_by_level_

    forms: list[Any] = [
        values,
        values.tolist(),
        {5: values[2], 1: values[0], 2.5: values[1], 7: 0.5},
        bayes,
    ]

    for form in forms:
        np.testing.assert_array_equal(value_propensities_of(LEVELS, form), values)


@pytest.mark.parametrize(
    ("given_values", "match"),
    [
        ([0.1, 0.2], r"have shape \(2,\), but the log has 3 rating levels \(1, 2.5, 5\)"),
        (0.1, r"have shape \(\), but"),
        (
            [0.1, 1.0, 0.2],
            r"1 of 3 value_propensities lie outside \(0, 1\); the first is 1, of rating 2.5",
        ),
        ([0.1, 0.2, 0.0], "the first is 0, of rating 5"),
        ([np.nan, 0.2, np.inf], "2 of 3 .* the first is nan, of rating 1"),
        ({1: 0.1, 2: 0.1}, "lack rating 2.5, 5, which the log has"),
        (["a", "b", "c"], "value_propensities must be numbers; got text"),
        ({"one": 0.1}, "the ratings of value_propensities must be numbers"),
    ],
)
def test_values_are_checked(given_values: Any, match: str) -> None:
    with pytest.raises(BadPropensityError, match=match):
        value_propensities_of(LEVELS, given_values)


def test_a_model_that_needs_more_than_the_rating_belongs_elsewhere() -> None:
    with pytest.raises(
        UsageError, match="PopularityPropensity tells no propensity from a rating alone"
    ):
        value_propensities_of(LEVELS, unskew.propensity.PopularityPropensity())


def test_a_rating_that_naive_bayes_has_never_seen_is_refused() -> None:
    bayes = NaiveBayesPropensity().fit(LOG, mcar=[1, 1, 2.5, 5])

    with pytest.raises(BadRatingError, match="the first is 4"):
        value_propensities_of(np.array([1.0, 4.0]), bayes)
    with pytest.raises(NotFittedError):
        value_propensities_of(LEVELS, NaiveBayesPropensity())


@given(p=arrays(np.float64, 4, elements=st.floats(0.01, 0.99)))
def test_cells_tell_the_share_of_logged_ones_at_each_level(p: Vector) -> None:
    """Two fives stand for 1 / p0 + 1 / p1 cells."""
    found = given_value_propensities(LOG, *levels_of(LOG), p, None)

    np.testing.assert_allclose(found, [p[2], p[3], 2 / (1 / p[0] + 1 / p[1])])


def test_cells_with_naive_bayes_propensities_give_those_back() -> None:
    bayes = NaiveBayesPropensity().fit(LOG, mcar=[1, 1, 2.5, 5])
    levels, codes = levels_of(LOG)

    found = given_value_propensities(LOG, levels, codes, bayes, None)

    np.testing.assert_allclose(found, given_value_propensities(LOG, levels, codes, None, bayes))


def test_nothing_or_both() -> None:
    levels, codes = levels_of(LOG)

    assert given_value_propensities(LOG, levels, codes, None, None) is None
    with pytest.raises(UsageError, match="propensities or value_propensities, not both"):
        given_value_propensities(LOG, levels, codes, np.full(4, 0.5), np.full(3, 0.5))


def test_a_log_that_lists_only_a_part_of_its_universe_is_refused() -> None:
    require_listed(LOG)
    require_listed(Ratings.from_arrays([1, 2], [3, 4], [5, 5]))
    with pytest.raises(UniverseError, match="the log lists 2 users and 2 items"):
        require_listed(Ratings.from_arrays([1, 2], [3, 4], [5, 5], universe=(10, 10)))


def test_a_series_is_read_by_its_index() -> None:
    series = pd.Series({5.0: 0.5, 4.0: 0.4, 1.0: 0.1})

    assert value_propensities_of(np.array([1.0, 4.0, 5.0]), series).tolist() == [0.1, 0.4, 0.5]
