"""Factorisation on Spark: rounds to the optimum, the overhead of a round, and the driver's memory.

    python benchmarks/spark.py                    1M ratings (3 minutes on 2 cores)
    python benchmarks/spark.py --sizes 1 10       1M and 10M ratings
    python benchmarks/spark.py --rounds 200000    rounds to the optimum, 10 factors, tol 1e-8

Long-tail logs of 50 ratings per user on 10,000 items, written as Parquet; 20 factors, float32. Each
row of the table is measured in its own process, with a cluster of two worker processes of one core
each (local-cluster[2,1,...]), so that the memory of the driver can be measured alone. A sweep
is one sweep of alternating least squares: the median, and the best in brackets. "local" is the same
sweep by two threads of the local engine. "bare job" is a PySpark job of two tasks
that does nothing. "empty" is a log of one rating per item, so that all its time is overhead:
broadcast, job, and a sum over items.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np

N_ITEMS, N_FACTORS, L2, PER_USER = 10_000, 20, 5.0, 50
MEMORY = 4096


def write_log(path: Path, n: int, per_user: int) -> None:
    """Write a log in several files, so that it is never in memory as a whole."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    rng = np.random.default_rng(0)
    share = np.arange(1, N_ITEMS + 1) ** -0.7
    traits = rng.normal(0, 0.4, (N_ITEMS, 8))
    path.mkdir()
    for first in range(0, n // per_user, 20_000):
        users = np.arange(first, min(first + 20_000, n // per_user))
        user = np.repeat(users, per_user)
        item = np.sort(rng.choice(N_ITEMS, (users.size, per_user), p=share / share.sum()), axis=1)
        for _ in range(200):
            again = np.zeros(item.shape, bool)
            again[:, 1:] = item[:, 1:] == item[:, :-1]
            if not again.any():
                break
            item[again] = rng.integers(0, N_ITEMS, int(again.sum()))
            item.sort(axis=1)
        taste = rng.normal(0, 0.4, (users.size, 8))
        score = 3.3 + np.einsum("ukd,ud->uk", traits[item], taste) + rng.normal(0, 0.7, item.shape)
        rating = np.clip(np.round(score), 1, 5).ravel()
        propensity = np.minimum(1.0, per_user / N_ITEMS * np.exp(0.5 * (rating - 3)))
        table = {
            "user_id": user,
            "item_id": item.ravel(),
            "rating": rating,
            "propensity": propensity,
        }
        pq.write_table(pa.table(table), path / f"{first}.parquet")


def write_empty(path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    path.mkdir()
    item = np.arange(N_ITEMS)
    table = {
        "user_id": item // 100,
        "item_id": item,
        "rating": item % 5 + 1.0,
        "propensity": np.full(N_ITEMS, 0.1),
    }
    pq.write_table(pa.table(table), path / "0.parquet")


def start_session() -> Any:
    """A cluster of two worker processes with one core each."""
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    options = {
        "spark.ui.enabled": "false",
        "spark.log.level": "OFF",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "1g",
        "spark.executor.memory": "2g",
        "spark.sql.shuffle.partitions": "4",
    }
    builder = SparkSession.builder.master(f"local-cluster[2,1,{MEMORY}]")
    for name, value in options.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def count_rounds(path: str, sample_cells: int) -> dict[str, float]:
    """Jobs from the start to the optimum, and how far it is from that of the local engine.

    ``sample_cells`` are the ratings that the start is fitted to; 0 starts at random factors.
    """
    import pyarrow.parquet as pq

    from unskew import MatrixFactorization, Ratings
    from unskew.engines import SparkEngine
    from unskew.engines.spark import fitting, solving

    if sample_cells:
        solving.SAMPLE_CELLS = sample_cells
    else:
        fitting.MIN_SAMPLED = 1 << 62
    rounds, sweep = [0], solving.SparkSweeps._sweep

    def counted(*inputs: Any, **options: Any) -> Any:
        rounds[0] += 1
        return sweep(*inputs, **options)

    solving.SparkSweeps._sweep = counted  # type: ignore[method-assign]
    settings: dict[str, Any] = {"n_factors": 10, "l2": L2, "tol": 1e-8}
    session = start_session()
    engine = SparkEngine(session, 2, collect_users=False)
    model = MatrixFactorization(**settings).fit(path, "propensity", engine=engine)
    session.stop()
    table = pq.read_table(path)
    log = Ratings.from_arrays(
        *(table[name].to_numpy() for name in ("user_id", "item_id", "rating"))
    )
    local = MatrixFactorization(**settings).fit(log, table["propensity"].to_numpy())
    return {
        "rounds": rounds[0],
        "objective against local": model.objective_ / local.objective_ - 1,
        "local sweeps": local.n_iter_,
    }


def time_spark(path: str, n_blocks: int) -> dict[str, float]:
    """One row of the table, measured in this process."""
    from unskew import MatrixFactorization
    from unskew.engines import SparkEngine
    from unskew.engines.spark.solving import SparkSweeps

    session = start_session()
    times: list[float] = []
    sweep = SparkSweeps._sweep

    def timed(*inputs: Any, **options: Any) -> Any:
        began = perf_counter()
        result = sweep(*inputs, **options)
        times.append(perf_counter() - began)
        return result

    SparkSweeps._sweep = timed  # type: ignore[method-assign]
    began = perf_counter()
    model = MatrixFactorization(N_FACTORS, L2, dtype="float32", max_iter=8, tol=0.0)
    model.fit(path, "propensity", engine=SparkEngine(session, n_blocks, collect_users=False))
    whole = perf_counter() - began
    bare = []
    for _ in range(7):
        began = perf_counter()
        session.sparkContext.parallelize([1, 2], 2).map(abs).collect()
        bare.append(perf_counter() - began)
    machine: Any = session.sparkContext._jvm  # type: ignore[attr-defined]
    machine.System.gc()
    heap = machine.Runtime.getRuntime().totalMemory() - machine.Runtime.getRuntime().freeMemory()
    session.stop()
    return {
        "seconds": median(times[2:]),
        "best": min(times[2:]),
        "bare": median(bare),
        "first": times[0],
        "around": whole - sum(times),
        "python_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "heap_mb": heap / 2**20,
    }


def time_locally(path: str, _: int) -> dict[str, float]:
    """The same evaluations by the local engine."""
    import pyarrow.parquet as pq

    import unskew
    from unskew.factorization.als import AlternatingLeastSquares
    from unskew.factorization.initialization import small_random
    from unskew.threads import Workers

    table = pq.read_table(path)
    log = unskew.Ratings.from_arrays(
        *(table[name].to_numpy() for name in ("user_id", "item_id", "rating"))
    )
    model = unskew.MatrixFactorization(N_FACTORS, L2, dtype="float32")
    with Workers() as workers:
        objective = model._make_objective(
            log, 1 / table["propensity"].to_numpy(), model._fixed_penalty(log), workers
        )
        shape = log.n_users, log.n_items
        factors = small_random(shape, 3.0, n_factors=N_FACTORS, random_state=0, dtype="float32")
        solver, times = AlternatingLeastSquares(objective), []
        for _ in range(7):
            began = perf_counter()
            factors, _ = solver._sweep(factors, is_exact=True)
            times.append(perf_counter() - began)
    return {"seconds": median(times[2:]), "best": min(times[2:])}


CASES = {"spark": time_spark, "local": time_locally, "rounds": count_rounds}


def run_in_process(case: str, path: Path, n_blocks: int = 0) -> dict[str, float]:
    command = [
        sys.executable,
        __file__,
        "--case",
        case,
        "--path",
        str(path),
        "--blocks",
        str(n_blocks),
    ]
    process = subprocess.run(command, capture_output=True, text=True, check=False)
    if process.returncode:
        raise SystemExit(process.stderr[-3000:])
    result: dict[str, float] = json.loads(process.stdout.splitlines()[-1])
    return result


def print_row(cells: list[str]) -> None:
    print("|", " | ".join(cells), "|", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sizes", type=int, nargs="+", default=[1], help="millions of ratings")
    parser.add_argument("--n-blocks", type=int, nargs="+", default=[2, 8, 32])
    parser.add_argument("--rounds", type=int, help="ratings of a log to count rounds on")
    parser.add_argument("--case", choices=CASES, help=argparse.SUPPRESS)
    parser.add_argument("--path", help=argparse.SUPPRESS)
    parser.add_argument("--blocks", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.case:
        print(json.dumps(CASES[arguments.case](arguments.path, arguments.blocks)))
        return
    if arguments.rounds:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "log"
            write_log(path, arguments.rounds, PER_USER)
            for sample_cells in (0, arguments.rounds // 10, arguments.rounds):
                print(f"{sample_cells:,}", run_in_process("rounds", path, sample_cells), flush=True)
        return
    with tempfile.TemporaryDirectory() as folder:
        logs = {"empty": Path(folder) / "empty"}
        write_empty(logs["empty"])
        for size in arguments.sizes:
            logs[f"{size}M"] = Path(folder) / f"{size}M"
            write_log(logs[f"{size}M"], size * 1_000_000, PER_USER)
        heads = [
            "ratings",
            "users",
            "blocks",
            "sweep, s",
            "local, s",
            "bare job, s",
            "the first, s",
            "all else, s",
        ]
        print_row([*heads, "driver's Python, MB", "heap, MB"])
        print_row(["---"] * (len(heads) + 2))
        for name, path in logs.items():
            users = 100 if name == "empty" else int(name[:-1]) * 1_000_000 // PER_USER
            local = run_in_process("local", path)
            for n_blocks in arguments.n_blocks:
                result = run_in_process("spark", path, n_blocks)
                timed = [f"{row['seconds']:.3f} ({row['best']:.3f})" for row in (result, local)]
                others = [
                    f"{result['bare']:.3f}",
                    f"{result['first']:.2f}",
                    f"{result['around']:.1f}",
                ]
                memory = [f"{result['python_mb']:.0f}", f"{result['heap_mb']:.0f}"]
                print_row([name, f"{users:,}", str(n_blocks), *timed, *others, *memory])


if __name__ == "__main__":
    main()
