"""Settings and made-up data shared by all tests."""

from __future__ import annotations

import os
import shutil
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import settings

QUICK_ON_SPARK = (
    "test_every_engine_says_what_numpy_says[pyspark-user]",
    "test_the_error_of_estimated_propensities_is_that_of_arrays[pyspark-naive Bayes-None]",
    "test_a_bad_row_is_counted_and_shown_or_dropped[pyspark-propensity zero]",
    "test_groups_are_judged_in_one_pass_as_each_alone[pyspark]",
)
"""Of the tests over all data frame libraries, those that always run on Spark. There each takes 5 to
70 seconds, so the others run with the slow tests; the queries are the same in all libraries."""
SLOW_ON_SPARK = {
    "test_folds_are_fitted_and_scored_as_by_the_local_engine": (
        "propensity-snips",
        "None-naive",
        "None-item",
    ),
    "test_settings_are_chosen_on_spark": ("",),
}
"""Cases of the engine on Spark that take 10 to 70 seconds each, by how their ids begin."""

settings.register_profile("unskew", deadline=None, print_blob=True)
settings.load_profile("unskew")

SPARK_OPTIONS = {
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.memory": "1g",
    "spark.log.level": "OFF",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
}


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        name, _, case = item.name.rstrip("]").partition("[")
        is_left_out = case.startswith("pyspark") and item.name not in QUICK_ON_SPARK
        if is_left_out or case.startswith(SLOW_ON_SPARK.get(name, ())):
            item.add_marker("slow")


@pytest.fixture(scope="session")
def coat_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Made-up files in the form of Coat: 30 users x 20 items, a few cells in both logs."""
    rng = np.random.default_rng(0)
    shape = (30, 20)
    rating = rng.integers(1, 6, shape)
    propensity = np.where(rating >= 4, 0.5, 0.25)
    tables = {
        "train.ascii": rating * (rng.random(shape) < propensity),
        "test.ascii": rating * (rng.random(shape) < 0.3),
        "propensities.ascii": propensity,
        "user_item_features/user_features.ascii": rng.integers(0, 2, (30, 1)),
        "user_item_features/item_features.ascii": rng.integers(0, 2, (20, 1)),
    }
    root = tmp_path_factory.mktemp("data")
    (root / "coat" / "user_item_features").mkdir(parents=True)
    for name, values in tables.items():
        (root / "coat" / name).write_text(
            "".join(" ".join(map(str, line)) + "\n" for line in values.tolist())
        )
    for name in ("user", "item"):
        (root / "coat" / "user_item_features" / f"{name}_features_map.txt").write_text("gender:men")
    return root


@pytest.fixture(scope="session")
def movielens_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Made-up files in the form of MovieLens 100K: 40 users x 60 films, 40 % rated."""
    rng = np.random.default_rng(0)
    taste = rng.normal(size=(40, 2)) @ rng.normal(size=(2, 60)) + rng.normal(size=60)
    rating = np.clip(np.round(3.5 + taste), 1, 5).astype(int)
    cells = np.argwhere(rng.random(rating.shape) < 0.4)
    flags = "|".join(["1", *["0"] * 18])
    root = tmp_path_factory.mktemp("data")
    (root / "ml-100k").mkdir()
    (root / "ml-100k" / "u.data").write_text(
        "".join(f"{u + 1}\t{i + 1}\t{rating[u, i]}\t{880000000 + i}\n" for u, i in cells)
    )
    (root / "ml-100k" / "u.user").write_text(
        "".join(f"{user + 1}|30|F|other|00000\n" for user in range(40))
    )
    (root / "ml-100k" / "u.item").write_text(
        "".join(f"{item + 1}|Film|01-Jan-1995|||{flags}\n" for item in range(60))
    )
    return root


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
        for name, value in SPARK_OPTIONS.items():
            builder = builder.config(name, value)
        session = builder.getOrCreate()
        yield session
        session.stop()
