"""How long ``evaluate`` takes with propensities of each model: 1,000,000 ratings, two models.

    python benchmarks/interval_cost.py                          # this version
    python benchmarks/interval_cost.py --against OTHER/src      # next to another version
    python benchmarks/interval_cost.py --shuffled               # a log that is not sorted by user

The propensities are fitted before the clock starts. With ``--against``, processes of both versions
alternate, and the table has the processor time of the fastest call of each.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

N_USERS, N_ITEMS = 6_000, 2_000
CLUSTERS = {"cells independent": None, "by user": "user"}


def draw_log(n_ratings: int, *, is_shuffled: bool = False) -> tuple[Any, Any, dict[str, Any]]:
    """A log of random cells, for which every propensity model is right, covariates, two models."""
    import unskew

    rng = np.random.default_rng(0)
    user_features, item_features = rng.normal(size=(N_USERS, 3)), rng.normal(size=(N_ITEMS, 3))
    seen = rng.random((N_USERS, N_ITEMS)) < n_ratings / (N_USERS * N_ITEMS)
    user, item = np.nonzero(seen)
    if is_shuffled:
        order = rng.permutation(user.size)
        user, item = user[order], item[order]
    rating = np.clip(np.round(3 + rng.normal(size=user.size)), 1, 5)
    log = unskew.Ratings.from_codes(user, item, rating, shape=seen.shape).with_universe(seen.shape)
    models = {name: rating + rng.normal(0, 1, user.size) for name in "ab"}
    return log, (user_features, item_features), models


def fit_propensities(log: Any, features: Any) -> Iterator[tuple[str, Any]]:
    import unskew
    from unskew.propensity import PopularityPropensity

    rng = np.random.default_rng(1)
    sample = np.clip(np.round(2.5 + rng.normal(size=2_000)), 1, 5)
    yield "known", np.full(len(log), len(log) / (N_USERS * N_ITEMS))
    yield "naive Bayes", unskew.NaiveBayesPropensity().fit(log, mcar=sample).predict(log)
    yield "popularity by item", PopularityPropensity("item").fit(log).predict(log)
    yield "popularity by both", PopularityPropensity("both").fit(log).predict(log)
    for offsets in (False, True):
        model = unskew.LogisticPropensity(
            *features, interactions="none", user_offsets=offsets, item_offsets=offsets, ridge=1.0
        )
        yield "logistic with offsets" if offsets else "logistic", model.fit(log).predict(log)


def time_calls(options: argparse.Namespace) -> dict[str, float]:
    """Milliseconds of processor time of the fastest call, by propensities and clusters."""
    import unskew

    warnings.simplefilter("ignore")
    log, features, models = draw_log(options.ratings, is_shuffled=options.shuffled)
    fastest: dict[str, float] = {}
    for name, propensities in fit_propensities(log, features):
        for label, cluster in CLUSTERS.items():
            key = f"{name}, {label}"
            if options.only not in key:
                continue
            for _ in range(options.rounds):
                start = time.process_time()
                unskew.evaluate(
                    log,
                    models,
                    propensities=propensities,
                    metrics=["mse", "mae"],
                    estimators=["naive", "ips", "snips"],
                    cluster=cluster,
                )
                seconds = time.process_time() - start
                fastest[key] = min(fastest.get(key, np.inf), 1000 * seconds)
    return fastest


def run_version(source: str, options: argparse.Namespace) -> dict[str, float]:
    """The times of the package in a folder, measured by a process of its own."""
    command = [sys.executable, __file__, "--json", "--ratings", str(options.ratings)]
    command += ["--rounds", str(options.rounds), "--only", options.only]
    command += ["--shuffled"] * options.shuffled
    environment = os.environ | {"PYTHONPATH": source}
    output = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    times: dict[str, float] = json.loads(output.stdout)
    return times


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ratings", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=5, help="calls of each process")
    parser.add_argument("--repeats", type=int, default=2, help="processes of each version")
    parser.add_argument("--only", default="", help="cases whose name has this text")
    parser.add_argument("--against", help="the folder src of another version")
    parser.add_argument("--shuffled", action="store_true", help="ratings in random order")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if options.json:
        print(json.dumps(time_calls(options)))
        return
    here = str(Path(__file__).resolve().parents[1] / "src")
    runs: dict[str, list[dict[str, float]]] = {}
    for _ in range(options.repeats):
        for source in filter(None, (options.against, here)):
            runs.setdefault(source, []).append(run_version(source, options))
    fastest = [{key: min(run[key] for run in each) for key in each[0]} for each in runs.values()]
    print("| propensities, clusters | ms | ratio |\n|---|---|---|")
    for key, now in fastest[-1].items():
        before = fastest[0][key]
        print(f"| {key} | {before:.0f}, {now:.0f} | {now / before:.2f} |")


if __name__ == "__main__":
    main()
