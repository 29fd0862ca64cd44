"""What :func:`unskew.diagnose` returns."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from html import escape
from pathlib import Path
from textwrap import fill
from typing import Any, TypeAlias

from unskew.data.frames import make_frame
from unskew.data.result import describe_json
from unskew.data.universe import Universe
from unskew.diagnostics.balance import Balance
from unskew.diagnostics.calibration import Calibration
from unskew.diagnostics.coverage import Coverage
from unskew.diagnostics.fit import Fit
from unskew.diagnostics.truth import Accuracy
from unskew.diagnostics.weights import Weights
from unskew.errors import UnknownNameError, UsageError
from unskew.plugins import load_report_function
from unskew.tables import count_noun, html_table, text_table

Value: TypeAlias = float | int | str | None
PANELS = ("weights", "calibration", "balance")
PAGE = 80


@dataclass(frozen=True, slots=True, eq=False)
class DiagnosisRow:
    """All that was measured of one model's propensities; None where it is not defined."""

    name: str
    weights: Weights
    fit: Fit | None = None
    calibration: Calibration | None = None
    balance: Balance | None = None
    accuracy: Accuracy | None = None
    notes: tuple[str, ...] = ()
    """What could not be measured, and why."""

    def warning_texts(self) -> Iterator[str]:
        """What is wrong, with the numbers and what to do."""
        for part in (self.weights, self.fit, self.calibration, self.balance):
            if part is not None:
                yield from part.warning_texts()

    def measures(self) -> dict[str, Value]:
        """Every number by its name."""
        return {measure.name: measure.of(self) for measure in MEASURES}


@dataclass(frozen=True, slots=True)
class Measure:
    """A number that is read off a checkup."""

    name: str
    label: str | None
    """As the table calls it; None where it leaves it out."""
    of: Callable[[DiagnosisRow], Value]


def _part(part: str, name: str) -> Callable[[DiagnosisRow], Value]:
    """Reads ``checkup.part.name``, None where there is no such part."""

    def read(checkup: DiagnosisRow) -> Value:
        value: Value = getattr(getattr(checkup, part), name, None)
        return value

    return read


def _quantile(place: int) -> Callable[[DiagnosisRow], Value]:
    return lambda checkup: checkup.weights.quantiles[place]


