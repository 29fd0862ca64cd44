"""The whole job on Spark: split, propensities, training, evaluation and recommendations."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import unskew
from unskew.engines import SparkEngine
from unskew.errors import ColumnError, UsageError
from unskew.models.matrix_factorization import MatrixFactorization

pytest.importorskip("pyspark", reason="pyspark is not installed: pip install 'unskew[spark]'")

from unskew.engines.spark import fitting, serving

pytestmark = pytest.mark.filterwarnings(
    "ignore:PySpark does not yet fully support pandas:FutureWarning",
    "ignore::ResourceWarning",
    "ignore::unskew.errors.UnskewWarning",
)

WORLD = unskew.simulate(40, 30, density=0.2, alpha=0.4, random_state=3)
USERS = np.array([f"u{code:03}" for code in WORLD.log.user])
FRAME = pd.DataFrame({"user_id": USERS, "item_id": WORLD.log.item, "rating": WORLD.log.rating})
SHARES = {float(rating): 0.2 for rating in range(1, 6)}
NAMES = "factors", "offset"
"""The columns of ``user_factors_frame`` besides the ids."""
SETTINGS: dict[str, Any] = {"n_factors": 0, "l2": 5.0, "max_iter": 30, "tol": 1e-10}


def test_a_column_with_the_name_of_one_of_the_users_is_refused() -> None:
    model = SimpleNamespace(user_factors_frame=SimpleNamespace(columns=["user", *NAMES]))
    for name in NAMES:
        frame: Any = SimpleNamespace(columns=["user_id", "item_id", name])
        with pytest.raises(ColumnError, match=rf"the frame has a column '{name}', and so have"):
            serving.predict_frame(SparkEngine(), model, frame, "prediction")


@pytest.mark.slow
def test_the_whole_job_gives_the_numbers_of_the_same_job_here(spark: Any) -> None:
    """Offsets alone have one optimum, whichever random factors a fit starts from."""
    log = spark.createDataFrame(pa.table(dict(FRAME)))
    engine, universe = SparkEngine(), (40, 30)
    train, test = engine.split_frame(log, share=0.3, random_state=1)
    model, weigh = MatrixFactorization(**SETTINGS), unskew.NaiveBayesPropensity()
    weigh.fit_frame(train, mcar=SHARES, universe=universe)
    model.fit(train, weigh, engine=SparkEngine(universe=universe, collect_users=False))
    judge = unskew.NaiveBayesPropensity().fit_frame(test, mcar=SHARES, universe=universe)
    scored = engine.predict_frame(model, test).cache()
    options: dict[str, Any] = {"prediction": "prediction", "universe": universe, "metrics": ["mse"]}
    there = unskew.evaluate_frame(scored, propensity=judge, **options).to_frame()
    best = engine.recommend_frame(model, k=3, exclude=train).toArrow().to_pandas()

    rows = train.toArrow().to_pandas()
    here_log = unskew.Ratings.from_frame(rows, universe=universe)
    here_weigh = unskew.NaiveBayesPropensity().fit(here_log, mcar=SHARES, universe=universe)
    here = MatrixFactorization(**SETTINGS).fit(here_log, here_weigh)
    held = test.toArrow().to_pandas()
    held["prediction"] = here.predict(held["user_id"], held["item_id"], on_unknown="fallback")
    again = unskew.NaiveBayesPropensity().fit_frame(held, mcar=SHARES, universe=universe)
    expected = unskew.evaluate_frame(held, propensity=again, **options).to_frame()
    mine = here.recommend(k=3).to_columns()

    assert len(rows) + len(held) == len(FRAME)
    assert 0.15 < len(held) / len(FRAME) < 0.45
    assert model.objective_ == pytest.approx(here.objective_, rel=1e-9)
    numbers = ["estimate", "std_error", "ci_low", "ci_high"]
    np.testing.assert_allclose(np.asarray(there[numbers]), np.asarray(expected[numbers]), rtol=1e-4)
    best = best.sort_values(["user_id", "position"]).reset_index(drop=True)
    assert best["user_id"].tolist() == mine["user_id"].tolist()
    assert best["item_id"].tolist() == mine["item_id"].tolist()
    np.testing.assert_allclose(best["score"], mine["score"], rtol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("master", ["local-cluster[2,1,1024]", "connect"])
def test_one_job_gives_the_numbers_of_pandas_on_a_cluster_and_on_connect(master: str) -> None:
    """In a process of its own, since one process has one session."""
    if master == "connect":
        pytest.importorskip("grpc", reason="pip install 'pyspark[connect]'")
    script = Path(__file__).with_name("one_job.py")
    done = subprocess.run(
        [sys.executable, str(script), master], capture_output=True, text=True, check=False
    )

    assert done.returncode == 0, done.stderr[-3000:]
    summary = json.loads(done.stdout.splitlines()[-1])
    assert ("connect" in summary["session"]) == (master == "connect")
    assert summary["evaluation"] < 1e-9
    assert summary["same_predictions"] < 1e-9
    assert summary["DuckDB"] < 1e-9
    assert summary["lists"] < 1e-9
    assert summary["diagnosis"] < 1e-9
    assert summary["of_users"] < 1e-9
    assert summary["objective"] < 1e-9
    assert summary["same_lists"]
    assert summary["n_recommended"] == 180
    assert summary["n_users_on_driver"] == 0
    assert summary["has_report"]


def test_a_model_without_users_on_spark_is_named() -> None:
    model = MatrixFactorization(**SETTINGS).fit(WORLD.log)
    with pytest.raises(UsageError, match=r"has no factors of users on Spark\. Fit it with"):
        SparkEngine().recommend_frame(model)


# Executors that cannot run the tasks


def test_executors_are_checked_once_and_count_their_tasks(spark: Any) -> None:
    assert fitting.check_executors(spark) == 2
    assert spark in fitting._N_TASKS


def test_a_python_that_cannot_be_started_is_one_sentence(
    spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spark.sparkContext, "pythonExec", "/nowhere/python")
    with pytest.raises(UsageError) as caught:
        fitting._probe_executors(spark)

    text = str(caught.value)
    assert text.startswith(
        "the executors of Spark cannot start /nowhere/python. Before the session"
    )
    assert "PYSPARK_PYTHON" in text
    assert "\n" not in text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "[PYTHON_VERSION_MISMATCH] Python in worker has different version: 3.9 than that in "
            "driver: 3.11, PySpark cannot run with different minor versions.",
            "run Python 3.9, and this process runs Python",
        ),
        ("ModuleNotFoundError: No module named 'pyarrow'\n at org.apache", "module 'pyarrow'"),
    ],
)
def test_what_spark_says_in_a_page_becomes_one_sentence(text: str, expected: str) -> None:
    with pytest.raises(UsageError, match=f"the executors of Spark .*{expected}"):
        fitting._raise_named(RuntimeError(text))
    with pytest.raises(RuntimeError, match="something else"):
        fitting._raise_named(RuntimeError("something else"))
