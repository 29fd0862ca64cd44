"""The examination curve: error, coverage and time, on logs of a few rankers in rotation.

    python benchmarks/position_bias.py                # error and seconds at one million impressions
    python benchmarks/position_bias.py --coverage     # 400 logs of 100,000 impressions
    python benchmarks/position_bias.py --coverage --impressions 1000000 --logs 40
    python benchmarks/position_bias.py --values       # intervals of pbm with an estimated curve

Each query has ten items, and three rankers order them by relevance and noise. A request takes one
ranker. An item is clicked with the probability th_k g, where th = 1/k and g is uniform between
0.05 and 0.8; about 15 % of impressions are clicked. If the intent varies, g is multiplied by a
number between 0.2 and 1 that is drawn for each request. A query is a user here. Where
ultr-bias-toolkit is installed, its estimators run on the same logs.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from unskew import Impressions, PositionBias, evaluate_policies, simulate_impressions

K = 10
TRUE = 1 / np.arange(1, K + 1)
Curve = npt.NDArray[np.float64]


def draw_log(
    n_impressions: int, n_queries: int, seed: int, *, intent: float = 0.0, n_rankers: int = 3
) -> Impressions:
    """A log of ``n_impressions``; ``intent`` lowers the relevance by up to this share."""
    rng = np.random.default_rng(seed)
    relevance = rng.uniform(0.05, 0.8, (n_queries, K))
    scores = relevance[:, None] + rng.normal(0, 0.3, (n_queries, n_rankers, K))
    rankings = np.argsort(-scores, axis=2)
    n_requests = n_impressions // K
    query = rng.integers(n_queries, size=n_requests)
    shown = rankings[query, rng.integers(n_rankers, size=n_requests)]
    factor = 1 - intent * rng.random((n_requests, 1))
    chance = TRUE * np.take_along_axis(relevance[query] * factor, shown, axis=1)
    clicks = rng.random(chance.shape) < chance
    return Impressions.from_arrays(
        np.repeat(np.arange(n_requests), K),
        np.repeat(query, K),
        (query[:, None] * K + shown).ravel(),
        clicks.ravel().astype(float),
        position=np.tile(np.arange(1, K + 1), n_requests),
    )


def fit_ours(method: str) -> Callable[[Impressions], Curve]:
    def fit(log: Impressions) -> Curve:
        return PositionBias(method=method, n_bootstrap=2).fit(log).examination  # type: ignore[arg-type]

    return fit


def click_rate(log: Impressions) -> Curve:
    rate = np.bincount(log.position - 1, log.reward) / np.bincount(log.position - 1)
    return rate / rate[0]


def list_rivals() -> dict[str, Callable[[Impressions], Curve]]:
    """The estimators of ultr-bias-toolkit, if it is installed."""
    try:
        from ultr_bias_toolkit.bias.intervention_harvesting import (
            AdjacentChainEstimator,
            AllPairsEstimator,
            PivotEstimator,
        )
    except ImportError:
        print("ultr-bias-toolkit is not installed, so nothing of it runs here.")
        return {}

    def wrap(estimator: Callable[[], Callable[..., object]]) -> Callable[[Impressions], Curve]:
        def fit(log: Impressions) -> Curve:
            import pandas as pd

            frame = pd.DataFrame(
                {
                    "query_id": log.user,
                    "doc_id": log.item,
                    "position": log.position,
                    "click": log.reward,
                }
            )
            curve = estimator()(frame)
            return np.asarray(curve["examination"], dtype=float)  # type: ignore[index]

        return fit

    names = (AllPairsEstimator, PivotEstimator, AdjacentChainEstimator)
    return {f"ultr-bias-toolkit {each.__name__}": wrap(each) for each in names}


def compare_methods() -> None:
    """Error and seconds of each method at one million impressions."""
    methods: dict[str, Callable[[Impressions], Curve]] = {
        "click rate": click_rate,
        "conditional": fit_ours("conditional"),
        "all_pairs (with 2 resamples)": fit_ours("all_pairs"),
        **list_rivals(),
    }
    print("| method | queries | RMSE | relative RMSE | seconds |\n|---|---|---|---|---|")
    for n_queries in (2_668, 50_000):
        log = draw_log(1_000_000, n_queries, seed=0)
        for name, fit in methods.items():
            start = time.perf_counter()
            curve = fit(log)
            seconds = time.perf_counter() - start
            error = curve / curve[0] - TRUE
            absolute, relative = (np.sqrt(np.mean(e**2)) for e in (error, error / TRUE))
            print(f"| {name} | {n_queries:,} | {absolute:.4f} | {relative:.3f} | {seconds:.2f} |")


def measure_coverage(n_logs: int, n_impressions: int) -> None:
    """Error and coverage of the conditional estimate over many logs, for positions 2 to 10."""
    print(f"{n_logs} logs of {n_impressions:,} impressions; coverage of 95 % intervals")
    print("| queries | intent | relative RMSE | bias at 2, 5, 10 | by cell (worst) | by query |")
    print("|---|---|---|---|---|---|")
    scale = n_impressions // 100_000
    for n_queries, intent in ((500, 0.0), (5_000, 0.0), (5_000, 0.8), (50, 0.8)):
        curves = []
        covered: dict[str, list[npt.NDArray[np.bool_]]] = {"cell": [], "user": []}
        for seed in range(n_logs):
            log = draw_log(n_impressions, n_queries * scale, seed, intent=intent)
            for cluster, hits in covered.items():
                columns = PositionBias(cluster=cluster).fit(log).curve_.to_columns()
                low, high = np.array(columns["ci_low"]), np.array(columns["ci_high"])
                hits.append(((low <= TRUE) & (high >= TRUE))[1:])
            curves.append(columns["examination"])
        relative = (np.array(curves) / TRUE - 1)[:, 1:]
        bias = ", ".join(f"{relative[:, k - 2].mean():+.1%}" for k in (2, 5, 10))
        by_cell, by_query = (np.mean(hits, axis=0) for hits in covered.values())
        print(
            f"| {n_queries * scale:,} | {'varies' if intent else 'fixed'} "
            f"| {np.sqrt(np.mean(relative**2)):.3f} | {bias} "
            f"| {by_cell.mean():.1%} ({by_cell.min():.1%}) | {by_query.mean():.1%} |",
            flush=True,
        )


def measure_values(n_logs: int) -> None:
    """Coverage of pbm for a new ranking, with the curve from the same log, or from another one."""
    print("| users | curve | taken as | bias / sd | error / sd | covered | difference covered |")
    print("|---|---|---|---|---|---|---|")
    for n_users in (400, 2_000):
        world = simulate_impressions(
            n_users, 3, 3, logging="rankers", examination=[1, 0.5, 0.3], random_state=3
        )
        truth = world.value(world.target.table)
        gain = truth - world.logged_value
        rng = np.random.default_rng(0)
        rows: dict[str, list[tuple[float, ...]]] = {}
        for _ in range(n_logs):
            log = world.draw(rng)
            same, other = PositionBias().fit(log), PositionBias().fit(world.draw(rng))
            curves = {
                "true | known": [1, 0.5, 0.3],
                "same log | known": same.examination,
                "same log | estimated": same,
                "other log | known": other.examination,
                "other log | estimated": other,
            }
            for name, curve in curves.items():
                result = evaluate_policies(log, {"new": world.target}, examination=curve)
                value, change = result.value("new"), result.compare("new")
                is_covered = value.ci_low <= truth <= value.ci_high
                is_gain_covered = change.ci_low <= gain <= change.ci_high
                row = (value.estimate, value.std_error, is_covered, is_gain_covered)
                rows.setdefault(name, []).append(row)
        for name, each in rows.items():
            estimate, error, covered, gain_covered = np.array(each, dtype=float).T
            sd = estimate.std()
            print(
                f"| {n_users:,} | {name} | {(estimate.mean() - truth) / sd:+.2f} "
                f"| {error.mean() / sd:.2f} | {covered.mean():.1%} | {gain_covered.mean():.1%} |",
                flush=True,
            )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--coverage", action="store_true")
    parser.add_argument("--values", action="store_true")
    parser.add_argument("--logs", type=int, default=400)
    parser.add_argument("--impressions", type=int, default=100_000)
    arguments = parser.parse_args()
    if arguments.values:
        measure_values(arguments.logs)
    elif arguments.coverage:
        measure_coverage(arguments.logs, arguments.impressions)
    else:
        compare_methods()
