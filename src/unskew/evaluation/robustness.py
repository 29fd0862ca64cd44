"""What :func:`unskew.sensitivity` returns."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from html import escape
from pathlib import Path
from typing import Any

import numpy as np

from unskew.data.frames import make_frame
from unskew.data.result import describe_json
from unskew.errors import UnknownNameError, UsageError
from unskew.estimators.estimate import Interval
from unskew.estimators.transforms import Clip
from unskew.evaluation.evidence import Evidence, Question
from unskew.plugins import load_report_function
from unskew.tables import count_noun, html_table, text_table

CLIP = "clip"
ODDS_ERROR = "odds_error"
MOST_ODDS_ERROR = 1e6
"""An order that outlasts this is said never to turn."""


@dataclass(frozen=True, slots=True)
class Shift:
    """One estimate under changed weights."""

    model: str
    metric: str
    estimator: str
    change: str
    """``clip`` or ``odds_error``."""
    amount: float
    """The largest weight allowed, or the factor by which odds may be off."""
    low: float
    """The least estimate; under clipping there is one only."""
    high: float
    ci_low: float
    ci_high: float
    share_clipped: float | None = None
    """Rows whose weight the clip changed."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Move:
    """A question and how its answer moves."""

    name: tuple[str, str, str]
    question: Question
    level: float

    def clipped(self, max_weight: float) -> Shift:
        """With weights min(w, max_weight)."""
        found = self.question.transformed(Clip(max_weight)).of(0, level=self.level)
        share = float((self.question.sample.weight > max_weight).mean())
        return Shift(
            *self.name, CLIP, max_weight, found.value, found.value, found.low, found.high, share
        )

    def under(self, odds_error: float) -> Shift:
        """With propensities whose odds are off by up to a factor."""
        least, largest = (
            self.extreme(odds_error, is_largest=False),
            self.extreme(odds_error, is_largest=True),
        )
        return Shift(
            *self.name, ODDS_ERROR, odds_error, least.value, largest.value, least.low, largest.high
        )

    def extreme(self, odds_error: float, *, is_largest: bool) -> Interval:
        """The least or the largest answer, with its interval there."""
        return self.question.extreme(odds_error, is_largest=is_largest).of(0, level=self.level)

    def holds_until(self, margin: Callable[[Interval], float], *, is_positive: bool) -> float:
        """The smallest odds error at which ``margin``, of the end nearer to zero, is not positive; infinite if it always is."""
        from scipy.optimize import brentq

        def left(log_factor: float) -> float:
            return margin(self.extreme(math.exp(log_factor), is_largest=not is_positive))

        if left(0.0) <= 0:
            return 1.0
        furthest = math.log(MOST_ODDS_ERROR)
        return math.inf if left(furthest) > 0 else math.exp(brentq(left, 0.0, furthest, xtol=1e-9))


