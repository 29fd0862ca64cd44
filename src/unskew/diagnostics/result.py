"""The result of :func:`unskew.diagnose`: a table and curves for plots."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from textwrap import fill
from typing import Any, ClassVar, TypeAlias

from unskew.data.frames import make_frame
from unskew.data.result import Result
from unskew.data.universe import Universe
from unskew.diagnostics.coverage import Coverage
from unskew.diagnostics.fit import Calibration, PropensityAccuracy, PropensityFit
from unskew.diagnostics.specification import SpecificationTest
from unskew.diagnostics.weighting import CovariateBalance, WeightDistribution
from unskew.errors import PropensityWarning, UnknownNameError, UsageError
from unskew.settings import require_list, require_name
from unskew.tables import count_noun, escape_controls, text_table

Value: TypeAlias = float | int | str | None
PAGE_WIDTH = 80


@dataclass(frozen=True, slots=True, eq=False)
class DiagnosisRow:
    """What was measured for one model's propensities; None if it could not be."""

    name: str
    weights: WeightDistribution
    fit: PropensityFit | None = None
    calibration: Calibration | None = None
    balance: CovariateBalance | None = None
    accuracy: PropensityAccuracy | None = None
    tests: tuple[SpecificationTest, ...] = ()
    """Comparisons of the weighted log with what is known of all cells."""
    assumption: str = ""
    """What must be true for these propensities to be right, and cannot be checked."""
    sees_ratings: bool | None = None
    """Whether the propensities depend on ratings; None if they are taken as known."""
    limitation: str = ""
    """Why fit and calibration could not be measured."""

    def warnings(self) -> Iterator[PropensityWarning]:
        """One warning for each thing that looks wrong."""
        for part in (self.weights, self.fit, self.calibration, self.balance, *self.tests):
            if part is not None:
                yield from part.warnings()

    def measures(self) -> dict[str, Value]:
        """Every number by its name."""
        return {measure.name: measure.read(self) for measure in MEASURES}


@dataclass(frozen=True, slots=True)
class Measure:
    """A number of a :class:`DiagnosisRow`."""

    name: str
    label: str | None
    """The label in the printed table; None if the table does not show it."""
    path: str
    """Where the row has the number, such as ``fit.brier``."""

    def read(self, row: DiagnosisRow) -> Value:
        """The number; None if the row does not have this part."""
        value: Any = row
        for attribute in self.path.split("."):
            value = None if value is None else getattr(value, attribute)
        number: Value = value
        return number


