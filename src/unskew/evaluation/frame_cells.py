"""Metrics asked about columns in place of arrays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from unskew.errors import UsageError
from unskew.evaluation.expressions import Column, Table, Totals, as_column, choose, named
from unskew.evaluation.frame_log import FrameLog, position, prediction
from unskew.evaluation.frame_sums import KEPT, Ledger
from unskew.metrics.metric import MetricInput, nothing_relevant, unclear_relevance
from unskew.metrics.rating import MAX_LEVELS
from unskew.ranking.positions import Positions
from unskew.types import Vector

NOT_BINARY = "n_not_binary"


@dataclass(frozen=True, slots=True, eq=False)
class ColumnPlaces:
    """Places from a column: no ties, or ties whose mean is taken over all rows that agree in ``keys``."""

    table: Table
    place: Column
    keys: Sequence[str] = ()

    def mean(self, worth: Callable[[Vector], Vector], *, last: int) -> Vector:
        """The mean of ``worth(place)`` over the places that a cell's tie fills; places beyond ``last`` are worth nothing."""
        cut = choose(self.place <= float(last), as_column(worth(self.place.as_vector)), 0.0)
        return (self.table.mean_over(cut, self.keys) if self.keys else cut).as_vector


@dataclass(frozen=True, slots=True, eq=False)
class Checks:
    """What metrics ask of the ratings: counted with everything else, and looked at then."""

    log: FrameLog
    ledger: Ledger
    least: list[float] = field(default_factory=list)
    """From where on there must be a rating."""

    def require_binary(self) -> None:
        """Have ratings counted that are neither 0 nor 1."""
        self.ledger.count(NOT_BINARY, self._is_kept & ~_is_binary())

    def require_relevant(self, least: float) -> None:
        """Have ratings counted that are at least so large."""
        if least not in self.least:
            self.least.append(least)
            self.ledger.count(
                _count_name(len(self.least) - 1), self._is_kept & (named("rating") >= least)
            )

    def distinct(self) -> Vector:
        """The distinct ratings, rising, which takes a query of its own."""
        found = sorted(map(float, self.log.kept().distinct("rating", most=MAX_LEVELS + 1)))
        if len(found) > MAX_LEVELS:
            raise UsageError(
                f"accuracy takes predictions to the nearest rating there is, and there are more than {MAX_LEVELS} of them. "
                "Judge such ratings by 'mae' or 'mse'."
            )
        return np.array(found or [0.0])

    def verify(self, totals: Totals) -> None:
        """Refuse what the counts do not bear out."""
        if totals.get(NOT_BINARY):
            raise unclear_relevance(self.log.kept().where(~_is_binary()).largest("rating"))
        for place, least in enumerate(self.least):
            if not totals[_count_name(place)]:
                raise nothing_relevant(self.log.kept().largest("rating"), least)

    @property
    def _is_kept(self) -> Column:
        kept: Column = named(KEPT) > 0.0
        return kept


def _is_binary() -> Column:
    binary: Column = (named("rating") == 0.0) | (named("rating") == 1.0)
    return binary


def _count_name(place: int) -> str:
    return f"n_relevant_{place}"


@dataclass(frozen=True, slots=True, eq=False)
class FrameMetricInput(MetricInput):
    """What a metric is given: columns where arrays would be."""

    checks: Checks = field(kw_only=True)

    @classmethod
    def of(cls, model: int, checks: Checks, *, n_items: int | None) -> FrameMetricInput:
        """The cells as one model sees them."""
        log = checks.log
        return cls(
            rating=named("rating").as_vector,
            item=np.empty(0, np.int32),
            scale=np.empty(0),
            prediction=named(prediction(model)).as_vector if log.columns.predictions else None,
            positions=_places(log, model),
            n_items=n_items,
            checks=checks,
        )

    def distinct(self) -> Vector:
        """The distinct ratings, rising."""
        return self.checks.distinct()

    def sum_by_item(self, value: Vector) -> Vector:
        """The sum of ``value`` over all cells of each cell's item."""
        return self.checks.log.table.sum_over(named(KEPT) * as_column(value), ["item"]).as_vector

    def require_binary(self) -> None:
        """Refuse ratings other than 0 and 1, once they are counted."""
        self.checks.require_binary()

    def require_relevant(self, least: float) -> None:
        """Refuse a log without a rating of at least ``least``, once they are counted."""
        self.checks.require_relevant(least)


def _places(log: FrameLog, model: int) -> ColumnPlaces | None:
    if log.columns.positions:
        return ColumnPlaces(log.table, named(position(model)))
    if log.is_complete:
        place = log.table.place(prediction(model), within="user")
        return ColumnPlaces(log.table, place, keys=("user", prediction(model)))
    return None


@dataclass(frozen=True, slots=True, eq=False)
class MetricProbe(MetricInput):
    """Two made-up cells, on which a metric shows what it reads and what it gives, before anything is read."""

    reads: set[str] = field(default_factory=set)

    @classmethod
    def new(cls) -> MetricProbe:
        """Ratings 0 and 1, predicted right and ranked."""
        value = np.array([0.0, 1.0])
        places = Positions(np.array([1, 0], np.int32), np.ones(2, np.int32))
        return cls(
            value, np.array([0, 1], np.int32), value, prediction=value, positions=places, n_items=2
        )

    def sum_by_item(self, value: Vector) -> Vector:
        """``value``, and a note that items matter."""
        self.reads.add("item")
        return value

    def require_relevant(self, least: float) -> None:
        """Two made-up cells prove nothing."""
