"""When ``dr``, ``sndr`` and ``eib`` are right, with ratings that are random themselves.

Each cell has two possible ratings. The expectation is over all ratings and all observation
patterns, so it is a finite sum.
"""

from __future__ import annotations

import warnings
from itertools import product
from typing import Any

import numpy as np
import pytest

from enumeration import patterns
from unskew import Ratings, evaluate
from unskew.errors import PropensityWarning
from unskew.evaluation import Imputation
from unskew.types import IntVector, Matrix, Vector

LOW, HIGH = np.array([[1.0, 2.0], [1.0, 3.0]]), np.array([[4.0, 3.0], [2.0, 5.0]])
SHARE = np.array([[0.3, 0.5], [0.8, 0.6]])
"""The probability of the higher rating."""
SCORES = np.array([[2.0, 2.4], [3.5, 4.0]])
BY_CELL = np.array([[0.9, 0.4], [0.6, 0.8]])
LEVELS = np.arange(1.0, 6.0)
SEEN_BY_LEVEL = np.array([0.3, 0.4, 0.5, 0.8, 1.0])
METRICS = {"mse": lambda y: (y - SCORES) ** 2, "mae": lambda y: np.abs(y - SCORES)}


class TwoRatings:
    """Predicts the two possible ratings of each cell, the higher one with ``share``."""

    def __init__(self, share: Matrix) -> None:
        self.levels_ = LEVELS
        self.table = np.zeros((2, 2, 5))
        for (user, item), high in np.ndenumerate(share):
            self.table[user, item, int(LOW[user, item]) - 1] += 1 - high
            self.table[user, item, int(HIGH[user, item]) - 1] += high

    def predict_distribution(self, users: IntVector, items: IntVector) -> Matrix:
        return self.table[users, items]


def imputed_mean(metric: str, share: Matrix) -> float:
    delta = METRICS[metric]
    return float(((1 - share) * delta(LOW) + share * delta(HIGH)).mean())


def expect(estimator: str, metric: str, *, true: Any, assumed: Any, share: Matrix) -> float:
    """E[estimate]; ``true`` and ``assumed`` map ratings to propensities."""
    total, imputation = 0.0, TwoRatings(share)
    for bits in product([False, True], repeat=4):
        is_high = np.array(bits).reshape(2, 2)
        rating = np.where(is_high, HIGH, LOW)
        chance_of_rating = float(np.prod(np.where(is_high, SHARE, 1 - SHARE)))
        for seen, chance in patterns(true(rating)):
            if not chance * chance_of_rating:
                continue
            value = imputed_mean(metric, share)
            if seen.any():
                result = evaluate(
                    Ratings.from_dense(np.where(seen, rating, 0)),
                    SCORES,
                    propensities=assumed(rating),
                    metrics=[metric],
                    estimators=[estimator],
                    imputation=imputation,
                    cluster=None,
                )
                value = next(iter(result)).estimate
            total += chance_of_rating * chance * value
    return total


def select_by_rating(rating: Matrix) -> Matrix:
    """The propensity depends on the cell and on its rating."""
    return BY_CELL * SEEN_BY_LEVEL[rating.astype(int) - 1]


@pytest.fixture(autouse=True)
def ignore_small_samples() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PropensityWarning)
        yield


@pytest.mark.parametrize("metric", METRICS)
def test_dr_is_right_if_the_propensities_are(metric: str) -> None:
    found = expect("dr", metric, true=select_by_rating, assumed=select_by_rating, share=1 - SHARE)

    assert found == pytest.approx(imputed_mean(metric, SHARE), rel=1e-12)


@pytest.mark.parametrize("metric", METRICS)
def test_dr_is_right_if_the_imputed_deltas_are(metric: str) -> None:
    """The selection is by rating. The propensities are wrong by a factor of each cell."""
    factor = np.array([[0.7, 0.3], [1.0, 0.5]])
    found = expect(
        "dr",
        metric,
        true=select_by_rating,
        assumed=lambda rating: factor * select_by_rating(rating),
        share=SHARE,
    )

    assert found == pytest.approx(imputed_mean(metric, SHARE), rel=1e-12)


@pytest.mark.parametrize("metric", METRICS)
def test_dr_is_wrong_if_the_error_of_the_propensities_depends_on_the_rating(metric: str) -> None:
    """Right imputed deltas cannot make up for that."""
    found = expect(
        "dr", metric, true=select_by_rating, assumed=lambda _: BY_CELL * 0.6, share=SHARE
    )

    assert abs(found - imputed_mean(metric, SHARE)) > 0.03


@pytest.mark.parametrize("metric", METRICS)
def test_dr_is_wrong_if_both_are(metric: str) -> None:
    found = expect(
        "dr",
        metric,
        true=select_by_rating,
        assumed=lambda rating: 0.7 * select_by_rating(rating),
        share=1 - SHARE,
    )

    assert abs(found - imputed_mean(metric, SHARE)) > 0.05


