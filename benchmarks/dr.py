"""Seconds and memory of doubly robust learning, relative to one weighted factorisation.

    python benchmarks/dr.py [--sizes 1M 10M] [--factors 20]

The logs are the synthetic ones of ``mf.py``. All models have the same number of factors, float32,
penalised offsets and the same tolerance. "prediction" is the factorisation of the pseudo-outcome
over all cells alone. "whole" includes the imputation, with as many factors or with 5, the default.
Each model runs in its own process, after a warm-up on a small log. Memory is what a fit adds to the
memory of the log.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Callable
from statistics import median
from time import perf_counter
from typing import Any

from mf import THREADS, make_inputs, memory_mb, reset_peak, synthetic

from unskew.factorization.objective import scaled_ridge
from unskew.factorization.penalty import Penalty
from unskew.factorization.pseudo_outcome import PseudoOutcomeSolver, make_pseudo_outcome
from unskew.factorization.solution import minimize
from unskew.models.doubly_robust import DoublyRobustFactorization
from unskew.models.imputation import imputation_weight
from unskew.models.matrix_factorization import MatrixFactorization
from unskew.threads import Workers, single_blas_thread

SETTINGS: dict[str, Any] = {"dtype": "float32", "n_threads": THREADS}
L2, TOL = 5.0, 1e-6
REPEATS = {"100K": 5, "1M": 5, "10M": 1, "25M": 1}


def weighted(inputs: Any, n_factors: int) -> tuple[float, int]:
    began = perf_counter()
    model = MatrixFactorization(n_factors, L2, tol=TOL, **SETTINGS).fit(*inputs)
    return perf_counter() - began, model.n_iter_


def whole(inputs: Any, n_factors: int, imputed_factors: int) -> tuple[float, int]:
    imputer = MatrixFactorization(
        imputed_factors, L2 * imputed_factors / n_factors, offsets="none", tol=TOL
    )
    began = perf_counter()
    model = DoublyRobustFactorization(
        n_factors, L2, imputer=imputer, penalizes="prediction", tol=TOL, **SETTINGS
    ).fit(*inputs)
    return perf_counter() - began, model.n_iter_


def prediction(inputs: Any, n_factors: int) -> tuple[float, int]:
    log, propensities = inputs
    weight, model = propensities.inverse, MatrixFactorization(n_factors, L2, tol=TOL, **SETTINGS)
    with Workers(THREADS) as workers, single_blas_thread():
        imputer = MatrixFactorization(5, L2 / 4, offsets="none", tol=TOL, **SETTINGS)
        imputed = imputer._solve(
            log, imputation_weight("dr-jl", propensities.values, log.n_cells), workers
        ).parameters
        began = perf_counter()
        target, _ = make_pseudo_outcome(
            log, weight, imputed.predict(log.user, log.item), imputed, dtype="float32"
        )
        ridge = scaled_ridge(L2, log, n_factors=n_factors, penalizes_offsets=True)
        penalty = Penalty.equal(ridge, "regularized")
        solver = PseudoOutcomeSolver(target, n_factors, "regularized", penalty, workers)
        outcome = minimize(
            solver, model._make_start(log, float(log.rating.mean())), max_iter=500, tol=TOL
        )
        return perf_counter() - began, len(outcome.history) - 1


JOBS: dict[str, Callable[[Any, int], tuple[float, int]]] = {
    "MF-IPS": weighted,
    "DR, prediction": prediction,
    "DR, whole, 5 factors imputed": lambda inputs, n_factors: whole(inputs, n_factors, 5),
    "DR, whole, as many imputed": lambda inputs, n_factors: whole(inputs, n_factors, n_factors),
}


def measure(name: str, size: str, n_factors: int) -> dict[str, Any]:
    JOBS[name](make_inputs(synthetic("100K")[0]), n_factors)
    inputs = make_inputs(synthetic(size)[0])
    before = reset_peak()
    runs = [JOBS[name](inputs, n_factors) for _ in range(REPEATS[size])]
    return {
        "seconds": median(seconds for seconds, _ in runs),
        "steps": runs[0][1],
        "added_mb": memory_mb("VmHWM") - before,
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--sizes", nargs="*", default=["1M", "10M"], choices=REPEATS)
    parser.add_argument("--factors", type=int, default=20)
    parser.add_argument("--job", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.job:
        print(json.dumps(measure(*json.loads(options.job))))
        return
    print("| log | what | steps | seconds | of MF-IPS | added MB |\n|---|---|---|---|---|---|")
    for size in options.sizes:
        first = 0.0
        for name in JOBS:
            command = [sys.executable, __file__, "--job", json.dumps([name, size, options.factors])]
            result = json.loads(
                subprocess.run(command, capture_output=True, text=True, check=True).stdout
            )
            first = first or result["seconds"]
            share = result["seconds"] / first
            print(
                f"| {size} | {name} | {result['steps']} | {result['seconds']:.2f} | {share:.2f} "
                f"| {result['added_mb']:.0f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
