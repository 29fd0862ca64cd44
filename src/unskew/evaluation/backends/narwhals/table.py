"""The rows of a log in the caller's data frame or SQL table.

Rows stay in their engine. Only sums, counts and one example row are fetched.
"""

from __future__ import annotations

import operator
import pickle
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from copy import copy
from functools import reduce
from typing import Any, TypeAlias, TypeVar, cast

import narwhals.stable.v2 as nw
import numpy as np
import numpy.typing as npt

from unskew.data.frames import BACKENDS, LazyFrame, open_lazily
from unskew.data.ids import as_ids, encode
from unskew.errors import DataError, UnskewError
from unskew.evaluation.backends.narwhals.columns import FrameColumn, column
from unskew.kernels.blocks import cut_rows
from unskew.registry import find_engine
from unskew.threads import cancel_jobs_on_interrupt

T = TypeVar("T")

Totals: TypeAlias = Mapping[str, float]
"""Sums over rows or units, by name."""
Rows: TypeAlias = Mapping[str, npt.NDArray[Any]]
"""Columns of some rows as arrays, by name."""
Measure: TypeAlias = Callable[[Rows], T]
"""Returns numbers of some rows that can be added to those of other rows."""
BLOCK_ROWS = 1 << 18
"""Rows that are measured at once, if no user has more."""
GROUP = "group"
"""The column whose values divide the rows into groups, if the caller names one."""


class FrameSource:
    """A caller's data frame or SQL table, eager or lazy."""

    def __init__(self, frame: object) -> None:
        self._frame, self._names = open_lazily(frame)
        self._schema = self._frame.collect_schema()

    @property
    def columns(self) -> Sequence[str]:
        """The caller's names of the columns."""
        return list(self._names)

    @property
    def backend(self) -> str | None:
        """The library for results; None if the frame's library cannot make one from columns."""
        name = self._frame.implementation.value
        return name if name in BACKENDS else None

    @property
    def names(self) -> Mapping[str, str]:
        """The name in the view of each column of the caller."""
        return self._names

    def extend(
        self, build: Callable[[LazyFrame, Mapping[str, str]], LazyFrame], added: Sequence[str]
    ) -> FrameSource:
        """The source with more columns, which ``build(view, names)`` adds to the view."""
        source = copy(self)
        with translated_errors(self._frame):
            source._frame = build(self._frame, self._names)
            source._schema = source._frame.collect_schema()
        source._names = self._names | {name: name for name in added}
        return source

    def select(
        self, columns: Mapping[str, str], *, numeric_errors: Mapping[str, type[DataError]]
    ) -> FrameTable:
        """A table of some columns: ``columns`` maps our names to the caller's.

        ``numeric_errors`` lists the columns that must be numbers, which become float64, each with
        the error that it raises if it has another type.
        """
        for name, error in numeric_errors.items():
            dtype = self._schema[self._names[columns[name]]]
            if not (dtype.is_numeric() or dtype == nw.Boolean):
                raise error(
                    f"column {columns[name]!r} has the type {dtype}, not numbers.",
                    parameter=columns[name],
                    remedy="Convert the column to numbers first.",
                )
        selected = {name: nw.col(self._names[source]) for name, source in columns.items()}
        with translated_errors(self._frame):
            return FrameTable(
                self._frame.select(
                    (expression.cast(nw.Float64) if name in numeric_errors else expression).alias(
                        name
                    )
                    for name, expression in selected.items()
                )
            )


