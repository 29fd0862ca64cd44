from __future__ import annotations

import numpy as np
import pytest

from unskew.paper.demo import MODELS, Demo, make_models, run_demo
from unskew.simulation.simulator import simulate


@pytest.fixture(scope="module", params=[0, 1])
def result(request: pytest.FixtureRequest) -> Demo:
    return run_demo(random_state=request.param)


def test_the_naive_average_is_sure_of_the_worse_model(result: Demo) -> None:
    assert result.true["optimist", "mae"] > result.true["realist", "mae"]
    assert result.compare("naive").better == "optimist"


@pytest.mark.parametrize("estimator", ["ips", "snips"])
def test_the_weighted_estimators_agree_with_the_truth(result: Demo, estimator: str) -> None:
    compared = result.compare(estimator)
    true = result.true["optimist", "mae"] - result.true["realist", "mae"]

    assert compared.better == "realist"
    assert compared.difference == pytest.approx(true, abs=4 * compared.std_error)


@pytest.mark.parametrize("estimator", ["ips", "snips"])
def test_every_weighted_estimate_is_within_four_standard_errors_of_the_truth(
    result: Demo, estimator: str
) -> None:
    for (model, metric), true in result.true.items():
        risk = result.evaluation.risk(model, metric=metric, estimator=estimator)
        assert risk.estimate == pytest.approx(true, abs=4 * risk.std_error)


def test_the_truth_is_over_all_cells() -> None:
    simulation = simulate(random_state=3)
    result = run_demo(simulation, random_state=3)

    for name, scores in make_models(simulation.truth, np.random.default_rng(3)).items():
        error = scores.astype(np.float64) - simulation.truth
        assert result.true[name, "mae"] == pytest.approx(np.abs(error).mean(), rel=1e-5)
        assert result.true[name, "mse"] == pytest.approx((error**2).mean(), rel=1e-5)


def test_the_paragraph_says_what_happened(result: Demo) -> None:
    true = result.true["optimist", "mae"] - result.true["realist", "mae"]

    assert "By the naive average, the optimist is better by 0.1" in result.summary()
    assert "Weighted by inverse propensities, the realist is better by 0." in result.summary()
    assert result.summary().endswith(f"In truth the realist is better by {true:.2f}.")
    assert "77% of all films" in result.summary()


def test_an_interval_that_holds_zero_says_that_the_data_cannot_answer() -> None:
    simulation = simulate(20, 30, density=0.05, random_state=3)
    result = run_demo(simulation, random_state=3)
    naive = result.compare("naive")

    assert naive.better is None
    assert (
        f"By the naive average, the two cannot be told apart ({naive.difference:+.2f} ["
        in result.summary()
    )
    assert "None" not in result.summary()


def test_the_models_do_what_their_names_say() -> None:
    truth = np.tile(np.arange(1, 6, dtype=np.float32), (200, 40))
    models = make_models(truth, np.random.default_rng(0))

    assert tuple(models) == MODELS
    assert (models["optimist"] - truth)[truth <= 2].mean() == pytest.approx(2.0, abs=0.02)
    assert (models["optimist"] - truth)[truth > 2].std() < (models["realist"] - truth)[
        truth > 2
    ].std()
    assert (models["realist"] - truth).mean() == pytest.approx(0.0, abs=0.02)
