"""Times of ratings: numbers, such as seconds since 1970, or NumPy dates."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

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
    if times.dtype.kind == "O":
        raise _mixed_times_error(times)
    if times.dtype.kind not in "iufM":
        raise _not_times_error("text" if times.dtype.kind in "US" else times.dtype)
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


def _mixed_times_error(times: npt.NDArray[np.object_]) -> DataError:
    """Objects that NumPy has no common type for: name the first that is unlike those before."""
    first = type(times[0]) if times.size else object
    row = next((row for row, time in enumerate(times) if type(time) is not first), 0)
    kinds = f"{first.__name__} and {type(times[row]).__name__}" if row else first.__name__
    return DataError(
        f"`timestamp` must hold numbers or dates; got {kinds}, first {times[row]!r} at row {row}.",
        parameter="timestamp",
        where=f"row {row}",
        remedy="Convert the column to one type first, for example with pandas.to_datetime.",
    )


def _not_times_error(kind: object) -> DataError:
    return DataError(
        f"`timestamp` must hold numbers or dates; got {kind}.",
        parameter="timestamp",
        remedy="Convert the column first, for example with pandas.to_datetime.",
    )