class FrameTable:
    """Rows with columns under our own names. :meth:`store` adds columns and fetches nothing."""

    def __init__(self, frame: LazyFrame) -> None:
        self._frame = frame
        self._n_stored = 0

    def copy(self) -> FrameTable:
        """The table as it is now."""
        return FrameTable(self._frame)

    def is_missing(self, name: str) -> FrameColumn:
        """True where an id is null, or NaN."""
        expression = nw.col(name)
        is_null = expression.is_null()
        if self._frame.collect_schema()[name].is_float():
            is_null = is_null | expression.is_nan().fill_null(value=True)
        return FrameColumn(is_null)

    def store(self, columns: Mapping[str, FrameColumn]) -> None:
        """Add columns, or replace those of the same name."""
        with translated_errors(self._frame):
            self._frame = _add_columns(self._frame, columns)

    def sum_over(self, values: FrameColumn, keys: Sequence[str]) -> FrameColumn:
        """The sum of ``values`` over all rows with the same ``keys``."""
        return self._store_unnamed(
            FrameColumn(self._store_unnamed(values).expression.sum().over(*keys))
        )

    def mean_over(self, values: FrameColumn, keys: Sequence[str]) -> FrameColumn:
        """The mean of ``values`` over all rows with the same ``keys``."""
        return self._store_unnamed(
            FrameColumn(self._store_unnamed(values).expression.mean().over(*keys))
        )

    def least_over(self, values: FrameColumn, keys: Sequence[str]) -> FrameColumn:
        """The least of ``values`` over all rows with the same ``keys``."""
        return self._store_unnamed(
            FrameColumn(self._store_unnamed(values).expression.min().over(*keys))
        )

    def rank(self, score: str, *, within: str) -> FrameColumn:
        """1 for the largest ``score`` among rows with the same ``within``, 2 for the next, ...

        Equal scores have different ranks, in any order.
        """
        if self._frame.implementation.is_pyarrow():
            raise DataError(
                "pyarrow cannot rank rows within users.",
                remedy="Pass columns of positions, or another frame, such as "
                "polars.from_arrow(table).",
                shell_remedy="Use `reader='memory'`.",
            )
        order = nw.col(score).rank("ordinal", descending=True).over(within)
        return self._store_unnamed(FrameColumn(order.cast(nw.Float64)))

    def _store_unnamed(self, values: FrameColumn) -> FrameColumn:
        """The same as a stored column: pyarrow and pandas cannot aggregate other expressions."""
        name = f"stored_{self._n_stored}"
        self._n_stored += 1
        self.store({name: values})
        return column(name)

    def filter(self, condition: FrameColumn) -> FrameTable:
        """The rows that meet a condition."""
        with translated_errors(self._frame):
            return FrameTable(self._frame.filter(condition.expression))

    def filter_group(self, group: Any) -> FrameTable:
        """The rows of one group; None is the group of missing values."""
        with translated_errors(self._frame):
            is_missing = self.is_missing(GROUP).expression
            condition = is_missing if group is None else nw.col(GROUP) == nw.lit(group)
            return FrameTable(self._frame.filter(condition))

    def distinct_values(self, name: str, *, most: int) -> list[Any]:
        """Up to ``most`` distinct values of a column."""
        return self._fetch(self._frame.select(name).unique().head(most))[name]

    def count_distinct(self, names: Sequence[str], *, by_group: bool) -> dict[Any, Totals]:
        """The number of distinct values of each column, in the table or in each group."""
        with translated_errors(self._frame):
            counts = [nw.col(name).n_unique() for name in names]
            if by_group:
                counted = self._frame.group_by(GROUP).agg(counts)
            else:
                counted = self._frame.select(counts)
            return self._fetch_totals(counted, names, by_group=by_group)

    def count_duplicates(self, keys: Sequence[str]) -> int:
        """How many rows have the ``keys`` of another row."""
        with translated_errors(self._frame):
            n_more = (nw.col("n_rows") - 1).cast(nw.Float64)
            counted = (
                self._frame.group_by(*keys)
                .agg(nw.len().alias("n_rows"))
                .with_columns(n_more)
                .select(nw.col("n_rows").sum())
            )
            return round(self._fetch_totals(counted, ["n_rows"], by_group=False)[None]["n_rows"])

    def find_duplicate(self, keys: Sequence[str]) -> dict[str, Any] | None:
        """The keys of some rows that have the same; None if all differ."""
        with translated_errors(self._frame):
            sizes = self._frame.group_by(*keys).agg(nw.len().alias("n_rows"))
            return FrameTable(sizes.filter(nw.col("n_rows") > 1)).first_row()

    def first_row(self) -> dict[str, Any] | None:
        """One row; None if the table is empty."""
        rows = self._fetch(self._frame.head(1))
        is_empty = not next(iter(rows.values()))
        return None if is_empty else {name: values[0] for name, values in rows.items()}

    def largest(self, name: str) -> float:
        """The largest number in a column."""
        return float(self._fetch(self._frame.select(nw.col(name).max()))[name][0])

    def add_up(
        self,
        row_terms: Mapping[str, FrameColumn],
        unit_terms: Mapping[str, Mapping[str, FrameColumn]],
        *,
        by_group: bool,
    ) -> dict[Any, Totals]:
        """Sums of the terms, of each group or (under None) of the whole table, as one query.

        ``row_terms`` are added up over rows. ``unit_terms[key]`` are added up over the values of
        the column ``key``. They are formulas of the sums of ``row_terms`` over the rows of one
        value. With several keys the rows are read once for each.
        """
        names = [*row_terms, *(name for terms in unit_terms.values() for name in terms)]
        with translated_errors(self._frame):
            rows = _add_columns(self._frame, row_terms)
            if not unit_terms:
                parts = [_total(rows, list(row_terms), by_group)]
            else:
                parts = []
                for number, (key, terms) in enumerate(unit_terms.items()):
                    units = _group_by_unit(rows, list(row_terms), key, terms, by_group)
                    shared = list(row_terms) if number == 0 else []  # counted in one part only
                    parts.append(_total(units, [*shared, *terms], by_group))
            stacked = nw.concat([_pad(part, names, by_group) for part in parts], how="vertical")
            return self._fetch_totals(stacked, names, by_group=by_group)

    def add_up_by(
        self, row_terms: Mapping[str, FrameColumn], key: str, *, by_group: bool
    ) -> dict[Any, dict[float, Totals]]:
        """Sums of the terms for each number in the column ``key``, by group (None without)."""
        with translated_errors(self._frame):
            rows = _add_columns(self._frame, row_terms)
            sums = _group_by_unit(rows, list(row_terms), key, {}, by_group)
            fetched = self._fetch(sums)
        groups = [_as_plain(group) for group in fetched[GROUP]] if by_group else None
        totals: dict[Any, dict[float, Totals]] = {} if by_group else {None: {}}
        for row, value in enumerate(fetched[key]):
            group = None if groups is None else groups[row]
            totals.setdefault(group, {})[float(value)] = {
                name: float(fetched[name][row] or 0.0) for name in row_terms
            }
        return totals

    def add_up_users(self, names: Sequence[str], measure: Measure[T]) -> T | None:
        """The sum of what ``measure`` says of blocks of rows; None if there are no rows.

        ``names`` are the columns that it gets. A block has all rows of its users. On Spark it is
        called by the executors, and only what it returns is fetched.
        """
        with translated_errors(self._frame):
            rows = self._frame.select(*names)
            if is_on_spark(rows):
                return _add_up_on_spark(rows.to_native(), names, measure)
            return add_up_blocks(cut_users(_sort_by_user(rows, names), BLOCK_ROWS), measure)

    def _fetch_totals(
        self, frame: LazyFrame, names: Sequence[str], *, by_group: bool
    ) -> dict[Any, Totals]:
        """Sums by group (None without groups). Rows of the same group are added; null is 0."""
        rows = self._fetch(frame)
        n_rows = len(rows[names[0]])
        groups = [_as_plain(group) for group in rows[GROUP]] if by_group else [None] * n_rows
        totals = {group: dict.fromkeys(names, 0.0) for group in groups}
        for name in names:
            for group, value in zip(groups, rows[name], strict=True):
                totals[group][name] += float(value or 0.0)
        return cast(dict[Any, Totals], totals)

    def _fetch(self, frame: LazyFrame) -> dict[str, list[Any]]:
        with translated_errors(self._frame):
            if frame.implementation.is_polars():
                return frame.collect(backend="polars", engine="streaming").to_dict(as_series=False)
            return frame.collect().to_dict(as_series=False)


