from __future__ import annotations

import numpy as np
import pytest

from unskew.paper.demo import MODELS, Demo, demo, demo_world, two_models
from unskew.simulation.simulate import simulate


@pytest.fixture(scope="module", params=[0, 1])
def told(request: pytest.FixtureRequest) -> Demo:
    return demo(demo_world(seed=request.param), seed=request.param)


def test_the_naive_average_is_sure_of_the_worse_model(told: Demo) -> None:
    assert told.true["optimist", "mae"] > told.true["realist", "mae"]
    assert told.compare("naive").better == "optimist"


@pytest.mark.parametrize("estimator", ["ips", "snips"])
def test_the_weighted_estimators_agree_with_the_truth(told: Demo, estimator: str) -> None:
    compared = told.compare(estimator)
    true = told.true["optimist", "mae"] - told.true["realist", "mae"]

    assert compared.better == "realist"
    assert compared.difference == pytest.approx(true, abs=4 * compared.std_error)


@pytest.mark.parametrize("estimator", ["ips", "snips"])
def test_every_weighted_estimate_is_within_four_standard_errors_of_the_truth(
    told: Demo, estimator: str
) -> None:
    for (model, metric), true in told.true.items():
        risk = told.evaluation.risk(model, metric=metric, estimator=estimator)
        assert risk.estimate == pytest.approx(true, abs=4 * risk.std_error)


def test_the_truth_is_over_all_cells() -> None:
    world = demo_world(seed=3)
    told = demo(world, seed=3)

    for name, scores in two_models(world.truth, np.random.default_rng(3)).items():
        error = scores.astype(np.float64) - world.truth
        assert told.true[name, "mae"] == pytest.approx(np.abs(error).mean(), rel=1e-5)
        assert told.true[name, "mse"] == pytest.approx((error**2).mean(), rel=1e-5)


def test_the_paragraph_says_what_happened(told: Demo) -> None:
    true = told.true["optimist", "mae"] - told.true["realist", "mae"]

    assert "By the naive average, the optimist is better by 0.1" in told.summary()
    assert "Weighted by inverse propensities, the realist is better by 0." in told.summary()
    assert told.summary().endswith(f"In truth the realist is better by {true:.2f}.")
    assert "77% of all films" in told.summary()


def test_an_interval_that_holds_zero_says_that_nobody_can_tell() -> None:
    world = simulate(20, 30, density=0.05, random_state=3)
    told = demo(world, seed=3)
    naive = told.compare("naive")

    assert naive.better is None
    assert (
        f"By the naive average, the two cannot be told apart ({naive.difference:+.2f} ["
        in told.summary()
    )
    assert "None" not in told.summary()


def test_the_models_do_what_their_names_say() -> None:
    truth = np.tile(np.arange(1, 6, dtype=np.float32), (200, 40))
    models = two_models(truth, np.random.default_rng(0))

    assert tuple(models) == MODELS
    assert (models["optimist"] - truth)[truth <= 2].mean() == pytest.approx(2.0, abs=0.02)
    assert (models["optimist"] - truth)[truth > 2].std() < (models["realist"] - truth)[
        truth > 2
    ].std()
    assert (models["realist"] - truth).mean() == pytest.approx(0.0, abs=0.02)
