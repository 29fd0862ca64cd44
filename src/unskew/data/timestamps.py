"""Times of ratings: numbers, such as seconds since 1970, or dates."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, date, datetime, time
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from unskew.data.checks import refuse_masked
from unskew.errors import DataError

Timestamps: TypeAlias = npt.NDArray[Any]
"""One time for each rating: float64, int64 or datetime64."""


def read_timestamps(values: npt.ArrayLike, size: int) -> Timestamps:
    """One time for each of ``size`` ratings; an error if some are missing, or not times.

    Dates may be ISO 8601 texts; those with a time zone are converted to UTC.
    """
    refuse_masked(values, "timestamp", DataError)
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
    if times.dtype.kind in "OU":
        dates = parse_dates(times.tolist())
        if np.isfinite(dates).all():
            return dates
        raise _unlike_times_error(times, int(np.isnat(dates).argmax()))
    if times.dtype.kind not in "iufM":
        raise _not_times_error(times.dtype)
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


def parse_dates(values: Sequence[object]) -> Timestamps:
    """Dates, or ISO 8601 texts, as NumPy dates; NaT for any other value.

    All have a time zone, and are converted to UTC, or none has, as the first of them.
    """
    dates = [_parse_date(value) for value in values]
    first = next((each for each in dates if each is not None), None)
    has_zone = first is not None and first.tzinfo is not None
    utc = [
        None
        if each is None or (each.tzinfo is not None) != has_zone
        else each.astimezone(UTC).replace(tzinfo=None)
        if has_zone
        else each
        for each in dates
    ]
    return np.array(utc, dtype="datetime64[us]")


def _parse_date(value: object) -> datetime | None:
    """A date, or ISO 8601 text, as a date with a time of day; None for anything else."""
    if isinstance(value, datetime):
        return value if value == value else None  # NaT of pandas equals nothing
    if isinstance(value, date):
        return datetime.combine(value, time())
    try:
        return datetime.fromisoformat(value.strip()) if isinstance(value, str) else None
    except ValueError:
        return None


def _unlike_times_error(times: npt.NDArray[Any], bad_row: int) -> DataError:
    """Name the first value that is unlike those before, or else the first that is no date."""
    first = type(times[0])
    row = next((row for row, each in enumerate(times) if type(each) is not first), 0)
    kinds = f"{first.__name__} and {type(times[row]).__name__}" if row else first.__name__
    if times.dtype.kind == "U" or (first is str and not row):
        kinds, row = "text", bad_row
    value = times.tolist()[row]
    return DataError(
        f"`timestamp` must hold numbers or dates; got {kinds}, first {value!r} at row {row}.",
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
