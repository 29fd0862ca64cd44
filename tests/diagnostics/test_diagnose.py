from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pytest
from sklearn.metrics import brier_score_loss, log_loss

from frame_engines import columns_of, each_engine
from unskew import Ratings, diagnose, evaluate, simulate, theory
from unskew.diagnostics import Diagnosis
from unskew.errors import (
    BadPropensityError,
    DataError,
    NotFittedError,
    PropensityWarning,
    UniverseError,
    UnknownNameError,
    UsageError,
)
from unskew.propensity import UniformPropensity
from unskew.simulation import ByCovariates
from unskew.types import Vector

RNG = np.random.default_rng(0)
USERS, ITEMS = RNG.integers(0, 2, 80), RNG.integers(0, 2, 90)
WORLD = simulate(
    80, 90, density=0.2, observation=ByCovariates(1.0 + USERS, 1.0 + 2 * ITEMS), random_state=3
)
LOG = WORLD.log
TRUE = WORLD.observation.propensities(slice(None))
WRONG = np.clip(TRUE * RNG.uniform(0.7, 1.4, TRUE.shape), 0.01, 1)
SEEN = np.zeros(TRUE.shape)
SEEN[LOG.user, LOG.item] = 1


class LogModel:
    """A model of logged cells alone."""

    def predict(self, log: Ratings, /) -> Vector:
        return TRUE[log.user, log.item]


class PairModel(LogModel):
    """A model of any pairs, whose ids are codes."""

    def predict_pairs(self, users: npt.ArrayLike, items: npt.ArrayLike, /) -> Vector:
        return TRUE[np.asarray(users), np.asarray(items)]


class RatingModel(PairModel):
    """A model that looks at ratings."""

    sees_ratings = True


@pytest.fixture(scope="module")
def diagnosis() -> Diagnosis:
    propensities = {"true": TRUE, "wrong": WRONG, "values": TRUE[LOG.user, LOG.item]}
    return diagnose(LOG, propensities, user_features=USERS, item_features=ITEMS, true=TRUE)


# What it measures


@pytest.mark.parametrize(("name", "p"), [("true", TRUE), ("wrong", WRONG)])
def test_fit_over_every_cell_is_scikit_learns(diagnosis: Diagnosis, name: str, p: Vector) -> None:
    fit = diagnosis[name].fit
    assert fit is not None
    assert fit.log_loss == pytest.approx(log_loss(SEEN.ravel(), p.ravel()))
    assert fit.brier == pytest.approx(brier_score_loss(SEEN.ravel(), p.ravel()))
    assert fit.floor == 1 / len(LOG)


def test_weights_are_those_that_evaluate_would_warn_about(diagnosis: Diagnosis) -> None:
    evaluation = evaluate(LOG, LOG.rating, propensities=TRUE, metrics=["mae"])

    assert (
        diagnosis["true"].weights.summary
        == evaluation.weight_summary
        == diagnosis["values"].weights.summary
    )


def test_true_propensities_make_no_error_and_wrong_ones_that_of_theory(
    diagnosis: Diagnosis,
) -> None:
    exact, wrong, values = (diagnosis[name].accuracy for name in ("true", "wrong", "values"))
    assert exact is not None
    assert wrong is not None
    assert values is not None
    assert (exact.relative_error, exact.bias_bound, exact.is_estimated) == (0, 0, False)
    assert wrong.bias_bound == pytest.approx(theory.bias_bound(true=TRUE, assumed=WRONG))
    assert values.is_estimated


def test_true_propensities_balance_what_the_log_does_not(diagnosis: Diagnosis) -> None:
    balance = diagnosis["true"].balance
    assert balance is not None
    assert balance.asam < 0.3 * balance.asam_before


@pytest.mark.parametrize(
    "propensities",
    [PairModel(), TRUE, pd.DataFrame(TRUE), TRUE.tolist()],
    ids=["pairs", "matrix", "frame", "lists"],
)
def test_a_model_of_pairs_and_its_matrix_are_the_same(
    diagnosis: Diagnosis, propensities: Any
) -> None:
    other = diagnose(
        LOG, {"true": propensities}, user_features=USERS, item_features=ITEMS, true=TRUE
    )

    assert other["true"].measures() == diagnosis["true"].measures()


@pytest.mark.parametrize(
    ("propensities", "reason"),
    [
        (TRUE[LOG.user, LOG.item], "only values of the logged cells were passed"),
        (WORLD.propensities, "only values of the logged cells were passed"),
        (LogModel(), "LogModel has no method predict_pairs(users, items)"),
        (
            RatingModel(),
            "RatingModel needs ratings, which unobserved cells do not have",
        ),
    ],
    ids=["values", "Propensities", "model of logs", "sees ratings"],
)
def test_propensities_of_logged_cells_only_have_no_fit_and_a_note_says_why(
    propensities: Any, reason: str
) -> None:
    diagnosis = diagnose(LOG, propensities)
    row = diagnosis["model"]

    assert row.fit is row.calibration is None
    assert row.measures()["log_loss"] is None
    assert diagnosis.notes[:-1] == (f"model: no fit over all cells, because {reason}",)
    assert reason in repr(diagnosis).replace("\n  ", " ")


