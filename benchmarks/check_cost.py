"""What the checks of inputs cost: processor time of two versions of the library, in one run.

    python benchmarks/check_cost.py --before OLD/src --after src --ratings 1000000

Both versions build a log, fit five sweeps and evaluate two models, in turns; the smallest of the
repeated processor times is printed. Both must be able to read the same calls.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys

CODE = """
import json, sys, time, warnings
import numpy as np
warnings.simplefilter("ignore")
import unskew
n = int(sys.argv[1])
rng = np.random.default_rng(0)
n_users, n_items = max(n // 100, 100), max(n // 500, 100)
cell = np.unique(rng.integers(0, n_users * n_items, n))
rating = rng.integers(1, 6, cell.size).astype(float)
user, item = cell // n_items, cell % n_items
p = np.full(cell.size, 0.1)
models = {"a": np.full(cell.size, 3.0), "b": rating * 0.5}

def build():
    return unskew.Ratings.from_codes(user, item, rating, shape=(n_users, n_items))

def fit(log):
    unskew.MatrixFactorization(20, 1.0, max_iter=5, tol=0.0, n_threads=1).fit(log, p)

def evaluate(log):
    unskew.evaluate(log, models, propensities=p, metrics=["mse", "mae"])

small = unskew.Ratings.from_codes([0, 1], [0, 1], [1.0, 2.0], shape=(2, 2))
unskew.MatrixFactorization(20, 1.0, max_iter=1, n_threads=1).fit(small, [0.5, 0.5])
unskew.evaluate(small, np.ones(2), propensities=[0.5, 0.5], metrics=["mse"])
times, log = {}, build()
steps = {"build": build, "fit": lambda: fit(log), "evaluate": lambda: evaluate(log)}
for name, call in steps.items():
    start = time.process_time()
    call()
    times[name] = time.process_time() - start
print(json.dumps(times))
"""


def run(source: str, n_ratings: int) -> dict[str, float]:
    """The processor seconds of each step with the library of a folder."""
    done = subprocess.run(
        [sys.executable, "-c", CODE, str(n_ratings)],
        env=os.environ | {"PYTHONPATH": source},
        capture_output=True,
        text=True,
        check=True,
    )
    times: dict[str, float] = json.loads(done.stdout)
    return times


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--before", required=True)
    parser.add_argument("--after", required=True)
    parser.add_argument("--ratings", type=int, default=1_000_000)
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    results: dict[str, list[dict[str, float]]] = {"before": [], "after": []}
    for _ in range(options.repeats):
        for name, source in (("before", options.before), ("after", options.after)):
            results[name].append(run(source, options.ratings))
    print(f"| {options.ratings:,} ratings | before (s) | after (s) | ratio |\n|---|---|---|---|")
    for step in results["before"][0]:
        before, after = (min(each[step] for each in results[name]) for name in results)
        print(f"| {step} | {before:.3f} | {after:.3f} | {after / before:.3f} |", flush=True)


if __name__ == "__main__":
    main()
