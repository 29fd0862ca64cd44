"""One look at a growing log: risks and differences with limits, from the state of a monitor."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, TypeAlias

import numpy as np

from unskew.estimators.sequences import SequenceClock, UnitMoments
from unskew.evaluation.monitor_plan import MonitorPlan
from unskew.evaluation.monitor_state import Look, MonitorState

Numbers: TypeAlias = tuple[float, float | None, float | None, float | None]
"""A value, its limits and its p-value; None if it is too early for them."""


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
    value, covariance = moments.ratio() if estimator == "snips" else moments.mean(size=n_items)
    clock = SequenceClock(moments.n_units, plan.planned_size, moments.effective_size)
    unit = np.eye(len(plan.models))
    for contrast in [*unit, *(unit[first] - unit[second] for first, second in plan.pairs)]:
        center = float(contrast @ value)
        std_error = math.sqrt(max(float(contrast @ covariance @ contrast), 0.0))
        if clock.is_early:
            yield center, None, None, None
        else:
            low, high = clock.limits(center, std_error, level=plan.level)
            yield center, low, high, clock.p_value(center, std_error, level=plan.level)
