from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

import unskew
from known_propensity import KnownPropensity, draw, every_cell
from unskew.data.ratings import Ratings
from unskew.errors import NotFittedError, UsageError
from unskew.propensity.naive_bayes import NaiveBayesPropensity
from unskew.propensity.popularity import PopularityPropensity
from unskew.propensity.wrapper import ClippedPropensity
from unskew.settings import fitted_state
from unskew.types import Matrix

LOG = Ratings.from_dense([[5, 1, 0], [3, 0, 0], [2, 0, 0], [4, 0, 0]])


def test_by_hand() -> None:
    """Items have 4, 1 and 0 ratings by 4 users; the lower limit raises one of the five ratings."""
    model = ClippedPropensity(PopularityPropensity(), min_propensity=0.5).fit(LOG)

    assert every_cell(model)[0].tolist() == [1, 0.5, 0.5]
    assert model.share_clipped_ == 1 / 5
    assert model.share_clipped(LOG.take([1])) == 1


@given(propensity=arrays(np.float64, (3, 3), elements=st.floats(0.01, 1)), low=st.floats(0.001, 1))
def test_weights_are_those_of_clip(propensity: Matrix, low: float) -> None:
    """max(P, low) and min(1/P, 1/low) give the same weights."""
    log = Ratings.from_dense(np.ones((3, 3)))

    model = ClippedPropensity(KnownPropensity(propensity), min_propensity=low).fit(log)

    clipped = unskew.data.inverse_weights(
        log, propensity, weight_transform=unskew.estimators.Clip(1 / low)
    )
    np.testing.assert_allclose(unskew.data.inverse_weights(log, model), clipped)
    assert model.share_clipped_ == pytest.approx((propensity < low).mean())


def test_a_cell_with_propensity_0_gets_the_lower_limit() -> None:
    model = ClippedPropensity(PopularityPropensity(), min_propensity=0.01).fit(LOG)

    assert model.predict(Ratings.from_codes([0], [2], [5], shape=(4, 3))).values.tolist() == [0.01]


def test_a_fitted_model_is_used_as_it_is_and_an_unfitted_one_stays_unfitted() -> None:
    inner = PopularityPropensity()
    ClippedPropensity(inner, min_propensity=0.5).fit(LOG)
    assert not fitted_state(inner)

    fitted = PopularityPropensity().fit(LOG)
    model = ClippedPropensity(fitted, min_propensity=0.3).fit(LOG.take([0, 1, 2]))
    assert model.model_ is fitted
    assert model.predict(LOG).values.tolist() == [1, 0.3, 1, 1, 1]


def test_around_naive_bayes_it_needs_ratings_too() -> None:
    model = ClippedPropensity(NaiveBayesPropensity(), min_propensity=0.2).fit(
        LOG, mcar=dict.fromkeys(range(1, 6), 0.2)
    )

    np.testing.assert_allclose(model.predict(LOG).values, max(0.2, 1 / (12 * 0.2)))
    assert model.sees_ratings
    with pytest.raises(UsageError, match="ClippedPropensity needs the rating of a cell"):
        model.predict_pairs([0], [0])


@pytest.mark.parametrize("is_fitted", [False, True])
def test_a_model_comes_back_from_its_file(tmp_path: Path, is_fitted: bool) -> None:
    inner = PopularityPropensity("both", smoothing=1)
    model = ClippedPropensity(
        ClippedPropensity(inner.fit(LOG) if is_fitted else inner, min_propensity=0.2),
        min_propensity=0.3,
    ).fit(LOG)
    model.save(tmp_path / "model.unskew")

    again = unskew.load(tmp_path / "model.unskew")

    assert (every_cell(again) == every_cell(model)).all()
    assert again.share_clipped_ == model.share_clipped_
    assert repr(again) == repr(model)


@pytest.mark.parametrize("low", [0, -1, 1.5, float("nan"), "small"])
def test_the_lower_limit_is_a_propensity(low: Any) -> None:
    with pytest.raises(
        UsageError, match="min_propensity must be a finite number, above 0 and at most 1"
    ):
        ClippedPropensity(PopularityPropensity(), min_propensity=low).fit(LOG)


def test_what_cannot_be_wrapped_is_refused() -> None:
    with pytest.raises(
        UsageError,
        match=r"wraps a propensity model; got .* such as ClippedPropensity\(Popularity",
    ):
        ClippedPropensity(PopularityPropensity, min_propensity=0.1).fit(LOG)  # type: ignore[arg-type]
    with pytest.raises(
        UsageError, match="PopularityPropensity does not use a random sample of ratings"
    ):
        ClippedPropensity(PopularityPropensity(), min_propensity=0.1).fit(LOG, mcar=[1, 2])
    with pytest.raises(
        UsageError,
        match=r"PopularityPropensity\(\) is fitted already, so mcar=... would change nothing",
    ):
        ClippedPropensity(PopularityPropensity().fit(LOG), min_propensity=0.1).fit(LOG, mcar=[1, 2])
    with pytest.raises(
        UsageError, match="was fitted to 4 users, which are not the 6 of this log in the same order"
    ):
        ClippedPropensity(PopularityPropensity().fit(LOG), min_propensity=0.1).fit(
            draw(np.full((6, 3), 0.5))
        )


def test_it_must_be_fitted() -> None:
    with pytest.raises(NotFittedError, match="Call fit first"):
        ClippedPropensity(PopularityPropensity().fit(LOG), min_propensity=0.1).predict(LOG)
