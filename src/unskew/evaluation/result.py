"""The result of :func:`unskew.evaluate`: risks with intervals, and comparisons of models."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from html import escape
from pathlib import Path
from typing import Any, ClassVar

from unskew.data.result import Result
from unskew.data.universe import Universe
from unskew.errors import UnknownNameError, UsageError
from unskew.estimators.estimate import Estimate
from unskew.estimators.weight_summary import WeightSummary
from unskew.evaluation.distributions import describe_distributions
from unskew.evaluation.weight_changes import EvaluationInputs
from unskew.tables import count_noun, html_table, text_table


@dataclass(frozen=True, slots=True)
class Risk:
    """One model's value of one metric by one estimator."""

    model: str
    metric: str
    estimator: str
    estimate: float
    std_error: float
    ci_low: float
    ci_high: float


@dataclass(frozen=True, slots=True, repr=False)
class Comparison(Result):
    """The risk of one model minus that of another, paired cell by cell."""

    kind: ClassVar[str] = "comparison"
    first: str
    second: str
    metric: str
    estimator: str
    difference: float
    std_error: float
    ci_low: float
    ci_high: float
    p_value: float
    level: float
    higher_is_better: bool

    @property
    def better(self) -> str | None:
        """The better model, or None if the interval includes zero."""
        if not (self.ci_low > 0 or self.ci_high < 0):
            return None
        return self.first if (self.difference > 0) == self.higher_is_better else self.second

    def __str__(self) -> str:
        verdict = "cannot be told apart from"
        if self.better is not None:
            verdict = "beats" if self.better == self.first else "loses to"
        p_value = f"p = {self.p_value:.2g}" if self.p_value > 1e-300 else "p < 1e-300"
        return (
            f"{self.first} {verdict} {self.second} on {self.metric} by {self.estimator}: "
            f"difference {self.difference:+.4g} [{self.ci_low:+.4g}, {self.ci_high:+.4g}] "
            f"at {self.level:.0%}, {p_value}"
        )

    def to_columns(self) -> dict[str, list[Any]]:
        """All fields and the better model, as a table of one row."""
        return {name: [value] for name, value in self.to_record().items()}

    def to_record(self) -> dict[str, Any]:
        """All fields and the better model."""
        return asdict(self) | {"better": self.better}


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Evaluation(Result):
    """Risks of several models by several metrics and estimators, from one log."""

    kind: ClassVar[str] = "evaluation"
    models: tuple[str, ...]
    metrics: Mapping[str, bool]
    """By name: whether higher is better."""
    estimators: tuple[str, ...]
    estimates: Mapping[tuple[str, str], Estimate]
    """By (metric, estimator)."""
    level: float
    n_observed: int
    intervals: str
    """How the intervals were computed, in words."""
    universe: Universe | None = None
    weight_summary: WeightSummary | None = None
    """How uneven the weights are; None if no estimator uses weights."""
    n_transformed: int = 0
    """The number of weights that the weight transform changed."""
    backend: str | None = None
    inputs: EvaluationInputs | None = None
    """What the estimates were computed from, for :func:`unskew.sensitivity`; None if not kept."""
    n_dropped: int = 0
    """Rows that were dropped because of a bad value, if the caller allowed it."""

    def __iter__(self) -> Iterator[Risk]:
        for metric in self.metrics:
            for model in self.models:
                for estimator in self.estimators:
                    yield self.risk(model, metric=metric, estimator=estimator)

    def risk(self, model: str, *, metric: str, estimator: str) -> Risk:
        """The estimate of one model, with its interval."""
        interval = self._find_estimate(metric, estimator).of(
            self._find_model(model), level=self.level
        )
        limits = interval.value, interval.std_error, interval.low, interval.high
        return Risk(model, metric, estimator, *limits)

    def compare(self, first: str, second: str, *, metric: str, estimator: str) -> Comparison:
        """``first`` minus ``second``, paired.

        Its interval is usually narrower than the separate intervals of the two models suggest.
        """
        interval = self._find_estimate(metric, estimator).difference(
            self._find_model(first), self._find_model(second), level=self.level
        )
        return Comparison(
            first,
            second,
            metric,
            estimator,
            interval.value,
            interval.std_error,
            interval.low,
            interval.high,
            interval.p_value,
            self.level,
            self.metrics[metric],
        )

    def differences(self) -> Iterator[Comparison]:
        """By metric and estimator: the model with the best estimate against each other model."""
        for metric, higher_is_better in self.metrics.items():
            for estimator in self.estimators:
                values = self.estimates[metric, estimator].value
                best = self.models[int(values.argmax() if higher_is_better else values.argmin())]
                for model in self.models:
                    if model != best:
                        yield self.compare(best, model, metric=metric, estimator=estimator)

    def to_columns(self) -> dict[str, list[Any]]:
        """Model, metric, estimator, estimate, std_error, ci_low, ci_high."""
        rows = [asdict(risk) for risk in self]
        return {name: [row[name] for row in rows] for name in rows[0]}

    def to_record(self) -> dict[str, Any]:
        """The table, how it was computed, and the histograms of its page."""
        universe, weights, warnings = None, None, []
        if self.universe is not None:
            universe = [self.universe.n_users, self.universe.n_items]
        if self.weight_summary is not None:
            weights = asdict(self.weight_summary) | {"n_touched": self.n_transformed}
            warnings = self.weight_summary.warning_texts()
        record = {
            "level": self.level,
            "intervals": self.intervals,
            "n_observed": self.n_observed,
            "universe": universe,
            "weights": weights,
            "rows": [_drop_infinite(asdict(risk)) for risk in self],
            "models": list(self.models),
            "metrics": dict(self.metrics),
            "estimators": list(self.estimators),
            "differences": [_drop_infinite(each.to_record()) for each in self.differences()],
            "warnings": [*warnings, *(f"{text}." for text in self._describe_left_out())],
        } | describe_distributions(self.inputs, self.models, level=self.level)
        return record | ({"n_dropped": self.n_dropped} if self.n_dropped else {})

    def to_html(self, path: str | Path) -> Path:
        """Write the result as one self-contained HTML file; returns its path."""
        if any(each.clock is not None and each.clock.is_early for each in self.estimates.values()):
            raise UsageError(
                f"there is no page of an evaluation without limits: {self.intervals}.",
                remedy="Evaluate again when the log is longer.",
            )
        return Result.to_html(self, path)

    def plot(self, ax: Any = None) -> Any:
        """Every estimate with its interval, one panel for each metric.

        Returns the matplotlib figure. ``ax`` may be one axes for each metric.
        """
        return self._draw(ax)

    def __repr__(self) -> str:
        return f"{text_table(self.to_columns())}\n{self._footer()}"

    def _repr_html_(self) -> str:
        return f"{html_table(self.to_columns())}<p>{escape(self._footer())}</p>"

    def _footer(self) -> str:
        of_universe = "" if self.universe is None else f" of {self.universe}"
        notes = [
            f"{count_noun(self.n_observed, 'observed cell')}{of_universe}",
            f"{self.level:.0%} intervals, {self.intervals}",
        ]
        if self.weight_summary is not None:
            size = self.weight_summary.effective_sample_size
            notes.append(f"effective sample size {size:,.0f}")
        if self.n_transformed:
            notes.append(f"{count_noun(self.n_transformed, 'weight')} transformed")
        if self.n_dropped:
            notes.append(f"{count_noun(self.n_dropped, 'bad row')} dropped")
        return "; ".join([*notes, *self._describe_left_out()])

    def _describe_left_out(self) -> Iterator[str]:
        for (metric, estimator), estimate in self.estimates.items():
            if estimate.n_left_out:
                yield f"{metric} by {estimator} leaves out {estimate.n_left_out:,} without data"

    def _find_estimate(self, metric: str, estimator: str) -> Estimate:
        if metric not in self.metrics:
            raise UnknownNameError("metric of this evaluation", metric, self.metrics)
        if estimator not in self.estimators:
            raise UnknownNameError("estimator of this evaluation", estimator, self.estimators)
        return self.estimates[metric, estimator]

    def _find_model(self, name: str) -> int:
        if name not in self.models:
            raise UnknownNameError("model of this evaluation", name, self.models)
        return self.models.index(name)


def _drop_infinite(row: dict[str, Any]) -> dict[str, Any]:
    """The row with None for limits that do not exist yet."""
    return {
        name: None if isinstance(value, float) and math.isinf(value) else value
        for name, value in row.items()
    }
