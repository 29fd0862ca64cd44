"""The picture of a diagnosis: weights, calibration, balance."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from unskew.diagnostics.calibration import Calibration
from unskew.diagnostics.result import Diagnosis
from unskew.report.panels import look_of, marker_of, panels_in, shortened
from unskew.types import Vector

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_COVARIATES = 20
"""Covariates in the panel of balance: the farthest off before weighting."""
SMALL = 0.1
HEIGHT = 3.8


def draw(diagnosis: Diagnosis, ax: Any, *, panels: Sequence[str]) -> Figure:
    """The panels in a row."""
    widths = [4.6 if panel == "balance" else 3.7 for panel in panels]
    figure, axes = panels_in(ax, len(panels), widths=widths, height=_height(diagnosis, panels))
    for panel, place in zip(panels, axes, strict=True):
        PANELS[panel](place, diagnosis)
    return figure


def _height(diagnosis: Diagnosis, panels: Sequence[str]) -> float:
    n_covariates = max(
        (len(each.balance.names) for each in diagnosis.checkups if each.balance is not None),
        default=0,
    )
    return (
        max(HEIGHT, 0.9 + 0.2 * min(n_covariates, MOST_COVARIATES))
        if "balance" in panels
        else HEIGHT
    )


def _draw_weights(axes: Axes, diagnosis: Diagnosis) -> None:
    """The share of all weight that the heaviest rows hold."""
    n = diagnosis.checkups[0].weights.health.n_observed
    share = np.geomspace(1 / n, 1, 100)
    axes.plot(share, share, color="0.6", linewidth=1, label="equal weights")
    for place, checkup in enumerate(diagnosis.checkups):
        label = f"{shortened(checkup.name)} (ESS {checkup.weights.health.sample_share:.0%})"
        axes.plot(checkup.weights.rows, checkup.weights.held, label=label, **look_of(place))
    axes.set(title="Weights", xlabel="share of rows, heaviest first", ylabel="share of all weight")
    axes.set(xscale="log", xlim=(min(1 / n, 0.1), 1), ylim=(0, 1))
    _finish(axes)


def _draw_calibration(axes: Axes, diagnosis: Diagnosis) -> None:
    """The observed share against the mean propensity of each bin, where a logarithmic axis can show them."""
    curves = {
        place: each.calibration
        for place, each in enumerate(diagnosis.checkups)
        if each.calibration is not None
    }
    shown = {place: _positive(curve) for place, curve in curves.items()}
    values = np.concatenate([np.ravel(points) for points in shown.values()])
    ends = (values.min() / 1.5, min(1.0, values.max() * 1.5)) if values.size else (0.001, 1.0)
    axes.plot(ends, ends, color="0.6", linewidth=1, label="perfect")
    for place, (predicted, observed) in shown.items():
        slope = "" if curves[place].slope is None else f" (slope {curves[place].slope:.2f})"
        label = shortened(diagnosis.checkups[place].name) + slope
        axes.plot(
            predicted,
            observed,
            marker=marker_of(place),
            markersize=4,
            label=label,
            **look_of(place),
        )
    axes.set(title="Calibration", xlabel="propensity, mean of bin", ylabel="observed share")
    axes.set(xscale="log", yscale="log", xlim=ends, ylim=ends)
    _finish(axes)


def _positive(curve: Calibration) -> tuple[Vector, Vector]:
    shown = (curve.predicted > 0) & (curve.observed > 0)
    return curve.predicted[shown], curve.observed[shown]


def _draw_balance(axes: Axes, diagnosis: Diagnosis) -> None:
    """Standardised mean differences before and after weighting, a line a covariate; shaded up to 0.1, which is small."""
    found = {
        place: each.balance
        for place, each in enumerate(diagnosis.checkups)
        if each.balance is not None
    }
    first = next(iter(found.values()))
    order = np.argsort(-np.abs(first.before), kind="stable")[:MOST_COVARIATES]
    height = np.arange(order.size)
    axes.axvspan(-SMALL, SMALL, color="0.93", linewidth=0, zorder=0)
    axes.axvline(0, color="0.6", linewidth=1)
    axes.plot(first.before[order], height, "x", color="0.3", markersize=5, label="before")
    for place, balance in found.items():
        look: dict[str, Any] = {
            "color": look_of(place)["color"],
            "marker": marker_of(place),
            "fillstyle": "none",
        }
        label = shortened(diagnosis.checkups[place].name)
        axes.plot(balance.after[order], height, linestyle="", markersize=5, label=label, **look)
    some = (
        f": worst {order.size} of {len(first.names)} covariates"
        if order.size < len(first.names)
        else ""
    )
    axes.set(title=f"Balance{some}", xlabel="difference to all cells, in standard deviations")
    axes.set_yticks(height, [shortened(first.names[k]) for k in order], fontsize="small")
    axes.set_ylim(order.size - 0.5, -0.5)
    _finish(axes)


def _finish(axes: Axes) -> None:
    axes.grid(alpha=0.25)
    axes.legend(framealpha=0.8, edgecolor="none", fontsize="small", loc="best")


PANELS: Mapping[str, Callable[[Axes, Diagnosis], None]] = {
    "weights": _draw_weights,
    "calibration": _draw_calibration,
    "balance": _draw_balance,
}