MEASURES = (
    Measure("n_observed", "observed cells", lambda checkup: checkup.weights.health.n_observed),
    Measure(
        "effective_sample_size",
        "effective sample size",
        lambda checkup: checkup.weights.health.effective_sample_size,
    ),
    Measure(
        "sample_share",
        "  as a share of the log",
        lambda checkup: checkup.weights.health.sample_share,
    ),
    Measure(
        "mass_of_weights",
        "sum of 1/P / number of cells (1)",
        lambda checkup: checkup.weights.health.mass_ratio,
    ),
    Measure("weight_min", "weight 1/P: smallest", _quantile(0)),
    Measure("weight_median", "  median", _quantile(1)),
    Measure("weight_90", "  90 %", _quantile(2)),
    Measure("weight_99", "  99 %", _quantile(3)),
    Measure("weight_max", "  largest", _quantile(4)),
    Measure(
        "top_share", "  held by the heaviest 1 %", lambda checkup: checkup.weights.health.top_share
    ),
    Measure(
        "largest_share",
        "  held by the heaviest cell",
        lambda checkup: checkup.weights.largest_share,
    ),
    Measure("log_loss", "log-loss", _part("fit", "log_loss")),
    Measure("log_loss_error", "  standard error", _part("fit", "log_loss_error")),
    Measure("brier", "Brier score", _part("fit", "brier")),
    Measure("brier_error", "  standard error", _part("fit", "brier_error")),
    Measure("slope", "calibration slope (1)", _part("calibration", "slope")),
    Measure("intercept", "calibration intercept (0)", _part("calibration", "intercept")),
    Measure("calibration_error", "calibration error, 10 bins", _part("calibration", "error")),
    Measure("mass_of_propensities", "sum of P / number observed (1)", _part("fit", "mass_ratio")),
    Measure("mass_of_propensities_error", "  standard error", _part("fit", "mass_ratio_error")),
    Measure("asam_before", "imbalance (ASAM) before", _part("balance", "asam_before")),
    Measure("asam", "  after weighting", _part("balance", "asam")),
    Measure("worst_difference", "  worst covariate", _part("balance", "worst_difference")),
    Measure("worst_covariate", None, _part("balance", "worst_covariate")),
    Measure("floor", None, _part("fit", "floor")),
    Measure("share_below", "share of cells with next to no chance", _part("fit", "share_below")),
    Measure("smallest", "smallest P of all cells", _part("fit", "smallest")),
    Measure("relative_error", "relative error of P", _part("accuracy", "relative_error")),
    Measure("bias_bound", "bias bound (Thm 5.2)", _part("accuracy", "bias_bound")),
)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Diagnosis:
    """How far one or several models' propensities can be trusted, for one log."""

    checkups: tuple[DiagnosisRow, ...]
    coverage: Coverage
    universe: Universe | None
    notes: tuple[str, ...] = ()
    """How the numbers over all cells were made, and what could not be measured."""
    warnings: tuple[str, ...] = ()
    """What is wrong, with the numbers and what to do."""
    backend: str | None = None

    def __getitem__(self, name: str) -> DiagnosisRow:
        for checkup in self.checkups:
            if checkup.name == name:
                return checkup
        raise UnknownNameError("model of this diagnosis", name, self.models)

    @property
    def models(self) -> tuple[str, ...]:
        """Names of the models."""
        return tuple(checkup.name for checkup in self.checkups)

    @property
    def calibration(self) -> Any:
        """A frame of the calibration curves: model, bin, predicted, observed, count."""
        rows = [
            (each.name, each.calibration) for each in self.checkups if each.calibration is not None
        ]
        _require(
            rows,
            "calibration",
            "a model or a matrix that tells the propensities of all cells, and universe=...",
        )
        bins = [(name, place, curve) for name, curve in rows for place in range(curve.count.size)]
        return make_frame(
            {
                "model": [name for name, _, _ in bins],
                "bin": [place for _, place, _ in bins],
                "predicted": [float(curve.predicted[place]) for _, place, curve in bins],
                "observed": [float(curve.observed[place]) for _, place, curve in bins],
                "count": [float(curve.count[place]) for _, place, curve in bins],
            },
            self.backend,
        )

    @property
    def balance(self) -> Any:
        """A frame of standardised mean differences: model, covariate, before, after."""
        rows = [(each.name, each.balance) for each in self.checkups if each.balance is not None]
        _require(rows, "balance", "user_features=..., item_features=..., or both")
        pairs = [(name, place, found) for name, found in rows for place in range(len(found.names))]
        return make_frame(
            {
                "model": [name for name, _, _ in pairs],
                "covariate": [found.names[place] for _, place, found in pairs],
                "before": [float(found.before[place]) for _, place, found in pairs],
                "after": [float(found.after[place]) for _, place, found in pairs],
            },
            self.backend,
        )

    def to_columns(self) -> dict[str, list[Any]]:
        """One row a model: its name and every measure, None where it is not defined."""
        rows = [checkup.measures() for checkup in self.checkups]
        return {"model": list(self.models)} | {
            name: [row[name] for row in rows] for name in rows[0]
        }

    def to_frame(self, backend: str | None = None) -> Any:
        """One row a model, one column a measure, as a data frame of the caller's own library, or of the named one."""
        return make_frame(self.to_columns(), backend or self.backend)

    def to_json(self) -> str:
        """All measures, curves and balances, what the log covers, and the warnings; null where not defined or not finite."""
        return json.dumps(
            describe_json("diagnosis")
            | {
                "universe": None
                if self.universe is None
                else [self.universe.n_users, self.universe.n_items],
                "coverage": asdict(self.coverage),
                "models": [_as_json(checkup) for checkup in self.checkups],
                "notes": list(self.notes),
                "warnings": list(self.warnings),
            }
        )

    def to_html(self, path: str | Path) -> Path:
        """Weights, calibration, balance and reach, as one HTML file that needs nothing else. Returns its path."""
        page: Path = load_report_function("write_page")(self.to_json(), path)
        return page

    def plot(self, ax: Any = None, *, panels: Sequence[str] | str | None = None) -> Any:
        """Panels ``weights``, ``calibration`` and ``balance``, by default all that were measured; returns the matplotlib figure.

        ``ax`` takes an axes for each panel, to draw into a figure of your own.
        """
        there = {
            "weights": True,
            "calibration": any(each.calibration for each in self.checkups),
            "balance": self._has_balance,
        }
        asked = (
            (panels,)
            if isinstance(panels, str)
            else tuple(panels or (name for name, is_there in there.items() if is_there))
        )
        for panel in asked:
            if panel not in there:
                raise UnknownNameError("panel", panel, there)
            if not there[panel]:
                raise UsageError(
                    f"there is no {panel} to draw: it was not measured for any model. The table says why."
                )
        return load_report_function("draw")("diagnosis", self, ax, panels=asked)

    @property
    def _has_balance(self) -> bool:
        return any(each.balance is not None for each in self.checkups)

    def __repr__(self) -> str:
        tables = (text_table(columns) for columns in self._shown(PAGE))
        footer = (
            fill(line, PAGE, subsequent_indent="  ", break_on_hyphens=False)
            for line in self._footer()
        )
        return "\n\n".join(tables) + "\n" + "\n".join(footer)

    def _repr_html_(self) -> str:
        (columns,) = self._shown(None)
        return html_table(columns) + "".join(f"<p>{escape(line)}</p>" for line in self._footer())

    def _shown(self, width: int | None) -> Iterator[dict[str, list[object]]]:
        """Measures down, models across; those that no model has are left out, and models go on below where the page ends."""
        found = [checkup.measures() for checkup in self.checkups]
        rows = [
            measure
            for measure in MEASURES
            if measure.label and any(each[measure.name] is not None for each in found)
        ]
        labels: dict[str, list[object]] = {"": [measure.label for measure in rows]}
        columns = {
            checkup.name: [_shown_value(each[measure.name]) for measure in rows]
            for checkup, each in zip(self.checkups, found, strict=True)
        }
        page = dict(labels)
        for name, column in columns.items():
            if width is not None and len(page) > 1 and _width(page | {name: column}) > width:
                yield page
                page = dict(labels)
            page[name] = column
        yield page

    def _footer(self) -> Iterator[str]:
        where = "a universe that is not known" if self.universe is None else str(self.universe)
        yield f"{count_noun(self.checkups[0].weights.health.n_observed, 'observed cell')} of {where}; right values in brackets"
        yield f"never observed: {self.coverage}"
        for name, models in self._worst().items():
            yield f"farthest off after weighting: {name} ({', '.join(models)})"
        floor = next((each.fit.floor for each in self.checkups if each.fit is not None), None)
        if floor is not None:
            yield f"next to no chance: P below {floor:.3g}"
        yield from self.notes
        yield from (f"warning: {warning}" for warning in self.warnings)

    def _worst(self) -> dict[str, list[str]]:
        """Models by the covariate that is farthest off after weighting."""
        models: dict[str, list[str]] = {}
        for each in self.checkups:
            if each.balance is not None:
                models.setdefault(each.balance.worst_covariate, []).append(each.name)
        return models


