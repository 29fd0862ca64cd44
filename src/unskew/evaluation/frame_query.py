"""From what is asked about a frame to one query, and from its sums to evaluations."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from unskew.data.universe import Universe, UniverseLike, parse_universe
from unskew.errors import BadPredictionError, PropensityWarning, UniverseError, UsageError
from unskew.estimators.family import Estimator, without_universe
from unskew.estimators.health import WeightSummary
from unskew.estimators.transforms import WeightTransform
from unskew.estimators.wanted import AddsUp, SumSpec, Unit
from unskew.evaluation.arguments import describe_intervals
from unskew.evaluation.expressions import Column, Totals, as_column, choose, named
from unskew.evaluation.frame_cells import Checks, FrameMetricInput, MetricProbe
from unskew.evaluation.frame_log import (
    BAD_WEIGHTS,
    OBSERVED_ROWS,
    TOUCHED,
    WEIGHT_SQUARES,
    FrameLog,
    position,
    prediction,
)
from unskew.evaluation.frame_sums import KEPT, WEIGHT, Ledger, Reader, present
from unskew.evaluation.result import Evaluation
from unskew.metrics.metric import Delta, Metric

FrameUniverse: TypeAlias = UniverseLike | Mapping[Any, UniverseLike]
RANKED, INCOMPLETE = "n_ranked", "n_incomplete"


@dataclass(frozen=True, slots=True)
class QueryPlan:
    """Metrics and estimators, and which sums each pair of them is made of."""

    metrics: Sequence[Metric]
    estimators: Sequence[Estimator]
    cluster: Unit | None
    wanted: Mapping[tuple[str, str], SumSpec]
    """By (metric, estimator)."""
    ids: frozenset[str]
    """``"user"`` and ``"item"``, where anything depends on them."""

    @classmethod
    def of(
        cls, metrics: Sequence[Metric], estimators: Sequence[Estimator], cluster: Unit | None
    ) -> QueryPlan:
        """Look at what each metric gives for two made-up cells."""
        wanted: dict[tuple[str, str], SumSpec] = {}
        ids: set[str] = set()
        for metric in metrics:
            specimen = MetricProbe.new()
            shape = metric(specimen)
            ids |= specimen.reads
            wanted |= {
                (metric.name, each.name): _wanted(each, shape, cluster) for each in estimators
            }
        ids |= {each.unit for each in wanted.values() if each.unit is not None}
        return cls(metrics, estimators, cluster, wanted, frozenset(ids))

    @property
    def is_weighted(self) -> bool:
        """Whether any estimator weights."""
        return any(estimator.is_weighted for estimator in self.estimators)

    @property
    def ranks(self) -> bool:
        """Whether any metric reads positions."""
        return any(metric.ranks for metric in self.metrics)

    @property
    def rates(self) -> bool:
        """Whether any metric reads predictions."""
        return not all(metric.ranks for metric in self.metrics)


def _wanted(estimator: Estimator, shape: Delta, cluster: Unit | None) -> SumSpec:
    if not isinstance(estimator, AddsUp):
        raise UsageError(
            f"{estimator.name!r} is not made of sums over logged cells alone, which is all that a frame can give. "
            "Build a log with Ratings.from_frame and call evaluate()."
        )
    return estimator.wants(
        is_ratio=shape.base is not None, is_mean_of_users=shape.is_mean_of_users, cluster=cluster
    )


@dataclass(frozen=True, slots=True)
class Extent:
    """How much there is, in all or in one group."""

    n_observed: int
    universe: Universe | None


@dataclass(frozen=True, slots=True)
class Sizes:
    """The universe, or that of each group."""

    common: Universe | None
    groups: Mapping[Any, Universe] | None = None

    @classmethod
    def of(cls, log: FrameLog, given: FrameUniverse) -> Sizes:
        """As the caller says; ``"log"`` counts."""
        has_groups = log.columns.group is not None
        if isinstance(given, str) and given == "log":
            counts = log.kept().count_distinct(["user", "item"], by_group=has_groups)
            found = {
                group: Universe(max(1, round(count["user"])), max(1, round(count["item"])))
                for group, count in counts.items()
            }
            return cls(None, found) if has_groups else cls(found[None])
        if isinstance(given, Mapping):
            if not has_groups:
                raise UsageError(
                    "a universe for each group needs groups: say by=..., or pass universe=(n_users, n_items)."
                )
            return cls(None, {group: parse_universe(universe) for group, universe in given.items()})
        return cls(None if given is None else parse_universe(given))

    def of_group(self, group: Any) -> Universe | None:
        """That of a group; None where nobody said."""
        if self.groups is None:
            return self.common
        if group not in self.groups:
            raise UniverseError(f"universe={{...}} says nothing of the group {group!r}.")
        return self.groups[group]

    @property
    def is_known(self) -> bool:
        """Whether anybody said."""
        return self.common is not None or self.groups is not None

    @property
    def n_items(self) -> int | None:
        """The number of items to rank, which must be one for all groups."""
        if self.groups is None:
            return None if self.common is None else self.common.n_items
        sizes = {universe.n_items for universe in self.groups.values()}
        if len(sizes) > 1:
            raise UniverseError(
                f"ranking metrics need one number of items for all groups; there are {min(sizes):,} to {max(sizes):,}. "
                "Pass universe=(n_users, n_items), or evaluate the groups one by one."
            )
        return next(iter(sizes), None)


@dataclass(frozen=True, slots=True, eq=False)
class Query:
    """All that is to be added up, and how to read it."""

    log: FrameLog
    asked: QueryPlan
    ledger: Ledger
    checks: Checks
    readers: Mapping[tuple[str, str], Reader]
    transform: WeightTransform | None
    n_items: int | None

    @classmethod
    def of(
        cls, log: FrameLog, asked: QueryPlan, sizes: Sizes, transform: WeightTransform | None
    ) -> Query:
        """Put the formulas of metrics, weights and estimators together; nothing is read yet."""
        for (_, estimator), wanted in asked.wanted.items():
            if not (wanted.divides_by_base or sizes.is_known):
                raise without_universe(estimator)
        n_items = sizes.n_items if asked.ranks else None
        ledger = Ledger()
        checks = Checks(log, ledger)
        log.weigh(transform, ledger, is_weighted=asked.is_weighted)
        readers = _readers(asked, checks, n_items)
        _count_places(log, ledger, n_items)
        return cls(log, asked, ledger, checks, readers, transform, n_items)

    def run(self) -> dict[Any, Totals]:
        """The sums of each group; of all rows under None where there are no groups."""
        return self.log.table.add_up(
            self.ledger.rows, self.ledger.units, by_group=self.log.columns.group is not None
        )

    def whole(self, totals: Mapping[Any, Totals]) -> Totals:
        """The sums of all groups together."""
        names = [
            *self.ledger.rows,
            *(name for terms in self.ledger.units.values() for name in terms),
        ]
        return {name: sum(each[name] for each in totals.values()) for name in names}

    def verify(self, totals: Totals) -> None:
        """Refuse what the sums show to be wrong with the log as a whole."""
        self.checks.verify(totals)
        if totals.get(BAD_WEIGHTS):
            raise UsageError(
                f"the transform {self.transform!r} must give one finite weight of at least 0 for each cell."
            )
        if totals.get(INCOMPLETE):
            raise BadPredictionError(
                f"{round(totals[INCOMPLETE]):,} users do not have {self.n_items:,} rows with a prediction, one for each item, "
                "which is_complete=True promises. Add the missing rows, with a null rating, or pass positions."
            )
        for model, name in enumerate(self.log.columns.models):
            n_beyond = round(totals.get(f"n_beyond_{model}", 0.0))
            if n_beyond:
                raise BadPredictionError(
                    f"{n_beyond:,} positions of {name!r} are beyond the {self.n_items:,} items there are."
                )

    def result(
        self, totals: Totals, universe: Universe | None, *, level: float, backend: str | None
    ) -> Evaluation:
        """The evaluation of a group, from its sums."""
        extent = Extent(round(totals[KEPT]), universe)
        _require_room(extent, totals)
        estimates = {
            (metric, estimator.name): estimator.estimate(
                self.asked.wanted[metric, estimator.name],
                self.readers[metric, estimator.name].read(totals, extent),
                extent,
            )
            for metric, estimator in (
                (metric.name, estimator)
                for metric in self.asked.metrics
                for estimator in self.asked.estimators
            )
            if isinstance(estimator, AddsUp)
        }
        return Evaluation(
            models=self.log.columns.models,
            metrics={metric.name: metric.higher_is_better for metric in self.asked.metrics},
            estimators=tuple(estimator.name for estimator in self.asked.estimators),
            estimates=estimates,
            level=level,
            n_observed=extent.n_observed,
            intervals=describe_intervals(self.asked.cluster),
            universe=universe,
            health=self._health(totals, extent),
            n_touched=round(totals.get(TOUCHED, 0.0)),
            backend=backend,
            n_dropped=round(totals[OBSERVED_ROWS]) - extent.n_observed,
        )

    def _health(self, totals: Totals, extent: Extent) -> WeightSummary | None:
        """Warn, with numbers, where the weights say that the data can hardly answer."""
        mass = totals.get(WEIGHT, 0.0)
        if mass == 0:
            return None
        n_cells = (
            extent.universe.n_cells
            if extent.universe is not None and self.transform is None
            else None
        )
        health = WeightSummary(
            extent.n_observed, mass * mass / totals[WEIGHT_SQUARES], mass, None, n_cells
        )
        for complaint in health.warning_texts():
            warnings.warn(complaint, PropensityWarning, stacklevel=4)
        return health


def _readers(
    asked: QueryPlan, checks: Checks, n_items: int | None
) -> dict[tuple[str, str], Reader]:
    """Store the deltas of every metric and model, and have their sums added up."""
    judged = [
        FrameMetricInput.of(model, checks, n_items=n_items)
        for model in range(len(checks.log.columns.models))
    ]
    columns: dict[str, Column] = {}
    readers = {}
    for number, metric in enumerate(asked.metrics):
        found = [metric(cells) for cells in judged]
        deltas = {
            f"delta_{number}_{model}": as_column(delta.value) for model, delta in enumerate(found)
        }
        base = {} if found[0].base is None else {f"base_{number}": as_column(found[0].base)}
        columns |= deltas | base
        for estimator in asked.estimators:
            names = metric.name, estimator.name
            readers[names] = checks.ledger.want(
                asked.wanted[names], list(deltas), next(iter(base), None)
            )
    checks.log.table.store(columns)
    return readers


def _count_places(log: FrameLog, ledger: Ledger, n_items: int | None) -> None:
    """Have places counted that are beyond the last, and users without all items."""
    if n_items is None:
        return
    for model in range(len(log.columns.positions)):
        ledger.count(
            f"n_beyond_{model}", (named(KEPT) > 0.0) & (named(position(model)) > float(n_items))
        )
    if log.is_complete:
        ledger.count(RANKED, _is_ranked(log))
        ledger.add_unit("user", INCOMPLETE, choose(named(RANKED) != float(n_items), 1.0, 0.0))


def _is_ranked(log: FrameLog) -> Column:
    ranked: Column = ~named(f"no_{prediction(0)}")
    for model in range(1, len(log.columns.models)):
        ranked = ranked & ~named(f"no_{prediction(model)}")
    return ranked


def _require_room(extent: Extent, totals: Totals) -> None:
    """Refuse a universe that is smaller than the log."""
    if extent.universe is None:
        return
    n_users, n_items = (round(totals.get(present(unit), 0.0)) for unit in ("user", "item"))
    room = extent.universe
    if extent.n_observed > room.n_cells or n_users > room.n_users or n_items > room.n_items:
        counted = [
            f"{n:,} {what}"
            for n, what in ((extent.n_observed, "rows"), (n_users, "users"), (n_items, "items"))
            if n
        ]
        raise UniverseError(
            f"the universe has {room}, but the log alone has {', '.join(counted)}. "
            "Count every user and every item that could have been in the log."
        )
