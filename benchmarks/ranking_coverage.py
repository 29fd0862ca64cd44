"""The cases ``ranking-*`` of interval_coverage.py: metrics of rankings, one row for each metric.

A log has the cells of users who are drawn anew from a large population, because the intervals take
users as a sample. The truth is the value of each metric over all cells of the population. A third
of each user's items is excluded.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from functools import cache

import numpy as np
import numpy.typing as npt

import unskew

Cells = npt.NDArray[np.float64]
N_POPULATION, N_USERS, N_ITEMS = 4000, 400, 60
METRICS = (
    "rmse", "precision@5", "dcg@5", "recall@5", "ndcg@5", "ndcg", "map@5", "map", "mrr", "mrr@5",
    "hit_rate@5", "auc", "pooled_auc", "recall_per_positive@5", "mrr_per_positive",
    "ndcg_per_positive@5", "atop",
)  # fmt: skip


@dataclass(frozen=True)
class RankingWorld:
    """Clicks of a population of users, scores of a model, propensities and excluded items."""

    relevant: Cells
    scores: Cells
    propensity: Cells
    excluded: npt.NDArray[np.bool_]

    def log(
        self, users: npt.NDArray[np.intp], seen: npt.NDArray[np.bool_]
    ) -> tuple[unskew.Ratings, unskew.Ratings]:
        """The cells of some users that were seen, and the excluded ones."""
        shape = (users.size, N_ITEMS)
        logs = []
        for mask in (seen & ~self.excluded[users], self.excluded[users]):
            user, item = np.nonzero(mask)
            ratings = self.relevant[users][mask]
            logs.append(unskew.Ratings.from_codes(user, item, ratings, shape=shape))
        return logs[0], logs[1]


@cache
def make_world(mean_relevant: float, density: float) -> RankingWorld:
    """Relevant items are seen more often; the model knows something about them."""
    rng = np.random.default_rng(5)
    shape = (N_POPULATION, N_ITEMS)
    taste = rng.gamma(4, 0.25, size=(N_POPULATION, 1))
    relevant = (rng.random(shape) < np.minimum(taste * mean_relevant / N_ITEMS, 0.9)).astype(float)
    scores = np.round(rng.normal(size=shape) + 1.5 * relevant, 1)
    propensity = np.clip(density * (0.7 + 0.6 * relevant) * rng.uniform(0.5, 1.5, shape), 0, 1)
    return RankingWorld(relevant, scores, propensity, rng.random(shape) < 1 / 3)


WORLDS = {
    "ranking-rich": (20.0, 0.5),
    "ranking-poor": (5.0, 0.5),
    "ranking-poor-sparse": (5.0, 0.2),
}


def measure(
    world: RankingWorld, users: npt.NDArray[np.intp], seen: npt.NDArray[np.bool_], *, is_all: bool
) -> dict[str, tuple[float, float, float]]:
    """By metric: the SNIPS estimate and its interval."""
    log, excluded = world.log(users, seen)
    result = unskew.evaluate(
        log,
        {"model": world.scores[users]},
        propensities=np.ones(len(log)) if is_all else world.propensity[users],
        metrics=METRICS,
        estimators=["snips"],
        cluster="user",
        exclude=excluded,
    )
    return {risk.metric: (risk.estimate, risk.ci_low, risk.ci_high) for risk in result}


def print_world(name: str, n_logs: int, seed: int) -> None:
    """Draw logs, and print bias and coverage of each metric."""
    warnings.simplefilter("ignore")
    world = make_world(*WORLDS[name])
    everyone = np.arange(N_POPULATION)
    truth = measure(world, everyone, np.ones(world.relevant.shape, bool), is_all=True)
    rng = np.random.default_rng([seed, len(name)])
    found: dict[str, list[tuple[float, float, float]]] = {metric: [] for metric in METRICS}
    n_relevant = 0.0
    for _ in range(n_logs):
        users = rng.integers(N_POPULATION, size=N_USERS)
        seen = rng.random((N_USERS, N_ITEMS)) < world.propensity[users]
        shown = seen & ~world.excluded[users]
        n_relevant += (world.relevant[users] * shown).sum() / N_USERS / n_logs
        for metric, interval in measure(world, users, seen, is_all=False).items():
            found[metric].append(interval)
    print(f"\n{name}: {n_relevant:.1f} observed relevant items per user, {n_logs} logs")
    print("| metric | truth | bias | sd | covered | no interval |\n|---|---|---|---|---|---|")
    for metric, intervals in found.items():
        value, low, high = np.array(intervals).T
        true, has_interval = truth[metric][0], np.isfinite(low)
        covered = ((low <= true) & (true <= high))[has_interval]
        share = f"{covered.mean():.1%}" if covered.size else ""
        print(
            f"| {metric} | {true:.4f} | {value.mean() / true - 1:+.1%} | {value.std() / true:.1%} "
            f"| {share} | {1 - has_interval.mean():.0%} |",
            flush=True,
        )
