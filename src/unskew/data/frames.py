"""Data frames in and out, of whichever library the caller uses."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from decimal import Decimal
from hashlib import md5
from importlib.util import find_spec
from numbers import Real
from typing import Any, cast

import narwhals.stable.v2 as nw
import numpy as np
from narwhals.exceptions import DuplicateError

from unskew.data.ids import Ids, as_ids, find_codes, format_id, object_array
from unskew.data.timestamps import Timestamps, read_timestamps
from unskew.errors import (
    BadRatingError,
    ColumnError,
    DataError,
    MissingExtraError,
    UnskewError,
    UnskewWarning,
    UsageError,
)
from unskew.settings import describe, require_name
from unskew.tables import count_noun, is_unicode
from unskew.types import IntVector, Vector

EagerFrame = nw.DataFrame[Any]
LazyFrame = nw.LazyFrame[Any]
BACKENDS = ("polars", "pandas", "pyarrow")
"""Libraries to make a frame with; the first that is installed is the default."""
LIBRARIES = (*BACKENDS, "modin", "cudf")
"""Libraries that a caller may name."""
HASH_RANGE = 1 << 32
"""The number of values of :func:`hash_ids`."""


def open_frame(frame: object) -> EagerFrame:
    """A narwhals view of any eager data frame."""
    try:
        return nw.from_native(frame, eager_only=True)
    except DuplicateError as error:
        raise _duplicate_column_error(str(error)) from error
    except TypeError as error:
        raise _not_a_frame_error(
            frame, "an eager data frame (pandas, polars, pyarrow, ...)"
        ) from error


def open_lazily(frame: object) -> tuple[LazyFrame, dict[str, str]]:
    """A narwhals view of any data frame or relation, of which nothing is read yet.

    Also returns the name in that view of each column of the frame.
    """
    try:
        opened = nw.from_native(cast(Any, frame)).lazy()
    except DuplicateError as error:
        raise _duplicate_column_error(str(error)) from error
    except TypeError as error:
        raise _not_a_frame_error(
            frame, "a data frame (pandas, polars, pyarrow, DuckDB, PySpark, ...)"
        ) from error
    if opened.implementation.is_spark_like():
        return _rename_columns(opened)
    return opened, {name: name for name in opened.collect_schema().names()}


def _rename_columns(frame: LazyFrame) -> tuple[LazyFrame, dict[str, str]]:
    """A view with columns ``column_0``, ``column_1``, ..., and the new name of each column.

    Spark takes a dot in a column's name for a field of a struct.
    """
    native = frame.to_native()
    names = list(native.columns)
    if len(set(names)) < len(names):
        raise _duplicate_column_error(f"The columns are {', '.join(map(repr, names))}.")
    new_names = {name: f"column_{number}" for number, name in enumerate(names)}
    return nw.from_native(native.toDF(*new_names.values())), new_names


def _duplicate_column_error(details: str) -> ColumnError:
    return ColumnError(f"two columns of the frame have one name; rename one. {details}")


def _not_a_frame_error(value: object, expected: str) -> DataError:
    return DataError(
        f"expected {expected}, got {type(value).__module__}.{type(value).__name__}.",
        value=value,
        remedy=_suggest_conversion(value),
    )


def _suggest_conversion(value: object) -> str:
    """How to make a frame or a log of this value; empty if unknown."""
    if hasattr(value, "toArrow"):
        return (
            "Call .toArrow() on it first, if it fits into memory. If it does not, evaluate_frame, "
            "SparkEngine and the propensity models with fit_frame take it as it is."
        )
    if hasattr(value, "collect"):
        return "Call .collect() on it first."
    if isinstance(value, (str, os.PathLike)):
        return "Read the file into a frame first, with pandas.read_csv(path), for example."
    if isinstance(value, (Mapping, np.ndarray, list, tuple)):
        return (
            "Pass columns to Ratings.from_arrays(user, item, rating), "
            "or a users x items matrix to Ratings.from_dense."
        )
    return ""


def is_frame(value: object) -> bool:
    """Whether ``value`` is an eager data frame of any library."""
    try:
        opened = nw.from_native(value, eager_only=True, pass_through=True)
    except DuplicateError as error:
        raise _duplicate_column_error(str(error)) from error
    return isinstance(opened, nw.DataFrame)


def id_column(
    frame: EagerFrame,
    name: str,
    *,
    error_type: type[DataError] = BadRatingError,
    remedy: str = "Drop those rows first.",
) -> Ids:
    """A column of ids; an error of the given type and remedy if one is missing."""
    column = frame.get_column(name)
    is_missing = column.is_null().to_numpy()
    try:
        # NumPy has no 128 bits, and polars before 1.39 panics at them, which nothing can catch.
        has_large_ids = column.dtype in (nw.Int128, nw.UInt128)
        ids = object_array(column.to_list()) if has_large_ids else column.to_numpy()
    except Exception:  # libraries raise errors of any type for types that NumPy does not have
        ids = object_array(column.to_list())
    if ids.dtype.kind == "f":
        is_missing = is_missing | np.isnan(ids)
    if is_missing.any():
        row = int(is_missing.argmax())
        raise error_type(
            f"column {name!r} has {count_noun(int(is_missing.sum()), 'missing id')}; "
            f"the first is at row {row}.",
            parameter=name,
            where=f"row {row}",
            remedy=remedy,
        )
    return ids


def index_ids(native: object) -> Ids | None:
    """The index of a pandas frame or Series as ids.

    None if it is just 0, 1, 2, ..., or if there is none.
    """
    return _drop_range(_read_index(native))


def matrix_ids_of(native: object) -> tuple[Ids | None, Ids | None]:
    """The labels of rows and columns of a pandas frame that is a matrix, as ids.

    None for labels that are just 0, 1, 2, ..., and for what has no index.
    """
    index = _read_index(native)
    if index is None or not is_frame(native):
        return None, None
    columns = as_ids(cast(Any, native).columns.to_numpy())
    return _drop_range(index), _drop_range(columns)


def frame_of_series(values: object) -> object:
    """A Series of any library as a frame of one column with the same index; others unchanged."""
    view = nw.from_native(cast(Any, values), series_only=True, pass_through=True)
    return view.to_frame().to_native() if isinstance(view, nw.Series) else values


def _drop_range(labels: Ids | None) -> Ids | None:
    """The labels; None if they are 0, 1, 2, ..."""
    is_range = (
        labels is not None
        and labels.dtype.kind in "iu"
        and np.array_equal(labels, np.arange(len(labels)))
    )
    return None if is_range else labels


def series_labels(values: object) -> Ids | None:
    """The index of a pandas Series; None for what is no Series, or has no index."""
    index = _series_index(values)
    return None if index is None else as_ids(index.to_numpy())


def _series_index(values: object) -> Any:
    if isinstance(values, np.ndarray | list | tuple | None):  # most are, and it takes no time
        return None
    view = nw.from_native(cast(Any, values), series_only=True, pass_through=True)
    return nw.maybe_get_index(view) if isinstance(view, nw.Series) else None


def _read_index(native: object) -> Ids | None:
    """The labels of the rows of a pandas frame or Series; None for what has none."""
    try:
        view = nw.from_native(
            cast(Any, native), eager_only=True, allow_series=True, pass_through=True
        )
    except DuplicateError as error:
        raise _duplicate_column_error(str(error)) from error
    index = nw.maybe_get_index(view) if isinstance(view, (nw.DataFrame, nw.Series)) else None
    return None if index is None else as_ids(index.to_numpy())


def check_row_order(
    labels: Ids | None,
    of_log: Ids | None,
    *,
    what: str,
    parameter: str,
    error: type[DataError],
    of_whole: Ids | None = None,
) -> None:
    """Compare the index of a pandas Series with the index of the frame of the log.

    Values are taken in their order. The same labels in another order are an error: they say that
    this is wrong. Other labels say nothing, which is a warning. The index of the log is None if it
    is 0, 1, 2, ..., and ``labels`` are None if the values have no index. ``of_whole`` are the
    labels of the whole Series, if ``labels`` are those of the rows of a part.
    """
    if labels is None:
        return
    rows = np.arange(len(labels))
    expected = rows if of_log is None else of_log
    if np.array_equal(labels, expected):
        return
    remedy = (
        "If they are in the order of the log, pass them with .to_numpy(); if not, bring them into "
        "that order with .reindex(index of the frame of the log) first."
    )
    is_part = of_whole is not None and len(of_whole) > len(labels)
    if _have_same_values(labels, expected) or (
        is_part and (find_codes(expected, cast(Ids, of_whole)) >= 0).all()
    ):
        row = int((labels != expected).argmax())
        raise error(
            f"the index of {what} has the labels of the log's rows in another order; the first "
            f"difference is at row {row}: {format_id(labels[row])}, not "
            f"{format_id(expected[row])}.",
            parameter=parameter,
            where=f"row {row}",
            remedy=remedy,
        )
    if not np.array_equal(labels, rows):
        warnings.warn(
            UnskewWarning(
                f"the index of {what} is not that of the log's rows; they are taken in their "
                "order.",
                parameter=parameter,
                remedy=remedy,
            ),
            stacklevel=4,
        )


def check_same_order(columns: Mapping[str, object]) -> None:
    """Raise an error if pandas Series, which form rows by position, have indexes that differ.

    Only the same labels in another order are an error: other labels say nothing about the order.
    """
    indexes = {name: _series_index(values) for name, values in columns.items()}
    indexes = {name: index for name, index in indexes.items() if index is not None}
    first = next(iter(indexes), "")
    for name, index in indexes.items():
        if index is indexes[first]:  # columns of one frame
            continue
        labels, expected = as_ids(index.to_numpy()), as_ids(indexes[first].to_numpy())
        if not np.array_equal(labels, expected) and _have_same_values(labels, expected):
            row = int((labels != expected).argmax())
            raise DataError(
                f"`{name}` and `{first}` form rows by position, but their indexes have the same "
                f"labels in different orders; the first difference is at row {row}: "
                f"{format_id(labels[row])} and {format_id(expected[row])}.",
                parameter=name,
                where=f"row {row}",
                remedy=f"Bring `{name}` into the order of `{first}` with .reindex(its index); if "
                "the positions are right, pass both with .to_numpy().",
            )


def check_matrix_order(matrix: object, users: Ids, items: Ids, *, parameter: str) -> None:
    """Compare the labels of a pandas frame that is a matrix with the ids of users and items.

    The same ids in another order are an error. Other labels say nothing about the order.
    """
    for kind, side, labels, ids in zip(
        ("user", "item"), ("row", "column"), matrix_ids_of(matrix), (users, items), strict=True
    ):
        if labels is None or np.array_equal(labels, ids) or not _have_same_values(labels, ids):
            continue
        index = int((labels != ids).argmax())
        argument = "index" if kind == "user" else "columns"
        raise DataError(
            f"the labels of the {side}s of `{parameter}` are the {kind}s of the log in another "
            f"order; the first difference is {side} {index}: {format_id(labels[index])}, not "
            f"{format_id(ids[index])}.",
            parameter=parameter,
            where=f"{side} {index}",
            remedy=f"Bring them into the order of log.{kind}s with "
            f".reindex({argument}=log.{kind}s).",
        )


def _have_same_values(one: Ids, other: Ids) -> bool:
    """Whether two arrays hold the same values in any order."""
    if one.dtype.kind == "O" or other.dtype.kind == "O":
        return sorted(map(repr, one.tolist())) == sorted(map(repr, other.tolist()))
    return np.array_equal(np.sort(one), np.sort(other))


def number_column(
    frame: EagerFrame, name: str, *, error_type: type[DataError] = BadRatingError
) -> Vector:
    """A column as float64, where missing values become NaN; an error if it has no numbers."""
    column = frame.get_column(name)
    present = column.drop_nulls()
    if not _are_numbers(present):
        raise error_type(
            f"column {name!r} holds {column.dtype}, not numbers.",
            parameter=name,
            remedy="Convert the column to numbers first.",
        )
    numbers = np.full(len(column), np.nan)
    numbers[~column.is_null().to_numpy()] = (
        present if present.dtype == nw.Object else present.cast(nw.Float64)
    ).to_numpy()
    return numbers


def number_columns(
    frame: EagerFrame,
    names: Sequence[str],
    *,
    only_numbers: bool,
    error_type: type[DataError] = BadRatingError,
) -> dict[str, Vector]:
    """Columns as float64 by name; ``only_numbers`` leaves out those of other types."""
    is_read = {
        name: not only_numbers or _is_number_type(frame.get_column(name).dtype) for name in names
    }
    return {
        name: number_column(frame, name, error_type=error_type) for name in names if is_read[name]
    }


def _is_number_type(dtype: Any) -> bool:
    return bool(dtype.is_numeric() or dtype == nw.Boolean)


def timestamp_column(frame: EagerFrame, name: str) -> Timestamps:
    """The times of a data frame; dates with a time zone are converted to UTC."""
    column = frame.get_column(name)
    if column.dtype == nw.Date:
        column = column.cast(nw.Datetime("us"))
    elif isinstance(column.dtype, nw.Datetime):
        if column.dtype.time_zone is not None:
            column = column.dt.convert_time_zone("UTC").dt.replace_time_zone(None)
    elif column.is_null().any():
        row = int(column.is_null().to_numpy().argmax())
        raise DataError(
            f"column {name!r} has missing times; the first is at row {row}.",
            parameter="timestamp",
            where=f"row {row}",
            remedy="Drop those rows, or leave `timestamp` out.",
        )
    return read_timestamps(column.to_numpy(), len(column))


def _are_numbers(values: nw.Series[Any]) -> bool:
    """Whether the values, none of them null, are numbers, such as the decimals of a database."""
    if _is_number_type(values.dtype) or len(values) == 0:
        return True
    return values.dtype == nw.Object and all(isinstance(value, (Real, Decimal)) for value in values)


def make_frame(columns: Mapping[str, Any], backend: str | None = None) -> Any:
    """A native frame of the named library, or of the first one installed."""
    library = backend
    if library is None:
        library = next((name for name in BACKENDS if find_spec(name)), None)
    if library is None:
        raise MissingExtraError("a data frame library", extra="io", purpose="to_frame()")
    require_name("data frame library", library, LIBRARIES, parameter="backend")
    if find_spec(library) is None:
        raise UsageError(
            f"{library} is not installed.",
            parameter="backend",
            value=library,
            remedy=f"Install it, or name another library: {', '.join(LIBRARIES)}.",
        )
    try:
        return nw.from_dict(dict(columns), backend=library).to_native()  # type: ignore[arg-type]
    except Exception as error:  # each library has errors of its own
        raise DataError(
            f"{library} cannot hold these columns: {error}.",
            parameter="backend",
            value=library,
            remedy="Use ids of one type, or a library that accepts mixed types, "
            "such as to_frame('pandas').",
        ) from error


def add_column(
    frame: object, name: str, build: Callable[[LazyFrame, Mapping[str, str]], LazyFrame]
) -> Any:
    """The caller's frame with one more column; a lazy frame stays lazy.

    ``build(view, names)`` adds the column to the view that :func:`open_lazily` returns.
    """
    opened, names = open_lazily(frame)
    require_new_name(name, names)
    built = build(opened, names).select(*names.values(), name)
    if is_frame(frame):
        return built.collect().to_native()
    native = built.to_native()
    return native.toDF(*names, name) if built.implementation.is_spark_like() else native


def require_new_name(name: str, names: Iterable[str]) -> None:
    """Raise an error unless ``name`` can be the name of a new column beside ``names``."""
    if not isinstance(name, str) or not name or not is_unicode(name):
        raise UsageError(
            f"`name` must be the name of a column; got {describe(name)}.",
            parameter="name",
            value=name,
        )
    if name in names:
        raise ColumnError(
            f"the frame already has a column {name!r}.",
            parameter="name",
            value=name,
            remedy="Choose another `name=...`, or drop the column first.",
        )


def read_frame(frame: object, names: Sequence[str] | None = None) -> EagerFrame:
    """The columns ``names`` of any data frame or relation, or all of them, read into memory."""
    opened, _ = open_lazily(frame)
    if opened.implementation.is_spark_like():
        raise DataError(
            "a data frame of Spark is not read into the memory of this process.",
            remedy="Use SparkEngine().",
        )
    return (opened if names is None else opened.select(*names)).collect()


def put_column(frame: object, name: str, values: Vector | IntVector) -> Any:
    """``frame`` with one more column of numbers, in the library of the frame."""
    rows = read_frame(frame)
    require_new_name(name, rows.columns)
    column = nw.new_series(name, values, backend=rows.implementation)
    return return_frame(rows.with_columns(column), like=frame)


def return_frame(rows: EagerFrame, *, like: object) -> Any:
    """Rows as a native frame of the library of ``like``; a relation is one of its connection."""
    opened = nw.from_native(cast(Any, like))
    native = rows.to_native()
    if opened.implementation.is_duckdb():
        # DuckDB finds this variable by its name, unless the connection has a table of that name.
        unskew_rows_in_memory = native  # noqa: F841
        return cast(Any, like).query("unused", "SELECT * FROM unskew_rows_in_memory")
    return native.lazy() if opened.implementation.is_polars() and _is_lazy(opened) else native


def make_frame_like(columns: Mapping[str, Any], like: object | None) -> Any:
    """A native frame of the library of ``like``; of the first one installed without it."""
    if like is None:
        return make_frame(columns)
    opened, _ = open_lazily(like)
    library = opened.implementation.value
    made = make_frame(columns, library if library in LIBRARIES else "pyarrow")
    return return_frame(open_frame(made), like=like)


def join_columns(
    frame: LazyFrame, keys: Mapping[str, str], columns: Mapping[str, Any], name: str
) -> LazyFrame:
    """Add the column ``name`` of ``columns``, which are in memory; null where no row matches.

    ``keys`` maps columns of the frame to those of ``columns``.
    """
    kinds, native = frame.collect_schema(), frame.to_native()
    if frame.implementation.is_spark_like():
        made = make_frame(columns, "pyarrow")
        table = nw.from_native(native.sparkSession.createDataFrame(made))
    else:
        table = open_lazily(make_frame_like(columns, native))[0]
    table = table.select(
        *(nw.col(key).cast(kinds[column]).alias(f"{name}_{key}") for column, key in keys.items()),
        nw.col(name),
    )
    others = [f"{name}_{key}" for key in keys.values()]
    return frame.join(table, how="left", left_on=list(keys), right_on=others)


def split_rows(frame: object, columns: Sequence[str], share: float, seed: int) -> tuple[Any, Any]:
    """The rows outside and inside of a sample that is drawn by a hash of ``columns``.

    The first 32 bits of the MD5 hash of ``user|item|seed`` decide, in every library.
    """
    limit = round(share * HASH_RANGE)
    if nw.from_native(cast(Any, frame)).implementation.is_duckdb():
        quoted = ", ".join(f'"{name.replace(chr(34), chr(34) * 2)}"' for name in columns)
        draw = f"('0x' || substr(md5(concat_ws('|', {quoted}, {seed})), 1, 8))::BIGINT"
        relation = cast(Any, frame)
        return relation.filter(f"{draw} >= {limit}"), relation.filter(f"{draw} < {limit}")
    rows = read_frame(frame)
    ids = [id_column(rows, name).tolist() for name in columns]
    is_drawn = [hash_ids(*cell, seed) < limit for cell in zip(*ids, strict=True)]
    parts = (rows.filter([not drawn for drawn in is_drawn]), rows.filter(is_drawn))
    train, test = (return_frame(part, like=frame) for part in parts)
    return train, test


def hash_ids(*parts: object) -> int:
    """The first 32 bits of the MD5 hash of the parts, joined by ``|``.

    >>> hash_ids("ann", 7, 0)
    340977958
    """
    text = "|".join(map(str, parts))
    digest = md5(text.encode(), usedforsecurity=False).digest()
    return int.from_bytes(digest[:4], "big")


def _is_lazy(opened: Any) -> bool:
    return isinstance(opened, nw.LazyFrame)


def count_groups(
    frame: LazyFrame, columns: Mapping[str, str], *, most: int | None = None
) -> dict[str, list[Any]]:
    """The distinct values of some columns, by new name, and as ``number`` how many rows have them.

    ``columns`` maps new names to those of the frame. At most so many rows are fetched; None for
    all.
    """
    keys = [nw.col(column).alias(name) for name, column in columns.items()]
    with _name_type(frame, *columns.values()):
        counted = frame.select(*keys).group_by(*columns).agg(nw.len().alias("number"))
        fetched = (counted if most is None else counted.head(most)).collect()
        rows: dict[str, list[Any]] = fetched.to_dict(as_series=False)
    return rows


def count_distinct(frame: LazyFrame, column: str) -> int:
    """How many distinct values a column has; null is none."""
    with _name_type(frame, column):
        values = frame.select(column).drop_nulls().unique()
        number = values.select(nw.len().alias("number")).collect()
        return int(number["number"][0])


def count_missing(frame: LazyFrame, column: str) -> int:
    """How many values of a column are null or NaN."""
    is_missing = nw.col(column).is_null()
    if frame.collect_schema()[column].is_float():
        is_missing = is_missing | nw.col(column).is_nan()
    number = frame.select(is_missing.cast(nw.Int64).sum().alias("number")).collect()
    return int(number["number"][0] or 0)


def has_numbers(frame: LazyFrame, column: str) -> bool:
    """Whether the type of a column is one of numbers."""
    return frame.collect_schema()[column].is_numeric()


@contextmanager
def _name_type(frame: LazyFrame, *columns: str) -> Iterator[None]:
    """Name the types of columns whose values a library cannot group."""
    try:
        yield
    except (UnskewError, MemoryError):
        raise
    except Exception as error:  # libraries raise errors of any type
        schema = frame.collect_schema()
        described = ", ".join(f"{column!r} ({schema[column]})" for column in columns)
        raise ColumnError(
            f"the rows cannot be grouped by {described}: {' '.join(str(error).split())[:200]}.",
            parameter=columns[0],
            remedy="Convert ids to text or whole numbers, and ratings to float64.",
        ) from error


def count_values(frame: LazyFrame, column: str, *, most: int) -> dict[Any, int]:
    """How often each value of a column occurs, for up to ``most`` values; none may be missing."""
    require_present(frame, column)
    rows = frame.select(nw.col(column).alias("value"))
    with _name_type(frame, column):
        counts = (
            rows.group_by("value")
            .agg(nw.len().alias("number"))
            .head(most)
            .collect()
            .to_dict(as_series=False)
        )
    return dict(zip(counts["value"], map(int, counts["number"]), strict=True))


def count_sizes(frame: LazyFrame, column: str) -> dict[int, int]:
    """How many values of a column occur once, how many twice, ...; none may be missing.

    For n rows there are at most sqrt(2 n) different sizes.
    """
    require_present(frame, column)
    rows = frame.select(nw.col(column).alias("value"))
    with _name_type(frame, column):
        sizes = (
            rows.group_by("value")
            .agg(nw.len().alias("size"))
            .group_by("size")
            .agg(nw.len().alias("number"))
        )
        counts = sizes.collect().to_dict(as_series=False)
    return dict(zip(map(int, counts["size"]), map(int, counts["number"]), strict=True))


def require_present(frame: LazyFrame, column: str) -> None:
    """Raise an error if a value of a column is null or NaN."""
    is_missing = nw.col(column).is_null()
    if frame.collect_schema()[column].is_float():
        is_missing = is_missing | nw.col(column).is_nan()
    counted = frame.select(is_missing.cast(nw.Int64).sum().alias("n"), nw.len().alias("size"))
    rows = counted.collect().to_dict(as_series=False)
    n_missing, size = int(rows["n"][0] or 0), int(rows["size"][0])
    if n_missing:
        raise BadRatingError(
            f"column {column!r} has {count_noun(n_missing, 'missing value')} in {size:,} rows.",
            parameter=column,
            remedy="Drop those rows first: a cell without a rating is an unobserved cell.",
        )


def look_up(frame: LazyFrame, column: str, table: Mapping[float, float], name: str) -> LazyFrame:
    """Add the column ``name``: ``table[value of column]``, null if the value is not in it."""
    value = nw.col(column).cast(nw.Float64)
    entry = nw.lit(None).cast(nw.Float64)
    for key, number in table.items():
        entry = nw.when(value == key).then(nw.lit(number)).otherwise(entry)
    return frame.with_columns(entry.alias(name))


def count_occurrences(
    frame: LazyFrame, column: str, other: LazyFrame, key: str, name: str
) -> LazyFrame:
    """Add the column ``name``: how many rows of ``other`` have the value as ``key``."""
    counts = (
        other.group_by(key)
        .agg(nw.len().alias(name))
        .select(nw.col(key).alias("value_to_join_on"), nw.col(name).cast(nw.Float64))
    )
    joined = frame.join(counts, how="left", left_on=column, right_on="value_to_join_on")
    return joined.with_columns(nw.col(name).fill_null(0.0))


def constant_column(frame: LazyFrame, value: float, name: str) -> LazyFrame:
    """Add the column ``name`` with the same number in each row."""
    return frame.with_columns(nw.lit(float(value)).alias(name))


def count_column(name: str, role: str) -> str:
    """The name of the column of counts of users or items from which ``name`` is computed."""
    return f"{name}_{role}_count"


def free_name(name: str, names: Mapping[str, str]) -> str:
    """``name`` with underscores added until no column of a view has it.

    ``names`` maps the caller's column names to those of the view.
    """
    while name in names or name in names.values():
        name += "_"
    return name


def capped_product(
    frame: LazyFrame, factors: Sequence[tuple[str, float, float, float]], scale: float, name: str
) -> LazyFrame:
    """Add the column ``name``: min(1, scale * prod ((count + smoothing) / largest) ** power).

    Each factor is a tuple (column of counts, smoothing, largest, power).
    """
    product = nw.lit(scale)
    for count, smoothing, largest, power in factors:
        product = product * ((nw.col(count) + smoothing) / largest) ** power
    return frame.with_columns(
        nw.when(product > 1.0).then(nw.lit(1.0)).otherwise(product).alias(name)
    )
