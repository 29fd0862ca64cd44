"""Estimates that cannot be trusted say so: in the table, in JSON, on the page and as warnings."""

from __future__ import annotations

import json
import math
import warnings
from functools import partial
from typing import Any

import numpy as np
import polars as pl
import pytest

from unskew import Ratings, evaluate, evaluate_frame, evaluate_random_test
from unskew.errors import PropensityWarning, UnskewWarning
from unskew.evaluation.result import Evaluation
from unskew.propensity import LogisticPropensity, NaiveBayesPropensity
from unskew.report.evaluation import build_evaluation_page
from unskew.types import Matrix

U, I = 60, 20  # noqa: E741
rng = np.random.default_rng(0)
RATING = (rng.random((U, I)) < 0.4).astype(float)
SCORES = {"a": rng.random((U, I)) + 0.5 * RATING, "b": rng.random((U, I))}
P_ALL = rng.uniform(0.1, 0.6, (U, I))
SEEN = rng.random((U, I)) < P_ALL
METRICS = ("precision@5", "cg@5", "dcg@5", "dcg", "recall@5", "mse")


def log_of(seen: Matrix, rating: Matrix = RATING) -> Ratings:
    user, item = np.nonzero(seen)
    frame = pl.DataFrame({"user": user, "item": item, "rating": rating[seen]})
    n_users, n_items = seen.shape
    return Ratings.from_frame(frame, users=list(range(n_users)), items=list(range(n_items)))


def judge(seen: Matrix = SEEN, p: Matrix = P_ALL, **options: Any) -> Evaluation:
    settings = {"relevance_threshold": 1, "cluster": None} | options
    return evaluate(log_of(seen), SCORES, propensities=p[seen], **settings)


@pytest.mark.parametrize("cluster", [None, "user"])
def test_frames_give_the_same_values_slots_and_biases(cluster: Any) -> None:
    user, item = np.nonzero(SEEN)
    place = {name: 1 + (-scores).argsort(1).argsort(1) for name, scores in SCORES.items()}
    frame = pl.DataFrame(
        {
            "user": user,
            "item": item,
            "rating": RATING[SEEN],
            "propensity": P_ALL[SEEN],
            **{name: scores[SEEN] for name, scores in SCORES.items()},
            **{f"place_{name}": places[SEEN] for name, places in place.items()},
        }
    )
    options: dict[str, Any] = {"metrics": METRICS, "cluster": cluster}
    by_frame = evaluate_frame(
        frame,
        prediction=["a", "b"],
        position=["place_a", "place_b"],
        universe=(U, I),
        relevance_threshold=1,
        **options,
    )
    assert isinstance(by_frame, Evaluation)
    by_arrays = judge(**options)

    for key, expected in by_arrays.estimates.items():
        found = by_frame.estimates[key]
        np.testing.assert_allclose(found.value, expected.value, rtol=1e-9)
        np.testing.assert_allclose(found.covariance, expected.covariance, rtol=1e-9, atol=1e-15)
        assert found.bounds == expected.bounds
        assert (found.slots is None) == (expected.slots is None)
        if found.slots is not None and expected.slots is not None:
            np.testing.assert_allclose(found.slots.count, expected.slots.count)
            np.testing.assert_allclose(found.slots.effective, expected.slots.effective)
            np.testing.assert_allclose(found.slots.binomial, expected.slots.binomial)
        if expected.ratio_bias is not None:
            assert found.ratio_bias is not None
            biases = found.ratio_bias.first_order, expected.ratio_bias.first_order
            np.testing.assert_allclose(*biases)


