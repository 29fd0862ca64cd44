"""Times of ratings: numbers, such as seconds since 1970, or NumPy dates."""

from __future__ import annotations

from typing import Any, TypeAlias

import narwhals as nw
import numpy as np
import numpy.typing as npt

from unskew.data.columns import find_column
from unskew.errors import DataError

Timestamps: TypeAlias = npt.NDArray[Any]
"""One time for each rating: float64, int64 or datetime64."""


def read_timestamps(values: npt.ArrayLike, size: int) -> Timestamps:
    """One time for each of ``size`` ratings; an error if some are missing, or not times."""
    try:
        times = np.asarray(values)
    except ValueError as error:
        raise _not_times_error(str(error)) from error
    if times.shape != (size,):
        raise DataError(
            f"there are {size} ratings, but `timestamp` has shape {times.shape}.",
            parameter="timestamp",
            remedy="Pass one time for each rating, in the same order.",
        )
    if times.dtype.kind not in "iufM":
        raise _not_times_error("text or mixed types" if times.dtype.kind in "OUS" else times.dtype)
    if times.dtype.kind in "iu":
        return times.astype(np.int64)
    times = times.astype(np.float64 if times.dtype.kind == "f" else "datetime64[us]")
    is_missing = ~np.isfinite(times)
    if is_missing.any():
        row = int(is_missing.argmax())
        raise DataError(
            f"{int(is_missing.sum())} of {size} times are missing or not finite; "
            f"the first is at row {row}.",
            parameter="timestamp",
            where=f"row {row}",
            remedy="Drop those rows, or leave `timestamp` out.",
        )
    return times


def timestamp_column(frame: nw.DataFrame[Any], name: str) -> Timestamps:
    """The times of a data frame; dates with a time zone are converted to UTC."""
    column = frame.get_column(find_column("timestamp", name, frame.columns))
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


def _not_times_error(found: object) -> DataError:
    return DataError(
        f"`timestamp` must hold numbers or dates; got {found}.",
        parameter="timestamp",
        remedy="Convert the column first, for example with pandas.to_datetime.",
    )
