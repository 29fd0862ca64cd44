from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import polars as pl
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

import unskew
from unskew.data.ratings import Ratings
from unskew.errors import (
    BadPropensityError,
    BadRatingError,
    NotFittedError,
    PropensityWarning,
    UniverseError,
    UsageError,
)
from unskew.estimators.intervals import wilson_limits
from unskew.propensity.naive_bayes import NaiveBayesPropensity
from unskew.types import Vector

LOG = Ratings.from_codes([0, 0, 1, 2], [0, 1, 1, 3], [5, 5, 1, 5], shape=(4, 5))
SHARES = {1: 0.5, 5: 0.5}


def column(rating: Any) -> Ratings:
    """A log of one user with the given ratings, in a universe of 1,000 users."""
    return Ratings.from_arrays(
        np.zeros(len(rating), dtype=int),
        np.arange(len(rating)),
        rating,
        universe=(1000, len(rating)),
    )


def test_by_hand_from_shares() -> None:
    """3 of 20 cells are a logged 5, and 10 of 20 are a 5; for ratings of 1 it is 1 in 10."""
    model = NaiveBayesPropensity().fit(LOG, mcar=SHARES)

    assert model.levels_.tolist() == [1, 5]
    np.testing.assert_allclose(model.propensity_by_level_, [0.1, 0.3])
    np.testing.assert_allclose(model.predict(LOG).values, [0.3, 0.3, 0.1, 0.3])


def test_by_hand_from_a_sample() -> None:
    """Laplace: (3 + 1) / (4 + 2) of all cells are a 1; by default one rating is added in all."""
    model = NaiveBayesPropensity(smoothing=1).fit(LOG, mcar=[1, 1, 5, 1])
    default = NaiveBayesPropensity().fit(LOG, mcar=[1, 1, 5, 1])

    np.testing.assert_allclose(model.marginal_, [4 / 6, 2 / 6])
    np.testing.assert_allclose(model.propensity_by_level_, [1 / (20 * 4 / 6), 3 / (20 * 2 / 6)])
    np.testing.assert_allclose(default.marginal_, [3.5 / 5, 1.5 / 5])


@pytest.mark.parametrize("smoothing", [0.0, 1.0, 2.5])
def test_a_log_a_column_and_counts_are_the_same_sample(smoothing: float) -> None:
    ratings = [1, 1, 5, 1]
    forms = [
        ratings,
        np.array(ratings),
        Ratings.from_arrays([7, 8, 7, 8], [1, 1, 2, 2], ratings),
        {5: 1, 1: 3},
        pd.DataFrame({"score": ratings}),
        pd.DataFrame({"user_id": [7, 8, 7, 8], "rating": ratings}),
    ]

    found = [
        NaiveBayesPropensity(smoothing=smoothing).fit(LOG, mcar=form).predict(LOG).values
        for form in forms
    ]

    for each in found[1:]:
        np.testing.assert_array_equal(each, found[0])


def test_a_rating_that_the_sample_lacks_gets_its_share_by_smoothing() -> None:
    model = NaiveBayesPropensity().fit(LOG, mcar=[5] * 8)

    np.testing.assert_allclose(model.marginal_, [0.5 / 9, 8.5 / 9])


@given(
    rating=arrays(np.float64, 30, elements=st.sampled_from([1.0, 2.0, 3.0])).filter(
        lambda values: np.unique(values).size == 3
    ),
    counts=st.tuples(*[st.integers(0, 50)] * 3).filter(lambda counts: sum(counts) > 1),
)
def test_inverses_add_up_to_all_cells(rating: Vector, counts: tuple[int, ...]) -> None:
    log = column(rating)

    model = NaiveBayesPropensity().fit(log, mcar=dict(zip([1, 2, 3], counts, strict=True)))

    assert (model.propensity_by_level_ < 1).all()
    assert (1 / model.predict(log).values).sum() == pytest.approx(30 * 1000)


