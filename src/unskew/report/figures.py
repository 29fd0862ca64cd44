"""The figures of the paper, drawn from our runs, as PNG and SVG."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt

from unskew.errors import MissingExtraError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.ticker import Locator

COLORS = {"naive": "#D55E00", "ips": "#0072B2", "snips": "#009E73"}
MARKERS = {"naive": "s", "ips": "o", "snips": "^"}
LABELS = {
    "naive": "Naive",
    "ips": "IPS",
    "snips": "SNIPS",
    "mse": "MSE",
    "mae": "MAE",
    "dcg@50": "DCG@50",
}
PLAIN = {name: {"color": COLORS[name], "marker": MARKERS[name], "markersize": 5} for name in COLORS}
"""How the curve of an estimator looks."""
BY_NAIVE_BAYES: Mapping[str, Any] = {"color": "#CC79A7", "marker": "D", "markersize": 5}
MODELS: Mapping[str, Mapping[str, Any]] = {
    "MF-Naive": PLAIN["naive"],
    "MF-IPS": PLAIN["ips"],
    "MF-IPS-NB": BY_NAIVE_BAYES,
}
"""Models in the colours of the estimators that they minimise."""
FIGURE4: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "naive": ("Naive", {"color": COLORS["naive"], "linestyle": "--"}),
    "ips-nb": ("IPS-NB", {**BY_NAIVE_BAYES, "markersize": 8, "fillstyle": "none"}),
    "snips-nb": (
        "SNIPS-NB",
        {"color": "#E69F00", "marker": "x", "markersize": 5, "linestyle": ":"},
    ),
    "ips-known": ("IPS-KNOWN", {"color": COLORS["ips"], "linestyle": "--"}),
    "snips-known": ("SNIPS-KNOWN", {"color": COLORS["snips"], "linestyle": "-."}),
}
"""Label and look of each estimator: what knows the propensities has no markers, and what coincides can be told apart."""
AXES = {"alpha": "alpha (1: missing at random)", "sample_size": "random ratings for naive Bayes"}
"""What a row calls its place on the axis, and the label of that."""
PANELS = {
    "left": ("alpha", "selection grows stronger"),
    "right": ("sample_size", "the random sample grows"),
}
"""Of Figure 3: the axis, and what changes along it."""
GENRES = ("horror", "romance", "drama")
Rows = Sequence[Mapping[str, Any]]


class Drawable(Protocol):
    """What a drawing reads of an experiment's result."""

    @property
    def name(self) -> str:
        """Which experiment."""
        ...

    @property
    def rows(self) -> Rows:
        """Its numbers."""
        ...

    @property
    def grids(self) -> Mapping[str, npt.NDArray[np.generic]]:
        """Its matrices, if any."""
        ...


