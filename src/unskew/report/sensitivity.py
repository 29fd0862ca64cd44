"""The picture of a sensitivity: the curve under clipping and the fan under odds errors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from unskew.evaluation.robustness import CLIP, ODDS_ERROR, Sensitivity, Shift
from unskew.report.panels import look_of, marker_of, panels_in, shortened

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

TITLES = {CLIP: "Large weights clipped", ODDS_ERROR: "Propensities wrong"}
AXES = {CLIP: "largest weight allowed", ODDS_ERROR: "odds off by a factor of up to"}


def draw(sensitivity: Sensitivity, ax: Any, *, metric: str, estimator: str) -> Figure:
    """One panel for each kind of change that was asked about."""
    shifts = [
        shift
        for shift in sensitivity.shifts
        if (shift.metric, shift.estimator) == (metric, estimator)
    ]
    changes = [
        change for change in (CLIP, ODDS_ERROR) if any(shift.change == change for shift in shifts)
    ]
    figure, panels = panels_in(ax, len(changes), widths=[4.2] * len(changes), height=3.6)
    for axes, change in zip(panels, changes, strict=True):
        for place, model in enumerate(sensitivity.models):
            _draw_model(
                axes,
                [shift for shift in shifts if (shift.model, shift.change) == (model, change)],
                place,
            )
        axes.set(
            title=TITLES[change],
            xscale="log",
            xlabel=AXES[change],
            ylabel=f"{metric} by {estimator}",
        )
        axes.set_xticks(sorted({shift.amount for shift in shifts if shift.change == change}))
        axes.xaxis.set_major_formatter("{x:.3g}")
        axes.minorticks_off()
        axes.grid(alpha=0.25)
        axes.legend(
            frameon=False,
            fontsize="small",
            title=f"faint: {sensitivity.level:.0%} limits",
            title_fontsize="small",
        )
    return figure


def _draw_model(axes: Axes, shifts: Sequence[Shift], place: int) -> None:
    """A line under clipping, a band under odds errors; its confidence limits faintly around it."""
    amount = [shift.amount for shift in shifts]
    look, marker, name = look_of(place), marker_of(place), shortened(shifts[0].model)
    low, high = [shift.low for shift in shifts], [shift.high for shift in shifts]
    outer = [shift.ci_low for shift in shifts], [shift.ci_high for shift in shifts]
    axes.fill_between(amount, *outer, color=look["color"], alpha=0.1, linewidth=0)
    if shifts[0].change == ODDS_ERROR:
        axes.fill_between(amount, low, high, color=look["color"], alpha=0.15, linewidth=0)
    axes.plot(amount, low, marker=marker, markersize=4, label=name, **look)
    axes.plot(amount, high, marker=marker, markersize=4, **look)
