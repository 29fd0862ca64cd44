"""Ctrl-C during long work: how long it takes until the caller has control again."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

import unskew
from unskew.propensity import PoissonPropensity

INTERRUPTED = 3
ENDLESS = 100_000


@dataclass(frozen=True)
class Interrupt:
    """What happened after SIGINT."""

    was_interrupted: bool
    seconds: float
    """From the signal to the end of all threads of the process."""
    processor_seconds: float
    """Processor time that the process used after the signal; a busy machine does not change it."""


@cache
def make_log(n_ratings: int) -> unskew.Ratings:
    """A random log; its ratings follow no model."""
    rng = np.random.default_rng(0)
    n_users, n_items = n_ratings // 100, 2000
    cell = np.unique(rng.integers(0, n_users * n_items, n_ratings))
    rating = rng.integers(1, 6, cell.size).astype(np.float64)
    return unskew.Ratings.from_codes(
        cell // n_items, cell % n_items, rating, shape=(n_users, n_items)
    ).with_universe("log")


def fit(log: unskew.Ratings, path: Path) -> None:
    model = unskew.MatrixFactorization(20, 1.0, max_iter=ENDLESS, tol=0.0, n_threads=2)
    model.fit(log, checkpoint=path, checkpoint_every=1)


def search(log: unskew.Ratings, path: Path) -> None:
    model = unskew.MatrixFactorization(20, max_iter=ENDLESS, tol=0.0, n_threads=1)
    unskew.cross_validate(model, log, grid={"l2": [0.1, 1.0, 10.0]}, n_threads=2)


def bootstrap(log: unskew.Ratings, path: Path) -> None:
    unskew.evaluate(
        log,
        {"threes": np.full(len(log), 3.0), "fours": np.full(len(log), 4.0)},
        propensities=np.full(len(log), 0.05),
        metrics=["mse", "mae"],
        bootstrap=ENDLESS,
    )


def refit_halves(log: unskew.Ratings, path: Path) -> None:
    """Propensities whose error is found by refits to halves of the log."""
    model = PoissonPropensity(20, max_iter=ENDLESS, tol=0.0)
    unskew.evaluate(log, np.full(len(log), 3.0), propensities=model.fit(log), metrics=["mse"])


CASES: dict[str, Callable[[unskew.Ratings, Path], None]] = {
    "fit": fit,
    "grid search": search,
    "bootstrap": bootstrap,
    "half-sample refits": refit_halves,
}


def interrupt(case: str, path: Path, *, n_ratings: int, after: float) -> Interrupt:
    """Run a case in a child, send it SIGINT after some seconds of its own time, and wait."""
    log = make_log(n_ratings)
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        _run_child(case, log, path, writer)
    os.close(writer)
    os.read(reader, 1)
    _wait_for_processor_time(child, after)
    before, begin = _processor_seconds(child), time.perf_counter()
    os.kill(child, signal.SIGINT)
    _, status, usage = os.wait4(child, 0)
    seconds = time.perf_counter() - begin
    os.close(reader)
    was_interrupted = os.waitstatus_to_exitcode(status) == INTERRUPTED
    return Interrupt(was_interrupted, seconds, usage.ru_utime + usage.ru_stime - before)


def _run_child(case: str, log: unskew.Ratings, path: Path, writer: int) -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)
    code = 1
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            os.write(writer, b"x")
            CASES[case](log, path)
    except KeyboardInterrupt:
        for thread in threading.enumerate():
            if thread is not threading.current_thread():
                thread.join()
        code = INTERRUPTED
    finally:
        os._exit(code)


def _wait_for_processor_time(child: int, seconds: float) -> None:
    """Wait until a child has worked for so long, however busy the machine is."""
    deadline = time.perf_counter() + 60
    while _processor_seconds(child) < seconds and time.perf_counter() < deadline:
        time.sleep(0.01)


def _processor_seconds(child: int) -> float:
    fields = Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()
    ticks: int = os.sysconf("SC_CLK_TCK")
    return (int(fields[11]) + int(fields[12])) / ticks


def interrupt_spark(after: float) -> dict[str, float | bool]:
    """Ctrl-C in a fit on Spark, ``after`` seconds after its beginning; see faults.spark_job."""
    command = [sys.executable, "-W", "ignore", "-m", "faults.spark_job", str(after)]
    folders = os.pathsep.join(filter(None, sys.path))
    done = subprocess.run(
        command,
        env=os.environ | {"PYTHONPATH": folders},
        capture_output=True,
        text=True,
        check=True,
    )
    result: dict[str, float | bool] = json.loads(done.stdout.splitlines()[-1])
    return result
