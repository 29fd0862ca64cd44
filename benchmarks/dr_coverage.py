"""How often intervals of DR and SNDR contain the true value, by where the imputation comes from.

    python benchmarks/dr_coverage.py                              # all cases, 2,000 logs each
    python benchmarks/dr_coverage.py --only crossfit-mf --logs 200

Ratings are drawn from a known distribution for each log, and the selection depends on the rating.
"right" is this distribution. Other imputations are fitted to the log itself: "crossfit" as
``unskew.evaluate`` does it with an unfitted model, "in-sample" to the whole log, with an interval
that ``evaluate`` prints only if it is told, wrongly, that the imputation is independent. "P x 0.7"
has propensities of 0.7 times the right ones. "a" predicts well, "c" a constant.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

import unskew
from unskew.evaluation import Imputation
from unskew.models import MultinomialMixture, OffsetsOnly, OrdinalFactorization

Cells = npt.NDArray[np.float64]
N_USERS, N_ITEMS = 200, 80
LEVELS = np.arange(1.0, 6.0)
SHARES_BY_RATING = np.array([0.04, 0.06, 0.10, 0.16, 0.25])
ESTIMATORS, METRICS = ("snips", "dr", "sndr"), ("mse", "mae")


def rating_means() -> Cells:
    rng = np.random.default_rng(0)
    offsets = rng.normal(0, 0.6, (N_USERS, 1)) + rng.normal(0, 0.5, (1, N_ITEMS))
    return 2.8 + offsets + 0.4 * rng.normal(size=(N_USERS, 2)) @ rng.normal(size=(2, N_ITEMS))


def rating_shares(means: Cells) -> Cells:
    share = np.exp(-((LEVELS - means[..., None]) ** 2) / 1.1)
    return np.asarray(share / share.sum(axis=-1, keepdims=True))


@dataclass(frozen=True)
class GivenShares:
    """An imputation that was not fitted to anything."""

    share: Cells
    levels_: Cells

    def predict_distribution(self, users: Any, items: Any) -> Cells:
        return self.share[users, items]


def right_shares() -> GivenShares:
    return GivenShares(rating_shares(rating_means()), LEVELS)


def wrong_shares() -> GivenShares:
    """Every rating is 4 or 5."""
    share = np.zeros((N_USERS, N_ITEMS, LEVELS.size))
    share[..., 3:] = 0.5
    return GivenShares(share, LEVELS)


@dataclass(frozen=True)
class Case:
    imputation: Callable[[], Any]
    factor: float = 1.0
    """What the right propensities are multiplied by."""
    is_in_sample: bool = False
    """Whether the imputation is fitted to the whole log beforehand."""


MODELS: dict[str, Callable[[], Any]] = {
    "offsets": lambda: OffsetsOnly(l2=5.0),
    "mf": lambda: unskew.MatrixFactorization(3, 5.0, max_iter=30),
    "ordinal": lambda: OrdinalFactorization(2, max_iter=60),
    "mixture": lambda: MultinomialMixture(n_clusters=4, max_iter=40),
}
CASES = {
    "dr-both-right": Case(right_shares),
    "dr-wrong-imputation": Case(wrong_shares),
    "dr-right-imputation, P x 0.7": Case(right_shares, 0.7),
    **{f"dr-crossfit-{name}": Case(model) for name, model in MODELS.items()},
    **{f"dr-crossfit-{name}, P x 0.7": Case(MODELS[name], 0.7) for name in ("mf", "ordinal")},
    "dr-in-sample-offsets": Case(MODELS["offsets"], is_in_sample=True),
    "dr-in-sample-mf": Case(MODELS["mf"], is_in_sample=True),
}


def run(name: str, seed: int, n_logs: int) -> dict[tuple[str, str, str], int]:
    """By estimator, metric and model: the number of intervals that contain the truth."""
    warnings.simplefilter("ignore")
    case, covered = CASES[name], defaultdict(int)
    means = rating_means()
    cumulated = np.cumsum(rating_shares(means), axis=-1)
    rng = np.random.default_rng([seed, sum(map(ord, name))])
    scores = {
        "a": means + np.random.default_rng(1).normal(0, 0.4, means.shape),
        "c": np.full(means.shape, 3.2),
    }
    for _ in range(n_logs):
        level = (rng.random((*means.shape, 1)) > cumulated).sum(axis=-1)
        truth, propensity = LEVELS[level], SHARES_BY_RATING[level]
        seen = rng.random(means.shape) < propensity
        log = unskew.Ratings.from_codes(*np.nonzero(seen), truth[seen], shape=means.shape)
        log, assumed = log.with_universe(means.shape), case.factor * propensity[seen]
        imputation = case.imputation()
        if case.is_in_sample:
            imputation = imputation.fit(log, assumed)
        result = unskew.evaluate(
            log,
            scores,
            propensities=assumed,
            metrics=METRICS,
            estimators=ESTIMATORS,
            imputation=Imputation(
                imputation,
                is_independent=case.is_in_sample or isinstance(imputation, GivenShares),
            ),
            cluster=None,
            random_state=rng,
        )
        for risk in result:
            error = np.abs(scores[risk.model] - truth)
            true = float((error**2 if risk.metric == "mse" else error).mean())
            key = risk.estimator, risk.metric, risk.model
            covered[key] += risk.ci_low <= true <= risk.ci_high
    return dict(covered)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--logs", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="cases whose name contains this")
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    columns = [(estimator, metric) for estimator in ESTIMATORS for metric in METRICS]
    print(f"| case | {' | '.join(' '.join(column) for column in columns)} | seconds |")
    print("|---" * (len(columns) + 2) + "|")
    sizes = [options.logs // options.jobs] * options.jobs
    for name in CASES:
        if options.only not in name:
            continue
        start = time.perf_counter()
        with ProcessPoolExecutor(options.jobs) as pool:
            seeds = range(options.seed * 1000, options.seed * 1000 + options.jobs)
            parts = list(pool.map(run, [name] * options.jobs, seeds, sizes))
        cells = []
        for column in columns:
            shares = [
                sum(part[(*column, model)] for part in parts) / sum(sizes) for model in ("a", "c")
            ]
            cells.append(f"{shares[0]:.1%}, {shares[1]:.1%}")
        seconds = time.perf_counter() - start
        print(f"| {name} | {' | '.join(cells)} | {seconds:.0f} |", flush=True)
    noise = 1.96 * np.sqrt(0.95 * 0.05 / options.logs)
    print(f"\n{options.logs} logs a case, cells independent; models a, c; noise +-{noise:.1%}.")


if __name__ == "__main__":
    main()