@pytest.mark.parametrize("metric", METRICS)
def test_eib_is_right_if_the_imputed_deltas_of_unobserved_cells_are(metric: str) -> None:
    by_cell = expect("eib", metric, true=lambda _: BY_CELL, assumed=lambda _: BY_CELL, share=SHARE)
    by_rating = expect("eib", metric, true=select_by_rating, assumed=select_by_rating, share=SHARE)

    assert by_cell == pytest.approx(imputed_mean(metric, SHARE), rel=1e-12)
    assert abs(by_rating - imputed_mean(metric, SHARE)) > 0.02


# The limit of a large log: every cell occurs often, and is observed in exactly its share


N_COPIES = 16
FOUR = (LOW, HIGH)


def make_large_log(rating: tuple[Matrix, Matrix]) -> tuple[Matrix, Matrix, Matrix]:
    """Ratings, propensities and observed cells of 16 copies of each of the four cells.

    Half of the copies of a cell have the lower rating. Of these one half is observed, of the others
    one in four.
    """
    shape = (2 * N_COPIES, 2)
    truth, chance, seen = np.empty(shape), np.empty(shape), np.zeros(shape, dtype=bool)
    for user in range(2):
        for copy in range(N_COPIES):
            row = user * N_COPIES + copy
            is_high = copy >= N_COPIES // 2
            truth[row] = rating[is_high][user]
            chance[row] = 0.25 if is_high else 0.5
            seen[row] = copy % (4 if is_high else 2) == 0
    return truth, chance, seen


def judge_large(rating: tuple[Matrix, Matrix], factor: Matrix, imputation: object) -> Any:
    truth, chance, seen = make_large_log(rating)
    scores = np.repeat(SCORES, N_COPIES, axis=0)
    result = evaluate(
        Ratings.from_dense(np.where(seen, truth, 0)),
        scores,
        propensities=chance * np.repeat(factor, N_COPIES, axis=0),
        metrics=list(METRICS),
        estimators=["dr", "sndr"],
        imputation=imputation,
        cluster=None,
    )
    errors = {"mse": ((truth - scores) ** 2).mean(), "mae": np.abs(truth - scores).mean()}
    return result, errors