@dataclass(frozen=True, slots=True)
class Robustness:
    """One model minus another, as far as the propensities can be trusted."""

    first: str
    second: str
    metric: str
    estimator: str
    difference: float
    higher_is_better: bool
    level: float
    flips_at: float
    """The smallest odds error at which the estimates could come in the other order; infinite if none does."""
    unsure_at: float
    """The smallest odds error at which the interval could hold zero; 1 if it does already."""
    shifts: tuple[Shift, ...] = field(repr=False)
    """Of the difference, under the clips and odds errors that were asked about."""

    @property
    def better(self) -> str | None:
        """The model with the better estimate, whatever the interval; None where they are equal."""
        if self.difference == 0:
            return None
        return self.first if (self.difference > 0) == self.higher_is_better else self.second

    def __str__(self) -> str:
        if self.better is None:
            return f"{self.first} and {self.second} are equal on {self.metric} by {self.estimator}"
        worse = self.second if self.better == self.first else self.first
        order = (
            "at any odds error"
            if math.isinf(self.flips_at)
            else f"up to odds error {self.flips_at:.3g}"
        )
        return (
            f"{self.better} is ahead of {worse} on {self.metric} by {self.estimator} {order}; "
            f"the {self.level:.0%} interval of the difference {self._interval()}"
        )

    def _interval(self) -> str:
        if self.unsure_at == 1:
            return "holds zero even with right propensities"
        return (
            "never holds zero"
            if math.isinf(self.unsure_at)
            else f"keeps off zero up to {self.unsure_at:.3g}"
        )

    def to_columns(self) -> dict[str, list[Any]]:
        """The shifts of the difference, a list a column."""
        return _columns(self.shifts)

    def to_frame(self, backend: str | None = None) -> Any:
        """The shifts as a data frame of the named library, or of the first one installed."""
        return make_frame(self.to_columns(), backend)

    def to_json(self) -> str:
        """All fields and which model is better; null in place of infinity."""
        fields = describe_json("robustness") | asdict(self) | {"better": self.better}
        return json.dumps(
            fields | {name: _finite(fields[name]) for name in ("flips_at", "unsure_at")}
        )

    def to_html(self, path: str | Path) -> Path:
        """How long the order holds, as one HTML file that needs nothing else. Returns its path."""
        page: Path = load_report_function("write_page")(self.to_json(), path)
        return page

    def _repr_html_(self) -> str:
        return f"{html_table(_shown(self.to_columns()))}<p>{escape(str(self))}</p>"


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Sensitivity:
    """Every estimate under clipped weights and under wrong propensities."""

    models: tuple[str, ...]
    metrics: Mapping[str, bool]
    """Names of the metrics; True where higher is better."""
    estimators: tuple[str, ...]
    """Those that weight."""
    level: float
    n_observed: int
    intervals: str
    shifts: tuple[Shift, ...]
    notes: tuple[str, ...] = ()
    """What does not apply to which estimator."""
    backend: str | None = None
    cells: Evidence | None = None

    def compare(self, first: str, second: str, *, metric: str, estimator: str) -> Robustness:
        """``first`` minus ``second``: its range, and the odds error from which their order could turn.

        The same worst case hits both models, cell by cell, so that the range of the difference is narrower than what two separate
        ranges suggest.
        """
        self._require((("model", first, self.models), ("model", second, self.models)))
        self._require(
            (("metric", metric, tuple(self.metrics)), ("estimator", estimator, self.estimators))
        )
        move = self._difference(first, second, metric, estimator)
        difference = move.extreme(1.0, is_largest=True).value
        is_positive, sign = difference > 0, math.copysign(1.0, difference)
        return Robustness(
            first,
            second,
            metric,
            estimator,
            difference,
            self.metrics[metric],
            self.level,
            flips_at=move.holds_until(lambda end: sign * end.value, is_positive=is_positive),
            unsure_at=move.holds_until(
                lambda end: end.low if is_positive else -end.high, is_positive=is_positive
            ),
            shifts=tuple(
                move.clipped(amount) if change == CLIP else move.under(amount)
                for change, amount in self._changes(estimator)
            ),
        )

    def _difference(self, first: str, second: str, metric: str, estimator: str) -> Move:
        if self.cells is None:
            raise UsageError(
                "this sensitivity does not hold the cells it was computed from. Run unskew.sensitivity anew."
            )
        unit = np.eye(len(self.models))
        contrast = unit[self.models.index(first)] - unit[self.models.index(second)]
        question = self.cells.question(metric, estimator, contrast)
        if not question.allows_odds_error:
            raise UsageError(
                f"the worst case of {estimator!r} under an odds error is not known; compare by 'ips' or 'snips'."
            )
        return Move((f"{first} - {second}", metric, estimator), question, self.level)

    def _changes(self, estimator: str) -> dict[tuple[str, float], None]:
        return dict.fromkeys(
            (shift.change, shift.amount) for shift in self.shifts if shift.estimator == estimator
        )

    def to_columns(self) -> dict[str, list[Any]]:
        """Model, metric, estimator, change, amount, low, high, ci_low, ci_high, share_clipped: a list each."""
        return _columns(self.shifts)

    def to_frame(self, backend: str | None = None) -> Any:
        """The table as a data frame of the caller's own library, or of the named one."""
        return make_frame(self.to_columns(), backend or self.backend)

    def to_json(self) -> str:
        """The table and what it was computed from."""
        return json.dumps(
            describe_json("sensitivity")
            | {
                "level": self.level,
                "intervals": self.intervals,
                "n_observed": self.n_observed,
                "notes": list(self.notes),
                "rows": [asdict(shift) for shift in self.shifts],
                "models": list(self.models),
                "metrics": dict(self.metrics),
                "estimators": list(self.estimators),
            }
        )

    def to_html(self, path: str | Path) -> Path:
        """The curve under clipping and the fan under odds errors, as one HTML file that needs nothing else. Returns its path."""
        page: Path = load_report_function("write_page")(self.to_json(), path)
        return page

    def plot(
        self, ax: Any = None, *, metric: str | None = None, estimator: str | None = None
    ) -> Any:
        """The curve under clipping and the fan under odds errors, of one metric by one estimator; by default the first of each.

        Returns the matplotlib figure. ``ax`` takes two axes to draw into, one where only one kind of change was asked about.
        """
        metric, estimator = metric or next(iter(self.metrics)), estimator or self.estimators[0]
        self._require(
            (("metric", metric, tuple(self.metrics)), ("estimator", estimator, self.estimators))
        )
        return load_report_function("draw")(
            "sensitivity", self, ax, metric=metric, estimator=estimator
        )

    def __repr__(self) -> str:
        return "\n".join([text_table(_shown(self.to_columns())), *self._footer()])

    def _repr_html_(self) -> str:
        return html_table(_shown(self.to_columns())) + "".join(
            f"<p>{escape(line)}</p>" for line in self._footer()
        )

    def _footer(self) -> list[str]:
        return [
            f"{count_noun(self.n_observed, 'observed cell')}; {self.level:.0%} intervals, {self.intervals}",
            *self.notes,
        ]

    def _require(self, names: tuple[tuple[str, str, tuple[str, ...]], ...]) -> None:
        for kind, name, valid in names:
            if name not in valid:
                raise UnknownNameError(f"{kind} of this sensitivity", name, valid)


def _columns(shifts: tuple[Shift, ...]) -> dict[str, list[Any]]:
    return {name: [getattr(shift, name) for shift in shifts] for name in Shift.__slots__}


def _shown(columns: dict[str, list[Any]]) -> dict[str, list[Any]]:
    """What fits a page."""
    return {name: values for name, values in columns.items() if name != "share_clipped"}


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
