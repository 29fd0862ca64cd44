"""One object of each public class, made as a user would make it."""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

import unskew
from fuzz.values import N_USERS, find_valid, make_log, make_shown, make_world
from unskew.models import GlobalMean
from unskew.settings import Configurable

FEATURES = np.linspace(0.0, 1.0, N_USERS)[:, None]
SETTINGS: dict[str, dict[str, Any]] = {
    "ExposureFactorization": {"relevance_threshold": 3},
    "LogisticFactorization": {"relevance_threshold": 3},
    "TriTraining": {"n_rounds": 1, "n_steps": 1},
    "BoostedPropensity": {"max_trees": 3, "user_features": FEATURES},
    "ClassifierPropensity": {"user_features": FEATURES},
    "OneBitPropensity": {"n_factors": 1},
    "PositionBias": {"n_bootstrap": 3},
}
"""Settings with which a fit works, where the defaults do not or are slow."""
FEW = {"max_iter": 2, "n_rounds": 1, "n_restarts": 1, "n_clusters": 2, "n_factors": 2}
"""Small counts, where a model has such a setting."""


FIT_ARGUMENTS = ("propensities", "mcar", "universe")
"""Arguments of ``fit`` that have defaults, and are passed all the same."""


def make_settings(name: str, parameters: Any) -> dict[str, Any]:
    """Settings of a model with which its fit works and is quick."""
    few = {key: value for key, value in FEW.items() if key in parameters}
    needed = {
        key: find_valid(name, key) for key, each in parameters.items() if each.default is each.empty
    }
    return few | needed | SETTINGS.get(name.rpartition(".")[2], {})


@cache
def make_evaluation() -> Any:
    with warnings.catch_warnings(action="ignore"):  # the models have seen the log
        return unskew.evaluate(
            make_log(),
            find_valid("", "models"),
            propensities=np.full(len(make_log()), 0.5),
            metrics=["mae", "mse"],
        )


@cache
def make_policy_evaluation() -> Any:
    return unskew.evaluate_policies(make_shown(), {"uniform": unskew.policies.UniformSlate()})


def _evaluate_by_group() -> Any:
    return unskew.evaluate_frame(
        find_valid("", "frame").assign(group="a"),
        universe=make_log().universe,
        by="group",
        metrics="mae",
    )


def _make_monitor() -> Any:
    monitor = unskew.evaluation.Monitor(["a", "b"], planned_size=100)
    rating = np.arange(1.0, 6.0)
    monitor.update(rating, {"a": rating, "b": rating + 1}, np.full(5, 0.5))
    return monitor


def _plan() -> Any:
    return unskew.plan_random_sample(make_log(), width=0.5)


MAKERS: dict[str, Callable[[], Any]] = {
    "Ratings": make_log,
    "Impressions": make_shown,
    "Propensities": lambda: unskew.Propensities(np.full(len(make_log()), 0.5)),
    "Factors": lambda: unskew.data.Factors(np.ones((3, 2)), np.ones((4, 2))),
    "Evaluation": make_evaluation,
    "GroupedEvaluation": _evaluate_by_group,
    "Comparison": lambda: make_evaluation().compare("mean", "other", metric="mae"),
    "ListDescription": lambda: unskew.evaluation.describe_lists(
        make_log(), find_valid("", "model")
    ),
    "Sensitivity": lambda: unskew.sensitivity(make_evaluation()),
    "Robustness": lambda: unskew.sensitivity(make_evaluation()).compare(
        "mean", "other", metric="mae", estimator="ips"
    ),
    "Monitor": _make_monitor,
    "Watch": lambda: _make_monitor().watch(),
    "Diagnosis": lambda: unskew.diagnose(make_log(), np.full(len(make_log()), 0.5)),
    "SamplePlan": _plan,
    "CrossValidation": lambda: unskew.cross_validate(
        unskew.MatrixFactorization(1, max_iter=2), make_log(), grid={"l2": [1.0]}, n_folds=2
    ),
    "LearnerComparison": lambda: unskew.compare_learners(
        make_log(), {"mean": GlobalMean()}, test=make_log(), n_repeats=2
    ),
    "Recommendations": lambda: GlobalMean().fit(make_log()).recommend(k=2),
    "Neighbors": lambda: (
        unskew.MatrixFactorization(2, max_iter=2)
        .fit(make_log())
        .similar_items(make_log().items[:2], k=2)
    ),
    "PolicyEvaluation": make_policy_evaluation,
    "PolicySensitivity": lambda: make_policy_evaluation().sensitivity(),
    "ExaminationCurve": lambda: find_valid("", "examination"),
    "ImpressionSimulation": lambda: unskew.simulate_impressions(
        6, 4, 2, logging="plackett-luce", random_state=0
    ),
    "Simulation": make_world,
    "Observation": lambda: make_world().observation,
}
"""How an object of a class is made whose constructor users do not call, or not with methods."""


@cache
def make_object(name: str, kind: Any) -> Any:
    """An object of a public class; models are fitted."""
    short = name.rpartition(".")[2]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if short in MAKERS:
            return MAKERS[short]()
        return fit_model(name, kind)


def fit_model(name: str, kind: Any, **settings: Any) -> Configurable:
    """A model fitted to the small log; other settings replace those that work."""
    import inspect

    parameters = inspect.signature(kind).parameters
    model = kind(**make_settings(name, parameters) | settings)
    arguments = {
        key: find_valid(name, key)
        for key, each in inspect.signature(model.fit).parameters.items()
        if each.default is each.empty or key in FIT_ARGUMENTS
    }
    fitted: Configurable = model.fit(**arguments)
    return fitted


@cache
def find_saved_file(kind: str) -> Path:
    """A saved model or monitor."""
    folder = Path(tempfile.mkdtemp(prefix="unskew-fuzz-"))
    path = folder / "saved.unskew"
    made = _make_monitor() if kind == "monitor" else GlobalMean().fit(make_log())
    made.save(path)
    return path
