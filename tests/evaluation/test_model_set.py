"""Multiple robust estimation: unbiased if one of its models is right, by enumeration."""

from __future__ import annotations

import warnings
from itertools import product
from typing import Any

import numpy as np
import pytest

from unskew import MatrixFactorization, Ratings, evaluate
from unskew.errors import UsageError
from unskew.estimators.multiple_robust import assign_folds
from unskew.evaluation import Imputation, ModelSet
from unskew.propensity import NaiveBayesPropensity, PopularityPropensity
from unskew.types import IntVector, Matrix

LEVELS = np.arange(1.0, 6.0)
N_USERS, N_SURE, N_RANDOM = 3, 5, 2
"""Every user has five cells that are always observed, so that the models can be told apart."""
SHAPE = N_USERS, N_SURE + N_RANDOM


class FixedRatings:
    """An imputation of one rating for each cell, without noise."""

    def __init__(self, rating: Matrix) -> None:
        self.levels_, self.rating = LEVELS, rating

    def predict_distribution(self, users: IntVector, items: IntVector) -> Matrix:
        return (self.rating[users, items][:, None] == self.levels_).astype(float)


class World:
    """A small world, with models that are right and models that are wrong."""

    def __init__(self, seed: int) -> None:
        rng = np.random.default_rng(seed)
        self.rating = rng.integers(1, 6, SHAPE).astype(float)
        self.scores = rng.uniform(1, 5, SHAPE)
        self.true = np.ones(SHAPE)
        self.true[:, N_SURE:] = rng.uniform(0.3, 0.8, (N_USERS, N_RANDOM))
        self.wrong_propensities = [rng.uniform(0.2, 0.9, SHAPE) for _ in range(2)]
        self.wrong_ratings = [rng.integers(1, 6, SHAPE).astype(float) for _ in range(2)]

    @property
    def risk(self) -> float:
        return float(np.square(self.rating - self.scores).mean())

    def expect(self, propensities: list[Matrix], ratings: list[Matrix]) -> float:
        """E[mr] over all observation patterns."""
        models = ModelSet(
            propensities,
            [Imputation(FixedRatings(each), is_independent=True) for each in ratings],
        )
        total = 0.0
        for bits in product([False, True], repeat=N_USERS * N_RANDOM):
            seen = np.ones(SHAPE, dtype=bool)
            seen[:, N_SURE:] = np.array(bits).reshape(N_USERS, N_RANDOM)
            chance = float(np.prod(np.where(seen, self.true, 1 - self.true)))
            result = evaluate(
                Ratings.from_dense(np.where(seen, self.rating, 0)),
                self.scores,
                metrics=["mse"],
                estimators=["mr"],
                cluster=None,
                model_set=models,
            )
            total += chance * next(iter(result)).estimate
        return total


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("right", ["P1", "P2", "m1", "m2"])
def test_mr_is_unbiased_if_one_of_its_models_is_right(right: str, seed: int) -> None:
    world = World(seed)
    propensities, ratings = world.wrong_propensities, world.wrong_ratings
    if right[0] == "P":
        propensities[int(right[1]) - 1] = world.true
    else:
        ratings[int(right[1]) - 1] = world.rating

    assert world.expect(propensities, ratings) == pytest.approx(world.risk, rel=1e-9)


def test_mr_is_biased_if_all_its_models_are_wrong() -> None:
    world = World(0)

    found = world.expect(world.wrong_propensities, world.wrong_ratings)

    assert abs(found - world.risk) > 0.1 * world.risk


def dense_mr(seen: Any, delta: Matrix, propensities: list[Matrix], imputed: list[Matrix]) -> float:
    """The formulas with matrices of all cells."""
    n_folds = min(5, len(delta))
    fold, total = assign_folds(len(delta), n_folds), 0.0
    columns = np.stack([np.ones(delta.shape), *(1 / p for p in propensities), *imputed])
    mean = np.mean(propensities, axis=0)
    for each in range(n_folds):
        of_mixture, of_fold = fold == (each - 1) % n_folds, fold == each
        used = seen & ~(of_mixture | of_fold)[:, None]
        eta = np.linalg.lstsq(columns[:, used].T, delta[used], rcond=None)[0]
        cells = [p[of_mixture].ravel() / np.sqrt(mean[of_mixture].ravel()) for p in propensities]
        target = seen[of_mixture].ravel() / np.sqrt(mean[of_mixture].ravel())
        share = np.linalg.lstsq(
            np.stack([cell - cells[0] for cell in cells[1:]], axis=1), target - cells[0], rcond=None
        )[0]
        mixture = np.concatenate([[1 - share.sum()], share])
        weight = sum(a / p for a, p in zip(mixture, propensities, strict=True))
        fitted = np.einsum("k,kui->ui", eta, columns)
        total += fitted[of_fold].sum()
        total += (seen * weight * (delta - fitted))[of_fold].sum()
    return float(total / delta.size)


