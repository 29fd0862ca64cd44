"""Checks of arguments that many functions share."""

from __future__ import annotations

import math
from numbers import Integral, Real

import numpy as np
import numpy.typing as npt

from unskew.errors import DataError, DuplicateCellError, UsageError


def float_array(
    values: npt.ArrayLike, what: str, error: type[DataError] | type[UsageError] = UsageError
) -> npt.NDArray[np.float64]:
    """``values`` as float64; ``what`` names them in the error.

    Text, dates, complex numbers and ragged lists are refused, even where NumPy would convert them.
    """
    try:
        array = np.asarray(values)
        if array.dtype.kind in "biuf" or (
            array.dtype.kind == "O" and not any(isinstance(value, str) for value in array.flat)
        ):
            return np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError, OverflowError) as cause:
        raise error(
            f"{what} must be numbers: {cause}.",
            parameter=what,
            remedy="Pass an array or a list of numbers.",
        ) from cause
    raise error(
        f"{what} must be numbers; got {'text' if array.dtype.kind in 'OUST' else array.dtype}.",
        parameter=what,
        remedy="Convert them to numbers first.",
    )


def whole_number(name: str, value: object, *, least: int) -> int:
    """The argument ``name`` as an int; an error if it is not a whole number from ``least`` on."""
    if not isinstance(value, Integral) or isinstance(value, bool) or value < least:
        raise UsageError(
            f"`{name}` must be a whole number, at least {least}; got {value!r}.",
            parameter=name,
            value=value,
        )
    return int(value)


def is_finite_number(value: object) -> bool:
    """Whether ``value`` is one real number, neither NaN nor infinite."""
    return isinstance(value, Real) and math.isfinite(value)


def row_numbers(rows: npt.ArrayLike, size: int) -> npt.NDArray[np.intp]:
    """Row numbers from 0 on of a log with ``size`` ratings, from indices or a mask.

    Negative indices count from the end. A row may be named only once.
    """
    try:
        array = np.asarray(rows)
    except ValueError as error:
        raise UsageError(
            f"rows must be a list of row numbers or a mask: {str(error).rstrip('.')}.",
            parameter="rows",
        ) from error
    if array.dtype == bool and array.shape == (size,):
        return np.flatnonzero(array)
    if array.dtype == bool:
        raise UsageError(
            f"the mask has shape {array.shape}, but there are {size} rows.",
            parameter="rows",
            remedy="Give True or False for each row.",
        )
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
        raise UsageError(
            "rows must be a list of row numbers or a mask; "
            f"got {array.dtype} of shape {array.shape}.",
            parameter="rows",
        )
    outside = (array < -size) | (array >= size)
    if outside.any():
        row = array[outside.argmax()]
        raise UsageError(
            f"there is no row {row}: rows are 0 to {size - 1}.", parameter="rows", value=row
        )
    numbers = np.where(array < 0, array + size, array).astype(np.intp)
    _require_distinct_rows(numbers, size)
    return numbers


def _require_distinct_rows(rows: npt.NDArray[np.intp], size: int) -> None:
    count = np.bincount(rows, minlength=size)
    if rows.size and count.max() > 1:
        row = int(count.argmax())
        raise DuplicateCellError(
            f"row {row} is taken {int(count.max())} times, but a log holds each cell once.",
            parameter="rows",
            value=row,
            remedy="Take each row once; to resample, pass `bootstrap=...` to evaluate().",
        )
