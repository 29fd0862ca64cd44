"""One Spark session for all tests of engines."""

from __future__ import annotations

import os
import shutil
import sys
import warnings
from collections.abc import Iterator
from typing import Any

import pytest

OPTIONS = {
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.memory": "1g",
    "spark.log.level": "OFF",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
}


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    """A session of two threads in this process, whose tasks may fail three times."""
    try:
        from pyspark.sql import SparkSession
    except ImportError:
        pytest.skip("pyspark is not installed: pip install 'unskew[spark]'")
    if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
        pytest.skip("Spark needs Java, and there is none")
    with warnings.catch_warnings(), pytest.MonkeyPatch.context() as patch:
        warnings.simplefilter("ignore")  # PySpark's own, about pandas and sockets
        patch.setenv("PYSPARK_PYTHON", sys.executable)
        builder = SparkSession.builder.master("local[2,4]").appName("unskew tests")
        for name, value in OPTIONS.items():
            builder = builder.config(name, value)
        session = builder.getOrCreate()
        yield session
        session.stop()
