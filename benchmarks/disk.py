"""A log on disk against the same log in memory: time of a sweep, and peak memory.

    python benchmarks/disk.py                 10M ratings
    python benchmarks/disk.py --millions 100

Long-tail logs of 200 ratings per user on 20,000 items in Parquet files; 20 factors, float32. Each
engine runs in its own process. A sweep is timed by the clock and by the processor time of all
threads; use processor time on a busy machine. "before" is all that comes before the first sweep.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median
from time import perf_counter, process_time
from typing import Any

import numpy as np

N_ITEMS, PER_USER, FILE_USERS = 20_000, 200, 25_000
SETTINGS: dict[str, Any] = {"n_factors": 20, "l2": 5.0, "dtype": "float32", "tol": 0.0}
N_SWEEPS = 6


def write_log(folder: Path, n: int) -> None:
    """Write the log in files of five million ratings, with users in random order."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    rng = np.random.default_rng(0)
    n_users = n // PER_USER
    names, traits = rng.permutation(n_users), rng.normal(0, 0.4, (N_ITEMS, 8)).astype(np.float32)
    for first in range(0, n_users, FILE_USERS):
        size = min(FILE_USERS, n_users - first)
        # An increasing sequence with random steps: no item occurs twice.
        steps = rng.exponential(size=(size, PER_USER + 1))
        place = np.cumsum(steps, axis=1)[:, :-1] / steps.sum(axis=1, keepdims=True)
        item = (place**3 * (N_ITEMS - PER_USER)).astype(np.int64) + np.arange(PER_USER)
        taste = rng.normal(0, 0.4, (size, 8)).astype(np.float32)
        score = 3.3 + np.einsum("ukd,ud->uk", traits[item], taste)
        rating = np.clip(np.round(score + rng.normal(0, 0.7, item.shape)), 1, 5).ravel()
        table = {
            "user_id": np.repeat(names[first : first + size], PER_USER),
            "item_id": item.ravel(),
            "rating": rating,
            "propensity": PER_USER / N_ITEMS * np.exp(0.5 * (rating - 5)),
        }
        pq.write_table(pa.table(table), folder / f"{first}.parquet")


def measure(engine: str, folder: str) -> dict[str, float]:
    """One fit of a few sweeps in this process."""
    import warnings

    import pyarrow.parquet as pq

    import unskew
    from unskew.engines import DiskEngine
    from unskew.factorization.als import AlternatingLeastSquares

    warnings.simplefilter("ignore")
    began = perf_counter()
    clock: list[float] = []
    processor: list[float] = []
    sweep = AlternatingLeastSquares._sweep

    def timed(*inputs: Any, **options: Any) -> Any:
        start = perf_counter(), process_time()
        if not clock:
            clock.append(start[0] - began)
        result = sweep(*inputs, **options)
        clock.append(perf_counter() - start[0])
        processor.append(process_time() - start[1])
        return result

    AlternatingLeastSquares._sweep = timed  # type: ignore[method-assign]
    model = unskew.MatrixFactorization(**SETTINGS, max_iter=N_SWEEPS)
    if engine == "disk":
        model.fit(f"{folder}/*.parquet", "propensity", engine=DiskEngine())
    else:
        table = pq.read_table(folder)
        columns = [table[name].to_numpy() for name in ("user_id", "item_id", "rating")]
        model.fit(unskew.Ratings.from_arrays(*columns), table["propensity"].to_numpy())
    return {
        "before, s": clock[0],
        "sweep, s": median(clock[2:]),
        "sweep, processor s": median(processor[1:]),
        "peak MB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "objective": model.objective_,
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--millions", type=float, default=10)
    parser.add_argument("--engine", help=argparse.SUPPRESS)
    parser.add_argument("--folder", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.engine:
        print(json.dumps(measure(arguments.engine, arguments.folder)))
        return
    with tempfile.TemporaryDirectory() as folder:
        write_log(Path(folder), int(arguments.millions * 1e6))
        for engine in ("disk", "local"):
            command = [sys.executable, __file__, "--engine", engine, "--folder", folder]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                raise SystemExit(done.stderr[-3000:])
            print(engine, done.stdout.splitlines()[-1], flush=True)


if __name__ == "__main__":
    main()
