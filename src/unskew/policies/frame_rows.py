"""The rows of a log of impressions in the caller's data frame or SQL table, pivoted by request."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import narwhals.stable.v2 as nw

from unskew.data.frames import BACKENDS, LazyFrame, open_lazily
from unskew.data.impressions import ProbabilityKind, find_impression_columns
from unskew.errors import (
    BadImpressionError,
    BadPropensityError,
    ColumnError,
    DataError,
    EmptyLogError,
    UsageError,
)
from unskew.evaluation.backends.narwhals.table import translated_errors
from unskew.policies.frame_columns import name_column
from unskew.policies.plan import Regression, require_pair
from unskew.policies.targets import Policy, TargetRanking
from unskew.settings import OneOf

MAX_SLOTS = 52
"""Queries with more slots have too many columns."""
SMALLEST_PRODUCT = 1e-300


@dataclass(frozen=True, slots=True)
class RowTotals:
    """What the first query finds in the rows of a log."""

    n_rows: int
    n_slots: int
    has_binary_rewards: bool
    rewards: tuple[float, float]
    """The smallest and the largest."""
    may_be_complete: bool
    """Whether all requests can have all slots, by the sum of positions; without gaps, they do."""
    smallest: Mapping[str, float]
    """The smallest probability of each target policy; 0 for a ranking."""

    def can_be_zero(self, target: str) -> bool:
        """Whether a product of the weights of a request can be 0, or too small for a float64."""
        return self.smallest[target] ** self.n_slots < SMALLEST_PRODUCT


@dataclass(frozen=True, slots=True)
class ImpressionRows:
    """The rows of a log of impressions in the caller's frame, under our own names."""

    rows: LazyFrame
    targets: Mapping[str, Policy]
    regressions: Mapping[str, tuple[str, str]]
    values: tuple[str, ...]
    """The numbers of a row that are pivoted by position."""
    backend: str | None

    @classmethod
    def open(
        cls,
        frame: object,
        names: Mapping[str, str | None],
        probability: str | None,
        probability_is: ProbabilityKind | None,
        targets: Mapping[str, Policy],
        regression: Regression | None,
    ) -> ImpressionRows:
        """Select the columns; nothing is read yet."""
        opened, view = open_lazily(frame)
        roles = find_impression_columns(names, list(view), has_clicks=False)
        if "request" not in roles:
            raise ColumnError(
                "the frame has no column of requests.",
                parameter="request",
                remedy="Name it with `request=...`.",
            )
        columns = {role: name for role, name in roles.items() if role != "item"}
        if probability is not None:
            columns["probability"] = _require_column(probability, view, "probability")
        elif probability_is is not None:
            raise UsageError(
                "`probability_is` is given, but `probability` is not.",
                parameter="probability_is",
                value=probability_is,
                remedy="Name the column with `probability=...`.",
            )
        if probability_is is not None:
            OneOf(("step", "marginal", "slate", "product"))("probability_is", probability_is)
        for name, policy in targets.items():
            columns[f"target_{name}"] = _require_column(name_column(policy, name), view, "targets")
        regressions = _find_regressions(regression, targets)
        for name, (prediction, mean) in regressions.items():
            columns[f"prediction_{name}"] = _require_column(prediction, view, "regression")
            columns[f"mean_{name}"] = _require_column(mean, view, "regression")
        with translated_errors(opened):
            rows = _select(opened, view, columns)
            if "position" not in columns:
                rows = rows.with_columns(nw.lit(1).alias("position"))
        ids = {"request", "user", "position"}
        values = tuple(name for name in columns if name not in ids)
        implementation = opened.implementation.value
        backend = implementation if implementation in BACKENDS else None
        return cls(rows, targets, regressions, values, backend)

    def check(self) -> RowTotals:
        """The size of the log; an error if a value in it is invalid."""
        flags = {f"bad_{name}": is_bad for name, is_bad in self._list_problems()}
        flags["other_reward"] = (nw.col("reward") != 0) & (nw.col("reward") != 1)
        flags["positions"] = nw.col("position")
        target_columns = [f"target_{name}" for name in self.targets]
        with translated_errors(self.rows):
            counted = self.rows.select(
                "position",
                "reward",
                *target_columns,
                *(flag.cast(nw.Float64).alias(name) for name, flag in flags.items()),
            ).select(
                nw.col("position").max().alias("n_slots"),
                nw.col("reward").min().alias("least_reward"),
                nw.col("reward").max().alias("largest_reward"),
                *(nw.col(name).min() for name in target_columns),
                nw.len().cast(nw.Float64).alias("n_rows"),
                *(nw.col(name).sum() for name in flags),
            )
            totals = {name: values[0] for name, values in fetch(counted).items()}
        n_rows = int(totals["n_rows"])
        if n_rows == 0:
            raise EmptyLogError("the frame has no impressions.", remedy="Check its filter or file.")
        for name in flags:
            if name.startswith("bad_") and totals[name]:
                raise _row_error(name.removeprefix("bad_"), int(totals[name]), n_rows)
        n_slots = int(totals["n_slots"])
        if n_slots > MAX_SLOTS:
            raise BadImpressionError(
                f"positions reach {n_slots:,}, but a query can have {MAX_SLOTS} slots.",
                parameter="position",
                value=n_slots,
                remedy="Drop the lowest positions of all requests, or use evaluate_policies().",
            )
        may_be_complete = 2 * totals["positions"] == n_rows * (n_slots + 1)
        return RowTotals(
            n_rows,
            n_slots,
            not totals["other_reward"],
            (float(totals["least_reward"]), float(totals["largest_reward"])),
            bool(may_be_complete),
            {
                name: 0.0 if self.is_ranking(f"target_{name}") else totals[f"target_{name}"]
                for name in self.targets
            },
        )

    def _list_problems(self) -> Iterator[tuple[str, nw.Expr]]:
        """By column: the condition under which its value in a row is invalid."""
        for name in ("request", "user"):
            yield name, nw.col(name).is_null()
        position = nw.col("position")
        is_bad = position.is_null() | (position < 1)
        if self.rows.collect_schema()["position"].is_float():
            is_bad = is_bad | (position != position.round())
        yield "position", is_bad
        for name in self.values:
            value = nw.col(name)
            is_unusable = value.is_null() | ~value.is_finite()
            if name == "probability":
                yield name, is_unusable | (value <= 0) | (value > 1)
            elif self.is_ranking(name):
                yield name, ~_is_missing(name) & ((value < 1) | (value != value.round()))
            elif name.startswith("target_"):
                yield name, is_unusable | (value < 0) | (value > 1)
            else:
                yield name, is_unusable

    def is_ranking(self, column: str) -> bool:
        """Whether a column has the positions of a target ranking."""
        policy = self.targets.get(column.removeprefix("target_"))
        return column.startswith("target_") and isinstance(policy, TargetRanking)

    def fill_missing_targets(self) -> LazyFrame:
        """The rows, with position 0 for items that a target ranking does not show."""
        return self.rows.with_columns(
            nw.when(_is_missing(name)).then(nw.lit(0.0)).otherwise(nw.col(name)).alias(name)
            for name in self.values
            if self.is_ranking(name)
        )


