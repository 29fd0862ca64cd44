"""The picture of an evaluation: every estimate with its interval."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from unskew.evaluation.result import Evaluation
from unskew.report.figures import COLORS, MARKERS
from unskew.report.panels import PALETTE, marker_of, panels_in, shortened

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def draw(evaluation: Evaluation, ax: Any) -> Figure:
    """A panel a metric, a line a model, a mark an estimator."""
    metrics = list(evaluation.metrics)
    rows = len(evaluation.models) * (len(evaluation.estimators) + 1)
    figure, panels = panels_in(
        ax, len(metrics), widths=[4.2] * len(metrics), height=max(2.4, 1.0 + 0.16 * rows)
    )
    for axes, metric in zip(panels, metrics, strict=True):
        _draw_metric(axes, evaluation, metric)
    panels[-1].legend(frameon=False, fontsize="small", loc="best")
    return figure


def _draw_metric(axes: Axes, evaluation: Evaluation, metric: str) -> None:
    height = np.arange(len(evaluation.models))
    offsets = (
        (np.arange(len(evaluation.estimators)) - (len(evaluation.estimators) - 1) / 2)
        * 0.8
        / len(evaluation.estimators)
    )
    for place, (estimator, offset) in enumerate(zip(evaluation.estimators, offsets, strict=True)):
        risks = [
            evaluation.risk(model, metric=metric, estimator=estimator)
            for model in evaluation.models
        ]
        value = np.array([risk.estimate for risk in risks])
        reach = np.array(
            [[risk.estimate - risk.ci_low, risk.ci_high - risk.estimate] for risk in risks]
        ).T
        look: dict[str, Any] = {
            "color": COLORS.get(estimator, PALETTE[(place + len(COLORS)) % len(PALETTE)]),
            "fmt": MARKERS.get(estimator, marker_of(place + len(MARKERS))),
        }
        axes.errorbar(
            value,
            height + offset,
            xerr=np.maximum(reach, 0),
            markersize=5,
            capsize=2,
            label=estimator,
            **look,
        )
    better = "higher" if evaluation.metrics[metric] else "lower"
    axes.set(xlabel=f"{metric} ({better} is better; bars: {evaluation.level:.0%})", yticks=height)
    axes.set_yticklabels([shortened(model) for model in evaluation.models])
    axes.set_ylim(len(height) - 0.5, -0.5)
    axes.grid(axis="x", alpha=0.25)
