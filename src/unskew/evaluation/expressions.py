"""Formulas that were written for NumPy arrays, worked out by data frames and SQL engines.

NumPy lets other types stand in for arrays (NEP 13, NEP 18). A :class:`Column` does: ``np.minimum(column, 5.0)`` is another one,
an expression that pandas, polars, pyarrow, DuckDB or Spark will work out where the rows are. So each metric and each weight
transform is written once. A :class:`Table` is the rows; of them nothing is ever fetched but sums, counts and one example.
"""

from __future__ import annotations

import operator
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeAlias, cast

import narwhals.stable.v2 as nw
import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from unskew.data.frames import BACKENDS, LazyFrame, open_lazily
from unskew.errors import DataError, UnskewError, UsageError
from unskew.types import Vector

Totals: TypeAlias = Mapping[str, float]
GROUP = "group"
"""The column whose values tell groups of rows apart, where that was asked for."""


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


class Column(NDArrayOperatorsMixin):
    """A column of a table: one number, or one truth value, a row."""

    def __init__(self, expression: nw.Expr) -> None:
        self.expression = expression

    def __array_ufunc__(
        self, ufunc: np.ufunc, method: str, *inputs: object, **options: object
    ) -> Column:
        if ufunc is np.power and inputs[1] == 2:
            ufunc, inputs = np.square, inputs[:1]
        if method != "__call__" or options or ufunc not in ELEMENTWISE:
            raise _unknown(ufunc.__name__)
        return Column(ELEMENTWISE[ufunc](*(_expression(each) for each in inputs)))

    def __array_function__(
        self, function: Any, types: object, inputs: tuple[Any, ...], options: dict[str, Any]
    ) -> Column:
        if function not in FUNCTIONS or options:
            raise _unknown(function.__name__)
        return FUNCTIONS[function](*inputs)

    def __array__(self, dtype: object = None, copy: object = None) -> Any:
        raise _unknown("array")

    def __bool__(self) -> bool:
        raise _unknown("bool")

    @property
    def is_number(self) -> Column:
        """Where the value is neither null nor NaN nor infinite."""
        return Column(
            ~self.expression.is_null() & self.expression.is_finite().fill_null(value=False)
        )

    @property
    def as_vector(self) -> Vector:
        """The column where a formula expects an array, of which it asks no more than NumPy's functions."""
        return cast(Vector, self)


def named(name: str) -> Column:
    """The column of that name, of whichever table."""
    return Column(nw.col(name))


def as_column(value: object) -> Column:
    """What a formula gives for columns: a column."""
    if not isinstance(value, Column):
        raise UsageError(
            f"a formula gives {type(value).__name__}, not one number for each row, when it is asked about a data frame."
        )
    return value


def constant(value: float) -> Column:
    """The same number in each row."""
    return Column(nw.lit(float(value)))


def choose(condition: Column, then: Column | float, otherwise: Column | float) -> Column:
    """``then`` where ``condition`` holds, else ``otherwise``."""
    return Column(_choose(condition.expression, _expression(then), _expression(otherwise)))


def _count_below(limits: Vector, values: Column) -> Column:
    """How many of ``limits`` are less than each value: ``np.searchsorted``, for a handful of limits."""
    passed = [
        choose(values > limit, 1.0, 0.0).expression
        for limit in np.asarray(limits, dtype=np.float64)
    ]
    return Column(nw.sum_horizontal(*passed)) if passed else constant(0.0)


FUNCTIONS: Mapping[Any, Callable[..., Column]] = {
    np.where: choose,
    np.searchsorted: _count_below,
    np.ones_like: lambda _: constant(1.0),
    np.zeros_like: lambda _: constant(0.0),
}


def _expression(value: object) -> nw.Expr:
    return value.expression if isinstance(value, Column) else nw.lit(float(cast(float, value)))


def _unknown(name: str) -> UsageError:
    return UsageError(
        f"a formula uses numpy.{name}, which has no expression for data frames. Write it with elementary functions and np.where, "
        "or build a log with Ratings.from_frame and call evaluate()."
    )


