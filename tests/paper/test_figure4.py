from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from unskew import NaiveBayesPropensity, Ratings, evaluate, simulate
from unskew.errors import UsageError
from unskew.metrics.metric import find_metric
from unskew.paper import draws as draws_module
from unskew.paper import rmse_figures as module
from unskew.paper.completion import GroundTruth, find_ground_truth
from unskew.paper.draws import (
    DrawnLog,
    all_deltas,
    draw_estimates,
    prediction_matrices,
    sample_ratings,
    spawn_generators,
)
from unskew.paper.reproduction import Reproduction
from unskew.paper.rmse_figures import SAMPLE_SIZES, NaiveBayesEstimates, reproduce_figure4
from unskew.types import Matrix, Vector

TRIALS = 60
ESTIMATORS = ("ips-nb", "snips-nb", "ips-known", "snips-known", "naive")
OF_METHODS = {100: 0.216, 1_000: 0.075, 10_000: 0.033}
"""RMSE for MSE, mean over the five predictions, that follows from the paper's marginals."""
Rows = Mapping[tuple[str, int, str], Mapping[str, Any]]


@pytest.fixture(scope="module")
def ground_truth() -> GroundTruth:
    return GroundTruth(simulate(240, 400, random_state=0).truth, "Truth: small.")


@pytest.fixture(scope="module", autouse=True)
def use_the_small_world(ground_truth: GroundTruth) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(draws_module, "find_ground_truth", lambda data, *, random_state: ground_truth)
        yield


@pytest.fixture(scope="module")
def result() -> Reproduction:
    return reproduce_figure4(trials=TRIALS, random_state=0)


@pytest.fixture(scope="module")
def rows(result: Reproduction) -> Rows:
    return by_key(result)


def by_key(result: Reproduction) -> Rows:
    return {(row["metric"], row["sample_size"], row["estimator"]): row for row in result.rows}


def predicted(truth: np.ndarray, deltas: Matrix, propensity: np.ndarray, size: int) -> float:
    """RMSE of post-stratification.

    It has three parts: spread within levels, spread of the sample's shares, and smoothing bias.
    """
    rmse = []
    for delta in deltas:
        by_level = [
            (delta[truth.ravel() == level], propensity.ravel()[truth.ravel() == level][0])
            for level in range(1, 6)
        ]
        share = np.array([cells.size / truth.size for cells, _ in by_level])
        mean = np.array([cells.mean() for cells, _ in by_level])
        within = (
            sum(cells.size * cells.var() * (1 - p) / p for cells, p in by_level) / truth.size**2
        )
        between = size / (size + 5) ** 2 * (share @ mean**2 - (share @ mean) ** 2)
        bias = (size * share + 1) / (size + 5) @ mean - share @ mean
        rmse.append(np.sqrt(within + between + bias**2))
    return float(np.mean(rmse))


# Its shape


def test_rows_have_these_keys_in_the_order_of_metric_and_size(result: Reproduction) -> None:
    rows = json.loads(result.to_json())["rows"]

    assert [(row["metric"], row["sample_size"], row["estimator"]) for row in rows] == [
        (metric, size, name)
        for metric in ("mse", "dcg@50")
        for size in SAMPLE_SIZES
        for name in ESTIMATORS
    ]
    for row in rows:
        assert list(row) == [
            "metric",
            "sample_size",
            "estimator",
            "ours",
            "ci_low",
            "ci_high",
            "paper",
        ]
        assert 0 < row["ci_low"] <= row["ours"] <= row["ci_high"]
        assert row["paper"] is None


def test_the_table_and_the_words(result: Reproduction, rows: Rows) -> None:
    assert list(result.table) == ["RMSE of", "sample", *ESTIMATORS]
    assert result.table["sample"][:3] == ["100", "300", "1,000"]
    assert result.table["ips-nb"][0] == f"{rows['mse', 100, 'ips-nb']['ours']:.3g}"
    assert result.summary.startswith(
        "For MSE, IPS with naive-Bayes propensities is off by "
        f"{rows['mse', 100, 'ips-nb']['ours']:.3f} with 100 random ratings"
    )
    assert "no worse than naive at 14 of 14 points" in result.summary
    assert "The paper prints neither numbers nor sample sizes" in result.summary
    assert result.summary.endswith("Truth: small.")
    assert (result.name, result.trials, result.unit) == ("figure4", TRIALS, "draw")


def test_what_knows_the_propensities_does_not_depend_on_the_sample(rows: Rows) -> None:
    for metric in ("mse", "dcg@50"):
        for name in ("ips-known", "snips-known", "naive"):
            assert len({rows[metric, size, name]["ours"] for size in SAMPLE_SIZES}) == 1


