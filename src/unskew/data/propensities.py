"""Propensities: the probability with which each logged cell was observed, checked once at the door."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeAlias, runtime_checkable

import numpy as np
import numpy.typing as npt

from unskew.errors import BadPropensityError
from unskew.types import Vector

if TYPE_CHECKING:
    from unskew.data.ratings import Ratings


@dataclass(frozen=True, slots=True, eq=False)
class Propensities:
    """P(O_ui = 1) for each observed cell, in the order of the log. Unobserved cells are never read by Eq. (10) or (11)."""

    values: Vector

    def __post_init__(self) -> None:
        values = _numbers(self.values).copy()
        if values.ndim != 1:
            raise BadPropensityError(f"propensities must form one column, in the order of the log; got shape {values.shape}.")
        _check(values, lambda row: f"row {row}")
        values.setflags(write=False)
        object.__setattr__(self, "values", values)

    def __len__(self) -> int:
        return self.values.size

    def __array__(self, dtype: npt.DTypeLike | None = None, copy: bool | None = None) -> npt.NDArray[np.generic]:
        return np.array(self.values, dtype=dtype, copy=copy)

    def __repr__(self) -> str:
        low, high = (self.values.min(), self.values.max()) if len(self) else (np.nan, np.nan)
        return f"Propensities({len(self):,} values, {low:.4g} to {high:.4g})"

    @property
    def inverse(self) -> Vector:
        """1 / P: how many cells each observed one stands for."""
        return 1.0 / self.values

    def clip(self, *, low: float) -> Propensities:
        """Raise every propensity below ``low`` to it: less variance, some bias."""
        return Propensities(np.maximum(self.values, low))


@runtime_checkable
class PropensityModel(Protocol):
    """A fitted model of how the log was selected."""

    def predict(self, log: Ratings, /) -> npt.ArrayLike:
        """One propensity for each cell of ``log``, in its order."""
        ...


PropensitiesLike: TypeAlias = Propensities | PropensityModel | npt.ArrayLike


def propensities_of(log: Ratings, given: PropensitiesLike) -> Propensities:
    """One propensity for each cell of ``log``, from values in its order, a U x I matrix, or a fitted model."""
    if isinstance(given, PropensityModel):
        return propensities_of(log, given.predict(log))
    values = _numbers(given)
    if values.ndim == 2 and values.shape == (log.n_users, log.n_items):
        values = values[log.user, log.item]
    if values.shape != (len(log),):
        raise BadPropensityError(
            f"got propensities of shape {values.shape} for a log of {len(log)} ratings; "
            f"give one for each row of the log, in its order, or a matrix of shape {(log.n_users, log.n_items)}."
        )
    _check(values, log.name_cell)
    return Propensities(values)


def _numbers(given: npt.ArrayLike) -> Vector:
    try:
        return np.asarray(given, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise BadPropensityError(f"propensities must be numbers, or a fitted model: {error}.") from error


def _check(values: Vector, name_cell: Callable[[int], str]) -> None:
    good = np.isfinite(values) & (values > 0) & (values <= 1)
    if good.all():
        return
    first = int(good.argmin())
    raise BadPropensityError(
        f"{int((~good).sum())} of {good.size} propensities lie outside (0, 1]; "
        f"the first is {values[first]} at {name_cell(first)}. "
        "Raise small ones with np.maximum(values, low), or drop cells that can never be observed."
    )