def test_frames_find_the_bias_of_means_over_users() -> None:
    user, item = np.nonzero(SEEN)
    columns = {"user": user, "item": item, "rating": RATING[SEEN], "propensity": P_ALL[SEEN]}
    options: dict[str, Any] = {"metrics": ["mse"], "estimators": ["user_normalized"]}
    by_frame = evaluate_frame(
        pl.DataFrame(columns | {"a": SCORES["a"][SEEN]}), prediction="a", **options
    )
    found = by_frame.estimates["mse", "user_normalized"].ratio_bias
    expected = judge(**options).estimates["mse", "user_normalized"].ratio_bias

    np.testing.assert_allclose(found.first_order, expected.first_order[:1])
    np.testing.assert_allclose(found.gap, expected.gap[:1])


def test_the_slots_are_printed() -> None:
    result = judge(metrics=["precision@5"], estimators=["snips"])

    n_slots = [int((SEEN & ((-s).argsort(1).argsort(1) < 5)).sum()) for s in SCORES.values()]
    text = f"precision@5 rests on at least {min(n_slots)} observed slots (effective "
    assert text in repr(result)
    rows = json.loads(result.to_json())["slots"]
    assert [row["n"] for row in rows] == n_slots
    assert all(row["effective"] < row["n"] for row in rows)


def seldom_seen() -> tuple[Matrix, Matrix]:
    """A log in which one recommended item was seen, with a propensity of 1 %."""
    p = np.full((U, I), 0.5)
    in_top = (-SCORES["a"]).argsort(1).argsort(1) < 5
    p[in_top] = 0.01
    seen = (np.random.default_rng(1).random((U, I)) < 0.5) & ~in_top
    first = np.argwhere(in_top & (RATING == 1))[:6]
    seen[tuple(first.T)] = True
    return seen, p


def test_noise_does_not_explain_a_value_far_outside_the_range() -> None:
    seen, p = np.random.default_rng(1).random((U, I)) < 0.5, np.full((U, I), 0.02)
    result = judge_quietly(seen, p, metrics=["precision@5"], estimators=["ips"])
    (text,) = [str(each) for each in result.problems() if "outside its range" in str(each)]

    values = [result.risk(name, metric="precision@5", estimator="ips") for name in result.models]
    assert all(risk.estimate > 1 + 4 * risk.std_error for risk in values)
    assert all(f"{risk.estimate:.4g} for {risk.model!r}" in text for risk in values)
    assert "noise does not explain this. The propensities or the universe are wrong." in text
    assert text.endswith("but is not right either if the propensities are wrong.")


def test_a_value_outside_the_range_is_reported_with_a_warning_and_never_in_a_headline() -> None:
    seen, p = seldom_seen()
    with pytest.warns(PropensityWarning) as caught:
        result = judge(seen, p, metrics=["precision@5"], estimators=["naive", "ips", "snips"])

    ips = result.risk("a", metric="precision@5", estimator="ips")
    assert ips.estimate == pytest.approx(6 * 100 / (5 * U))
    assert ips.estimate > 1
    assert ips.ci_high == 1.0 or math.isnan(ips.ci_high)
    texts = [str(each.message) for each in caught]
    assert any("precision@5 by IPS is 2 for 'a', outside its range of 0 to 1" in t for t in texts)
    assert any(
        "few items that 'a' recommends were rated" in t and "6 observed slots" in t for t in texts
    )
    assert "this estimator is too noisy here, or the propensities" in repr(result)
    record = json.loads(result.to_json())
    assert ["precision@5", "ips"] in record["unusable"]
    assert ["precision@5", "snips"] not in record["unusable"]
    only_ips = judge_quietly(seen, p, metrics=["precision@5"], estimators=["ips"])
    page = build_evaluation_page(json.loads(only_ips.to_json()))
    assert page.headline[0][0].startswith("No estimate of precision@5 can be trusted")


def judge_quietly(seen: Matrix, p: Matrix, **options: Any) -> Evaluation:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return judge(seen, p, **options)


