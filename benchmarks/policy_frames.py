"""Off-policy evaluation where the rows are, against a minimal hand-written query.

    python benchmarks/policy_frames.py [--requests 1000000] [--repeats 3]

One million requests of ten slots, 100,000 users, step probabilities, one target; IPS, SNIPS, RIPS
and SNRIPS, clustered by user. The hand-written SQL pivots the slots and adds up the same sums by
user, without any check of the rows or weights. Both read a Parquet file.
"""

from __future__ import annotations

import argparse
import resource
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import polars as pl

import unskew

K = 10
ESTIMATORS = ("ips", "snips", "rips", "snrips")


def write_log(path: Path, n_requests: int) -> None:
    """A log of uniform logging, written in parts."""
    rng = np.random.default_rng(0)
    parts = []
    for start in range(0, n_requests, 100_000):
        n = min(100_000, n_requests - start)
        step = np.broadcast_to(1 / np.arange(20, 20 - K, -1), (n, K))
        parts.append(
            pl.DataFrame(
                {
                    "request_id": np.repeat(np.arange(start, start + n), K),
                    "user_id": np.repeat(rng.integers(n_requests // 10, size=n), K),
                    "item_id": rng.integers(10_000, size=n * K),
                    "position": np.tile(np.arange(1, K + 1, dtype=np.int32), n),
                    "reward": (rng.random(n * K) < 0.1).astype(np.float64),
                    "p": step.ravel(),
                    "new": (step * rng.uniform(0.5, 1.5, (n, K))).ravel(),
                }
            )
        )
    pl.concat(parts).write_parquet(path)


def run_by_hand(path: Path) -> dict[str, float]:
    """The four values and the sums of squares by user, in SQL."""
    slots = range(1, K + 1)
    pivot = ", ".join(
        f"sum(case when position = {k} then reward else 0 end) c{k}, "
        f"sum(case when position = {k} then new / p else 0 end) w{k}"
        for k in slots
    )
    running = {k: " * ".join(f"w{j}" for j in range(1, k + 1)) for k in slots}
    reward = " + ".join(f"c{k}" for k in slots)
    rips = " + ".join(f"({running[k]}) * c{k}" for k in slots)
    by_slot = ", ".join(
        f"sum(({running[k]}) * c{k}) as n{k}, sum({running[k]}) as b{k}" for k in slots
    )
    ratios = ", ".join(f"sum(n{k}) / sum(b{k}) as s{k}, sum(n{k} * b{k}) as x{k}" for k in slots)
    query = f"""
        with requests as (select request_id, min(user_id) user_id, {pivot}
                          from '{path}' group by request_id),
             users as (select user_id, count(*) n, sum(({running[K]}) * ({reward})) ips,
                       sum({running[K]}) w, sum({rips}) rips, {by_slot}
                       from requests group by user_id)
        select sum(ips) / sum(n) ips, sum(ips) / sum(w) snips, sum(rips) / sum(n) rips,
               sum(ips * ips) v, sum(rips * rips) r, sum(w * w) q, sum(ips * w) s,
               {ratios}
        from users"""
    row = duckdb.sql(query).pl().row(0, named=True)
    return {"ips": row["ips"], "snips": row["snips"], "rips": row["rips"],
            "snrips": sum(row[f"s{k}"] for k in slots)}  # fmt: skip


def run_unskew(frame: Any) -> dict[str, float]:
    result = unskew.evaluate_policies_frame(
        frame, {"new": "new"}, probability="p", probability_is="step", estimators=ESTIMATORS
    )
    return {name: result.value("new", estimator=name).estimate for name in ESTIMATORS}


def measure(work: Callable[[], dict[str, float]], repeats: int) -> tuple[float, dict[str, float]]:
    """The median seconds, and the numbers."""
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        numbers = work()
        seconds.append(time.perf_counter() - start)
    return float(np.median(seconds)), numbers


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=1_000_000)
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "log.parquet"
        write_log(path, arguments.requests)
        works: dict[str, Callable[[], dict[str, float]]] = {
            "hand-written SQL in DuckDB": lambda: run_by_hand(path),
            "unskew, DuckDB": lambda: run_unskew(duckdb.sql(f"select * from '{path}'")),
            "unskew, polars": lambda: run_unskew(pl.scan_parquet(path)),
        }
        print("| work | seconds | ratio | snrips | peak MB |\n|---|---|---|---|---|")
        baseline = None
        for name, work in works.items():
            seconds, numbers = measure(work, arguments.repeats)
            baseline = baseline or seconds
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
            print(
                f"| {name} | {seconds:.2f} | {seconds / baseline:.2f} | {numbers['snrips']:.9f} "
                f"| {peak:,.0f} |"
            )


if __name__ == "__main__":
    main()
