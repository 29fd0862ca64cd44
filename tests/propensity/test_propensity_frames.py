"""Propensities from group-bys are those from arrays."""

from __future__ import annotations

from typing import Any

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from unskew import NaiveBayesPropensity, PopularityPropensity, simulate
from unskew.errors import (
    BadRatingError,
    ColumnError,
    EmptyLogError,
    UniverseError,
    UnknownNameError,
    UsageError,
)
from unskew.propensity.frames import fit_naive_bayes_frame, fit_popularity_frame

WORLD = simulate(40, 50, density=0.2, alpha=0.6, random_state=0)
LOG = WORLD.log
COLUMNS: dict[str, Any] = {
    "user_id": LOG.user,
    "item_id": LOG.item,
    "rating": LOG.rating,
    "row": np.arange(len(LOG)),
}
ENGINES: dict[str, Any] = {
    "pandas": pd.DataFrame,
    "polars": pl.DataFrame,
    "polars-lazy": pl.LazyFrame,
    "pyarrow": pa.table,
    "duckdb": lambda columns: duckdb.from_arrow(pa.table(columns)),
}
MCAR = {1.0: 300, 2.0: 250, 3.0: 200, 4.0: 150, 5.0: 100}

each_engine = pytest.mark.parametrize(
    "make", [pytest.param(make, id=name) for name, make in ENGINES.items()]
)


def column(frame: Any, name: str = "propensity") -> np.ndarray:
    """A column in the order of the rows that the frame was made of."""
    if isinstance(frame, pl.LazyFrame):
        frame = frame.collect()
    table = frame.to_arrow_table() if isinstance(frame, duckdb.DuckDBPyRelation) else frame
    values, rows = (np.asarray(table[each]) for each in (name, "row"))
    return values[np.argsort(rows)]


@each_engine
def test_naive_bayes_is_that_of_arrays(make: Any) -> None:
    expected = NaiveBayesPropensity(smoothing=2).fit(LOG, mcar=MCAR, universe=(40, 50)).predict(LOG)
    fitted = fit_naive_bayes_frame(make(COLUMNS), mcar=MCAR, universe=(40, 50), smoothing=2)

    assert column(fitted.apply(make(COLUMNS))) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("by", ["item", "user", "both"])
@pytest.mark.parametrize(("power", "smoothing"), [(1.0, 0.0), (0.5, 2.0), (3.0, 0.0)])
@each_engine
def test_popularity_is_that_of_arrays(make: Any, by: Any, power: float, smoothing: float) -> None:
    model = PopularityPropensity(by, power=power, smoothing=smoothing).fit(LOG, universe=(50, 60))
    fitted = fit_popularity_frame(
        make(COLUMNS), universe=(50, 60), by=by, power=power, smoothing=smoothing
    )

    assert fitted.scale == pytest.approx(model.scale_, rel=1e-9)
    assert column(fitted.apply(make(COLUMNS))) == pytest.approx(model.predict(LOG), rel=1e-9)


def test_the_log_can_be_its_own_universe() -> None:
    fitted = fit_popularity_frame(pl.DataFrame(COLUMNS), universe="log")
    assert fitted.scale == pytest.approx(PopularityPropensity().fit(LOG, universe="log").scale_)


def test_the_column_can_have_any_name_but_a_taken_one() -> None:
    frame = pl.DataFrame(COLUMNS)
    fitted = fit_popularity_frame(frame, universe=(40, 50))
    assert fitted.apply(frame, name="p").columns == [*COLUMNS, "p"]
    with pytest.raises(ColumnError, match="has a column 'rating' already"):
        fitted.apply(frame, name="rating")


def test_what_cannot_be_fitted_is_refused() -> None:
    frame = pl.DataFrame(COLUMNS)
    with pytest.raises(UniverseError, match="needs universe="):
        fit_popularity_frame(frame, universe=None)
    with pytest.raises(UniverseError, match=r"the log alone has \d+ items"):
        fit_popularity_frame(frame, universe=(40, 3))
    with pytest.raises(UnknownNameError, match="unknown by 'country'"):
        fit_popularity_frame(frame, universe=(40, 50), by="country")
    with pytest.raises(EmptyLogError, match="no ratings"):
        fit_popularity_frame(frame.head(0), universe=(40, 50))
    with pytest.raises(EmptyLogError, match="no ratings"):
        fit_naive_bayes_frame(frame.head(0), mcar=MCAR, universe=(40, 50))
    with pytest.raises(BadRatingError, match="NaN or infinite"):
        fit_naive_bayes_frame(frame.with_columns(rating=float("nan")), mcar=MCAR, universe=(40, 50))
    with pytest.raises(BadRatingError, match="must be numbers"):
        fit_naive_bayes_frame(frame.with_columns(rating=pl.lit("x")), mcar=MCAR, universe=(40, 50))
    with pytest.raises(UsageError, match="look continuous"):
        fit_naive_bayes_frame(
            frame.with_columns(rating=pl.col("row") / 7), mcar=MCAR, universe=(40, 50)
        )
