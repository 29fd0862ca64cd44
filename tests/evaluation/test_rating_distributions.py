"""Imputed deltas are expectations over the distribution of the rating."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import stats

from unskew import Ratings, evaluate
from unskew.errors import BadPredictionError, UsageError
from unskew.evaluation import Imputation
from unskew.evaluation.rating_distributions import MeanAndResiduals, Residuals
from unskew.models import MultinomialMixture, OrdinalFactorization
from unskew.types import IntVector, Matrix, Vector

RNG = np.random.default_rng(3)
LEVELS = np.arange(1.0, 6.0)
SHARES = RNG.dirichlet(np.ones(5), (8, 9))
SCORES: Matrix = RNG.uniform(1, 5, (8, 9))
TRUTH: Matrix = RNG.integers(1, 6, (8, 9)).astype(float)
SEEN = RNG.random((8, 9)) < 0.6
LOG = Ratings.from_dense(np.where(SEEN, TRUTH, 0))


class Distribution:
    """Predicts the probabilities that it was built with."""

    def __init__(self, shares: Matrix, levels: Vector = LEVELS) -> None:
        self.shares, self.levels_ = shares, levels

    def predict_distribution(self, users: IntVector, items: IntVector) -> Matrix:
        return self.shares[users, items]


def impute(
    metric: str,
    model: object,
    log: Ratings = LOG,
    *,
    estimator: str = "eib",
    folds: object = None,
    **options: Any,
) -> float:
    return next(
        iter(
            evaluate(
                log,
                SCORES,
                metrics=[metric],
                estimators=[estimator],
                imputation=Imputation(model, folds),
                universe="log",
                relevance_threshold=None if set(log.rating) <= {0, 1} else 4,
                **options,
            )
        )
    ).estimate


def delta_at(metric: str, rating: float) -> Matrix:
    """Every cell's delta if its rating were this one."""
    position = np.argsort(np.argsort(-SCORES, axis=1), axis=1) + 1
    return {
        "mse": (rating - SCORES) ** 2,
        "mae": np.abs(rating - SCORES),
        "accuracy": (np.ceil(SCORES - 0.5).clip(1, 5) == rating) * 1.0,
        "precision@3": 9 / 3 * (position <= 3) * (rating >= 4),
        "dcg@3": 9 * (position <= 3) * rating / np.log2(position + 1),
    }[metric]


METRICS = ("mse", "mae", "accuracy", "precision@3", "dcg@3")


@pytest.mark.parametrize("metric", METRICS)
def test_a_distribution_imputes_the_sum_over_its_levels(metric: str) -> None:
    expected = sum(
        SHARES[..., index] * delta_at(metric, level) for index, level in enumerate(LEVELS)
    )
    observed = sum((level == TRUTH) * delta_at(metric, level) for level in LEVELS)

    assert impute(metric, Distribution(SHARES)) == pytest.approx(
        np.where(SEEN, observed, expected).mean()
    )


@pytest.mark.parametrize("model", [OrdinalFactorization(2), MultinomialMixture("mar")])
def test_the_models_with_a_distribution_impute_by_it(model: Any) -> None:
    fitted = model.fit(LOG)
    users, items = (codes.ravel() for codes in np.indices(TRUTH.shape))
    shares = fitted.predict_distribution(users, items).reshape(8, 9, -1)

    assert impute("mae", fitted) == pytest.approx(
        impute("mae", Distribution(shares, fitted.levels_)), rel=1e-9
    )


def test_folds_may_have_seen_different_levels() -> None:
    """A fold without a rating of 1 has a model of four levels."""
    without = SHARES[..., 1:] / SHARES[..., 1:].sum(axis=-1, keepdims=True)
    fold = np.arange(len(LOG)) % 2
    imputation = {0: Distribution(SHARES), 1: Distribution(without, LEVELS[1:])}
    padded = np.concatenate([np.zeros((8, 9, 1)), without], axis=-1)

    found = impute("mae", imputation, folds=fold)

    same = {0: Distribution(SHARES), 1: Distribution(padded)}
    assert found == pytest.approx(impute("mae", same, folds=fold), rel=1e-12)


@pytest.mark.parametrize("metric", ["mse", "mae", "precision@3"])
def test_ratings_of_0_and_1_have_the_distribution_of_their_mean(metric: str) -> None:
    log = Ratings.from_arrays(LOG.user, LOG.item, 1.0 * (LOG.rating > 3))
    chance = RNG.random((8, 9))
    both = np.stack([1 - chance, chance], axis=-1)

    assert impute(metric, chance, log) == pytest.approx(
        impute(metric, Distribution(both, np.array([0.0, 1.0])), log)
    )
    with pytest.raises(
        BadPredictionError, match=r"an imputed one is 1\.5\. Impute the probability"
    ):
        impute(metric, np.full((8, 9), 1.5), log)


# Residuals


numbers = arrays(np.float64, 30, elements=st.floats(-5, 5))
weights = arrays(np.float64, 30, elements=st.floats(0.1, 9))


