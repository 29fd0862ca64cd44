"""Off-policy evaluation where the rows are: one query over a data frame or SQL table.

Rows are pivoted to one row for each request, with the slots as columns; the terms of all estimators
are added up by cluster; and only these sums are fetched.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import narwhals.stable.v2 as nw
import numpy as np

from unskew.data.frames import LazyFrame
from unskew.data.impression_checks import PROBABILITY_KINDS
from unskew.data.impressions import ProbabilityKind, read_examination
from unskew.errors import BadPropensityError, UsageError
from unskew.evaluation.backends.narwhals.table import translated_errors
from unskew.policies import POLICY_ESTIMATORS
from unskew.policies.checks import list_weight_terms
from unskew.policies.evaluate import check_targets
from unskew.policies.frame_columns import Formula, FrameColumns, FramePolicy, bind_to_frame
from unskew.policies.frame_rows import (
    CLUSTER,
    FLAGS,
    ImpressionRows,
    RowTotals,
    Table,
    fetch,
    pivot_requests,
    require_whole_requests,
)
from unskew.policies.plan import (
    NO_PROBABILITIES,
    PolicyCluster,
    PolicyPlan,
    PolicySums,
    Regression,
    SlotWorth,
    choose_estimators,
    list_estimators,
    read_worth,
    require_slots,
)
from unskew.policies.result import LOGGED, PolicyEvaluation
from unskew.policies.targets import Policy
from unskew.policies.terms import Term, TermSums, total
from unskew.settings import require_list
from unskew.types import Vector

UNCHECKED_KIND = (
    "in a data frame or a query, it is not checked whether probabilities are {kind!r}, as stated; "
    "evaluate_policies() and `unskew validate --impressions` do"
)


def evaluate_policies_frame(
    frame: object,
    targets: Mapping[str, Policy | object],
    *,
    request: str | None = None,
    user: str | None = None,
    item: str | None = None,
    position: str | None = None,
    reward: str | None = None,
    probability: str | None = None,
    probability_is: ProbabilityKind | None = None,
    estimators: Sequence[str] | None = None,
    examination: object = None,
    regression: Regression | None = None,
    slot_worth: SlotWorth = "sum",
    cluster: PolicyCluster = "user",
    level: float = 0.95,
) -> PolicyEvaluation:
    """Estimate what other policies would earn, from a data frame or SQL table of impressions.

    The numbers are those of :func:`unskew.evaluate_policies`. Rows stay where they are: polars
    (lazy too), DuckDB and Spark run one query, and return the sums of each user. Whether a request
    shows an item twice is not checked; ``Impressions.from_frame`` does.

    Parameters
    ----------
    frame
        One shown item a row: pandas, polars, pyarrow, a DuckDB relation or a Spark data frame.
    targets
        Policies by name: ``TargetProbability(column)`` (or the name of the column), or
        ``TargetRanking(position=column)``.
    request, user, item, position, reward, probability, probability_is
        As in :meth:`unskew.Impressions.from_frame`.
    estimators, examination, regression, slot_worth, cluster, level
        As in :func:`unskew.evaluate_policies`, but a fitted examination curve is taken as known.

    Examples
    --------
    >>> import unskew
    >>> world = unskew.simulate_impressions(500, logging="product", random_state=2)
    >>> frame = world.log.to_frame("polars").rename({"probability": "p"})
    >>> result = evaluate_policies_frame(
    ...     frame, {"same": "p"}, request="request", user="user", item="item",
    ...     probability="p", probability_is="product", estimators=["iips"],
    ... )
    >>> result.compare("same").difference
    0.0
    """
    names = {"request": request, "user": user, "item": item, "position": position}
    require_list("estimators", estimators, of="names")
    log = ImpressionRows.open(
        frame,
        names | {"reward": reward},
        probability,
        probability_is,
        check_targets(targets),
        regression,
    )
    totals = log.check()
    n_slots = totals.n_slots
    kind = probability_is if n_slots > 1 or probability is None else "product"
    if probability is not None and kind is None:
        raise UsageError(
            "`probability_is` is missing: requests show several items, and their probabilities can "
            "mean different things.",
            parameter="probability_is",
            remedy=PROBABILITY_KINDS,
        )
    logging = FramePolicy("probability", kind, n_slots=n_slots)
    curve = None if examination is None else read_examination(examination)
    plan = PolicyPlan(
        log.targets,
        choose_estimators(logging.provided, n_slots, has_curve=curve is not None)
        if estimators is None
        else list_estimators(estimators),
        examination=curve,
        regression=regression,
        slot_worth=slot_worth,
        cluster=cluster,
        level=level,
    )
    columns = {
        name: FrameColumns(
            name,
            logging,
            bind_to_frame(policy, name, kind, n_slots),
            read_worth(slot_worth, n_slots),
            None if curve is None else require_slots(curve, n_slots, "examination"),
            name in log.regressions,
        )
        for name, policy in log.targets.items()
    }
    sums = _add_up(log, totals, plan, columns)
    if n_slots > 1 and kind in ("step", "marginal", "product"):
        sums = replace(sums, notes=(*sums.notes, UNCHECKED_KIND.format(kind=kind)))
    if kind is None:
        sums = replace(sums, notes=(NO_PROBABILITIES, *sums.notes))
    result = plan.finish(sums, log.backend)
    result.warn()
    return result


def _add_up(
    log: ImpressionRows, totals: RowTotals, plan: PolicyPlan, columns: Mapping[str, FrameColumns]
) -> PolicySums:
    """The sums of all estimators and checks, by cluster."""
    assert plan.estimators is not None
    needs = {name: POLICY_ESTIMATORS.find(name).traits["needs"] for name in plan.estimators}
    for estimator, kinds in needs.items():
        for name, each in columns.items():
            each.logging.require_provided(kinds, estimator, LOGGED)
            each.target.require_provided(kinds, estimator, name)
    if totals.may_be_complete:
        complete = {name: replace(each, is_complete=True) for name, each in columns.items()}
        query = SumQuery.of(plan, complete, totals)
        table = query.run(log, totals, complete)
        if not (table["has_shared_slot"].any() or table["has_gap"].any()):
            require_whole_requests(table, needs, log)
            return query.read(table, totals)
    query = SumQuery.of(plan, columns, totals)
    table = query.run(log, totals, columns)
    require_whole_requests(table, needs, log)
    return query.read(table, totals)


Layout: TypeAlias = Mapping[str, list[tuple[str, str, str]]]
"""By quantity: the names of the sums of numerator, base and expected base of its terms."""
Summary: TypeAlias = tuple[str, str, str, str]
"""The names of sum, sum of squares, number of non-zero and largest of some weights."""


class SumColumns:
    """The sums and largest values to fetch, under names of their own."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}
        self._sums: dict[str, Formula] = {}
        self._largest: dict[str, Formula] = {}

    @property
    def names(self) -> list[str]:
        """The names of the sums."""
        return list(self._sums)

    def add_terms(self, quantities: Mapping[str, Sequence[Term]]) -> Layout:
        """Where the sums of the terms of each quantity will be."""
        return {
            name: [
                (self._add(term.numerator), self._add(term.base), self._add(term.expected))
                for term in terms
            ]
            for name, terms in quantities.items()
        }

    def add_summary(self, weight: Formula, n_positive: Formula | float) -> Summary:
        """The names of sum, sum of squares, number of non-zero and largest of some weights."""
        largest = f"largest_{self._add(weight)}"
        self._largest[largest] = weight
        return self._add(weight), self._add(weight * weight), self._add(n_positive), largest

    def _add(self, value: Formula | float | None) -> str:
        if value is None or value == 1.0:
            return "n_requests"
        if not isinstance(value, Formula):
            value = Formula.of_column("n_requests") * value
        name = self._names.setdefault(value.text, f"sum_{len(self._names)}")
        self._sums[name] = value
        return name

    def aggregate(self, requests: LazyFrame) -> LazyFrame:
        """One row for each cluster."""
        columns = self._sums | self._largest
        return (
            requests.select(
                CLUSTER, *FLAGS, *(each.expression.alias(name) for name, each in columns.items())
            )
            .group_by(CLUSTER)
            .agg(
                *(nw.col(name).sum() for name in (*FLAGS, *self._sums)),
                *(nw.col(name).max() for name in self._largest),
            )
        )


