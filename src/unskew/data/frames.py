"""Data frames in and out, of whichever library the caller uses."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from importlib.util import find_spec
from numbers import Real
from typing import Any, cast

import narwhals.stable.v2 as nw
import numpy as np
from narwhals.exceptions import DuplicateError

from unskew.data.ids import Ids, as_ids
from unskew.errors import (
    BadRatingError,
    ColumnError,
    DataError,
    MissingExtraError,
    UnknownNameError,
    UsageError,
)
from unskew.types import Vector

EagerFrame = nw.DataFrame[Any]
LazyFrame = nw.LazyFrame[Any]
BACKENDS = ("polars", "pandas", "pyarrow")
"""Libraries to make a frame with, the first one installed where the caller has none."""
LIBRARIES = (*BACKENDS, "modin", "cudf")
"""Libraries that can be named."""


def open_frame(frame: object) -> EagerFrame:
    """A narwhals view of any eager data frame."""
    try:
        return nw.from_native(frame, eager_only=True)
    except DuplicateError as error:
        raise ColumnError(f"two columns of the frame have one name; rename one. {error}") from error
    except TypeError as error:
        raise DataError(
            f"expected an eager data frame (pandas, polars, pyarrow, ...), "
            f"got {type(frame).__module__}.{type(frame).__name__}.{_way_out(frame)}"
        ) from error


def open_lazily(frame: object) -> tuple[LazyFrame, dict[str, str]]:
    """A narwhals view of any data frame or relation, of which nothing is read yet, and what its columns are called there."""
    try:
        opened = nw.from_native(cast(Any, frame)).lazy()
    except DuplicateError as error:
        raise ColumnError(f"two columns of the frame have one name; rename one. {error}") from error
    except TypeError as error:
        raise DataError(
            f"expected a data frame (pandas, polars, pyarrow, DuckDB, PySpark, ...), "
            f"got {type(frame).__module__}.{type(frame).__name__}.{_way_out(frame)}"
        ) from error
    return (
        _numbered(opened)
        if opened.implementation.is_spark_like()
        else (opened, {name: name for name in opened.collect_schema().names()})
    )


def _numbered(frame: LazyFrame) -> tuple[LazyFrame, dict[str, str]]:
    """Spark reads a dot in a name as a field of a struct, so its columns are numbered."""
    native = frame.to_native()
    names = list(native.columns)
    if len(set(names)) < len(names):
        raise ColumnError(
            f"two columns of the frame have one name; rename one: {', '.join(map(repr, names))}."
        )
    numbered = {name: f"column_{place}" for place, name in enumerate(names)}
    return nw.from_native(native.toDF(*numbered.values())), numbered


def _way_out(given: object) -> str:
    if hasattr(given, "collect"):
        return " Call .collect() on it first."
    if isinstance(given, (str, os.PathLike)):
        return " Read the file into a frame first, with pandas.read_csv(path), for example."
    if isinstance(given, (Mapping, np.ndarray, list, tuple)):
        return " Pass columns to Ratings.from_arrays(user, item, rating), or a users x items matrix to Ratings.from_dense."
    return ""


def is_frame(value: object) -> bool:
    """Whether ``value`` is an eager data frame of any library."""
    return isinstance(nw.from_native(value, eager_only=True, pass_through=True), nw.DataFrame)


def id_column(frame: EagerFrame, name: str) -> Ids:
    """A column of ids without a hole."""
    column = frame.get_column(name)
    missing = column.is_null().to_numpy()
    ids = column.to_numpy()
    if ids.dtype.kind == "f":
        missing = missing | np.isnan(ids)
    if missing.any():
        row = int(missing.argmax())
        raise BadRatingError(
            f"column {name!r} has {int(missing.sum())} missing ids; the first is at row {row}. Drop those rows first."
        )
    return ids


def index_ids(native: object) -> Ids | None:
    """The index of a pandas frame as ids; None where it only counts rows, or there is none."""
    index = nw.maybe_get_index(nw.from_native(native, eager_only=True))
    if index is None:
        return None
    ids = as_ids(index.to_numpy())
    return None if ids.dtype.kind in "iu" and np.array_equal(ids, np.arange(len(ids))) else ids


def number_column(frame: EagerFrame, name: str) -> Vector:
    """A column as float64; missing values become NaN, for the caller to name in its own words."""
    column = frame.get_column(name)
    present = column.drop_nulls()
    if not _are_numbers(present):
        raise BadRatingError(
            f"column {name!r} holds {column.dtype}, not numbers. Convert it first."
        )
    numbers = np.full(len(column), np.nan)
    numbers[~column.is_null().to_numpy()] = (
        present if present.dtype == nw.Object else present.cast(nw.Float64)
    ).to_numpy()
    return numbers


def _are_numbers(values: nw.Series[Any]) -> bool:
    """Whether the values, none of them null, are numbers; objects may be, such as the decimals a data base returns."""
    if values.dtype.is_numeric() or values.dtype == nw.Boolean or len(values) == 0:
        return True
    return values.dtype == nw.Object and all(isinstance(value, (Real, Decimal)) for value in values)


def make_frame(columns: Mapping[str, Any], backend: str | None = None) -> Any:
    """A native frame of the named library, or of the first one installed."""
    chosen = backend or next((name for name in BACKENDS if find_spec(name)), None)
    if chosen is None:
        raise MissingExtraError("a data frame library", extra="io", purpose="to_frame()")
    if chosen not in LIBRARIES:
        raise UnknownNameError("data frame library", chosen, LIBRARIES)
    if find_spec(chosen) is None:
        raise UsageError(
            f"{chosen} is not installed. Install it, or name another library: {', '.join(LIBRARIES)}."
        )
    try:
        return nw.from_dict(dict(columns), backend=chosen).to_native()  # type: ignore[arg-type]
    except Exception as error:  # each library has errors of its own
        raise DataError(
            f"{chosen} cannot hold these columns: {error}. Give ids of one type, or name a library that takes them as they are, "
            "such as to_frame('pandas')."
        ) from error


def add_column(
    frame: object, name: str, build: Callable[[LazyFrame, Mapping[str, str]], LazyFrame]
) -> Any:
    """The caller's frame, lazy if it was, with one more column. ``build`` is given what its columns are called in the view."""
    opened, names = open_lazily(frame)
    if name in names:
        raise ColumnError(
            f"the frame has a column {name!r} already. Choose another name=..., or drop it first."
        )
    built = build(opened, names).select(*names.values(), name)
    if is_frame(frame):
        return built.collect().to_native()
    native = built.to_native()
    return native.toDF(*names, name) if built.implementation.is_spark_like() else native


