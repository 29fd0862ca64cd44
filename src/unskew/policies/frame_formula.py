"""Expressions of a query that know their own text, so that equal ones are evaluated once."""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import narwhals.stable.v2 as nw

Operand: TypeAlias = "Formula | float"


@dataclass(frozen=True, slots=True, eq=False)
class Formula:
    """A number for each row of a query; formulas of one text have equal values."""

    text: str
    expression: nw.Expr

    @classmethod
    def of_column(cls, name: str) -> Formula:
        """The values of a column."""
        return cls(name, nw.col(name))

    def __add__(self, other: Operand) -> Formula:
        return self._combine("+", operator.add, other)

    def __sub__(self, other: Operand) -> Formula:
        return self._combine("-", operator.sub, other)

    def __mul__(self, other: Operand) -> Formula:
        is_one = not isinstance(other, Formula) and other == 1.0
        return self if is_one else self._combine("*", operator.mul, other)

    __rmul__ = __mul__

    def is_nonzero(self) -> Formula:
        """1 where the number is not 0, else 0."""
        return Formula(f"({self.text} != 0)", (self.expression != 0).cast(nw.Float64))

    def _combine(
        self, sign: str, combine: Callable[[nw.Expr, nw.Expr | float], nw.Expr], other: Operand
    ) -> Formula:
        if isinstance(other, Formula):
            return Formula(
                f"({self.text} {sign} {other.text})", combine(self.expression, other.expression)
            )
        return Formula(f"({self.text} {sign} {other!r})", combine(self.expression, other))
