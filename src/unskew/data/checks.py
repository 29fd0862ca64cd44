"""Arguments of any kind, checked at the door."""

from __future__ import annotations

import math
from numbers import Integral, Real

import numpy as np
import numpy.typing as npt

from unskew.errors import DataError, DuplicateCellError, UsageError


def float_array(
    values: npt.ArrayLike, what: str, error: type[DataError] | type[UsageError] = UsageError
) -> npt.NDArray[np.float64]:
    """``values`` as float64. Text, dates, complex numbers and ragged lists are refused, even where NumPy would convert them."""
    try:
        found = np.asarray(values)
        if found.dtype.kind in "biuf" or (
            found.dtype.kind == "O" and not any(isinstance(each, str) for each in found.flat)
        ):
            return np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError, OverflowError) as cause:
        raise error(f"{what} must be numbers: {cause}.") from cause
    raise error(
        f"{what} must be numbers; got {'text' if found.dtype.kind in 'OUST' else found.dtype}. Convert them first."
    )


def whole_number(name: str, value: object, *, least: int) -> int:
    """``value`` as an int."""
    if not isinstance(value, Integral) or isinstance(value, bool) or value < least:
        raise UsageError(f"{name} must be a whole number, at least {least}; got {value!r}.")
    return int(value)


def is_finite_number(value: object) -> bool:
    """Whether ``value`` is one real number, neither NaN nor infinite."""
    return isinstance(value, Real) and math.isfinite(value)


def row_numbers(rows: npt.ArrayLike, size: int) -> npt.NDArray[np.intp]:
    """Rows of a log of ``size`` ratings, given as indices or as a mask; each at most once."""
    try:
        given = np.asarray(rows)
    except ValueError as error:
        raise UsageError(f"rows must be a list of row numbers or a mask: {error}.") from error
    if given.dtype == bool and given.shape == (size,):
        return np.flatnonzero(given)
    if given.dtype == bool:
        raise UsageError(
            f"the mask has shape {given.shape}, but there are {size} rows; give True or False for each."
        )
    if given.ndim != 1 or (given.size and given.dtype.kind not in "iu"):
        raise UsageError(
            f"rows must be a list of row numbers or a mask; got {given.dtype} of shape {given.shape}."
        )
    outside = (given < -size) | (given >= size)
    if outside.any():
        raise UsageError(f"there is no row {given[outside.argmax()]}: rows are 0 to {size - 1}.")
    return _each_once(np.where(given < 0, given + size, given).astype(np.intp), size)


def _each_once(rows: npt.NDArray[np.intp], size: int) -> npt.NDArray[np.intp]:
    count = np.bincount(rows, minlength=size)
    if rows.size and count.max() > 1:
        raise DuplicateCellError(
            f"row {int(count.argmax())} is taken {int(count.max())} times, but a log holds each cell once. "
            "Take each row once; to resample, pass bootstrap=... to evaluate()."
        )
    return rows
