"""Fits and cross-validation of logs that stay on Spark."""

from __future__ import annotations

import json
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from copy import copy
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import unskew
from unskew.data.propensities import Propensities
from unskew.data.ratings import Ratings
from unskew.engines import SparkEngine
from unskew.errors import (
    BadPropensityError,
    BadRatingError,
    ColumnError,
    DuplicateCellError,
    EmptyLogError,
    MissingExtraError,
    UnknownNameError,
    UsageError,
)
from unskew.estimators.point import SNIPS, ItemNormalized, UserNormalized
from unskew.metrics.metric import find_metric
from unskew.model_selection.folds import Fold, LocalTraining
from unskew.models.matrix_factorization import MatrixFactorization
from unskew.threads import cancel_jobs_on_interrupt

pytest.importorskip("pyspark", reason="pyspark is not installed: pip install 'unskew[spark]'")

from unskew.engines.spark import fitting as spark_fitting
from unskew.engines.spark import folds as spark_folds
from unskew.engines.spark import frame as spark_frame
from unskew.engines.spark import sums as spark_sums
from unskew.engines.spark.blocks import (
    WEIGHT_FACTORS,
    BlockTotals,
    UserBlock,
)
from unskew.engines.spark.sums import ItemSums

pytestmark = pytest.mark.filterwarnings(
    "ignore:PySpark does not yet fully support pandas:FutureWarning",
    "ignore::ResourceWarning",
    "ignore::unskew.errors.ConvergenceWarning",
)

WORLD = unskew.simulate(40, 30, density=0.2, alpha=0.4, random_state=3)
USERS = np.array([f"u{code:03}" for code in WORLD.log.user])
ITEMS = WORLD.log.item * 7 - 11
COLUMNS: dict[str, Any] = {
    "user_id": USERS,
    "item_id": ITEMS,
    "rating": WORLD.log.rating,
    "propensity": np.asarray(WORLD.propensities),
}
LOG = Ratings.from_arrays(USERS, ITEMS, WORLD.log.rating)
SHORT: dict[str, Any] = {"n_factors": 2, "l2": 2.0, "tol": 0.0, "max_iter": 3}


def changed(**columns: Any) -> pa.Table:
    return pa.table({**COLUMNS, **columns})


@pytest.fixture(scope="module")
def frame(spark: Any) -> Any:
    return spark.createDataFrame(pa.table(COLUMNS)).cache()


def test_another_thread_can_cancel_the_jobs_of_an_interrupted_one(spark: Any) -> None:
    """The job would take two minutes; an interrupt ends it although this thread waits for it."""

    def wait(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            time.sleep(120)
            yield batch

    def interrupt() -> None:
        while not spark.sparkContext.statusTracker().getActiveJobsIds():
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGINT)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    thread = threading.Thread(target=interrupt)
    thread.start()
    begin = time.perf_counter()
    try:
        with pytest.raises(KeyboardInterrupt), cancel_jobs_on_interrupt(spark):
            spark.range(2).mapInArrow(wait, "id long").toArrow()
    finally:
        signal.signal(signal.SIGINT, before)
        thread.join()

    assert time.perf_counter() - begin < 60


# The same model as here


@pytest.mark.parametrize(
    ("normalize", "column"),
    [("none", None), ("self", "propensity"), ("user", None), ("item", "propensity")],
)
def test_weights_and_penalty_mean_what_they_mean_here(
    frame: Any, normalize: Any, column: str | None
) -> None:
    """Offsets alone have one optimum, which both must find."""
    settings: dict[str, Any] = {
        "n_factors": 0,
        "l2": 3.0,
        "normalize": normalize,
        "tol": 1e-12,
        "max_iter": 100,
    }
    here = MatrixFactorization(**settings).fit(LOG, None if column is None else COLUMNS[column])
    there = MatrixFactorization(**settings).fit(frame, column, engine="spark")

    assert there.objective_ == pytest.approx(here.objective_, rel=1e-9)
    np.testing.assert_allclose(there.predict(USERS, ITEMS), here.predict(USERS, ITEMS), atol=1e-4)
    assert there.users_.tolist() == here.users_.tolist()
    assert there.items_.tolist() == here.items_.tolist()
    assert there.seen_starts_.tolist() == here.seen_starts_.tolist()
    assert there.count_seen(LOG) == len(LOG)


