"""Risks of a growing log, with confidence limits that hold at every look, from a small state."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt

from unskew.data.checks import float_array
from unskew.data.frames import check_same_order
from unskew.data.ids import as_ids, require_no_missing_ids
from unskew.data.propensities import Propensities
from unskew.data.result import DrawableResult, describe_json
from unskew.data.universe import UniverseLike, parse_universe
from unskew.errors import (
    BadFileError,
    BadPredictionError,
    BadPropensityError,
    BadRatingError,
    UsageError,
)
from unskew.evaluation.monitor_state import Batch, Look, MonitorPlan, MonitorState, take_look
from unskew.io.model_files import require_regular
from unskew.io.writing import as_path, write_file
from unskew.metrics.metric import MetricInput
from unskew.settings import Flag, Instance, require_list
from unskew.tables import count_noun
from unskew.types import BoolVector, Vector

KIND = "monitor"
FORMAT = 2


class Monitor:
    """Watches a growing log: risks and differences with confidence limits that hold at every look.

    Parameters
    ----------
    models
        Names of the models whose predictions come with each row.
    planned_size
        The number of rows (or users with ``unit="user"``) that the log is planned to have, at
        which the limits are narrowest. Fix it before the first row; the log may get longer.
    metrics
        Names of metrics that need one row at a time: ``mse``, ``mae``.
    level
        Confidence level: the limits of a number hold at all looks together with this probability.
    unit
        What is independent. ``"row"``: each row, such as one impression. ``"user"``: all rows of
        a user together; the state then keeps one line for each user.
    look_every
        The number of rows between two looks that ``path`` keeps; by default it keeps 50 looks
        until the planned size.
    has_unobserved
        Whether the log also has the cells that were shown but not rated; their rating is NaN.
        IPS needs them, SNIPS does not.
    universe
        (n_users, n_items), to tell which share of all cells the log stands for so far, and for
        IPS with ``unit="user"``.
    max_weight, max_delta
        The largest 1/P and the largest delta that can occur; a row with a larger value is an
        error. With both, the result also has exact confidence limits of IPS, which need no large
        sample.

    The propensities must be fixed when a row arrives, not estimated again from the same log.

    Examples
    --------
    >>> monitor = Monitor(["old", "new"], planned_size=10_000, metrics=["mae"])
    >>> rng = np.random.default_rng(0)
    >>> rating = rng.integers(1, 6, 500)
    >>> predictions = {"old": rng.normal(rating, 1.0), "new": rng.normal(rating, 0.5)}
    >>> monitor.update(rating, predictions, np.full(500, 0.1))
    >>> monitor.watch()
    model  metric  estimator  estimate  ci_low  ci_high
    old    mae     snips         0.787   0.657    0.933
    new    mae     snips         0.378   0.315    0.448
    500 rows, effective sample size 500; limits of 95% at all looks, planned size 10,000 rows
    the propensities of the rows are taken as known, and only metrics of single rows are watched
    """

    def __init__(
        self,
        models: Sequence[str],
        *,
        planned_size: int,
        metrics: Sequence[str] = ("mse", "mae"),
        level: float = 0.95,
        unit: Literal["row", "user"] = "row",
        look_every: int | None = None,
        has_unobserved: bool = False,
        universe: UniverseLike = None,
        max_weight: float | None = None,
        max_delta: float | None = None,
    ) -> None:
        for name, names in (("models", models), ("metrics", metrics)):
            require_list(name, names, of="names", allow_none=False)
        Flag()("has_unobserved", has_unobserved)
        size = None if universe is None else parse_universe(universe)
        self._start(
            MonitorPlan(
                models=tuple(models),
                planned_size=planned_size,
                metrics=tuple(metrics),
                level=level,
                unit=unit,
                look_every=look_every,
                has_unobserved=has_unobserved,
                universe=None if size is None else (size.n_users, size.n_items),
                max_weight=max_weight,
                max_delta=max_delta,
            )
        )

    @classmethod
    def from_plan(cls, plan: MonitorPlan) -> Monitor:
        """A monitor of a plan, without any rows."""
        Instance(MonitorPlan)("plan", plan)
        monitor = cls.__new__(cls)
        monitor._start(plan)
        return monitor

    def _start(self, plan: MonitorPlan) -> None:
        self.plan = plan
        self._metrics = plan.find_metrics()
        self._state = MonitorState.empty(plan)
        self.position: dict[str, Any] = {}
        """Where the caller stopped reading; saved with the state."""

    @property
    def n_rows(self) -> int:
        """Rows so far, including those that were not rated."""
        return self._state.n_rows

    def update(
        self,
        rating: npt.ArrayLike,
        predictions: Mapping[str, npt.ArrayLike],
        propensities: npt.ArrayLike | Propensities,
        *,
        users: npt.ArrayLike | None = None,
    ) -> None:
        """Add rows, in the order in which they arrived; an error leaves everything as it was.

        ``users`` has the user of each row, for ``unit="user"``.
        """
        with np.errstate(over="ignore"):  # sums that overflow are refused
            self._add(self._read_batch(rating, predictions, propensities, users))

    def _add(self, batch: Batch) -> None:
        state, start, n = self._state, 0, len(batch.weight)
        while start < n:
            stop = min(n, start + state.step - state.n_rows % state.step)
            state = state.add(self.plan, batch.take(slice(start, stop)))
            start = stop
            if not state.is_finite:
                raise BadPredictionError(
                    f"the sums of the deltas are too large after row {start - 1:,} of this batch.",
                    parameter="predictions",
                    remedy="Predictions must be near the ratings, and propensities not near 0.",
                )
            if state.n_rows % state.step == 0:
                state = state.keep_look(take_look(self.plan, state))
        self._state = state

    def watch(self) -> Watch:
        """What the log shows now, and the path to it."""
        state = self._state
        return Watch(
            self.plan,
            {metric.name: metric.higher_is_better for metric in self._metrics},
            take_look(self.plan, state),
            state.path,
            state.n_observed,
            state.sum_of_weights,
        )

    def save(self, path: str | Path) -> None:
        """Write the state as JSON. An existing file is replaced in one step."""
        record = describe_json(KIND) | {
            "format": FORMAT,
            "plan": asdict(self.plan),
            "state": self._state.to_record(),
            "position": self.position,
        }
        write_file(as_path(path), (json.dumps(record) + "\n").encode())

    @classmethod
    def load(cls, path: str | Path) -> Monitor:
        """The monitor that :meth:`save` wrote; it goes on to the same numbers."""
        try:
            require_regular(as_path(path))
            record = json.loads(as_path(path).read_text(encoding="utf-8"))
            if record["kind"] != KIND or record["format"] != FORMAT:
                raise ValueError(
                    f"it is of the kind {record['kind']!r} and the format {record['format']!r}, "
                    f"not {KIND!r} and {FORMAT!r}"
                )
            settings: dict[str, Any] = {
                name: tuple(value) if isinstance(value, list) else value
                for name, value in record["plan"].items()
            }
            monitor = cls.from_plan(MonitorPlan(**settings))
            monitor._state = MonitorState.from_record(monitor.plan, record["state"])
            monitor.position = dict(record["position"])
        except (
            LookupError,
            TypeError,
            ValueError,
            AttributeError,
            OSError,
            ArithmeticError,
            RecursionError,
        ) as error:
            raise BadFileError(
                f"{path} is not the state of a monitor ({type(error).__name__}: {error}).",
                where=str(path),
                remedy="Name another file, or delete it and count the log from its start.",
            ) from error
        return monitor

    def _read_batch(
        self,
        rating: npt.ArrayLike,
        predictions: Mapping[str, npt.ArrayLike],
        propensities: npt.ArrayLike | Propensities,
        users: npt.ArrayLike | None,
    ) -> Batch:
        plan = self.plan
        Instance(Mapping, remedy="Pass predictions by model.")("predictions", predictions)
        _require_known(propensities)
        check_same_order(
            {"rating": rating, "propensities": propensities, "users": users}
            | {f"predictions of {name}": values for name, values in predictions.items()}
        )
        values = float_array(rating, "rating", BadRatingError)
        if values.ndim != 1:
            raise BadRatingError(
                f"`rating` must be one column; got shape {values.shape}.", parameter="rating"
            )
        is_observed = np.isfinite(values)
        if np.isinf(values).any() or not (plan.has_unobserved or is_observed.all()):
            row = int((~is_observed).argmax())
            raise BadRatingError(
                f"{int((~is_observed).sum()):,} of {values.size:,} ratings are missing or "
                f"infinite; the first is in row {row}.",
                parameter="rating",
                where=f"row {row}",
                remedy="If they were shown but not rated, pass `has_unobserved=True`; else "
                "leave these rows out.",
            )
        propensity = _read_column("propensities", propensities, values.size, BadPropensityError)
        observed = Propensities(propensity[is_observed]).values
        weight = np.zeros(values.size)
        weight[is_observed] = 1.0 / observed
        delta = np.zeros((len(self._metrics), len(plan.models), values.size))
        for position, name in enumerate(plan.models):
            if name not in predictions:
                raise BadPredictionError(
                    f"this batch has no predictions of the model {name!r}; it has those of "
                    f"{', '.join(map(repr, predictions)) or 'none'}.",
                    parameter="predictions",
                    value=name,
                    remedy="Pass the predictions of every model that the monitor was made for.",
                )
            column = _read_column(name, predictions[name], values.size, BadPredictionError)
            _require_finite(name, column, is_observed)
            cells = MetricInput(
                values[is_observed],
                np.zeros(len(observed), np.int32),
                values[is_observed],
                prediction=column[is_observed],
            )
            for number, metric in enumerate(self._metrics):
                delta[number, position, is_observed] = metric(cells).value
        self._require_stated_maxima(weight, delta)
        return Batch(weight, delta, self._read_users(users, values.size))

    def _require_stated_maxima(self, weight: Vector, delta: npt.NDArray[np.float64]) -> None:
        for name, most, values in (
            ("max_weight", self.plan.max_weight, weight),
            ("max_delta", self.plan.max_delta, delta.max(axis=(0, 1))),
        ):
            if most is not None and weight.size and float(values.max()) > most * (1 + 1e-9):
                row = int(values.argmax())
                raise BadPropensityError(
                    f"row {row} has {values[row]:g}, above the stated `{name}={most:g}`: exact "
                    "confidence limits would be wrong.",
                    parameter=name,
                    value=float(values[row]),
                    where=f"row {row}",
                    remedy=f"Watch the log from its first row again, with a larger `{name}`.",
                )

    def _read_users(self, users: npt.ArrayLike | None, n_rows: int) -> list[str]:
        if self.plan.unit == "row":
            if users is not None:
                require_no_missing_ids(as_ids(users, "users"), kind="user")
            return []
        if users is None:
            raise UsageError(
                "the users of the rows are missing, but users are the units.",
                parameter="users",
                remedy="Pass `users=...`, one for each row.",
            )
        user_ids = require_no_missing_ids(as_ids(users, "users"), kind="user")
        ids = [str(each) for each in user_ids.tolist()]
        if len(ids) != n_rows:
            raise UsageError(
                f"there are ids of {count_noun(len(ids), 'user')} for {count_noun(n_rows, 'row')}.",
                parameter="users",
                remedy="Pass the user of each row.",
            )
        return ids


def _require_known(propensities: object) -> None:
    if isinstance(propensities, Propensities) and propensities.estimation is not None:
        raise UsageError(
            f"these propensities were estimated by {propensities.estimation.model}; a confidence "
            "sequence (limits that hold at every look) needs propensities that stay the same while "
            "the log grows.",
            parameter="propensities",
            remedy="Pass those that the logging system recorded. For a model of an earlier log "
            "see evaluate(..., sequence=True), which adds its error.",
        )


def _read_column(name: str, values: Any, n_rows: int, error: type[Any]) -> Vector:
    column = float_array(values, name, error)
    if column.shape != (n_rows,):
        raise error(
            f"{name!r} has the shape {column.shape} for {count_noun(n_rows, 'row')}.",
            parameter=name,
            remedy="Pass one number for each row.",
        )
    return column


def _require_finite(name: str, column: Vector, is_observed: BoolVector) -> None:
    is_bad = is_observed & ~np.isfinite(column)
    if is_bad.any():
        row = int(is_bad.argmax())
        raise BadPredictionError(
            f"model {name!r}: {int(is_bad.sum()):,} of {int(is_observed.sum()):,} predictions of "
            f"rated rows are missing or infinite; the first is in row {row}.",
            parameter="predictions",
            where=f"row {row}",
            remedy="Predict those rows, or leave them out.",
        )


TOO_EARLY = "too early"
ASSUMPTION = (
    "the propensities of the rows are taken as known, and only metrics of single rows are watched"
)
MAX_MASS = 1.2
"""Inverse propensities that add up to more than this share of all cells cannot be right."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Watch(DrawableResult):
    """What a growing log shows at this look, and at the looks before it."""

    kind: ClassVar[str] = "watch"
    plan: MonitorPlan
    metrics: Mapping[str, bool]
    """By name: whether higher is better."""
    look: Look
    path: tuple[Look, ...]
    n_observed: int
    sum_of_weights: float

    @property
    def is_early(self) -> bool:
        """Whether it is too early for the limits of SNIPS and IPS."""
        rows = self.look["rows"]
        return not rows or any(row["ci_low"] is None for row in rows)

    @property
    def warnings(self) -> list[str]:
        """What may be wrong with the propensities, as sentences."""
        share = self.mass_share
        if share is None or share <= MAX_MASS:
            return []
        return [
            f"The inverse propensities add up to {share:.0%} of all cells: cells occur more than "
            "once, or the propensities or the universe are wrong."
        ]

    @property
    def mass_share(self) -> float | None:
        """The share of all cells that the rated rows stand for; None without a universe."""
        if self.plan.universe is None:
            return None
        return self.sum_of_weights / (self.plan.universe[0] * self.plan.universe[1])

    def to_columns(self) -> dict[str, list[Any]]:
        """Model, metric, estimator, estimate, ci_low, ci_high; None if it is too early."""
        names = ("model", "metric", "estimator", "estimate", "ci_low", "ci_high")
        return {name: [row[name] for row in self.look["rows"]] for name in names}

    def difference_columns(self) -> dict[str, list[Any]]:
        """First and second model, metric, estimator, difference, ci_low, ci_high, p_value."""
        names = ("first", "second", "metric", "estimator", "difference", "ci_low", "ci_high")
        columns = (*names, "p_value")
        return {name: [row[name] for row in self.look["differences"]] for name in columns}

    def to_record(self) -> dict[str, Any]:
        """The last look, the path to it, and how they were computed."""
        return {
            **asdict(self.plan),
            "metrics": dict(self.metrics),
            "estimators": list(self.plan.estimators),
            "n_observed": self.n_observed,
            "mass_share": self.mass_share,
            "is_early": self.is_early,
            "assumption": ASSUMPTION,
            "look": self.look,
            "path": list(self.path),
            "warnings": self.warnings,
        }

    def describe(self) -> str:
        """How far the log has come and what the limits mean, in two lines."""
        units = f"{self.plan.unit}s"
        sizes = count_noun(self.look["n_rows"], "row")
        if self.plan.has_unobserved:
            sizes += f" ({self.n_observed:,} rated)"
        if self.plan.unit == "user":
            sizes += f" of {count_noun(self.look['n_units'], 'user')}"
        effective = self.look["effective_size"]
        text = (
            f"{sizes}, effective sample size {effective:,.0f}; "
            f"limits of {self.plan.level:.0%} at all looks, "
            f"planned size {self.plan.planned_size:,} {units}"
        )
        early = "; too early: limits begin at an effective sample size of 100, once rows differ"
        return f"{text}{early * self.is_early}\n{ASSUMPTION}"

    def _shown_columns(self) -> dict[str, list[Any]]:
        return mark_early(self.to_columns())

    def _footer(self) -> list[str]:
        return [self.describe()]


def mark_early(columns: Mapping[str, list[Any]]) -> dict[str, list[Any]]:
    """Columns to print: "too early" in place of limits, and a dash for other missing numbers."""
    return {
        name: [
            (TOO_EARLY if name.startswith("ci_") else "-") if value is None else value
            for value in values
        ]
        for name, values in columns.items()
    }
