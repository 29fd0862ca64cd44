"""Off-policy evaluation where the rows are, against a hand-written query.

    python benchmarks/policy_frames.py [--requests 1000000] [--rounds 3] [--folder FOLDER]

One million requests of ten slots, 100,000 users, step probabilities, one target policy; IPS, SNIPS,
RIPS and SNRIPS with standard errors by user, also of the differences from the logged policy. The
hand-written SQL pivots the slots, adds up by user, and computes the errors from the sums of users.
It knows that every request has ten slots and checks nothing, neither rows nor weights. All read one
Parquet file. Each contender has a process of its own, which runs once to warm up; contenders take
turns. Times are medians over rounds, memory is the peak of the process.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import median
from time import perf_counter, process_time
from typing import Any

import numpy as np

K = 10
SLOTS = range(1, K + 1)
ESTIMATORS = ("ips", "snips", "rips", "snrips")


def write_log(path: Path, n_requests: int) -> None:
    """A log of uniform logging, written in row groups of a million rows."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    rng = np.random.default_rng(0)
    writer = None
    for start in range(0, n_requests, 100_000):
        n = min(100_000, n_requests - start)
        step = np.broadcast_to(1 / np.arange(20, 20 - K, -1), (n, K))
        table = pa.table(
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
        writer = writer or pq.ParquetWriter(path, table.schema)
        writer.write_table(table)
    if writer is not None:
        writer.close()


def write_query(path: Path) -> str:
    """Estimates, standard errors, and those of differences from the logged policy, in SQL."""
    pivot = ", ".join(
        f"sum(case when position = {k} then reward else 0 end) c{k}, "
        f"sum(case when position = {k} then new / p else 0 end) w{k}"
        for k in SLOTS
    )
    running = ", ".join(" * ".join(f"w{j}" for j in range(1, k + 1)) + f" o{k}" for k in SLOTS)
    reward = " + ".join(f"c{k}" for k in SLOTS)
    rips = " + ".join(f"o{k} * c{k}" for k in SLOTS)
    by_slot = ", ".join(f"sum(o{k} * c{k}) n{k}, sum(o{k}) b{k}" for k in SLOTS)
    sums = ["n", "logged", "ips", "w", "rips", *(f"{x}{k}" for k in SLOTS for x in "nb")]
    totals = ", ".join(f"sum({name}) t_{name}" for name in sums)
    errors = {
        "logged": "(logged - t_logged / t_n * n) / t_n",
        "ips": "(ips - t_ips / t_n * n) / t_n",
        "snips": "(ips - t_ips / t_w * w) / t_w",
        "rips": "(rips - t_rips / t_n * n) / t_n",
        "snrips": " + ".join(f"(n{k} - t_n{k} / t_b{k} * b{k}) / t_b{k}" for k in SLOTS),
    }
    influences = ", ".join(f"{error} e_{name}" for name, error in errors.items())
    spread = "sqrt(count(*) / (count(*) - 1) * sum(({0}) * ({0})))"
    results = ", ".join(
        f"{spread.format('e_' + name)} se_{name}, "
        f"{spread.format(f'e_{name} - e_logged')} se_difference_{name}"
        for name in ESTIMATORS
    )
    snrips = " + ".join(f"t_n{k} / t_b{k}" for k in SLOTS)
    return f"""
        with requests as (select request_id, min(user_id) user_id, {pivot}
                          from '{path}' group by request_id),
             products as (select *, {running} from requests),
             users as materialized (
                 select user_id, count(*) n, sum({reward}) logged, sum(o{K} * ({reward})) ips,
                        sum(o{K}) w, sum({rips}) rips, {by_slot}
                 from products group by user_id),
             totals as (select {totals} from users),
             errors as (select {influences} from users, totals)
        select any_value(t_ips / t_n) ips, any_value(t_ips / t_w) snips,
               any_value(t_rips / t_n) rips, any_value({snrips}) snrips, {results}
        from errors, totals"""


def run_by_hand(path: Path) -> dict[str, float]:
    import duckdb

    result = duckdb.sql(write_query(path))
    return dict(zip(result.columns, result.fetchall()[0], strict=True))


def run_unskew(frame: Any) -> dict[str, float]:
    import unskew

    result = unskew.evaluate_policies_frame(
        frame, {"new": "new"}, probability="p", probability_is="step", estimators=ESTIMATORS
    )
    numbers = {}
    for name in ESTIMATORS:
        value = result.value("new", estimator=name)
        numbers[name], numbers[f"se_{name}"] = value.estimate, value.std_error
        difference = result.compare("new", estimator=name)
        numbers[f"se_difference_{name}"] = difference.std_error
    return numbers


def run_duckdb(path: Path) -> dict[str, float]:
    import duckdb

    return run_unskew(duckdb.read_parquet(str(path)))


def run_polars(path: Path) -> dict[str, float]:
    import polars as pl

    return run_unskew(pl.scan_parquet(path))


CONTENDERS: Mapping[str, Callable[[Path], dict[str, float]]] = {
    "hand-written SQL in DuckDB": run_by_hand,
    "unskew, DuckDB": run_duckdb,
    "unskew, polars": run_polars,
}


def measure(contender: str, path: Path) -> None:
    """Run once for each line of input, and write the measurements."""
    for _ in sys.stdin:
        start, cpu = perf_counter(), process_time()
        numbers = CONTENDERS[contender](path)
        seconds, cpu = perf_counter() - start, process_time() - cpu
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(json.dumps([seconds, cpu, peak, numbers]), flush=True)


def start(contender: str, path: Path) -> subprocess.Popen[str]:
    command = [sys.executable, __file__, "--measure", contender, "--folder", str(path)]
    return subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
    )


def ask(process: subprocess.Popen[str]) -> Any:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write("run\n")
    return json.loads(process.stdout.readline())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--measure", choices=CONTENDERS, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure:
        measure(arguments.measure, arguments.folder)
        return
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        path = Path(folder) / "log.parquet"
        write_log(path, arguments.requests)
        processes = {name: start(name, path) for name in CONTENDERS}
        rounds: dict[str, list[Any]] = {name: [] for name in CONTENDERS}
        for number in range(arguments.rounds + 1):
            for name, process in processes.items():
                measured = ask(process)
                if number:
                    rounds[name].append(measured)
        for process in processes.values():
            process.communicate()
    print_table(rounds)


def print_table(rounds: Mapping[str, list[Any]]) -> None:
    print("| work | seconds | ratio | processor seconds | ratio | peak MB | largest difference |")
    print("|---|---|---|---|---|---|---|")
    first, *_ = rounds.values()
    expected = first[0][3]
    baseline = [median(each[column] for each in first) for column in range(2)]
    for name, measured in rounds.items():
        seconds, cpu = (median(each[column] for each in measured) for column in range(2))
        peak = max(each[2] for each in measured)
        numbers = measured[-1][3]
        difference = max(abs(numbers[key] / expected[key] - 1) for key in expected)
        print(
            f"| {name} | {seconds:.2f} | {seconds / baseline[0]:.2f} | {cpu:.2f} "
            f"| {cpu / baseline[1]:.2f} | {peak:,.0f} | {difference:.1e} |"
        )


if __name__ == "__main__":
    main()
