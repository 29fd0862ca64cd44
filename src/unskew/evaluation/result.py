"""What :func:`unskew.evaluate` returns."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from unskew.data.frames import make_frame
from unskew.data.result import describe_json
from unskew.data.universe import Universe
from unskew.errors import UnknownNameError
from unskew.estimators.estimate import Estimate
from unskew.estimators.health import WeightSummary
from unskew.evaluation.evidence import Evidence
from unskew.evaluation.portrait import portrait
from unskew.plugins import load_report_function
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


@dataclass(frozen=True, slots=True)
class Comparison:
    """One model minus another, paired cell by cell."""

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
        """The better model, or None while the interval holds zero."""
        if not (self.ci_low > 0 or self.ci_high < 0):
            return None
        return self.first if (self.difference > 0) == self.higher_is_better else self.second

    def __str__(self) -> str:
        verdict = (
            "cannot be told apart from"
            if self.better is None
            else ("beats" if self.better == self.first else "loses to")
        )
        return (
            f"{self.first} {verdict} {self.second} on {self.metric} by {self.estimator}: "
            f"difference {self.difference:+.4g} [{self.ci_low:+.4g}, {self.ci_high:+.4g}] "
            f"at {self.level:.0%}, {_show_p(self.p_value)}"
        )

    def to_columns(self) -> dict[str, list[Any]]:
        """All fields and which model is better, as a table of one row."""
        return {name: [value] for name, value in (asdict(self) | {"better": self.better}).items()}

    def to_frame(self, backend: str | None = None) -> Any:
        """The table as a data frame of the named library, or of the first one installed."""
        return make_frame(self.to_columns(), backend)

    def to_json(self) -> str:
        """All fields, and which model is better."""
        return json.dumps(describe_json("comparison") | asdict(self) | {"better": self.better})

    def to_html(self, path: str | Path) -> Path:
        """The difference as a page, as one HTML file that needs nothing else. Returns its path."""
        page: Path = load_report_function("write_page")(self.to_json(), path)
        return page

    def _repr_html_(self) -> str:
        return html_table(self.to_columns())


def _show_p(value: float) -> str:
    return f"p = {value:.2g}" if value > 1e-300 else "p < 1e-300"


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Evaluation:
    """Risks of several models by several metrics and estimators, from one log."""

    models: tuple[str, ...]
    metrics: Mapping[str, bool]
    """Names of the metrics; True where higher is better."""
    estimators: tuple[str, ...]
    estimates: Mapping[tuple[str, str], Estimate]
    """By (metric, estimator)."""
    level: float
    n_observed: int
    intervals: str
    """How the intervals were made, in words."""
    universe: Universe | None = None
    health: WeightSummary | None = None
    """How far the weights can be trusted; None where no estimator weighted."""
    n_touched: int = 0
    """Weights that the transform changed."""
    backend: str | None = None
    cells: Evidence | None = None
    """What the estimates were computed from, for :func:`unskew.sensitivity`; None where that was not kept."""
    n_dropped: int = 0
    """Rows that were left out for a bad value, where the caller asked for that."""

    def __iter__(self) -> Iterator[Risk]:
        for metric in self.metrics:
            for model in self.models:
                for estimator in self.estimators:
                    yield self.risk(model, metric=metric, estimator=estimator)

    def risk(self, model: str, *, metric: str, estimator: str) -> Risk:
        """One cell of the table."""
        interval = self._estimate(metric, estimator).of(self._model(model), level=self.level)
        return Risk(
            model,
            metric,
            estimator,
            interval.value,
            interval.std_error,
            interval.low,
            interval.high,
        )

    def compare(self, first: str, second: str, *, metric: str, estimator: str) -> Comparison:
        """``first`` minus ``second`` with its own interval: narrower than what two separate ones suggest."""
        estimate = self._estimate(metric, estimator)
        interval = estimate.difference(self._model(first), self._model(second), level=self.level)
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

    def to_columns(self) -> dict[str, list[Any]]:
        """Model, metric, estimator, estimate, std_error, ci_low, ci_high: a list each."""
        rows = [asdict(risk) for risk in self]
        return {name: [row[name] for row in rows] for name in rows[0]}

    def to_frame(self, backend: str | None = None) -> Any:
        """The table as a data frame of the caller's own library, or of the named one."""
        return make_frame(self.to_columns(), backend or self.backend)

    def differences(self) -> Iterator[Comparison]:
        """By every metric and estimator: the model with the best estimate against each of the others."""
        for metric, higher_is_better in self.metrics.items():
            for estimator in self.estimators:
                values = self.estimates[metric, estimator].value
                best = self.models[int(values.argmax() if higher_is_better else values.argmin())]
                others = (model for model in self.models if model != best)
                yield from (
                    self.compare(best, other, metric=metric, estimator=estimator)
                    for other in others
                )

    def to_json(self) -> str:
        """The table, what it was computed from, and what a page shows of that."""
        return json.dumps(
            describe_json("evaluation")
            | {
                "level": self.level,
                "intervals": self.intervals,
                "n_observed": self.n_observed,
                "universe": None
                if self.universe is None
                else [self.universe.n_users, self.universe.n_items],
                "weights": None
                if self.health is None
                else asdict(self.health) | {"n_touched": self.n_touched},
                "rows": [asdict(risk) for risk in self],
                "models": list(self.models),
                "metrics": dict(self.metrics),
                "estimators": list(self.estimators),
                "differences": [
                    asdict(each) | {"better": each.better} for each in self.differences()
                ],
                "warnings": [
                    *([] if self.health is None else self.health.warning_texts()),
                    *self._gaps(),
                ],
            }
            | portrait(self.cells, self.models, level=self.level)
            | ({"n_dropped": self.n_dropped} if self.n_dropped else {})
        )

    def to_html(self, path: str | Path) -> Path:
        """Who is better, how sure that is and what it rests on, as one HTML file that needs nothing else. Returns its path."""
        page: Path = load_report_function("write_page")(self.to_json(), path)
        return page

    def plot(self, ax: Any = None) -> Any:
        """Every estimate with its interval, a panel a metric; ``ax`` takes an axes for each. Returns the matplotlib figure."""
        return load_report_function("draw")("evaluation", self, ax)

    def __repr__(self) -> str:
        return f"{text_table(self.to_columns())}\n{self._footer()}"

    def _repr_html_(self) -> str:
        return f"{html_table(self.to_columns())}<p>{self._footer()}</p>"

    def _footer(self) -> str:
        where = "" if self.universe is None else f" of {self.universe}"
        touched = f"; {count_noun(self.n_touched, 'weight')} transformed" if self.n_touched else ""
        dropped = f"; {count_noun(self.n_dropped, 'bad row')} dropped" if self.n_dropped else ""
        ess = (
            ""
            if self.health is None
            else f"; effective sample size {self.health.effective_sample_size:,.0f}"
        )
        left_out = "".join(
            f"; {metric} by {estimator} leaves out {n:,} without data"
            for (metric, estimator), n in self._left_out()
        )
        notes = f"{ess}{touched}{dropped}{left_out}"
        return f"{count_noun(self.n_observed, 'observed cell')}{where}; {self.level:.0%} intervals, {self.intervals}{notes}"

    def _gaps(self) -> Iterator[str]:
        return (
            f"{metric} by {estimator} leaves out {n:,} without data."
            for (metric, estimator), n in self._left_out()
        )

    def _left_out(self) -> Iterator[tuple[tuple[str, str], int]]:
        return (
            (names, estimate.n_left_out)
            for names, estimate in self.estimates.items()
            if estimate.n_left_out
        )

    def _estimate(self, metric: str, estimator: str) -> Estimate:
        if metric not in self.metrics:
            raise UnknownNameError("metric of this evaluation", metric, self.metrics)
        if estimator not in self.estimators:
            raise UnknownNameError("estimator of this evaluation", estimator, self.estimators)
        return self.estimates[metric, estimator]

    def _model(self, name: str) -> int:
        if name not in self.models:
            raise UnknownNameError("model of this evaluation", name, self.models)
        return self.models.index(name)
