"""Metrics on uniformly random tests, against brute force over pairs and orders."""

from __future__ import annotations

from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

import unskew
from unskew.data.ratings import Ratings
from unskew.errors import BadPredictionError, UnknownNameError, UsageError
from unskew.estimators.estimate import Estimate
from unskew.evaluation.random_test import (
    compute_test_delta,
    estimate_on_test,
    evaluate_random_test,
)
from unskew.metrics.logged import LoggedAuc, LoggedNormalizedGain, LoggedUserAuc
from unskew.metrics.metric import Metric
from unskew.metrics.rating import AbsoluteError
from unskew.models.matrix_factorization import MatrixFactorization

USER = [0, 0, 0, 0, 1, 1, 1, 2, 2, 4, 4, 4]
ITEM = [0, 1, 2, 3, 0, 1, 2, 3, 4, 0, 1, 4]
TEST = Ratings.from_codes(USER, ITEM, [5, 1, 4, 2, 1, 5, 5, 2, 1, 4, 3, 1], shape=(5, 5))
RELEVANT = TEST.rating >= 4
scores = arrays(np.float64, len(TEST), elements=st.integers(-2, 2).map(float))


def estimate(metric: Metric, *predictions: np.ndarray, test: Ratings = TEST) -> Estimate:
    deltas = [compute_test_delta(test, metric, prediction) for prediction in predictions]
    return estimate_on_test(test, deltas)


def pairs(score: np.ndarray, is_relevant: np.ndarray) -> float:
    """The share of pairs in the right order, ties half."""
    gaps = score[is_relevant][:, None] - score[~is_relevant]
    return float(((gaps > 0) + 0.5 * (gaps == 0)).mean())


def mean_ndcg_over_orders(score: np.ndarray, is_relevant: np.ndarray, k: int) -> float:
    """NDCG@k of every order that the scores allow, averaged."""
    discount = 1 / np.log2(np.arange(2, score.size + 2))
    best = discount[: min(k, int(is_relevant.sum()))].sum()
    orders = [
        list(order)
        for order in permutations(range(score.size))
        if (np.diff(score[list(order)]) <= 0).all()
    ]
    return float(
        np.mean([(is_relevant[order][:k] * discount[:k]).sum() / best for order in orders])
    )


@given(score=scores)
def test_auc_is_the_share_of_ordered_pairs(score: np.ndarray) -> None:
    assert estimate(LoggedAuc(4), score).value[0] == pytest.approx(pairs(score, RELEVANT))


@given(score=scores)
def test_user_auc_is_its_mean_over_users_with_both(score: np.ndarray) -> None:
    own = [pairs(score[TEST.user == user], RELEVANT[TEST.user == user]) for user in (0, 1, 4)]

    result = estimate(LoggedUserAuc(4), score)

    assert result.value[0] == pytest.approx(np.mean(own))
    assert result.n_clusters == 3


@pytest.mark.parametrize(("empty", "filler"), [("drop", []), ("one", [1.0]), ("zero", [0.0])])
@pytest.mark.parametrize("k", [1, 2, 10])
@given(score=scores)
def test_ndcg_is_the_mean_over_the_orders_of_ties(
    empty: str, filler: list[float], k: int, score: np.ndarray
) -> None:
    mine = {user: TEST.user == user for user in (0, 1, 4)}
    own = [
        mean_ndcg_over_orders(score[cells], RELEVANT[cells], min(k, int(cells.sum())))
        for cells in mine.values()
    ]

    result = estimate(LoggedNormalizedGain(k, 4, empty), score)  # type: ignore[arg-type]

    assert result.value[0] == pytest.approx(np.mean(own + filler))
    assert result.n_clusters == 3 + len(filler)


@given(score=scores)
def test_the_standard_error_of_user_auc_is_that_of_a_mean_over_users(score: np.ndarray) -> None:
    own = [pairs(score[TEST.user == user], RELEVANT[TEST.user == user]) for user in (0, 1, 4)]

    assert estimate(LoggedUserAuc(4), score).covariance[0, 0] == pytest.approx(
        np.var(own, ddof=1) / 3, abs=1e-12
    )


@given(score=scores)
def test_users_without_a_relevant_cell_belong_to_the_sample_of_the_auc(score: np.ndarray) -> None:
    """The variance is U / (U - 1) times the sum over users of their squared influence."""
    relevant, others = score[RELEVANT], score[~RELEVANT]

    def share(first: np.ndarray, second: np.ndarray) -> np.ndarray:
        gaps = first[:, None] - second
        return ((gaps > 0) + 0.5 * (gaps == 0)).mean(axis=1)

    auc = pairs(score, RELEVANT)
    influence = np.empty(len(TEST))
    influence[RELEVANT] = (share(relevant, others) - auc) / relevant.size
    influence[~RELEVANT] = (share(-others, -relevant) - auc) / others.size
    by_user = np.bincount(TEST.user, influence)

    result = estimate(LoggedAuc(4), score)

    assert result.n_clusters == 4
    assert result.covariance[0, 0] == pytest.approx(4 / 3 * (by_user**2).sum(), abs=1e-12)


