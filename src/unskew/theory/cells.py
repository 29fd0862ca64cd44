"""Arrays over all cells, checked at the door."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from unskew.data.checks import float_array
from unskew.data.propensities import SMALLEST
from unskew.errors import BadPropensityError, UsageError
from unskew.types import BoolVector, Matrix


def finite_cells(name: str, values: npt.ArrayLike) -> Matrix:
    """``values`` as float64, at least one, without NaN or infinity."""
    cells = float_array(values, name)
    good = np.isfinite(cells)
    if not (cells.size and good.all()):
        raise UsageError(
            f"{_complaint(name, cells, good, 'not finite')} Give a number for every cell, observed or not."
        )
    return cells


def propensity_cells(name: str, values: npt.ArrayLike) -> Matrix:
    """``values`` as float64, at least one, each in (0, 1] and large enough to invert."""
    cells = float_array(values, name, BadPropensityError)
    tiny = (cells > 0) & (cells < SMALLEST)
    if tiny.any():
        fault = f"too small to invert (below {SMALLEST:g})"
        raise BadPropensityError(
            f"{_complaint(name, cells, ~tiny, fault)} Give every cell the chance that it really has."
        )
    good = (cells > 0) & (cells <= 1)
    if not (cells.size and good.all()):
        raise BadPropensityError(
            f"{_complaint(name, cells, good, 'outside (0, 1]')} "
            "Give one for every cell, and leave out the cells that can never be observed."
        )
    return cells


def same_shape(first: str, one: Matrix, second: str, other: Matrix) -> None:
    """Refuse two arrays that do not cover the same cells."""
    if one.shape != other.shape:
        raise UsageError(
            f"{first} has shape {one.shape}, but {second} has shape {other.shape}; both need one value for each cell."
        )


def _complaint(name: str, cells: Matrix, good: BoolVector, fault: str) -> str:
    if cells.size == 0:
        return f"{name} is empty."
    place = tuple(int(index) for index in np.unravel_index(int(good.argmin()), cells.shape))
    return f"{int((~good).sum())} of {cells.size} values of {name} are {fault}; the first is {cells[place]} at cell {place}."
