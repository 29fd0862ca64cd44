"""``evaluate_frame``: evaluation of a log that stays in a data frame, a database or a cluster."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

from unskew.data.columns import find_column
from unskew.data.estimation import FrameStrata, TakenAsKnown
from unskew.data.frames import count_column, free_name
from unskew.data.result import DrawableResult, describe_json
from unskew.data.weights import WeightTransform
from unskew.errors import AmbiguousColumnError, ColumnError, UnknownNameError, UsageError
from unskew.estimators.observed import Cluster
from unskew.estimators.point import Estimator
from unskew.evaluation.arguments import (
    find_estimators,
    find_metrics,
    require_cluster,
    require_level,
    require_weight_transform,
)
from unskew.evaluation.backends.narwhals.log import ColumnRoles, FrameLog, OnBad
from unskew.evaluation.backends.narwhals.plan import (
    FrameQuery,
    FrameUniverse,
    GroupTotals,
    GroupUniverses,
    QueryPlan,
)
from unskew.evaluation.backends.narwhals.sums import KEPT, n_units
from unskew.evaluation.backends.narwhals.table import FrameSource
from unskew.evaluation.cells import TAKEN_AS_KNOWN, ClusterChoice
from unskew.evaluation.result import Evaluation, wrap_footer
from unskew.metrics.metric import Metric
from unskew.propensity.model import PropensityModel
from unskew.settings import Flag, Instance, OneOf, require_list
from unskew.tables import count_noun


def evaluate_frame(
    frame: object,
    *,
    prediction: str | Sequence[str] | None = None,
    user: str | None = None,
    item: str | None = None,
    rating: str | None = None,
    propensity: str | PropensityModel | None = None,
    position: str | Sequence[str] | None = None,
    metrics: Sequence[str | Metric] = ("mse", "mae"),
    estimators: Sequence[str | Estimator] = ("naive", "ips", "snips"),
    universe: FrameUniverse = None,
    level: float = 0.95,
    cluster: Cluster | Literal["auto"] = "auto",
    propensities_known: bool = False,
    relevance_threshold: float | None = None,
    weight_transform: WeightTransform | None = None,
    by: str | None = None,
    on_bad: OnBad = "raise",
    check_duplicates: bool = False,
    is_complete: bool = False,
) -> Evaluation | GroupedEvaluation:
    """Estimate the risks of models from a log in pandas, polars, pyarrow, DuckDB or PySpark.

    The log is read once, in its own engine, and only sums are fetched, so it may be larger than
    memory. Metrics of whole lists, such as ``ndcg@10`` and ``mrr``, take one more query for each
    group: DuckDB sorts the relevant rows by user, Spark shuffles them to its executors, which need
    ``unskew``, and other libraries read them into memory. Intervals are Student's t, without the
    correction for skewness of :func:`unskew.evaluate`, which would need more sums. Arguments that
    are not described here mean the same as there.

    Parameters
    ----------
    frame
        One row for each rating, with columns of predictions. Lazy frames are allowed.
    prediction
        The column of predicted ratings, whose name is the name of the model; a list for several
        models. Ranking metrics read ``position``; if all metrics are ranking metrics, the columns
        of predictions need not exist.
    user, item, rating, propensity
        Names of the columns. By default they are found as in :meth:`unskew.Ratings.from_frame`.
        Users and items are read only if something depends on them: ``cluster``, normalised
        estimators, metrics of each user such as recall and NDCG, ``universe="log"``.
    position
        For ranking metrics: the position that a model gives the row's item among all items of its
        user, 1 for the best; one column for each model. It is never found by its name. ``auc`` and
        ``pooled_auc`` take all items of the universe as ranked.
    universe
        (n_users, n_items), or ``"log"`` to count the users and items of the log with one more
        query. With ``by`` it is the universe of each group, or a mapping from groups to universes.
    cluster
        ``"auto"`` is ``"user"`` if users have several rows. Unlike :func:`unskew.evaluate` it never
        adds items, because their totals would take a second grouping of the log. Pass ``"both"``
        if items share trends, or if their popularity is not in the propensities.
    by
        A column whose values are evaluated separately, in the same query.
    on_bad
        ``"raise"`` an error that counts the rows with a missing or impossible value and shows one;
        or ``"drop"`` them and warn.
    check_duplicates
        Raise an error if two rows have the same user and item, which takes one more query. By
        default such rows are not noticed, and count as often as they occur.
    is_complete
        Whether the frame has all items of every user, with a null rating for unobserved cells.
        Ranking metrics then compute positions from predictions. Items with equal scores share
        their positions.

    Returns
    -------
    Evaluation or GroupedEvaluation
        With ``by``, a :class:`GroupedEvaluation` that maps each value of the column to an
        :class:`Evaluation`. The summary of the weights has no ``top_share``, which would take a
        sort. The metric ``accuracy`` takes one more query for the levels of the rating scale.

    Examples
    --------
    >>> import polars as pl
    >>> log = pl.LazyFrame(
    ...     {"rating": [5, 1, 5], "always 5": [5.0, 5.0, 5.0], "propensity": [0.8, 0.25, 1.0]}
    ... )
    >>> evaluate_frame(log, prediction="always 5", metrics=["mae"], estimators=["naive", "snips"])
    model     metric  estimator  estimate  std_error  ci_low  ci_high  degrees
    always 5  mae     naive         1.333      0.795   0.000    4.754    2.000
    always 5  mae     snips         2.560      0.830   0.000   11.023    1.104
    3 observed cells; effective sample size 2; 95% intervals, cells independent
    intervals are Student's t, not corrected for skewness
    these propensities are taken as known, and nothing here can confirm them
    """
    require_level(level)
    require_weight_transform(weight_transform)
    require_cluster(cluster)
    OneOf(("raise", "drop"))("on_bad", on_bad)
    Instance(str, allow_none=True)("by", by)
    flags = {
        "check_duplicates": check_duplicates,
        "is_complete": is_complete,
        "propensities_known": propensities_known,
    }
    for name, flag in flags.items():
        Flag()(name, flag)
    request = FrameRequest(
        source=FrameSource(frame),
        metrics=find_metrics(metrics, relevance_threshold=relevance_threshold),
        estimators=find_estimators(estimators),
        columns={"user": user, "item": item, "rating": rating, "by": by},
        propensity=propensity,
        is_known=propensities_known,
        prediction=prediction,
        position=position,
        universe=universe,
        weight_transform=weight_transform,
        is_complete=is_complete,
    )
    chosen_cluster = request.choose_cluster() if cluster == "auto" else cluster
    query, universes = request.open(chosen_cluster, check_duplicates=check_duplicates)
    totals = query.run()
    all_rows = query.combine(totals)
    query.log.check_rows(all_rows, on_bad)
    query.check(all_rows)
    totals = query.measure_lists(totals, universes)
    queries = dict.fromkeys(totals, query)
    if cluster == "auto" and chosen_cluster is not None:
        alone = [group for group in totals if _has_one_row_per_user(totals[group])]
        if alone:
            by_cells, _ = request.open(None, required_ids=tuple(query.log.roles.ids))
            totals_of_cells = by_cells.run()
            totals |= {
                group: replace(totals_of_cells[group], lists=totals[group].lists) for group in alone
            }
            queries |= dict.fromkeys(alone, by_cells)
    backend = request.source.backend
    results = {}
    for group in sorted(totals, key=_sort_key):
        if totals[group].all_rows[KEPT]:
            used = queries[group].plan.cluster
            results[group] = queries[group].evaluate(
                totals[group],
                universes.of_group(group),
                level=level,
                backend=backend,
                clusters=_explain_clusters(cluster, used),
                taken_as_known=request.describe_known(),
            )
            results[group].warn()
    return results[None] if by is None else GroupedEvaluation(by, results, backend)


@dataclass(frozen=True, slots=True, eq=False)
class FrameRequest:
    """What the caller asked for, apart from the clusters."""

    source: FrameSource
    metrics: Sequence[Metric]
    estimators: Sequence[Estimator]
    columns: Mapping[str, str | None]
    """The caller's names for user, item, rating and by."""
    propensity: str | PropensityModel | None
    is_known: bool
    """Whether the propensities of a model are taken as known."""
    prediction: str | Sequence[str] | None
    position: str | Sequence[str] | None
    universe: FrameUniverse
    weight_transform: WeightTransform | None
    is_complete: bool

    def describe_known(self) -> TakenAsKnown | None:
        """The model whose propensities the caller takes as known; None if there is none."""
        model = self.propensity
        if not isinstance(model, PropensityModel) or not self.is_known:
            return None
        try:
            return model.describe_frame().estimation.as_known(TAKEN_AS_KNOWN)
        except UsageError:
            sees_ratings = model.sees_ratings
            name = type(model).__name__
            return TakenAsKnown(
                model=name,
                sees_ratings=sees_ratings,
                adjusts_for=model.adjusts_for,
                reason=TAKEN_AS_KNOWN,
            )

    def choose_cluster(self) -> Cluster:
        """Users if the frame has a column of users, else cells."""
        try:
            find_column("user", self.columns["user"], self.source.columns)
        except AmbiguousColumnError:
            raise
        except ColumnError:
            if self.columns["user"] is not None:
                raise
            return None
        return "user"

    def open(
        self,
        cluster: Cluster,
        *,
        check_duplicates: bool = False,
        required_ids: Sequence[str] = (),
    ) -> tuple[FrameQuery, GroupUniverses]:
        """The query with these clusters, and the universe of each group.

        Rows without one of the ``required_ids`` are bad rows, whatever the clusters are.
        """
        plan = QueryPlan.of(self.metrics, self.estimators, cluster)
        model = self.propensity if isinstance(self.propensity, PropensityModel) else None
        strata = None
        if model is not None and plan.is_weighted and not self.is_known:
            strata = model.describe_frame()
        ids = sorted({*self._find_ids(plan, strata, check_duplicates), *required_ids})
        source, roles = self.source, self._find_roles(plan, ids)
        if model is not None and plan.is_weighted:
            source, roles = self._add_propensity(model, roles, strata)
        log = FrameLog(source, roles, ids=ids, is_complete=self.is_complete)
        if check_duplicates:
            log.require_distinct_cells()
        universes = GroupUniverses.read(log, self.universe)
        return FrameQuery.of(log, plan, universes, self.weight_transform, strata), universes

    def _find_ids(
        self, plan: QueryPlan, strata: FrameStrata | None, check_duplicates: bool
    ) -> list[str]:
        """The ids that something depends on."""
        ids = set(plan.ids)
        if check_duplicates or (isinstance(self.universe, str) and self.universe == "log"):
            ids |= {"user", "item"}
        if self.is_complete:
            ids.add("user")
        if strata is not None and not strata.is_listed:
            ids.add(strata.kind)
        return sorted(ids)

    def _require_names(self) -> None:
        """Names that are not read, because no metric or estimator needs them, are checked too."""
        if self.propensity is not None and not isinstance(self.propensity, PropensityModel):
            Instance(str, remedy="Pass the name of a column, or a fitted propensity model.")(
                "propensity", self.propensity
            )
        names = [self.position] if isinstance(self.position, str) else self.position
        require_list("position", names, of="names of columns")
        for name in list(names) if names is not None else ():
            Instance(str, remedy="Pass the name of a column.")("position", name)

    def _find_roles(self, plan: QueryPlan, ids: Sequence[str]) -> ColumnRoles:
        self._require_names()
        name = self.propensity if isinstance(self.propensity, str) else None
        return ColumnRoles.find(
            self.source.columns,
            {**self.columns, "propensity": name},
            self.prediction,
            self.position,
            reads_predictions=plan.reads_predictions or self.is_complete,
            reads_positions=plan.reads_positions and not self.is_complete,
            reads_propensity=plan.is_weighted and not isinstance(self.propensity, PropensityModel),
            ids=ids,
        )

    def _add_propensity(
        self, model: PropensityModel, roles: ColumnRoles, strata: FrameStrata | None
    ) -> tuple[FrameSource, ColumnRoles]:
        """The source with a column of the model's propensities, and of the counts of its strata."""
        names = self.source.names
        name = free_name("propensity_of_model", names)
        count, new_columns = None, [name]
        if strata is not None and not strata.is_listed:
            count = free_name(count_column(name, strata.kind), names)
            new_columns.append(count)
        columns = {"rating": roles.rating, **roles.ids}
        source = self.source.extend(
            lambda view, names: model.add_to_frame(view, names, columns, name), new_columns
        )
        ratings = None
        if strata is not None and strata.kind == "rating":
            ratings = tuple(strata.levels[strata.propensity > 0].tolist())
        return source, replace(roles, propensity=name, fitted_count=count, fitted_ratings=ratings)