@given(
    rating=arrays(np.float64, 30, elements=st.integers(1, 5)),
    sample=arrays(np.float64, 40, elements=st.integers(1, 5)),
)
@pytest.mark.filterwarnings("ignore::unskew.errors.PropensityWarning")
def test_it_is_equation_18_cell_by_cell(rating: Vector, sample: Vector) -> None:
    assume(np.isin(sample, rating).any())
    log = column(rating)
    levels = set(rating) | set(sample)

    def slow(r: float) -> float:
        of_observed = (rating == r).sum() / rating.size
        observed = rating.size / (30 * 1000)
        of_all = ((sample == r).sum() + 1 / len(levels)) / (sample.size + 1)
        return min(1, of_observed * observed / of_all)

    np.testing.assert_allclose(
        NaiveBayesPropensity().fit(log, mcar=sample).predict(log).values, [slow(r) for r in rating]
    )


def test_ips_is_post_stratification() -> None:
    """sum_r pi_r * (mean delta of the log's ratings r); SNIPS is the same number."""
    world = unskew.simulate(60, 50, density=0.1, alpha=0.5)
    log, predicted = world.log, np.full(world.truth.shape, 3.0)
    model = NaiveBayesPropensity().fit(log, mcar=world.truth[:5].ravel())

    result = unskew.evaluate(
        log, predicted, propensities=model, metrics=["mse"], estimators=["ips", "snips"]
    )

    delta = (log.rating - 3) ** 2
    strata = sum(
        share * delta[log.rating == r].mean()
        for r, share in zip(model.levels_, model.marginal_, strict=True)
    )
    for estimator in ("ips", "snips"):
        assert result.risk("model", metric="mse", estimator=estimator).estimate == pytest.approx(
            strata
        )