def fetch(frame: LazyFrame) -> dict[str, Any]:
    """The columns of a small table as arrays, by name."""
    is_polars = frame.implementation.is_polars()
    rows = frame.collect(backend="polars", engine="streaming") if is_polars else frame.collect()
    return {name: rows.get_column(name).to_numpy() for name in rows.columns}


def _is_missing(name: str) -> nw.Expr:
    """Whether a number is null or NaN."""
    return nw.col(name).is_null() | nw.col(name).is_nan().fill_null(value=True)


def _select(frame: LazyFrame, view: Mapping[str, str], columns: Mapping[str, str]) -> LazyFrame:
    """The columns under our names, numbers as float64, but whole positions as they are."""
    schema = frame.collect_schema()
    selected = []
    for name, source in columns.items():
        expression = nw.col(view[source])
        if name not in ("request", "user"):
            dtype = schema[view[source]]
            if not (dtype.is_numeric() or dtype == nw.Boolean):
                raise ColumnError(
                    f"column {source!r} has the type {dtype}, not numbers.",
                    parameter=source,
                    remedy="Convert the column to numbers first.",
                )
            if not (name == "position" and dtype.is_integer()):
                expression = expression.cast(nw.Float64)
        selected.append(expression.alias(name))
    return frame.select(selected)


def _require_column(name: str, view: Mapping[str, str], parameter: str) -> str:
    if not isinstance(name, str) or name not in view:
        raise ColumnError(
            f"the frame has no column {name!r}; it has {', '.join(view)}.", parameter=parameter
        )
    return name


def _find_regressions(
    regression: Regression | None, targets: Mapping[str, Policy]
) -> dict[str, tuple[str, str]]:
    if regression is None:
        return {}
    if isinstance(regression, Mapping):
        return {name: require_pair(pair) for name, pair in regression.items()}
    return dict.fromkeys(targets, require_pair(regression, n_targets=len(targets)))


def _row_error(name: str, count: int, n_rows: int) -> DataError:
    of_rows = f"{count:,} of {n_rows:,} rows"
    if name == "probability" or name.startswith("target_"):
        what = "`probability`" if name == "probability" else f"policy {name[7:]!r}"
        return BadPropensityError(
            f"{what}: {of_rows} have a value that is missing or impossible.",
            parameter="probability" if name == "probability" else "targets",
            remedy="Probabilities lie in (0, 1], those of a target in [0, 1]; target positions are "
            "whole numbers from 1 on, or missing. If a probability was not logged, leave out all "
            "rows of the request.",
        )
    wrong = "not a whole number from 1 on" if name == "position" else "missing or not finite"
    return BadImpressionError(
        f"{of_rows} have a {name.partition('_')[0]} that is {wrong}.",
        parameter=name,
        remedy="Drop or mend those rows.",
    )