def test_a_sample_agrees_with_every_cell_within_its_error_bars() -> None:
    exact, sampled = (
        diagnose(LOG, TRUE, max_cells=n, random_state=1)["model"] for n in (7200, 3000)
    )
    assert exact.fit is not None
    assert sampled.fit is not None
    assert exact.calibration is not None
    assert sampled.calibration is not None
    for name in ("log_loss", "brier", "sum_of_propensities"):
        value, error = getattr(sampled.fit, name), getattr(sampled.fit, f"{name}_error")
        assert getattr(exact.fit, f"{name}_error") is None
        assert 0 < error < 0.1 * value
        assert abs(value - getattr(exact.fit, name)) < 4 * error
    assert sampled.calibration.slope == pytest.approx(exact.calibration.slope, abs=0.1)
    assert sampled.calibration.count.sum() == pytest.approx(7200)


def test_the_notes_mention_a_sample() -> None:
    diagnosis = diagnose(LOG, TRUE, max_cells=3000)

    assert "numbers over all cells use all observed cells and a sample of" in diagnosis.notes[0]
    assert "standard error" in repr(diagnosis)
    assert "standard error" not in repr(diagnose(LOG, TRUE))


def test_a_fitted_model_predicts_all_cells() -> None:
    with pytest.warns(PropensityWarning, match="does not have the item popularity of all cells"):
        diagnosis = diagnose(LOG, {"uniform": UniformPropensity().fit(LOG)})["uniform"]

    assert diagnosis.fit is not None
    assert diagnosis.calibration is not None
    assert diagnosis.fit.sum_of_propensities == pytest.approx(len(LOG))
    assert (
        diagnosis.calibration.slope,
        diagnosis.calibration.error,
        diagnosis.calibration.count.tolist(),
    ) == (
        None,
        0.0,
        [7200],
    )


# The universe


def test_without_a_universe_nothing_is_computed_over_all_cells() -> None:
    log = Ratings.from_arrays(LOG.user, LOG.item, LOG.rating)
    diagnosis = diagnose(log, TRUE)

    assert diagnosis["model"].fit is None
    assert diagnosis["model"].weights.summary.mass_ratio is None
    assert diagnosis.notes[:-1] == (
        "the universe is unknown, so nothing was computed over all cells; "
        "pass universe=(n_users, n_items)",
    )


def test_a_universe_larger_than_what_the_log_lists() -> None:
    with pytest.warns(PropensityWarning, match="add up to"):
        diagnosis = diagnose(LOG, TRUE, universe=(100, 100))

    assert diagnosis.coverage.users_unseen == 20
    assert diagnosis.notes[:-1] == (
        "fit and calibration are over the 80 users x 90 items of the log",
    )


# Warnings


def test_one_warning_says_all_that_is_wrong() -> None:
    flat = np.full(TRUE.shape, 0.05)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        diagnosis = diagnose(LOG, {"flat": flat, "true": TRUE}, item_features=ITEMS)

    (warning,) = caught
    assert warning.category is PropensityWarning
    assert warning.filename == __file__
    assert str(warning.message).splitlines() == list(diagnosis.warnings)
    assert [line.split(":")[0] for line in diagnosis.warnings] == ["flat"] * 3
    for number, text in enumerate(
        (
            "the inverse propensities add up to",
            "the propensities of all cells add up to",
            "'item:0' by",
        )
    ):
        assert text in diagnosis.warnings[number]


def test_good_propensities_are_not_warned_about(diagnosis: Diagnosis) -> None:
    assert diagnosis.warnings == ()


# The table in its forms


@each_engine
def test_frames_come_in_the_callers_library(make: Callable[..., Any]) -> None:
    frame = make({"user_id": LOG.user, "item_id": LOG.item, "rating": LOG.rating})
    log = Ratings.from_frame(frame, users=np.arange(80), items=np.arange(90), universe="log")
    diagnosis = diagnose(
        log, {"a": TRUE, "b": TRUE[LOG.user, LOG.item]}, user_features=make({"age": USERS})
    )

    assert (
        type(diagnosis.to_frame())
        is type(diagnosis.calibration)
        is type(diagnosis.balance)
        is type(frame)
    )
    assert columns_of(diagnosis.to_frame())["model"] == ["a", "b"]
    assert columns_of(diagnosis.balance)["covariate"] == ["user:age", "user:age"]
    assert columns_of(diagnosis.calibration)["model"] == ["a"] * len(
        columns_of(diagnosis.calibration)["bin"]
    )


def test_a_row_a_model_and_a_column_a_measure(diagnosis: Diagnosis) -> None:
    frame = diagnosis.to_frame("pandas").set_index("model")

    assert frame.index.tolist() == ["true", "wrong", "values"]
    assert frame.loc["true", "n_observed"] == len(LOG)
    assert frame.loc["true", "mass_of_propensities"] == pytest.approx(TRUE.sum() / len(LOG))
    assert frame.loc["true", "weight_max"] == pytest.approx(1 / TRUE[LOG.user, LOG.item].min())
    assert np.isnan(frame.loc["values", "log_loss"])