def test_it_recovers_propensities_the_better_the_larger_log_and_sample_are() -> None:
    def mean_error(n: int) -> float:
        world = unskew.simulate(n, n, density=0.1, alpha=0.5)
        sample = np.random.default_rng(0).choice(world.truth.ravel(), n * n // 20, replace=False)
        found = NaiveBayesPropensity().fit(world.log, mcar=sample).predict(world.log).values
        return float(np.abs(found / world.propensities.values - 1).mean())

    errors = [mean_error(n) for n in (100, 800)]

    assert errors[1] < 0.3 * errors[0]
    assert errors[1] < 0.02


def test_bins_put_equal_parts_of_the_sample_together() -> None:
    """Cut points 0.5 and 1.5: bins of 2, 2 and 2 of the sample, and of 1, 1 and 3 of the log."""
    log = column([-0.3, 0.7, 2.2, 1.5, 9.0])

    model = NaiveBayesPropensity(bins=3, smoothing=0).fit(log, mcar=[0.1, -0.2, 0.5, 1.2, 1.5, 2.5])

    assert model.levels_.tolist() == [0, 1, 2]
    assert model.cuts_.tolist() == [0.5, 1.5]
    np.testing.assert_allclose(model.predict(log).values, np.array([1, 1, 3, 3, 3]) / (5000 / 3))


def test_bins_by_cut_points_are_levels_of_what_lies_between_them() -> None:
    rating, sample = [1.0, 2.0, 2.0, 3.0], [1, 1, 2, 3, 3, 3]

    cut = NaiveBayesPropensity(bins=[1.5, 2.5]).fit(column(rating), mcar=sample)
    plain = NaiveBayesPropensity().fit(column(rating), mcar=sample)

    assert cut.propensity_by_level_.tolist() == plain.propensity_by_level_.tolist()
    assert (
        cut.predict(column([2.4, -7.0])).values.tolist()
        == plain.predict(column([2.0, 1.0])).values.tolist()
    )


def test_bins_of_a_lumpy_sample_are_cut_beside_the_lump() -> None:
    assert NaiveBayesPropensity(bins=4).fit(
        column([1.0, 2.0]), mcar=[1] * 90 + [2] * 10
    ).cuts_.tolist() == [2]
    assert NaiveBayesPropensity(bins=4).fit(column([1.0, 2.0]), mcar=[1] * 100).cuts_.tolist() == []


@given(
    sample=arrays(np.float64, 60, elements=st.floats(-5, 5), unique=True),
    n_bins=st.sampled_from([2, 3, 4, 5, 6, 10]),
)
def test_bins_hold_equal_counts(sample: Vector, n_bins: int) -> None:
    model = NaiveBayesPropensity(bins=n_bins, smoothing=0).fit(column(sample), mcar=sample)

    np.testing.assert_allclose(model.marginal_, 1 / n_bins)


def test_propensities_above_1_are_capped_with_a_warning() -> None:
    log = Ratings.from_dense([[5, 5], [5, 1]])

    with pytest.warns(
        PropensityWarning,
        match="1 of 2 propensities exceed 1 and were set to 1.* more ratings 5 than",
    ):
        model = NaiveBayesPropensity().fit(log, mcar=SHARES)

    assert model.propensity_by_level_.tolist() == [0.5, 1]


def test_a_rating_that_the_log_lacks_loses_its_share_with_a_warning() -> None:
    with pytest.warns(
        PropensityWarning, match="ratings 2, 3 are 0.4 of all cells, but the log has none of them"
    ):
        model = NaiveBayesPropensity().fit(LOG, mcar={1: 0.2, 2: 0.1, 3: 0.3, 5: 0.4})

    assert (1 / model.predict(LOG).values).sum() == pytest.approx(0.6 * LOG.n_cells)
    with pytest.raises(BadPropensityError, match="which was observed"):
        model.predict(Ratings.from_codes([0], [0], [2], shape=(4, 5)))


@pytest.mark.parametrize("bins", [None, 2, (1.5, 2.5), np.array([1.5, 2.5])])
def test_a_model_comes_back_from_its_file(tmp_path: Path, bins: Any) -> None:
    model = NaiveBayesPropensity(bins=bins).fit(column([1.0, 2.0, 2.0, 3.0]), mcar=[1, 2, 3, 3])
    model.save(tmp_path / "model.unskew")

    again = unskew.load(tmp_path / "model.unskew")

    assert (
        again.predict(column([3.0, 2.0, 1.0])).values
        == model.predict(column([3.0, 2.0, 1.0])).values
    ).all()
    assert (again.marginal_ == model.marginal_).all()


def test_a_file_whose_parts_do_not_belong_together_is_refused() -> None:
    model = NaiveBayesPropensity().fit(LOG, mcar=SHARES)
    model.levels_ = np.ones(3)

    misfit = "cuts has shape (1,), but the rest of the model needs (2,)."
    assert model._find_inconsistency() == misfit


@pytest.mark.parametrize(
    ("mcar", "match"),
    [
        (None, "Pass them as mcar=.*LogisticPropensity or PopularityPropensity"),
        ([], r"mcar must have at least one rating, in one column; got shape \(0,\)"),
        ([[1, 2]], r"got shape \(1, 2\)"),
        (
            {1: 0.3, 5: 0.3},
            "neither shares, as they add up to 0.6, nor counts, .* Pass the share of each rating",
        ),
        ({1: -1, 5: 2}, "must be at least 0, and not all 0"),
        ({}, "not all 0"),
        ({5: 1.0}, "the mcar sample has no rating 1, but the log has 1"),
        (
            np.arange(80),
            "have 80 or more distinct ratings, more than 50.* its own propensity.*bins=10.* round",
        ),
    ],
)
def test_samples_are_checked(mcar: Any, match: str) -> None:
    with pytest.raises(UsageError, match=match):
        NaiveBayesPropensity().fit(LOG, mcar=mcar)


def test_a_bin_without_sample_is_named() -> None:
    match = "no ratings in bin 1, but the log has 2, .* affects 1 of 3 bins"
    with pytest.raises(UsageError, match=match):
        NaiveBayesPropensity(bins=[2, 3], smoothing=0).fit(
            column([1.0, 2.0, 2.5, 3.0]), mcar=[1, 3, 3]
        )


@pytest.mark.parametrize(
    ("mcar", "match"),
    [
        (
            [1, np.nan, 5],
            "1 of 3 mcar ratings are missing or not finite; the first is nan at row 1",
        ),
        ({np.inf: 1.0}, "the first is inf at row 0"),
        (["five"], "mcar ratings must be numbers; got text"),
    ],
)
def test_ratings_of_a_sample_are_checked(mcar: Any, match: str) -> None:
    with pytest.raises(BadRatingError, match=match):
        NaiveBayesPropensity().fit(LOG, mcar=mcar)


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ({"smoothing": -1}, "smoothing must be a finite number, at least 0, or None; got -1"),
        (
            {"smoothing": 0},
            "no rating 5, but the log has 3, .* larger sample, or smoothing above 0",
        ),
        ({"bins": 1}, "bins must be a whole number, at least 2; got 1"),
        ({"bins": [3, 2]}, r"finite cut points in ascending order; got \[3, 2\]"),
        ({"bins": []}, "finite cut points in ascending order"),
    ],
)
def test_settings_are_checked(settings: Mapping[str, Any], match: str) -> None:
    with pytest.raises(UsageError, match=match):
        NaiveBayesPropensity(**settings).fit(LOG, mcar=[1, 1, 1])