def _require(rows: Sequence[object], what: str, needs: str) -> None:
    if not rows:
        raise UsageError(f"no {what} was measured: diagnose() needs {needs}.")


def _shown_value(value: Value) -> object:
    if value is None:
        return "-"
    return round(value) if isinstance(value, float) and 1000 <= value < math.inf else value


def _width(columns: dict[str, list[object]]) -> int:
    return max(map(len, text_table(columns).splitlines()))


def _as_json(checkup: DiagnosisRow) -> dict[str, Any]:
    curve, balance = checkup.calibration, checkup.balance
    return {
        "model": checkup.name,
        "measures": {name: _finite(value) for name, value in checkup.measures().items()},
        "calibration": None
        if curve is None
        else {
            "predicted": curve.predicted.tolist(),
            "observed": curve.observed.tolist(),
            "count": curve.count.tolist(),
        },
        "balance": None
        if balance is None
        else {
            "covariate": list(balance.names),
            "before": balance.before.tolist(),
            "after": balance.after.tolist(),
        },
        "weight_curve": {
            "rows": checkup.weights.rows.tolist(),
            "held": checkup.weights.held.tolist(),
        },
        "notes": list(checkup.notes),
    }


def _finite(value: Value) -> Value:
    return None if isinstance(value, float) and not math.isfinite(value) else value
