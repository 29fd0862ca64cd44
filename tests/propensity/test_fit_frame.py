"""Models that are fitted to frames give the propensities of models fitted to arrays."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from unskew import NaiveBayesPropensity, diagnose, load, simulate
from unskew.errors import (
    BadRatingError,
    ColumnError,
    EmptyLogError,
    UniverseError,
    UnknownNameError,
    UsageError,
)
from unskew.propensity import (
    CalibratedPropensity,
    ClippedPropensity,
    LogisticPropensity,
    PopularityPropensity,
    UniformPropensity,
)

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
def test_uniform_propensities_are_the_density_of_the_log(make: Any) -> None:
    model = UniformPropensity().fit(LOG, universe=(40, 50))

    values = column(model.predict_frame(make(COLUMNS)))
    assert values == pytest.approx(np.full(len(LOG), len(LOG) / 2000))


@each_engine
def test_naive_bayes_is_that_of_arrays(make: Any) -> None:
    model = NaiveBayesPropensity(smoothing=2).fit(LOG, mcar=MCAR, universe=(40, 50))
    fitted = NaiveBayesPropensity(smoothing=2).fit_frame(
        make(COLUMNS), mcar=MCAR, universe=(40, 50)
    )

    assert column(fitted.predict_frame(make(COLUMNS))) == pytest.approx(
        model.predict(LOG).values, rel=1e-12
    )
    assert fitted.predict(LOG).values == pytest.approx(model.predict(LOG).values, rel=1e-12)
    assert column(model.predict_frame(make(COLUMNS))) == pytest.approx(model.predict(LOG).values)
    assert (fitted.n_observed_, fitted.n_cells_) == (len(LOG), 2000)


@pytest.mark.parametrize("by", ["item", "user", "both"])
@pytest.mark.parametrize(("power", "smoothing"), [(1.0, 0.0), (0.5, 2.0), (3.0, 0.0)])
@each_engine
def test_popularity_is_that_of_arrays(make: Any, by: Any, power: float, smoothing: float) -> None:
    model = PopularityPropensity(by, power=power, smoothing=smoothing).fit(LOG, universe=(50, 60))
    fitted = PopularityPropensity(by, power=power, smoothing=smoothing).fit_frame(
        make(COLUMNS), universe=(50, 60)
    )

    assert fitted.scale_ == pytest.approx(model.scale_, rel=1e-9)
    assert fitted.n_capped_ == model.n_capped_
    assert column(fitted.predict_frame(make(COLUMNS))) == pytest.approx(
        model.predict(LOG).values, rel=1e-9
    )
    assert fitted.predict(LOG).values == pytest.approx(model.predict(LOG).values, rel=1e-9)


@pytest.mark.parametrize("by", ["item", "user", "both"])
@each_engine
def test_a_model_of_a_frame_is_saved_and_loaded(make: Any, by: Any, tmp_path: Path) -> None:
    counts = PopularityPropensity(by).fit_frame(make(COLUMNS), universe=(50, 60))
    ratings = NaiveBayesPropensity().fit_frame(make(COLUMNS), mcar=MCAR, universe=(40, 50))
    for model in (counts, ratings):
        model.save(tmp_path / "model.unskew")
        loaded = load(tmp_path / "model.unskew")
        assert loaded.predict(LOG).values.tolist() == model.predict(LOG).values.tolist()


def test_the_log_can_be_its_own_universe() -> None:
    fitted = PopularityPropensity().fit_frame(pl.DataFrame(COLUMNS), universe="log")
    assert fitted.scale_ == pytest.approx(PopularityPropensity().fit(LOG, universe="log").scale_)


def test_a_model_of_a_frame_can_be_wrapped() -> None:
    fitted = PopularityPropensity("both").fit_frame(pl.DataFrame(COLUMNS), universe="log")
    model = PopularityPropensity("both").fit(LOG, universe="log")

    clipped = [
        ClippedPropensity(inner, min_propensity=0.2).fit(LOG, universe="log")
        for inner in (fitted, model)
    ]

    assert clipped[0].predict(LOG).values == pytest.approx(clipped[1].predict(LOG).values, rel=1e-9)


def test_the_column_can_have_any_name_but_a_taken_one() -> None:
    frame = pl.DataFrame(COLUMNS)
    fitted = PopularityPropensity().fit_frame(frame, universe=(40, 50))
    assert fitted.predict_frame(frame, name="p").columns == [*COLUMNS, "p"]
    with pytest.raises(ColumnError, match="already has a column 'rating'"):
        fitted.predict_frame(frame, name="rating")


def test_what_cannot_be_fitted_is_refused() -> None:
    frame = pl.DataFrame(COLUMNS)
    not_numbers = frame.with_columns(rating=float("nan"))
    infinite = frame.with_columns(rating=float("inf"))
    text = frame.with_columns(rating=pl.lit("x"))
    continuous = frame.with_columns(rating=pl.col("row") / 7)
    model, by_rating = PopularityPropensity(), NaiveBayesPropensity()
    with pytest.raises(UniverseError, match="Pass universe="):
        model.fit_frame(frame)
    with pytest.raises(UniverseError, match=r"the log alone has \d+ items"):
        model.fit_frame(frame, universe=(40, 3))
    with pytest.raises(UnknownNameError, match="unknown value 'country' of by"):
        PopularityPropensity("country").fit_frame(frame, universe=(40, 50))
    with pytest.raises(EmptyLogError, match="no ratings"):
        model.fit_frame(frame.head(0), universe=(40, 50))
    with pytest.raises(EmptyLogError, match="no ratings"):
        by_rating.fit_frame(frame.head(0), mcar=MCAR, universe=(40, 50))
    with pytest.raises(UsageError, match="mcar"):
        by_rating.fit_frame(frame, universe=(40, 50))
    with pytest.raises(UsageError, match="bins are not supported for frames"):
        NaiveBayesPropensity(bins=3).fit_frame(frame, mcar=MCAR, universe=(40, 50))
    with pytest.raises(BadRatingError, match="'rating' has 408 missing values"):
        by_rating.fit_frame(not_numbers, mcar=MCAR, universe=(40, 50))
    with pytest.raises(BadRatingError, match="NaN or infinite"):
        by_rating.fit_frame(infinite, mcar=MCAR, universe=(40, 50))
    with pytest.raises(BadRatingError, match="must be numbers"):
        by_rating.fit_frame(text, mcar=MCAR, universe=(40, 50))
    with pytest.raises(UsageError, match="seem to be continuous"):
        by_rating.fit_frame(continuous, mcar=MCAR, universe=(40, 50))
    with pytest.raises(UsageError, match="needs a model that was fitted with fit_frame"):
        PopularityPropensity().fit(LOG).predict_frame(frame)


@each_engine
@pytest.mark.parametrize("missing", [None, float("nan")])
def test_missing_ratings_and_ids_are_refused(make: Any, missing: Any) -> None:
    ratings = [missing] * 40 + [3.0] * 60
    ids = [float(number % 10) for number in range(99)] + [missing]
    frame = make(
        {
            "user_id": pa.array(ids, pa.float64()),
            "item_id": pa.array([number // 10 for number in range(100)]),
            "rating": pa.array(ratings, pa.float64()),
        }
        if make is ENGINES["pyarrow"] or make is ENGINES["duckdb"]
        else {"user_id": ids, "item_id": list(range(100)), "rating": ratings}
    )

    with pytest.raises(BadRatingError, match=r"'rating' has 40 missing values in 100 rows"):
        NaiveBayesPropensity().fit_frame(frame, mcar=MCAR, universe=(100, 100))
    with pytest.raises(BadRatingError, match=r"'user_id' has 1 missing value in 100 rows"):
        PopularityPropensity(by="user").fit_frame(frame, universe=(100, 100))


@pytest.mark.parametrize("smoothing", [float("nan"), -5, "1"])
def test_smoothing_is_checked_for_frames_too(smoothing: Any) -> None:
    frame = pd.DataFrame(COLUMNS)

    with pytest.raises(UsageError, match="smoothing must be a finite number"):
        NaiveBayesPropensity(smoothing=smoothing).fit_frame(frame, mcar=MCAR, universe=(40, 50))
    with pytest.raises(UsageError, match="smoothing must be a finite number"):
        PopularityPropensity(smoothing=smoothing).fit_frame(frame, universe=(40, 50))


@pytest.mark.parametrize(
    "model",
    [
        NaiveBayesPropensity(),
        PopularityPropensity(),
        LogisticPropensity(),
        CalibratedPropensity(LogisticPropensity()),
    ],
    ids=lambda model: type(model).__name__,
)
def test_a_frame_in_place_of_a_log_leads_to_fit_frame(model: Any) -> None:
    with pytest.raises(UsageError, match=r"not DataFrame\. Build one .* or call fit_frame\(frame"):
        model.fit(pl.DataFrame(COLUMNS))


def test_diagnose_names_diagnose_frame() -> None:
    with pytest.raises(UsageError, match=r"or call diagnose_frame\(frame, \.\.\.\), which reads"):
        diagnose(pl.DataFrame(COLUMNS), "propensity")


def test_a_model_without_fit_frame_does_not_name_it() -> None:
    with pytest.raises(UsageError, match=r"Build one with Ratings\.from_frame\(frame\)\.$"):
        UniformPropensity().fit(pl.DataFrame(COLUMNS))