def test_unobserved_cells_have_no_rating_to_predict_from() -> None:
    model = NaiveBayesPropensity().fit(LOG, mcar=SHARES)

    with pytest.raises(UsageError, match="NaiveBayesPropensity needs the rating of a cell"):
        model.predict_pairs([0], [0])


def test_a_rating_never_seen_before_is_refused() -> None:
    model = NaiveBayesPropensity().fit(LOG, mcar=SHARES)

    with pytest.raises(
        BadRatingError,
        match=r"1 of 2 ratings were neither in the log nor.*the first is 4. Ratings 1, 5 were",
    ):
        model.predict(Ratings.from_codes([0, 1], [0, 1], [5, 4], shape=(4, 5)))


def test_it_must_be_fitted_and_know_the_universe() -> None:
    with pytest.raises(NotFittedError, match="Call fit first"):
        NaiveBayesPropensity().predict(LOG)
    with pytest.raises(UniverseError, match="a fit needs the number of users and items"):
        NaiveBayesPropensity().fit(Ratings.from_arrays([0], [0], [1]), mcar=SHARES)


@pytest.mark.parametrize("bins", [None, [1.5, 2.5]])
def test_ratings_alone_have_the_propensities_of_cells_so_rated(bins: Any) -> None:
    log = column([1.0, 2.0, 2.0, 3.0])
    model = NaiveBayesPropensity(bins=bins).fit(log, mcar=[1, 2, 3, 3])

    assert model.predict_ratings([1, 2, 2, 3]).tolist() == model.predict(log).values.tolist()


def test_ratings_alone_must_be_known_numbers_of_a_fitted_model() -> None:
    model = NaiveBayesPropensity().fit(LOG, mcar=SHARES)

    with pytest.raises(BadRatingError, match=r"the first is 4. Ratings 1, 5 were"):
        model.predict_ratings([5, 4])
    with pytest.raises(BadRatingError, match="ratings must be numbers; got text"):
        model.predict_ratings(["five"])
    with pytest.raises(NotFittedError, match="Call fit first"):
        NaiveBayesPropensity().predict_ratings([1])


