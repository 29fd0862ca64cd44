"""How often a nominal 95 % interval contains the true value, over many simulated logs.

    python benchmarks/interval_coverage.py --logs 5000

Cells of one rating matrix, of the size of MovieLens 100K, are observed independently with known
propensities, as the intervals for cluster=None assume. The evaluated model is SKEWED of Table 1.
DR imputes with a rough model of the ratings: halfway to the mean, with noise.
"""

from __future__ import annotations

import argparse
import sys
import time

import numpy as np

from unskew.data.propensities import Propensities
from unskew.estimators.estimate import Estimate
from unskew.estimators.point import ips, self_normalized
from unskew.estimators.sums import Sums
from unskew.metrics.metric import find_metric
from unskew.paper.draws import all_deltas, build_metric_input, prediction_matrices
from unskew.simulation.simulator import simulate
from unskew.types import Matrix, Vector

METRICS = ("mse", "mae", "dcg@50")
LEVEL = 0.95


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--logs", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--alpha", type=float, default=0.25)
    arguments = parser.parse_args()
    simulation = simulate(random_state=arguments.seed, alpha=arguments.alpha)
    rng = np.random.default_rng(arguments.seed)
    metrics = [find_metric(name) for name in METRICS]
    scores = prediction_matrices(simulation.truth, rng)["SKEWED"]
    delta = all_deltas(simulation.truth, {"SKEWED": scores}, metrics)
    rough = (simulation.truth + simulation.truth.mean()) / 2 + rng.normal(
        0, 0.5, simulation.truth.shape
    )
    metric_input = build_metric_input(rough.astype(np.float32), scores, metrics)
    imputed = np.stack([metric(metric_input).value for metric in metrics])
    probability = simulation.observation.propensities(slice(None)).ravel()
    hits = {name: np.zeros(len(METRICS)) for name in ("ips", "snips", "dr")}
    start = time.perf_counter()
    for done in range(1, arguments.logs + 1):
        seen = np.flatnonzero(rng.random(probability.size, dtype=np.float32) < probability)
        for name, estimate in estimates(
            delta[:, seen],
            imputed[:, seen],
            imputed.sum(axis=1),
            probability[seen],
            probability.size,
        ).items():
            hits[name] += covers(estimate, delta.mean(axis=1))
        if done % 500 == 0:
            print(f"{done} logs, {time.perf_counter() - start:.0f} s", file=sys.stderr)
    print("| estimator | " + " | ".join(METRICS) + " |\n|---|" + "---|" * len(METRICS))
    for name, count in hits.items():
        print(
            f"| {name} | " + " | ".join(f"{share:.2%}" for share in count / arguments.logs) + " |"
        )
    noise = 1.96 * np.sqrt(LEVEL * (1 - LEVEL) / arguments.logs)
    setup = f"{arguments.logs} logs, alpha {arguments.alpha:g}, seed {arguments.seed}"
    print(f"\n{setup}; simulation noise +-{noise:.2%}.")


def estimates(
    delta: Matrix, imputed: Matrix, imputed_total: Vector, probability: Vector, n_cells: int
) -> dict[str, Estimate]:
    propensities = Propensities(probability)
    sums = Sums.of(delta, propensities)
    residuals = Sums.of(delta - imputed, propensities, imputed_by_cluster=imputed_total[None])
    return {
        "ips": ips(sums, n_cells=n_cells),
        "snips": self_normalized(sums),
        "dr": ips(residuals, n_cells=n_cells),
    }


def covers(estimate: Estimate, true: Vector) -> Vector:
    intervals = [estimate.of(index, level=LEVEL) for index in range(true.size)]
    inside = [
        interval.low <= truth <= interval.high
        for interval, truth in zip(intervals, true, strict=True)
    ]
    return np.array(inside, dtype=np.float64)


if __name__ == "__main__":
    main()