def test_the_interval_of_a_mean_is_that_of_evaluate() -> None:
    predictions = {"a": np.linspace(1, 5, len(TEST)), "b": np.full(len(TEST), 3.0)}
    expected = unskew.evaluate(
        TEST, predictions, metrics=["mae"], estimators=["naive"], cluster="user"
    )
    found = estimate(AbsoluteError(), *predictions.values())

    risk = expected.risk("a", metric="mae", estimator="naive")
    difference = expected.compare("a", "b", metric="mae", estimator="naive")
    assert (found.of(0, level=0.95).low, found.of(0, level=0.95).high) == pytest.approx(
        (risk.ci_low, risk.ci_high)
    )
    assert found.difference(0, 1, level=0.95).p_value == pytest.approx(difference.p_value)


def test_the_standard_error_of_auc_is_about_that_of_leaving_users_out() -> None:
    rng = np.random.default_rng(0)
    user = np.repeat(np.arange(60), 8)
    test = Ratings.from_codes(
        user, np.tile(np.arange(8), 60), rng.integers(1, 6, user.size), shape=(60, 8)
    )
    score = test.rating + rng.normal(0, 2, user.size) + rng.normal(0, 1, 60)[user]
    is_relevant = test.rating >= 4

    without = [pairs(score[user != left], is_relevant[user != left]) for left in range(60)]
    jackknife = np.sqrt(59 / 60 * np.square(without - np.mean(without)).sum())

    std_error = estimate(LoggedAuc(4), score, test=test).of(0, level=0.95).std_error
    assert std_error == pytest.approx(jackknife, rel=0.05)


NAMES = {"ndcg@2": "logged_ndcg@2", "pooled_auc": "logged_auc", "auc": "logged_user_auc"}


def rank(predictions: Any, **options: Any) -> dict[str, float]:
    options = {"metrics": list(NAMES), "relevance_threshold": 4} | options
    result = evaluate_random_test(TEST, predictions, **options)
    return {risk.metric: risk.estimate for risk in result}


@pytest.mark.filterwarnings("ignore:model .* was trained on")
def test_a_model_or_its_scores_and_every_convention() -> None:
    model = MatrixFactorization(1).fit(TEST)
    score = model.predict(TEST.users[TEST.user], TEST.items[TEST.item])

    result = rank(model)

    assert result == rank(score)
    expected = estimate(LoggedNormalizedGain(2, 4), score).value[0]
    assert result["logged_ndcg@2"] == pytest.approx(expected)
    one = rank(score, empty_users="one")["logged_ndcg@2"]
    assert one == pytest.approx((3 * expected + 1) / 4)


def test_a_random_test_speaks_of_itself() -> None:
    models = {"a": np.linspace(1, 5, len(TEST)), "b": np.full(len(TEST), 3.0)}
    result = evaluate_random_test(TEST, models)

    assert result.estimators == ("test_mean",)
    naive = unskew.evaluate(TEST, models, estimators=["naive"])
    for ours, plain in zip(result, naive, strict=True):
        assert (ours.estimate, ours.ci_low) == (plain.estimate, plain.ci_low)
    assert "drawn uniformly at random from all cells" in repr(result)
    assert result.compare("a", "b").estimator == "test_mean"


def test_the_page_of_a_random_test(tmp_path: Path) -> None:
    models = {"a": np.linspace(1, 5, len(TEST)), "b": np.full(len(TEST), 3.0)}
    page = evaluate_random_test(TEST, models).to_html(tmp_path / "page.html").read_text()

    assert "If the test was drawn at random from all cells" in page
    assert "imputed" not in page


def test_evaluate_has_the_same_metrics_without_weights() -> None:
    score = np.linspace(1, 5, len(TEST))
    result = unskew.evaluate(
        TEST, score, metrics=list(NAMES.values()), estimators=["naive"], relevance_threshold=4
    )

    assert {risk.metric: risk.estimate for risk in result} == pytest.approx(rank(score))
    with pytest.raises(UsageError, match="'logged_auc' ranks the logged items among each other"):
        unskew.evaluate(TEST, score, propensities=np.ones(len(TEST)), metrics=["logged_auc"])


def test_refusals() -> None:
    score = np.zeros(len(TEST))
    with pytest.raises(UnknownNameError, match="unknown value 'none' of empty_users"):
        rank(score, empty_users="none")
    with pytest.raises(UsageError, match="needs relevant cells and others"):
        estimate(LoggedAuc(0), score)
    with pytest.raises(UsageError, match="no test user has both relevant and other items"):
        estimate(LoggedUserAuc(0), score)
    with pytest.raises(UsageError, match=r"no user of the test has a relevant item\."):
        estimate(LoggedNormalizedGain(2, 6), score)
    with pytest.raises(UsageError, match="relevance_threshold"):
        rank(score, relevance_threshold=float("nan"))
    with pytest.raises(BadPredictionError, match=r"got predictions of shape \(2,\) for a log"):
        rank([1.0, 2.0])
    with pytest.raises(UnknownNameError, match="ndcg@0"):
        rank(score, metrics=["ndcg@0"])
