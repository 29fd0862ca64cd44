"""The penalty of a factorisation: one ridge for the factors, one for the offsets of each side.

p (||V||^2 + ||W||^2)  +  p_a ||a||^2  +  p_b ||b||^2  +  p_c c^2
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np

from unskew.data.factors import Factors
from unskew.types import Vector

Offsets: TypeAlias = Literal["none", "free", "regularized"]
"""No offsets, offsets without a penalty, or offsets that are penalised."""
Side: TypeAlias = Literal["user", "item"]


@dataclass(frozen=True, slots=True)
class Penalty:
    """The ridges p, p_a, p_b and p_c."""

    factors: float
    user_offset: float = 0.0
    item_offset: float = 0.0
    global_offset: float = 0.0

    @classmethod
    def equal(cls, ridge: float, offsets: Offsets) -> Penalty:
        """The same ridge for factors and, if they are penalised, offsets."""
        return cls(ridge, *[ridge if offsets == "regularized" else 0.0] * 3)

    def of_offset(self, side: Side) -> float:
        """The ridge of the offsets of one side."""
        return self.user_offset if side == "user" else self.item_offset

    def value(self, factors: Factors) -> float:
        """The penalty of these factors and offsets."""
        return (
            self.factors * factors.squared_norm(with_offsets=False)
            + self.user_offset * float(np.square(factors.user_offset).sum())
            + self.item_offset * float(np.square(factors.item_offset).sum())
            + self.global_offset * float(np.square(factors.global_offset))
        )

    def of_row(self, side: Side, n_unknowns: int, n_factors: int) -> Vector:
        """The ridge of each unknown of a row: its factors, and its offset if it has one."""
        ridges = np.full(n_unknowns, self.factors)
        ridges[n_factors:] = self.of_offset(side)
        return ridges

    def scaled(self, factor: float) -> Penalty:
        """The penalty with all of its ridges multiplied by ``factor``."""
        return Penalty(
            factor * self.factors,
            factor * self.user_offset,
            factor * self.item_offset,
            factor * self.global_offset,
        )
