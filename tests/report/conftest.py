"""A small result of every kind. Some names are markup, which a page must show as text."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib import pyplot

from unskew import (
    MatrixFactorization,
    cross_validate,
    diagnose,
    evaluate,
    evaluate_frame,
    evaluate_policies,
    sensitivity,
    simulate,
    simulate_impressions,
)
from unskew.evaluation import Monitor, Watch
from unskew.model_selection.comparison import compare_learners
from unskew.model_selection.leaderboard import rank_learners
from unskew.model_selection.learners import Learner
from unskew.model_selection.protocols import RandomTestData
from unskew.models import GlobalMean
from unskew.paper.demo import run_demo
from unskew.paper.toy import reproduce_toy
from unskew.policies import (
    ExaminationCurve,
    PlackettLuce,
    PolicyEvaluation,
    PositionBias,
    UniformSlate,
)

SCRIPT = "<script>alert(1)</script>"


def results() -> dict[str, Any]:
    """By kind."""
    import polars as pl

    world, rng = simulate(40, 50, density=0.2, alpha=0.5, random_state=1), np.random.default_rng(0)
    log, propensities = world.log, world.propensities
    models = {"a & b": world.truth + 1.0, SCRIPT: world.truth + rng.normal(size=(40, 50))}
    evaluation = evaluate(log, models, propensities=propensities, metrics=["mae", "mse"])
    moved = sensitivity(evaluation)
    pair = {"first": "a & b", "second": SCRIPT, "metric": "mae", "estimator": "snips"}
    features = {f"{SCRIPT} {k}": rng.normal(size=50).tolist() for k in range(3)}
    frame = pl.DataFrame(
        {
            "item_id": log.items[log.item].tolist(),
            "rating": log.rating.tolist(),
            "propensity": np.asarray(getattr(propensities, "values", propensities)).tolist(),
            SCRIPT: (log.rating + 1.0).tolist(),
            "plain": (log.rating + rng.normal(size=len(log))).tolist(),
            "group": [SCRIPT if user % 2 else "other" for user in log.user.tolist()],
        }
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return {
            "evaluation": evaluation,
            "grouped_evaluation": evaluate_frame(
                frame, prediction=[SCRIPT, "plain"], by="group", universe=(20, 50)
            ),
            "comparison": evaluation.compare(**pair),
            "pairwise_comparison": evaluation.compare_all(metric="mae"),
            "sensitivity": moved,
            "robustness": moved.compare(**pair),
            "diagnosis": diagnose(
                log,
                {SCRIPT: world.observation.propensities(slice(None)), "values": propensities},
                item_features=pl.DataFrame({"item_id": log.items.tolist(), **features}),
            ),
            "cross_validation": cross_validate(
                MatrixFactorization(max_iter=5),
                log,
                propensities=propensities,
                grid={"l2": [1.0, 5.0], "n_factors": [1, 2]},
                n_folds=2,
            ),
            "learners": compare_learners(
                log,
                {"plain": MatrixFactorization(1, max_iter=5), SCRIPT: GlobalMean()},
                test=log,
                n_repeats=2,
            ),
            "leaderboard": rank_learners(
                RandomTestData(log, log.take(np.arange(100)), propensities),
                learners={
                    "plain": Learner(MatrixFactorization(1), {"l2": [1.0, 5.0, 9.0]}),
                    SCRIPT: Learner(GlobalMean()),
                },
                protocols=["paper", "leaky"],
                n_repeats=2,
            ),
            "reproduction": reproduce_toy(trials=3),
            "demo": run_demo(world),
            "watch": watch_log(),
            "position_bias": fit_curve(),
            "policy_evaluation": evaluate_impressions(),
        }


def evaluate_impressions() -> PolicyEvaluation:
    """Two policies by estimators of all kinds, one of which cannot be estimated."""
    world = simulate_impressions(60, random_state=0)
    targets = {"a & b": world.target, SCRIPT: PlackettLuce(world.target)}
    return evaluate_policies(
        world.log,
        targets,
        estimators=["snips", "snrips", "iips", "pbm", "pi"],
        logging=UniformSlate(),
        examination=[1, 0.5, 0.33],
    )


def fit_curve() -> ExaminationCurve:
    """The curve of a small log of several rankers."""
    log = simulate_impressions(200, logging="rankers", random_state=3).log
    return PositionBias().fit(log).curve_


def watch_log() -> Watch:
    """A growing log of 500 rows, with all estimators."""
    rng = np.random.default_rng(0)
    rating = rng.integers(1, 6, 500).astype(float)
    monitor = Monitor(
        ["a & b", SCRIPT],
        planned_size=500,
        metrics=["mae"],
        has_unobserved=True,
        universe=(40, 50),
        max_weight=2.0,
        max_delta=10.0,
    )
    predictions = {name: rating + rng.normal(size=500) for name in ("a & b", SCRIPT)}
    observed = np.where(rng.random(500) < 0.5, rating, np.nan)
    monitor.update(observed, predictions, np.full(500, 0.5))
    return monitor.watch()


@pytest.fixture(autouse=True)
def _close_figures() -> Iterator[None]:
    yield
    pyplot.close("all")


@pytest.fixture(scope="session")
def made() -> dict[str, Any]:
    return results()


@pytest.fixture(scope="session")
def pages(made: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The page of each."""
    folder = tmp_path_factory.mktemp("pages")
    return {kind: result.to_html(folder / f"{kind}.html") for kind, result in made.items()}