def new_figure(width: float, height: float) -> Figure:
    """A figure that no window ever shows."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingExtraError("matplotlib", extra="report", purpose="drawing figures") from error
    return Figure(figsize=(width, height), layout="constrained")


def save(figure: Figure, directory: Path, name: str) -> Iterator[Path]:
    """Write NAME.png and NAME.svg."""
    directory.mkdir(parents=True, exist_ok=True)
    for ending in ("png", "svg"):
        path = directory / f"{name}.{ending}"
        figure.savefig(path, dpi=160)
        yield path


def draw_figure2(result: Drawable) -> Figure:
    """RMSE against alpha, a panel a metric, both axes logarithmic."""
    rows = result.rows
    figure = new_figure(9, 4.1)
    figure.suptitle(
        "Error of the estimates as selection grows stronger (bands: 95 % over trials)",
        fontsize="medium",
    )
    metrics = list(dict.fromkeys(row["metric"] for row in rows))
    for axes, metric in zip(figure.subplots(1, len(metrics)), metrics, strict=True):
        for estimator in COLORS:
            curve = [
                row for row in rows if row["metric"] == metric and row["estimator"] == estimator
            ]
            _draw_curve(axes, curve, "alpha", PLAIN[estimator], label=LABELS[estimator])
        axes.set(yscale="log", ylabel=f"RMSE of the {LABELS[metric]} estimate")
        _mark(axes, rows, "alpha")
    axes.legend(frameon=False)
    return figure


def draw_figure3(result: Drawable) -> Figure:
    """Error over all cells of each model, both axes logarithmic: against alpha, or the size of the sample, or a panel each."""
    rows = [row for row in result.rows if "variant" not in row]
    panels = list(dict.fromkeys(row["panel"] for row in rows))
    figure = new_figure(7 if len(panels) == 1 else 11, 4.1)
    changes = " and ".join(PANELS[panel][1] for panel in panels)
    figure.suptitle(
        f"Error of factorisation as {changes} (bands: 95 % over trials)", fontsize="medium"
    )
    for axes, panel in zip(
        figure.subplots(1, len(panels), squeeze=False).flat, panels, strict=True
    ):
        shown, axis = [row for row in rows if row["panel"] == panel], PANELS[panel][0]
        for model, look in MODELS.items():
            _draw_curve(
                axes, [row for row in shown if row["model"] == model], axis, look, label=model
            )
        axes.set(yscale="log", ylabel="MSE over all cells")
        axes.yaxis.set_major_locator(_round_numbers())
        axes.yaxis.set_major_formatter("{x:g}")
        _mark(axes, shown, axis)
    figure.legend(*axes.get_legend_handles_labels(), loc="outside right center", frameon=False)
    return figure


def draw_figure4(result: Drawable) -> Figure:
    """RMSE against the size of the sample, a panel a metric, both axes logarithmic."""
    rows = result.rows
    figure = new_figure(10, 4.1)
    figure.suptitle(
        "Error of the estimates as the random sample grows (bands: 95 % over trials)",
        fontsize="medium",
    )
    metrics = list(dict.fromkeys(row["metric"] for row in rows))
    for axes, metric in zip(figure.subplots(1, len(metrics)), metrics, strict=True):
        for estimator, (label, look) in FIGURE4.items():
            curve = [
                row for row in rows if row["metric"] == metric and row["estimator"] == estimator
            ]
            _draw_curve(axes, curve, "sample_size", look, label=label)
        axes.set(yscale="log", ylabel=f"RMSE of the {LABELS[metric]} estimate")
        _mark(axes, rows, "sample_size")
    figure.legend(*axes.get_legend_handles_labels(), loc="outside right center", frameon=False)
    return figure


def _round_numbers() -> Locator:
    """1, 2 and 5 times powers of 10."""
    from matplotlib.ticker import LogLocator

    return LogLocator(subs=(1.0, 2.0, 5.0))


def _mark(axes: Axes, rows: Rows, axis: str) -> None:
    """A logarithmic axis with the places of the rows and no others."""
    places = sorted({row[axis] for row in rows})
    axes.set(xscale="log", xlabel=AXES[axis])
    axes.set_xticks(places, [_short(place) for place in places])
    axes.minorticks_off()
    axes.grid(alpha=0.25)


def _short(place: float) -> str:
    """30k for 30,000: seven full numbers would run into one another."""
    return f"{place / 1000:g}k" if place >= 1000 else f"{place:g}"


def _draw_curve(axes: Axes, rows: Rows, axis: str, look: Mapping[str, Any], *, label: str) -> None:
    """Values with their band; nothing where there are none."""
    if not rows:
        return
    place = [row[axis] for row in rows]
    axes.plot(place, [row["ours"] for row in rows], label=label, **look)
    low, high = ([row[end] for row in rows] for end in ("ci_low", "ci_high"))
    axes.fill_between(place, low, high, color=look["color"], alpha=0.2, linewidth=0)


def draw_table1(result: Drawable) -> Figure:
    """Each prediction's true value and what the estimators say, a panel a metric."""
    rows = result.rows
    figure = new_figure(9, 4.1)
    figure.suptitle(
        "True values and their estimates (mean and standard deviation over draws)",
        fontsize="medium",
    )
    metrics = list(dict.fromkeys(row["metric"] for row in rows))
    for axes, metric in zip(figure.subplots(1, len(metrics)), metrics, strict=True):
        shown = [row for row in rows if row["metric"] == metric]
        place = np.arange(len(shown))
        axes.barh(place, [row["true"] for row in shown], color="0.85", height=0.7, label="true")
        for offset, estimator in zip((0.2, 0.0, -0.2), COLORS, strict=True):
            means, spreads = ([row[estimator][part] for row in shown] for part in ("mean", "std"))
            axes.errorbar(
                means,
                place - offset,
                xerr=spreads,
                fmt=MARKERS[estimator],
                markersize=5,
                color=COLORS[estimator],
                label=LABELS[estimator],
            )
        axes.set(
            yticks=place, yticklabels=[row["prediction"] for row in shown], xlabel=LABELS[metric]
        )
        axes.invert_yaxis()
        axes.grid(axis="x", alpha=0.25)
    axes.legend(frameon=False)
    return figure


