"""What once lost rows, crashed or was accepted in silence, tried from outside.

Other files have such tests beside what they test:

* devices and pipes that are written: `tests/io/test_writing.py`
* lost rows of pipes, JSON lines and DuckDB; cut files; 100,000 columns; one long id:
  `tests/io/test_readers_agree.py`
* codes out of range, which crashed: `tests/data/test_ratings.py`
* checkpoints that were cut: `tests/factorization/test_checkpoints.py`
* bombs, hostile ids and arrays, float32 and NaN factors: `tests/io/test_model_files.py`
* a read-only installation: `tests/kernels/test_compiling.py`
* 2^31 rows: `tests/kernels/test_positions.py`
* the penalty as an int32: `tests/models/test_matrix_factorization.py`
* masks, NaT, complex numbers: `tests/data/test_checks.py`; labels in another order:
  `tests/data/test_row_order.py`
* script and terminal escapes: `tests/test_injection.py`, `tests/test_tables.py`
* states of monitors: `tests/evaluation/test_monitor.py`
"""

from __future__ import annotations

import json
import os
import re
import stat
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import unskew
from command_line import fine, run
from unskew.errors import BadPredictionError, UnskewError
from unskew.models import GlobalMean, TriTraining
from unskew.propensity import (
    LogisticPropensity,
    NaiveBayesPropensity,
    PopularityPropensity,
)

LOG = unskew.simulate(30, 20, density=0.3, alpha=0.8, random_state=0).log
FRAME = LOG.to_frame("pandas")
P = np.full(len(LOG), 0.3)


def make_null(folder: Path) -> Path:
    """A device of our own, like /dev/null."""
    path = folder / "null"
    try:
        os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(1, 3))
    except (PermissionError, AttributeError):
        pytest.skip("only root makes devices")
    return path


def save_model(path: Path) -> None:
    GlobalMean().fit(LOG).save(path)


def write_page(path: Path) -> None:
    unskew.evaluate(LOG, {"threes": np.full(len(LOG), 3.0)}, propensities=P).to_html(path)


def train(path: Path) -> None:
    log = path.parent / "log.csv"
    FRAME.to_csv(log, index=False)
    fine("train", str(log), "--learner", "mean", "-o", str(path))


def report(path: Path) -> None:
    result = path.parent / "result.json"
    evaluation = unskew.evaluate(LOG, {"threes": np.full(len(LOG), 3.0)}, propensities=P)
    result.write_text(evaluation.to_json())
    fine("report", str(result), "-o", str(path))


@pytest.mark.parametrize("write", [save_model, write_page, train, report])
def test_no_output_replaces_a_device(write: Callable[[Path], None], tmp_path: Path) -> None:
    path = make_null(tmp_path)

    write(path)

    assert stat.S_ISCHR(path.stat().st_mode)


