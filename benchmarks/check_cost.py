"""What the checks of inputs cost: processor time of two versions of the library, in one run.

    python benchmarks/check_cost.py --before OLD/src --after src --ratings 1000000

Both versions build a log, fit five sweeps and evaluate two models, in turns; the smallest of the
repeated processor times is printed. Both must be able to read the same calls.

    python benchmarks/check_cost.py --after src --ratings 10000000

Without an older version, the steps run once with clocks around the functions that check inputs, and
the processor time of a step is divided by that without its checks. Two versions differ in other
things than checks; this tells the checks alone.

    python benchmarks/check_cost.py --after src --in-turns

evaluates with and without the checks of each value of propensities and predictions, in turns in one
process. Clocks also count the time to fetch an array from memory, which what follows then saves.
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
CHECKERS = ("unskew.data.checks", "unskew.settings", "unskew.memory")
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

spent, depth = [0.0], [0]

def clock(check):
    def run(*args, **named):
        depth[0] += 1
        start = time.process_time()
        try:
            return check(*args, **named)
        finally:
            depth[0] -= 1
            if depth[0] == 0:
                spent[0] += time.process_time() - start
    return run

if sys.argv[2] == "clocks":
    import importlib, pkgutil
    modules = [
        importlib.import_module(each.name)
        for each in pkgutil.walk_packages(unskew.__path__, "unskew.")
        if not any(part in each.name for part in ("engines", "__main__", "paper"))
    ]
    for module in modules:
        for name, thing in list(vars(module).items()):
            owner = getattr(thing, "__module__", "") or ""
            is_check = owner in CHECKERS or name.lstrip("_").startswith(("require_", "check_"))
            if is_check and owner.startswith("unskew.") and type(thing).__name__ == "function":
                setattr(module, name, clock(thing))

small = unskew.Ratings.from_codes([0, 1], [0, 1], [1.0, 2.0], shape=(2, 2))
unskew.MatrixFactorization(20, 1.0, max_iter=1, n_threads=1).fit(small, [0.5, 0.5])
unskew.evaluate(small, np.ones(2), propensities=[0.5, 0.5], metrics=["mse"])
times, log = {}, build()
steps = {"build": build, "fit": lambda: fit(log), "evaluate": lambda: evaluate(log)}
for name, call in steps.items():
    start, spent[0] = time.process_time(), 0.0
    call()
    times[name] = time.process_time() - start
    times[name + " without checks"] = times[name] - spent[0]
print(json.dumps(times))
"""


IN_TURNS = """
import unskew.data.propensities, unskew.evaluation.predictions
places = (
    (unskew.evaluation.predictions, "_require_all", lambda name, values, log: values),
    (unskew.data.propensities, "_require_valid", lambda *_: None),
)
checks = [getattr(module, name) for module, name, _ in places]
log = build()
spent = {"after": [], "without checks": []}
evaluate(log)
for turn in range(40):
    for version in sorted(spent, reverse=bool(turn % 2)):
        for (module, name, nothing), check in zip(places, checks):
            setattr(module, name, check if version == "after" else nothing)
        start = time.process_time()
        evaluate(log)
        spent[version].append(time.process_time() - start)
with_checks, without = min(spent["after"]), min(spent["without checks"])
print(json.dumps({"evaluate": with_checks, "evaluate without checks": without}))
"""


def run(source: str, n_ratings: int, mode: str = "plain") -> dict[str, float]:
    """The processor seconds of each step with the library of a folder."""
    code = CODE.partition("small = ")[0] + IN_TURNS if mode == "in turns" else CODE
    done = subprocess.run(
        [sys.executable, "-c", code, str(n_ratings), mode],
        env=os.environ | {"PYTHONPATH": source},
        capture_output=True,
        text=True,
        check=True,
    )
    times: dict[str, float] = json.loads(done.stdout)
    return times


STEPS = ("build", "fit", "evaluate")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--before")
    parser.add_argument("--after", required=True)
    parser.add_argument("--ratings", type=int, default=1_000_000)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--in-turns", action="store_true")
    options = parser.parse_args()
    if options.in_turns:
        times = run(options.after, options.ratings, "in turns")
        before, after = times["evaluate without checks"], times["evaluate"]
        print(f"evaluate: {after:.4f} s, without checks {before:.4f} s, ratio {after / before:.4f}")
        return
    sources = {"before": options.before, "after": options.after}
    results: dict[str, list[dict[str, float]]] = {"before": [], "after": []}
    for _ in range(options.repeats):
        if options.before is None:
            results["after"].append(run(options.after, options.ratings, "clocks"))
            continue
        for name, source in sources.items():
            results[name].append(run(source, options.ratings))
    without = "before" if options.before else "without checks"
    print(f"| {options.ratings:,} ratings | {without} (s) | after (s) | ratio |\n|---|---|---|---|")
    for step in STEPS:
        if options.before is None:
            shortest = min(results["after"], key=lambda each: each[step])
            before, after = shortest[f"{step} without checks"], shortest[step]
        else:
            before, after = (min(each[step] for each in results[name]) for name in sources)
        print(f"| {step} | {before:.3f} | {after:.3f} | {after / before:.3f} |", flush=True)


if __name__ == "__main__":
    main()
