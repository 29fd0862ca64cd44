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
from unskew.metrics.names import find_metric
from unskew.paper import figure4 as module
from unskew.paper.draws import Drawn, all_deltas, draw_estimates, random_ratings, two_streams
from unskew.paper.figure4 import SAMPLE_SIZES, WithNaiveBayes, figure4
from unskew.paper.matrices import prediction_matrices
from unskew.paper.reproduction import Reproduction
from unskew.paper.world import World, find_world
from unskew.types import Matrix, Vector

TRIALS = 60
ESTIMATORS = ("ips-nb", "snips-nb", "ips-known", "snips-known", "naive")
OF_METHODS = {100: 0.216, 1_000: 0.075, 10_000: 0.033}
"""RMSE for MSE, mean over the five predictions, that follows from the paper's marginals."""
Rows = Mapping[tuple[str, int, str], Mapping[str, Any]]


@pytest.fixture(scope="module")
def world() -> World:
    return World(simulate(240, 400, random_state=0).truth, "Truth: small.")


@pytest.fixture(scope="module", autouse=True)
def in_the_small_world(world: World) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "find_world", lambda data, *, seed: world)
        yield


@pytest.fixture(scope="module")
def result() -> Reproduction:
    return figure4(trials=TRIALS, seed=0)


@pytest.fixture(scope="module")
def rows(result: Reproduction) -> Rows:
    return by_key(result)


def by_key(result: Reproduction) -> Rows:
    return {(row["metric"], row["sample_size"], row["estimator"]): row for row in result.rows}


def predicted(truth: np.ndarray, deltas: Matrix, chance: np.ndarray, size: int) -> float:
    """RMSE^2 of post-stratification: spread within levels, spread of the sample's shares, and the bias of their smoothing."""
    rmse = []
    for delta in deltas:
        own = [
            (delta[truth.ravel() == level], chance.ravel()[truth.ravel() == level][0])
            for level in range(1, 6)
        ]
        share = np.array([cells.size / truth.size for cells, _ in own])
        mean = np.array([cells.mean() for cells, _ in own])
        within = sum(cells.size * cells.var() * (1 - p) / p for cells, p in own) / truth.size**2
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
        f"For MSE, IPS with naive-Bayes propensities is off by {rows['mse', 100, 'ips-nb']['ours']:.3f} with 100 random ratings"
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
    world: World, rows: Rows
) -> None:
    matrix_rng, draw_rng = two_streams(0)
    deltas = all_deltas(
        world.truth,
        prediction_matrices(world.truth, matrix_rng),
        [find_metric("mse"), find_metric("dcg@50")],
    )
    draws = draw_estimates(
        deltas, world.observation(0.25), trials=TRIALS, seed=int(draw_rng.integers(2**31))
    )

    for name, known in (("ips-known", "ips"), ("snips-known", "snips"), ("naive", "naive")):
        rmse = np.sqrt(((draws.estimates[known] - draws.true) ** 2).mean(axis=0))
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
def test_the_error_is_that_of_the_formula(world: World, rows: Rows, size: int) -> None:
    """An RMSE of 60 draws has an error of 9 %: 36 % is four of them."""
    deltas = all_deltas(
        world.truth, prediction_matrices(world.truth, two_streams(0)[0]), [find_metric("mse")]
    )
    chance = world.observation(0.25).propensities(slice(0, len(world.truth)))

    assert rows["mse", size, "ips-nb"]["ours"] == pytest.approx(
        predicted(world.truth, deltas, chance, size), rel=0.36
    )


def test_the_formula_with_the_papers_marginals_and_size() -> None:
    truth = simulate(random_state=0).truth
    deltas = all_deltas(
        truth, prediction_matrices(truth, np.random.default_rng(0)), [find_metric("mse")]
    )
    chance = World(truth, "").observation(0.25).propensities(slice(0, len(truth)))

    for size, rmse in OF_METHODS.items():
        assert predicted(truth, deltas, chance, size) == pytest.approx(rmse, abs=6e-4)


# One trial


def drawn_from(truth: np.ndarray, cells: list[int], deltas: Matrix, seed: int = 0) -> Drawn:
    picked = np.array(cells)
    return Drawn(
        picked,
        deltas[:, picked],
        np.full(picked.size, 0.5),
        truth.size,
        np.random.default_rng(seed),
    )