MEASURES = (
    Measure("n_observed", "observed cells", "weights.summary.n_observed"),
    Measure(
        "effective_sample_size", "effective sample size", "weights.summary.effective_sample_size"
    ),
    Measure("sample_share", "  as a share of the log", "weights.summary.sample_share"),
    Measure("mass_of_weights", "sum of 1/P / number of cells (1)", "weights.summary.mass_ratio"),
    Measure("weight_min", "weight 1/P: smallest", "weights.quantiles.smallest"),
    Measure("weight_median", "  median", "weights.quantiles.median"),
    Measure("weight_90", "  90 %", "weights.quantiles.q90"),
    Measure("weight_99", "  99 %", "weights.quantiles.q99"),
    Measure("weight_max", "  largest", "weights.quantiles.largest"),
    Measure("top_share", "  share of the heaviest 1 %", "weights.summary.top_share"),
    Measure("largest_share", "  share of the heaviest cell", "weights.largest_share"),
    Measure("log_loss", "log-loss", "fit.log_loss"),
    Measure("log_loss_error", "  standard error", "fit.log_loss_error"),
    Measure("brier", "Brier score", "fit.brier"),
    Measure("brier_error", "  standard error", "fit.brier_error"),
    Measure("slope", "calibration slope (1)", "calibration.slope"),
    Measure("intercept", "calibration intercept (0)", "calibration.intercept"),
    Measure("calibration_error", "calibration error, 10 bins", "calibration.error"),
    Measure("mass_of_propensities", "sum of P / number observed (1)", "fit.mass_ratio"),
    Measure("mass_of_propensities_error", "  standard error", "fit.mass_ratio_error"),
    Measure("asam_before", "imbalance (ASAM): before", "balance.asam_before"),
    Measure("asam", "  after weighting", "balance.asam"),
    Measure("worst_difference", "  worst covariate", "balance.worst_difference"),
    Measure("worst_covariate", None, "balance.worst_covariate"),
    Measure("floor", None, "fit.floor"),
    Measure("share_below", "share of cells with P below the floor", "fit.share_below"),
    Measure("smallest", "smallest P of all cells", "fit.smallest"),
    Measure("relative_error", "relative error of P", "accuracy.relative_error"),
    Measure("bias_bound", "bias bound (Thm 5.2)", "accuracy.bias_bound"),
)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Diagnosis(Result):
    """How far the propensities of one or several models can be trusted, for one log."""

    kind: ClassVar[str] = "diagnosis"
    rows: tuple[DiagnosisRow, ...]
    """One row for each model."""
    coverage: Coverage
    universe: Universe | None
    notes: tuple[str, ...] = ()
    """How the numbers over all cells were computed, and what could not be measured."""
    warnings: tuple[str, ...] = ()
    """What looks wrong, with the numbers and a remedy."""
    backend: str | None = None

    def __getitem__(self, name: str) -> DiagnosisRow:
        for row in self.rows:
            if row.name == name:
                return row
        raise UnknownNameError("model of this diagnosis", name, self.models, parameter="name")

    @property
    def models(self) -> tuple[str, ...]:
        return tuple(row.name for row in self.rows)

    @property
    def calibration(self) -> Any:
        """A frame of the calibration curves: model, bin, predicted, observed, count."""
        parts = {row.name: row.calibration for row in self.rows if row.calibration is not None}
        if not parts:
            raise UsageError(
                "no calibration was measured.",
                remedy="Call diagnose with `universe=(n_users, n_items)` and with a matrix or a "
                "model that predicts the propensities of all cells.",
            )
        tables = {
            name: {"bin": list(range(curve.count.size))} | curve.to_columns()
            for name, curve in parts.items()
        }
        return make_frame(_stack_tables(tables), self.backend)

    @property
    def balance(self) -> Any:
        """A frame of standardised mean differences: model, covariate, before, after."""
        parts = {row.name: row.balance for row in self.rows if row.balance is not None}
        if not parts:
            raise UsageError(
                "no balance was measured.",
                remedy="Call diagnose with `user_features`, `item_features`, or both.",
            )
        tables = {name: balance.to_columns() for name, balance in parts.items()}
        return make_frame(_stack_tables(tables), self.backend)

    def to_columns(self) -> dict[str, list[Any]]:
        """One row per model: its name and every measure, None if it could not be measured."""
        measures = [row.measures() for row in self.rows]
        return {"model": list(self.models)} | {
            name: [values[name] for values in measures] for name in measures[0]
        }

    def to_record(self) -> dict[str, Any]:
        """Measures, curves, balances, coverage and warnings; None if not measured or infinite."""
        universe = self.universe
        return {
            "universe": None if universe is None else [universe.n_users, universe.n_items],
            "coverage": asdict(self.coverage),
            "models": [_row_record(row) for row in self.rows],
            "notes": list(self.notes),
            "warnings": list(self.warnings),
        }

    def plot(self, ax: Any = None, *, panels: Sequence[str] | str | None = None) -> Any:
        """Draw ``weights``, ``calibration`` and ``balance``, by default all that were measured.

        Returns a new matplotlib figure, or None if ``ax``, one axes for each panel, is given.
        """
        is_measured = {
            "weights": True,
            "calibration": any(row.calibration is not None for row in self.rows),
            "balance": any(row.balance is not None for row in self.rows),
        }
        default = [name for name, measured in is_measured.items() if measured]
        require_list("panels", panels, of="panels")
        chosen = (
            (panels,) if isinstance(panels, str) else tuple(default if panels is None else panels)
        )
        if not chosen:
            raise UsageError("`panels` is empty.", parameter="panels", remedy="Name at least one.")
        for panel in chosen:
            require_name("panel", panel, is_measured, parameter="panels")
            if not is_measured[panel]:
                raise UsageError(
                    f"the panel {panel!r} cannot be drawn: it was not measured for any model.",
                    parameter="panels",
                    value=panel,
                    remedy="The notes of the diagnosis say why.",
                )
        return self._draw(ax, panels=chosen)

    def __repr__(self) -> str:
        tables = (text_table(columns) for columns in self._tables(PAGE_WIDTH))
        footer = (
            fill(escape_controls(text), PAGE_WIDTH, subsequent_indent="  ", break_on_hyphens=False)
            for text in self._footer()
        )
        return "\n\n".join(tables) + "\n" + "\n".join(footer)

    def _shown_columns(self) -> dict[str, list[object]]:
        (columns,) = self._tables(math.inf)
        return columns

    def _tables(self, max_width: float) -> Iterator[dict[str, list[object]]]:
        """Tables with measures as rows and models as columns, as many tables as the width needs.

        Measures that no model has are not shown.
        """
        measures = [row.measures() for row in self.rows]
        shown = [
            measure
            for measure in MEASURES
            if measure.label and any(values[measure.name] is not None for values in measures)
        ]
        labels: dict[str, list[object]] = {"": [measure.label for measure in shown]}
        table = dict(labels)
        for name, values in zip(self.models, measures, strict=True):
            column = {name: [_format_value(values[measure.name]) for measure in shown]}
            if len(table) > 1 and _text_width(table | column) > max_width:
                yield table
                table = dict(labels)
            table |= column
        yield table

    def _footer(self) -> Iterator[str]:
        n_observed = count_noun(self.rows[0].weights.summary.n_observed, "observed cell")
        universe = "an unknown universe" if self.universe is None else str(self.universe)
        yield f"{n_observed} of {universe}; ideal values in parentheses"
        yield f"never observed: {self.coverage}"
        for covariate, models in self._models_by_worst_covariate().items():
            yield f"largest difference after weighting: {covariate} ({', '.join(models)})"
        floor = next((row.fit.floor for row in self.rows if row.fit is not None), None)
        if floor is not None:
            yield f"the floor is {floor:.3g}"
        for row in self.rows:
            if row.assumption:
                yield f"{row.name}: {row.assumption}"
            for test in row.tests:
                yield f"{row.name}: {test}"
        yield from self.notes
        yield from (f"warning: {text}" for text in self.warnings)

    def _models_by_worst_covariate(self) -> dict[str, list[str]]:
        models: dict[str, list[str]] = {}
        for row in self.rows:
            if row.balance is not None:
                models.setdefault(row.balance.worst_covariate, []).append(row.name)
        return models


