"""Imputations that were fitted to the log: cross-fitted, or without an interval."""

from __future__ import annotations

import json
import math
from fractions import Fraction
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from unskew import MatrixFactorization, Ratings, evaluate, sensitivity, simulate
from unskew.errors import UsageError
from unskew.evaluation import Evaluation, Imputation
from unskew.models import OffsetsOnly, OrdinalFactorization, Popularity
from unskew.propensity import PopularityPropensity

WORLD = simulate(40, 50, density=0.2, alpha=0.5, random_state=3)
LOG, P = WORLD.log, WORLD.propensities.values
SCORES = WORLD.truth + np.random.default_rng(0).normal(0, 1, WORLD.truth.shape)


def judge(
    model: object,
    *estimators: str,
    folds: Any = None,
    is_independent: bool = False,
    **options: Any,
) -> Evaluation:
    settings: dict[str, Any] = {"metrics": ["mse", "mae"], "propensities": P} | options
    return evaluate(
        LOG,
        {"a": SCORES, "b": SCORES + 0.2},
        estimators=estimators or ("dr", "sndr"),
        imputation=Imputation(model, folds, is_independent),
        **settings,
    )


def limits(result: Evaluation) -> list[float]:
    return [limit for risk in result for limit in (risk.ci_low, risk.ci_high)]


# Cross-fitting


RATINGS = (Fraction(1), Fraction(4), Fraction(2))
SHARES = (Fraction(1, 2), Fraction(3, 5), Fraction(1, 4))
SCORE = Fraction(3)


def squared_error(rating: Fraction) -> Fraction:
    return (rating - SCORE) ** 2


def impute_by_rest(seen: tuple[int, ...], folds: tuple[int, ...], fold: int) -> Fraction:
    """The mean delta of the logged cells outside of a fold, shrunken towards 5."""
    rest = [squared_error(RATINGS[c]) for c in seen if folds[c] != fold]
    return (sum(rest, Fraction(5))) / (len(rest) + 1)


def cross_fitted_dr(seen: tuple[int, ...], folds: tuple[int, ...]) -> Fraction:
    """The formula of the library: own fold for logged cells, mean of both for others."""
    by_fold = [impute_by_rest(seen, folds, fold) for fold in (0, 1)]
    total = Fraction(0)
    for cell, (rating, share) in enumerate(zip(RATINGS, SHARES, strict=True)):
        imputed = by_fold[folds[cell]] if cell in seen else sum(by_fold) / 2
        total += imputed
        if cell in seen:
            total += (squared_error(rating) - imputed) / share
    return total / len(RATINGS)


def test_cross_fitted_dr_is_unbiased_in_fractions() -> None:
    """All observation patterns and all folds of three cells; folds are drawn cell by cell."""
    mean = Fraction(0)
    for pattern in product((0, 1), repeat=3):
        chance = math.prod(
            share if is_seen else 1 - share for share, is_seen in zip(SHARES, pattern, strict=True)
        )
        seen = tuple(cell for cell in range(3) if pattern[cell])
        for folds in product((0, 1), repeat=3):
            mean += chance * cross_fitted_dr(seen, folds) / 8

    assert mean == sum(map(squared_error, RATINGS)) / 3


class Constant:
    """A model of one rating level, so that its imputed delta is one number."""

    def __init__(self, delta: Fraction) -> None:
        self.levels_ = np.array([float(SCORE) + math.sqrt(delta)])

    def predict_distribution(self, users: Any, items: Any) -> Any:
        return np.ones((len(users), 1))


@pytest.mark.parametrize("folds", [(0, 1, 0), (1, 0, 0), (0, 0, 1)])
def test_the_library_computes_this_formula(folds: tuple[int, ...]) -> None:
    seen = tuple(range(3)) if folds[2] else (0, 1)
    log = Ratings.from_codes(
        [0] * len(seen), seen, [float(RATINGS[c]) for c in seen], shape=(1, 3)
    ).with_universe((1, 3))
    models = {fold: Constant(impute_by_rest(seen, folds, fold)) for fold in (0, 1)}

    result = evaluate(
        log,
        np.full((1, 3), float(SCORE)),
        propensities=[float(SHARES[c]) for c in seen],
        metrics=["mse"],
        estimators=["dr"],
        imputation=Imputation(models, folds=[folds[c] for c in seen]),
        cluster=None,
    )

    assert next(iter(result)).estimate == pytest.approx(
        float(cross_fitted_dr(seen, folds)), rel=1e-12
    )


