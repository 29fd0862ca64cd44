"""How often a nominal 95 % interval holds the truth, over many simulated logs of one truth.

    python benchmarks/interval_coverage.py --logs 5000

Cells are observed independently with known propensities, as the intervals for cluster=None assume. A world of MovieLens-100K
size; the judged model is SKEWED of Table 1; DR imputes with a rough model of the ratings (halfway to the mean, and noisy).
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
    world = simulate(random_state=arguments.seed, alpha=arguments.alpha)
    rng = np.random.default_rng(arguments.seed)
    metrics = [find_metric(name) for name in METRICS]
    scores = prediction_matrices(world.truth, rng)["SKEWED"]
    delta = all_deltas(world.truth, {"SKEWED": scores}, metrics)
    rough = (world.truth + world.truth.mean()) / 2 + rng.normal(0, 0.5, world.truth.shape)
    judged = build_metric_input(rough.astype(np.float32), scores, metrics)
    imputed = np.stack([metric(judged).value for metric in metrics])
    chance = world.observation.propensities(slice(None)).ravel()
    hits = {name: np.zeros(len(METRICS)) for name in ("ips", "snips", "dr")}
    start = time.perf_counter()
    for done in range(1, arguments.logs + 1):
        seen = np.flatnonzero(rng.random(chance.size, dtype=np.float32) < chance)
        for name, estimate in estimates(
            delta[:, seen], imputed[:, seen], imputed.sum(axis=1), chance[seen], chance.size
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
    print(
        f"\n{arguments.logs} logs, alpha {arguments.alpha:g}, seed {arguments.seed}; simulation noise +-{noise:.2%}."
    )


def estimates(
    delta: Matrix, imputed: Matrix, imputed_total: Vector, chance: Vector, n_cells: int
) -> dict[str, Estimate]:
    propensities = Propensities(chance)
    sums = Sums.of(delta, propensities)
    residuals = Sums.of(delta - imputed, propensities, imputed_by_cluster=imputed_total[None])
    return {
        "ips": ips(sums, n_cells=n_cells),
        "snips": self_normalized(sums),
        "dr": ips(residuals, n_cells=n_cells),
    }


def covers(estimate: Estimate, true: Vector) -> Vector:
    intervals = [estimate.of(place, level=LEVEL) for place in range(true.size)]
    inside = [
        interval.low <= truth <= interval.high
        for interval, truth in zip(intervals, true, strict=True)
    ]
    return np.array(inside, dtype=np.float64)


if __name__ == "__main__":
    main()