class Source:
    """A caller's data frame or relation, eager or lazy."""

    def __init__(self, frame: object) -> None:
        self._frame, self._names = open_lazily(frame)
        self._schema = self._frame.collect_schema()

    @property
    def columns(self) -> Sequence[str]:
        """The names of its columns."""
        return list(self._names)

    @property
    def backend(self) -> str | None:
        """The library to answer in, where it can hold an answer."""
        name = self._frame.implementation.value
        return name if name in BACKENDS else None

    def pick(self, columns: Mapping[str, str], *, numbers: Mapping[str, type[DataError]]) -> Table:
        """Some columns under our names. Those of ``numbers`` become float64; a type that is no number raises the error given."""
        for name, error in numbers.items():
            dtype = self._schema[self._names[columns[name]]]
            if not (dtype.is_numeric() or dtype == nw.Boolean):
                raise error(
                    f"column {columns[name]!r} holds {dtype}, not numbers. Convert it first."
                )
        picked = {name: nw.col(self._names[column]) for name, column in columns.items()}
        with engine_errors(self._frame):
            return Table(
                self._frame.select(
                    (column.cast(nw.Float64) if name in numbers else column).alias(name)
                    for name, column in picked.items()
                )
            )


class Table:
    """A log, wherever it is. Columns have names of our own; storing one changes the table, and fetches nothing."""

    def __init__(self, frame: LazyFrame) -> None:
        self._frame = frame
        self._n_stored = 0

    @property
    def backend(self) -> str | None:
        """The library to answer in, where it can hold an answer."""
        name = self._frame.implementation.value
        return name if name in BACKENDS else None

    def copy(self) -> Table:
        """The table as it is now."""
        return Table(self._frame)

    def missing(self, name: str) -> Column:
        """Where an id is null, or NaN among numbers."""
        column = nw.col(name)
        is_float = self._frame.collect_schema()[name].is_float()
        return Column(
            column.is_null() | column.is_nan().fill_null(value=True)
            if is_float
            else column.is_null()
        )

    def store(self, columns: Mapping[str, Column]) -> None:
        """Add columns, or put new ones in place of old ones."""
        with engine_errors(self._frame):
            self._frame = self._frame.with_columns(
                column.expression.alias(name) for name, column in columns.items()
            )

    def sum_over(self, column: Column, keys: Sequence[str]) -> Column:
        """The sum of ``column`` over all rows that agree in ``keys``."""
        return self._stored(Column(self._stored(column).expression.sum().over(*keys)))

    def mean_over(self, column: Column, keys: Sequence[str]) -> Column:
        """The mean of ``column`` over all rows that agree in ``keys``."""
        return self._stored(Column(self._stored(column).expression.mean().over(*keys)))

    def place(self, score: str, *, within: str) -> Column:
        """1 for the largest ``score`` of those that agree in ``within``, 2 for the next, ...; any order among equal ones."""
        if self._frame.implementation.is_pyarrow():
            raise DataError(
                "pyarrow cannot rank rows within users. Pass columns of positions, or the table in another engine, such as "
                "polars.from_arrow(table)."
            )
        order = nw.col(score).rank("ordinal", descending=True).over(within)
        return self._stored(Column(order.cast(nw.Float64)))

    def _stored(self, column: Column) -> Column:
        """Under a name, because pyarrow and pandas aggregate plain columns only."""
        name = f"stored_{self._n_stored}"
        self._n_stored += 1
        self.store({name: column})
        return named(name)

    def where(self, condition: Column) -> Table:
        """The rows that meet a condition."""
        with engine_errors(self._frame):
            return Table(self._frame.filter(condition.expression))

    def distinct(self, name: str, *, most: int) -> list[Any]:
        """Up to ``most`` different values of a column."""
        return self._fetch(self._frame.select(name).unique().head(most))[name]

    def count_distinct(self, names: Sequence[str], *, by_group: bool) -> dict[Any, Totals]:
        """How many different values there are of each, in all or in each group."""
        with engine_errors(self._frame):
            counts = [nw.col(name).n_unique() for name in names]
            counted = (
                self._frame.group_by(GROUP).agg(counts) if by_group else self._frame.select(counts)
            )
            return self._fetch_totals(counted, names, by_group=by_group)

    def count_repeats(self, keys: Sequence[str]) -> int:
        """How many rows repeat the ``keys`` of another."""
        with engine_errors(self._frame):
            again = (nw.col("again") - 1).cast(nw.Float64)
            counted = (
                self._frame.group_by(*keys)
                .agg(nw.len().alias("again"))
                .with_columns(again)
                .select(nw.col("again").sum())
            )
            return round(self._fetch_totals(counted, ["again"], by_group=False)[None]["again"])

    def repeated(self, keys: Sequence[str]) -> dict[str, Any] | None:
        """Keys that more than one row has."""
        with engine_errors(self._frame):
            return Table(
                self._frame.group_by(*keys).agg(nw.len().alias("again")).filter(nw.col("again") > 1)
            ).example()

    def example(self) -> dict[str, Any] | None:
        """One row."""
        rows = self._fetch(self._frame.head(1))
        return (
            {name: values[0] for name, values in rows.items()}
            if next(iter(rows.values()))
            else None
        )

    def largest(self, name: str) -> float:
        """The largest number in a column."""
        return float(self._fetch(self._frame.select(nw.col(name).max()))[name][0])

    def add_up(
        self,
        rows: Mapping[str, Column],
        units: Mapping[str, Mapping[str, Column]],
        *,
        by_group: bool,
    ) -> dict[Any, Totals]:
        """Sums of ``rows`` over all rows, and of ``units[key]`` over all values of the column ``key``; of each group or in all.

        The columns of ``units[key]`` are formulas of the sums of ``rows`` over the rows of one value of ``key``, by their names.
        All is one query. With several keys the rows are read once for each.
        """
        names = [*rows, *(name for terms in units.values() for name in terms)]
        with engine_errors(self._frame):
            staged = self._frame.with_columns(
                column.expression.alias(name) for name, column in rows.items()
            )
            parts: list[LazyFrame] = []
            wanted = list(rows)
            for key, terms in units.items() or [(None, {})]:
                part = staged if key is None else _by_unit(staged, list(rows), key, terms, by_group)
                parts.append(_total(part, [*wanted, *terms], by_group))
                wanted = []  # the first part has them
            stacked = nw.concat([_padded(part, names, by_group) for part in parts], how="vertical")
            return self._fetch_totals(stacked, names, by_group=by_group)

    def _fetch_totals(
        self, frame: LazyFrame, names: Sequence[str], *, by_group: bool
    ) -> dict[Any, Totals]:
        """Sums by group (None where there are no groups); parts of one group add up, and the sum of nothing is 0."""
        found = self._fetch(frame)
        n_rows = len(found[names[0]])
        groups = [_plain(group) for group in found[GROUP]] if by_group else [None] * n_rows
        totals = {group: dict.fromkeys(names, 0.0) for group in groups}
        for name in names:
            for group, value in zip(groups, found[name], strict=True):
                totals[group][name] += float(value or 0.0)
        return cast(dict[Any, Totals], totals)

    def _fetch(self, frame: LazyFrame) -> dict[str, list[Any]]:
        with engine_errors(self._frame):
            if frame.implementation.is_polars():
                return frame.collect(backend="polars", engine="streaming").to_dict(as_series=False)
            return frame.collect().to_dict(as_series=False)


