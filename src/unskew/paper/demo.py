"""The main task from start to end: two models, one biased log, and the truth about them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias

import numpy as np
import numpy.typing as npt

from unskew.data.result import Result
from unskew.diagnostics.diagnose import diagnose
from unskew.diagnostics.result import Diagnosis
from unskew.evaluation.evaluate import evaluate
from unskew.evaluation.result import Comparison, Evaluation
from unskew.metrics.metric import MetricInput, find_metric
from unskew.simulation.simulator import Simulation, simulate

SampleColumns: TypeAlias = dict[str, list[Any]]
METRICS = ("mae", "mse")
MODELS = ("optimist", "realist")
N_RANDOM = 1000
"""Ratings in the file of ratings that were drawn at random."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Demo(Result):
    """A simulated log, the estimates from it, and the true errors."""

    kind: ClassVar[str] = "demo"

    simulation: Simulation
    evaluation: Evaluation
    true: Mapping[tuple[str, str], float]
    """By (model, metric): the error over all cells, which is unknown in practice."""
    random_state: int

    def compare(self, estimator: str) -> Comparison:
        """Optimist minus realist on MAE."""
        return self.evaluation.compare(*MODELS, metric="mae", estimator=estimator)

    def diagnosis(self) -> Diagnosis:
        """Checks of the propensities that weight the log."""
        propensities = self.simulation.observation.propensities(slice(None))
        return diagnose(self.simulation.log, {"propensities": propensities})

    def to_columns(self) -> dict[str, Any]:
        """The true error of each model, and each estimate ± half of its 95 % interval."""
        columns: dict[str, list[object]] = {
            "model": [model for model, _ in self.true],
            "metric": [metric for _, metric in self.true],
            "truth": list(self.true.values()),
        }
        for estimator in self.evaluation.estimators:
            risks = [
                self.evaluation.risk(model, metric=metric, estimator=estimator)
                for model, metric in self.true
            ]
            columns[estimator] = [
                f"{risk.estimate:.3f} ± {(risk.ci_high - risk.ci_low) / 2:.3f}" for risk in risks
            ]
        return columns

    def to_record(self) -> Mapping[str, Any]:
        """The evaluation, the diagnosis of its propensities, and the truth."""
        truth = [
            {"model": model, "metric": metric, "value": value}
            for (model, metric), value in self.true.items()
        ]
        return {
            **self.evaluation.to_record(),
            "truth": truth,
            "summary": self.summary(),
            "seed": self.random_state,
            "diagnosis": json.loads(self.diagnosis().to_json()),
        }

    def summary(self) -> str:
        """A paragraph about the result."""
        share_of_truth = float((self.simulation.truth <= 2).mean())
        share_of_log = float((self.simulation.log.rating <= 2).mean())
        difference = self.true["optimist", "mae"] - self.true["realist", "mae"]
        better = "realist" if difference > 0 else "optimist"
        return (
            "The optimist overrates what people dislike. "
            f"That is {share_of_truth:.0%} of all films, but only {share_of_log:.0%} of the log, "
            "because people rarely rate what they dislike. "
            f"By the naive average, {_describe(self.compare('naive'))}. "
            f"Weighted by inverse propensities, {_describe(self.compare('snips'))}. "
            f"In truth the {better} is better by {abs(difference):.2f}."
        )


def _describe(comparison: Comparison) -> str:
    """Which model is better and by how much, or that the data cannot answer."""
    if comparison.better is None:
        interval = f"[{comparison.ci_low:+.2f}, {comparison.ci_high:+.2f}]"
        return f"the two cannot be told apart ({comparison.difference:+.2f} {interval})"
    low, high = sorted((abs(comparison.ci_low), abs(comparison.ci_high)))
    return (
        f"the {comparison.better} is better by {abs(comparison.difference):.2f} "
        f"[{low:.2f}, {high:.2f}] stars of absolute error"
    )


def run_demo(simulation: Simulation | None = None, *, random_state: int = 0) -> Demo:
    """Evaluate both models on a simulated log by naive, IPS and SNIPS, and on all cells.

    The default simulation has the size of MovieLens 100K.
    """
    if simulation is None:
        simulation = simulate(random_state=random_state)
    models = make_models(simulation.truth, np.random.default_rng(random_state))
    evaluation = evaluate(
        simulation.log, models, propensities=simulation.propensities, metrics=METRICS
    )
    true = {
        (name, metric): _true_risk(metric, simulation.truth, scores)
        for name, scores in models.items()
        for metric in METRICS
    }
    return Demo(simulation, evaluation, true, random_state)


def make_sample_files(simulation: Simulation, *, random_state: int = 0) -> dict[str, SampleColumns]:
    """The columns of files to try the command line on, by file name.

    ``log.csv`` is the simulated log with its propensities and the predictions of both models;
    ``random.csv`` has ratings of cells that were drawn at random from all.
    """
    log = simulation.log
    models = make_models(simulation.truth, np.random.default_rng(random_state))
    n_users, n_items = simulation.truth.shape
    user, item = np.divmod(
        np.random.default_rng(random_state).choice(n_users * n_items, N_RANDOM, replace=False),
        n_items,
    )
    predictions = {
        name: scores[log.user, log.item].astype(float).round(2) for name, scores in models.items()
    }
    cells = {"user_id": log.users[log.user], "item_id": log.items[log.item], "rating": log.rating}
    random_cells = {"user_id": log.users[user], "item_id": log.items[item]}
    files = {
        "log.csv": {**cells, "propensity": simulation.propensities.values.round(6), **predictions},
        "random.csv": {**random_cells, "rating": simulation.truth[user, item].astype(float)},
    }
    return {
        name: {column: values.tolist() for column, values in columns.items()}
        for name, columns in files.items()
    }


def _true_risk(metric: str, truth: npt.NDArray[Any], scores: npt.NDArray[Any]) -> float:
    """Eq. (1): the mean of delta over all cells."""
    cells = MetricInput(truth, np.empty(0, np.int32), truth, prediction=scores)
    return float(find_metric(metric)(cells).value.mean())


def make_models(
    truth: npt.NDArray[np.float32], rng: np.random.Generator
) -> dict[str, npt.NDArray[np.float32]]:
    """Predictions of two models.

    The optimist has small errors on liked items and predicts disliked items 2 stars too high. The
    realist has medium errors on all items.
    """
    noise = rng.standard_normal(truth.shape, dtype=np.float32)
    bias = np.where(truth <= 2, np.float32(2), np.float32(0))
    return {
        "optimist": truth + bias + np.float32(0.4) * noise,
        "realist": truth + np.float32(0.9) * noise,
    }
