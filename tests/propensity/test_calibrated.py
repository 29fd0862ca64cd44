from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit, logit
from sklearn.isotonic import IsotonicRegression
from sklearn.linear_model import LogisticRegression

import unskew
from known_propensity import KnownPropensity, draw, every_cell
from unskew.data.ratings import Ratings
from unskew.errors import PropensityWarning, UniverseError, UnknownNameError, UsageError
from unskew.propensity import calibrated
from unskew.propensity.calibrated import (
    CalibratedPropensity,
    LogitBins,
    fit_isotonic,
    fit_platt,
)
from unskew.propensity.cross_fitted import CrossFittedPropensity
from unskew.propensity.naive_bayes import NaiveBayesPropensity
from unskew.propensity.popularity import PopularityPropensity, UniformPropensity
from unskew.types import Matrix

RNG = np.random.default_rng(0)
TRUE = expit(RNG.normal(-1.5, 1, (120, 80)))
LOG = draw(TRUE)
WRONG = expit(2 + 0.5 * logit(TRUE))
"""Too large and too flat: the true line is -4 + 2 x."""


def observed(log: Ratings) -> Matrix:
    seen = np.zeros((log.n_users, log.n_items))
    seen[log.user, log.item] = 1
    return seen


def test_platt_by_hand() -> None:
    """With two bins, the line goes through the logits of the shares: 1/4 at -1 and 2/3 at 2."""
    curve = fit_platt(
        LogitBins(
            np.array([-1.0, 2.0]), observed=np.array([2.0, 4.0]), unobserved=np.array([6.0, 2.0])
        )
    )

    assert np.interp([-1, 2], curve.knots, curve.levels) == pytest.approx(
        [np.log(1 / 3), np.log(2)], rel=1e-5
    )


def test_isotonic_by_hand() -> None:
    """Shares 0, 1/2, 1/4, 1: the middle two are pooled to 3/8.

    The 50 cells of the first get half a rating.
    """
    x = np.array([-4.0, -2.0, 0.0, 3.0])

    curve = fit_isotonic(
        LogitBins(x, observed=np.array([0, 2, 1, 5.0]), unobserved=np.array([50, 2, 3, 0.0]))
    )

    assert expit(np.interp(x, curve.knots, curve.levels)) == pytest.approx(
        [1 / 100, 3 / 8, 3 / 8, 1]
    )
    assert curve.floor == 1 / 100


def test_the_floor_does_not_pass_the_next_level() -> None:
    """One cell without a rating would give 1/2, but cells of higher P have only 1/10."""
    curve = fit_isotonic(
        LogitBins(
            np.array([-4.0, 0.0]), observed=np.array([0.0, 1.0]), unobserved=np.array([1.0, 9.0])
        )
    )

    assert expit(curve.levels) == pytest.approx([1 / 10, 1 / 10])


@pytest.mark.parametrize("method", ["platt", "isotonic"])
def test_each_user_gets_the_regression_over_the_cells_of_the_other_folds(method: Any) -> None:
    """A slow twin: scikit-learn on every single cell, without bins of 1/64 of a logit."""
    model = CalibratedPropensity(KnownPropensity(WRONG), method=method, n_folds=3).fit(LOG)
    x, seen = logit(WRONG), observed(LOG)

    expected = np.empty(x.shape)
    for fold in range(3):
        own = model.fold_of_user_ == fold
        if method == "platt":
            line = LogisticRegression(C=np.inf, tol=1e-10).fit(
                x[~own].reshape(-1, 1), seen[~own].ravel()
            )
            expected[own] = line.predict_proba(x[own].reshape(-1, 1))[:, 1].reshape(x[own].shape)
        else:
            steps = IsotonicRegression(out_of_bounds="clip").fit(
                x[~own].ravel(), seen[~own].ravel()
            )
            expected[own] = steps.predict(x[own].ravel()).reshape(x[own].shape)

    error = np.abs(every_cell(model) - expected)
    assert error.max() < (1e-4 if method == "platt" else 0.15)
    assert error.mean() < (5e-5 if method == "platt" else 0.005)


@pytest.mark.parametrize("method", ["platt", "isotonic"])
def test_what_was_fitted_to_adds_up_to_the_ratings(method: Any) -> None:
    """The curve of a fold, over the cells of the other folds; there is no floor here."""
    model = CalibratedPropensity(KnownPropensity(WRONG), method=method).fit(LOG)
    for fold in range(5):
        others = model.fold_of_user_ != fold
        value = expit(np.interp(logit(WRONG[others]), model.knots_[fold], model.levels_[fold]))
        assert value.sum() == pytest.approx(
            observed(LOG)[others].sum(), rel=2e-5 if method == "platt" else 0.01
        )


@settings(max_examples=10)
@given(shift=st.floats(-3, 3), slope=st.floats(0.3, 3))
def test_platt_undoes_any_line_in_logits(shift: float, slope: float) -> None:
    """Calibrating a + b logit P, b > 0, gives what calibrating P gives."""
    plain = every_cell(CalibratedPropensity(KnownPropensity(TRUE)).fit(LOG))

    twisted = every_cell(
        CalibratedPropensity(KnownPropensity(expit(shift + slope * logit(TRUE)))).fit(LOG)
    )

    np.testing.assert_allclose(twisted, plain, rtol=1e-2)


@pytest.mark.parametrize(("method", "limit"), [("platt", 0.03), ("isotonic", 0.12)])
def test_it_recovers_propensities_that_were_distorted_the_better_the_larger_the_log_is(
    method: Any, limit: float
) -> None:
    def mean_error(n: int) -> float:
        true = expit(np.random.default_rng(n).normal(-1.5, 1, (n, n)))
        wrong = KnownPropensity(expit(2 + 0.5 * logit(true)))
        return float(
            np.abs(
                every_cell(CalibratedPropensity(wrong, method=method).fit(draw(true))) / true - 1
            ).mean()
        )

    errors = [mean_error(n) for n in (50, 600)]

    assert errors[1] < 0.4 * errors[0]
    assert errors[1] < limit