def count_values(frame: LazyFrame, column: str, *, most: int) -> dict[Any, int]:
    """How often each value of a column occurs, up to ``most`` values; null is left out."""
    rows = frame.filter(~nw.col(column).is_null()).select(nw.col(column).alias("value"))
    found = (
        rows.group_by("value")
        .agg(nw.len().alias("number"))
        .head(most)
        .collect()
        .to_dict(as_series=False)
    )
    return dict(zip(found["value"], map(int, found["number"]), strict=True))


def count_sizes(frame: LazyFrame, column: str) -> dict[int, int]:
    """How many values of a column occur once, how many twice, ...: at most sqrt(2 n) numbers for n rows; null is left out."""
    rows = frame.filter(~nw.col(column).is_null()).select(nw.col(column).alias("value"))
    sizes = (
        rows.group_by("value")
        .agg(nw.len().alias("size"))
        .group_by("size")
        .agg(nw.len().alias("number"))
    )
    found = sizes.collect().to_dict(as_series=False)
    return dict(zip(map(int, found["size"]), map(int, found["number"]), strict=True))


def look_up(frame: LazyFrame, column: str, table: Mapping[float, float], name: str) -> LazyFrame:
    """One more column, that looks numbers up in a small table; null where a number is not in it."""
    value = nw.col(column).cast(nw.Float64)
    found = nw.lit(None).cast(nw.Float64)
    for key, entry in table.items():
        found = nw.when(value == key).then(nw.lit(entry)).otherwise(found)
    return frame.with_columns(found.alias(name))


def count_occurrences(
    frame: LazyFrame, column: str, of: LazyFrame, key: str, name: str
) -> LazyFrame:
    """One more column: how often the value of ``column`` occurs as the ``key`` of another frame; 0 where it does not."""
    counts = (
        of.group_by(key)
        .agg(nw.len().alias(name))
        .select(nw.col(key).alias("value_to_join_on"), nw.col(name).cast(nw.Float64))
    )
    joined = frame.join(counts, how="left", left_on=column, right_on="value_to_join_on")
    return joined.with_columns(nw.col(name).fill_null(0.0))


def capped_product(
    frame: LazyFrame, factors: Sequence[tuple[str, float, float, float]], scale: float, name: str
) -> LazyFrame:
    """One more column: min(1, scale * product of ((count + smoothing) / largest) ** power), with a tuple of these a factor."""
    product = nw.lit(scale)
    for count, smoothing, largest, power in factors:
        product = product * ((nw.col(count) + smoothing) / largest) ** power
    return frame.with_columns(
        nw.when(product > 1.0).then(nw.lit(1.0)).otherwise(product).alias(name)
    )
