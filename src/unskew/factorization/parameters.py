"""What a factorisation consists of."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from unskew.errors import UsageError
from unskew.types import IntVector

S = TypeVar("S", bound=np.floating[Any])
Floats = npt.NDArray[np.floating]


@dataclass(frozen=True, slots=True, eq=False)
class Parameters:
    """F_ui = v_u . w_i + a_u + b_i + c."""

    user_factors: Floats
    item_factors: Floats
    user_offset: Floats
    item_offset: Floats
    constant: float

    def astype(self, dtype: npt.DTypeLike) -> Parameters:
        """The same in another precision."""
        return Parameters(
            self.user_factors.astype(dtype, copy=False),
            self.item_factors.astype(dtype, copy=False),
            self.user_offset.astype(dtype, copy=False),
            self.item_offset.astype(dtype, copy=False),
            self.constant,
        )

    def penalty(self, *, with_offsets: bool) -> float:
        """||V||^2 + ||W||^2, and ||a||^2 + ||b||^2 + c^2 where offsets are penalised."""
        squares = [np.square(part).sum() for part in (self.user_factors, self.item_factors)]
        if with_offsets:
            squares += [
                np.square(self.user_offset).sum(),
                np.square(self.item_offset).sum(),
                self.constant**2,
            ]
        return float(sum(squares))


def rows_or_zero(rows: npt.NDArray[S], codes: IntVector) -> npt.NDArray[S]:
    """The rows of known codes, zeros for -1; nobody may be known at all."""
    taken = np.zeros((codes.size, *rows.shape[1:]), rows.dtype)
    taken[codes >= 0] = rows[codes[codes >= 0]]
    return taken


def without_offsets(start: Parameters, constant: float = 0.0) -> Parameters:
    """Its factors, and one constant."""
    nothing = np.zeros_like(start.user_offset), np.zeros_like(start.item_offset)
    return replace(start, user_offset=nothing[0], item_offset=nothing[1], constant=constant)


def require_parameters(start: object, shape: tuple[int, int, int]) -> None:
    """Refuse a start that is no parameters (a model has some), or of other users, items or factors than ``shape``."""
    if start is None:
        return
    if not isinstance(start, Parameters):
        hint = (
            "warm_start=model.parameters_"
            if hasattr(start, "parameters_")
            else "the parameters_ of a fitted factorisation"
        )
        raise UsageError(
            f"warm_start is the parameters to begin at, not {type(start).__name__}: pass {hint}."
        )
    sides = (
        (start.user_factors, start.user_offset, shape[0]),
        (start.item_factors, start.item_offset, shape[1]),
    )
    if any(factors.shape != (n, shape[2]) or offset.shape != (n,) for factors, offset, n in sides):
        found = len(start.user_factors), len(start.item_factors), start.item_factors.shape[-1]
        raise UsageError(
            f"warm_start has (users, items, factors) {found}, but this fit has {shape}."
        )
