"""What a metric reads: columns of a data frame in place of arrays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Self, cast

import numpy as np

from unskew.errors import UsageError
from unskew.evaluation.backends.narwhals.columns import (
    FrameColumn,
    as_column,
    choose,
    column,
    constant,
)
from unskew.evaluation.backends.narwhals.log import FrameLog, position_column, prediction_column
from unskew.evaluation.backends.narwhals.sums import KEPT, SumTerms
from unskew.evaluation.backends.narwhals.table import GROUP, FrameTable, Totals
from unskew.metrics.metric import (
    MAX_LEVELS,
    MetricInput,
    negative_gain_error,
    no_gain_error,
    nothing_relevant_error,
    unclear_relevance_error,
)
from unskew.ranking.positions import Positions
from unskew.types import IntVector, Vector

N_NOT_BINARY, N_NEGATIVE, N_POSITIVE = "n_not_binary", "n_negative", "n_positive"
"""Totals of the query: ratings other than 0 and 1, below 0, and above 0."""


@dataclass(frozen=True, slots=True, eq=False)
class MetricProbe(MetricInput):
    """Two invented cells. A metric that is called with them shows what it reads and returns."""

    reads: set[str] = field(default_factory=set)

    @classmethod
    def new(cls) -> Self:
        """Ratings 0 and 1, predicted and ranked correctly."""
        value = np.array([0.0, 1.0])
        return cls(
            value,
            np.array([0, 1], np.int32),
            value,
            prediction=value,
            positions=Positions(np.array([1, 0], np.int32), np.ones(2, np.int32)),
            n_items=2,
            user=np.zeros(2, np.int32),
            n_users=1,
        )

    def sum_by_item(self, value: Vector) -> Vector:
        self.reads.add("item")
        return value

    def require_relevant(self, threshold: float) -> None:
        """Accept any threshold: the ratings are invented."""


@dataclass(frozen=True, slots=True, eq=False)
class ColumnPositions:
    """Positions from a column. If scores tie, means are over all rows with the same ``keys``."""

    table: FrameTable
    position: FrameColumn
    keys: Sequence[str] = ()

    def mean(self, value_at_position: Callable[[Vector], Vector], *, last: int) -> Vector:
        """The mean value over tied positions; positions after ``last`` have the value 0."""
        value = as_column(value_at_position(self.position.as_vector))
        cut = choose(self.position <= float(last), value, 0.0)
        return (self.table.mean_over(cut, self.keys) if self.keys else cut).as_vector

    @property
    def tie_counts(self) -> tuple[IntVector, IntVector]:
        """How many items are above each row's item, and how many share its positions with it."""
        first, equal = self.position, constant(1.0)
        if self.keys:
            first = self.table.least_over(self.position, self.keys)
            equal = self.table.sum_over(equal, self.keys)
        return cast(IntVector, first - 1.0), cast(IntVector, equal)


@dataclass(frozen=True, slots=True, eq=False)
class RatingRequirements:
    """What metrics require of the ratings. It is counted by the query and checked afterwards."""

    log: FrameLog
    terms: SumTerms
    thresholds: list[float] = field(default_factory=list)
    """For each of these, a rating of at least this value is required."""

    def require_binary(self) -> None:
        self.terms.count(N_NOT_BINARY, (column(KEPT) > 0.0) & ~_is_binary())

    def require_relevant(self, threshold: float) -> None:
        if threshold not in self.thresholds:
            name = f"n_relevant_{len(self.thresholds)}"
            self.thresholds.append(threshold)
            self.terms.count(name, (column(KEPT) > 0.0) & (column("rating") >= threshold))

    def require_gains(self) -> None:
        self.terms.count(N_NEGATIVE, (column(KEPT) > 0.0) & (column("rating") < 0.0))
        self.terms.count(N_POSITIVE, (column(KEPT) > 0.0) & (column("rating") > 0.0))

    def check(self, totals: Totals) -> None:
        """Raise an error if the ratings do not meet a requirement."""
        if totals.get(N_NEGATIVE):
            negative = self.log.kept_rows().filter(column("rating") < 0.0)
            raise negative_gain_error(negative.largest("rating"))
        if totals.get(N_POSITIVE, 1.0) == 0.0:
            raise no_gain_error()
        if totals.get(N_NOT_BINARY):
            others = self.log.kept_rows().filter(~_is_binary())
            raise unclear_relevance_error(others.largest("rating"))
        for number, threshold in enumerate(self.thresholds):
            if not totals[f"n_relevant_{number}"]:
                raise nothing_relevant_error(self.log.kept_rows().largest("rating"), threshold)


def _is_binary() -> FrameColumn:
    is_binary: FrameColumn = (column("rating") == 0.0) | (column("rating") == 1.0)
    return is_binary


@dataclass(frozen=True, slots=True, eq=False)
class FrameMetricInput(MetricInput):
    """The cells as one model predicts them: columns in place of arrays."""

    requirements: RatingRequirements = field(kw_only=True)

    @classmethod
    def of(
        cls, model: int, requirements: RatingRequirements, *, n_items: int | None
    ) -> FrameMetricInput:
        """The input for the model with this number."""
        log = requirements.log
        prediction = None
        if log.roles.predictions:
            prediction = column(prediction_column(model)).as_vector
        return cls(
            rating=column("rating").as_vector,
            item=np.empty(0, np.int32),
            scale=np.empty(0),
            prediction=prediction,
            positions=_find_positions(log, model),
            n_items=n_items,
            requirements=requirements,
        )

    def distinct(self) -> Vector:
        """The distinct ratings in ascending order, which takes a query of its own."""
        rows = self.requirements.log.kept_rows()
        ratings = sorted(map(float, rows.distinct_values("rating", most=MAX_LEVELS + 1)))
        if len(ratings) > MAX_LEVELS:
            raise UsageError(
                "accuracy rounds predictions to the nearest rating of the scale, but there are "
                f"more than {MAX_LEVELS} different ratings.",
                parameter="metrics",
                remedy="Use 'mae' or 'mse' for such ratings.",
            )
        return np.array(ratings or [0.0])

    def sum_by_item(self, value: Vector) -> Vector:
        log = self.requirements.log
        keys = [GROUP, "item"] if log.has_groups else ["item"]
        return log.table.sum_over(column(KEPT) * as_column(value), keys).as_vector

    def require_users(self) -> IntVector:
        return cast(IntVector, column("user"))

    def count_candidates(self) -> IntVector:
        """Nothing: a metric that is no sum over cells is measured elsewhere, on arrays."""
        return np.empty(0, np.int32)

    def require_distinct_positions(self, gain: Vector) -> None:
        """Not checked here: equal positions are seen when the sums are read."""

    def require_binary(self) -> None:
        self.requirements.require_binary()

    def require_relevant(self, threshold: float) -> None:
        self.requirements.require_relevant(threshold)

    def require_gains(self) -> None:
        self.requirements.require_gains()


def _find_positions(log: FrameLog, model: int) -> ColumnPositions | None:
    if log.roles.positions:
        return ColumnPositions(log.table, column(position_column(model)))
    if log.is_complete:
        score = prediction_column(model)
        return ColumnPositions(
            log.table, log.table.rank(score, within="user"), keys=("user", score)
        )
    return None
