"""Every data frame library we promise to read, so that one test body runs over all of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

ENGINES: Mapping[str, Callable[..., Any]] = {
    "pandas": pd.DataFrame,
    "polars": pl.DataFrame,
    "pyarrow": pa.table,
}

each_engine = pytest.mark.parametrize(
    "make", [pytest.param(make, id=name) for name, make in ENGINES.items()]
)


def columns_of(frame: Any) -> dict[str, list[Any]]:
    """A frame's columns as plain lists."""
    if isinstance(frame, pd.DataFrame):
        return frame.to_dict("list")
    return frame.to_pydict() if isinstance(frame, pa.Table) else frame.to_dict(as_series=False)