def _explain_clusters(requested: Cluster | Literal["auto"], used: Cluster) -> ClusterChoice:
    if requested != "auto":
        return ClusterChoice(used, "as requested")
    users = "no user has several rows" if used is None else "users have several rows"
    return ClusterChoice(used, f"because {users}; item totals are not checked in frames")


def _has_one_row_per_user(totals: GroupTotals) -> bool:
    return round(totals.all_rows[n_units("user")]) == round(totals.all_rows[KEPT])


def _sort_key(group: Any) -> tuple[bool, str, Any]:
    """Sorts groups of several types; None is last."""
    return group is None, str(type(group)), 0 if group is None else group


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class GroupedEvaluation(DrawableResult, Mapping[Any, Evaluation]):
    """An :class:`Evaluation` for each value of a column; the key of missing values is None."""

    kind: ClassVar[str] = "grouped_evaluation"
    by: str
    """The column."""
    groups: Mapping[Any, Evaluation]
    backend: str | None = None

    def __getitem__(self, group: Any) -> Evaluation:
        if group not in self.groups:
            raise UnknownNameError(self.by, group, map(repr, self.groups), parameter=self.by)
        return self.groups[group]

    def __iter__(self) -> Iterator[Any]:
        return iter(self.groups)

    def __len__(self) -> int:
        return len(self.groups)

    def to_columns(self) -> dict[str, list[Any]]:
        """The tables of all groups below one another, with a column of the group."""
        tables = {group: evaluation.to_columns() for group, evaluation in self.groups.items()}
        names = next(iter(tables.values()))
        groups = [group for group, table in tables.items() for _ in table["model"]]
        columns = {
            name: [value for table in tables.values() for value in table[name]] for name in names
        }
        return {f"group: {self.by}" if self.by in columns else self.by: groups} | columns

    def _footer(self) -> list[str]:
        return [*self._list_problems(), self.describe()]

    def _list_problems(self) -> list[str]:
        return [
            f"{self.by} is {format_group(group)}: {problem}"
            for group, evaluation in self.groups.items()
            for problem in evaluation.reliability.problems()
        ]

    def describe(self) -> str:
        """What the numbers were computed from, and what they rest on, in a few lines."""
        parts = list(self.groups.values())
        n_observed = sum(part.n_observed for part in parts)
        n_dropped = sum(part.n_dropped for part in parts)
        sizes = f"{count_noun(n_observed, 'observed cell')} in {count_noun(len(parts), 'group')}"
        facts = [sizes, f"{parts[0].level:.0%} intervals, {parts[0].intervals}"]
        facts += [f"{count_noun(n_dropped, 'bad row')} dropped"] if n_dropped else []
        gaps = [
            f"{self.by} is {format_group(group)}: {gap}"
            for group, part in self.groups.items()
            for gap in part.describe_gaps()
        ]
        conditions = dict.fromkeys(
            text for part in parts for text in part.describe_conditions(with_effect=False)
        )
        return "\n".join(["; ".join(facts), *wrap_footer([*gaps, *conditions])])

    def to_record(self) -> dict[str, Any]:
        """The records of the evaluations, each with its group."""
        groups = [
            {"group": group, **describe_json(evaluation.kind), **evaluation.to_record()}
            for group, evaluation in self.groups.items()
        ]
        return {"by": self.by, "groups": groups}


def format_group(group: Any) -> str:
    """The value of a group in a sentence."""
    return "missing" if group is None else repr(group)
