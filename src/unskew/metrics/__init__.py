"""Metrics: each one gives every observed cell a delta, whose mean over all cells is the risk."""

from __future__ import annotations

from typing import TYPE_CHECKING

from unskew.registry import Registry, exported_names

if TYPE_CHECKING:
    from unskew.metrics.metric import Metric

METRICS: Registry[type[Metric]] = Registry("metric", "unskew.metrics")
__getattr__, __dir__ = exported_names(
    METRICS,
    {
        "Delta": "metric",
        "Metric": "metric",
        "MetricInput": "metric",
        "find_metric": "metric",
        "metric_label": "metric",
        "metric_names": "metric",
    },
)