@contextmanager
def translated_errors(frame: LazyFrame) -> Iterator[None]:
    """Turn errors of the frame's library into ours, and cancel jobs of Spark on Ctrl-C.

    The warning of pandas about many columns is ignored, because a caller cannot avoid it.
    """
    try:
        with (
            warnings.catch_warnings(),
            cancel_jobs_on_interrupt(nw.to_native(frame).sparkSession)
            if is_on_spark(frame)
            else nullcontext(),
        ):
            warnings.filterwarnings("ignore", message="DataFrame is highly fragmented")
            yield
    except UnskewError:
        raise
    except Exception as error:
        texts = [text.strip() for text in str(error).splitlines() if text.strip()]
        reason = texts[0] if texts else type(error).__name__
        if reason.endswith(":"):
            reason = f"{reason} {texts[-1]}"
        raise DataError(
            f"{frame.implementation.value} could not evaluate this frame: {reason.rstrip('.')}.",
            remedy="Check that its columns have the right types.",
        ) from error


def is_on_spark(frame: LazyFrame) -> bool:
    """Whether it is a data frame of Spark, of a classic session or of Connect."""
    return frame.implementation.is_pyspark() or frame.implementation.is_pyspark_connect()


def _sort_by_user(frame: LazyFrame, names: Sequence[str]) -> Iterator[Rows]:
    """The rows in blocks, those of a user one after another. DuckDB sorts outside of memory."""
    if frame.implementation.is_duckdb():
        reader = frame.sort("user").to_native().to_arrow_reader(BLOCK_ROWS)
        for batch in reader:
            yield _read_batch(batch, names)
        return
    fetched = frame.collect()
    order = np.argsort(encode(as_ids(fetched["user"].to_numpy()))[0], kind="stable")
    columns = {name: fetched[name].to_numpy() for name in names}
    for rows in cut_rows(order.size, BLOCK_ROWS):
        yield {name: values[order[rows]] for name, values in columns.items()}


