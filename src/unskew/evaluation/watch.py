"""The result of a monitor: the last look at a growing log, and the path to it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

from unskew.data.result import Result
from unskew.evaluation.monitor_plan import MonitorPlan
from unskew.evaluation.monitor_state import Look
from unskew.tables import count_noun

TOO_EARLY = "too early"
ASSUMPTION = (
    "the propensities of the rows are taken as known, and only metrics of single rows are watched"
)
MAX_MASS = 1.2
"""Inverse propensities that add up to more than this share of all cells cannot be right."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Watch(Result):
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
        text = (
            f"{sizes}, effective sample size {self.look['effective_size']:,.0f}; "
            f"limits of {self.plan.level:.0%} at all looks, "
            f"planned size {self.plan.planned_size:,} {units}"
        )
        early = "; too early: limits begin at an effective sample size of 100"
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