def test_an_estimate_without_an_interval_is_a_dash_and_null_and_says_why() -> None:
    levels = np.random.default_rng(2).choice(5, size=(200, 60)) + 1.0
    p = np.array([0.02, 0.03, 0.06, 0.12, 0.20])[levels.astype(int) - 1]
    seen = np.random.default_rng(3).random(p.shape) < p
    result = evaluate(
        log_of(seen, levels),
        {"ones": np.ones(p.shape), "fives": np.full(p.shape, 5.0)},
        propensities=p[seen],
        metrics=["mse"],
        estimators=["user_normalized"],
    )

    risk = result.risk("ones", metric="mse", estimator="user_normalized")
    assert math.isnan(risk.std_error)
    assert math.isnan(risk.ci_low)
    comparison = result.compare("ones", "fives", metric="mse", estimator="user_normalized")
    assert comparison.better is None
    record = json.loads(result.to_json())
    assert record["rows"][0]["ci_low"] is None
    assert record["rows"][0]["estimate"] == risk.estimate
    text = repr(result)
    assert "MSE by SNIPS by user has no interval for 'ones'" in text
    assert "Use 'snips'." in text
    assert text.splitlines()[1].split()[-4:] == ["-"] * 4
    assert any("has no interval" in warning for warning in record["warnings"])
    assert "can be trusted" in build_evaluation_page(record).headline[0][0]


def test_few_cells_that_decide_are_named_with_their_numbers() -> None:
    """Rarely seen cells have the large losses: few degrees of freedom and a large skewness."""
    draws = np.random.default_rng(4)
    p = np.where(draws.random((300, 10)) < 0.1, 0.01, 0.5)
    rating = np.where(p < 0.1, 5.0, 1.0) + draws.random(p.shape)
    seen = draws.random(p.shape) < p
    seen[0, 0] = True
    with pytest.warns(PropensityWarning, match="the cells that matter may not have been seen"):
        result = evaluate(
            log_of(seen, rating),
            {"ones": np.ones(p.shape)},
            propensities=p[seen],
            metrics=["mse"],
            estimators=["snips"],
            cluster=None,
        )

    assert result.risk("ones", metric="mse", estimator="snips").degrees < 10
    assert "degrees of freedom, skewness" in repr(result)


def test_rows_have_their_degrees_of_freedom_after_the_other_columns() -> None:
    result = judge(metrics=["mse"], cluster="user")

    names = "model metric estimator estimate std_error ci_low ci_high".split()
    assert list(result.to_columns())[:7] == names
    assert list(result.to_columns())[7:] == ["degrees"]
    assert 1 < next(iter(result)).degrees <= U - 1


def test_the_sum_of_weights_is_not_tested_where_it_is_right_by_construction() -> None:
    log = log_of(SEEN)
    model = NaiveBayesPropensity().fit(log, mcar={0.0: 0.6, 1.0: 0.4})
    result = evaluate(log, SCORES, propensities=model, metrics=["mse"], universe=(U, I))

    assert result.weight_summary is not None
    assert result.weight_summary.is_balanced
    assert result.weight_summary.mass_z is None


def test_losses_have_no_negative_limits() -> None:
    few = np.zeros((U, I), bool)
    few[0, :3] = True
    with pytest.warns(PropensityWarning, match="add up"):
        result = judge(few, np.full((U, I), 0.3), metrics=["mse"], estimators=["ips"])

    assert [risk.ci_low for risk in result] == [0.0, 0.0]


def test_lists_of_all_items_and_lists_without_a_relevant_item_are_named() -> None:
    with pytest.warns(UnskewWarning, match="precision@21 is about the first 21 items, but .* 20"):
        long = judge(metrics=["precision@21", "dcg@21", "precision@20"])
    assert str(long).count("every item is recommended. Use a smaller k.") == 1
    with pytest.warns(
        UnskewWarning, match=r"precision@5 is 0 for every model.*threshold is within"
    ):
        empty = judge(metrics=["precision@5"], relevance_threshold=9)
    assert any("is 0 for every model" in text for text in empty.to_record()["warnings"])