def test_a_sample_with_the_ratings_of_the_log_causes_a_warning() -> None:
    rng = np.random.default_rng(0)
    log = Ratings.from_arrays(np.arange(2000) // 20, np.arange(2000) % 20, rng.integers(1, 6, 2000))
    with pytest.warns(PropensityWarning, match="have the same distribution as the log"):
        NaiveBayesPropensity().fit(log, universe=(1000, 20), mcar=np.sort(log.rating)[::4])
    NaiveBayesPropensity().fit(
        log, universe=(1000, 20), mcar=rng.choice([1.0, 1, 1, 2, 3, 4, 5], 500)
    )


@pytest.mark.parametrize("as_frame", [False, True])
def test_a_sample_that_shares_cells_with_the_log_causes_a_warning(as_frame: bool) -> None:
    rng = np.random.default_rng(0)
    rating = rng.integers(1, 6, (100, 40))
    is_logged = rng.random(rating.shape) < 0.05 * rng.gamma(2, 0.5, (100, 1)) * rating
    log = Ratings.from_dense(np.where(is_logged, rating, 0))
    random = rng.choice(rating.size, 400, replace=False)
    of_log = rng.choice(np.flatnonzero(is_logged), 150, replace=False)

    def fit(cells: npt.NDArray[np.intp]) -> None:
        user, item = np.divmod(cells, 40)
        frame = pd.DataFrame({"user": user, "item": item, "rating": rating[user, item]})
        sample = frame if as_frame else Ratings.from_arrays(user, item, rating[user, item])
        NaiveBayesPropensity().fit(log, universe="log", mcar=sample)

    fit(random)
    with pytest.warns(PropensityWarning, match=r"the log has \d+ cells of the \d+ random ratings"):
        fit(np.union1d(of_log, random))


def test_a_sample_on_another_scale_is_refused() -> None:
    log = Ratings.from_dense([[1, 2, 3], [4, 5, 0]])
    with pytest.raises(UsageError, match=r"no value in common\. Put both on the same scale"):
        NaiveBayesPropensity().fit(log, mcar=[1.5, 2.5, 3.5])


@pytest.mark.filterwarnings("ignore::unskew.errors.PropensityWarning")
@pytest.mark.parametrize("cluster", [None, "user"])
def test_a_level_that_the_sample_lacks_may_have_more_cells(cluster: Any) -> None:
    """The share of ratings 5 by SNIPS, of which none is among 20 random ratings: Wilson's limit."""
    rating = np.repeat([1.0, 5.0], [20, 15])
    log = Ratings.from_arrays(np.arange(35) % 10, np.arange(35) // 10, rating)
    model = NaiveBayesPropensity().fit(log, universe=(10, 20), mcar={1.0: 20, 5.0: 0})
    assert model.propensity_by_level_.tolist()[1] == 1.0

    result = unskew.evaluate(
        log,
        {"ones": np.ones(35)},
        propensities=model,
        metrics=["mae"],
        estimators=["snips"],
        universe=(10, 20),
        cluster=cluster,
    )

    (risk,) = result
    _, high = wilson_limits(0.0, 20.0, level=0.95, degrees=risk.degrees)
    assert risk.ci_high == pytest.approx(4 * high)
    assert risk.ci_low == pytest.approx(0.0)


@pytest.mark.parametrize(
    "counts",
    [
        pd.Series([1.0, 2.0, 2.0, 5.0]).value_counts(),
        pd.Series([1.0, 2.0, 2.0, 5.0]).value_counts(normalize=True),
        pd.Series([1.0, 2.0, 2.0, 5.0], name="rating").value_counts().reset_index(),
        pl.Series("rating", [1.0, 2.0, 2.0, 5.0]).value_counts(),
    ],
    ids=["counts", "shares", "pandas frame", "polars frame"],
)
def test_counts_of_values_are_no_sample(counts: Any) -> None:
    """Their numbers were taken for ratings, and their ratings for a sample with one of each."""
    with pytest.raises(UsageError, match=r"as value_counts\(\) returns it"):
        NaiveBayesPropensity().fit(LOG, mcar=counts)


def test_a_table_of_counts_is_that_of_the_ratings() -> None:
    ratings = pd.Series([1.0, 1.0, 5.0, 1.0])

    of_table = NaiveBayesPropensity().fit(LOG, mcar=dict(ratings.value_counts()))
    of_ratings = NaiveBayesPropensity().fit(LOG, mcar=ratings)

    assert np.array_equal(of_table.predict(LOG).values, of_ratings.predict(LOG).values)
