"""Off-policy evaluation where the rows are: one query over a data frame or SQL table.

Rows are pivoted to one row for each request, with the slots as columns; the terms of all estimators
are added up by cluster; and only these sums are fetched.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import narwhals.stable.v2 as nw
import numpy as np

from unskew.data.frames import BACKENDS, LazyFrame, open_lazily
from unskew.data.impressions import ProbabilityKind, find_impression_columns, read_examination
from unskew.errors import (
    BadImpressionError,
    BadPropensityError,
    ColumnError,
    DataError,
    EmptyLogError,
    UsageError,
)
from unskew.evaluation.backends.narwhals.table import translated_errors
from unskew.policies import POLICY_ESTIMATORS
from unskew.policies.checks import list_weight_terms
from unskew.policies.evaluate import check_targets
from unskew.policies.frame_columns import (
    FrameColumns,
    FramePolicy,
    bind_to_frame,
    name_column,
)
from unskew.policies.plan import (
    NEEDS_ALL_SLOTS,
    PolicyCluster,
    PolicyPlan,
    PolicySums,
    Regression,
    SlotWorth,
    choose_estimators,
    read_worth,
    require_slots,
)
from unskew.policies.result import LOGGED, PolicyEvaluation
from unskew.policies.targets import Policy, TargetRanking
from unskew.policies.terms import Term, TermSums, total
from unskew.settings import OneOf
from unskew.types import Vector

MAX_SLOTS = 52
"""The slots of a request are the binary digits of a float64."""
CLUSTER = "cluster"
Table: TypeAlias = Mapping[str, Any]
"""Fetched columns by name."""


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
        As in :func:`unskew.evaluate_policies`.

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
    query = ImpressionQuery.open(
        frame,
        names | {"reward": reward},
        probability,
        probability_is,
        check_targets(targets),
        regression,
    )
    n_slots = query.check_rows()
    kind = probability_is if n_slots > 1 or probability is None else "product"
    if probability is not None and kind is None:
        raise UsageError(
            "`probability_is` is missing: a request shows several items, and nothing says what the "
            "probabilities are the probability of.",
            parameter="probability_is",
            remedy="Pass 'step', 'marginal', 'slate' or 'product'.",
        )
    logging = FramePolicy("probability", kind, n_slots=n_slots)
    curve = None if examination is None else read_examination(examination)
    plan = PolicyPlan(
        query.targets,
        choose_estimators(logging.provided, n_slots, has_curve=curve is not None)
        if estimators is None
        else tuple(estimators),
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
            name in query.regressions,
        )
        for name, policy in query.targets.items()
    }
    result = plan.finish(query.add_up(plan, columns, n_slots), query.backend)
    result.warn()
    return result


@dataclass(frozen=True, slots=True)
class ImpressionQuery:
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
    ) -> ImpressionQuery:
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
                rows = rows.with_columns(nw.lit(1.0).alias("position"))
        ids = {"request", "user", "position"}
        values = tuple(name for name in columns if name not in ids)
        implementation = opened.implementation.value
        backend = implementation if implementation in BACKENDS else None
        return cls(rows, targets, regressions, values, backend)

    def check_rows(self) -> int:
        """The number of slots; an error if a value in the log is invalid."""
        bad = dict(self._list_problems())
        with translated_errors(self.rows):
            flags = self.rows.with_columns(
                condition.cast(nw.Float64).alias(f"bad_{name}") for name, condition in bad.items()
            )
            counts = flags.select(
                nw.col("position").max().alias("n_slots"),
                nw.len().cast(nw.Float64).alias("n_rows"),
                *(nw.col(f"bad_{name}").sum() for name in bad),
            )
            totals = _fetch(counts)
        n_rows = int(totals["n_rows"][0])
        if n_rows == 0:
            raise EmptyLogError("the frame has no impressions.", remedy="Check its filter or file.")
        for name in bad:
            count = int(totals[f"bad_{name}"][0] or 0)
            if count:
                raise _row_error(name, count, n_rows)
        n_slots = int(totals["n_slots"][0])
        if n_slots > MAX_SLOTS:
            raise BadImpressionError(
                f"positions reach {n_slots:,}, but a query can have {MAX_SLOTS} slots.",
                parameter="position",
                value=n_slots,
                remedy="Drop the lowest positions of all requests, or use evaluate_policies().",
            )
        return n_slots

    def _list_problems(self) -> Iterator[tuple[str, nw.Expr]]:
        """By column: the condition under which its value in a row is invalid."""
        for name in ("request", "user"):
            yield name, nw.col(name).is_null()
        position = nw.col("position")
        yield "position", (position.is_null() | (position < 1) | (position != position.round()))
        for name in self.values:
            value = nw.col(name)
            is_unusable = value.is_null() | ~value.is_finite()
            policy = self.targets.get(name.removeprefix("target_"))
            if name == "probability":
                yield name, is_unusable | (value <= 0) | (value > 1)
            elif isinstance(policy, TargetRanking) and name.startswith("target_"):
                yield name, ~_is_missing(name) & ((value < 1) | (value != value.round()))
            elif name.startswith("target_"):
                yield name, is_unusable | (value < 0) | (value > 1)
            else:
                yield name, is_unusable

    def add_up(
        self, plan: PolicyPlan, columns: Mapping[str, FrameColumns], n_slots: int
    ) -> PolicySums:
        """The sums of all estimators and checks, by cluster."""
        assert plan.estimators is not None
        needs = {name: POLICY_ESTIMATORS.find(name).traits["needs"] for name in plan.estimators}
        for estimator, kinds in needs.items():
            for name, each in columns.items():
                each.logging.require_provided(kinds, estimator, LOGGED)
                each.target.require_provided(kinds, estimator, name)
        by_estimator = {name: self._list_terms(name, columns) for name in plan.estimators}
        checks: dict[str, list[Term]] = {}
        weights: dict[str, Any] = {}
        for name, each in columns.items():
            for label, term, weight in list_weight_terms(name, each, plan.weight_kinds()):
                checks[label], weights[label] = [term], weight
        sums = FrameSumColumns()
        layout = {name: sums.add_terms(terms) for name, terms in by_estimator.items()}
        check_layout = sums.add_terms(checks)
        summaries = {label: sums.add_summary(weight) for label, weight in weights.items()}
        needed = {kind for kinds in needs.values() for kind in kinds}
        requests = self._pivot(columns, needed, n_slots)
        if NEEDS_ALL_SLOTS & needed:
            for each in columns.values():
                for stage in each.list_running_products():
                    requests = requests.with_columns(
                        value.alias(name) for name, value in stage.items()
                    )
        key = "request" if plan.cluster == "request" else "user"
        with translated_errors(self.rows):
            table = _fetch(sums.aggregate(requests, key))
        self._require_whole_requests(table, needs)
        return PolicySums(
            {name: sums.read(table, each) for name, each in layout.items()},
            sums.read(table, check_layout),
            {label: sums.read_summary(table, each) for label, each in summaries.items()},
            int(table["n_requests"].sum()),
            int(table["n_shown"].sum()),
            n_slots,
            bool(table["n_other_rewards"].sum() == 0),
            tuple(plan.describe_assumptions()),
        )

    def _list_terms(
        self, estimator: str, columns: Mapping[str, FrameColumns]
    ) -> dict[str, list[Term]]:
        terms = POLICY_ESTIMATORS.find(estimator).target
        quantities = {name: terms(each) for name, each in columns.items()}
        rewards = next(iter(columns.values())).reward
        return quantities | {LOGGED: [Term(total(rewards))]}

    def _pivot(
        self, columns: Mapping[str, FrameColumns], needed: set[str], n_slots: int
    ) -> LazyFrame:
        """One row for each request, with the values of its slots as columns.

        Which slots a request has is kept as the digits of one binary number.
        """
        slots = range(1, n_slots + 1)
        values = [
            "reward",
            *(
                name
                for name in self.values
                if "regression" in needed and name.startswith(("prediction_", "mean_"))
            ),
        ]
        added: dict[str, nw.Expr] = {
            "one": nw.lit(1.0),
            "is_other": ((nw.col("reward") != 0) & (nw.col("reward") != 1)).cast(nw.Float64),
            "mask": nw.lit(2.0) ** (nw.col("position") - 1.0),
        }
        for name, each in columns.items():
            if each.logging.kind is not None:
                added[f"weight_{name}"] = each.find_weight()
                values.append(f"weight_{name}")
            elif each.target.is_ranking:
                values.append(f"target_{name}")
        at_slot = {
            f"{name}_{slot}": nw.when(nw.col("position") == slot)
            .then(nw.col(name))
            .otherwise(nw.lit(0.0))
            for name in values
            for slot in slots
        }
        with translated_errors(self.rows):
            rows = self._fill_missing_targets()
            rows = rows.with_columns(value.alias(name) for name, value in added.items())
            rows = rows.with_columns(value.alias(name) for name, value in at_slot.items())
            requests = rows.group_by("request").agg(
                nw.col("user").min().alias("user"),
                nw.col("user").max().alias("last_user"),
                nw.col("position").max().alias("last_position"),
                nw.col("is_other").sum().alias("n_other_rewards"),
                nw.col("mask").sum().alias("mask"),
                nw.col("one").sum().alias("n_shown"),
                *(nw.col(name).sum() for name in at_slot),
            )
            mask = nw.col("mask")
            requests = requests.with_columns(
                ((mask / 2.0 ** (slot - 1)).floor() % 2.0).alias(f"shown_{slot}") for slot in slots
            )
            n_slots_shown = total([nw.col(f"shown_{slot}") for slot in slots])
            flags = {
                "has_two_users": nw.col("user") != nw.col("last_user"),
                "has_shared_slot": n_slots_shown != nw.col("n_shown"),
                "has_gap": nw.col("n_shown") != nw.col("last_position"),
            }
            return requests.with_columns(
                nw.lit(1.0).alias("n_requests"),
                *(flag.cast(nw.Float64).alias(name) for name, flag in flags.items()),
            )

    def _fill_missing_targets(self) -> LazyFrame:
        """The rows, with position 0 for items that a target ranking does not show."""
        return self.rows.with_columns(
            nw.when(_is_missing(name)).then(nw.lit(0.0)).otherwise(nw.col(name)).alias(name)
            for name in self.values
            if name.startswith("target_")
        )

    def _require_whole_requests(self, table: Table, needs: Mapping[str, Sequence[str]]) -> None:
        """An error if a request is impossible, or lacks slots that an estimator needs."""
        problems = {
            "has_two_users": ("have two users", "user", "A request belongs to one user."),
            "has_shared_slot": (
                "show two items at one position",
                "position",
                "A position shows one item; are these several requests with one id?",
            ),
        }
        for flag, (problem, parameter, remedy) in problems.items():
            count = int(table[flag].sum())
            if count:
                raise BadImpressionError(
                    f"{count:,} requests {problem}.", parameter=parameter, remedy=remedy
                )
        demanding = [name for name, kinds in needs.items() if NEEDS_ALL_SLOTS & set(kinds)]
        n_gaps = int(table["has_gap"].sum())
        if demanding and n_gaps:
            raise BadImpressionError(
                f"{demanding[0]!r} needs every slot above a shown item, but the positions of "
                f"{n_gaps:,} requests have gaps.",
                parameter="position",
                remedy="Keep all shown items of a request, or use 'iips' or 'pbm'.",
            )


FLAGS = ("n_requests", "n_shown", "n_other_rewards", "has_two_users", "has_shared_slot", "has_gap")


class FrameSumColumns:
    """Named columns whose sums by cluster are fetched; equal parts are added up once."""

    def __init__(self) -> None:
        self.sums: dict[str, nw.Expr] = {}
        self.largest: dict[str, nw.Expr] = {}

    def add_terms(
        self, quantities: Mapping[str, Sequence[Term]]
    ) -> dict[str, list[tuple[str, str, str]]]:
        """By quantity: the names of the sums of numerator, base and expected base of its terms."""
        return {
            name: [
                (self._add(term.numerator), self._add(term.base), self._add(term.expected))
                for term in terms
            ]
            for name, terms in quantities.items()
        }

    def add_summary(self, weight: nw.Expr) -> tuple[str, str, str, str]:
        """The names of sum, sum of squares, number of non-zero and largest of some weights."""
        total, squares = self._add(weight), self._add(weight * weight)
        n_positive = self._add((weight != 0).cast(nw.Float64))
        largest = f"largest_{len(self.largest)}"
        self.largest[largest] = weight
        return total, squares, n_positive, largest

    def _add(self, value: nw.Expr | None) -> str:
        if value is None:
            return "n_requests"
        name = f"sum_{len(self.sums)}"
        self.sums[name] = value
        return name

    def aggregate(self, requests: LazyFrame, key: str) -> LazyFrame:
        """One row for each cluster."""
        terms = self.sums | self.largest
        return (
            requests.with_columns(value.alias(name) for name, value in terms.items())
            .group_by(key)
            .agg(
                *(nw.col(name).sum() for name in (*FLAGS, *self.sums)),
                *(nw.col(name).max() for name in self.largest),
            )
            .rename({key: CLUSTER})
        )

    def read(self, table: Table, layout: Mapping[str, list[tuple[str, str, str]]]) -> TermSums:
        """The sums of the terms, from the fetched table."""
        names = [parts for terms in layout.values() for parts in terms]
        tables = [
            np.column_stack([table[parts[number]] for parts in names])
            if names
            else np.zeros((len(table[CLUSTER]), 0))
            for number in range(3)
        ]
        sizes = tuple(map(len, layout.values()))
        return TermSums(tuple(layout), sizes, table[CLUSTER], table["n_requests"], *tables)

    def read_summary(self, table: Table, names: tuple[str, str, str, str]) -> Vector:
        """Sum, sum of squares, number of non-zero and largest of some weights."""
        *sums, largest = names
        return np.array([*(table[name].sum() for name in sums), table[largest].max()])


def _is_missing(name: str) -> nw.Expr:
    """Whether a number is null or NaN."""
    return nw.col(name).is_null() | nw.col(name).is_nan().fill_null(value=True)


def _select(frame: LazyFrame, view: Mapping[str, str], columns: Mapping[str, str]) -> LazyFrame:
    """The columns under our names, numbers as float64."""
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
            expression = expression.cast(nw.Float64)
        selected.append(expression.alias(name))
    return frame.select(selected)


def _fetch(frame: LazyFrame) -> dict[str, Any]:
    """The columns of a small table as arrays, by name."""
    is_polars = frame.implementation.is_polars()
    rows = frame.collect(backend="polars", engine="streaming") if is_polars else frame.collect()
    return {name: rows.get_column(name).to_numpy() for name in rows.columns}


def _require_column(name: str, view: Mapping[str, str], parameter: str) -> str:
    if name not in view:
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
        return dict(regression)
    if len(targets) > 1:
        raise UsageError(
            "the mean v of a regression depends on the policy, but `regression` has one for "
            f"{len(targets)} policies.",
            parameter="regression",
            remedy="Pass a mapping from each target to its columns, such as "
            "{'new': ('q', 'v_new')}.",
        )
    return dict.fromkeys(targets, regression)


def _row_error(name: str, count: int, n_rows: int) -> DataError:
    of_rows = f"{count:,} of {n_rows:,} rows"
    if name == "probability" or name.startswith("target_"):
        what = "`probability`" if name == "probability" else f"policy {name[7:]!r}"
        return BadPropensityError(
            f"{what}: {of_rows} have a value that is missing or impossible.",
            parameter="probability" if name == "probability" else "targets",
            remedy="Probabilities lie in (0, 1], those of a target in [0, 1]; target positions are "
            "whole numbers from 1 on, or missing.",
        )
    wrong = "not a whole number from 1 on" if name == "position" else "missing or not finite"
    return BadImpressionError(
        f"{of_rows} have a {name.partition('_')[0]} that is {wrong}.",
        parameter=name,
        remedy="Drop or mend those rows.",
    )
