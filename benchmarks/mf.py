"""Weighted matrix factorisation compared with other libraries: time, objective, error and memory.

    python benchmarks/mf.py                         all sizes and numbers of factors (an hour, 6 GB)
    python benchmarks/mf.py --sizes 1M --factors 20
    python benchmarks/mf.py --only race             cmfrec alone, and ours to its objective
    python benchmarks/mf.py --only dense            the method of the authors, at ML-100K size
    python benchmarks/mf.py --only kernel           the row solver against the matrix product

Synthetic long-tail logs with weights 1/P. Libraries that can minimise it get the same objective,
without offsets, on centred ratings:

    sum over the log of w (y - v.w)^2 + ridge (||V||^2 + ||W||^2)

A rival runs a fixed number of sweeps; ours is then timed to the first step at which its objective
is no higher. Large fits have one rival only. Each fit runs in its own process, after a warm-up fit
of a small log. cmfrec gets the log sorted by item: with any other order version 3.5.1 applies
weights to the wrong ratings in every other half-sweep, and its objective rises. implicit and
scikit-surprise have no weights per rating (implicit has confidences of clicks), so only their time
and held-out error can be compared.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from ctypes import CDLL
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np

SIZES = {
    "100K": (943, 1_682, 100_000),
    "1M": (6_000, 4_000, 1_000_000),
    "10M": (70_000, 10_000, 10_000_000),
    "25M": (160_000, 40_000, 25_000_000),
}
REPEATS = {"100K": 5, "1M": 5, "10M": 1, "25M": 1}
"""Number of fits, of ours and of cmfrec, whose median time is reported."""
LARGE = 300_000_000
"""Larger products of ratings and factors are compared with one rival only."""
L2 = 5.0
THREADS = len(os.sched_getaffinity(0))


@dataclass(frozen=True)
class Log:
    n_users: int
    n_items: int
    user: np.ndarray
    item: np.ndarray
    rating: np.ndarray
    """Centred."""
    weight: np.ndarray
    """Scaled to add up to U * I."""

    def ridge(self, n_factors: int) -> float:
        """The ridge of MatrixFactorization for L2."""
        return L2 * self.n_users * self.n_items / (self.n_users + self.n_items) / n_factors

    def objective(self, user_factors: np.ndarray, item_factors: np.ndarray) -> float:
        n_factors = user_factors.shape[1]
        penalty = sum(
            float(np.square(part, dtype=np.float64).sum()) for part in (user_factors, item_factors)
        )
        error = self.rating - predicted(self, user_factors, item_factors)
        return float(self.weight @ np.square(error)) + self.ridge(n_factors) * penalty


def predicted(log: Log, user_factors: np.ndarray, item_factors: np.ndarray) -> np.ndarray:
    blocks = (slice(first, first + 1_000_000) for first in range(0, log.user.size, 1_000_000))
    return np.concatenate(
        [
            np.einsum("kd,kd->k", user_factors[log.user[block]], item_factors[log.item[block]])
            for block in blocks
        ]
    )


def synthetic(size: str, *, extra: float = 1.1) -> tuple[Log, Log]:
    """A log, and a held-out log of a tenth of its size from the same distribution."""
    n_users, n_items, n = SIZES[size]
    rng = np.random.default_rng(0)
    activity, popularity = (
        rng.permutation(np.arange(1, size + 1.0) ** -power)
        for size, power in ((n_users, 0.5), (n_items, 0.7))
    )
    cells = np.empty(0, np.int64)
    while cells.size < extra * n:
        user, item = (
            rng.choice(share.size, n // 2, p=share / share.sum())
            for share in (activity, popularity)
        )
        cells = np.unique(np.concatenate([cells, user * np.int64(n_items) + item]))
    cells = rng.permutation(cells)[: int(extra * n)]
    user, item = (cells // n_items).astype(np.int32), (cells % n_items).astype(np.int32)
    taste, trait = (rng.normal(0, 0.4, (size, 8)) for size in (n_users, n_items))
    noise = rng.normal(0, 0.7, cells.size)
    noise += rng.normal(0, 0.4, n_users)[user] + rng.normal(0, 0.4, n_items)[item] + 3.3
    drawn = Log(n_users, n_items, user, item, noise, noise)
    rating = np.clip(np.round(noise + predicted(drawn, taste, trait)), 1, 5)
    weight = np.exp(-0.5 * rating)
    parts = []
    for rows in (slice(0, n), slice(n, None)):
        scaled = weight[rows] * (n_users * n_items / weight[rows].sum())
        parts.append(
            Log(
                n_users,
                n_items,
                user[rows].copy(),
                item[rows].copy(),
                rating[rows] - rating[:n].mean(),
                scaled,
            )
        )
    return parts[0], parts[1]


def weighted_mse(log: Log, user_factors: np.ndarray, item_factors: np.ndarray) -> float:
    return float(
        np.average(
            np.square(log.rating - predicted(log, user_factors, item_factors)), weights=log.weight
        )
    )


def memory_mb(what: str) -> float:
    """VmRSS is the memory of this process now, VmHWM its peak since :func:`reset_peak`."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(what))


