"""Panels side by side, in a new figure or in axes that the caller has, and the colours of models."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from unskew.errors import UsageError
from unskew.report.figures import new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
"""Okabe and Ito's colours, which the colour-blind tell apart."""
STYLES = ("-", "--", "-.", ":")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")


def panels_in(
    ax: Any, n_panels: int, *, widths: Sequence[float], height: float
) -> tuple[Figure, list[Axes]]:
    """``n_panels`` axes: the caller's own, or those of a new figure."""
    if ax is None:
        figure = new_figure(sum(widths), height)
        return figure, list(np.atleast_1d(figure.subplots(1, n_panels, width_ratios=list(widths))))
    given = list(np.atleast_1d(np.asarray(ax, dtype=object)).ravel())
    if len(given) != n_panels or not all(hasattr(axes, "plot") for axes in given):
        raise UsageError(
            f"this picture has {n_panels} panels; give ax=... as many matplotlib axes, got {len(given)} objects."
        )
    return given[0].figure, given


def look_of(place: int) -> dict[str, Any]:
    """Colour and line style of the model at that place: they differ together, so that grey prints can be read."""
    return {"color": PALETTE[place % len(PALETTE)], "linestyle": STYLES[place % len(STYLES)]}


def marker_of(place: int) -> str:
    """The marker of the model at that place."""
    return MARKERS[place % len(MARKERS)]


def shortened(name: str, length: int = 24) -> str:
    """A name that fits beside an axis."""
    return name if len(name) <= length else name[: length - 1] + "…"
