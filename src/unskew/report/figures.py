"""The charts of results drawn with matplotlib, for ``result.plot()`` and the paper's figures."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache, singledispatch
from io import BytesIO
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Any

import numpy as np

from unskew.errors import MissingExtraError, UsageError
from unskew.report.charts import (
    MAX_MARKERS,
    Chart,
    ChartAxis,
    ChartContent,
    ChartScale,
    Curve,
    Curves,
    Forest,
    ForestRow,
    LegendEntry,
    Look,
    MatrixImage,
    list_limits,
)
from unskew.report.page import read_template
from unskew.report.text import shorten
from unskew.tables import count_noun

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.gridspec import SubplotSpec

MARKERS = {
    "circle": "o",
    "square": "s",
    "triangle": "^",
    "diamond": "D",
    "down": "v",
    "pentagon": "p",
    "hexagon": "h",
}
MAX_LABEL, MAX_LEGEND, MAX_TITLE = 24, 44, 44
"""Letters of a label next to an axis, of an entry of a legend, and of one line of a title."""
MAX_TICKS = 8
GROUP_GAP = 0.6
"""Space between two groups of a forest, in rows."""


def draw_charts(charts: Sequence[Chart], ax: Any = None, *, title: str = "") -> Figure | None:
    """Draw each chart into one of the axes ``ax``, by default into those of a new figure.

    Returns the new figure. The caller has the figure of ``ax`` already, and a notebook would show
    it a second time.
    """
    figure, panels = _make_panels(charts) if ax is None else _check_panels(charts, ax)
    for axes, chart in zip(panels, charts, strict=True):
        draw_content(chart.content, axes)
        axes.set_title(fill(chart.title, MAX_TITLE), fontsize="medium")
        if chart.caption:
            axes.set_xlabel(f"{axes.get_xlabel()}\n{fill(chart.caption, MAX_TITLE)}")
    _hide_repeated_labels(charts, panels)
    _draw_legends(charts, panels, figure if ax is None else None)
    if title:
        n_letters = int(11 * figure.get_figwidth())
        figure.suptitle(fill(title, n_letters), fontsize="medium")
    return figure if ax is None else None


def save_figure(figure: Figure, directory: Path, name: str) -> Iterator[Path]:
    """Write ``NAME.png`` and ``NAME.svg``, and close the figure; yields the path of each."""
    from matplotlib import pyplot

    directory.mkdir(parents=True, exist_ok=True)
    for suffix in ("png", "svg"):
        path = directory / f"{name}.{suffix}"
        figure.savefig(path, dpi=160)
        yield path
    pyplot.close(figure)


def _make_panels(charts: Sequence[Chart]) -> tuple[Figure, list[Axes]]:
    """The current figure of pyplot, so that ``plt.savefig`` finds it; at most 3 panels in a row."""
    try:
        from matplotlib import pyplot

        figure_class = _notebook_figure_class()
    except ImportError as error:
        raise MissingExtraError("matplotlib", extra="report", purpose="drawing figures") from error
    n_rows = math.ceil(len(charts) / 3)
    n_columns = math.ceil(len(charts) / n_rows)
    width = 4.4 * n_columns + (1.6 if _has_common_legend(charts) else 0.0)
    height = n_rows * max(_panel_height(chart.content) for chart in charts)
    figure = pyplot.figure(FigureClass=figure_class, figsize=(width, height), layout="constrained")
    panels = list(figure.subplots(n_rows, n_columns, squeeze=False).ravel())
    for unused in panels[len(charts) :]:
        unused.remove()
    return figure, panels[: len(charts)]


def _notebook_figure_class() -> type[Figure]:
    from matplotlib import pyplot
    from matplotlib.figure import Figure

    class NotebookFigure(Figure):
        """A figure that a notebook shows once, whether or not a cell ends with it."""

        def _ipython_display_(self) -> None:
            from IPython.display import display

            pyplot.close(self)  # or the end of the cell would show it again
            picture = BytesIO()
            self.savefig(picture, format="png")
            display({"image/png": picture.getvalue()}, raw=True)  # type: ignore[no-untyped-call]

    return NotebookFigure


def _panel_height(content: ChartContent) -> float:
    if isinstance(content, Forest):
        return max(2.6, 1.2 + 0.19 * (len(content.rows) + GROUP_GAP * len(content.groups)))
    return 2.6 if isinstance(content, MatrixImage) else 3.8


def _check_panels(charts: Sequence[Chart], ax: Any) -> tuple[Figure, list[Axes]]:
    panels = list(np.atleast_1d(np.asarray(ax, dtype=object)).ravel())
    wrong_type = next((type(axes) for axes in panels if not hasattr(axes, "plot")), None)
    if wrong_type is not None:
        raise UsageError(
            f"`ax` must be matplotlib axes; got {wrong_type.__name__}.",
            parameter="ax",
            value=ax,
            remedy=f"Pass {len(charts)} matplotlib axes as `ax`.",
        )
    if len(panels) != len(charts):
        raise UsageError(
            f"this figure has {count_noun(len(charts), 'panel')}, but `ax` has {len(panels)} axes.",
            parameter="ax",
            value=ax,
            remedy=f"Pass {len(charts)} matplotlib axes as `ax`.",
        )
    return panels[0].figure, panels


def _hide_repeated_labels(charts: Sequence[Chart], panels: Sequence[Axes]) -> None:
    """Leave out the row labels of a forest if the panel to its left has the same ones."""
    labels = [[label.get_text() for label in axes.get_yticklabels()] for axes in panels]
    pairs = zip(panels, labels, panels[1:], labels[1:], charts[1:], strict=False)
    for left, left_labels, axes, own_labels, chart in pairs:
        is_forest = isinstance(chart.content, Forest) and left_labels == own_labels
        if is_forest and _are_neighbors(left.get_subplotspec(), axes.get_subplotspec()):
            axes.tick_params(labelleft=False)


def _are_neighbors(left: SubplotSpec | None, right: SubplotSpec | None) -> bool:
    """Whether two panels stand next to each other in one grid."""
    if left is None or right is None:
        return False
    same_grid = left.get_gridspec() is right.get_gridspec()
    return same_grid and left.rowspan == right.rowspan and left.colspan.stop == right.colspan.start


def _draw_legends(charts: Sequence[Chart], panels: Sequence[Axes], figure: Figure | None) -> None:
    """A legend in each panel, or one for all panels: next to them, or in the last of ``ax``."""
    handles = [
        [_add_sample(entry, axes) for entry in chart.legend]
        for chart, axes in zip(charts, panels, strict=True)
    ]
    if _has_common_legend(charts):
        if figure is not None:
            figure.legend(handles=handles[0], loc="outside right center", frameon=False)
            return
        handles, panels = handles[-1:], panels[-1:]
    for axes, samples in zip(panels, handles, strict=True):
        if samples:
            axes.legend(handles=samples, fontsize="small", framealpha=0.8, edgecolor="none")


def _has_common_legend(charts: Sequence[Chart]) -> bool:
    legends = {chart.legend for chart in charts}
    return len(charts) > 1 and len(legends) == 1 and legends != {()}


def _add_sample(entry: LegendEntry, axes: Axes) -> Artist:
    """A line without points that carries the label, also for a later ``axes.legend()``."""
    changes: Mapping[str, dict[str, Any]] = {
        "point": {"linestyle": ""},
        "plain line": {"marker": ""},
        "thin line": {"marker": "", "linewidth": 1},
        "rule": {"marker": "", "linestyle": ":"},
    }
    style = _line_style(entry.look) | _marker_style(entry.look) | changes.get(entry.sample, {})
    (sample,) = axes.plot([], [], label=shorten(entry.label, MAX_LEGEND), **style)
    return sample


@cache
def _page_colors() -> dict[str, str]:
    """The colors of a page in its light theme, by name, so pages and figures look alike."""
    style = read_template("page.css")
    light_theme = style[: style.index("}")]
    colors = dict(re.findall(r"--([\w-]+): (#\w+);", light_theme))
    return colors | {"c0": colors["accent"], "truth": colors["ink"]}


def _line_style(look: Look) -> dict[str, Any]:
    dashes = None if look.dash is None else [float(length) / 2 for length in look.dash.split()]
    style = "-" if dashes is None else (0, dashes)
    return {"color": _page_colors()[look.color], "linestyle": style, "linewidth": 1.5}


def _marker_style(look: Look) -> dict[str, Any]:
    fill = _page_colors()["paper" if look.is_hollow else look.color]
    return {"marker": MARKERS[look.shape], "markersize": 5, "markerfacecolor": fill}


def _point_style(look: Look) -> dict[str, Any]:
    return _line_style(look) | _marker_style(look) | {"linestyle": ""}


@singledispatch
def draw_content(content: ChartContent, axes: Axes) -> None:  # noqa: ARG001
    """Draw one kind of chart into the axes."""
    raise UsageError(f"matplotlib figures have no {type(content).__name__} charts.")


def is_drawable(content: ChartContent) -> bool:
    """Whether a figure can have this kind of chart; a heat map of settings is for pages alone."""
    return draw_content.dispatch(type(content)) is not draw_content.dispatch(object)


@draw_content.register(Forest)
def draw_forest(forest: Forest, axes: Axes) -> None:
    """Rows from top to bottom. A named group is labelled once, in the middle of its rows."""
    if forest.band is not None:
        axes.axvspan(*forest.band, color=_page_colors()["faint"], linewidth=0, zorder=0)
    if forest.reference is not None:
        axes.axvline(forest.reference, color=_page_colors()["seen"], linewidth=1)
    ticks: list[float] = []
    labels: list[str] = []
    y = 0.0
    for group in forest.groups:
        heights = [y + position for position in range(len(group.rows))]
        for row, height in zip(group.rows, heights, strict=True):
            _draw_row(row, height, axes)
        if group.truth is not None:
            ends = heights[0] - 0.5, heights[-1] + 0.5
            axes.plot([group.truth] * 2, ends, color=_page_colors()["truth"], linestyle=":")
        ticks += [float(np.mean(heights))] if group.name else heights
        labels += [group.name] if group.name else [row.label for row in group.rows]
        y = heights[-1] + 1 + GROUP_GAP
    axes.set_yticks(ticks, [shorten(label, MAX_LABEL) for label in labels])
    axes.set_ylim(y - GROUP_GAP - 0.5, -0.5)
    axes.grid(axis="x", alpha=0.25)
    sides = (
        ""
        if forest.sides is None
        else "← {} better | {} better →\n".format(
            *(shorten(name, MAX_LABEL) for name in forest.sides)
        )
    )
    axes.set_xlabel(f"{sides}{forest.axis.title}")


def _draw_row(row: ForestRow, height: float, axes: Axes) -> None:
    limits = None
    if row.low is not None and row.high is not None:
        limits = [[max(row.value - row.low, 0.0)], [max(row.high - row.value, 0.0)]]
    axes.errorbar([row.value], [height], xerr=limits, capsize=2, **_point_style(row.look))
    for value, look, _ in row.others:
        axes.plot([value], [height], **_point_style(look))


@draw_content.register(Curves)
def draw_curves(content: Curves, axes: Axes) -> None:
    for curve in content.curves:
        _draw_curve(content, curve, axes)
    scales = {"xscale": content.x_axis.is_log, "yscale": content.y_axis.is_log}
    axes.set(**{name: "log" for name, is_log in scales.items() if is_log})
    gray: dict[str, Any] = {"color": _page_colors()["seen"], "linewidth": 1, "zorder": 0}
    if content.has_diagonal:
        ends = [*axes.get_xlim(), *axes.get_ylim()]
        low, high = min(ends), max(ends)
        axes.plot([low, high], [low, high], **gray)
        axes.set(xlim=(low, high), ylim=(low, high))
    if content.reference is not None:
        axes.axhline(content.reference, **gray)
    axes.set_xlim(content.x_axis.low, content.x_axis.high)
    axes.set_ylim(content.y_axis.low, content.y_axis.high)
    axes.set(xlabel=content.x_axis.title, ylabel=content.y_axis.title)
    axes.set_xticks(*_choose_ticks(content.x_axis, axes.get_xlim()))
    axes.set_yticks(*_choose_ticks(content.y_axis, axes.get_ylim()))
    axes.minorticks_off()
    axes.grid(alpha=0.25)


def _choose_ticks(axis: ChartAxis, limits: tuple[float, float]) -> tuple[list[float], list[str]]:
    """The same ticks and labels as on a page."""
    ticks = ChartScale(*limits, 0.0, 1.0, is_log=axis.is_log).axis_ticks(axis, MAX_TICKS)
    return ticks, [axis.format(tick) for tick in ticks]


def _draw_curve(content: Curves, curve: Curve, axes: Axes) -> None:
    points = content.drawable_points(curve)
    style = _line_style(curve.look)
    if len(points) <= MAX_MARKERS:
        style |= _marker_style(curve.look)
    axes.plot([point.x for point in points], [point.y for point in points], **style)
    if limits := list_limits(points):
        x, low, high = zip(*limits, strict=True)
        axes.fill_between(x, low, high, color=style["color"], alpha=0.15, linewidth=0)


@draw_content.register(MatrixImage)
def draw_matrix(matrix: MatrixImage, axes: Axes) -> None:
    values = np.asarray(matrix.values, dtype=float)
    image = axes.imshow(
        values,
        cmap="cividis",
        aspect="auto",
        interpolation="nearest",
        vmin=matrix.low,
        vmax=matrix.high,
    )
    n_blocks = max(len(matrix.columns), 1)
    centers = (np.arange(len(matrix.columns)) + 0.5) * values.shape[1] / n_blocks - 0.5
    axes.set_xticks(centers, matrix.columns)
    axes.set(ylabel="users", yticks=[])
    axes.tick_params(length=0)
    figure = axes.get_figure()
    assert figure is not None
    figure.colorbar(image, ax=axes, shrink=0.9, ticks=matrix.ticks)