def reset_peak() -> float:
    """Return free memory to the system and reset the peak. Returns the memory in use now."""
    CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")
    return memory_mb("VmRSS")


def make_inputs(log: Log) -> tuple[Any, Any]:
    """Ratings and their propensities, the inputs of a fit."""
    import unskew

    ratings = unskew.Ratings.from_codes(
        log.user, log.item, log.rating, shape=(log.n_users, log.n_items)
    )
    return ratings, unskew.Propensities(1 / log.weight)


def fit_ours(
    inputs: tuple[Any, Any], n_factors: int, dtype: str, *, max_iter: int, solver: str
) -> tuple[Any, float]:
    import unskew

    model = unskew.MatrixFactorization(
        n_factors,
        L2,
        offsets="none",
        dtype=dtype,
        solver=solver,
        max_iter=max_iter,
        tol=1e-7,
        n_threads=THREADS,
    )
    began = perf_counter()
    model.fit(*inputs)
    return model, perf_counter() - began


def ours(size: str, n_factors: int, dtype: str, solver: str, max_iter: int) -> dict[str, Any]:
    fit_ours(make_inputs(synthetic("100K")[0]), n_factors, dtype, max_iter=2, solver=solver)
    inputs = make_inputs(synthetic(size)[0])
    before = reset_peak()
    model, first = fit_ours(inputs, n_factors, dtype, max_iter=max_iter, solver=solver)
    peak, result = memory_mb("VmHWM"), model.factors_
    again = [
        fit_ours(inputs, n_factors, dtype, max_iter=max_iter, solver=solver)[1]
        for _ in range(REPEATS[size] - 1)
    ]
    seconds = median([first, *again])
    log, held_out = synthetic(size)
    return {
        "seconds": seconds,
        "objective": log.objective(result.user_factors, result.item_factors),
        "steps": model.n_iter_,
        "held_out": weighted_mse(held_out, result.user_factors, result.item_factors),
        "peak_mb": peak,
        "added_mb": peak - before,
    }


def steps_to(size: str, n_factors: int, dtype: str, solver: str, goal: float) -> int:
    """The first step after which our objective is no higher than ``goal``."""
    inputs = make_inputs(synthetic(size)[0])
    for most in (12, 25, 50, 100):
        model, _ = fit_ours(inputs, n_factors, dtype, max_iter=most, solver=solver)
        below = np.flatnonzero(np.array(model.history_) <= goal)
        if below.size:
            return max(1, int(below[0]))
    return most


