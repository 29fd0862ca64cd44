"""Checks of arguments that many functions share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from decimal import Decimal
from numbers import Integral, Real
from typing import Any

import numpy as np
import numpy.typing as npt

from unskew.errors import (
    BadPropensityError,
    BadRatingError,
    DataError,
    DuplicateCellError,
    UsageError,
)
from unskew.settings import describe
from unskew.types import ArrayShapes, BoolVector, Vector

MISSING_IN_PANDAS = "NAType"
"""The type of pandas.NA."""


def float_array(
    values: object, what: str, error: type[DataError] | type[UsageError] = UsageError
) -> npt.NDArray[np.float64]:
    """``values`` as float64; ``what`` names them in the error.

    Text, dates, complex numbers, masked values and ragged lists are refused, even where NumPy would
    convert them. None is NaN.
    """
    refuse_masked(values, what, error)
    try:
        array = as_array(values)
        if array.dtype.kind == "O":
            array = _convert_objects(array)
        if array.dtype.kind in "biuf":
            return np.asarray(array, dtype=np.float64)
    except (TypeError, ValueError, OverflowError) as cause:
        raise error(
            f"{what} must be numbers: {cause}.",
            parameter=what,
            remedy="Pass an array or a list of numbers.",
        ) from cause
    raise error(
        f"{what} must be numbers; got {'text' if array.dtype.kind in 'UST' else array.dtype}.",
        parameter=what,
        remedy="Convert them to numbers first.",
    )


def as_array(values: Any) -> npt.NDArray[Any]:
    """``values`` as an array; of Python objects where NumPy has no such type."""
    try:
        return np.asarray(values)
    except (TypeError, ValueError, OverflowError, MemoryError):
        raise
    except Exception:  # other libraries raise errors of any type
        array = np.empty(len(values), dtype=object)
        array[:] = list(values)
        return array


def refuse_masked(
    values: object, what: str, error: type[DataError] | type[UsageError] = UsageError
) -> None:
    """Raise an error if an array has masked values, which NumPy would read as if they were not."""
    if isinstance(values, np.ma.MaskedArray) and np.ma.is_masked(values):
        n_masked = int(np.ma.getmaskarray(values).sum())
        raise error(
            f"{n_masked} of {values.size} {what} are masked.",
            parameter=what,
            remedy="Drop them, or fill them with .filled(...).",
        )


def _convert_objects(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Python numbers as float64; missing ones are NaN."""
    kinds = {type(value) for value in array.flat}
    wrong = next((kind for kind in kinds if not _is_number_type(kind)), None)
    if wrong is not None:
        kind = "text" if issubclass(wrong, str) else f"a {wrong.__name__}"
        raise TypeError(f"got {kind}")
    if any(kind.__name__ == MISSING_IN_PANDAS for kind in kinds):
        values = [None if type(v).__name__ == MISSING_IN_PANDAS else v for v in array.flat]
        array = np.array(values, dtype=object).reshape(array.shape)
    return array.astype(np.float64)


def _is_number_type(kind: type) -> bool:
    """Whether it is the type of real numbers, or of what stands for a missing one."""
    if issubclass(kind, np.timedelta64 | np.ma.core.MaskedConstant):
        return False
    is_missing = kind is type(None) or kind.__name__ == MISSING_IN_PANDAS
    return is_missing or issubclass(kind, Real | Decimal)


def row_numbers(rows: npt.ArrayLike, size: int, parameter: str = "rows") -> npt.NDArray[np.intp]:
    """Row numbers from 0 on of a log with ``size`` ratings, from indices or a mask.

    Negative indices count from the end. A row may be named only once.
    """
    try:
        array = np.asarray(rows)
    except ValueError as error:
        raise UsageError(
            f"`{parameter}` must be a list of row numbers or a mask: {str(error).rstrip('.')}.",
            parameter=parameter,
        ) from error
    if array.dtype == bool and array.shape == (size,):
        return np.flatnonzero(array)
    if array.dtype == bool:
        raise UsageError(
            f"the mask has shape {array.shape}, but there are {size} rows.",
            parameter=parameter,
            remedy="Give True or False for each row.",
        )
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
        raise UsageError(
            f"`{parameter}` must be a list of row numbers or a mask; "
            f"got {array.dtype} of shape {array.shape}.",
            parameter=parameter,
        )
    outside = (array < -size) | (array >= size)
    if outside.any():
        row = array[outside.argmax()]
        raise UsageError(
            f"there is no row {row}: rows are 0 to {size - 1}.", parameter=parameter, value=row
        )
    numbers = np.where(array < 0, array + size, array).astype(np.intp)
    _require_distinct_rows(numbers, size)
    return numbers


def row_number(row: object, size: int) -> int:
    """The number of one row of a log; negative numbers count from the end."""
    if isinstance(row, Integral) and not isinstance(row, bool) and -size <= int(row) < size:
        return int(row)
    raise UsageError(
        f"`row` must be the number of a row, 0 to {size - 1}; got {describe(row)}.",
        parameter="row",
        value=row,
    )


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


def require_rows(
    is_valid: BoolVector,
    values: Vector,
    problem: str,
    name_row: Callable[[int], str],
    *,
    parameter: str,
    error_type: type[DataError],
    remedy: str,
    shell_remedy: str | None = None,
    subject: str = "",
) -> None:
    """Raise an error unless all rows are valid: how many are not, and the first of them."""
    if not is_valid.all():
        row = int(is_valid.argmin())
        raise error_type(
            f"{subject}{int((~is_valid).sum())} of {is_valid.size} {problem}; the first is "
            f"{values[row]:g} at {name_row(row)}.",
            parameter=parameter,
            value=float(values[row]),
            where=name_row(row),
            remedy=remedy,
            shell_remedy=shell_remedy,
        )


BAD_VALUES: Mapping[str, tuple[type[DataError], str, str]] = {
    "user": (BadRatingError, "rows have no user", "Drop them."),
    "item": (BadRatingError, "rows have no item", "Drop them."),
    "rating": (
        BadRatingError,
        "ratings are missing or not finite",
        "Drop those rows: a cell without a rating is an unobserved cell.",
    ),
    "weight": (
        BadPropensityError,
        "propensities are missing or lie outside (0, 1]",
        "Raise small ones, or drop cells that can never be observed.",
    ),
}
"""The error, the problem and the remedy if values of a column are bad."""


def refuse_bad_values(name: str, n_bad: int, n_ratings: int) -> None:
    """Raise an error if a column of a log has bad values, of which only the number is known."""
    if not n_bad:
        return
    error, problem, remedy = BAD_VALUES[name]
    raise error(
        f"{n_bad:,} of {n_ratings:,} {problem}.",
        parameter="propensities" if name == "weight" else name,
        remedy=remedy,
    )


def find_misfit(arrays: ArrayShapes) -> str | None:
    """What is wrong with the first of some loaded arrays; None if they can be computed with."""
    for name, (array, shape) in arrays.items():
        values = np.asarray(array)
        if values.shape != shape:
            return f"{name} has shape {values.shape}, but the rest of the model needs {shape}."
        if values.dtype.kind == "f" and values.dtype not in (np.float32, np.float64):
            return f"{name} has the type {values.dtype}, not float64."
        if values.dtype.kind == "f" and not np.isfinite(values).all():
            return f"{name} has numbers that are not finite."
        if values.ndim > 1 and values.dtype.kind == "f":
            with np.errstate(over="ignore"):
                if not np.isfinite(np.square(values)).all():
                    return f"{name} has numbers whose squares are not finite."
    return None
