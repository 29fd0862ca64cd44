"""From metrics and estimators to one query, and from its totals to evaluations."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np

from unskew.data.estimation import Estimation, FrameStrata, TakenAsKnown, Unit
from unskew.data.universe import Universe, UniverseLike, parse_universe
from unskew.data.weights import WeightTransform
from unskew.errors import BadPredictionError, UniverseError, UsageError
from unskew.estimators.estimate import Estimate
from unskew.estimators.frame_variance import SecondMoments
from unskew.estimators.observed import Cluster, Scope, SumSpec
from unskew.estimators.point import Estimator, universe_error
from unskew.estimators.sums import find_influence
from unskew.estimators.weight_checks import WeightSummary
from unskew.evaluation.backends.narwhals.columns import FrameColumn, as_column, choose, column
from unskew.evaluation.backends.narwhals.log import (
    N_BAD_WEIGHTS,
    N_OBSERVED,
    N_TRANSFORMED,
    SQUARED_WEIGHT,
    FrameLog,
    has_value,
    position_column,
    prediction_column,
)
from unskew.evaluation.backends.narwhals.metric_input import (
    FrameMetricInput,
    MetricProbe,
    RatingRequirements,
)
from unskew.evaluation.backends.narwhals.strata import LevelTotals, ListedStrata, UnitStrata
from unskew.evaluation.backends.narwhals.sums import (
    KEPT,
    WEIGHT,
    SumTerms,
    TotalsReader,
    count_units,
    n_units,
)
from unskew.evaluation.backends.narwhals.table import FrameTable, Totals
from unskew.evaluation.backends.narwhals.whole_lists import (
    ListMeasure,
    ListTotals,
    measure_lists,
    store_lists,
)
from unskew.evaluation.cells import ClusterChoice, describe_intervals, explain_plug_ins
from unskew.evaluation.result import Evaluation
from unskew.metrics.metric import (
    Delta,
    LoggedListError,
    Metric,
    compares_logged_cells,
    is_plug_in,
    max_relative_error,
    metric_bounds,
)

FrameUniverse: TypeAlias = UniverseLike | Mapping[Any, UniverseLike]
"""One universe, or one for each group."""
N_RANKED, N_INCOMPLETE = "n_ranked", "n_incomplete"
"""Totals of the query: rows with a prediction of every model; users without a row for every
item."""
NO_SKEWNESS = "intervals are Student's t, not corrected for skewness"
"""Third moments would make the query 15 % slower, and fourth moments 50 %."""


@dataclass(frozen=True, slots=True)
class QueryPlan:
    """Metrics and estimators, and the sums that each pair of them needs."""

    metrics: Sequence[Metric]
    estimators: Sequence[Estimator]
    cluster: Cluster
    specs: Mapping[tuple[str, str], SumSpec]
    """By (metric, estimator)."""
    ids: frozenset[str]
    """``"user"`` and ``"item"``, if something depends on them."""
    roots: frozenset[str] = frozenset()
    """Metrics that are the square root of a mean."""
    lists: frozenset[str] = frozenset()
    """Metrics of whole lists, which are no sums over cells."""

    @classmethod
    def of(
        cls, metrics: Sequence[Metric], estimators: Sequence[Estimator], cluster: Cluster
    ) -> QueryPlan:
        """Find out what each metric reads and returns, before the log is read."""
        specs: dict[tuple[str, str], SumSpec] = {}
        ids: set[str] = set()
        roots: set[str] = set()
        lists: set[str] = set()
        for metric in metrics:
            if compares_logged_cells(metric):
                raise LoggedListError(metric.name)
            probe = MetricProbe.new()
            try:
                delta = metric(probe)
            except LoggedListError:
                raise LoggedListError(metric.name) from None
            roots |= {metric.name} if delta.is_root else set()
            lists |= {metric.name} if delta.function is not None else set()
            ids |= probe.reads
            for estimator in estimators:
                specs[metric.name, estimator.name] = _find_spec(estimator, delta, cluster)
        ids |= {spec.unit for spec in specs.values() if spec.unit is not None}
        ids |= set(_list_units(cluster))
        return cls(
            metrics, estimators, cluster, specs, frozenset(ids), frozenset(roots), frozenset(lists)
        )

    @property
    def list_metrics(self) -> dict[str, Metric]:
        """The metrics of whole lists, by name."""
        return {metric.name: metric for metric in self.metrics if metric.name in self.lists}

    @property
    def units(self) -> tuple[Unit, ...]:
        """The kinds of clusters: users, items or both."""
        return _list_units(self.cluster)

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


def _list_units(cluster: Cluster) -> tuple[Unit, ...]:
    if cluster is None:
        return ()
    return ("user", "item") if cluster == "both" else (cluster,)


def _find_spec(estimator: Estimator, delta: Delta, cluster: Cluster) -> SumSpec:
    if estimator.imputes:
        raise UsageError(
            f"{estimator.name!r} needs imputed ratings of all cells, but a data frame has only "
            "the logged cells.",
            parameter="estimators",
            value=estimator.name,
            remedy="Build a log with Ratings.from_frame and call evaluate().",
        )
    return estimator.sums_needed(
        is_ratio=delta.base is not None,
        is_mean_of_users=delta.is_mean_of_users,
        cluster=None if cluster == "both" else cluster,
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
                remedy="Add (n_users, n_items) for each value of the column `by`.",
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
class GroupTotals:
    """The totals of one group, and those of its listed strata."""

    all_rows: Totals
    levels: LevelTotals
    is_of_fit: bool = False
    """Whether the frame, with all groups, has as many ratings as the log of the fit."""
    lists: ListTotals | None = None
    """Sums of metrics of whole lists; None without such metrics."""


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
    strata: ListedStrata | UnitStrata | None
    """How the propensities were estimated; None if they are known."""

    @classmethod
    def of(
        cls,
        log: FrameLog,
        plan: QueryPlan,
        universes: GroupUniverses,
        weight_transform: WeightTransform | None,
        strata: FrameStrata | None = None,
    ) -> FrameQuery:
        """Collect the terms that metrics, weights and estimators need. Nothing is read yet."""
        for (_, estimator), spec in plan.specs.items():
            if not (spec.divides_by_base or universes.is_known):
                raise universe_error(estimator)
        n_items = universes.n_items if plan.reads_positions else None
        terms = SumTerms()
        for unit in plan.units:
            terms.add_unit(unit)
        requirements = RatingRequirements(log, terms)
        log.store_weights(weight_transform, terms, is_weighted=plan.is_weighted)
        readers = _store_deltas(plan, requirements, n_items)
        if plan.lists:
            terms.add_unit("user")
        _count_bad_positions(log, terms, n_items)
        if plan.cluster == "both":
            for reader in readers.values():
                if not reader.spec.of_ratios:
                    terms.request_two_way(reader)
        query_strata = None
        if strata is not None and plan.is_weighted:
            query_strata = _open_strata(log, plan, strata, weight_transform)
        query = cls(
            log, plan, terms, requirements, readers, weight_transform, n_items, query_strata
        )
        query._request_strata()
        return query

    def _request_strata(self) -> None:
        for reader in self._weighted_readers():
            if isinstance(self.strata, ListedStrata):
                self.strata.request(reader, self.log.table)
            elif self.strata is not None:
                self.strata.request(self.terms, reader, self.log.table)

    def _weighted_readers(self) -> list[TotalsReader]:
        """The readers of weighted estimates, one for each set of columns."""
        readers = [reader for reader in self.readers.values() if reader.spec.is_weighted]
        distinct = {
            (reader.columns, reader.spec.of_ratios, reader.spec.unit): reader for reader in readers
        }
        return list(distinct.values())

    def run(self) -> dict[Any, GroupTotals]:
        """The totals of each group; without groups, those of all rows under None."""
        totals = self._fetch()
        if self.strata is None:
            return totals
        n_rows = sum(group.all_rows[N_OBSERVED] for group in totals.values())
        is_of_fit = round(n_rows) == self.strata.strata.n_observed
        return {name: replace(group, is_of_fit=is_of_fit) for name, group in totals.items()}

    def _fetch(self) -> dict[Any, GroupTotals]:
        table, by_group = self.log.table, self.log.has_groups
        if not isinstance(self.strata, ListedStrata):
            totals = table.add_up(self.terms.rows, self.terms.units, by_group=by_group)
            return {group: GroupTotals(all_rows, {}) for group, all_rows in totals.items()}
        if not self.terms.units:
            levels = self.strata.run_with(table, self.terms.rows, self.readers.values())
            return {
                group: GroupTotals(_add_totals(of_group.values(), self.terms.names), of_group)
                for group, of_group in levels.items()
            }
        levels = self.strata.run(table)
        if not by_group:
            self._centre(table, self.terms, levels[None])
        totals = table.add_up(self.terms.rows, self.terms.units, by_group=by_group)
        if by_group:
            totals = {
                group: {**all_rows, **self._centre_group(group, levels[group])}
                for group, all_rows in totals.items()
            }
        return {group: GroupTotals(all_rows, levels[group]) for group, all_rows in totals.items()}

    def _centre(self, table: FrameTable, terms: SumTerms, levels: LevelTotals) -> bool:
        """Request sums by cluster of centred contributions, unless no estimate depends on them."""
        assert isinstance(self.strata, ListedStrata)
        if not self.plan.units or self.strata.differs(levels):
            return False
        for reader in self._weighted_readers():
            if not reader.spec.of_ratios:
                self.strata.store_centred(table, terms, levels, reader)
        return True

    def _centre_group(self, group: Any, levels: LevelTotals) -> Totals:
        """The same sums of one group, by a query of its own if it is the log of the fit."""
        table, terms = self.log.table.filter_group(group), SumTerms()
        if not self._centre(table, terms, levels):
            return {}
        return table.add_up(terms.rows, terms.units, by_group=False)[None]

    def measure_lists(
        self, totals: Mapping[Any, GroupTotals], universes: GroupUniverses
    ) -> dict[Any, GroupTotals]:
        """The totals with those of metrics of whole lists, by one query for each group."""
        if not self.plan.lists:
            return dict(totals)
        measured = {}
        for group, of_group in totals.items():
            table = self.log.table.filter_group(group) if self.log.has_groups else self.log.table
            universe = universes.of_group(group)
            assert universe is not None  # ranking metrics need it
            lists = measure_lists(table, self._list_measure, universe.n_users)
            measured[group] = replace(of_group, lists=lists)
        return measured

    @property
    def _list_measure(self) -> ListMeasure:
        """Measures the metrics of whole lists, with the gradients that the strata need."""
        assert self.n_items is not None
        strata = self.strata
        has_gradient = isinstance(strata, ListedStrata) and strata.strata.sample is not None
        return ListMeasure(
            self.plan.list_metrics,
            frozenset(
                (metric, self.plan.specs[metric, estimator.name].is_weighted)
                for metric in self.plan.lists
                for estimator in self.plan.estimators
            ),
            len(self.log.roles.models),
            self.n_items,
            strata.strata.levels if strata is not None and has_gradient else None,
        )

    def combine(self, totals: Mapping[Any, GroupTotals]) -> Totals:
        """The totals of all groups together."""
        return _add_totals((group.all_rows for group in totals.values()), self.terms.names)

    def check(self, totals: Totals) -> None:
        """Raise an error if the totals of all rows show bad ratings, weights or positions."""
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
                f"{n_incomplete:,} users have more or fewer than {self.n_items:,} rows with a "
                "prediction, one for each item.",
                parameter="is_complete",
                remedy="Add the missing rows with a null rating and a prediction, drop repeated "
                "rows, or pass `position` instead of `is_complete=True`.",
            )
        for model, name in enumerate(self.log.roles.models):
            n_beyond = round(totals.get(f"n_beyond_{model}", 0.0))
            if n_beyond:
                raise BadPredictionError(
                    f"{n_beyond:,} positions of {name!r} are beyond the {self.n_items:,} items of "
                    "the universe.",
                    parameter="position",
                    remedy="Number the items of each user from 1, and count all items in "
                    "`universe`.",
                )

    def evaluate(
        self,
        totals: GroupTotals,
        universe: Universe | None,
        *,
        level: float,
        backend: str | None,
        clusters: ClusterChoice,
        taken_as_known: TakenAsKnown | None = None,
    ) -> Evaluation:
        """The evaluation of one group, from its totals."""
        plan, all_rows = self.plan, totals.all_rows
        scope = Scope(round(all_rows[KEPT]), universe)
        _require_room(scope, all_rows)
        estimates = {
            (metric.name, estimator.name): self._estimate(metric.name, estimator, totals, scope)
            for metric in plan.metrics
            for estimator in plan.estimators
        }
        for name in estimates:
            if name[0] in plan.roots:
                estimates[name] = estimates[name].take_root()
        return Evaluation(
            models=self.log.roles.models,
            metrics={metric.name: metric.higher_is_better for metric in plan.metrics},
            estimators=tuple(estimator.name for estimator in plan.estimators),
            estimates=estimates,
            level=level,
            n_observed=scope.n_observed,
            intervals=describe_intervals(plan.cluster),
            clusters=clusters,
            universe=universe,
            weight_summary=self._summarize_weights(all_rows, scope),
            n_transformed=round(all_rows.get(N_TRANSFORMED, 0.0)),
            backend=backend,
            estimation=taken_as_known if self.strata is None else self._relate(totals),
            n_dropped=round(all_rows[N_OBSERVED]) - scope.n_observed,
            notes=(*self._describe_plug_ins(totals), NO_SKEWNESS),
        )

    def _describe_plug_ins(self, totals: GroupTotals) -> Iterator[str]:
        """Which metrics of whole lists are biased because users have few relevant rows."""
        sums = {} if totals.lists is None else totals.lists.sums
        biases = {name: each.bias for (name, _), each in sums.items() if each.bias is not None}
        metrics = self.plan.list_metrics
        names = [name for name in biases if is_plug_in(metrics[name])]
        bias = biases[names[0]] if names else None
        if bias is not None and bias.weighted_odds > 0:
            yield explain_plug_ins(names, bias.n_cells, bias.n_users)

    def _relate(self, totals: GroupTotals) -> Estimation:
        """How the propensities were estimated, and from which part of the log, if any."""
        assert self.strata is not None
        estimation = self.strata.strata.estimation
        if isinstance(self.strata, ListedStrata):
            is_same = not self.strata.differs(totals.levels)
        else:
            is_same = not self.strata.differs(totals.all_rows)
        if is_same:
            return estimation
        return replace(estimation, relation="part" if totals.is_of_fit else "other")

    @property
    def bounds(self) -> dict[str, tuple[float, float] | None]:
        """The range of each metric; None if it declares none."""
        return {metric.name: metric_bounds(metric) for metric in self.plan.metrics}

    def _estimate(
        self, metric: str, estimator: Estimator, totals: GroupTotals, scope: Scope
    ) -> Estimate:
        """One estimate, with clusters and the error of the propensities."""
        if metric in self.plan.lists:
            return self._estimate_list(metric, estimator, totals, scope)
        spec, reader = self.plan.specs[metric, estimator.name], self.readers[metric, estimator.name]
        all_rows = totals.all_rows
        sums = reader.read(all_rows, scope)
        estimate = replace(estimator.from_sums(spec, sums, scope), bounds=self.bounds[metric])
        influence = find_influence(spec, sums.weighted_bases, estimate.value, scope.universe)
        n_clusters = self._count_clusters(estimate, all_rows, scope)
        second_moments = SecondMoments(sums.moment)
        if spec.unit is not None and not spec.of_ratios:
            units = replace(sums, n_clusters=n_clusters[spec.unit])
            second_moments = SecondMoments(np.zeros_like(sums.moment), (units,))
        elif self.plan.cluster == "both" and not spec.of_ratios:
            second_moments = reader.read_two_way(all_rows, n_clusters)
            estimate = replace(
                estimate,
                covariance=second_moments.covariance(influence),
                degrees=max(min(n_clusters.values()) - 1.0, 1.0),
            )
        elif estimate.n_clusters is None:
            estimate = replace(estimate, degrees=reader.degrees(all_rows))
        if self.strata is None or not spec.is_weighted:
            return estimate
        sums_of_reader = all_rows, reader, second_moments, n_clusters
        if isinstance(self.strata, ListedStrata):
            strata = self.strata.read(totals.levels, *sums_of_reader, is_of_fit=totals.is_of_fit)
        else:
            strata = self.strata.read(*sums_of_reader, is_of_fit=totals.is_of_fit)
        return strata.correct(estimate, influence, estimate.covariance, spec)

    def _estimate_list(
        self, metric: str, estimator: Estimator, totals: GroupTotals, scope: Scope
    ) -> Estimate:
        """The same of a metric of whole lists; users are the clusters."""
        assert totals.lists is not None
        spec = self.plan.specs[metric, estimator.name]
        list_sums = totals.lists.sums[metric, spec.is_weighted]
        sums = list_sums.read(round(totals.all_rows[n_units("user")]))
        limit = max_relative_error(self.plan.list_metrics[metric])
        estimate = replace(
            estimator.from_sums(spec, sums, scope),
            bounds=self.bounds[metric],
            max_relative_error=limit if spec.is_weighted else None,
        )
        if self.strata is None or not spec.is_weighted:
            return estimate
        derivative = np.empty(0)
        if isinstance(self.strata, ListedStrata):
            derivative = self.strata.weight_derivative
        influence = find_influence(spec, sums.weighted_bases, estimate.value, scope.universe)
        strata = list_sums.read_strata(self.strata.strata, derivative, estimate.value)
        return strata.correct(estimate, influence, estimate.covariance, spec)

    def _count_clusters(self, estimate: Estimate, totals: Totals, scope: Scope) -> dict[Unit, int]:
        """The number of clusters of each kind; those without a row count if they are known."""
        sizes = {}
        for unit in self.plan.units:
            n_with_rows = round(totals[n_units(unit)])
            n_known = estimate.n_clusters
            if self.plan.cluster == "both":
                n_known = count_units(unit, scope)
            sizes[unit] = max(n_known or 0, n_with_rows)
        return sizes

    def _summarize_weights(self, totals: Totals, scope: Scope) -> WeightSummary | None:
        """The summary of the weights, with a warning if they are too uneven to trust."""
        sum_of_weights = totals.get(WEIGHT, 0.0)
        if sum_of_weights == 0:
            return None
        n_cells = None
        if scope.universe is not None and self.weight_transform is None:
            n_cells = scope.universe.n_cells
        effective_sample_size = sum_of_weights**2 / totals[SQUARED_WEIGHT]
        summary = WeightSummary(
            scope.n_observed, effective_sample_size, sum_of_weights, None, n_cells
        )
        for warning in summary.warnings():
            warnings.warn(warning, stacklevel=4)
        return summary


def _add_totals(parts: Iterable[Totals], names: Sequence[str]) -> Totals:
    totals = dict.fromkeys(names, 0.0)
    for part in parts:
        for name in names:
            totals[name] += part[name]
    return totals


def _open_strata(
    log: FrameLog,
    plan: QueryPlan,
    strata: FrameStrata,
    weight_transform: WeightTransform | None,
) -> ListedStrata | UnitStrata:
    """Store the columns that depend on the strata."""
    if strata.is_listed:
        listed = ListedStrata(strata, plan.units, weight_transform, by_group=log.has_groups)
        listed.store(log.table)
        return listed
    log.store_weight_derivative(weight_transform, has_limit=strata.has_limit)
    is_fixed = strata.has_limit or weight_transform is not None
    return UnitStrata(strata, plan.units, by_group=log.has_groups, is_fixed=is_fixed)


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
    if plan.lists:
        store_lists(log.table, inputs, plan.list_metrics)
    for number, metric in enumerate(plan.metrics):
        if metric.name in plan.lists:
            continue
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
        is_ranked = column(has_value(prediction_column(0)))
        for model in range(1, len(log.roles.models)):
            is_ranked = is_ranked & column(has_value(prediction_column(model)))
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
