from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from unskew import evaluate, sensitivity, simulate
from unskew.evaluation.weight_changes import (
    MAX_DISTINCT_WEIGHTS,
    MAX_RATING_BINS,
    WEIGHT_BINS,
    share_ratings,
    share_weights,
)

WORLD = simulate(40, 50, density=0.2, alpha=0.5, random_state=1)
MODELS = {"a": WORLD.truth + 1.0, "b": WORLD.truth + np.random.default_rng(0).normal(size=(40, 50))}


def judged(**changed: Any) -> Any:
    return evaluate(
        WORLD.log,
        MODELS,
        **({"propensities": WORLD.propensities, "metrics": ["mae", "mse"]} | changed),
    )


def record(**changed: Any) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(judged(**changed).to_json())
    return found


def test_shares_of_ratings_by_hand() -> None:
    found = share_ratings(np.array([1.0, 5.0, 5.0, 5.0]), np.array([6.0, 1.0, 1.0, 2.0]))

    assert found == {
        "low": [1.0, 5.0],
        "high": [1.0, 5.0],
        "seen": [0.25, 0.75],
        "corrected": [0.6, 0.4],
    }


@pytest.mark.parametrize("n_values", [3, 41])
def test_shares_of_ratings_are_what_a_loop_counts(n_values: int) -> None:
    rng = np.random.default_rng(0)
    rating, weight = rng.integers(0, n_values, 2000) / 4, rng.gamma(2, size=2000)
    found = share_ratings(rating, weight)

    assert len(found["low"]) == min(n_values, MAX_RATING_BINS)
    for place, (low, high) in enumerate(zip(found["low"], found["high"], strict=True)):
        is_last = place == len(found["low"]) - 1
        inside = [
            low <= each < high or (each == high and (low == high or is_last))
            for each in rating.tolist()
        ]
        assert found["seen"][place] == pytest.approx(np.mean(inside))
        assert found["corrected"][place] == pytest.approx(weight[inside].sum() / weight.sum())


def test_few_weights_have_a_bin_each_and_many_share_bins() -> None:
    few = share_weights(np.array([2.0, 2.0, 8.0]))
    assert few.pop("held") == pytest.approx([1 / 3, 2 / 3])
    assert few == {
        "low": [2.0, 8.0],
        "high": [2.0, 8.0],
        "rows": [2 / 3, 1 / 3],
        "median": 2.0,
        "largest": 8.0,
    }

    weight = np.random.default_rng(0).lognormal(size=1000)
    many = share_weights(weight)
    assert len(few["low"]) <= MAX_DISTINCT_WEIGHTS < len(many["low"]) == WEIGHT_BINS
    assert sum(many["rows"]) == pytest.approx(1)
    assert sum(many["held"]) == pytest.approx(1)
    inside = (weight >= many["low"][5]) & (weight < many["high"][5])
    assert many["rows"][5] == pytest.approx(inside.mean())


def test_one_weight_for_all_and_weights_of_zero_are_no_error() -> None:
    assert share_weights(np.full(5, 3.0))["rows"] == [1.0]
    assert sum(share_weights(np.array([0.0, 1.0, 2.0]))["rows"]) == pytest.approx(1)


def test_the_log_weighted_looks_like_the_truth() -> None:
    shares = record()["ratings"]
    truth = [float((WORLD.truth == rating).mean()) for rating in shares["low"]]

    assert abs(shares["seen"][0] - truth[0]) > 0.1
    np.testing.assert_allclose(shares["corrected"], truth, atol=0.08)


def test_clipping_is_what_sensitivity_says_of_the_same_limits() -> None:
    found, result = record()["clipping"], judged()
    limits = sorted({row["amount"] for row in found})
    expected = [
        shift
        for shift in sensitivity(result, max_weight=limits, odds_error=[]).shifts
        if (shift.metric, shift.estimator) == ("mae", "snips")
    ]

    assert len(found) == len(expected) == len(limits) * len(MODELS)
    by_place = {(row["model"], row["amount"]): row for row in found}
    for shift in expected:
        row = by_place[shift.model, shift.amount]
        assert [row["low"], row["ci_low"], row["ci_high"]] == pytest.approx(
            [shift.low, shift.ci_low, shift.ci_high]
        )
        assert row["share_clipped"] == shift.share_clipped


def test_what_does_not_apply_is_null() -> None:
    naive = record(estimators=["naive"], propensities=None)

    assert naive["ratings"]["corrected"] is None
    assert (naive["weight_shares"], naive["clipping"]) == (None, None)
    assert record(bootstrap=5)["clipping"] == []


def test_differences_set_the_best_estimate_against_the_others() -> None:
    result = judged(metrics=["mae", "accuracy"])
    found = list(result.differences())
    best = {"mae": min, "accuracy": max}

    assert len(found) == 2 * 3 * (len(MODELS) - 1)
    for each in found:
        value = {
            model: result.risk(model, metric=each.metric, estimator=each.estimator).estimate
            for model in MODELS
        }
        assert each.first == best[each.metric](value, key=value.__getitem__)
        assert each.difference == pytest.approx(value[each.first] - value[each.second])
