from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from unskew import simulate
from unskew.metrics.metric import find_metric
from unskew.paper.completion import ALPHAS
from unskew.paper.draws import (
    all_deltas,
    draw_estimates,
    prediction_matrices,
    spawn_generators,
)
from unskew.paper.reproduction import Reproduction
from unskew.paper.rmse_figures import reproduce_figure2
from unskew.simulation.observation import ByRating, Observation
from unskew.theory import ips_variance
from unskew.types import Matrix

TRIALS = 16
CLOSED_FORM = {
    1.0: {"scale": 0.0500, "naive": 0.0114, "ips": 0.0156, "snips": 0.0114},
    0.5: {"scale": 0.1748, "naive": 1.312, "ips": 0.0235, "snips": 0.0151},
    0.25: {"scale": 0.3398, "naive": 2.158, "ips": 0.0476, "snips": 0.0292},
    0.125: {"scale": 0.4520, "naive": 2.430, "ips": 0.116, "snips": 0.0702},
    0.0625: {"scale": 0.5109, "naive": 2.500, "ips": 0.309, "snips": 0.185},
    0.03125: {"scale": 0.5402, "naive": 2.521, "ips": 0.850, "snips": 0.506},
}
"""The paper's k, and the RMSE for MSE averaged over the five predictions.

They follow from the marginals alone.
"""
Rows = Mapping[tuple[str, float, str], Mapping[str, Any]]


@pytest.fixture(scope="module")
def result() -> Reproduction:
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("UNSKEW_DATA", raising=False)
        return reproduce_figure2(trials=TRIALS, random_state=0)


@pytest.fixture(scope="module")
def rows(result: Reproduction) -> Rows:
    return {(row["metric"], row["alpha"], row["estimator"]): row for row in result.rows}


@pytest.fixture(scope="module")
def truth() -> np.ndarray:
    return simulate(random_state=0).truth


@pytest.fixture(scope="module")
def squared_errors(truth: np.ndarray) -> Matrix:
    return all_deltas(
        truth, prediction_matrices(truth, np.random.default_rng(0)), [find_metric("mse")]
    )


# The closed form


def test_true_errors_follow_from_the_marginals(squared_errors: Matrix) -> None:
    assert squared_errors.mean(axis=1) == pytest.approx(
        [0.408, 0.0255, 8.895, 2.781, 2.373], abs=6e-4
    )


@pytest.mark.parametrize("alpha", ALPHAS)
def test_the_error_of_ips_is_that_of_the_variance_formula(
    truth: np.ndarray, squared_errors: Matrix, alpha: float
) -> None:
    seen = Observation.of(truth, ByRating(alpha), density=0.05)
    propensity = seen.propensities(slice(0, len(truth))).ravel()
    rmse = np.mean([np.sqrt(ips_variance(delta, propensity)) for delta in squared_errors])

    assert seen.scale == pytest.approx(CLOSED_FORM[alpha]["scale"], abs=6e-5)
    assert rmse == pytest.approx(CLOSED_FORM[alpha]["ips"], rel=0.005)


def test_draws_at_the_papers_alpha_scatter_as_the_closed_form_says(
    truth: np.ndarray, squared_errors: Matrix
) -> None:
    """An RMSE of 50 draws has an error of 10 %: 40 % is four of them, for a fixed seed."""
    seen = Observation.of(truth, ByRating(0.25), density=0.05)
    draws = draw_estimates(squared_errors, seen, trials=50, random_state=1)

    for estimator in ("ips", "snips"):
        rmse = np.sqrt(((draws.estimates[estimator] - draws.true) ** 2).mean(axis=0)).mean()
        assert rmse == pytest.approx(CLOSED_FORM[0.25][estimator], rel=0.4)