def test_a_constant_becomes_the_density() -> None:
    model = CalibratedPropensity(KnownPropensity(np.full(TRUE.shape, 0.9))).fit(LOG)

    rates = [observed(LOG)[model.fold_of_user_ != fold].mean() for fold in range(5)]
    np.testing.assert_allclose(
        every_cell(model)[:, 0], np.array(rates)[model.fold_of_user_], rtol=1e-6
    )


def test_isotonic_zeros_get_a_floor_that_is_reported() -> None:
    wrong = np.where(TRUE > 0.05, TRUE, 0.0)
    log = Ratings.from_dense(np.where(wrong > 0, observed(LOG), 0))

    model = CalibratedPropensity(KnownPropensity(wrong), method="isotonic").fit(log)

    assert (every_cell(model) > 0).all()
    for fold in range(5):
        n_without = (wrong[model.fold_of_user_ != fold] == 0).sum()
        assert 0 < model.floors_[fold] <= 0.5 / n_without


def test_beyond_max_cells_a_sample_is_near() -> None:
    exact = every_cell(CalibratedPropensity(KnownPropensity(WRONG)).fit(LOG))

    drawn = [
        every_cell(
            CalibratedPropensity(KnownPropensity(WRONG), max_cells=4_000, random_state=s).fit(LOG)
        )
        for s in (0, 1)
    ]

    assert (drawn[0] != drawn[1]).any()
    for each in drawn:
        np.testing.assert_allclose(each.mean(), exact.mean(), rtol=0.1)
        assert np.abs(each / exact - 1).mean() < 0.1


@pytest.mark.filterwarnings("ignore::unskew.errors.PropensityWarning")
def test_around_cross_fitting_overconfident_predictions_are_corrected() -> None:
    """Item popularity from 15 users varies more than the truth, which is the same for all."""
    log = draw(np.full((15, 400), 0.3))

    in_sample = every_cell(CalibratedPropensity(PopularityPropensity(smoothing=0.5)).fit(log))
    held_out = every_cell(
        CalibratedPropensity(
            CrossFittedPropensity(PopularityPropensity(smoothing=0.5), n_folds=15)
        ).fit(log)
    )

    assert in_sample.std() > 0.08
    assert held_out.std() < 0.05


def test_logits_know_their_limits() -> None:
    assert calibrated.limited_logit(np.array([0.0, 0.5, 1.0])).tolist() == [-30, 0, 30]
    assert calibrated.find_bins(np.array([-30.0, 30.0])).tolist() == [0, calibrated.N_BINS - 1]


@pytest.mark.parametrize("method", ["platt", "isotonic"])
def test_a_model_comes_back_from_its_file(tmp_path: Path, method: Any) -> None:
    model = CalibratedPropensity(PopularityPropensity("both"), method=method, n_folds=3).fit(LOG)
    model.save(tmp_path / "model.unskew")

    again = unskew.load(tmp_path / "model.unskew")

    assert (every_cell(again) == every_cell(model)).all()
    assert repr(again) == repr(model)
    again.fold_of_user_ = again.fold_of_user_[:5]
    assert (
        again._find_inconsistency()
        == "fold_of_user has shape (5,), but the rest of the model needs (120,)."
    )


def test_a_model_that_ranks_cells_the_wrong_way_round_is_warned_about() -> None:
    with pytest.warns(
        PropensityWarning,
        match="(?s)in 5 of 5 folds, cells with a larger propensity .* not observed more",
    ):
        CalibratedPropensity(KnownPropensity(1 - TRUE)).fit(LOG)


@pytest.mark.parametrize(
    ("model", "error", "match"),
    [
        (
            CalibratedPropensity(UniformPropensity(), method="spline"),
            UnknownNameError,
            "unknown value 'spline' of method; .*platt, isotonic",
        ),  # type: ignore[arg-type]
        (
            CalibratedPropensity(UniformPropensity(), n_folds=1),
            UsageError,
            "n_folds must be a whole number, at least 2; got 1",
        ),
        (
            CalibratedPropensity(UniformPropensity(), n_folds=121),
            UsageError,
            "at most the number of users, 120; got 121",
        ),
        (
            CalibratedPropensity(UniformPropensity(), max_cells=-1),
            UsageError,
            "max_cells must be a whole number",
        ),
        (
            CalibratedPropensity(NaiveBayesPropensity()),
            UsageError,
            "but NaiveBayesPropensity needs the rating of a cell",
        ),
        (
            CalibratedPropensity("popularity"),
            UsageError,
            "CalibratedPropensity wraps a propensity model.*got 'popularity'",
        ),  # type: ignore[arg-type]
    ],
)
def test_settings_are_checked(
    model: CalibratedPropensity, error: type[Exception], match: str
) -> None:
    with pytest.raises(error, match=match):
        model.fit(LOG)


def test_logs_that_cannot_calibrate_are_refused() -> None:
    with pytest.raises(UniverseError, match="log has the ids of only 120 users and 80 items"):
        CalibratedPropensity(UniformPropensity()).fit(LOG, universe=(121, 80))
    with pytest.raises(
        UsageError, match="there are 6 observed and 0 unobserved cells, and calibration needs both"
    ):
        CalibratedPropensity(UniformPropensity(), n_folds=2).fit(
            Ratings.from_dense(np.ones((4, 3)))
        )