def _read_batch(batch: Any, names: Sequence[str]) -> Rows:
    """The columns of a record batch of Arrow."""
    return {name: batch.column(name).to_numpy(zero_copy_only=False) for name in names}


def cut_users(blocks: Iterable[Rows], least: int) -> Iterator[Rows]:
    """The same rows in blocks of at least so many, each with all rows of its users.

    The rows of a user follow one another.
    """
    held: list[Rows] = []
    for block in blocks:
        held.append(block)
        if sum(rows["user"].size for rows in held) < least:
            continue
        rows = _join(held)
        (changes,) = np.nonzero(rows["user"][1:] != rows["user"][:-1])
        if changes.size:
            end = int(changes[-1]) + 1
            yield {name: values[:end] for name, values in rows.items()}
            rows = {name: values[end:] for name, values in rows.items()}
        held = [rows]
    if sum(rows["user"].size for rows in held):
        yield _join(held)


def _join(blocks: Sequence[Rows]) -> Rows:
    return {name: np.concatenate([rows[name] for rows in blocks]) for name in blocks[0]}


def add_up_blocks(blocks: Iterable[Rows], measure: Measure[T]) -> T | None:
    """The sum of what ``measure`` says of each block; None if there are none."""
    total: T | None = None
    for rows in blocks:
        measured = measure(rows)
        total = measured if total is None else operator.add(total, measured)
    return total


def _add_up_on_spark(frame: Any, names: Sequence[str], measure: Measure[T]) -> T | None:
    """Rows are shuffled and sorted by user; each task sends one sum."""
    find_engine("spark").check_executors(frame.sparkSession)

    def add_up(batches: Iterator[Any]) -> Iterator[Any]:
        blocks = (_read_batch(batch, names) for batch in batches)
        total = add_up_blocks(cut_users(blocks, BLOCK_ROWS), measure)
        rows = {"total": [] if total is None else [pickle.dumps(total)]}
        table = nw.from_dict(rows, {"total": nw.Binary}, backend="pyarrow")
        yield from table.to_native().to_batches()

    by_user = frame.repartition("user").sortWithinPartitions("user")
    totals = by_user.mapInArrow(add_up, "total binary").collect()
    measured = [pickle.loads(row["total"]) for row in totals]
    return reduce(operator.add, measured) if measured else None


def _group_by_unit(
    rows: LazyFrame,
    row_terms: Sequence[str],
    key: str,
    terms: Mapping[str, FrameColumn],
    by_group: bool,
) -> LazyFrame:
    """One row for each value of ``key``: the sums of its rows, and the terms computed from them."""
    keys = [GROUP, key] if by_group else [key]
    sums = rows.group_by(*keys).agg(nw.col(name).sum() for name in row_terms)
    return _add_columns(sums, terms)


def _add_columns(frame: LazyFrame, columns: Mapping[str, FrameColumn]) -> LazyFrame:
    """Add columns; Spark Connect refuses to add none."""
    if not columns:
        return frame
    return frame.with_columns(added.expression.alias(name) for name, added in columns.items())


def _total(frame: LazyFrame, names: Sequence[str], by_group: bool) -> LazyFrame:
    sums = [nw.col(name).sum() for name in names]
    return frame.group_by(GROUP).agg(sums) if by_group else frame.select(sums)


def _pad(part: LazyFrame, names: Sequence[str], by_group: bool) -> LazyFrame:
    """The part with 0 for the sums of other parts, so that parts can be stacked and added."""
    existing = set(part.collect_schema().names())
    zeros = [nw.lit(0.0).alias(name) for name in names if name not in existing]
    padded = part.with_columns(zeros) if zeros else part
    numbers = [nw.col(name).cast(nw.Float64) for name in names]
    return padded.select(*([GROUP] if by_group else []), *numbers)


def _as_plain(group: Any) -> Any:
    """None for the missing value of any library."""
    try:
        return None if group is None or group != group else group
    except TypeError:  # pandas.NA is neither true nor false
        return None