def cmfrec(size: str, n_factors: int, n_sweeps: int, use_cg: bool) -> dict[str, Any]:
    import scipy.sparse
    from cmfrec import CMF

    log, _ = synthetic(size)
    ridge, order = log.ridge(n_factors), np.lexsort((log.user, log.item))
    user, item, rating, weight = (
        part[order] for part in (log.user, log.item, log.rating, log.weight)
    )
    entries = scipy.sparse.coo_matrix(
        (rating.astype(np.float32), (user, item)), shape=(log.n_users, log.n_items)
    )
    weight32 = weight.astype(np.float32)
    del log, order, user, item, rating, weight
    settings = {
        "center": False,
        "user_bias": False,
        "item_bias": False,
        "precompute_for_predictions": False,
    }
    model = CMF(
        n_factors,
        ridge,
        niter=n_sweeps,
        use_cg=use_cg,
        nthreads=THREADS,
        use_float=True,
        verbose=False,
        **settings,
    )
    before, times = reset_peak(), []
    for _ in range(REPEATS[size]):
        began = perf_counter()
        model.fit(entries, W=weight32)
        times.append(perf_counter() - began)
    seconds, peak = median(times), memory_mb("VmHWM")
    log, held_out = synthetic(size)
    return {
        "seconds": seconds,
        "objective": log.objective(model.A_, model.B_),
        "steps": n_sweeps,
        "held_out": weighted_mse(held_out, model.A_, model.B_),
        "peak_mb": peak,
        "added_mb": peak - before,
    }


def implicit(size: str, n_factors: int, n_sweeps: int) -> dict[str, Any]:
    import scipy.sparse
    from implicit.als import AlternatingLeastSquares

    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    log, _ = synthetic(size)
    entries = scipy.sparse.csr_matrix(
        (log.weight.astype(np.float32), (log.user, log.item)), shape=(log.n_users, log.n_items)
    )
    model = AlternatingLeastSquares(
        n_factors, iterations=n_sweeps, num_threads=THREADS, use_gpu=False
    )
    before, began = reset_peak(), perf_counter()
    model.fit(entries, show_progress=False)
    seconds, peak = perf_counter() - began, memory_mb("VmHWM")
    return {"seconds": seconds, "steps": n_sweeps, "peak_mb": peak, "added_mb": peak - before}


def surprise(size: str, n_factors: int, n_sweeps: int) -> dict[str, Any]:
    import pandas
    from surprise import SVD, Dataset, Reader

    log, held_out = synthetic(size)
    frame = pandas.DataFrame({"user": log.user, "item": log.item, "rating": log.rating})
    trainset = Dataset.load_from_df(frame, Reader(rating_scale=(-4, 4))).build_full_trainset()
    model = SVD(n_factors=n_factors, n_epochs=n_sweeps, biased=False)
    before, began = reset_peak(), perf_counter()
    model.fit(trainset)
    seconds, peak = perf_counter() - began, memory_mb("VmHWM")
    users, items = np.zeros((log.n_users, n_factors)), np.zeros((log.n_items, n_factors))
    users[[trainset.to_raw_uid(u) for u in range(trainset.n_users)]] = model.pu
    items[[trainset.to_raw_iid(i) for i in range(trainset.n_items)]] = model.qi
    held = weighted_mse(held_out, users, items)
    return {
        "seconds": seconds,
        "steps": n_sweeps,
        "held_out": held,
        "peak_mb": peak,
        "added_mb": peak - before,
    }


