"""A diagnosis of a log that stays in a data frame has the numbers of the same log in memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from unskew import Ratings, diagnose, diagnose_frame, simulate
from unskew.diagnostics import Diagnosis
from unskew.diagnostics import frame as diagnose_frames
from unskew.diagnostics.result import MEASURES
from unskew.diagnostics.weighting import CountedWeights
from unskew.errors import (
    BadPropensityError,
    BadRatingError,
    ColumnError,
    EmptyLogError,
    PropensityWarning,
    UniverseError,
    UsageError,
)
from unskew.propensity import LogisticPropensity, NaiveBayesPropensity, PopularityPropensity

WORLD = simulate(40, 50, density=0.2, alpha=0.6, random_state=0)
SPACE = (45, 50)
LOG = Ratings.from_arrays(WORLD.log.user, WORLD.log.item, WORLD.log.rating, universe=SPACE)
P = np.round(WORLD.propensities.values, 3)
COLUMNS: dict[str, Any] = {
    "user.id": WORLD.log.user,
    "item_id": WORLD.log.item,
    "rating": WORLD.log.rating,
    "p": P,
}
SAMPLE = {1.0: 60, 2.0: 50, 3.0: 40, 4.0: 30, 5.0: 20}
MODELS = {"ratings": (NaiveBayesPropensity, {"mcar": SAMPLE}), "items": (PopularityPropensity, {})}
LIBRARIES: dict[str, Callable[[dict[str, Any]], Any]] = {
    "pandas": pd.DataFrame,
    "polars-lazy": pl.LazyFrame,
    "pyarrow": pa.table,
    "duckdb": lambda columns: duckdb.from_arrow(pa.table(columns)),
}
pytestmark = pytest.mark.filterwarnings(
    "ignore::unskew.errors.PropensityWarning", "ignore::FutureWarning", "ignore::ResourceWarning"
)


def diagnose_here(frame: Any, **options: Any) -> Diagnosis:
    models = {
        name: kind().fit_frame(frame, universe=SPACE, **{**settings, **ids(kind)})
        for name, (kind, settings) in MODELS.items()
    }
    named = {"column": "p", **models}
    return diagnose_frame(frame, named, **{"user": "user.id", "universe": SPACE} | options)


def ids(kind: type) -> dict[str, str]:
    return {"user": "user.id"} if kind is PopularityPropensity else {}


def check_library(make: Any) -> None:
    """Numbers of weights, coverage and assumptions are those of :func:`diagnose`."""
    found = diagnose_here(make(COLUMNS))
    models = {
        name: kind().fit(LOG, universe=SPACE, **settings)
        for name, (kind, settings) in MODELS.items()
    }
    expected = diagnose(LOG, {"column": P, **models})

    assert found.coverage == expected.coverage
    assert found.universe == expected.universe
    assert "need the log in memory" in repr(found).replace("\n  ", " ")
    for row in expected.rows:
        other = found[row.name]
        for measure in MEASURES:
            if measure.path.startswith("weights"):
                wanted = measure.read(row)
                assert wanted is not None
                assert measure.read(other) == pytest.approx(wanted, rel=1e-9), measure.name
        np.testing.assert_allclose(other.weights.row_share, row.weights.row_share, rtol=1e-12)
        np.testing.assert_allclose(other.weights.weight_share, row.weights.weight_share, rtol=1e-9)
        assert other.weights.summary.is_balanced == row.weights.summary.is_balanced
        assert (other.assumption, other.sees_ratings) == (row.assumption, row.sees_ratings)
        warnings = {str(each) for each in other.warnings()}
        assert warnings <= {str(each) for each in row.warnings()}


@pytest.mark.parametrize("library", LIBRARIES)
def test_weights_and_coverage_are_those_in_memory(library: str) -> None:
    check_library(LIBRARIES[library])


def test_weights_and_coverage_on_spark_are_those_in_memory(spark: Any) -> None:
    check_library(lambda columns: spark.createDataFrame(pa.table(columns)))


def test_a_universe_need_not_be_known() -> None:
    frame = pl.DataFrame(COLUMNS)
    unknown = diagnose_here(frame, universe=None)
    listed = diagnose_here(frame, universe="log")

    assert unknown.universe is None
    assert unknown["column"].weights.summary.mass_ratio is None
    assert (listed.coverage.n_users, listed.coverage.users_unseen) == (40, 0)


def test_a_model_without_strata_is_diagnosed_too() -> None:
    """Its propensities are taken as known, as in evaluate_frame."""
    frame = pl.DataFrame(COLUMNS)
    model = LogisticPropensity(item_features=np.arange(50.0)[:, None], ridge=1.0)
    model.fit_frame(frame, universe=SPACE, items=range(50))
    diagnosis = diagnose_frame(frame, model, user="user.id", universe=SPACE)

    assert diagnosis["model"].sees_ratings is False
    assert "never saw a rating" in diagnosis["model"].assumption
    assert diagnosis["model"].weights.summary.mass_z is not None


def test_what_looks_wrong_is_warned_about() -> None:
    columns = COLUMNS | {"p": np.full(len(LOG), 0.9)}
    with pytest.warns(PropensityWarning, match=r"p: the inverse propensities add up to"):
        diagnosis = diagnose_frame(
            pl.DataFrame(columns), {"p": "p"}, user="user.id", universe=SPACE
        )
    assert "add up to" in diagnosis.warnings[0]


def test_quantiles_of_counted_weights_are_those_of_all_weights() -> None:
    rng = np.random.default_rng(0)
    weight, count = rng.exponential(size=7), rng.integers(1, 5, 7)
    cells = CountedWeights.of(weight, count)
    every = np.repeat(weight, count)

    for share in np.linspace(0, 1, 23):
        assert cells.find_quantile(share) == pytest.approx(np.quantile(every, share))
    n_rows = np.arange(1, every.size + 1)
    expected = np.cumsum(np.sort(every)[::-1])
    assert cells.add_heaviest(n_rows) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("columns", "options", "error", "text"),
    [
        ({"p": np.full(len(LOG), 1.5)}, {}, BadPropensityError, r"408 of 408 .* one is 1\.5"),
        ({"p": [None, *P[1:]]}, {}, BadPropensityError, r"1 of 408 propensities are missing"),
        ({}, {"propensity": "q"}, ColumnError, "q"),
        ({}, {"propensity": P}, UsageError, r"must be a column or a propensity model"),
        ({}, {"propensity": {}}, UsageError, r"or several by name"),
        ({}, {"universe": (3, 3)}, UniverseError, "3 users x 3 items"),
        ({}, {"user": "visitor"}, ColumnError, "visitor"),
    ],
)
def test_invalid_arguments_raise_an_error(
    columns: Any, options: Any, error: Any, text: str
) -> None:
    arguments = {"propensity": "p", "user": "user.id", "universe": SPACE} | options
    with pytest.raises(error, match=text):
        diagnose_frame(pl.DataFrame(COLUMNS | columns, strict=False), **arguments)


def test_an_empty_frame_and_too_many_values_raise_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(EmptyLogError, match="the frame has no rows"):
        diagnose_frame(pl.DataFrame(COLUMNS).head(0), "p", user="user.id")
    monkeypatch.setattr(diagnose_frames, "MAX_DISTINCT", 3)
    with pytest.raises(UsageError, match=r"more than 3 different propensities\. Diagnose a sample"):
        diagnose_frame(pl.DataFrame(COLUMNS), "p", user="user.id")


@pytest.mark.parametrize("library", LIBRARIES)
def test_missing_ids_are_an_error(library: str) -> None:
    frame = LIBRARIES[library]({"user_id": [1.0, None, 2.0], "item_id": [1, 2, 2], "p": [0.5] * 3})

    with pytest.raises(BadRatingError, match="the frame has 1 missing user id"):
        diagnose_frame(frame, "p", universe="log")


@pytest.mark.parametrize("values", [["abc", "0.5"], ["0.5", "0.5"], [True, True]])
@pytest.mark.parametrize("library", LIBRARIES)
def test_a_column_without_numbers_is_an_error(library: str, values: list[Any]) -> None:
    frame = LIBRARIES[library]({"user_id": [1, 2], "item_id": [1, 2], "p": values})

    with pytest.raises(BadPropensityError, match="must be numbers; column 'p'"):
        diagnose_frame(frame, "p")
