"""Numbers are numbers: what NumPy would convert in silence is refused."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest

import unskew
from unskew import Ratings
from unskew.data.checks import float_array
from unskew.errors import BadPredictionError, BadRatingError, DataError, UsageError

REFUSED: dict[str, tuple[Any, str]] = {
    "masked": (np.ma.array([5.0, -999.0, 3.0], mask=[0, 1, 0]), "1 of 3 .* are masked"),
    "NaT": (
        np.array([np.datetime64("NaT", "s"), 1, 2], object),
        "must be numbers: got a datetime64",
    ),
    "dates": (np.array([dt.date(2020, 1, 1)] * 3, object), "must be numbers: got a date"),
    "dates of NumPy": (np.array(["2020-01-01"] * 3, "M8[D]"), "must be numbers; got datetime64"),
    "a date": (np.array([np.datetime64("2020-01-01"), 1, 2], object), "got a datetime64"),
    "durations": (np.array([1, 2, 3], "m8[s]"), "must be numbers; got timedelta64"),
    "a duration": (np.array([np.timedelta64(1, "s"), 1, 2], object), "got a timedelta64"),
    "text": (["1", "2", "3"], "must be numbers; got text"),
    "text among numbers": (np.array(["1", 2, 3], object), "must be numbers: got text"),
    "bytes": (np.array([b"1", b"2", b"3"]), "must be numbers; got text"),
    "bytes among numbers": (np.array([b"1", 2, 3], object), "must be numbers: got a bytes"),
    "complex": (np.array([1j, 2, 3]), "must be numbers; got complex128"),
    "complex objects": (np.array([1j, 2, 3], object), "must be numbers: got a complex"),
    "records": (np.array([(1.0,), (2.0,), (3.0,)], [("a", "f8")]), "must be numbers; got"),
    "too large": ([10**400, 1, 1], "must be numbers: int too large"),
    "ragged": ([[1], [1, 2], [3]], "must be numbers"),
}
each_refused = pytest.mark.parametrize("name", REFUSED)


@each_refused
def test_ratings_refuse_what_is_not_a_number(name: str) -> None:
    values, message = REFUSED[name]
    with pytest.raises(BadRatingError, match=message):
        Ratings.from_arrays([1, 2, 3], [1, 2, 3], values)


@each_refused
def test_predictions_refuse_what_is_not_a_number(name: str) -> None:
    values, message = REFUSED[name]
    log = Ratings.from_arrays([1, 2, 3], [1, 2, 3], [1, 2, 3], universe=(9, 9))

    class Model:
        def predict(self, users: Any, items: Any) -> Any:
            return values

    for predictions in (values, Model()):
        with pytest.raises(BadPredictionError, match=f"cannot be read as predictions: .*{message}"):
            unskew.evaluate(log, predictions, metrics="mae", estimators="naive")


@each_refused
def test_propensities_refuse_what_is_not_a_number(name: str) -> None:
    values, message = REFUSED[name]
    with pytest.raises(DataError, match=message):
        unskew.Propensities(values)


@pytest.mark.parametrize(
    "values",
    [
        [Decimal(1), Decimal(2), Decimal("2.5")],
        [Fraction(1), 2, 2.5],
        np.ma.array([1, 2, 2.5]),
        np.array([1, 2, 2.5], ">f8"),
        np.array([1, 2, 2.5], np.longdouble),
        pd.Series([1, 2, 2.5], dtype="Float64"),
        pl.Series([1.0, 2.0, 2.5]),
    ],
    ids=lambda values: type(values).__name__,
)
def test_numbers_of_other_types_are_converted(values: Any) -> None:
    assert float_array(values, "values").tolist() == [1.0, 2.0, 2.5]


def test_what_is_missing_is_nan() -> None:
    for values in ([1, None], pd.Series([1, None], dtype="Int64"), np.array([1, pd.NA], object)):
        assert np.isnan(float_array(values, "values")).tolist() == [False, True]


def test_booleans_are_0_and_1() -> None:
    assert float_array([True, False], "values").tolist() == [1.0, 0.0]


def test_masked_ids_are_refused() -> None:
    ids = np.ma.array([1, 2, 3], mask=[0, 1, 0])

    with pytest.raises(BadRatingError, match="1 of 3 ids are masked"):
        Ratings.from_arrays(ids, [1, 2, 3], [1, 2, 3])


def test_a_number_too_large_for_a_float_is_not_finite() -> None:
    with pytest.raises(UsageError, match="l2 must be a finite number"):
        unskew.MatrixFactorization(2, 10**400).fit(Ratings.from_arrays([1], [1], [1]))