def dense(kind: str) -> dict[str, Any]:
    """The method of the authors: each evaluation of the objective goes over the whole matrix.

    L-BFGS from small random factors, d = 20.
    """
    from scipy.optimize import minimize

    log, _ = synthetic("100K")
    number = np.longdouble if kind == "longdouble" else np.float64
    rating, weight = (np.zeros((log.n_users, log.n_items), number) for _ in range(2))
    rating[log.user, log.item], weight[log.user, log.item] = log.rating, log.weight
    ridge, cut = log.ridge(20), log.n_users * 20

    def objective(flat: np.ndarray) -> tuple[float, np.ndarray]:
        users, items = (
            flat[:cut].reshape(-1, 20).astype(number),
            flat[cut:].reshape(-1, 20).astype(number),
        )
        error = users @ items.T - rating
        residual_gradient = 2 * weight * error
        value = (weight * error * error).sum() + ridge * (
            (users * users).sum() + (items * items).sum()
        )
        gradient = np.concatenate(
            [
                (residual_gradient @ items + 2 * ridge * users).ravel(),
                (residual_gradient.T @ users + 2 * ridge * items).ravel(),
            ]
        )
        return float(value), gradient.astype(np.float64)

    start = np.random.default_rng(0).normal(0, 0.1, cut + log.n_items * 20)
    before, began = reset_peak(), perf_counter()
    result = minimize(
        objective,
        start,
        jac=True,
        method="L-BFGS-B",
        options={"maxiter": 2000, "maxcor": 50, "ftol": 1e-5, "gtol": 1e-5},
    )
    seconds, peak = perf_counter() - began, memory_mb("VmHWM")
    memory = {"peak_mb": peak, "added_mb": peak - before}
    return {"seconds": seconds, "objective": float(result.fun), "steps": int(result.nfev), **memory}


def kernel() -> list[dict[str, Any]]:
    """GFLOP/s of one thread in the row solver and in a matrix product.

    Gram matrices and solutions of all users are counted as n (d + 2)(d + 3) operations.
    """
    from threadpoolctl import threadpool_limits

    from unskew.kernels.rows import entry_type, padded_zeros, solve_rows

    log, _ = synthetic("1M")
    order = np.argsort(log.user, kind="stable")
    starts = np.concatenate([[0], np.cumsum(np.bincount(log.user, minlength=log.n_users))]).astype(
        np.int64
    )
    rows = []
    for dtype in ("float32", "float64"):
        square = np.random.default_rng(0).normal(size=(1500, 1500)).astype(dtype)
        number, lanes = np.dtype(dtype).type, 32 // np.dtype(dtype).itemsize
        entries = np.empty(log.user.size, entry_type(dtype, log.n_items))
        entries["opposite"], entries["root_weight"], entries["rating"] = (
            log.item[order],
            np.sqrt(log.weight[order]),
            log.rating[order],
        )
        for n_factors in (20, 64):
            opposite_rows, solutions = (
                padded_zeros(n, n_factors + 2, dtype) for n in (log.n_items, log.n_users)
            )
            opposite_rows[:, :n_factors] = np.random.default_rng(1).normal(
                size=(log.n_items, n_factors)
            )
            opposite_rows[:, n_factors] = 1
            shared, ridge = np.empty((0, 0), dtype), np.ones(n_factors + 1, dtype)
            penalty_scale, minima = np.ones(log.n_users, dtype), np.zeros(log.n_users)
            arguments = (
                (starts, entries),
                number(0),
                opposite_rows,
                shared,
                ridge,
                penalty_scale,
                lanes,
                (0, 10**9),
            )
            times: dict[str, list[float]] = {"kernel": [], "product": []}
            with threadpool_limits(1):
                for _ in range(9):
                    began = perf_counter()
                    solve_rows((0, log.n_users), *arguments, solutions, minima)
                    times["kernel"].append(perf_counter() - began)
                    began = perf_counter()
                    square @ square
                    times["product"].append(perf_counter() - began)
            ours = (
                log.user.size
                * (n_factors + 2)
                * (n_factors + 3)
                / np.median(times["kernel"][1:])
                / 1e9
            )
            product = 2 * 1500**3 / np.median(times["product"][1:]) / 1e9
            rows.append(
                {
                    "dtype": dtype,
                    "factors": n_factors,
                    "kernel": ours,
                    "product": product,
                    "ratio": ours / product,
                }
            )
    return rows


JOBS = {
    "ours": ours,
    "steps_to": steps_to,
    "cmfrec": cmfrec,
    "implicit": implicit,
    "surprise": surprise,
    "dense": dense,
    "kernel": kernel,
}


def run_in_process(name: str, *arguments: Any) -> Any:
    command = [sys.executable, __file__, "--job", json.dumps([name, *arguments])]
    process = subprocess.run(command, capture_output=True, text=True, check=False)
    if process.returncode:
        return {"seconds": float("nan"), "failed": process.stderr.strip().splitlines()[-1:]}
    return json.loads(process.stdout)