def test_json_has_everything_and_no_nan_or_infinity() -> None:
    def refuse(constant: str) -> float:
        raise AssertionError(constant)

    certain = np.where(SEEN == 1, TRUE, 1.0)
    with pytest.warns(PropensityWarning, match="propensity of 1"):
        diagnosis = diagnose(LOG, {"certain": certain}, user_features=USERS)
    parsed = json.loads(diagnosis.to_json(), parse_constant=refuse)
    (model,) = parsed["models"]

    assert parsed["universe"] == [80, 90]
    assert parsed["coverage"]["profiles"] == 2
    assert model["measures"].keys() == diagnosis["certain"].measures().keys()
    assert model["measures"]["log_loss"] is None
    assert model["balance"]["covariate"] == ["user:0"]
    assert len(model["calibration"]["predicted"]) == len(model["calibration"]["count"])
    assert parsed["warnings"] == list(diagnosis.warnings)


def test_the_table_fits_a_page_whatever_the_number_of_models() -> None:
    diagnosis = diagnose(
        LOG, {f"a model with a long name {k}": TRUE for k in range(7)}, user_features=USERS
    )
    lines = repr(diagnosis).splitlines()

    assert max(map(len, lines)) <= 80
    assert sum(line.startswith("observed cells") for line in lines) > 1
    assert all(sum(f"name {k}" in line for line in lines) >= 1 for k in range(7))


def test_html_escapes_names() -> None:
    html = diagnose(LOG, {"<script>": TRUE, "other": LOG.rating * 0 + 0.2})._repr_html_()

    assert "<script>" not in html
    assert html.count("&lt;script&gt;") == 3


def test_measures_that_no_model_has_are_left_out_of_the_table() -> None:
    shown = repr(diagnose(LOG, TRUE[LOG.user, LOG.item]))

    assert "log-loss" not in shown
    assert "imbalance" not in shown
    assert "effective sample size" in shown


# Errors


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        (
            {"floor": 0},
            UsageError,
            "floor must be a finite number, above 0 and below 1, or None; got 0",
        ),
        ({"max_cells": 0}, UsageError, "max_cells must be a whole number, at least 1; got 0"),
        ({"random_state": -1}, UsageError, "random_state must be a whole number, at least 0"),
        (
            {"universe": (3, 3)},
            UniverseError,
            "the universe has 3 users x 3 items, but the log alone has 80 users",
        ),
        (
            {"user_features": np.ones((3, 2))},
            DataError,
            "user_features has 3 rows, but the log lists 80 users",
        ),
        ({"true": np.zeros(TRUE.shape)}, BadPropensityError, r"lie outside \(0, 1\]"),
    ],
)
def test_arguments_that_make_no_sense(
    options: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        diagnose(LOG, TRUE, **options)


def test_no_propensities_no_log_no_fit() -> None:
    with pytest.raises(UsageError, match="there are no propensities to diagnose"):
        diagnose(LOG, {})
    with pytest.raises(UsageError, match=r"the log must be unskew\.Ratings, not list"):
        diagnose([], TRUE)  # type: ignore[arg-type]
    with pytest.raises(NotFittedError, match="not fitted yet"):
        diagnose(LOG, UniformPropensity())


def test_a_bad_propensity_of_an_unobserved_cell_is_named() -> None:
    bad = TRUE.copy()
    user, item = np.argwhere(SEEN == 0)[0]
    bad[user, item] = 1.5
    message = (
        r"'m': 1 of [\d,]+ propensities of unobserved cells .* "
        rf"the first is 1\.5 at user {user}, item {item}\."
    )
    with pytest.raises(BadPropensityError, match=message):
        diagnose(LOG, {"m": bad})


def test_a_model_that_gives_too_few_is_named() -> None:
    class Short(PairModel):
        def predict_pairs(self, users: npt.ArrayLike, items: npt.ArrayLike, /) -> Vector:
            return np.ones(3)

    with pytest.raises(
        BadPropensityError, match=r"'short' returned propensities of shape \(3,\) for [\d,]+ pairs"
    ):
        diagnose(LOG, {"short": Short()})


def test_what_was_not_measured_cannot_be_had() -> None:
    diagnosis = diagnose(LOG, {"values": TRUE[LOG.user, LOG.item]})

    with pytest.raises(
        UsageError, match=r"no calibration was measured\. Call diagnose with universe=\(n_users"
    ):
        _ = diagnosis.calibration
    with pytest.raises(
        UsageError, match=r"no balance was measured\. Call diagnose with user_features"
    ):
        _ = diagnosis.balance
    with pytest.raises(
        UnknownNameError,
        match=r"unknown model of this diagnosis 'value'; valid names are: values\. Did you mean",
    ):
        diagnosis["value"]