@contextmanager
def engine_errors(frame: LazyFrame) -> Iterator[None]:
    """Each library has errors of its own, which become ours; pandas also minds wide frames, which a caller cannot help."""
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="DataFrame is highly fragmented")
            yield
    except UnskewError:
        raise
    except Exception as error:
        first, *_, last = [
            line.strip() for line in str(error).splitlines() if line.strip()
        ] * 2 or [type(error).__name__] * 2
        reason = f"{first} {last}" if first.endswith(":") else first
        raise DataError(
            f"{frame.implementation.value} could not evaluate this frame: {reason} (Are its columns of the types they should be?)"
        ) from error


def _by_unit(
    staged: LazyFrame, rows: Sequence[str], key: str, terms: Mapping[str, Column], by_group: bool
) -> LazyFrame:
    """Rows to units: sums over the rows of each value of ``key``, and the terms that are formulas of them."""
    summed = staged.group_by(*([GROUP, key] if by_group else [key])).agg(
        nw.col(name).sum() for name in rows
    )
    return summed.with_columns(column.expression.alias(name) for name, column in terms.items())


def _total(frame: LazyFrame, names: Sequence[str], by_group: bool) -> LazyFrame:
    sums = [nw.col(name).sum() for name in names]
    return frame.group_by(GROUP).agg(sums) if by_group else frame.select(sums)


def _padded(part: LazyFrame, names: Sequence[str], by_group: bool) -> LazyFrame:
    """With 0 for the sums of other parts, so that parts can be stacked and added."""
    there = set(part.collect_schema().names())
    missing = [nw.lit(0.0).alias(name) for name in names if name not in there]
    filled = part.with_columns(missing) if missing else part
    numbers = [nw.col(name).cast(nw.Float64) for name in names]
    return filled.select(*([GROUP] if by_group else []), *numbers)


def _plain(group: Any) -> Any:
    """None for any library's missing value."""
    try:
        return None if group is None or group != group else group
    except TypeError:  # pandas.NA refuses to be true or false
        return None