@pytest.mark.parametrize("alpha", ALPHAS)
@pytest.mark.parametrize("estimator", ["naive", "ips", "snips"])
def test_the_figure_is_within_sampling_error_of_the_closed_form(
    rows: Rows, alpha: float, estimator: str
) -> None:
    """Below alpha = 1 the error of naive is its bias; all other errors are those of 16 draws."""
    is_bias = estimator == "naive" and alpha < 1
    tolerance = 0.01 if is_bias else 4 / (2 * TRIALS) ** 0.5

    assert rows["mse", alpha, estimator]["ours"] == pytest.approx(
        CLOSED_FORM[alpha][estimator], rel=tolerance
    )


# What the figure shows


@pytest.mark.parametrize("metric", ["mse", "dcg@50"])
def test_naive_is_snips_where_nothing_is_selected(rows: Rows, metric: str) -> None:
    naive, snips = rows[metric, 1.0, "naive"], rows[metric, 1.0, "snips"]

    assert naive["ours"] == pytest.approx(snips["ours"])


@pytest.mark.parametrize("metric", ["mse", "dcg@50"])
def test_below_alpha_1_naive_is_worst_and_grows_worse(rows: Rows, metric: str) -> None:
    naive = [rows[metric, alpha, "naive"]["ours"] for alpha in ALPHAS]

    assert naive == sorted(naive)
    for alpha in ALPHAS[1:]:
        assert rows[metric, alpha, "naive"]["ours"] > 2 * rows[metric, alpha, "ips"]["ours"]
        assert rows[metric, alpha, "naive"]["ours"] > 2 * rows[metric, alpha, "snips"]["ours"]


def test_every_point_lies_in_its_band(result: Reproduction) -> None:
    assert len(result.rows) == 2 * len(ALPHAS) * 3
    for row in result.rows:
        assert 0 < row["ci_low"] <= row["ours"] * (1 + 1e-9)
        assert row["ours"] <= row["ci_high"] * (1 + 1e-9)
        assert row["paper"] is None


def test_the_table_has_a_line_for_each_metric_and_alpha(result: Reproduction) -> None:
    assert list(result.table) == ["RMSE of", "alpha", "naive", "ips", "snips"]
    assert list(result.table["RMSE of"]) == ["mse"] * 6 + ["dcg@50"] * 6
    assert list(result.table["alpha"]) == ["1", "0.5", "0.25", "0.125", "0.0625", "0.03125"] * 2


def test_the_table_shows_the_error_alone_and_says_what_it_is(result: Reproduction) -> None:
    assert result.table["ips"][2] == f"{result.rows[7]['ours']:.3g}"
    assert result.caption.startswith("Root mean squared error of each estimate over the draws")
    assert result.caption in repr(result)
    assert result.caption in result._repr_html_()


def test_the_summary_names_the_truth(result: Reproduction, movielens_folder: Path) -> None:
    assert result.summary.endswith("Truth: simulated, as large as MovieLens 100K.")
    assert (
        "Truth: MovieLens 100K, completed by"
        in reproduce_figure2(data=movielens_folder, trials=2).summary
    )


# Draws


def test_predictions_and_draws_use_other_random_numbers_than_the_simulation() -> None:
    streams = [*spawn_generators(0), *np.random.default_rng(0).spawn(2), *spawn_generators(1)]

    assert len({rng.random() for rng in streams}) == 6


def test_draws_are_seeded_and_need_not_be_made_in_one_go() -> None:
    world = simulate(30, 40, density=0.1, alpha=0.5, random_state=0)
    deltas = np.random.default_rng(0).random((2, world.truth.size))
    three, again, five = (
        draw_estimates(deltas, world.observation, trials=n, random_state=4) for n in (3, 3, 5)
    )

    for name in ("naive", "ips", "snips"):
        assert three.estimates[name].tolist() == again.estimates[name].tolist()
        assert three.estimates[name].tolist() == five.estimates[name][:3].tolist()
        for risk in (0, 1):
            values = three.estimates[name][:, risk]
            summary = {"mean": values.mean(), "std": values.std(ddof=1)}
            assert three.summarize(risk)[name] == pytest.approx(summary)