def test_mr_equals_its_formula() -> None:
    rng = np.random.default_rng(3)
    shape = 30, 20
    rating, scores = rng.integers(1, 6, shape).astype(float), rng.uniform(1, 5, shape)
    propensities = [rng.uniform(0.2, 0.8, shape) for _ in range(3)]
    ratings = [rng.integers(1, 6, shape).astype(float) for _ in range(2)]
    seen = rng.random(shape) < propensities[0]

    result = evaluate(
        Ratings.from_dense(np.where(seen, rating, 0)),
        {"a": scores, "b": scores + 1},
        metrics=["mse"],
        estimators=["mr"],
        model_set=ModelSet(
            propensities, [Imputation(FixedRatings(each), is_independent=True) for each in ratings]
        ),
    )

    for row, shift in zip(result, (0, 1), strict=True):
        imputed = [np.square(each - scores - shift) for each in ratings]
        expected = dense_mr(seen, np.square(rating - scores - shift), propensities, imputed)
        assert row.estimate == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("cluster", [None, "user", "both"])
def test_mr_has_an_interval_and_paired_differences(cluster: Any) -> None:
    rng = np.random.default_rng(1)
    rating = rng.integers(1, 6, (60, 40)).astype(float)
    right = np.repeat(rng.uniform(0.1, 0.6, 40)[None], 60, axis=0)
    log = Ratings.from_dense(np.where(rng.random((60, 40)) < right, rating, 0))
    popularity = PopularityPropensity(smoothing=1).fit(log, universe="log")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = evaluate(
            log,
            {"low": np.full((60, 40), 2.0), "high": np.full((60, 40), 4.0)},
            metrics=["mse", "mae"],
            estimators=["mr"],
            cluster=cluster,
            model_set=ModelSet([popularity, right], [MatrixFactorization(0)]),
        )

    row = next(iter(result))
    assert row.ci_low < row.estimate < row.ci_high
    assert abs(row.estimate - np.square(rating - 2).mean()) < 4 * row.std_error
    assert np.isfinite(result.compare("low", "high", metric="mse", estimator="mr").std_error)
    assert any("takes its 2 propensity models as known" in note for note in result.notes)


class TestErrors:
    LOG = Ratings.from_dense(np.random.default_rng(0).integers(1, 6, (6, 5)))
    HALF = np.full((6, 5), 0.5)

    def run(self, model_set: Any, **more: Any) -> Any:
        settings = {"metrics": ["mse"], "estimators": ["mr"], **more}
        return evaluate(self.LOG, self.HALF, model_set=model_set, **settings)

    def test_the_models_are_missing(self) -> None:
        with pytest.raises(UsageError, match="'mr' needs several propensity models"):
            self.run(None)

    def test_there_is_no_propensity_model(self) -> None:
        with pytest.raises(UsageError, match="propensities is empty"):
            ModelSet([])

    def test_a_matrix_is_no_list_of_models(self) -> None:
        with pytest.raises(UsageError, match="must be a list of models; got ndarray"):
            ModelSet(self.HALF)  # type: ignore[arg-type]

    def test_a_model_reads_ratings(self) -> None:
        bayes = NaiveBayesPropensity().fit(self.LOG, mcar=[1, 2, 3, 4, 5], universe=(6, 10))
        with pytest.raises(UsageError, match="NaiveBayesPropensity needs the rating of a cell"):
            self.run(ModelSet([bayes]))

    def test_propensities_of_the_log_alone(self) -> None:
        with pytest.raises(UsageError, match="propensities of the logged cells alone"):
            self.run(ModelSet([np.full(30, 0.5)]))

    def test_no_estimator_reads_the_models(self) -> None:
        with pytest.raises(UsageError, match="model_set is for the estimator 'mr'"):
            self.run(ModelSet([self.HALF]), estimators=["naive"])

    def test_a_set_of_another_kind(self) -> None:
        with pytest.raises(UsageError, match="model_set must be a ModelSet; got list"):
            self.run([self.HALF])

    def test_a_bootstrap(self) -> None:
        with pytest.raises(UsageError, match="no bootstrap interval"):
            self.run(ModelSet([self.HALF]), bootstrap=10)

    def test_ratio_metrics(self) -> None:
        with pytest.raises(UsageError, match="not for ratios such as recall"):
            self.run(ModelSet([self.HALF]), metrics=["recall@2"], relevance_threshold=4)
