"""A check of the executors before any work: can they run this package?"""

from __future__ import annotations

import re
import sys
from typing import Any, NoReturn
from weakref import WeakKeyDictionary

from pyspark import cloudpickle
from pyspark.sql import SparkSession

from unskew._version import __version__
from unskew.engines.spark import probe
from unskew.errors import UsageError

ROWS = 1 << 16
"""Rows of the job that tries all executors: Spark divides them among all tasks."""
PROBLEMS = {
    r"Python in worker has different version:? *\(?([\d.]+)": "run Python {0}, and this process "
    f"runs Python {sys.version_info.major}.{sys.version_info.minor}",
    r"No module named '?([\w.]+)": "have no Python module {0!r}",
    r'Cannot run program "([^"]+)"': "cannot start {0}",
}
"""What Spark's error says of a Python that cannot run tasks, and what we say of the executors."""
_N_TASKS: WeakKeyDictionary[Any, int] = WeakKeyDictionary()


def check_executors(session: SparkSession) -> int:
    """How many tasks the cluster runs at once; raise an error if its Python cannot run them.

    The job is run once for a session. It has as many tasks as run at once, so it usually, but not
    surely, reaches every executor.
    """
    if session not in _N_TASKS:
        _N_TASKS[session] = _probe_executors(session)
    return _N_TASKS[session]


def _probe_executors(session: SparkSession) -> int:
    cloudpickle.register_pickle_by_value(probe)  # type: ignore[no-untyped-call]
    try:
        rows = session.range(ROWS).mapInArrow(
            probe.describe_python, "host string, version string, missing string"
        )
        found = rows.toArrow().to_pylist()
    except Exception as error:  # Spark wraps what a worker says in errors of many types
        _raise_named(error)
    finally:
        cloudpickle.unregister_pickle_by_value(probe)  # type: ignore[no-untyped-call]
    for row in found:
        if row["missing"]:
            missing = " and ".join(map(repr, row["missing"].split()))
            raise _executor_error(f"have no Python module {missing}", row["host"])
        if row["version"] != __version__:
            raise _executor_error(
                f"have unskew {row['version']}, and this process has {__version__}", row["host"]
            )
    return len(found)


def _raise_named(error: Exception) -> NoReturn:
    """Raise one sentence for what Spark says in a page, or the error itself if it is another."""
    for pattern, problem in PROBLEMS.items():
        match = re.search(pattern, str(error))
        if match:
            raise _executor_error(problem.format(*match.groups())) from None
    raise error


def _executor_error(problem: str, host: str | None = None) -> UsageError:
    where = "" if host is None else f" on {host}"
    return UsageError(
        f"the executors of Spark{where} {problem}.",
        parameter="engine",
        remedy="Before the session starts, set PYSPARK_PYTHON to a Python with 'unskew[spark]' on "
        f"every machine (here {sys.executable}), or ship one with spark.archives.",
    )
