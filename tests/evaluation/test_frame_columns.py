"""NumPy formulas give the same numbers on columns and on arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from unskew.errors import DataError, UsageError
from unskew.evaluation.backends.narwhals.columns import FrameColumn, as_column, column
from unskew.evaluation.backends.narwhals.table import FrameSource

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
    table = FrameSource(make({"x": X, "y": Y})).select(
        {"x": "x", "y": "y"}, numeric_errors={"x": DataError, "y": DataError}
    )
    table.store({"result": as_column(rule(column("x"), column("y"))) * 1.0})

    assert sorted(table.distinct_values("result", most=9)) == pytest.approx(np.unique(rule(X, Y)))


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
def test_functions_that_are_not_elementwise_raise_an_error(
    misuse: Callable[[FrameColumn], object],
) -> None:
    with pytest.raises(
        (UsageError, TypeError), match=r"data frames cannot evaluate|missing 2 required"
    ):
        misuse(column("x"))


def test_finite_numbers_are_recognised() -> None:
    table = FrameSource(pl.DataFrame({"x": [1.0, None, float("nan"), float("-inf")]})).select(
        {"x": "x"}, numeric_errors={"x": DataError}
    )

    assert table.filter(column("x").is_finite).distinct_values("x", most=9) == [1.0]


@pytest.mark.parametrize(
    "values", [[True, False, True], [1, 0, 1], np.array([1, 0, 1], np.float32)]
)
@pytest.mark.parametrize(
    "make", [pl.DataFrame, pd.DataFrame, pa.table], ids=["polars", "pandas", "pyarrow"]
)
def test_any_numbers_become_float64(make: Any, values: Any) -> None:
    table = FrameSource(make({"x": values})).select({"x": "x"}, numeric_errors={"x": DataError})

    assert table.add_up({"total": column("x")}, {}, by_group=False) == {None: {"total": 2.0}}