def test_references_are_the_estimates_with_known_propensities_from_the_same_logs(
    ground_truth: GroundTruth, rows: Rows
) -> None:
    matrix_rng, draw_rng = spawn_generators(0)
    deltas = all_deltas(
        ground_truth.ratings,
        prediction_matrices(ground_truth.ratings, matrix_rng),
        [find_metric("mse"), find_metric("dcg@50")],
    )
    draws = draw_estimates(
        deltas,
        ground_truth.observation(0.25),
        trials=TRIALS,
        random_state=int(draw_rng.integers(2**31)),
    )

    for name, draw_name in (("ips-known", "ips"), ("snips-known", "snips"), ("naive", "naive")):
        rmse = np.sqrt(((draws.estimates[draw_name] - draws.true) ** 2).mean(axis=0))
        assert rows["mse", 100, name]["ours"] == pytest.approx(rmse[::2].mean())
        assert rows["dcg@50", 100, name]["ours"] == pytest.approx(rmse[1::2].mean())


# What it shows


@pytest.mark.parametrize("size", SAMPLE_SIZES)
@pytest.mark.parametrize("metric", ["mse", "dcg@50"])
def test_at_no_size_are_estimated_propensities_worse_than_none(
    rows: Rows, metric: str, size: int
) -> None:
    for name in ("ips-nb", "snips-nb"):
        assert rows[metric, size, name]["ci_high"] < rows[metric, size, "naive"]["ci_low"]


def test_with_a_large_sample_they_are_better_than_known_ones_for_mse(rows: Rows) -> None:
    assert rows["mse", 100_000, "ips-nb"]["ci_high"] < rows["mse", 100_000, "ips-known"]["ci_low"]
    assert rows["mse", 100, "ips-nb"]["ours"] > rows["mse", 100_000, "ips-nb"]["ours"]


@pytest.mark.parametrize("size", SAMPLE_SIZES)
def test_the_error_is_that_of_the_formula(ground_truth: GroundTruth, rows: Rows, size: int) -> None:
    """An RMSE of 60 draws has an error of 9 %: 36 % is four of them."""
    deltas = all_deltas(
        ground_truth.ratings,
        prediction_matrices(ground_truth.ratings, spawn_generators(0)[0]),
        [find_metric("mse")],
    )
    propensity = ground_truth.observation(0.25).propensities(slice(0, len(ground_truth.ratings)))

    assert rows["mse", size, "ips-nb"]["ours"] == pytest.approx(
        predicted(ground_truth.ratings, deltas, propensity, size), rel=0.36
    )


def test_the_formula_with_the_papers_marginals_and_size() -> None:
    truth = simulate(random_state=0).truth
    deltas = all_deltas(
        truth, prediction_matrices(truth, np.random.default_rng(0)), [find_metric("mse")]
    )
    propensity = GroundTruth(truth, "").observation(0.25).propensities(slice(0, len(truth)))

    for size, rmse in OF_METHODS.items():
        assert predicted(truth, deltas, propensity, size) == pytest.approx(rmse, abs=6e-4)


# One trial


def draw_from(truth: np.ndarray, cells: list[int], deltas: Matrix, seed: int = 0) -> DrawnLog:
    picked = np.array(cells)
    return DrawnLog(
        picked,
        deltas[:, picked],
        np.full(picked.size, 0.5),
        truth.size,
        np.random.default_rng(seed),
    )


