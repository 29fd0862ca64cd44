"""NumPy functions on columns of data frames.

NumPy lets other types stand in for arrays (NEP 13 and NEP 18). A :class:`FrameColumn` does:
``np.minimum(column, 5.0)`` is another ``FrameColumn``, an expression that pandas, polars, pyarrow,
DuckDB or Spark evaluates. So metrics and weight transforms are written once, for arrays.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import narwhals.stable.v2 as nw
import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from unskew.errors import UsageError
from unskew.types import Vector


def _choose(condition: nw.Expr, then: nw.Expr, otherwise: nw.Expr) -> nw.Expr:
    return nw.when(condition).then(then).otherwise(otherwise)


ELEMENTWISE: Mapping[np.ufunc, Callable[..., nw.Expr]] = {
    np.add: operator.add,
    np.subtract: operator.sub,
    np.multiply: operator.mul,
    np.divide: operator.truediv,
    np.remainder: operator.mod,
    np.negative: lambda x: x * -1.0,
    np.power: operator.pow,
    np.square: lambda x: x * x,
    np.absolute: lambda x: x.abs(),
    np.sqrt: lambda x: x.sqrt(),
    np.exp: lambda x: x.exp(),
    np.log: lambda x: x.log(),
    np.log2: lambda x: x.log(2),
    np.minimum: lambda x, y: _choose(x <= y, x, y),
    np.maximum: lambda x, y: _choose(x >= y, x, y),
    np.less: operator.lt,
    np.less_equal: operator.le,
    np.greater: operator.gt,
    np.greater_equal: operator.ge,
    np.equal: operator.eq,
    np.not_equal: operator.ne,
    np.logical_and: operator.and_,
    np.logical_or: operator.or_,
    np.logical_not: operator.invert,
    np.bitwise_and: operator.and_,
    np.bitwise_or: operator.or_,
    np.invert: operator.invert,
}


class FrameColumn(NDArrayOperatorsMixin):
    """One number, or one truth value, for each row of a table."""

    def __init__(self, expression: nw.Expr) -> None:
        self.expression = expression

    def __array_ufunc__(
        self, ufunc: np.ufunc, method: str, *inputs: object, **options: object
    ) -> FrameColumn:
        if ufunc is np.power and inputs[1] == 2:
            ufunc, inputs = np.square, inputs[:1]
        if method != "__call__" or options or ufunc not in ELEMENTWISE:
            call = "" if method == "__call__" else f".{method}"
            raise _unsupported_error(f"numpy.{ufunc.__name__}{call}")
        return FrameColumn(ELEMENTWISE[ufunc](*(as_expression(value) for value in inputs)))

    def __array_function__(
        self, function: Any, types: object, inputs: tuple[Any, ...], options: dict[str, Any]
    ) -> FrameColumn:
        if function not in FUNCTIONS or options:
            raise _unsupported_error(f"numpy.{function.__name__}")
        return FUNCTIONS[function](*inputs)

    def __array__(self, dtype: object = None, copy: object = None) -> Any:
        raise _unsupported_error("a column as an array of numbers")

    def __bool__(self) -> bool:
        raise _unsupported_error("a column as one truth value, as `if` and `and` do")

    @property
    def is_finite(self) -> FrameColumn:
        """True for values that are neither null nor NaN nor infinite."""
        return FrameColumn(self.expression.is_finite().fill_null(value=False))

    def is_in(self, values: Sequence[float]) -> FrameColumn:
        """True for values that are listed; False for null."""
        return FrameColumn(self.expression.is_in(values).fill_null(value=False))

    @property
    def as_vector(self) -> Vector:
        """The column, typed as the array that a formula expects."""
        return cast(Vector, self)


def column(name: str) -> FrameColumn:
    """The column of this name, of any table."""
    return FrameColumn(nw.col(name))


def constant(value: float) -> FrameColumn:
    """The same number in each row."""
    return FrameColumn(nw.lit(float(value)))


def choose(
    condition: FrameColumn, then: FrameColumn | float, otherwise: FrameColumn | float
) -> FrameColumn:
    """``then`` in rows that meet the condition, ``otherwise`` in the others."""
    return FrameColumn(_choose(condition.expression, as_expression(then), as_expression(otherwise)))


def as_column(value: object) -> FrameColumn:
    """The result of a formula, which must be a column."""
    if not isinstance(value, FrameColumn):
        raise UsageError(
            f"a formula returned {type(value).__name__} for a column of a data frame; it must "
            "return one number for each row.",
            remedy="Use the arrays that it gets with NumPy functions only.",
        )
    return value


def as_expression(value: object) -> nw.Expr:
    """The expression of a column or of a number."""
    if isinstance(value, FrameColumn):
        return value.expression
    return nw.lit(float(cast(float, value)))


def _count_below(limits: Vector, values: FrameColumn) -> FrameColumn:
    """How many of ``limits`` are below each value: ``np.searchsorted`` for few limits."""
    is_above = [
        choose(values > limit, 1.0, 0.0).expression
        for limit in np.asarray(limits, dtype=np.float64)
    ]
    return FrameColumn(nw.sum_horizontal(*is_above)) if is_above else constant(0.0)


FUNCTIONS: Mapping[Any, Callable[..., FrameColumn]] = {
    np.where: choose,
    np.searchsorted: _count_below,
    np.ones_like: lambda _: constant(1.0),
    np.zeros_like: lambda _: constant(0.0),
}


def _unsupported_error(what: str) -> UsageError:
    return UsageError(
        f"a formula uses {what}, which data frames cannot evaluate.",
        remedy="Write it with elementwise functions and np.where, or build a log with "
        "Ratings.from_frame and call evaluate().",
    )
