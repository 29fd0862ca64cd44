"""Positions of logged cells among all items, compared with the bare matrix product of the scores.

    python benchmarks/ranking.py            all sizes
    python benchmarks/ranking.py --size small --repeats 9

Each size runs in its own process. Its peak memory includes the log, the factors and the compiler,
but never a U x I array. Times are medians of interleaved repeats, after one warm-up of each.
Compare ratios within one run, not seconds. The rows "without seen items" exclude as many items of
each user as the log has, drawn at random; the last column compares them with the same work on all
items.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from statistics import median
from threading import local
from time import perf_counter

import numpy as np
from threadpoolctl import ThreadpoolController

from unskew.data.factors import Factors
from unskew.ranking.candidates import Candidates
from unskew.ranking.positions import BLOCK_CELLS, compute_positions

SIZES = {
    "small": (6_000, 4_000, 1_000_000),
    "large": (70_000, 10_000, 10_000_000),
    "wide": (100_000, 20_000, 10_000_000),
}
N_FACTORS, TOP = 20, 50


def synthetic(n_users: int, n_items: int, n_cells: int) -> tuple[np.ndarray, np.ndarray, Factors]:
    """A log in random order and the factors that score it."""
    rng = np.random.default_rng(0)
    user = rng.integers(n_users, size=n_cells, dtype=np.int32)
    item = rng.integers(n_items, size=n_cells, dtype=np.int32)
    shapes = ((n_users, N_FACTORS), (n_items, N_FACTORS))
    return user, item, Factors(*(rng.standard_normal(shape, dtype=np.float32) for shape in shapes))


def bare_product(factors: Factors, item_side: np.ndarray, blas: ThreadpoolController) -> None:
    """Compute all scores with the same blocks and threads, in reused memory, and drop them."""
    n_rows = BLOCK_CELLS // factors.n_items
    memory = local()

    def product(start: int) -> None:
        if not hasattr(memory, "block"):
            memory.block = np.empty((n_rows, factors.n_items), np.float32)
        users = factors.user_factors[start : start + n_rows]
        np.matmul(users, item_side, out=memory.block[: len(users)])

    with blas.limit(limits=1, user_api="blas"), ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(product, range(0, factors.n_users, n_rows)))


def seconds(run: Callable[[], object]) -> float:
    start = perf_counter()
    run()
    return perf_counter() - start


def exclude_at_random(user: np.ndarray, item: np.ndarray, n_users: int, n_items: int) -> Candidates:
    """Other items of each user than those of the log, about as many."""
    rng = np.random.default_rng(1)
    cells = np.unique(user.astype(np.int64) * n_items + rng.integers(n_items, size=item.size))
    starts = np.append(0, np.cumsum(np.bincount(cells // n_items, minlength=n_users)))
    return Candidates(n_users, n_items, hidden=(starts, (cells % n_items).astype(np.int32)))


def of_all(name: str, taken: list[dict[str, float]]) -> str:
    """The time without seen items over the time with all items; empty for other work."""
    all_items = name.removesuffix(" without seen items")
    if all_items == name:
        return ""
    return f"{median(times[name] / times[all_items] for times in taken):.2f}"


def peak_megabytes() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def measure(size: str, repeats: int) -> None:
    n_users, n_items, n_cells = SIZES[size]
    user, item, factors = synthetic(n_users, n_items, n_cells)
    item_side, blas = np.ascontiguousarray(factors.item_factors.T), ThreadpoolController()
    runs: dict[str, Callable[[], object]] = {
        "bare block GEMM": lambda: bare_product(factors, item_side, blas),
        f"top-{TOP} positions": lambda: compute_positions(
            user, item, n_users, n_items, factors, top=TOP
        ),
        "exact positions": lambda: compute_positions(user, item, n_users, n_items, factors),
    }
    seen = exclude_at_random(user, item, n_users, n_items)
    kept = seen.contain(user, item)
    kept_user, kept_item = user[kept], item[kept]
    for name, top in ((f"top-{TOP} positions", TOP), ("exact positions", None)):
        runs[f"{name} without seen items"] = lambda top=top: compute_positions(
            kept_user, kept_item, n_users, n_items, factors, top=top, candidates=seen
        )
    before = peak_megabytes()
    peaks = {}
    for name, run in runs.items():
        run()
        peaks[name] = peak_megabytes()
    product = "bare block GEMM"
    taken = [{name: seconds(run) for name, run in runs.items()} for _ in range(repeats)]
    for name in runs:
        ratio = median(times[product] / times[name] for times in taken)
        print(
            f"| {n_users:,} x {n_items:,}, {n_cells:,} cells | {name} "
            f"| {median(times[name] for times in taken):.3f} | {ratio:.2f} "
            f"| {before:.0f} | {peaks[name]:.0f} | {of_all(name, taken)} |",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--size", choices=SIZES, help="measure one size in this process")
    parser.add_argument("--repeats", type=int, default=7)
    arguments = parser.parse_args()
    if arguments.size:
        measure(arguments.size, arguments.repeats)
        return
    print(
        "| log | work | seconds | GEMM time / ours | MB before | peak MB | time / all items |\n"
        + "|---" * 7
        + "|",
        flush=True,
    )
    for size in SIZES:
        subprocess.run(
            [sys.executable, __file__, "--size", size, "--repeats", str(arguments.repeats)],
            check=True,
        )


if __name__ == "__main__":
    main()