def test_an_unfitted_model_is_fitted_without_each_fold() -> None:
    fold = np.arange(len(LOG)) % 3
    models = {}
    for label in range(3):
        rows = np.flatnonzero(fold != label)
        share = rows.size / len(LOG)
        models[label] = OffsetsOnly(l2=5.0).fit(LOG.take(rows), share * P[rows])

    by_hand = judge(models, folds=fold)
    found = judge(OffsetsOnly(l2=5.0), folds=fold)

    assert found.to_columns()["estimate"] == by_hand.to_columns()["estimate"]
    assert limits(found) == limits(by_hand)
    assert found.notes[0].startswith("imputation by MatrixFactorization, cross-fitted in 3 folds;")


def test_the_folds_follow_the_random_state_and_the_model_stays_unfitted() -> None:
    model = OffsetsOnly(l2=5.0)
    first, again, other = (judge(model, random_state=seed) for seed in (0, 0, 1))

    assert first.to_columns()["estimate"] == again.to_columns()["estimate"]
    assert first.to_columns()["estimate"] != other.to_columns()["estimate"]
    assert not model.__sklearn_is_fitted__()
    assert "cross-fitted in 5 folds" in first.notes[0]
    assert "cross-fitted in 2 folds" in judge(model, folds=2).notes[0]


@pytest.mark.filterwarnings("ignore::unskew.errors.PropensityWarning")
@pytest.mark.parametrize("folds", [2, np.arange(len(LOG)) % 2], ids=["number", "by cell"])
def test_excluded_cells_have_no_fold(folds: Any) -> None:
    result = judge(OffsetsOnly(l2=5.0), folds=folds, exclude=LOG.take(np.arange(50)))

    assert result.n_observed == len(LOG) - 50
    assert "cross-fitted in 2 folds" in result.notes[-1]


def test_models_of_distributions_and_estimated_propensities_are_cross_fitted_too() -> None:
    fitted = PopularityPropensity("item").fit(LOG)
    result = judge(OrdinalFactorization(0, max_iter=20), propensities=fitted, folds=2)

    assert np.isfinite(limits(result)).all()


# Imputations that are fitted already


@pytest.mark.parametrize("unit", ["user", "item"])
def test_shocks_that_folds_share_are_named(unit: str) -> None:
    """A cell's imputation has learned from other folds, which follow the same shock."""
    rng = np.random.default_rng(1)
    truth, size = rng.integers(1, 6, (60, 50)).astype(float), 60 if unit == "user" else 50
    shock = rng.gamma(2.0, 0.5, (size, 1) if unit == "user" else (1, size))
    for factor, is_named in ((np.minimum(shock, 4.0), True), (np.ones_like(shock), False)):
        log = Ratings.from_dense(np.where(rng.random(truth.shape) < 0.2 * factor, truth, 0))
        result = evaluate(
            log.with_universe((60, 50)),
            np.full((len(log.users), len(log.items)), 3.0),
            propensities=np.full(len(log), 0.2),
            estimators=["sndr"],
            imputation=OffsetsOnly(),
        )
        assert (f"cells of one {unit} are selected together" in str(result)) == is_named
    judged = " ".join(judge(OffsetsOnly()).notes)
    assert "selected together" not in judged


def test_a_model_of_other_cells_has_intervals() -> None:
    rows = np.arange(len(LOG)) % 2 == 0
    train, test = LOG.take(np.flatnonzero(rows)), LOG.take(np.flatnonzero(~rows))
    result = evaluate(
        test,
        SCORES,
        propensities=0.5 * P[~rows],
        estimators=["sndr"],
        imputation=OffsetsOnly(l2=5.0).fit(train, 0.5 * P[rows]),
    )

    assert np.isfinite(limits(result)).all()
    assert result.notes == ("imputation was fitted to other cells",)