@given(residual=numbers, weight=weights)
def test_points_of_residuals_are_centred_and_have_their_spread(
    residual: Vector, weight: Vector
) -> None:
    residuals = Residuals.of(residual, weight)
    mean = np.average(residual, weights=weight)

    assert residuals.std == pytest.approx(
        np.sqrt(np.average((residual - mean) ** 2, weights=weight)), abs=1e-9
    )
    assert residuals.points.mean() == pytest.approx(0.0, abs=1e-9)
    assert (np.diff(residuals.points) >= -1e-9).all()
    assert residuals.points.std() <= residuals.std + 1e-9


def test_twenty_points_are_enough_for_absolute_errors() -> None:
    """E|Z + a| of a normal Z, from the quantile ranges of its residuals, within 1 %."""
    residual = stats.norm.ppf((np.arange(10_000) + 0.5) / 10_000)
    offset = np.linspace(-3, 3, 41)
    distribution = MeanAndResiduals(offset, [Residuals.of(residual, np.ones(10_000))])

    mean = sum(share * np.abs(rating) for rating, share in distribution.points(None))

    exact = 2 * stats.norm.pdf(offset) + offset * (1 - 2 * stats.norm.cdf(-offset))
    assert np.abs(mean / exact - 1).max() < 0.01


@pytest.mark.parametrize("degree", [1, 2])
def test_polynomials_need_fewer_points(degree: int) -> None:
    residuals = Residuals.of(RNG.normal(size=50) ** 3, RNG.uniform(1, 3, 50))
    distribution = MeanAndResiduals(np.array([1.0, 4.0]), [residuals])

    mean = sum(share * (rating - 2) ** degree for rating, share in distribution.points(degree))

    variance = residuals.std**2 if degree == 2 else 0.0
    assert mean == pytest.approx(np.array([1.0, 4.0]) * 0 + [(-1) ** degree, 2**degree] + variance)


def test_a_fold_gets_the_residuals_of_the_others() -> None:
    """So the imputed delta of a logged cell does not depend on its own rating."""
    mean = np.full((8, 9), 3.0)
    fold = (np.arange(len(LOG)) % 3 == 0).astype(int)
    residual = LOG.rating - 3.0
    spread = [residual[fold != label].var() for label in (0, 1)]
    delta = (TRUTH - SCORES)[SEEN] ** 2
    imputed = (3.0 - SCORES) ** 2 + residual.var()
    imputed[SEEN] = (3.0 - SCORES)[SEEN] ** 2 + np.take(spread, fold)

    found = impute("mse", mean, estimator="dr", folds=fold, propensities=np.full(len(LOG), 0.5))

    correction = 2 * (delta - imputed[SEEN])
    assert found == pytest.approx((imputed.sum() + correction.sum()) / TRUTH.size)


def test_each_fold_may_have_its_own_model() -> None:
    fold = np.where(LOG.user % 2 == 0, 7, 9)
    first, second = RNG.uniform(1, 5, (2, 8, 9))
    of_log = np.where(np.arange(8)[:, None] % 2 == 0, first, second)
    gain = 9 * (np.argsort(np.argsort(-SCORES, axis=1), axis=1) < 3)
    gain = gain / np.log2(np.argsort(np.argsort(-SCORES, axis=1), axis=1) + 2)

    models = {9: second, 7: first}
    imputed = gain * np.where(SEEN, of_log, (first + second) / 2)
    correction = SEEN * gain * (TRUTH - of_log)

    filled = impute("dcg@3", models, folds=fold)
    robust = impute(
        "dcg@3",
        models,
        estimator="dr",
        folds=fold,
        propensities=np.full(len(LOG), 0.5),
    )

    assert filled == pytest.approx((imputed + correction).mean())
    assert robust == pytest.approx((imputed + 2 * correction).mean())


# Errors


@pytest.mark.parametrize("folds", [[0, 1], np.linspace(0, 1, len(LOG))])
def test_folds_are_a_whole_number_for_each_logged_cell(folds: object) -> None:
    with pytest.raises(UsageError, match="must have a whole number for each of the"):
        impute("mse", SCORES, folds=folds)


def test_one_fold_is_too_few() -> None:
    with pytest.raises(UsageError, match=r"has only one fold, 4\. Use at least 2 folds"):
        impute("mse", SCORES, folds=np.full(len(LOG), 4))


def test_models_by_fold_need_the_folds_and_all_of_them() -> None:
    fold = np.arange(len(LOG)) % 2

    with pytest.raises(UsageError, match="the folds of the logged cells are missing"):
        impute("mse", {0: SCORES, 1: SCORES})
    with pytest.raises(UsageError, match=r"models for the folds \[0, 2\], .* folds has \[0, 1\]"):
        impute("mse", {0: SCORES, 2: SCORES}, folds=fold)


def test_bad_distributions_are_named() -> None:
    with pytest.raises(BadPredictionError, match=r"returned shape \(42, 4\) for 42 pairs .* 5"):
        impute("mse", Distribution(SHARES[..., 1:]))
    with pytest.raises(BadPredictionError, match="one row adds up to 2"):
        impute("mse", Distribution(2 * SHARES))
    holed = SHARES.copy()
    holed[tuple(np.argwhere(~SEEN)[0])] = np.nan
    with pytest.raises(BadPredictionError, match="no finite prediction for 1 cell outside"):
        impute("mse", Distribution(holed))
