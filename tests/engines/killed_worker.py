"""Fit twice on a cluster of two worker processes; during the second fit one of them is killed.

Prints as JSON whether both fits are the same.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession

import unskew
from unskew.engines import SparkEngine
from unskew.engines.spark.solving import SparkSweeps

KILL_AT = 6


def executors(application: str) -> list[int]:
    """Process ids of the workers of an application."""
    ids = []
    for folder in Path("/proc").iterdir():
        try:
            words = (folder / "cmdline").read_bytes().decode(errors="replace").split("\0")
        except OSError:
            continue
        if application in words and any(
            word.endswith("CoarseGrainedExecutorBackend") for word in words
        ):
            ids.append(int(folder.name))
    return sorted(ids)


def open_session() -> Any:
    """A cluster of two worker processes."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master("local-cluster[2,1,1024]").config(
        "spark.ui.enabled", "false"
    )
    builder = builder.config("spark.log.level", "OFF").config("spark.driver.host", "127.0.0.1")
    builder = builder.config("spark.executor.memory", "1024m").config(
        "spark.sql.shuffle.partitions", "2"
    )
    return builder.getOrCreate()


def make_frame(session: Any) -> Any:
    """The same log in every process."""
    world = unskew.simulate(60, 45, density=0.15, alpha=0.4, random_state=2)
    columns = {"user_id": world.log.user, "item_id": world.log.item, "rating": world.log.rating}
    return session.createDataFrame(
        pa.table({**columns, "propensity": np.asarray(world.propensities)})
    )


def fit(frame: Any, **checkpoint: Any) -> unskew.MatrixFactorization:
    """Twelve sweeps."""
    model = unskew.MatrixFactorization(3, 2.0, max_iter=12, tol=0.0)
    return model.fit(frame, "propensity", engine=SparkEngine(n_blocks=4), **checkpoint)


def compare(one: unskew.MatrixFactorization, other: unskew.MatrixFactorization) -> dict[str, bool]:
    """Whether two fits are the same bit for bit."""
    left, right = one.factors_, other.factors_
    return {
        "same_history": one.history_ == other.history_,
        "same_users": bool((left.user_factors == right.user_factors).all()),
        "same_items": bool((left.item_factors == right.item_factors).all()),
    }


def main() -> None:
    session = open_session()
    frame = make_frame(session)
    whole = fit(frame)

    advance, killed, steps = SparkSweeps.advance, [], []

    def advance_and_kill(solver: SparkSweeps, state: Any) -> Any:
        steps.append(state)
        if len(steps) == KILL_AT:
            victim = executors(session.sparkContext.applicationId)[0]
            os.kill(victim, signal.SIGKILL)
            killed.append(victim)
        return advance(solver, state)

    SparkSweeps.advance = advance_and_kill  # type: ignore[method-assign]
    again = fit(frame)
    alive = executors(session.sparkContext.applicationId)
    summary = {
        "n_killed": len(killed),
        "is_gone": not set(killed) & set(alive),
        "n_steps": again.n_iter_,
        **compare(whole, again),
        "n_rows": again.user_factors_frame.count(),
    }
    print(json.dumps(summary))
    session.stop()


if __name__ == "__main__":
    main()
