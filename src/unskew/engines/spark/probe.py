"""A task that describes the Python of an executor; it must run where ``unskew`` is missing.

This module is sent to the executors by value, so it imports only the standard library at the top,
and nothing of this package.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any


def describe_python(batches: Iterator[Any]) -> Iterator[Any]:
    """One row for a task: the version of ``unskew`` there, and the modules that are missing."""
    from importlib.util import find_spec
    from socket import gethostname

    import pyarrow

    for _ in batches:
        pass
    missing = [name for name in ("unskew", "numba", "scipy") if find_spec(name) is None]
    version: str | None = None
    if "unskew" not in missing:
        from unskew import _version

        version = _version.__version__
    columns = {"host": [gethostname()], "version": [version], "missing": [" ".join(missing)]}
    text = pyarrow.string()
    yield pyarrow.record_batch({name: pyarrow.array(v, text) for name, v in columns.items()})
