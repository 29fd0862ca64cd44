"""Propensities: the probability with which each logged cell was observed, checked once at the door."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeAlias, runtime_checkable

import numpy as np
import numpy.typing as npt

from unskew.data.checks import float_array, is_finite_number, row_numbers
from unskew.data.frames import is_frame, open_frame
from unskew.errors import BadPropensityError, UsageError
from unskew.types import BoolVector, Vector

if TYPE_CHECKING:
    from unskew.data.ratings import Ratings

SMALLEST = 1e-100
"""A smaller propensity is refused: sums and squares of its inverse would leave the range of floats."""


@dataclass(frozen=True, slots=True, eq=False)
class Propensities:
    """P(O_ui = 1) for each observed cell, in the order of the log. Unobserved cells are never read by Eq. (10) or (11)."""

    values: Vector

    def __post_init__(self) -> None:
        values = float_array(self.values, "propensities", BadPropensityError).copy()
        if values.ndim != 1:
            raise BadPropensityError(
                f"propensities must form one column, in the order of the log; got shape {values.shape}."
            )
        _check(values, lambda row: f"row {row}")
        values.setflags(write=False)
        object.__setattr__(self, "values", values)

    def __len__(self) -> int:
        return self.values.size

    def __array__(
        self, dtype: npt.DTypeLike | None = None, copy: bool | None = None
    ) -> npt.NDArray[np.generic]:
        return np.array(self.values, dtype=dtype, copy=copy)

    def __repr__(self) -> str:
        low, high = (self.values.min(), self.values.max()) if len(self) else (np.nan, np.nan)
        return f"Propensities({len(self):,} values, {low:.4g} to {high:.4g})"

    @property
    def inverse(self) -> Vector:
        """1 / P: how many cells each observed one stands for."""
        return 1.0 / self.values

    def take(self, rows: npt.NDArray[np.integer] | BoolVector) -> Propensities:
        """Those of ``log.take(rows)``: the given rows (indices, each once, or a mask)."""
        return Propensities(self.values[row_numbers(rows, len(self))])

    def scaled(self, share: float) -> Propensities:
        """``share`` * P: those of a log of which only this share, drawn at random, was kept for judging."""
        if not (is_finite_number(share) and 0 < share <= 1):
            raise UsageError(
                f"share must lie in (0, 1]: the part of the log that was kept; got {share!r}."
            )
        return Propensities(share * self.values)


@runtime_checkable
class PropensityPredictor(Protocol):
    """A fitted model of how the log was selected."""

    def predict(self, log: Ratings, /) -> npt.ArrayLike:
        """One propensity for each cell of ``log``, in its order."""
        ...


PropensitiesLike: TypeAlias = Propensities | PropensityPredictor | npt.ArrayLike


def as_propensities(log: Ratings, given: PropensitiesLike) -> Propensities:
    """One propensity for each cell of ``log``, from values in its order, a U x I matrix, or a fitted model."""
    if isinstance(given, Propensities) and len(given) == len(log):
        return given
    if isinstance(given, PropensityPredictor):
        _require_protocol(given, log)
        return as_propensities(log, given.predict(log))
    if is_frame(given) and open_frame(given).shape != (log.n_users, log.n_items):
        raise BadPropensityError(
            f"a data frame of {open_frame(given).shape[1]} columns does not say which one holds the propensities. "
            "Pass that column alone, such as frame['propensity'], in the order of the log."
        )
    values = float_array(
        given, "propensities (unless a fitted model gives them)", BadPropensityError
    )
    if values.ndim == 2 and values.shape == (log.n_users, log.n_items):
        values = values[log.user, log.item]
    if values.shape != (len(log),):
        raise BadPropensityError(
            f"got propensities of shape {values.shape} for a log of {len(log)} ratings; "
            f"give one for each row of the log, in its order, or a matrix of shape {(log.n_users, log.n_items)}."
        )
    _check(values, log.name_cell)
    return Propensities(values)


def _require_protocol(model: PropensityPredictor, log: Ratings) -> None:
    try:
        inspect.signature(model.predict).bind(log)
    except TypeError as error:
        raise BadPropensityError(
            f"{type(model).__name__}.predict cannot be called as predict(log): {error}. A propensity model is an object whose "
            "predict(log) gives one propensity for each row of the log; a model of (users, items) must be wrapped in one."
        ) from error
    except ValueError:  # a compiled method that does not tell its signature
        return


def _check(values: Vector, name_cell: Callable[[int], str]) -> None:
    for bad, fault, advice in (
        (
            np.isnan(values),
            "are missing (NaN)",
            "Predict those too, or leave their rows out with log.take(rows).",
        ),
        (
            values > 1,
            "lie outside (0, 1], above 1",
            "Percentages? Divide by 100. Inverse weights? Pass 1/w.",
        ),
        (
            values < SMALLEST,
            f"lie outside (0, 1], at 0 or less, or are too small to invert (below {SMALLEST:g})",
            "Leave out cells that can never be observed, and give the others the chance they really have; "
            "large weights are limited by transform=unskew.Clip(...).",
        ),
    ):
        if bad.any():
            first = int(bad.argmax())
            raise BadPropensityError(
                f"{int(bad.sum())} of {bad.size} propensities {fault}; "
                f"the first is {values[first]} at {name_cell(first)}. {advice}"
            )