def test_groups_keep_the_problems_and_conditions_of_their_evaluations() -> None:
    user, item = np.nonzero(SEEN)
    frame = pl.DataFrame(
        {
            "user": user,
            "item": item,
            "rating": RATING[SEEN],
            "propensity": P_ALL[SEEN],
            "position": (1 + (-SCORES["a"]).argsort(1).argsort(1))[SEEN],
            "half": np.where(item < 2, "few", "many"),
        }
    )
    options: dict[str, Any] = {"metrics": ["precision@30"], "universe": (U, I)}
    options["position"] = "position"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnskewWarning)
        groups = evaluate_frame(frame, by="half", estimators=["snips"], **options)
        whole = evaluate_frame(frame, estimators=["snips"], **options)
    assert str(whole).splitlines()[-1] == str(groups).splitlines()[-1]
    assert "these propensities are taken as known" in str(groups)
    assert "half is 'few': precision@30 is about the first 30 items" in str(groups)
    assert "half is 'many': precision@30 rests on" in str(groups)
    assert f"{len(user):,} observed cells in 2 groups" in groups._repr_html_()


def test_a_penalty_and_propensities_taken_as_known_are_said() -> None:
    log = log_of(SEEN)
    guesses = {"a": np.full(len(log), 0.3), "b": np.full(len(log), 0.6)}

    def run(ridge: float, *, known: bool = False) -> Evaluation:
        model = LogisticPropensity(ridge=ridge, user_offsets=True).fit(log)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", PropensityWarning)
            return evaluate(log, guesses, propensities=model, propensities_known=known)

    plain, penalised, known = run(0.0), run(10.0), run(10.0, known=True)
    assert "penalty" not in str(plain)
    assert "the bias of its penalty, up to" in " ".join(penalised.describe().split())
    assert "the penalty of the propensity model changes MAE by IPS of 'b' by" in str(penalised)
    assert "Fit the propensities with a smaller ridge" in str(penalised)
    bias = penalised.estimates["mse", "ips"].bias
    assert bias is not None
    difference = known.estimates["mse", "ips"].value - penalised.estimates["mse", "ips"].value
    assert difference == pytest.approx(bias)
    assert "leave out the error of this, because the caller takes them as known" in " ".join(
        known.describe().split()
    )
    assert "never saw a rating" in str(known)


def test_a_comparison_without_a_better_model_says_so() -> None:
    compared = judge(metrics=["mse"]).compare("a", "a", metric="mse", estimator="snips")
    assert compared.better is None
    assert repr(compared).endswith("not told apart")


def test_a_log_of_clicks_alone_says_that_precision_is_always_1() -> None:
    ones, options = np.ones((U, I)), {"metrics": ["precision@5"], "estimators": ["naive", "snips"]}
    with pytest.warns(UnskewWarning, match="precision@5 is 1 for every model: .* only clicks it"):
        evaluate(log_of(SEEN, ones), SCORES, propensities=P_ALL[SEEN], **options)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UnskewWarning)
        judge(**options)


def test_estimators_with_the_same_numbers_share_a_warning() -> None:
    result = judge_quietly(SEEN, np.full((U, I), 0.05), metrics=["ndcg@5"])
    texts = [str(each) for each in result.problems() if "outside its range" in str(each)]

    assert len(texts) == 1
    assert texts[0].startswith("NDCG@5 by IPS and SNIPS is ")


def test_a_plain_average_is_not_told_to_clip_its_weights() -> None:
    rating = np.zeros((200, 5))
    rating[0] = 1000.0
    log = Ratings.from_dense(rating, missing=np.nan)
    for call in (partial(evaluate, estimators=["naive"]), evaluate_random_test):
        with pytest.warns(PropensityWarning, match="few cells decide MSE by") as caught:
            call(log, np.zeros((200, 5)), metrics=["mse"])
        assert str(caught[0].message).endswith("may be too narrow. Collect more ratings.")
