"""The main job end to end: two models, one biased log, and a truth that settles who was right."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from unskew.data.ratings import Ratings
from unskew.data.result import describe_json
from unskew.diagnostics.diagnose import diagnose
from unskew.diagnostics.result import Diagnosis
from unskew.evaluation.evaluate import evaluate
from unskew.evaluation.result import Comparison, Evaluation
from unskew.plugins import load_report_function
from unskew.simulation.simulate import Simulation, simulate

METRICS = ("mae", "mse")
MODELS = ("optimist", "realist")


@dataclass(frozen=True, slots=True, eq=False)
class Demo:
    """A log, what the estimators make of it, and the truth."""

    log: Ratings
    evaluation: Evaluation
    true: Mapping[tuple[str, str], float]
    """By (model, metric), over all cells: what nobody knows in real life."""
    disliked_share_of_truth: float
    world: Simulation
    seed: int

    def compare(self, estimator: str) -> Comparison:
        """Optimist minus realist on MAE."""
        return self.evaluation.compare(*MODELS, metric="mae", estimator=estimator)

    def diagnosis(self) -> Diagnosis:
        """How far the propensities that weighted the log can be trusted."""
        return diagnose(
            self.log, {"propensities": self.world.observation.propensities(slice(None))}
        )

    def to_json(self) -> str:
        """The evaluation, the diagnosis of its propensities, and the truth."""
        truth = [
            {"model": model, "metric": metric, "value": value}
            for (model, metric), value in self.true.items()
        ]
        told = {
            "truth": truth,
            "summary": self.summary(),
            "seed": self.seed,
            "diagnosis": json.loads(self.diagnosis().to_json()),
        }
        return json.dumps(json.loads(self.evaluation.to_json()) | describe_json("demo") | told)

    def to_html(self, path: str | Path) -> Path:
        """All of it as one HTML file that needs nothing else. Returns its path."""
        page: Path = load_report_function("write_page")(self.to_json(), path)
        return page

    def summary(self) -> str:
        """What happened, in a paragraph."""
        true = self.true["optimist", "mae"] - self.true["realist", "mae"]
        return (
            f"The optimist overrates what people dislike. That is {self.disliked_share_of_truth:.0%} of all films, but only "
            f"{float((self.log.rating <= 2).mean()):.0%} of the log, because people rarely rate what they dislike. "
            f"By the naive average, {_verdict(self.compare('naive'))}. "
            f"Weighted by inverse propensities, {_verdict(self.compare('snips'))}. "
            f"In truth the {'realist' if true > 0 else 'optimist'} is better by {abs(true):.2f}."
        )


def _verdict(compared: Comparison) -> str:
    """Who is better and by how much, or that nobody can tell."""
    if compared.better is None:
        return f"the two cannot be told apart ({compared.difference:+.2f} [{compared.ci_low:+.2f}, {compared.ci_high:+.2f}])"
    low, high = sorted((abs(compared.ci_low), abs(compared.ci_high)))
    return f"the {compared.better} is better by {abs(compared.difference):.2f} [{low:.2f}, {high:.2f}] stars of absolute error"


def demo(world: Simulation, *, seed: int = 0) -> Demo:
    """Judge both models on the world's log, by naive, IPS and SNIPS, and against its truth."""
    models = two_models(world.truth, np.random.default_rng(seed))
    evaluation = evaluate(world.log, models, propensities=world.propensities, metrics=METRICS)
    true = {
        (name, metric): float(np.mean(np.abs(scores - world.truth) ** power))
        for name, scores in models.items()
        for metric, power in zip(METRICS, (1, 2), strict=True)
    }
    return Demo(world.log, evaluation, true, float((world.truth <= 2).mean()), world, seed)


def demo_world(*, seed: int = 0) -> Simulation:
    """The simulated log at MovieLens-100K size."""
    return simulate(random_state=seed)


def two_models(
    truth: npt.NDArray[np.float32], rng: np.random.Generator
) -> dict[str, npt.NDArray[np.float32]]:
    """The optimist is sharp on what people like and far too kind to the rest; the realist is middling everywhere."""
    noise = rng.standard_normal(truth.shape, dtype=np.float32)
    kindness = np.where(truth <= 2, np.float32(2), np.float32(0))
    optimist, realist = (
        (truth + kindness + np.float32(0.4) * noise),
        (truth + np.float32(0.9) * noise),
    )
    return {"optimist": optimist, "realist": realist}
