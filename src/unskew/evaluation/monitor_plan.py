"""What a monitor watches, and how: fixed before the first row arrives."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from typing import Any, Literal

import numpy as np

from unskew.errors import UnskewError, UsageError
from unskew.evaluation.arguments import find_metrics, require_level
from unskew.metrics.metric import Metric, MetricInput
from unskew.settings import Instance, Number, WholeNumber, require_name

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
