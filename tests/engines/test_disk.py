"""Fits of logs in Parquet files that stay on disk."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import unskew
from unskew.data.ratings import Ratings
from unskew.engines import DiskEngine
from unskew.errors import (
    BadFileError,
    BadPropensityError,
    BadRatingError,
    ColumnError,
    DuplicateCellError,
    EmptyLogError,
    UsageError,
)
from unskew.io import duckdb_files
from unskew.models.matrix_factorization import MatrixFactorization

pytest.importorskip("duckdb", reason="duckdb is not installed: pip install 'unskew[duckdb]'")
pytest.importorskip("pyarrow", reason="pyarrow is not installed: pip install 'unskew[io]'")

pytestmark = pytest.mark.filterwarnings("ignore::unskew.errors.ConvergenceWarning")

WORLD = unskew.simulate(60, 45, density=0.15, alpha=0.4, random_state=2)
USERS = np.array([f"u{code:03}" for code in WORLD.log.user])
ITEMS = WORLD.log.item * 7 - 11
P = np.asarray(WORLD.propensities)
LOG = Ratings.from_arrays(USERS, ITEMS, WORLD.log.rating)
FRAME = pd.DataFrame(
    {"user_id": USERS, "item_id": ITEMS, "rating": WORLD.log.rating, "propensity": P}
)
SHORT: dict[str, Any] = {"n_factors": 3, "l2": 5.0, "max_iter": 4, "tol": 0.0}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The log in two files and in another order."""
    shuffled = FRAME.sample(frac=1.0, random_state=0)
    shuffled.iloc[:100].to_parquet(tmp_path / "1.parquet")
    shuffled.iloc[100:].to_parquet(tmp_path / "2.parquet")
    return tmp_path / "*.parquet"


@pytest.mark.parametrize(
    ("normalize", "column"),
    [("none", "propensity"), ("none", None), ("self", "propensity"), ("user", "propensity")],
)
def test_the_fit_is_that_of_the_log_in_memory(
    path: Path, normalize: Any, column: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Batches of 64 cells end within rows."""
    monkeypatch.setattr(duckdb_files, "BATCH_ROWS", 64)
    model = MatrixFactorization(**SHORT, normalize=normalize)
    there = model.fit(path, column, engine=DiskEngine())
    here = MatrixFactorization(**SHORT, normalize=normalize).fit(LOG, P if column else None)

    assert there.history_[1:] == pytest.approx(here.history_[1:], rel=1e-9)
    np.testing.assert_allclose(there.predict(USERS, ITEMS), here.predict(USERS, ITEMS), atol=1e-6)
    assert there.users_.tolist() == here.users_.tolist()
    assert there.items_.tolist() == here.items_.tolist()
    assert there.count_seen(LOG) == len(LOG)
    assert there.recommend(k=3).items.tolist() == here.recommend(k=3).items.tolist()


def test_many_factors_and_clicks_in_single_precision(path: Path) -> None:
    """With 48 factors rows take conjugate gradient steps."""
    settings: dict[str, Any] = {
        "n_factors": 48,
        "l2": 50.0,
        "dtype": "float32",
        "relevance_threshold": 4,
        "max_iter": 5,
    }
    there = MatrixFactorization(**settings).fit(path, "propensity", engine=DiskEngine())
    here = MatrixFactorization(**settings).fit(LOG, P)

    assert there.objective_ == pytest.approx(here.objective_, rel=1e-4)


def test_a_saved_model_and_a_checkpoint_outlive_the_files(path: Path, tmp_path: Path) -> None:
    whole = MatrixFactorization(**SHORT).fit(path, "propensity", engine=DiskEngine())
    parts: dict[str, Any] = {"checkpoint": tmp_path / "state", "checkpoint_every": 1}
    MatrixFactorization(**SHORT | {"max_iter": 2}).fit(
        path, "propensity", engine=DiskEngine(folder=str(tmp_path)), **parts
    )
    again = MatrixFactorization(**SHORT).fit(path, "propensity", engine=DiskEngine(), **parts)
    again.save(tmp_path / "model.unskew")
    loaded: Any = unskew.load(tmp_path / "model.unskew")

    assert again.history_ == whole.history_
    assert loaded.recommend(k=2).items.tolist() == whole.recommend(k=2).items.tolist()
    assert not list(tmp_path.glob("unskew-*"))


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"user_id": [None, *USERS[1:]]}, BadRatingError, "1 of [0-9,]+ rows have no user"),
        ({"rating": [np.nan, *FRAME["rating"][1:]]}, BadRatingError, "1 of .* not finite"),
        ({"propensity": [0.0, 2.0, *P[2:]]}, BadPropensityError, "2 of [0-9,]+ propensities"),
        ({"item_id": ITEMS / 2}, UsageError, "the item must be text or integers"),
        ({"user_id": "one", "item_id": 1}, DuplicateCellError, "rows repeat a"),
    ],
)
def test_a_log_that_cannot_be_used_is_refused_with_a_count(
    tmp_path: Path, change: dict[str, Any], error: Any, message: str
) -> None:
    FRAME.assign(**change).to_parquet(tmp_path / "log.parquet")
    with pytest.raises(error, match=message):
        MatrixFactorization(**SHORT).fit(
            tmp_path / "log.parquet", "propensity", engine=DiskEngine()
        )


def test_other_inputs_are_refused_by_name(path: Path, tmp_path: Path) -> None:
    FRAME.iloc[:0].to_parquet(tmp_path / "empty.parq")
    with pytest.raises(EmptyLogError, match="no ratings"):
        MatrixFactorization(**SHORT).fit(tmp_path / "empty.parq", engine=DiskEngine())
    with pytest.raises(BadFileError, match="cannot be read as Parquet"):
        MatrixFactorization(**SHORT).fit(tmp_path / "nowhere.parquet", engine=DiskEngine())
    with pytest.raises(UsageError, match="engine='disk' fits the path of Parquet files; got"):
        MatrixFactorization(**SHORT).fit(LOG, engine=DiskEngine())
    with pytest.raises(ColumnError, match="no column 'p' for propensity="):
        MatrixFactorization(**SHORT).fit(path, "p", engine=DiskEngine())
    with pytest.raises(UsageError, match="engine='disk' alternates between users and items"):
        MatrixFactorization(**SHORT, solver="reduced").fit(path, engine=DiskEngine())
    with pytest.raises(UsageError, match="engine='disk' fits squared loss"):
        MatrixFactorization(**SHORT, loss="absolute").fit(path, engine=DiskEngine())
