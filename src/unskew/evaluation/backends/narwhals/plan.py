"""From metrics and estimators to one query, and from its totals to evaluations."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from unskew.data.estimation import Unit
from unskew.data.universe import Universe, UniverseLike, parse_universe
from unskew.data.weights import WeightTransform
from unskew.errors import BadPredictionError, UniverseError, UsageError
from unskew.estimators.point import Estimator, universe_error
from unskew.estimators.sums import Scope, SumSpec
from unskew.estimators.weight_summary import WeightSummary
from unskew.evaluation.arguments import describe_intervals
from unskew.evaluation.backends.narwhals.columns import FrameColumn, as_column, choose, column
from unskew.evaluation.backends.narwhals.log import (
    N_BAD_WEIGHTS,
    N_OBSERVED,
    N_TRANSFORMED,
    SQUARED_WEIGHT,
    FrameLog,
    position_column,
    prediction_column,
)
from unskew.evaluation.backends.narwhals.metric_input import (
    FrameMetricInput,
    MetricProbe,
    RatingRequirements,
)
from unskew.evaluation.backends.narwhals.sums import (
    KEPT,
    WEIGHT,
    SumTerms,
    TotalsReader,
    n_units,
)
from unskew.evaluation.backends.narwhals.table import Totals
from unskew.evaluation.result import Evaluation
from unskew.metrics.metric import Delta, Metric, metric_bounds

FrameUniverse: TypeAlias = UniverseLike | Mapping[Any, UniverseLike]
"""One universe, or one for each group."""
N_RANKED, N_INCOMPLETE = "n_ranked", "n_incomplete"
"""Totals of the query: rows with a prediction of every model; users without a row for every
item."""


@dataclass(frozen=True, slots=True)
class QueryPlan:
    """Metrics and estimators, and the sums that each pair of them needs."""

    metrics: Sequence[Metric]
    estimators: Sequence[Estimator]
    cluster: Unit | None
    specs: Mapping[tuple[str, str], SumSpec]
    """By (metric, estimator)."""
    ids: frozenset[str]
    """``"user"`` and ``"item"``, if something depends on them."""

    @classmethod
    def of(
        cls, metrics: Sequence[Metric], estimators: Sequence[Estimator], cluster: Unit | None
    ) -> QueryPlan:
        """Find out what each metric reads and returns, before the log is read."""
        specs: dict[tuple[str, str], SumSpec] = {}
        ids: set[str] = set()
        for metric in metrics:
            probe = MetricProbe.new()
            delta = metric(probe)
            ids |= probe.reads
            for estimator in estimators:
                specs[metric.name, estimator.name] = _find_spec(estimator, delta, cluster)
        ids |= {spec.unit for spec in specs.values() if spec.unit is not None}
        return cls(metrics, estimators, cluster, specs, frozenset(ids))

    @property
    def is_weighted(self) -> bool:
        """Whether an estimator needs propensities."""
        return any(estimator.is_weighted for estimator in self.estimators)

    @property
    def reads_positions(self) -> bool:
        """Whether a metric reads positions."""
        return any(metric.ranks for metric in self.metrics)

    @property
    def reads_predictions(self) -> bool:
        """Whether a metric reads predictions."""
        return not all(metric.ranks for metric in self.metrics)


def _find_spec(estimator: Estimator, delta: Delta, cluster: Unit | None) -> SumSpec:
    if estimator.imputes:
        raise UsageError(
            f"{estimator.name!r} needs imputed ratings of all cells, but a data frame has only "
            "the logged cells.",
            parameter="estimators",
            value=estimator.name,
            remedy="Build a log with Ratings.from_frame and call evaluate().",
        )
    return estimator.sums_needed(
        is_ratio=delta.base is not None, is_mean_of_users=delta.is_mean_of_users, cluster=cluster
    )


@dataclass(frozen=True, slots=True)
class GroupUniverses:
    """One universe for all groups, or one for each; both None if unknown."""

    common: Universe | None
    by_group: Mapping[Any, Universe] | None = None

    @classmethod
    def read(cls, log: FrameLog, universe: FrameUniverse) -> GroupUniverses:
        """The argument of the caller; ``"log"`` counts users and items with one more query."""
        if isinstance(universe, str) and universe == "log":
            counts = log.kept_rows().count_distinct(["user", "item"], by_group=log.has_groups)
            sizes = {
                group: Universe(max(1, round(count["user"])), max(1, round(count["item"])))
                for group, count in counts.items()
            }
            return cls(None, sizes) if log.has_groups else cls(sizes[None])
        if not isinstance(universe, Mapping):
            return cls(None if universe is None else parse_universe(universe))
        if not log.has_groups:
            raise UsageError(
                "`universe` has a size for each group, but there are no groups.",
                parameter="universe",
                remedy="Pass `by`, or `universe=(n_users, n_items)`.",
            )
        return cls(None, {group: parse_universe(size) for group, size in universe.items()})

    def of_group(self, group: Any) -> Universe | None:
        """The universe of one group; None if unknown."""
        if self.by_group is None:
            return self.common
        if group not in self.by_group:
            raise UniverseError(
                f"`universe` has no entry for the group {group!r}.",
                parameter="universe",
                value=group,
                remedy="Add one for each value of the column.",
            )
        return self.by_group[group]

    @property
    def is_known(self) -> bool:
        return self.common is not None or self.by_group is not None

    @property
    def n_items(self) -> int | None:
        """The number of items to rank, which must be the same for all groups."""
        if self.by_group is None:
            return None if self.common is None else self.common.n_items
        sizes = {universe.n_items for universe in self.by_group.values()}
        if len(sizes) > 1:
            raise UniverseError(
                "ranking metrics need the same number of items for all groups; there are "
                f"{min(sizes):,} to {max(sizes):,}.",
                parameter="universe",
                remedy="Pass `universe=(n_users, n_items)`, or evaluate each group separately.",
            )
        return next(iter(sizes), None)


@dataclass(frozen=True, slots=True, eq=False)
class FrameQuery:
    """The terms of the query, and how to read its totals."""

    log: FrameLog
    plan: QueryPlan
    terms: SumTerms
    requirements: RatingRequirements
    readers: Mapping[tuple[str, str], TotalsReader]
    """By (metric, estimator)."""
    weight_transform: WeightTransform | None
    n_items: int | None

    @classmethod
    def of(
        cls,
        log: FrameLog,
        plan: QueryPlan,
        universes: GroupUniverses,
        weight_transform: WeightTransform | None,
    ) -> FrameQuery:
        """Collect the terms that metrics, weights and estimators need. Nothing is read yet."""
        for (_, estimator), spec in plan.specs.items():
            if not (spec.divides_by_base or universes.is_known):
                raise universe_error(estimator)
        n_items = universes.n_items if plan.reads_positions else None
        terms = SumTerms()
        requirements = RatingRequirements(log, terms)
        log.store_weights(weight_transform, terms, is_weighted=plan.is_weighted)
        readers = _store_deltas(plan, requirements, n_items)
        _count_bad_positions(log, terms, n_items)
        return cls(log, plan, terms, requirements, readers, weight_transform, n_items)

    def run(self) -> dict[Any, Totals]:
        """The totals of each group; without groups, those of all rows under None."""
        return self.log.table.add_up(
            self.terms.rows, self.terms.units, by_group=self.log.has_groups
        )

    def combine(self, totals: Mapping[Any, Totals]) -> Totals:
        """The totals of all groups together."""
        return {name: sum(group[name] for group in totals.values()) for name in self.terms.names}

    def check(self, totals: Totals) -> None:
        """Raise an error if the totals of all rows show that ratings or positions are wrong."""
        self.requirements.check(totals)
        if totals.get(N_BAD_WEIGHTS):
            raise UsageError(
                f"the weight transform {self.weight_transform!r} must return one finite weight of "
                "at least 0 for each cell.",
                parameter="weight_transform",
                value=self.weight_transform,
            )
        n_incomplete = round(totals.get(N_INCOMPLETE, 0.0))
        if n_incomplete:
            raise BadPredictionError(
                f"{n_incomplete:,} users do not have {self.n_items:,} rows with a prediction, one "
                "for each item.",
                parameter="is_complete",
                remedy="Add the missing rows with a null rating, or pass `position` instead of "
                "`is_complete=True`.",
            )
        for model, name in enumerate(self.log.roles.models):
            n_beyond = round(totals.get(f"n_beyond_{model}", 0.0))
            if n_beyond:
                raise BadPredictionError(
                    f"{n_beyond:,} positions of {name!r} are beyond the {self.n_items:,} items of "
                    "the universe.",
                    parameter="position",
                )

    def evaluate(
        self, totals: Totals, universe: Universe | None, *, level: float, backend: str | None
    ) -> Evaluation:
        """The evaluation of one group, from its totals."""
        plan, scope = self.plan, Scope(round(totals[KEPT]), universe)
        _require_room(scope, totals)
        estimates = {
            (metric.name, estimator.name): replace(
                estimator.from_sums(
                    plan.specs[metric.name, estimator.name],
                    self.readers[metric.name, estimator.name].read(totals, scope),
                    scope,
                ),
                bounds=metric_bounds(metric),
            )
            for metric in plan.metrics
            for estimator in plan.estimators
        }
        return Evaluation(
            models=self.log.roles.models,
            metrics={metric.name: metric.higher_is_better for metric in plan.metrics},
            estimators=tuple(estimator.name for estimator in plan.estimators),
            estimates=estimates,
            level=level,
            n_observed=scope.n_observed,
            intervals=describe_intervals(plan.cluster),
            universe=universe,
            weight_summary=self._summarize_weights(totals, scope),
            n_transformed=round(totals.get(N_TRANSFORMED, 0.0)),
            backend=backend,
            n_dropped=round(totals[N_OBSERVED]) - scope.n_observed,
        )

    def _summarize_weights(self, totals: Totals, scope: Scope) -> WeightSummary | None:
        """The summary of the weights, with warnings if the data can hardly answer."""
        mass = totals.get(WEIGHT, 0.0)
        if mass == 0:
            return None
        n_cells = None
        if scope.universe is not None and self.weight_transform is None:
            n_cells = scope.universe.n_cells
        effective_sample_size = mass * mass / totals[SQUARED_WEIGHT]
        summary = WeightSummary(scope.n_observed, effective_sample_size, mass, None, n_cells)
        for warning in summary.warnings():
            warnings.warn(warning, stacklevel=4)
        return summary


def _store_deltas(
    plan: QueryPlan, requirements: RatingRequirements, n_items: int | None
) -> dict[tuple[str, str], TotalsReader]:
    """Store the deltas of every metric and model as columns, and request their sums."""
    log = requirements.log
    inputs = [
        FrameMetricInput.of(model, requirements, n_items=n_items)
        for model in range(len(log.roles.models))
    ]
    columns: dict[str, FrameColumn] = {}
    readers = {}
    for number, metric in enumerate(plan.metrics):
        deltas = [metric(model_input) for model_input in inputs]
        names = [f"delta_{number}_{model}" for model in range(len(deltas))]
        columns |= {name: as_column(delta.value) for name, delta in zip(names, deltas, strict=True)}
        base_name = None
        if deltas[0].base is not None:
            base_name = f"base_{number}"
            columns[base_name] = as_column(deltas[0].base)
        slots = {
            f"slots_{number}_{model}": as_column(delta.slots)
            for model, delta in enumerate(deltas)
            if delta.slots is not None
        }
        columns |= slots
        for estimator in plan.estimators:
            key = metric.name, estimator.name
            readers[key] = requirements.terms.request(plan.specs[key], names, base_name, [*slots])
    log.table.store(columns)
    return readers


def _count_bad_positions(log: FrameLog, terms: SumTerms, n_items: int | None) -> None:
    """Count positions beyond the last item, and users without a row for every item."""
    if n_items is None:
        return
    for model in range(len(log.roles.positions)):
        is_beyond = column(position_column(model)) > float(n_items)
        terms.count(f"n_beyond_{model}", (column(KEPT) > 0.0) & is_beyond)
    if log.is_complete:
        is_ranked = ~column(f"no_{prediction_column(0)}")
        for model in range(1, len(log.roles.models)):
            is_ranked = is_ranked & ~column(f"no_{prediction_column(model)}")
        terms.count(N_RANKED, is_ranked)
        is_incomplete = choose(column(N_RANKED) != float(n_items), 1.0, 0.0)
        terms.add_unit_term("user", N_INCOMPLETE, is_incomplete)


def _require_room(scope: Scope, totals: Totals) -> None:
    """Raise an error if the universe is smaller than the log."""
    universe = scope.universe
    if universe is None:
        return
    n_users, n_items = (round(totals.get(n_units(unit), 0.0)) for unit in ("user", "item"))
    is_small = scope.n_observed > universe.n_cells
    if is_small or n_users > universe.n_users or n_items > universe.n_items:
        counts = {"rows": scope.n_observed, "users": n_users, "items": n_items}
        listed = ", ".join(f"{count:,} {noun}" for noun, count in counts.items() if count)
        raise UniverseError(
            f"the universe has {universe}, but the log alone has {listed}.",
            parameter="universe",
            remedy="Count every user and every item that could have been in the log.",
        )
