"""Logistic propensities that are fitted to a frame by groups are those of a fit to the log."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from scipy.special import expit

import unskew
from unskew import LogisticPropensity, Ratings, evaluate_frame, load
from unskew.errors import (
    ColumnError,
    DataError,
    EmptyLogError,
    UniverseError,
    UnknownIdError,
    UsageError,
)
from unskew.propensity import (
    CalibratedPropensity,
    ClippedPropensity,
    CrossFittedPropensity,
    OneBitPropensity,
    PoissonPropensity,
    PopularityPropensity,
    RakedPropensity,
    UniformPropensity,
)
from unskew.propensity.calibrated import METHODS, LogitBins, count_cells, limited_logit

N_USERS, N_ITEMS = 60, 12
RNG = np.random.default_rng(0)
GROUP = np.array(["new", "old", "staff"])[RNG.choice(3, N_USERS, p=[0.5, 0.3, 0.2])]
SIZES = {name: int((name == GROUP).sum()) for name in ("staff", "new", "old")}
GROUP_FEATURES = {"staff": [9.0, 1.0], "new": [1.0, 0.0], "old": [5.0, 0.0]}
ITEMS = [f"film {code}" for code in RNG.permutation(N_ITEMS)]
ITEM_FEATURES = np.column_stack([np.arange(N_ITEMS) % 2, np.arange(N_ITEMS) ** 1.5])
P = 1 / (1 + np.exp(1.5 - 0.4 * (GROUP == "old")[:, None] - 0.1 * np.arange(N_ITEMS)))
USER, ITEM = np.nonzero(RNG.random((N_USERS, N_ITEMS)) < P * (np.arange(N_ITEMS) != 5))
COLUMNS: dict[str, Any] = {
    "user_id": USER,
    "film.id": np.array(ITEMS)[ITEM],
    "rating": 1.0 + USER % 5,
    "segment": GROUP[USER],
    "row": np.arange(len(USER)),
}
LIBRARIES: dict[str, Any] = {
    "pandas": pd.DataFrame,
    "polars": pl.DataFrame,
    "polars-lazy": pl.LazyFrame,
    "pyarrow": pa.table,
    "duckdb": lambda columns: duckdb.from_arrow(pa.table(columns)),
}
OPTIONS: dict[str, Any] = {"universe": (N_USERS, N_ITEMS), "items": ITEMS, "item": "film.id"}


def make_model(**settings: Any) -> LogisticPropensity:
    return LogisticPropensity(item_features=ITEM_FEATURES, ridge=2.0, **settings)


LOG = Ratings.from_arrays(
    USER, COLUMNS["film.id"], COLUMNS["rating"], users=np.arange(N_USERS), items=ITEMS
)


def read_column(frame: Any, name: str) -> np.ndarray:
    """A column in the order of the rows that the frame was made of."""
    if isinstance(frame, pl.LazyFrame):
        frame = frame.collect()
    if isinstance(frame, duckdb.DuckDBPyRelation):
        frame = frame.to_arrow_table()
    if hasattr(frame, "toArrow"):
        frame = frame.toArrow()
    values, rows = (np.asarray(frame[each]) for each in (name, "row"))
    return values[np.argsort(rows)]


def check_library(make: Any) -> None:
    """Without and with groups, coefficients and propensities are those of a fit to the log."""
    of_groups = np.array([GROUP_FEATURES[name] for name in SIZES])
    of_users = np.array([GROUP_FEATURES[name] for name in GROUP])
    for interactions, groups in (("none", {}), ("all", {"group": "segment", "group_sizes": SIZES})):
        features = (of_groups, of_users) if groups else (None, None)
        model, expected = (
            make_model(interactions=interactions, user_features=table) for table in features
        )
        frame = make(COLUMNS)
        model.fit_frame(frame, **OPTIONS, **groups)
        expected.fit(LOG)
        found = read_column(model.predict_frame(frame, item="film.id", name="p"), "p")

        assert model.coefficients_ == pytest.approx(expected.coefficients_, rel=1e-9)
        assert model.log_likelihood_ == pytest.approx(expected.log_likelihood_, rel=1e-12)
        np.testing.assert_allclose(found, expected.predict(LOG).values, rtol=1e-9)


def check_calibration(make: Any, method: Any) -> None:
    """The propensities are those of one calibration to all users of the log."""
    of_groups = np.array([GROUP_FEATURES[name] for name in SIZES])
    frame, groups = make(COLUMNS), {"group": "segment", "group_sizes": SIZES}
    model = CalibratedPropensity(make_model(user_features=of_groups), method=method)
    model.fit_frame(frame, **OPTIONS, **groups)
    found = read_column(model.predict_frame(frame, item="film.id", name="p"), "p")

    of_users = np.array([GROUP_FEATURES[name] for name in GROUP])
    inner = make_model(user_features=of_users).fit(LOG)
    one_fold = np.zeros(N_USERS, np.int32)
    totals = count_cells(inner, LOG, one_fold, 1, LOG.n_cells, seed=0)[:, 0]
    curve = METHODS[method](LogitBins.of(*totals))
    logits = limited_logit(inner.predict(LOG).values)
    expected = expit(np.interp(logits, curve.knots, curve.levels))
    np.testing.assert_allclose(found, expected, rtol=1e-6)


@pytest.mark.parametrize("method", ["platt", "isotonic"])
@pytest.mark.parametrize("library", LIBRARIES)
def test_a_calibration_to_groups_is_that_of_all_users_of_the_log(library: str, method: Any) -> None:
    check_calibration(LIBRARIES[library], method)


def test_what_a_calibration_to_groups_cannot_do_is_named() -> None:
    frame = pl.DataFrame(COLUMNS)
    model = CalibratedPropensity(make_model()).fit_frame(frame, **OPTIONS)
    with pytest.raises(UsageError, match=r"fitted to .* Use predict_frame"):
        model.predict(LOG)
    with pytest.raises(UsageError, match=r"LogisticPropensity is fitted already\. Wrap one"):
        CalibratedPropensity(make_model().fit(LOG)).fit_frame(frame, **OPTIONS)
    with pytest.raises(UniverseError, match="items lists 0 items, and the universe has 12"):
        CalibratedPropensity(make_model()).fit_frame(frame, universe=(N_USERS, N_ITEMS))


def test_a_saved_calibration_to_groups_is_the_same(tmp_path: Any) -> None:
    frame = pl.DataFrame(COLUMNS).with_columns(prediction=pl.lit(3.0))
    model = CalibratedPropensity(make_model()).fit_frame(frame, **OPTIONS)
    model.save(tmp_path / "model.unskew")
    again, options = load(tmp_path / "model.unskew"), {"item": "film.id", "name": "p"}

    one, other = (read_column(each.predict_frame(frame, **options), "p") for each in (model, again))
    assert one.tolist() == other.tolist()
    result = evaluate_frame(
        frame,
        prediction="prediction",
        item="film.id",
        propensity=again,
        propensities_known=True,
        universe=(N_USERS, N_ITEMS),
        metrics=["mse"],
    )
    assert "random ratings" not in str(result)


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_fit_to_groups_is_the_fit_to_the_log(library: str) -> None:
    check_library(LIBRARIES[library])


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::ResourceWarning")
def test_a_fit_to_groups_on_spark_is_the_fit_to_the_log(spark: Any) -> None:
    def make(columns: Any) -> Any:
        return spark.createDataFrame(pa.table(columns))

    check_library(make)
    for method in ("platt", "isotonic"):
        check_calibration(make, method)


def test_an_evaluation_takes_them_as_known_or_says_what_to_do(tmp_path: Any) -> None:
    frame = pl.DataFrame(COLUMNS).with_columns(prediction=pl.lit(3.0))
    model = make_model().fit_frame(frame, **OPTIONS)
    options: dict[str, Any] = {"prediction": "prediction", "item": "film.id", "cluster": "user"}
    options |= {"universe": (N_USERS, N_ITEMS), "metrics": ["mse"]}
    model.save(tmp_path / "model.unskew")
    again = load(tmp_path / "model.unskew")
    result = evaluate_frame(frame, propensity=again, propensities_known=True, **options)
    values = make_model().fit(LOG).predict(LOG).values
    expected = unskew.evaluate(
        LOG, np.full(len(LOG), 3.0), propensities=values, metrics=["mse"], cluster="user"
    )

    for row in expected:
        found = result.risk("prediction", metric="mse", estimator=row.estimator)
        assert found.estimate == pytest.approx(row.estimate, rel=1e-9)
        assert found.std_error == pytest.approx(row.std_error, rel=1e-9)
    with pytest.raises(UsageError, match=r"cannot be computed from sums .* propensities_known="):
        evaluate_frame(frame, propensity=model, **options)


def test_what_a_fit_to_a_frame_cannot_do_is_named() -> None:
    frame, groups = pd.DataFrame(COLUMNS), {"group": "segment", "group_sizes": SIZES}
    with pytest.raises(UsageError, match=r"user_offsets=True needs the ratings of every user"):
        make_model(user_offsets=True).fit_frame(frame, **OPTIONS)
    with pytest.raises(UsageError, match=r"ridge='cv' needs parts of the log.* one number abo"):
        LogisticPropensity(item_features=ITEM_FEATURES).fit_frame(frame, **OPTIONS)
    with pytest.raises(UsageError, match=r"negatives=3 needs a sample of cells"):
        make_model(negatives=3).fit_frame(frame, **OPTIONS)
    with pytest.raises(UsageError, match=r"number of users of each 'segment' is unknown\. Pass"):
        make_model().fit_frame(frame, group="segment", **OPTIONS)
    with pytest.raises(UniverseError, match=r"items lists 11 items, and the universe has 12"):
        make_model().fit_frame(frame, **OPTIONS | {"items": ITEMS[1:]})
    for error, message, sizes in (
        (
            UniverseError,
            "the groups have 61 users together, and the universe has 60",
            SIZES | {"other": 1},
        ),
        (UnknownIdError, "group_sizes leaves out 1 group of the frame", {"new": 1, "old": 59}),
        (UsageError, "group_sizes must be a .*Mapping.*number of users by group", [("new", 60)]),
        (
            UsageError,
            "group_sizes must be a whole number, at least 1; got None",
            SIZES | {"x": None},
        ),
        (UsageError, r"group_sizes must be a whole number.*got 1\.5", SIZES | {"x": 1.5}),
        (
            UniverseError,
            r"item 'film .* has \d+ ratings by 1 users\. Remove",
            {"new": N_USERS - 2, "old": 1, "staff": 1},
        ),
    ):
        with pytest.raises(error, match=message):
            make_model().fit_frame(frame, **OPTIONS, **groups | {"group_sizes": sizes})
    with pytest.raises(EmptyLogError):
        make_model().fit_frame(frame.head(0), **OPTIONS)
    with pytest.raises(ColumnError):
        make_model().fit_frame(frame, **OPTIONS, **groups | {"group": "country"})
    model = make_model().fit_frame(frame, **OPTIONS)
    with pytest.raises(UsageError, match=r"fitted to groups of users .* Use predict_frame"):
        model.predict(LOG)
    with pytest.raises(UsageError, match="cannot be computed in a data frame"):
        make_model().fit(LOG).predict_frame(frame, item="film.id")


@pytest.mark.parametrize(
    "model",
    [
        UniformPropensity(),
        OneBitPropensity(),
        PoissonPropensity(),
        CalibratedPropensity(PopularityPropensity()),
        CrossFittedPropensity(PopularityPropensity()),
        RakedPropensity(PopularityPropensity()),
        ClippedPropensity(PopularityPropensity(), min_propensity=0.1),
    ],
    ids=lambda model: type(model).__name__,
)
def test_a_model_that_needs_the_log_in_memory_names_those_that_do_not(model: Any) -> None:
    message = rf"{type(model).__name__} cannot be fitted to a log that stays .*NaiveBayes.*fit\("
    with pytest.raises(UsageError, match=message):
        model.fit_frame(pd.DataFrame(COLUMNS), universe=(N_USERS, N_ITEMS))


def test_a_frame_of_spark_is_not_a_log_and_what_takes_it_is_named() -> None:
    frame = SimpleNamespace(toArrow=None, collect=None)
    with pytest.raises(DataError, match=r"\.toArrow\(\) on it first, if it fits.*evaluate_frame"):
        Ratings.from_frame(frame)