def print_row(*cells: object) -> None:
    print(
        "| "
        + " | ".join(f"{cell:.4g}" if isinstance(cell, float) else f"{cell}" for cell in cells)
        + " |",
        flush=True,
    )


def show(size: str, n_factors: int, name: str, result: dict[str, Any], ratio: object = "") -> None:
    values = (
        result.get(key, "")
        for key in ("steps", "seconds", "objective", "held_out", "peak_mb", "added_mb")
    )
    print_row(size, n_factors, name, *values, ratio)


def show_race(size: str, n_factors: int, dtype: str, solver: str, rival: dict[str, Any]) -> None:
    steps = run_in_process("steps_to", size, n_factors, dtype, solver, rival["objective"])
    mine = run_in_process("ours", size, n_factors, dtype, solver, steps)
    show(
        size,
        n_factors,
        f"unskew {solver} {dtype}, to that objective",
        mine,
        rival["seconds"] / mine["seconds"],
    )


def race(size: str, n_factors: int) -> None:
    """cmfrec, and ours to the objective that it reached."""
    rivals = [
        ("CG, 10 sweeps", 10, True),
        ("Cholesky, 10 sweeps", 10, False),
        ("Cholesky, 20 sweeps", 20, False),
    ]
    large = SIZES[size][2] * n_factors > LARGE
    for label, n_sweeps, use_cg in rivals[:1] if large else rivals:
        rival = run_in_process("cmfrec", size, n_factors, n_sweeps, use_cg)
        show(size, n_factors, f"cmfrec {label}", rival)
        show_race(size, n_factors, "float32", "als", rival)


def compare(size: str, n_factors: int) -> None:
    large = SIZES[size][2] * n_factors > LARGE
    if find_spec("cmfrec"):
        race(size, n_factors)
    for dtype in ("float32",) if large else ("float32", "float64"):
        show(
            size,
            n_factors,
            f"unskew {dtype}, to convergence",
            run_in_process("ours", size, n_factors, dtype, "als", 300),
        )
    if find_spec("implicit") and not large:
        show(
            size,
            n_factors,
            "implicit (other objective)",
            run_in_process("implicit", size, n_factors, 15),
        )
    if find_spec("surprise") and size in ("100K", "1M"):
        show(
            size,
            n_factors,
            "scikit-surprise (no weights)",
            run_in_process("surprise", size, n_factors, 20),
        )


def compare_dense() -> None:
    for kind in ("float64", "longdouble"):
        rival = run_in_process("dense", kind)
        show("100K", 20, f"dense {kind} L-BFGS", rival)
        show_race("100K", 20, "float64", "als", rival)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--sizes", nargs="*", default=list(SIZES), choices=SIZES)
    parser.add_argument("--factors", nargs="*", type=int, default=[20, 64])
    parser.add_argument("--only", choices=["libraries", "race", "dense", "kernel"])
    parser.add_argument("--job", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.job:
        name, *arguments = json.loads(options.job)
        print(json.dumps(JOBS[name](*arguments)))
        return
    if options.only in (None, "kernel"):
        print_row("dtype", "factors", "kernel GFLOP/s", "product GFLOP/s", "ratio")
        print_row(*["---"] * 5)
        for row in run_in_process("kernel"):
            print_row(*row.values())
        print()
    if options.only != "kernel":
        print_row(
            "log",
            "factors",
            "what",
            "steps",
            "seconds",
            "objective",
            "held-out MSE",
            "peak MB",
            "added MB",
            "rival / ours",
        )
        print_row(*["---"] * 10)
    if options.only in (None, "dense"):
        compare_dense()
    if options.only in (None, "libraries", "race"):
        for size in options.sizes:
            for n_factors in options.factors:
                (race if options.only == "race" else compare)(size, n_factors)


if __name__ == "__main__":
    main()
