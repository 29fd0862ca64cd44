"""Ctrl-C during a fit on Spark, in a process of its own: ``python -m faults.spark_job``.

Prints, in JSON, the seconds from the signal until the caller has control and until Spark runs no
job any more, and the rows that Spark counts afterwards.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
import warnings
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

import unskew

N_USERS, N_ITEMS, N_RATINGS = 2000, 300, 100_000
CONFIGURATION = {
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.memory": "1g",
    "spark.driver.host": "127.0.0.1",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "OFF",
}


def make_session() -> Any:
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master("local[2]")
    for name, value in CONFIGURATION.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    signal.signal(signal.SIGINT, signal.default_int_handler)  # as notebooks do
    return session


def make_frame(session: Any) -> Any:
    rng = np.random.default_rng(0)
    cell = np.unique(rng.integers(0, N_USERS * N_ITEMS, N_RATINGS)).tolist()
    rows = [(each // N_ITEMS, each % N_ITEMS, float(1 + each % 5)) for each in cell]
    frame = session.createDataFrame(rows, "user_id long, item_id long, rating double").cache()
    frame.count()
    return frame


def list_active(session: Any) -> list[int]:
    return list(session.sparkContext.statusTracker().getActiveJobsIds())


def processor_seconds() -> float:
    """Processor time of this process, of Spark and of its workers."""
    ticks, seconds = os.sysconf("SC_CLK_TCK"), {}
    parents: dict[int, int] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
            parents[int(folder.name)] = int(fields[1])
            seconds[int(folder.name)] = (int(fields[11]) + int(fields[12])) / ticks

    def is_ours(process: int) -> bool:
        return process == os.getpid() or (process in parents and is_ours(parents[process]))

    return sum(each for process, each in seconds.items() if is_ours(process))


def interrupt_when_busy(session: Any, after: float, sent: list[float]) -> None:
    """Send SIGINT once a job runs, some seconds after the beginning."""
    time.sleep(after)
    while not list_active(session):
        time.sleep(0.005)
    sent += [processor_seconds(), time.perf_counter()]
    os.kill(os.getpid(), signal.SIGINT)


def main() -> None:
    warnings.simplefilter("ignore")
    after = float(sys.argv[1])
    session = make_session()
    frame = make_frame(session)
    n_rows = frame.count()
    model = unskew.MatrixFactorization(8, 1.0, max_iter=100_000, tol=0.0)
    sent: list[float] = []
    watcher = threading.Thread(target=interrupt_when_busy, args=(session, after, sent))
    watcher.start()
    was_interrupted = False
    try:
        model.fit(frame, engine="spark")
    except KeyboardInterrupt:
        was_interrupted = True
    seconds, worked = time.perf_counter() - sent[1], processor_seconds() - sent[0]
    while list_active(session) and time.perf_counter() - sent[1] < 60:
        time.sleep(0.01)
    idle = time.perf_counter() - sent[1]
    rows_are_right = frame.count() == n_rows
    print(
        json.dumps(
            {
                "was_interrupted": was_interrupted,
                "seconds": seconds,
                "processor_seconds": worked,
                "seconds_until_idle": idle,
                "still_works": rows_are_right,
            }
        ),
        flush=True,
    )
    os._exit(0)


if __name__ == "__main__":
    main()
