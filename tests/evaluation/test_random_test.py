"""Judgements on uniformly random tests, against brute force over pairs and orders."""

from __future__ import annotations

import json
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

import unskew
from unskew.data.ratings import Ratings
from unskew.errors import BadPredictionError, UnknownNameError, UsageError
from unskew.evaluation.random_test import (
    Judgement,
    auc,
    estimate_of,
    mean_of,
    ndcg,
    ranking_on_test,
    relevant_cells,
    user_auc,
)
from unskew.models.matrix_factorization import MatrixFactorization

USER = [0, 0, 0, 0, 1, 1, 1, 2, 2, 4, 4, 4]
ITEM = [0, 1, 2, 3, 0, 1, 2, 3, 4, 0, 1, 4]
TEST = Ratings.from_codes(USER, ITEM, [5, 1, 4, 2, 1, 5, 5, 2, 1, 4, 3, 1], shape=(5, 5))
RELEVANT = relevant_cells(TEST, 4)
scores = arrays(np.float64, len(TEST), elements=st.integers(-2, 2).map(float))


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
    assert auc(TEST, score, RELEVANT).value == pytest.approx(pairs(score, RELEVANT))


@given(score=scores)
def test_user_auc_is_its_mean_over_users_with_both(score: np.ndarray) -> None:
    own = [pairs(score[TEST.user == user], RELEVANT[TEST.user == user]) for user in (0, 1, 4)]

    found = user_auc(TEST, score, RELEVANT)

    assert found.value == pytest.approx(np.mean(own))
    assert found.n_users == 3


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

    found = ndcg(TEST, score, RELEVANT, k=k, empty_users=empty)  # type: ignore[arg-type]

    assert found.value == pytest.approx(np.mean(own + filler))
    assert found.n_users == 3 + len(filler)


@pytest.mark.parametrize("judge", [auc, user_auc, lambda *given: ndcg(*given, k=2)])
@given(score=scores)
def test_influences_add_up_to_nothing(judge: object, score: np.ndarray) -> None:
    found: Judgement = judge(TEST, score, RELEVANT)  # type: ignore[operator]

    assert found.influence.sum() == pytest.approx(0, abs=1e-12)
    assert found.influence[3] == 0


def test_the_interval_of_a_mean_is_that_of_evaluate() -> None:
    predictions = {"a": np.linspace(1, 5, len(TEST)), "b": np.full(len(TEST), 3.0)}
    expected = unskew.evaluate(
        TEST, predictions, metrics=["mae"], estimators=["naive"], cluster="user"
    )
    found = estimate_of(
        [mean_of(TEST, np.abs(TEST.rating - values)) for values in predictions.values()]
    )

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
    is_relevant = relevant_cells(test, 4)

    without = [pairs(score[user != left], is_relevant[user != left]) for left in range(60)]
    jackknife = np.sqrt(59 / 60 * np.square(without - np.mean(without)).sum())

    assert estimate_of([auc(test, score, is_relevant)]).of(
        0, level=0.95
    ).std_error == pytest.approx(jackknife, rel=0.05)


def test_a_model_or_its_scores_and_every_convention() -> None:
    model = MatrixFactorization(1).fit(TEST)
    score = model.predict(TEST.users[TEST.user], TEST.items[TEST.item])

    found = ranking_on_test(model, TEST, 4, k=2)

    assert found == ranking_on_test(score, TEST, 4, k=2)
    assert (found.n_users, found.n_empty) == (3, 1)
    assert found.ndcg == pytest.approx(ndcg(TEST, score, RELEVANT, k=2).value)
    assert ranking_on_test(score, TEST, 4, k=2, empty_users="one").ndcg == pytest.approx(
        (3 * found.ndcg + 1) / 4
    )
    assert json.loads(found.to_json())["empty_users"] == "drop"
    assert "user_auc" in repr(found)
    assert "<table>" in found._repr_html_()
    assert found.to_frame("pandas").shape == (1, 8)


def test_refusals() -> None:
    score = np.zeros(len(TEST))
    with pytest.raises(UnknownNameError, match="unknown empty_users 'none'"):
        ranking_on_test(score, TEST, 4, empty_users="none")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="needs relevant cells and others"):
        auc(TEST, score, np.ones(len(TEST), bool))
    with pytest.raises(UsageError, match="no user of the test has a relevant item"):
        ndcg(TEST, score, np.zeros(len(TEST), bool), k=2)
    with pytest.raises(UsageError, match="threshold must be the least rating"):
        ranking_on_test(score, TEST, float("nan"))
    with pytest.raises(
        BadPredictionError, match=r"needs a finite prediction for each; got shape \(2,\)"
    ):
        ranking_on_test([1.0, 2.0], TEST, 4)
    with pytest.raises(UsageError, match="k must be a whole number"):
        ranking_on_test(score, TEST, 4, k=0)
    with pytest.raises(UsageError, match="at least 2 of them that count; the test has 1"):
        estimate_of([Judgement(0.0, np.zeros(1), 1)])
