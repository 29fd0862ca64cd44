"""Sums by cluster of the terms of all estimators, each different sum computed once in a query."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import narwhals.stable.v2 as nw
import numpy as np

from unskew.data.frames import LazyFrame
from unskew.errors import BadPropensityError
from unskew.evaluation.backends.narwhals.table import translated_errors
from unskew.policies import POLICY_ESTIMATORS
from unskew.policies.checks import list_weight_terms
from unskew.policies.frame_columns import FrameColumns
from unskew.policies.frame_formula import Formula
from unskew.policies.frame_pivot import CLUSTER, FLAGS, Table, pivot_requests
from unskew.policies.frame_rows import ImpressionRows, RowTotals, fetch
from unskew.policies.plan import PolicyPlan, PolicySums
from unskew.policies.result import LOGGED
from unskew.policies.terms import Term, TermSums, total
from unskew.types import Vector

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
            for label, term, weight in list_weight_terms(name, each, plan.weight_kinds()):
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
            {name: read_terms(table, each) for name, each in self.estimators.items()},
            read_terms(table, self.checks),
            {label: read_summary(table, each) for label, each in self.summaries.items()},
            int(table["n_requests"].sum()),
            totals.n_rows,
            totals.n_slots,
            totals.has_binary_rewards,
            totals.rewards,
            tuple(self.plan.describe_assumptions()),
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