def draw_toy(result: Drawable) -> Figure:
    """Small matrices side by side in two rows, as in Figure 1."""
    figure = new_figure(10, 5.2)
    for axes, (title, grid) in zip(figure.subplots(2, 3).flat, result.grids.items(), strict=True):
        is_rating = title.startswith(("Y:", "Y1", "Y2"))
        low, high = (1, 5) if is_rating else (0, float(grid.max()))
        image = axes.imshow(
            grid, cmap="cividis", aspect="auto", interpolation="nearest", vmin=low, vmax=high
        )
        places = (np.arange(len(GENRES)) + 0.5) * grid.shape[1] / len(GENRES) - 0.5
        axes.set(title=title, ylabel="users", xticks=places, xticklabels=GENRES, yticks=[])
        axes.tick_params(length=0)
        figure.colorbar(
            image,
            ax=axes,
            shrink=0.9,
            ticks=list(range(1, 6)) if is_rating else np.unique(grid).tolist(),
        )
    return figure


def draw_table2(result: Drawable) -> Figure:
    """Test errors of the models, ours beside the paper's, a panel a data set and metric."""
    rows = [row for row in result.rows if "variant" not in row]
    panels = list(dict.fromkeys((row["data"], row["metric"]) for row in rows))
    data = list(dict.fromkeys(name for name, _ in panels))
    figure = new_figure(9, 2.6 * len(data))
    figure.suptitle("Error on the uniformly random test, ours and the paper's", fontsize="medium")
    grid = figure.subplots(len(data), len(panels) // len(data), squeeze=False)
    for axes, (name, metric) in zip(grid.ravel(), panels, strict=True):
        shown = [row for row in rows if (row["data"], row["metric"]) == (name, metric)]
        axes.set_title(name.capitalize())
        place = np.arange(len(shown))
        axes.barh(place, [row["paper"] for row in shown], color="0.85", height=0.7, label="paper")
        axes.plot(
            [row["ours"] for row in shown], place, MARKERS["ips"], color=COLORS["ips"], label="ours"
        )
        axes.set(yticks=place, yticklabels=[row["model"] for row in shown], xlabel=LABELS[metric])
        axes.invert_yaxis()
        axes.grid(axis="x", alpha=0.25)
    figure.legend(*axes.get_legend_handles_labels(), loc="outside right center", frameon=False)
    return figure


DRAWINGS: Mapping[str, Callable[[Drawable], Figure]] = {
    "toy": draw_toy,
    "table1": draw_table1,
    "figure2": draw_figure2,
    "figure3": draw_figure3,
    "figure4": draw_figure4,
    "table2": draw_table2,
}


def draw(result: Drawable) -> Figure:
    """The figure of an experiment, by its name."""
    return DRAWINGS[result.name](result)