def test_clicks_are_made_of_ratings(frame: Any) -> None:
    settings: dict[str, Any] = {
        "n_factors": 0,
        "l2": 3.0,
        "relevance_threshold": 4,
        "offsets": "free",
        "tol": 1e-12,
        "dtype": "float64",
    }
    here = MatrixFactorization(**settings).fit(LOG, COLUMNS["propensity"])
    there = MatrixFactorization(**settings).fit(frame, "propensity", engine="spark")

    assert there.objective_ == pytest.approx(here.objective_, rel=1e-6)
    with pytest.raises(UsageError, match="no rating reaches the threshold 9"):
        MatrixFactorization(2, 1.0, relevance_threshold=9).fit(frame, "propensity", engine="spark")


def test_the_result_is_the_same_to_the_bit_for_any_order_of_rows(
    frame: Any, spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Five blocks are added by tasks of four ranges; float32 shows any other order of sums."""
    monkeypatch.setattr(spark_sums, "DRIVER_BYTES", 0)
    monkeypatch.setattr(spark_sums, "RANGE_BYTES", 500)
    shuffled = np.random.default_rng(0).permutation(len(LOG))
    other = spark.createDataFrame(
        pa.table({name: column[shuffled] for name, column in COLUMNS.items()})
    ).repartition(3)
    settings, engine = SHORT | {"max_iter": 2, "dtype": "float32"}, SparkEngine(n_blocks=5)
    one, two = (
        MatrixFactorization(**settings).fit(log, "propensity", engine=engine)
        for log in (frame, other)
    )

    assert one.history_ == two.history_
    assert (one.factors_.user_factors == two.factors_.user_factors).all()


def test_users_come_back_as_a_frame_and_need_not_come_to_the_driver(
    frame: Any, tmp_path: Path
) -> None:
    held = MatrixFactorization(**SHORT).fit(frame, "propensity", engine="spark")
    apart = MatrixFactorization(**SHORT).fit(
        frame, "propensity", engine=SparkEngine(collect_users=False)
    )
    apart.user_factors_frame.write.parquet(str(tmp_path / "users"))
    users = pd.read_parquet(tmp_path / "users").sort_values("user_id")

    assert users["user_id"].tolist() == held.users_.tolist()
    np.testing.assert_array_equal(np.stack(users["factors"].tolist()), held.factors_.user_factors)
    np.testing.assert_array_equal(users["offset"], held.factors_.user_offset)
    assert apart.factors_.user_factors.shape == (0, 2)
    # Three steps are far from the optimum, so users solved with other items would differ.
    here = MatrixFactorization(**SHORT).fit(LOG, COLUMNS["propensity"]).factors_
    np.testing.assert_allclose(held.factors_.user_factors, here.user_factors, rtol=1e-9)
    assert (apart.factors_.item_factors == held.factors_.item_factors).all()


def test_a_fitted_model_is_saved_without_the_frame(frame: Any, tmp_path: Path) -> None:
    model = MatrixFactorization(**SHORT).fit(frame, "propensity", engine="spark")
    model.save(tmp_path / "model.unskew")
    again: Any = unskew.load(tmp_path / "model.unskew")

    assert (again.predict(USERS, ITEMS) == model.predict(USERS, ITEMS)).all()


def test_a_log_may_be_a_path_of_parquet_with_names_of_its_own(spark: Any, tmp_path: Path) -> None:
    table = pd.DataFrame(COLUMNS).rename(
        columns={"user_id": "who.is", "item_id": "what", "rating": "how"}
    )
    table.to_parquet(tmp_path / "log.parquet")
    engine = SparkEngine(spark, user="who.is", item="what", rating="how")
    model = MatrixFactorization(**SHORT).fit(
        str(tmp_path / "log.parquet"), "propensity", engine=engine
    )

    assert model.user_factors_frame.columns == ["who.is", "factors", "offset"]


# Failures of a cluster


def test_a_restarted_driver_goes_on_to_the_same_bits(frame: Any, tmp_path: Path) -> None:
    whole = MatrixFactorization(**SHORT | {"max_iter": 6}).fit(frame, "propensity", engine="spark")
    parts = {"checkpoint": tmp_path / "state", "checkpoint_every": 2, "engine": "spark"}
    MatrixFactorization(**SHORT).fit(frame, "propensity", **parts)
    again = MatrixFactorization(**SHORT | {"max_iter": 6}).fit(frame, "propensity", **parts)

    assert again.history_ == whole.history_
    assert (again.factors_.user_factors == whole.factors_.user_factors).all()
    with pytest.raises(UsageError, match="belongs to another log"):
        MatrixFactorization(**SHORT).fit(frame.where("rating > 1"), "propensity", **parts)


def test_a_task_that_dies_is_run_again_and_changes_nothing(frame: Any) -> None:
    def dies_once(batches: Iterator[Any]) -> Iterator[Any]:
        from pyspark import TaskContext

        context = TaskContext.get()
        if context is not None and context.attemptNumber() == 0 and context.partitionId() == 0:
            raise RuntimeError("the machine of this task is gone")
        yield from batches

    shaky = frame.repartition(3).mapInArrow(dies_once, frame.schema)
    calm, shaken = (
        MatrixFactorization(**SHORT).fit(log, "propensity", engine="spark")
        for log in (frame, shaky)
    )

    assert shaken.history_ == calm.history_


@pytest.mark.slow
def test_a_worker_killed_in_the_middle_of_a_fit_changes_nothing() -> None:
    """In a process of its own, since one process has one cluster."""
    script = Path(__file__).with_name("killed_worker.py")
    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, timeout=600, check=False
    )

    assert done.returncode == 0, done.stderr[-3000:]
    assert json.loads(done.stdout.splitlines()[-1]) == {
        "n_killed": 1,
        "is_gone": True,
        "n_steps": 12,
        "same_history": True,
        "same_users": True,
        "same_items": True,
        "n_rows": 60,
    }


@pytest.mark.slow
def test_a_new_driver_continues_the_fit_of_a_killed_one_to_the_same_bits(tmp_path: Path) -> None:
    script, state = Path(__file__).with_name("killed_driver.py"), str(tmp_path / "fit.state")
    killed, done = (
        subprocess.run(
            [sys.executable, str(script), state, *options],
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
        for options in (["kill"], [])
    )

    assert killed.returncode == -signal.SIGKILL, killed.stderr[-3000:]
    assert done.returncode == 0, done.stderr[-3000:]
    summary = json.loads(done.stdout.splitlines()[-1])
    assert summary.pop("n_steps") < 12
    assert summary == {"same_history": True, "same_users": True, "same_items": True}


# Blocks


def test_a_block_is_sorted_by_user_and_item_whatever_the_order_of_its_rows() -> None:
    table = pa.table(
        {
            "user": ["b", "a", "b"],
            "item": [9, 5, 5],
            "rating": [1.0, 2.0, 3.0],
            "weight": [4.0, 1.0, 2.0],
        }
    )
    block = UserBlock.of(table, np.array([5, 9]), "float64")

    assert block.users.tolist() == ["a", "b"]
    assert block.cells.starts.tolist() == [0, 1, 3]
    assert block.cells.opposite.tolist() == [0, 0, 1]
    assert block.cells.rating.tolist() == [2.0, 3.0, 1.0]
    assert block.weight == pytest.approx([1, 2, 4])
    assert block.n_repeats == 0
    assert (
        UserBlock.of(
            pa.concat_tables([table, table.slice(1)]), np.array([5, 9]), "float64"
        ).n_repeats
        == 2
    )


@pytest.mark.parametrize(
    ("how", "expected"), [("self", [3 / 5] * 3), ("item", [1, 1, 1 / 2]), ("user", [3 / 5] * 3)]
)
def test_weight_factors_by_hand(how: str, expected: list[float]) -> None:
    """The user of this block rates three items with weights 1, 1 and 3; totals add other blocks."""
    table = pa.table(
        {"user": [1, 1, 1], "item": [5, 6, 7], "rating": [1.0] * 3, "weight": [1.0, 1.0, 3.0]}
    )
    block = UserBlock.of(table, np.array([5, 6, 7]), "float64")
    weight = np.array([2.0, 2.0, 4.0]) if how == "item" else np.array([1.0, 1.0, 8.0])
    totals = BlockTotals(unskew.data.Universe(2, 3), 2, 0, weight, weight)

    assert np.broadcast_to(WEIGHT_FACTORS[how](block.cells, totals), 3) == pytest.approx(expected)


def test_sums_are_added_in_the_order_of_the_blocks() -> None:
    """1e16 + 1 - 1e16 is 0 in this order, and 1 in another."""
    sums = ItemSums(2, 1, "float64", n_blocks=3)
    sent = [
        batch
        for number, value in [(2, -1e16), (0, 1e16), (1, 1.0)]
        for batch in sums.split(number, (value, np.full((2, 1), value)))
    ]
    (added,) = sums._add(iter(sent))

    assert added["value"].to_pylist() == [0.0]
    assert np.frombuffer(added["sums"][0].as_py()).tolist() == [0.0, 0.0]


# What cannot be done


@pytest.mark.parametrize(
    ("table", "error", "message"),
    [
        (changed(user_id=[None, *USERS[1:]]), BadRatingError, "1 of [0-9]+ rows have no user"),
        (
            changed(item_id=pa.array([None, *ITEMS[1:].tolist()])),
            BadRatingError,
            "1 of [0-9]+ rows have no item",
        ),
        (
            changed(rating=[np.nan, np.inf, *LOG.rating[2:]]),
            BadRatingError,
            "2 of [0-9]+ ratings are missing or not finite",
        ),
        (
            changed(propensity=[0.0, 1.5, None, np.nan, *[0.5] * (len(LOG) - 4)]),
            BadPropensityError,
            "4 of [0-9]+ propensities",
        ),
        (
            changed(rating=["good"] * len(LOG)),
            ColumnError,
            "'rating' has type string; the rating must be numbers",
        ),
        (
            changed(item_id=ITEMS / 2),
            ColumnError,
            "'item_id' has type double; the item must be text or integers",
        ),
        (
            changed().rename_columns(["person", "item_id", "rating", "propensity"]),
            ColumnError,
            "no column looks like the user",
        ),
        (
            changed().rename_columns(["user", "item", "rating", "p"]),
            ColumnError,
            "no column 'propensity' for propensity=",
        ),
        (
            pa.concat_tables([changed(), changed().slice(0, 2)]),
            DuplicateCellError,
            "2 rows repeat a",
        ),
        (changed().slice(0, 0), EmptyLogError, "no ratings"),
    ],
)
def test_a_log_that_cannot_be_used_is_refused_with_a_count(
    spark: Any, table: Any, error: Any, message: str
) -> None:
    with pytest.raises(error, match=message):
        MatrixFactorization(2, 1.0).fit(spark.createDataFrame(table), "propensity", engine="spark")


def test_a_user_without_a_solution_is_refused(frame: Any) -> None:
    with pytest.raises(UsageError, match=r"user 'u\d+' \(\d+ ratings, 40 factors\) has no unique"):
        MatrixFactorization(40, 0.0, offsets="none").fit(frame, "propensity", engine="spark")


def test_too_many_users_for_the_driver_are_refused_before_the_fit(
    frame: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spark_fitting, "MAX_COLLECTED", 100)
    with pytest.raises(UsageError, match=r"too many for the driver.*collect_users=False"):
        MatrixFactorization(2, 1.0).fit(frame, "propensity", engine="spark")


@pytest.mark.parametrize("log", [LOG, pd.DataFrame(COLUMNS)], ids=["Ratings", "pandas"])
def test_a_log_that_is_not_on_spark_is_refused(log: Any) -> None:
    with pytest.raises(
        UsageError,
        match=r"fits a Spark data frame or a path of Parquet files; got .*createDataFrame",
    ):
        MatrixFactorization(2, 1.0).fit(log, "propensity", engine="spark")


@pytest.mark.parametrize(
    "settings",
    [{"loss": "absolute"}, {"solver": "lbfgs"}, {"weight_transform": unskew.estimators.Clip(30)}],
)
def test_settings_that_need_the_log_at_hand_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(
        UsageError,
        match="squared loss with the solver 'auto', 'als' or 'reduced' and without weight_",
    ):
        MatrixFactorization(2, **settings).fit("nowhere", "propensity", engine="spark")


def test_arguments_of_the_wrong_kind_are_refused(frame: Any) -> None:
    with pytest.raises(
        UsageError,
        match=r"propensities must be the name of a column, .*; got ndarray",
    ):
        MatrixFactorization(2, 1.0).fit(frame, COLUMNS["propensity"], engine="spark")
    with pytest.raises(UnknownNameError, match="unknown value 'rows' of normalize"):
        MatrixFactorization(2, 1.0, normalize="rows").fit(frame, engine="spark")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="n_blocks must be a whole number, at least 1"):
        MatrixFactorization(2, 1.0).fit(frame, "propensity", engine=SparkEngine(n_blocks=0))
    with pytest.raises(UsageError, match="relevance_threshold must be the lowest rating"):
        MatrixFactorization(2, 1.0, relevance_threshold=np.nan).fit(
            frame, "propensity", engine="spark"
        )


def test_no_java_is_one_clear_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setattr(spark_frame.shutil, "which", lambda name: None)
    monkeypatch.setattr(spark_frame.SparkSession, "getActiveSession", lambda: None)
    with pytest.raises(
        UsageError, match=r"engine='spark' needs Java, which is not installed\. Install a JDK"
    ):
        MatrixFactorization(2, 1.0).fit("log.parquet", "propensity", engine="spark")


@pytest.mark.parametrize(
    ("master", "chosen", "expected"),
    [
        ("local[*]", None, sys.executable),
        ("local[*]", "/chosen/python", "python3"),
        ("spark://host:7077", None, "python3"),
    ],
)
def test_tasks_on_this_machine_run_in_this_python_unless_another_is_chosen(
    master: str, chosen: str | None, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = SimpleNamespace(master=master, pythonExec="python3")
    builder = SimpleNamespace(getOrCreate=lambda: SimpleNamespace(sparkContext=context))
    sessions = SimpleNamespace(getActiveSession=lambda: object(), builder=builder)
    monkeypatch.setattr(spark_frame, "SparkSession", sessions)
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    if chosen is not None:
        monkeypatch.setenv("PYSPARK_PYTHON", chosen)

    spark_frame._find_session(SparkEngine())

    assert context.pythonExec == expected


def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("unskew.registry.find_spec", lambda name: None)
    with pytest.raises(
        MissingExtraError, match=r"engine='spark' needs pyspark, .*pip install 'unskew\[spark\]'"
    ):
        MatrixFactorization(2, 1.0).fit(LOG, engine="spark")


# Cross-validation


@pytest.mark.parametrize(
    ("column", "estimator", "metric"),
    [
        ("propensity", "ips", "mae"),
        ("propensity", "snips", "accuracy"),
        (None, "naive", "mae"),
        ("propensity", "user_normalized", "mae"),
        (None, "item_normalized", "mse"),
    ],
)
def test_folds_are_fitted_and_scored_as_by_the_local_engine(
    frame: Any, column: str | None, estimator: str, metric: str
) -> None:
    """The cells of each fold on Spark are scored again by the local engine."""
    clip = unskew.estimators.Clip(4.0) if column else None
    model = MatrixFactorization(2, 20.0, weight_transform=clip, tol=1e-9, max_iter=500)
    values = COLUMNS["propensity"] if column else np.full(len(LOG), len(LOG) / LOG.n_cells)
    engine = SparkEngine(n_blocks=2)
    engine.check_criterion(metric=metric, estimator=estimator)
    _, folds = engine.split(frame, column, n_folds=3, random_state=5)

    scores = [
        fold.score(fold.training.fit(copy(model)), metric=metric, estimator=estimator)
        for fold in folds
    ]

    n_cells = 0
    for fold, score in zip(folds, scores, strict=True):
        table = fold.validation.frame.toArrow().to_pydict()
        cells = {*zip(table["user"], table["item"], strict=True)}
        is_held_out = np.array(
            [cell in cells for cell in zip(USERS.tolist(), ITEMS.tolist(), strict=True)]
        )
        n_cells += is_held_out.sum()
        training = Propensities(values[~is_held_out] * 2 / 3) if column else None
        local = Fold(
            LocalTraining(LOG.take(~is_held_out), training),
            LOG.take(is_held_out),
            Propensities(values[is_held_out] / 3),
        )
        assert score == pytest.approx(
            local.score(local.training.fit(copy(model)), metric=metric, estimator=estimator),
            rel=1e-3,
        )
    assert n_cells == len(LOG)


def test_settings_are_chosen_on_spark(frame: Any) -> None:
    grid = {"l2": [0.5, 500.0], "weight_transform": [None, unskew.estimators.Clip(5.0)]}
    settings: dict[str, Any] = {"grid": grid, "n_folds": 2, "engine": SparkEngine(n_blocks=2)}

    result = unskew.cross_validate(
        MatrixFactorization(1, tol=1e-5, max_iter=50), frame, propensities="propensity", **settings
    )

    assert len(result.table) == 4
    assert result.best_score == min(row["score"] for row in result.table)
    assert result.best_model.l2 == result.best_params["l2"]
    assert result.best_model.predict(USERS[:3], ITEMS[:3]).shape == (3,)
    assert result.setup["n_observed"] == len(LOG)


@pytest.mark.parametrize(
    ("criterion", "message"),
    [
        ({"metric": "dcg@5", "estimator": "snips"}, "metric 'dcg@5' is not available on Spark"),
        (
            {"metric": "logged_auc", "estimator": "snips"},
            "metric 'logged_auc' is not available on Spark",
        ),
        ({"metric": "rmse", "estimator": "snips"}, "metric 'rmse' is not available on Spark"),
        ({"metric": "mse", "estimator": "dr"}, "estimator 'dr' is not available on Spark"),
    ],
)
def test_a_criterion_that_is_not_available_on_spark_is_named(
    frame: Any, criterion: dict[str, str], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        unskew.cross_validate(
            MatrixFactorization(1, max_iter=2),
            frame,
            propensities="propensity",
            grid={"l2": [1.0]},
            n_folds=2,
            engine=SparkEngine(n_blocks=2),
            **criterion,  # type: ignore[arg-type]
        )


def test_a_universe_larger_than_the_log_scales_the_penalty(frame: Any) -> None:
    wide = MatrixFactorization(**SHORT).fit(
        frame, "propensity", engine=SparkEngine(n_blocks=2, universe=(4000, 3000))
    )
    plain = MatrixFactorization(**SHORT).fit(frame, "propensity", engine=SparkEngine(n_blocks=2))

    assert np.linalg.norm(wide.factors_.item_factors) < np.linalg.norm(plain.factors_.item_factors)


def test_a_model_that_spark_does_not_fit_is_named(frame: Any) -> None:
    settings: dict[str, Any] = {
        "grid": {"l2": [1.0]},
        "n_folds": 2,
        "engine": SparkEngine(n_blocks=2),
    }
    with pytest.raises(
        UsageError, match="LogisticFactorization cannot be fitted by engine='SparkEngine'"
    ):
        unskew.cross_validate(
            unskew.models.LogisticFactorization(1), frame, propensities="propensity", **settings
        )


def batch(**columns: Any) -> pa.RecordBatch:
    """Two cells of unknown users."""
    cells = {
        "user": ["x", "y"],
        "item": pa.array([int(ITEMS[0]), -5]),
        "rating": [3.0, 4.0],
        "weight": [2.0, 4.0],
        "factors": pa.array([None, None], pa.list_(pa.float64())),
        "offset": pa.array([None, None], pa.float64()),
    }
    return pa.record_batch({**cells, **columns})


@pytest.mark.parametrize("estimator", [SNIPS(), UserNormalized(), ItemNormalized()])
def test_batches_with_unknown_users_are_scored_by_the_items_alone(estimator: Any) -> None:
    fitted = MatrixFactorization(2, 2.0, max_iter=5).fit(LOG)
    spec = estimator.sums_needed(is_ratio=False, is_mean_of_users=False, cluster=None)
    sum_batches = spark_folds._make_sum_batches(fitted, find_metric("mse"), spec, None)
    batches = [batch(), batch().slice(0, 0), batch(user=["x", "z"], rating=[5.0, 2.0])]
    (row,) = (part.to_pylist()[0] for part in sum_batches(iter(batches)))
    sums = pickle.loads(row["sums"])

    expected = fitted.predict(["?", "?"], [ITEMS[0], -5], on_unknown="fallback")
    (x1, y), (x2, z) = (np.array([[3.0, 4.0], [5.0, 2.0]]) - expected) ** 2
    item_1, item_2 = (x1 + x2) / 2, (y + z) / 2
    assert row["n_cells"] == 4
    assert sums.total == pytest.approx(
        {
            "snips": [2 * x1 + 4 * y + 2 * x2 + 4 * z, 12],
            "user_normalized": [(x1 + x2) / 2 + y + z, 3],
            "item_normalized": [item_1 + item_2, 2],
        }[estimator.name]
    )
    assert list(sum_batches(iter([batch().slice(0, 0)]))) == []