@pytest.mark.parametrize(
    ("imputation", "reason"),
    [
        (OffsetsOnly(l2=5.0).fit(LOG, P), f"which was fitted to {len(LOG)} of these"),
        (np.full(SCORES.shape, 3.0), "it is unknown to which ratings the imputation was fitted"),
    ],
    ids=["same log", "matrix"],
)
def test_without_other_ratings_there_is_no_interval_anywhere(
    imputation: object, reason: str, tmp_path: Path
) -> None:
    result = judge(imputation)

    assert np.isnan(limits(result)).all()
    assert np.isfinite(result.to_columns()["estimate"]).all()
    assert reason in repr(result).replace(",", "")
    assert reason in result._repr_html_().replace(",", "")
    record = json.loads(result.to_json())
    assert all(row["ci_low"] is None and row["std_error"] is None for row in record["rows"])
    assert any(reason in text.replace(",", "") for text in record["warnings"])
    page = result.to_html(tmp_path / "page.html").read_text()
    assert reason in page.replace(",", "")
    comparison = result.compare("a", "b", metric="mse", estimator="dr")
    assert comparison.better is None
    assert ", without an interval\nDoubly robust has no interval: " in str(comparison)
    assert reason in repr(comparison).replace(",", "")
    page = comparison.to_html(tmp_path / "comparison.html").read_text()
    assert "No verdict on a and b: MSE by Doubly robust cannot be used here." in page
    assert reason in page.replace(",", "")


def test_the_caller_can_say_that_it_was_fitted_elsewhere() -> None:
    result = judge(np.full(SCORES.shape, 3.0), is_independent=True)

    assert np.isfinite(limits(result)).all()
    assert result.notes == ("imputation taken as fitted to other ratings",)


def test_a_bootstrap_and_a_sensitivity_have_no_interval_either(tmp_path: Path) -> None:
    matrix = np.full(SCORES.shape, 3.0)
    varied = sensitivity(judge(matrix, "dr"), max_weight=[10], odds_error=[1.5])
    robustness = varied.compare("a", "b", metric="mse", estimator="dr")

    assert np.isnan(limits(judge(matrix, bootstrap=20))).all()
    assert all(math.isnan(each.ci_low) and math.isfinite(each.low) for each in varied.shifts)
    assert math.isnan(robustness.unsure_at)
    assert "interval of the difference is unknown" in str(robustness)
    page = robustness.to_html(tmp_path / "page.html").read_text()
    assert "the difference has no interval" in page
    assert varied.to_html(tmp_path / "varied.html").exists()


def test_eib_never_has_an_interval(tmp_path: Path) -> None:
    result = judge(OffsetsOnly(l2=5.0), "snips", "eib")
    reason = "Imputed has no interval: its error is that of the imputation in the cells"

    assert all(math.isnan(risk.ci_low) == (risk.estimator == "eib") for risk in result)
    assert reason in repr(result)
    record = json.loads(result.to_json())
    assert any(text.startswith(reason) for text in record["warnings"])
    assert ["mse", "eib"] in record["unusable"]
    assert reason in result.to_html(tmp_path / "page.html").read_text()


# Errors


def test_a_model_of_clicks_cannot_impute_ratings() -> None:
    with pytest.raises(UsageError, match="Popularity ranks items and does not predict ratings"):
        judge(Popularity())


def test_a_number_of_folds_is_for_unfitted_models() -> None:
    with pytest.raises(
        UsageError, match="folds is a number, 3, but the imputation is fitted already"
    ):
        judge(OffsetsOnly().fit(LOG, P), folds=3)


@pytest.mark.parametrize("n_folds", [1, 0, True])
def test_at_least_two_folds(n_folds: int) -> None:
    with pytest.raises(UsageError, match="folds must be a whole number, at least 2"):
        judge(MatrixFactorization(2), folds=n_folds)


def test_no_more_folds_than_ratings() -> None:
    with pytest.raises(UsageError, match="must be at most the number of ratings"):
        judge(MatrixFactorization(2), folds=len(LOG) + 1)