CALLS: dict[str, tuple[Callable[[], Any], str]] = {
    "frame to popularity": (lambda: PopularityPropensity().fit(3), "log"),
    "frame to logistic": (lambda: LogisticPropensity().fit(FRAME), "log"),
    "frame to predict": (lambda: PopularityPropensity().fit(LOG).predict(FRAME), "log"),
    "frame to inverse_weights": (
        lambda: unskew.evaluate(FRAME, P, propensities=PopularityPropensity().fit(LOG)),  # type: ignore[arg-type]
        "log",
    ),
    "frame to cross_validate": (
        lambda: unskew.cross_validate(unskew.MatrixFactorization(), FRAME, grid={"l2": [1]}),
        "log|engine",
    ),
    "unknown estimator": (
        lambda: unskew.evaluate(LOG, P, propensities=P, estimators="x"),
        "estimator",
    ),
    "unknown learner": (lambda: unskew.compare_learners(LOG, {"a": "x"}, test=LOG), "learner"),
    "grid": (
        lambda: unskew.cross_validate(unskew.MatrixFactorization(), LOG, grid={"l2": [1, "a"]}),
        "l2",
    ),
    "grid of the shell": (
        lambda: unskew.cross_validate(
            unskew.MatrixFactorization(), LOG, grid={"l2": ["auto", 1.0, "1"]}
        ),
        "l2",
    ),
    "random_state": (
        lambda: unskew.MatrixFactorization(2, random_state="x").fit(LOG),  # type: ignore[arg-type]
        "random_state",
    ),
    "universe as an array": (
        lambda: unskew.Ratings.from_frame(FRAME, universe=np.ones((2, 2))),  # type: ignore[arg-type]
        "universe",
    ),
    "too large integer": (lambda: unskew.evaluate(LOG, P, propensities=10**400), "propensit"),
    "10**400 as a setting": (
        lambda: unskew.MatrixFactorization(10**400).fit(LOG),
        "n_factors",
    ),
    "1e308 as a size": (lambda: unskew.simulate(1e308, 3), "number of users"),  # type: ignore[arg-type]
    "10**400 as a size": (lambda: unskew.simulate(10**400, 3), "n_users"),
    "two columns of one name": (
        lambda: unskew.evaluation.Monitor(["a"], planned_size=9).update(
            pd.DataFrame([[1, 2]], columns=["r", "r"]), {"a": [1.0]}, [0.5]
        ),
        "rating",
    ),
    "position of evaluate_frame": (
        lambda: unskew.evaluate_frame(FRAME.assign(prediction=3.0, propensity=0.5), position=1j),
        "position",
    ),
    "other of Impressions": (
        lambda: unskew.Impressions(*[np.zeros(1, np.int64)] * 5, *[np.zeros(1)] * 3, other=1j),
        "other|position",
    ),
    "smoothing of logit-vd": (
        lambda: unskew.models.LogitVd(smoothing=1e308).fit(LOG),
        "smoothing",
    ),
    "empty_users": (
        lambda: unskew.evaluate_random_test(LOG, P, empty_users=1j),
        "empty_users",
    ),
    "smoothing NaN": (
        lambda: NaiveBayesPropensity(smoothing=float("nan")).fit(LOG, mcar=[1, 2, 3, 4, 5]),
        "smoothing",
    ),
    "NaN ratings in a frame": (
        lambda: NaiveBayesPropensity().fit_frame(
            FRAME.assign(rating=[np.nan, *FRAME["rating"][1:]]), mcar=[1, 2, 3, 4, 5]
        ),
        "rating",
    ),
    "null ids in a frame": (
        lambda: PopularityPropensity().fit_frame(
            FRAME.assign(item_id=[None, *FRAME["item_id"][1:].astype(object)])
        ),
        "item",
    ),
    "classes as weights": (
        lambda: unskew.evaluate(LOG, P, propensities=P, weight_transform=int),  # type: ignore[arg-type]
        "weight_transform",
    ),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_wrong_argument_is_a_typed_error_that_names_it(name: str) -> None:
    call, parameter = CALLS[name]
    with pytest.raises(UnskewError) as caught:
        call()

    assert re.search(parameter, f"{caught.value.parameter} {caught.value}")


def test_an_automatic_penalty_can_be_one_of_a_grid() -> None:
    model = unskew.MatrixFactorization(1, max_iter=2)

    with pytest.warns(unskew.errors.ConvergenceWarning):
        search = unskew.cross_validate(model, LOG, grid={"l2": ["auto", 1.0]}, n_folds=2)

    assert set(search.to_columns()["l2"]) == {"auto", 1.0}


@pytest.mark.parametrize("shape", [(1, 1), (1, 6), (6, 1)])
@pytest.mark.parametrize("solver", ["als", "lbfgs"])
def test_one_user_or_one_item_can_be_fitted(shape: tuple[int, int], solver: str) -> None:
    user, item = np.indices(shape).reshape(2, -1)
    rating = np.arange(1.0, user.size + 1)
    log = unskew.Ratings.from_codes(user, item, rating, shape=shape)

    model = unskew.MatrixFactorization(2, 0.001, solver=solver, offsets="none").fit(log)

    assert np.allclose(model.predict(log.users[user], log.items[item]), rating, atol=0.05)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("train", "{log}", "--cross-validate", "--grid", "l2=1,a", "-o", "m.unskew"), "l2"),
        (("train", "{log}", "--learner", "mean", "-o", ""), "path"),
        (("validate", "{log}", "--names", b"\xff,b,c".decode(errors="surrogateescape")), "names"),
    ],
)
def test_the_shell_refuses_bad_options_without_a_traceback(
    arguments: tuple[str, ...], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    FRAME.to_csv("log.csv", index=False)

    result = run(*(each.replace("{log}", "log.csv") for each in arguments))

    assert result.exit_code in (2, 3)
    assert message in result.stderr


@pytest.mark.filterwarnings("ignore:overflow")
def test_a_risk_that_is_not_finite_is_refused() -> None:
    with pytest.raises(UnskewError, match="mse is not finite for"):
        unskew.evaluate(LOG, {"wild": np.full(len(LOG), 1e200)}, propensities=P, metrics=["mse"])


def test_tri_training_needs_less_than_a_matrix() -> None:
    """It held 8 bytes for each pair of a user and an item."""
    n_users, n_items, n = 8_000, 4_000, 8_000
    rng = np.random.default_rng(0)
    cell = np.unique(rng.integers(0, n_users * n_items, n))
    log = unskew.Ratings.from_codes(
        cell // n_items, cell % n_items, rng.integers(1, 6, cell.size), shape=(n_users, n_items)
    ).with_universe("log")
    model = TriTraining(unskew.MatrixFactorization(1, 1.0, max_iter=2), n_rounds=1, n_steps=1)
    tracemalloc.start()
    model.fit(log, np.full(len(log), 1e-3))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert peak < 8 * n_users * n_items / 8


ADDRESSES = [
    "s3://bucket/model.unskew",
    "http://localhost:9/x.html",
    "gs+x://bucket/y",
    "simplecache::s3://bucket/x",
    Path("s3://bucket/model.unskew"),
]


@pytest.mark.parametrize("write", [save_model, write_page])
@pytest.mark.parametrize("address", ADDRESSES, ids=str)
def test_an_address_is_no_file_to_write(
    write: Callable[[Any], None], address: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It once became a folder named s3:."""
    monkeypatch.chdir(tmp_path)

    with pytest.raises(UnskewError, match="path must be a file of this machine"):
        write(address)

    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "arguments",
    [
        ("demo", "--files", "s3://bucket/sample"),
        ("demo", "--files", "hf://datasets/sample"),
        ("reproduce", "figure2", "-o", "s3://bucket/sample"),
    ],
)
def test_an_address_is_no_folder_to_write(
    arguments: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    result = run(*arguments)

    assert result.exit_code == 2
    assert "must be a file of this machine" in result.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["x" * 300, "a\0b", "\ud800"], ids=["long", "null", "surrogate"])
def test_a_name_that_no_file_can_have_is_a_typed_error(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    model = unskew.MatrixFactorization(2, 1.0, max_iter=2)

    for call in (
        lambda: model.fit(LOG, checkpoint=name),
        lambda: save_model(Path(name)),
        lambda: unskew.load(name),
        lambda: unskew.evaluation.Monitor.load(name),
    ):
        with pytest.raises(UnskewError, match="must be the path of a file"):
            call()


def test_an_address_that_fsspec_cannot_open_is_a_typed_error() -> None:
    pytest.importorskip("fsspec")

    result = run("validate", "reference://x.csv")

    assert result.exit_code == 3
    assert "reference://x.csv cannot be read" in result.stderr


N = len(LOG)
NO_PREDICTIONS: dict[str, Any] = {
    "text": ["1"] * N,
    "bytes": np.full(N, b"1"),
    "dates": np.full(N, np.datetime64("2020-01-01")),
    "durations": np.full(N, np.timedelta64(3, "D")),
    "complex numbers": np.full(N, 1 + 0j),
    "records": np.zeros(N, [("a", "f8")]),
    "masked": np.ma.array(np.ones(N), mask=np.arange(N) == 3),
    "too large integers": [10**400] * N,
}


class Constant:
    """A model that gives the same array whatever it is asked."""

    def __init__(self, predicted: Any) -> None:
        self.predicted = predicted

    def predict(self, users: Any, items: Any) -> Any:
        return self.predicted


@pytest.mark.parametrize("wrap", [lambda values: values, Constant], ids=["array", "model"])
@pytest.mark.parametrize("kind", NO_PREDICTIONS)
def test_predictions_that_are_no_numbers_are_refused(kind: str, wrap: Callable[[Any], Any]) -> None:
    predictions = wrap(NO_PREDICTIONS[kind])

    with pytest.raises(BadPredictionError, match="cannot be read as predictions"):
        unskew.evaluate(LOG, predictions, propensities=P, metrics=["mae"])
    with pytest.raises(BadPredictionError, match="cannot be read as predictions"):
        unskew.evaluate_random_test(LOG, predictions, metrics=["mae"])


@pytest.mark.parametrize("kind", ["user", "item"])
def test_a_missing_id_of_a_cluster_is_refused(kind: Any) -> None:
    column = f"{kind}_id"
    ids = [None, *FRAME[column][1:].astype(object)]
    frame = FRAME.assign(prediction=3.0, propensity=0.5, **{column: ids})

    with pytest.raises(UnskewError, match=f"{kind} ids are missing"):
        unskew.evaluate_frame(frame, universe=(30, 20), cluster=kind)


def test_json_of_huge_ratings_has_no_infinity(tmp_path: Path) -> None:
    """Their sum is no float. `validate --json` once printed Infinity, and `train --json` NaN."""
    path = tmp_path / "log.csv"
    FRAME.assign(rating=1.7e308).to_csv(path, index=False)

    json.loads(fine("validate", str(path), "--json").stdout, parse_constant=pytest.fail)
    with np.errstate(all="ignore"):
        result = run(
            "train", str(path), "--learner", "offsets", "-o", str(tmp_path / "m"), "--json"
        )
    assert result.exit_code == 2
    assert not (tmp_path / "m").exists()