def test_a_trial_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sample 1, 1, 5: shares (2 + 1) / 5 and (1 + 1) / 5.

    The log has a rating 1 with delta 4, and ratings 5 with deltas 1 and 3.
    """
    truth = np.array([[1, 1, 1, 5], [5, 5, 1, 1]], dtype=np.float32)
    deltas = np.array([[4.0, 9, 9, 1, 3, 9, 9, 9]])
    monkeypatch.setattr(
        module, "sample_ratings", lambda truth, size, rng: np.array([1.0, 1.0, 5.0, 5.0])[:size]
    )
    estimates = NaiveBayesEstimates(truth, [3, 4])(draw_from(truth, [0, 3, 4], deltas))

    assert estimates["ips-nb 3"] == estimates["snips-nb 3"] == pytest.approx(0.6 * 4 + 0.4 * 2)
    assert estimates["ips-nb 4"] == estimates["snips-nb 4"] == pytest.approx(0.5 * 4 + 0.5 * 2)
    assert estimates["ips"] == pytest.approx((4 + 1 + 3) / 0.5 / 8)
    assert estimates["naive"] == estimates["snips"] == pytest.approx(8 / 3)


@settings(max_examples=30)
@pytest.mark.filterwarnings("ignore::unskew.errors.PropensityWarning")
@given(seed=st.integers(0, 10**6), size=st.integers(30, 500))
def test_naive_bayes_is_post_stratification_by_the_sample(seed: int, size: int) -> None:
    truth = simulate(40, 50, density=0.05, random_state=seed % 7).truth
    rng = np.random.default_rng(seed)
    cells = np.sort(rng.choice(truth.size, 300, replace=False))
    deltas = rng.random((2, truth.size))
    estimates = NaiveBayesEstimates(truth, [size])(draw_from(truth, cells.tolist(), deltas, seed))
    sample = sample_ratings(truth, size, np.random.default_rng(seed))
    level = truth.ravel()[cells]
    levels = np.union1d(level, sample)
    share = np.array([(sample == each).sum() + 1 for each in levels]) / (size + levels.size)
    expected = sum(
        part * deltas[:, cells[level == each]].mean(axis=1)
        for part, each in zip(share, levels, strict=True)
    )

    assert estimates[f"ips-nb {size}"] == pytest.approx(expected)
    assert estimates[f"snips-nb {size}"] == pytest.approx(expected)


def test_a_trial_is_what_the_library_says_of_its_log(ground_truth: GroundTruth) -> None:
    """The log of the first trial, evaluated as a user would."""
    deltas = all_deltas(
        ground_truth.ratings,
        {"constant": np.full_like(ground_truth.ratings, 3)},
        [find_metric("mse")],
    )
    observation = ground_truth.observation(0.25)
    draws = draw_estimates(
        deltas,
        observation,
        trials=1,
        random_state=5,
        estimate=NaiveBayesEstimates(ground_truth.ratings, [50, 200]),
    )
    rng = np.random.default_rng(5).spawn(1)[0]
    propensity = observation.propensities(slice(0, len(ground_truth.ratings)))
    log = Ratings.from_dense(
        np.where(rng.random(propensity.shape) < propensity, ground_truth.ratings, 0)
    )
    model = NaiveBayesPropensity(smoothing=1.0).fit(
        log, mcar=sample_ratings(ground_truth.ratings, 200, rng)
    )
    evaluation = evaluate(
        log,
        np.full(len(log), 3.0),
        propensities=model,
        metrics=["mse"],
        estimators=["ips", "snips"],
    )

    assert draws.estimates["ips-nb 200"][0, 0] == pytest.approx(
        evaluation.risk("model", metric="mse", estimator="ips").estimate
    )
    assert draws.estimates["snips-nb 200"][0, 0] == pytest.approx(
        evaluation.risk("model", metric="mse", estimator="snips").estimate
    )


def test_sampled_ratings_are_those_of_all_cells(ground_truth: GroundTruth) -> None:
    sample: Vector = sample_ratings(ground_truth.ratings, 200_000, np.random.default_rng(0))
    levels, count = np.unique(ground_truth.ratings, return_counts=True)

    assert sample.dtype == np.float64
    for level, share in zip(levels, count / ground_truth.ratings.size, strict=True):
        assert (sample == level).mean() == pytest.approx(
            share, abs=5 * np.sqrt(share * (1 - share) / sample.size)
        )


def test_runs_are_seeded_and_sizes_come_in_order() -> None:
    one, again, other = (
        reproduce_figure4(trials=3, random_state=seed, sample_sizes=sizes)
        for seed, sizes in ((1, (30, 9)), (1, (9, 30)), (2, (9,)))
    )

    assert one.rows == again.rows
    assert by_key(one)["mse", 9, "naive"] != by_key(other)["mse", 9, "naive"]
    assert one.table["sample"] == ["9", "30"] * 2


def test_capped_propensities_are_counted_without_a_warning() -> None:
    """A sample of one rating gives four levels a share of 1 / 6, and the fifth one 2 / 6.

    No propensity exceeds 1 then.
    """
    assert "0 of 4 fits" in reproduce_figure4(trials=2, sample_sizes=(1, 2)).summary
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "sample_ratings", lambda truth, size, rng: np.ones(size))
        assert "2 of 4 fits" in reproduce_figure4(trials=2, sample_sizes=(1, 10_000)).summary


# What it refuses


def test_one_draw_has_no_band() -> None:
    with pytest.raises(
        UsageError, match=r"bands over draws, which need at least 2 trials; got 1\."
    ):
        reproduce_figure4(trials=1)


def test_a_sample_of_nothing_is_refused() -> None:
    with pytest.raises(UsageError, match=r"sample_sizes must be a whole number, at least 1; got 0"):
        reproduce_figure4(sample_sizes=(100, 0))


@pytest.mark.slow
@pytest.mark.skipif(not os.environ.get("UNSKEW_DATA"), reason="$UNSKEW_DATA is not set")
def test_on_movielens_the_error_is_that_of_the_formula(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(draws_module, "find_ground_truth", find_ground_truth)
    rows = by_key(reproduce_figure4(data=os.environ["UNSKEW_DATA"]))

    for size, rmse in OF_METHODS.items():
        assert rows["mse", size, "ips-nb"]["ours"] == pytest.approx(rmse, rel=0.4)
    for metric in ("mse", "dcg@50"):
        for size in SAMPLE_SIZES:
            assert rows[metric, size, "ips-nb"]["ours"] < rows[metric, size, "naive"]["ours"]
            assert rows[metric, size, "snips-nb"]["ours"] < rows[metric, size, "naive"]["ours"]
    for size in (10_000, 30_000, 100_000):
        assert rows["mse", size, "ips-nb"]["ours"] < rows["mse", size, "ips-known"]["ours"]