def test_a_trial_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sample 1, 1, 5: shares (2 + 1) / 5 and (1 + 1) / 5. The log has a rating 1 of delta 4, and ratings 5 of deltas 1 and 3."""
    truth = np.array([[1, 1, 1, 5], [5, 5, 1, 1]], dtype=np.float32)
    deltas = np.array([[4.0, 9, 9, 1, 3, 9, 9, 9]])
    monkeypatch.setattr(
        module, "random_ratings", lambda truth, size, rng: np.array([1.0, 1.0, 5.0, 5.0])[:size]
    )
    found = WithNaiveBayes(truth, [3, 4])(drawn_from(truth, [0, 3, 4], deltas))

    assert found["ips-nb 3"] == found["snips-nb 3"] == pytest.approx(0.6 * 4 + 0.4 * 2)
    assert found["ips-nb 4"] == found["snips-nb 4"] == pytest.approx(0.5 * 4 + 0.5 * 2)
    assert found["ips"] == pytest.approx((4 + 1 + 3) / 0.5 / 8)
    assert found["naive"] == found["snips"] == pytest.approx(8 / 3)


@settings(max_examples=30)
@given(seed=st.integers(0, 10**6), size=st.integers(30, 500))
def test_naive_bayes_is_post_stratification_by_the_sample(seed: int, size: int) -> None:
    truth = simulate(40, 50, density=0.05, random_state=seed % 7).truth
    rng = np.random.default_rng(seed)
    cells = np.sort(rng.choice(truth.size, 300, replace=False))
    deltas = rng.random((2, truth.size))
    found = WithNaiveBayes(truth, [size])(drawn_from(truth, cells.tolist(), deltas, seed))
    sample = random_ratings(truth, size, np.random.default_rng(seed))
    level = truth.ravel()[cells]
    levels = np.union1d(level, sample)
    share = np.array([(sample == each).sum() + 1 for each in levels]) / (size + levels.size)
    expected = sum(
        part * deltas[:, cells[level == each]].mean(axis=1)
        for part, each in zip(share, levels, strict=True)
    )

    assert found[f"ips-nb {size}"] == pytest.approx(expected)
    assert found[f"snips-nb {size}"] == pytest.approx(expected)


def test_a_trial_is_what_the_library_says_of_its_log(world: World) -> None:
    """The log of the first trial, evaluated as a user would."""
    deltas = all_deltas(
        world.truth, {"constant": np.full_like(world.truth, 3)}, [find_metric("mse")]
    )
    observation = world.observation(0.25)
    draws = draw_estimates(
        deltas, observation, trials=1, seed=5, estimate=WithNaiveBayes(world.truth, [50, 200])
    )
    rng = np.random.default_rng(5).spawn(1)[0]
    chance = observation.propensities(slice(0, len(world.truth)))
    log = Ratings.from_dense(np.where(rng.random(chance.shape) < chance, world.truth, 0))
    model = NaiveBayesPropensity().fit(log, mcar=random_ratings(world.truth, 200, rng))
    found = evaluate(
        log,
        np.full(len(log), 3.0),
        propensities=model,
        metrics=["mse"],
        estimators=["ips", "snips"],
    )

    assert draws.estimates["ips-nb 200"][0, 0] == pytest.approx(
        found.risk("model", metric="mse", estimator="ips").estimate
    )
    assert draws.estimates["snips-nb 200"][0, 0] == pytest.approx(
        found.risk("model", metric="mse", estimator="snips").estimate
    )


def test_random_ratings_are_those_of_all_cells(world: World) -> None:
    sample: Vector = random_ratings(world.truth, 200_000, np.random.default_rng(0))
    levels, count = np.unique(world.truth, return_counts=True)

    assert sample.dtype == np.float64
    for level, share in zip(levels, count / world.truth.size, strict=True):
        assert (sample == level).mean() == pytest.approx(
            share, abs=5 * np.sqrt(share * (1 - share) / sample.size)
        )


def test_runs_are_seeded_and_sizes_come_in_order() -> None:
    one, again, other = (
        figure4(trials=3, seed=seed, sample_sizes=sizes)
        for seed, sizes in ((1, (30, 9)), (1, (9, 30)), (2, (9,)))
    )

    assert one.rows == again.rows
    assert by_key(one)["mse", 9, "naive"] != by_key(other)["mse", 9, "naive"]
    assert one.table["sample"] == ["9", "30"] * 2


def test_capped_propensities_are_counted_not_warned_of() -> None:
    """A sample of one rating gives four ratings 1 / 6 of all cells each, and the fifth 2 / 6; that is never too little here."""
    assert "0 of 4 fits" in figure4(trials=2, sample_sizes=(1, 2)).summary
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "random_ratings", lambda truth, size, rng: np.ones(size))
        assert "2 of 4 fits" in figure4(trials=2, sample_sizes=(1, 10_000)).summary


# What it refuses


def test_one_draw_has_no_band() -> None:
    with pytest.raises(UsageError, match=r"bands over draws, so at least 2 of them; got 1\."):
        figure4(trials=1)


def test_a_sample_of_nothing_is_refused() -> None:
    with pytest.raises(UsageError, match=r"sample_sizes must be a whole number, at least 1; got 0"):
        figure4(sample_sizes=(100, 0))


@pytest.mark.slow
@pytest.mark.skipif(not os.environ.get("UNSKEW_DATA"), reason="$UNSKEW_DATA is not set")
def test_on_movielens_the_error_is_that_of_the_formula(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "find_world", find_world)
    rows = by_key(figure4(data=os.environ["UNSKEW_DATA"]))

    for size, rmse in OF_METHODS.items():
        assert rows["mse", size, "ips-nb"]["ours"] == pytest.approx(rmse, rel=0.4)
    for metric in ("mse", "dcg@50"):
        for size in SAMPLE_SIZES:
            assert rows[metric, size, "ips-nb"]["ours"] < rows[metric, size, "naive"]["ours"]
            assert rows[metric, size, "snips-nb"]["ours"] < rows[metric, size, "naive"]["ours"]
    for size in (10_000, 30_000, 100_000):
        assert rows["mse", size, "ips-nb"]["ours"] < rows["mse", size, "ips-known"]["ours"]