def _stack_tables(tables: dict[str, dict[str, list[Any]]]) -> dict[str, list[Any]]:
    """The tables of the models below one another, with a column of the model's name."""
    names = next(iter(tables.values()))
    stacked = {
        name: [value for table in tables.values() for value in table[name]] for name in names
    }
    size = {model: len(next(iter(table.values()))) for model, table in tables.items()}
    return {"model": [model for model in tables for _ in range(size[model])]} | stacked


def _format_value(value: Value) -> object:
    if value is None:
        return "-"
    return round(value) if isinstance(value, float) and 1000 <= value < math.inf else value


def _text_width(columns: dict[str, list[object]]) -> int:
    return max(map(len, text_table(columns).splitlines()))


def _row_record(row: DiagnosisRow) -> dict[str, Any]:
    return {
        "model": row.name,
        "measures": row.measures(),
        "calibration": None if row.calibration is None else row.calibration.to_columns(),
        "balance": None if row.balance is None else row.balance.to_columns(),
        "weight_curve": {
            "rows": row.weights.row_share.tolist(),
            "held": row.weights.weight_share.tolist(),
        },
        "tests": [asdict(test) for test in row.tests],
        "assumption": row.assumption,
        "sees_ratings": row.sees_ratings,
        "notes": [row.limitation] if row.limitation else [],
    }
