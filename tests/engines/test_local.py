"""The whole job on data frames of any library, read into memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import duckdb
import narwhals.stable.v2 as nw
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import unskew
from unskew.data.frames import hash_ids, put_column
from unskew.data.ratings import Ratings
from unskew.engines import LocalEngine
from unskew.errors import ColumnError, UnknownNameError, UsageError
from unskew.models.matrix_factorization import MatrixFactorization
from unskew.ranking.positions import rank_cells

pytestmark = pytest.mark.filterwarnings("ignore::unskew.errors.UnskewWarning")

WORLD = unskew.simulate(60, 12, density=0.2, alpha=0.5, random_state=3)
FRAME = pd.DataFrame(
    {
        "user_id": [f"u{code:03}" for code in WORLD.log.user],
        "item_id": WORLD.log.item,
        "rating": WORLD.log.rating,
        "propensity": np.asarray(WORLD.propensities),
        "tested": 0.3 * np.asarray(WORLD.propensities),
    }
)
LIBRARIES: dict[str, Callable[[pd.DataFrame], Any]] = {
    "pandas": lambda frame: frame,
    "polars": pl.from_pandas,
    "polars lazy": lambda frame: pl.from_pandas(frame).lazy(),
    "pyarrow": lambda frame: pa.Table.from_pandas(frame, preserve_index=False),
    "DuckDB": lambda frame: duckdb.connect().from_df(frame),
}
FRAME = FRAME[FRAME.groupby("item_id")["rating"].transform("size") >= 8].reset_index(drop=True)
ITEMS = np.unique(FRAME["item_id"])
USERS = [f"u{code:03}" for code in range(60)]
UNIVERSE = 60, len(ITEMS)
CELLS = FRAME["user_id"], FRAME["item_id"]
SETTINGS: dict[str, Any] = {"n_factors": 2, "l2": 5.0, "max_iter": 5, "tol": 0.0}
SHARES = {float(rating): 0.2 for rating in range(1, 6)}
ENGINE = LocalEngine(universe=UNIVERSE)


def rows_of(frame: Any) -> pd.DataFrame:
    """Any frame as pandas, in the order of users and items."""
    if isinstance(frame, pl.LazyFrame):
        frame = frame.collect()
    if isinstance(frame, duckdb.DuckDBPyRelation):
        frame = frame.df()
    elif not isinstance(frame, pd.DataFrame):  # pyarrow 15 calls what pandas warns of
        frame = pd.DataFrame(nw.from_native(frame, eager_only=True).to_dict(as_series=False))
    return frame.sort_values(["user_id", "item_id"]).reset_index(drop=True)


def test_tables_of_a_connection_are_not_taken_for_new_rows() -> None:
    connection = duckdb.connect()
    for name in ("native", "rows", "unused"):
        connection.sql(f"CREATE TABLE {name} AS SELECT 1 AS other")
    relation = connection.sql("SELECT range AS user_id, range AS item_id FROM range(3)")

    joined = put_column(relation, "position", np.array([3, 1, 2]))

    assert joined.columns == ["user_id", "item_id", "position"]
    assert joined.fetchall() == [(0, 0, 3), (1, 1, 1), (2, 2, 2)]
    assert connection.sql("SELECT * FROM unused").fetchall() == [(1,)]


def test_a_generator_draws_the_seed_of_a_split() -> None:
    draws = np.random.default_rng(5)
    tests = [ENGINE.split_frame(FRAME, share=0.3, random_state=draws)[1] for _ in range(2)]
    again = ENGINE.split_frame(FRAME, share=0.3, random_state=np.random.default_rng(5))[1]

    assert len(tests[0]) > 0
    assert rows_of(again).equals(rows_of(tests[0]))
    assert not rows_of(tests[1]).equals(rows_of(tests[0]))
    with pytest.raises(UsageError, match="random_state must be a whole number"):
        ENGINE.split_frame(FRAME, random_state="seed")  # type: ignore[arg-type]


@pytest.mark.parametrize("library", LIBRARIES)
def test_whole_users_are_drawn_by_their_hash(library: str) -> None:
    rest, sample = ENGINE.split_frame(LIBRARIES[library](FRAME), share=0.4, by="user")

    is_drawn = np.array([hash_ids(user, 0) < 0.4 * 2**32 for user in FRAME["user_id"]])
    for part, expected in ((rest, FRAME[~is_drawn]), (sample, FRAME[is_drawn])):
        pd.testing.assert_frame_equal(
            rows_of(part), rows_of(expected), check_dtype=False, check_exact=True
        )
    assert 10 < FRAME["user_id"][is_drawn].nunique() < 35
    with pytest.raises(UnknownNameError, match="by"):
        ENGINE.split_frame(FRAME, by="time")  # type: ignore[arg-type]


@pytest.mark.parametrize("library", LIBRARIES)
def test_every_library_gives_the_numbers_of_arrays(library: str) -> None:
    frame = LIBRARIES[library](FRAME)
    train, test = ENGINE.split_frame(frame, share=0.3, random_state=1)
    weigh = unskew.NaiveBayesPropensity().fit_frame(train, mcar=SHARES, universe=UNIVERSE)
    model = MatrixFactorization(**SETTINGS).fit(train, weigh, engine=ENGINE)
    scored = ENGINE.rank_frame(model, ENGINE.predict_frame(model, test), exclude=train)
    result = unskew.evaluate_frame(
        scored,
        prediction="prediction",
        position="position",
        metrics=["mse", "dcg@5"],
        universe=UNIVERSE,
        propensity="tested",
    )
    best = rows_of(ENGINE.recommend_frame(model, k=3, exclude=train))

    is_test = np.array([hash_ids(*cell, 1) < 0.3 * 2**32 for cell in zip(*CELLS, strict=True)])
    pd.testing.assert_frame_equal(
        rows_of(test), rows_of(FRAME[is_test]), check_dtype=False, check_exact=True
    )
    parts = FRAME[~is_test], FRAME[is_test]
    here, held = (Ratings.from_frame(part, users=USERS, items=ITEMS) for part in parts)
    weights = unskew.NaiveBayesPropensity().fit(here, mcar=SHARES, universe=UNIVERSE)
    expected = MatrixFactorization(**SETTINGS).fit(here, weights)
    # The frame has 43 of the 60 users, so sums of BLAS may be rounded otherwise.
    assert model.history_ == pytest.approx(expected.history_, rel=1e-12)
    p = FRAME["tested"][is_test].to_numpy()
    options: dict[str, Any] = {"propensities": p, "cluster": "user"}
    rated = unskew.evaluate(held, expected, metrics=["mse"], **options)
    # With `exclude`, `naive` and `snips` are averages over the candidates that are left.
    ranked = unskew.evaluate(
        held, expected, metrics=["dcg@5"], estimators=["ips"], exclude=here, **options
    )
    for row in [*rated, *ranked]:
        found = result.risk("prediction", metric=row.metric, estimator=row.estimator)
        assert found.estimate == pytest.approx(row.estimate, rel=1e-9)
        assert found.std_error == pytest.approx(row.std_error, rel=1e-9)
    lists = expected.recommend(model.users_, k=3).to_columns()
    order = best.sort_values(["user_id", "position"])
    assert order["item_id"].tolist() == lists["item_id"].tolist()
    assert order["score"].tolist() == pytest.approx(lists["score"].tolist())


def test_positions_by_hand() -> None:
    """Item 0 leads, 1 and 2 are equal, 3 is last; user 1 has seen item 0; -1 is unknown."""
    scores = np.array([[9.0, 5.0, 5.0, 1.0]] * 2)
    user, item = np.array([0, 0, 1, 1, 1], np.int32), np.array([0, 2, 2, 3, -1], np.int32)

    def rank(hidden: list[int]) -> list[int]:
        cells = np.array(hidden, np.int64)
        return rank_cells(user, item, 2, 4, lambda users: scores[users], cells).tolist()

    assert rank([]) == [1, 2, 2, 4, 5]
    assert rank([4]) == [1, 2, 1, 3, 4]
    assert rank([4, 7]) == [1, 2, 1, 3, 4]  # item 3 of user 1 is tested, so it is not hidden


def test_columns_are_named_by_the_engine() -> None:
    engine = LocalEngine(user="who", item="film", rating="stars")
    frame = FRAME.rename(columns={"user_id": "who", "item_id": "film", "rating": "stars"})
    model = MatrixFactorization(**SETTINGS).fit(frame, "propensity", engine=engine)

    assert engine.predict_frame(model, frame).columns.tolist()[-1] == "prediction"
    best = engine.recommend_frame(model, k=2, exclude=frame)
    assert best.columns.tolist() == ["who", "film", "score", "position"]
    assert len(ENGINE.recommend_frame(model, k=2)) == 2 * len(model.users_)


@pytest.mark.parametrize("solver", ["als", "reduced"])
def test_solvers_find_one_optimum(solver: Any) -> None:
    settings: dict[str, Any] = {"n_factors": 0, "l2": 5.0, "solver": solver, "tol": 1e-12}
    model = MatrixFactorization(**settings).fit(FRAME, "propensity", engine=LocalEngine())
    log = Ratings.from_frame(FRAME, universe="log")
    expected = MatrixFactorization(**settings).fit(log, FRAME["propensity"])

    assert model.objective_ == pytest.approx(expected.objective_, rel=1e-9)


def test_clicks_are_made_of_ratings() -> None:
    settings = SETTINGS | {"relevance_threshold": 4, "normalize": "item"}
    model = MatrixFactorization(**settings).fit(FRAME, "propensity", engine=LocalEngine())
    log = Ratings.from_frame(FRAME, universe="log")

    assert model.history_ == MatrixFactorization(**settings).fit(log, FRAME["propensity"]).history_


def test_what_cannot_be_done_is_named() -> None:
    with pytest.raises(UsageError, match="model must be a Recommender; got 'mf'"):
        ENGINE.rank_frame("mf", FRAME)
    model = MatrixFactorization(**SETTINGS).fit(FRAME, "propensity", engine=ENGINE)
    with pytest.raises(ColumnError, match="the frame already has a column 'rating'"):
        ENGINE.predict_frame(model, FRAME, name="rating")
    with pytest.raises(UsageError, match="must be the name of a column, or a model by rating"):
        model.fit(FRAME, [0.5] * len(FRAME), engine=ENGINE)
    weigh = unskew.LogisticPropensity().fit(WORLD.log)
    with pytest.raises(UsageError, match=r"cannot be computed in a data frame"):
        model.fit(FRAME, weigh, engine=ENGINE)
    with pytest.raises(UsageError, match="cannot choose l2 from the log"):
        MatrixFactorization(2).fit(FRAME, "propensity", engine=ENGINE)
    model.user_factors_frame, model.users_ = "on Spark", np.empty(0, np.int64)
    with pytest.raises(UsageError, match="factors of the users of this MatrixFactorization are on"):
        ENGINE.recommend_frame(model)