class Halves:
    """Predicts both ratings of a cell with these probabilities, for all copies of its user."""

    def __init__(self, rating: tuple[Matrix, Matrix], share: float) -> None:
        self.rating, self.share, self.levels_ = rating, share, LEVELS

    def predict_distribution(self, users: IntVector, items: IntVector) -> Matrix:
        row = np.arange(users.size)
        table = np.zeros((users.size, 5))
        for rating, share in zip(self.rating, (1 - self.share, self.share), strict=True):
            table[row, rating[users // N_COPIES, items].astype(int) - 1] += share
        return table


RIGHT_FACTOR, WRONG_FACTOR = np.ones((2, 2)), np.array([[0.5, 0.9], [0.7, 1.0]])


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("estimator", ["dr", "sndr"])
@pytest.mark.parametrize(
    ("factor", "share"), [(RIGHT_FACTOR, 0.9), (WRONG_FACTOR, 0.5)], ids=["P right", "deltas right"]
)
def test_both_are_consistent_if_one_part_is_right(
    factor: Matrix, share: float, estimator: str, metric: str
) -> None:
    result, truth = judge_large(FOUR, factor, Halves(FOUR, share))

    assert result.risk("model", metric=metric, estimator=estimator).estimate == pytest.approx(
        truth[metric], rel=1e-12
    )


@pytest.mark.parametrize("metric", METRICS)
def test_sndr_alone_allows_propensities_that_are_wrong_by_one_factor(metric: str) -> None:
    """Whatever the imputation; here it gives every cell a rating of 1."""
    ones = np.ones((2, 2))
    result, truth = judge_large(FOUR, 0.7 * ones, Halves((ones, ones), 0.5))

    normalized, plain = (
        result.risk("model", metric=metric, estimator=name).estimate for name in ("sndr", "dr")
    )
    assert normalized == pytest.approx(truth[metric], rel=1e-12)
    assert abs(plain - truth[metric]) > 0.05


def test_sndr_alone_allows_imputed_deltas_that_are_wrong_by_one_number() -> None:
    """The mean of each rating is right. Its variance is imputed as 4 and is 1."""
    mean = np.full((2, 2), 3.0)
    result, truth = judge_large(
        (mean - 1, mean + 1), WRONG_FACTOR, Halves((mean - 2, mean + 2), 0.5)
    )

    normalized, plain = (
        result.risk("model", metric="mse", estimator=name).estimate for name in ("sndr", "dr")
    )
    assert normalized == pytest.approx(truth["mse"], rel=1e-12)
    assert abs(plain - truth["mse"]) > 0.05


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("estimator", ["dr", "sndr"])
def test_a_right_mean_with_residuals_of_one_spread_is_enough(estimator: str, metric: str) -> None:
    """Any cell's rating is its mean plus or minus 1, and the propensities are wrong by cell."""
    mean = np.array([[2.0, 3.0], [4.0, 2.0]])
    rating = (mean - 1, mean + 1)
    result, truth = judge_large(rating, WRONG_FACTOR, np.repeat(mean, N_COPIES, axis=0))

    assert result.risk("model", metric=metric, estimator=estimator).estimate == pytest.approx(
        truth[metric], rel=1e-12
    )


# By simulation, with fixed seeds


def draw_ratings(rng: np.random.Generator) -> tuple[Matrix, Matrix, Matrix]:
    """Means, ratings and predictions of 120 x 80 cells with five levels."""
    mean = 3 + rng.normal(0, 0.6, (120, 1)) + rng.normal(0, 0.5, (1, 80))
    share = np.exp(-((LEVELS - mean[..., None]) ** 2) / 1.1)
    share /= share.sum(axis=-1, keepdims=True)
    rating = 1.0 + (rng.random((120, 80, 1)) > np.cumsum(share, axis=-1)).sum(axis=-1)
    return share @ LEVELS, rating, mean + rng.normal(0, 0.4, mean.shape)


def test_an_exact_mean_makes_up_for_a_wrong_level_of_the_propensities() -> None:
    """Propensities of 0.7 times the right ones; the mean of 40 logs within 4 standard errors.

    Imputed deltas at the mean rating, without its variance, would give about 1.3 times the truth.
    """
    rng = np.random.default_rng(0)
    mean, rating, scores = draw_ratings(rng)
    chance = np.array([0.05, 0.08, 0.12, 0.2, 0.3])[rating.astype(int) - 1]
    values = []
    for _ in range(40):
        log = Ratings.from_dense(np.where(rng.random(chance.shape) < chance, rating, 0))
        result = evaluate(
            log,
            scores,
            propensities=0.7 * chance,
            estimators=["dr", "sndr", "eib"],
            imputation=mean,
            cluster=None,
        )
        values.append([risk.estimate for risk in result])
    means, spread = np.mean(values, axis=0), np.std(values, axis=0, ddof=1) / np.sqrt(40)

    mse, mae = ((rating - scores) ** 2).mean(), np.abs(rating - scores).mean()
    truth = np.repeat([mse, mae], 3)
    assert (np.abs(means - truth) < 4 * spread + 0.01 * truth).all()


def fit_means(user: IntVector, item: IntVector, rating: Vector, weight: Vector) -> Matrix:
    """Mean + shrunken offsets of 120 users and 80 items, each with a prior weight of 5 cells."""
    level = np.average(rating, weights=weight)
    prior = 5 * weight.mean()
    offset = np.zeros(120), np.zeros(80)
    for _ in range(3):
        for own, other, side in ((user, item, 0), (item, user, 1)):
            residual = weight * (rating - level - offset[1 - side][other])
            size = offset[side].size
            offset[side][:] = np.bincount(own, residual, size) / (
                np.bincount(own, weight, size) + prior
            )
    return level + offset[0][:, None] + offset[1]


def test_intervals_cover_with_a_cross_fitted_imputation() -> None:
    """300 logs: at least 92 %, which a true rate of 95 % misses once in 100 runs."""
    rng = np.random.default_rng(5)
    _, rating, scores = draw_ratings(rng)
    chance = np.array([0.05, 0.08, 0.12, 0.2, 0.3])[rating.astype(int) - 1]
    truth = np.repeat([((rating - scores) ** 2).mean(), np.abs(rating - scores).mean()], 2)
    hits = np.zeros(4)
    for _ in range(300):
        log = Ratings.from_dense(np.where(rng.random(chance.shape) < chance, rating, 0))
        fold = rng.integers(0, 3, len(log))
        weight = 1 / chance[log.user, log.item]
        parts = [np.flatnonzero(fold != label) for label in range(3)]
        models = {
            label: fit_means(log.user[rows], log.item[rows], log.rating[rows], weight[rows])
            for label, rows in enumerate(parts)
        }
        result = evaluate(
            log,
            scores,
            propensities=chance,
            estimators=["dr", "sndr"],
            imputation=Imputation(models, folds=fold),
            cluster=None,
        )
        limits = np.array([(risk.ci_low, risk.ci_high) for risk in result])
        hits += (limits[:, 0] <= truth) & (truth <= limits[:, 1])

    assert (hits / 300 >= 0.92).all()