@dataclass(frozen=True, slots=True)
class SumQuery:
    """The sums that a plan needs, and where they will be in the fetched table."""

    plan: PolicyPlan
    sums: SumColumns
    estimators: Mapping[str, Layout]
    checks: Layout
    summaries: Mapping[str, Summary]

    @classmethod
    def of(
        cls, plan: PolicyPlan, columns: Mapping[str, FrameColumns], totals: RowTotals
    ) -> SumQuery:
        """List the sums of all estimators and checks."""
        sums = SumColumns()
        layout = {
            name: sums.add_terms(_list_terms(name, columns)) for name in plan.estimators or ()
        }
        checks: dict[str, list[Term]] = {}
        summaries: dict[str, Summary] = {}
        for name, each in columns.items():
            positive: set[str] = set()
            if each.is_complete and not totals.can_be_zero(name):
                positive = {ratio.text for ratio in (*each.step_weight, *each.marginal_weight)}
            provided = each.logging.provided & each.target.provided
            kinds = plan.weight_kinds(provided, each.n_slots)
            for label, term, weight in list_weight_terms(name, each, kinds):
                n_positive = 1.0 if weight.text in positive else weight.is_nonzero()
                checks[label] = [term]
                summaries[label] = sums.add_summary(weight, n_positive)
        check_layout = sums.add_terms(checks)
        return cls(plan, sums, layout, check_layout, summaries)

    def run(
        self, log: ImpressionRows, totals: RowTotals, columns: Mapping[str, FrameColumns]
    ) -> dict[str, Any]:
        """The sums of each cluster."""
        needed = {
            kind
            for name in self.estimators
            for kind in POLICY_ESTIMATORS.find(name).traits["needs"]
        }
        with translated_errors(log.rows):
            requests = pivot_requests(log, totals, columns, needed, self.plan.cluster)
            table = fetch(self.sums.aggregate(requests))
        if not all(np.isfinite(table[name]).all() for name in self.sums.names):
            raise BadPropensityError(
                "some weights are infinite: logged probabilities are too small for double "
                "precision.",
                parameter="probability",
                remedy="Check how they were logged, or drop those requests.",
            )
        return table

    def read(self, table: Table, totals: RowTotals) -> PolicySums:
        """The sums of estimators and checks, from the fetched table."""
        return PolicySums(
            estimators={name: read_terms(table, each) for name, each in self.estimators.items()},
            checks=read_terms(table, self.checks),
            weights={label: read_summary(table, each) for label, each in self.summaries.items()},
            n_requests=int(table["n_requests"].sum()),
            n_impressions=totals.n_rows,
            n_slots=totals.n_slots,
            has_binary_rewards=totals.has_binary_rewards,
            rewards=totals.rewards,
            notes=tuple(self.plan.describe_assumptions()),
        )


def _list_terms(estimator: str, columns: Mapping[str, FrameColumns]) -> dict[str, list[Term]]:
    terms = POLICY_ESTIMATORS.find(estimator).target
    quantities = {name: terms(each) for name, each in columns.items()}
    rewards = next(iter(columns.values())).reward
    return quantities | {LOGGED: [Term(total(rewards))]}


def read_terms(table: Table, layout: Layout) -> TermSums:
    """The sums of terms, from the fetched table."""
    names = [parts for terms in layout.values() for parts in terms]
    tables = [
        np.array([table[parts[number]] for parts in names]).reshape(len(names), -1).T
        for number in range(3)
    ]
    sizes = tuple(map(len, layout.values()))
    return TermSums(tuple(layout), sizes, table[CLUSTER], table["n_requests"], *tables)


def read_summary(table: Table, names: Summary) -> Vector:
    """Sum, sum of squares, number of non-zero and largest of some weights."""
    *sums, largest = names
    return np.array([*(table[name].sum() for name in sums), table[largest].max()])
