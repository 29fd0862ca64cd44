"""The plan of a monitor, and its state: a few sums over all rows so far, and looks at them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from unskew.data.universe import parse_universe
from unskew.errors import UnskewError, UsageError
from unskew.estimators.estimate import Estimate
from unskew.estimators.sequences import (
    BernsteinSequence,
    BernsteinSums,
    SequenceClock,
    UnitMoments,
)
from unskew.evaluation.arguments import find_metrics, require_level
from unskew.metrics.metric import Metric, MetricInput
from unskew.settings import Flag, Instance, Number, WholeNumber, require_name
from unskew.types import Matrix, Vector

UNITS = ("row", "user")


@dataclass(frozen=True, slots=True, kw_only=True)
class MonitorPlan:
    """What is watched and how. It is fixed before the first row."""

    models: tuple[str, ...]
    planned_size: int
    metrics: tuple[str, ...] = ("mse", "mae")
    level: float = 0.95
    unit: Literal["row", "user"] = "row"
    look_every: int | None = None
    has_unobserved: bool = False
    universe: tuple[int, int] | None = None
    max_weight: float | None = None
    max_delta: float | None = None
    rating: str | None = None
    propensity: str | None = None
    """Columns of the file that is watched, if the caller named them."""

    def __post_init__(self) -> None:
        WholeNumber(least=1)("planned_size", self.planned_size)
        WholeNumber(least=1, allow_none=True)("look_every", self.look_every)
        require_level(self.level)
        require_name("unit", self.unit, UNITS)
        for name in self.models:
            Instance(str)("models", name)
        Number(least=1, allow_none=True)("max_weight", self.max_weight)
        Number(above=0, allow_none=True)("max_delta", self.max_delta)
        Flag()("has_unobserved", self.has_unobserved)
        if self.universe is not None:
            parse_universe(self.universe)
        for parameter, column in (("rating", self.rating), ("propensity", self.propensity)):
            if column is not None:
                Instance(str)(parameter, column)
        if not self.models or len(set(self.models)) < len(self.models):
            raise UsageError(
                "`models` must be a list of different names; got "
                f"{', '.join(map(repr, self.models)) or 'none'}.",
                parameter="models",
                value=self.models,
            )
        self._require_exact_is_possible()

    def _require_exact_is_possible(self) -> None:
        if self.max_weight is None and self.max_delta is None:
            return
        problem, remedy = "", "Leave `max_weight` and `max_delta` out."
        if self.max_weight is None or self.max_delta is None:
            problem = "need both the largest weight and the largest delta"
            remedy = "Pass `max_weight=...` and `max_delta=...`."
        elif not self.has_unobserved:
            problem = "need the arrivals that were not rated too"
            remedy = "Pass `has_unobserved=True` and a row for each of them, with an empty rating."
        elif self.unit != "row":
            problem = "are for single rows, because the sum over a user has no known limit"
        elif len(self.metrics) > 1:
            problem = "are for one metric, because each has a largest delta of its own"
            remedy = "Pass one of `metrics`."
        if problem:
            raise UsageError(
                f"exact limits {problem}.",
                parameter="max_delta",
                value=self.max_delta,
                remedy=remedy,
            )

    @property
    def estimators(self) -> tuple[str, ...]:
        """SNIPS; IPS and its exact limits if arrivals that were not rated are counted."""
        has_ips = self.has_unobserved and (self.unit == "row" or self.universe is not None)
        return ("snips",) + ("ips",) * has_ips + ("exact",) * (self.max_weight is not None)

    @property
    def pairs(self) -> list[tuple[int, int]]:
        return list(combinations(range(len(self.models)), 2))

    def find_metrics(self) -> list[Metric]:
        """The metrics; an error for one that cannot be computed row by row."""
        metrics = find_metrics(list(self.metrics), relevance_threshold=None)
        for metric in metrics:
            if not _is_computed_by_row(metric):
                raise UsageError(
                    f"{metric.name!r} depends on other rows of the log, which a growing log does "
                    "not have yet.",
                    parameter="metrics",
                    value=metric.name,
                    remedy="Use mse or mae, or call evaluate(..., sequence=True) at each look.",
                    shell_remedy="Use mse or mae.",
                )
        return metrics


def _is_computed_by_row(metric: Metric) -> bool:
    """Whether the delta of a row follows from its rating and its prediction alone.

    The metric is called with two rows together and with each of them singly. A metric that reads
    another row, such as the mean rating of the batch, gives different deltas.
    """
    if metric.ranks:
        return False
    unused: Any = None  # the ids: a metric that reads them raises an error
    rating, prediction = np.array([1.0, 2.0]), np.array([2.0, 5.0])
    try:
        together, first, second = (
            metric(MetricInput(rating[rows], unused, unused, prediction=prediction[rows]))
            for rows in (slice(0, 2), slice(0, 1), slice(1, 2))
        )
    except (TypeError, AttributeError, LookupError, ValueError, UnskewError):
        return False
    if together.base is not None or together.is_root:
        return False
    return np.array_equal(together.value, np.concatenate([first.value, second.value]))


LOOKS_UNTIL_PLAN = 50
"""Looks that are kept until the planned size, unless the caller says how often to look."""
MAX_LOOKS = 400
"""A longer path keeps every second look."""

MAX_ROWS = 2**53
"""More rows have no exact number as a float."""
MAX_SUM = 1e150
"""The square of a larger sum is no number any more."""

Look: TypeAlias = dict[str, Any]
"""What one look found: n_rows, n_units, effective_size, rows and differences."""
Numbers: TypeAlias = tuple[float, float | None, float | None, float | None]
"""A value, its limits and its p-value; None if it is too early for them."""


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """Rows that arrive together: their weights, deltas and users."""

    weight: Vector
    """1/P; 0 for a row that was not rated."""
    delta: npt.NDArray[np.float64]
    """Metrics x models x rows; 0 for a row that was not rated."""
    users: list[str]
    """Empty if rows are the units."""

    def take(self, rows: slice) -> Batch:
        return Batch(self.weight[rows], self.delta[:, :, rows], self.users[rows])

    def weighted_sums(self, metric: int) -> Matrix:
        """Rows x (models + 1): h delta of each model, and h."""
        return np.column_stack([(self.delta[metric] * self.weight).T, self.weight])


@dataclass(frozen=True, slots=True, eq=False)
class MonitorState:
    """Sums over all rows so far; the same, bit for bit, however rows were cut into batches."""

    n_rows: int
    n_observed: int
    sum_of_weights: float
    """Sum of 1/P."""
    moments: tuple[UnitMoments, ...]
    """By metric, over rows; empty sums if users are the units."""
    users: dict[str, int]
    """By user: the line of ``by_user``."""
    by_user: npt.NDArray[np.float64]
    """Metrics x users x (models + 1)."""
    exact: tuple[BernsteinSequence, ...]
    """Of each model, then of each pair of models."""
    step: int
    """A look is kept after so many rows."""
    path: tuple[Look, ...] = field(default=())

    @classmethod
    def empty(cls, plan: MonitorPlan) -> MonitorState:
        """The state before the first row."""
        n_models, exact = len(plan.models), []
        if plan.max_weight is not None and plan.max_delta is not None:
            high = plan.max_weight * plan.max_delta
            lows = [0.0] * n_models + [-high] * len(plan.pairs)
            exact = [BernsteinSequence(low=low, high=high, level=plan.level) for low in lows]
        moments = tuple(UnitMoments.empty(n_models) for _ in plan.metrics)
        by_user = np.zeros((len(plan.metrics), 0, n_models + 1))
        step = plan.look_every or max(plan.planned_size // LOOKS_UNTIL_PLAN, 1)
        return cls(0, 0, 0.0, moments, {}, by_user, tuple(exact), step)

    def add(self, plan: MonitorPlan, batch: Batch) -> MonitorState:
        """The state after more rows."""
        sums = [batch.weighted_sums(metric) for metric in range(len(self.moments))]
        sum_of_weights = float(np.cumsum(np.append(self.sum_of_weights, batch.weight))[-1])
        state = replace(
            self,
            n_rows=self.n_rows + len(batch.weight),
            n_observed=self.n_observed + int((batch.weight > 0).sum()),
            sum_of_weights=sum_of_weights,
        )
        if plan.unit == "user":
            state = state._add_to_users(batch.users, np.stack(sums))
        else:
            pairs = zip(self.moments, sums, strict=True)
            state = replace(state, moments=tuple(old.update(new) for old, new in pairs))
        if self.exact:
            models = list(sums[0][:, :-1].T)
            models += [models[first] - models[second] for first, second in plan.pairs]
            exact = (old.update(new) for old, new in zip(self.exact, models, strict=True))
            state = replace(state, exact=tuple(exact))
        return state

    def _add_to_users(self, ids: list[str], sums: npt.NDArray[np.float64]) -> MonitorState:
        """Add rows to the sums of their users; ``ids`` has the user of each row.

        ``sums`` is metrics x rows x (models + 1). A new user gets a line in ``by_user``.
        """
        users = dict(self.users)
        codes = np.array([users.setdefault(each, len(users)) for each in ids], dtype=np.intp)
        n_new = len(users) - len(self.users)
        by_user = np.pad(self.by_user, ((0, 0), (0, n_new), (0, 0)))
        for metric, metric_sums in zip(by_user, sums, strict=True):
            np.add.at(metric, codes, metric_sums)
        return replace(self, users=users, by_user=by_user)

    @property
    def is_finite(self) -> bool:
        """Whether no sum is so large that limits cannot be computed from it."""
        sums = [np.array([self.sum_of_weights]), self.by_user]
        sums += [array for each in self.moments for array in each.sums]
        sums += [np.array(each.sums, np.float64) for each in self.exact]
        return all(bool((np.abs(array) < MAX_SUM).all()) for array in sums)

    def find_moments(self, metric: int) -> UnitMoments:
        """The moments of one metric over units."""
        if not self.users:
            return self.moments[metric]
        return self.moments[metric].update(self.by_user[metric])

    def keep_look(self, look: Look) -> MonitorState:
        """With one more look; a long path keeps every second look, whatever the batches."""
        path, step = (*self.path, look), self.step
        if len(path) > MAX_LOOKS:
            step *= 2
            path = tuple(each for each in path if each["n_rows"] % step == 0)
        return replace(self, path=path, step=step)

    def to_record(self) -> dict[str, Any]:
        """Numbers and lists of numbers, from which :meth:`from_record` restores the state."""
        return {
            "n_rows": self.n_rows,
            "n_observed": self.n_observed,
            "mass": self.sum_of_weights,
            "moments": [
                [each.n_units, *(array.tolist() for array in each.sums)] for each in self.moments
            ],
            "users": list(self.users),
            "by_user": self.by_user.tolist(),
            "exact": [[each.n_units, list(each.sums)] for each in self.exact],
            "step": self.step,
            "path": list(self.path),
        }

    @classmethod
    def from_record(cls, plan: MonitorPlan, record: Mapping[str, Any]) -> MonitorState:
        """The state of a plan from its record; an error if the two do not fit."""
        empty, n_models = cls.empty(plan), len(plan.models)
        users = {str(user): code for code, user in enumerate(record["users"])}
        size = n_models + 1
        moments = tuple(
            start.with_sums(int(n), *sums)
            for start, (n, *sums) in zip(empty.moments, record["moments"], strict=True)
        )
        by_user = np.array(record["by_user"], np.float64)
        exact = tuple(
            replace(start, n_units=int(n), sums=BernsteinSums._make(map(float, sums)))
            for start, (n, sums) in zip(empty.exact, record["exact"], strict=True)
        )
        state = cls(
            record["n_rows"],
            record["n_observed"],
            float(record["mass"]),
            moments,
            users,
            by_user.reshape(len(plan.metrics), len(users), size),
            exact,
            record["step"],
            tuple(record["path"]),
        )
        for name in ("n_rows", "n_observed"):
            WholeNumber()(name, getattr(state, name))
        WholeNumber(least=1)("step", state.step)
        counts = [state.n_observed, *(each.n_units for each in state.moments)]
        counts += [each.n_units for each in state.exact]
        if not (state.is_finite and 0 <= min(counts) <= max(counts) <= state.n_rows <= MAX_ROWS):
            raise ValueError("its numbers are impossible")
        for look in (*state.path, take_look(plan, state)):
            _check_look(plan, look, state.n_rows)
        return state


LOOK_TABLES = {"rows": "estimate", "differences": "difference"}
"""The tables of a look, and the column that has their values."""


def _check_look(plan: MonitorPlan, look: Look, n_rows: int) -> None:
    """Raise an error unless a look has the tables and the numbers that pages of the plan need."""
    for name in ("n_rows", "n_units"):
        WholeNumber()(name, look[name])
    Number(least=0)("effective_size", look["effective_size"])
    if look["n_rows"] > n_rows or set(look) - {"n_rows", "n_units", "effective_size", *LOOK_TABLES}:
        raise ValueError("a look of its path is impossible")
    subjects: dict[str, list[tuple[str, ...]]] = {
        "rows": [(model,) for model in plan.models],
        "differences": [(plan.models[one], plan.models[other]) for one, other in plan.pairs],
    }
    for table, value in LOOK_TABLES.items():
        names = ("model",) if table == "rows" else ("first", "second")
        limits = ("ci_low", "ci_high", *(("p_value",) if table == "differences" else ()))
        for row in look[table]:
            subject = tuple(row[name] for name in names)
            is_planned = row["metric"] in plan.metrics and row["estimator"] in plan.estimators
            if not is_planned or subject not in subjects[table]:
                raise ValueError(f"a look has {subject}, which the plan has not")
            Number()(value, row[value])
            for name in limits:
                Number(allow_none=True)(name, row[name])
            if (row["ci_low"] is None) != (row["ci_high"] is None):
                raise ValueError("a look has one limit of two")


def take_look(plan: MonitorPlan, state: MonitorState) -> Look:
    """The risks of all models and the differences of all pairs, by metric and estimator."""
    rows: list[dict[str, Any]] = []
    differences: list[dict[str, Any]] = []
    n_units, effective_size = state.n_rows, 0.0
    for number, metric in enumerate(plan.metrics):
        moments = state.find_moments(number)
        n_units, effective_size = moments.n_units, moments.effective_size
        if effective_size > 0:
            for estimator in plan.estimators:
                tables = _estimate(plan, state, moments, estimator)
                for table, numbers in zip((rows, differences), tables, strict=True):
                    table += [{"metric": metric, "estimator": estimator} | row for row in numbers]
    return {
        "n_rows": state.n_rows,
        "n_units": n_units,
        "effective_size": effective_size,
        "rows": rows,
        "differences": differences,
    }


def _estimate(
    plan: MonitorPlan, state: MonitorState, moments: UnitMoments, estimator: str
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The risks of all models, and the differences of all pairs."""
    if estimator == "exact":
        numbers: list[Numbers] = [(each.value, *each.limits(), None) for each in state.exact]
    else:
        numbers = list(_estimate_asymptotically(plan, moments, estimator))
    rows = [
        {"model": model, "estimate": value, "ci_low": low, "ci_high": high}
        for model, (value, low, high, _) in zip(plan.models, numbers, strict=False)
    ]
    differences = [
        {
            "first": plan.models[first],
            "second": plan.models[second],
            "difference": value,
            "ci_low": low,
            "ci_high": high,
            "p_value": p_value,
        }
        for (first, second), (value, low, high, p_value) in zip(
            plan.pairs, numbers[len(plan.models) :], strict=True
        )
    ]
    return rows, differences


def _estimate_asymptotically(
    plan: MonitorPlan, moments: UnitMoments, estimator: str
) -> Iterator[Numbers]:
    """Value, limits and p-value of each model, then of each pair; None if it is too early."""
    n_items = 1 if plan.unit == "row" or plan.universe is None else plan.universe[1]
    mean = moments.ratio() if estimator == "snips" else moments.mean(size=n_items)
    clock = SequenceClock(moments.n_units, plan.planned_size, moments.effective_size)
    estimate = Estimate(mean.value, mean.covariance, moments=mean.moments, clock=clock)
    level = plan.level
    intervals = [estimate.of(model, level=level) for model in range(len(plan.models))]
    intervals += [estimate.difference(*pair, level=level) for pair in plan.pairs]
    for each in intervals:
        is_known = math.isfinite(each.low) and math.isfinite(each.high)
        yield each.value, *((each.low, each.high, each.p_value) if is_known else (None,) * 3)
