"""Formulas of columns are those of arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from unskew.errors import DataError, UsageError
from unskew.evaluation.expressions import Column, Source, as_column, named

X = np.array([-2.5, -1.0, 0.25, 1.0, 3.0])
Y = np.array([1.0, 2.0, 0.5, 4.0, 0.125])
FORMULAS: dict[str, Callable[[Any, Any], Any]] = {
    "arithmetic": lambda x, y: (x + 2) * y - x / y,
    "from the left": lambda x, y: 3.0 - np.float64(2.0) / y * -x,
    "powers": lambda x, y: x**2 + y**-0.5 + np.square(y),
    "abs, sqrt": lambda x, y: np.abs(x) + np.sqrt(y),
    "logs": lambda x, y: np.log(y) + np.log2(y) + np.exp(x),
    "minimum, maximum": lambda x, y: np.minimum(x, y) + np.maximum(x, 0.5),
    "where": lambda x, y: np.where((x > 0) & (y <= 1) | ~(x != -1), x, 7.0),
    "remainder": lambda x, y: y % 0.25,
    "searchsorted": lambda x, y: np.searchsorted(np.array([-1.0, 0.25, 2.0]), x),
    "no limits": lambda x, y: np.searchsorted(np.empty(0), x) + np.zeros_like(x) + np.ones_like(y),
}


@pytest.mark.parametrize(
    "make", [pl.DataFrame, pd.DataFrame, pa.table], ids=["polars", "pandas", "pyarrow"]
)
@pytest.mark.parametrize("formula", FORMULAS)
def test_a_formula_of_columns_is_that_of_arrays(make: Any, formula: str) -> None:
    rule = FORMULAS[formula]
    table = Source(make({"x": X, "y": Y})).pick(
        {"x": "x", "y": "y"}, numbers={"x": DataError, "y": DataError}
    )
    table.store({"found": as_column(rule(named("x"), named("y"))) * 1.0})

    assert sorted(table.distinct("found", most=9)) == pytest.approx(np.unique(rule(X, Y)))


@pytest.mark.parametrize(
    "misuse",
    [
        lambda x: np.add.reduce(x),
        lambda x: np.sin(x),
        lambda x: np.median(x),
        lambda x: np.asarray(x),
        lambda x: 1.0 if x > 0 else 0.0,
        lambda x: np.where(x > 0),
        lambda x: np.searchsorted(np.ones(1), x, side="right"),
    ],
)
def test_what_is_no_formula_of_one_row_is_refused(misuse: Callable[[Column], object]) -> None:
    with pytest.raises((UsageError, TypeError), match=r"has no expression|missing 2 required"):
        misuse(named("x"))


def test_numbers_are_told_from_what_is_none() -> None:
    table = Source(pl.DataFrame({"x": [1.0, None, float("nan"), float("-inf")]})).pick(
        {"x": "x"}, numbers={"x": DataError}
    )

    assert table.where(named("x").is_number).distinct("x", most=9) == [1.0]


@pytest.mark.parametrize(
    "values", [[True, False, True], [1, 0, 1], np.array([1, 0, 1], np.float32)]
)
@pytest.mark.parametrize(
    "make", [pl.DataFrame, pd.DataFrame, pa.table], ids=["polars", "pandas", "pyarrow"]
)
def test_any_numbers_become_float64(make: Any, values: Any) -> None:
    table = Source(make({"x": values})).pick({"x": "x"}, numbers={"x": DataError})

    assert table.add_up({"total": named("x")}, {}, by_group=False) == {None: {"total": 2.0}}
