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
LABELS = {"naive": "Naive", "ips": "IPS", "snips": "SNIPS", "mse": "MSE", "mae": "MAE", "dcg@50": "DCG@50"}
MODELS = {"MF-Naive": "naive", "MF-IPS": "ips"}
"""Models in the colours of the estimators that they minimise."""
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
    figure.suptitle("Error of the estimates as selection grows stronger (bands: 95 % over trials)", fontsize="medium")
    metrics = list(dict.fromkeys(row["metric"] for row in rows))
    for axes, metric in zip(figure.subplots(1, len(metrics)), metrics, strict=True):
        for estimator in COLORS:
            curve = [row for row in rows if row["metric"] == metric and row["estimator"] == estimator]
            _draw_curve(axes, curve, style=estimator, label=LABELS[estimator])
        axes.set(yscale="log", ylabel=f"RMSE of the {LABELS[metric]} estimate")
        _mark_alphas(axes, rows)
    axes.legend(frameon=False)
    return figure


def draw_figure3(result: Drawable) -> Figure:
    """Error over all cells of each model against alpha, both axes logarithmic."""
    rows = [row for row in result.rows if "variant" not in row]
    figure = new_figure(6, 4.1)
    figure.suptitle("Error of factorisation as selection grows stronger (bands: 95 % over trials)", fontsize="medium")
    axes = figure.subplots()
    for model, style in MODELS.items():
        _draw_curve(axes, [row for row in rows if row["model"] == model], style=style, label=model)
    axes.set(yscale="log", ylabel="MSE over all cells")
    axes.yaxis.set_major_locator(_round_numbers())
    axes.yaxis.set_major_formatter("{x:g}")
    _mark_alphas(axes, rows)
    axes.legend(frameon=False)
    return figure


def _round_numbers() -> Locator:
    """1, 2 and 5 times powers of 10."""
    from matplotlib.ticker import LogLocator

    return LogLocator(subs=(1.0, 2.0, 5.0))


def _mark_alphas(axes: Axes, rows: Rows) -> None:
    """A logarithmic axis with the alphas of the rows and no others."""
    axes.set(xscale="log", xlabel="alpha (1: missing at random)")
    axes.set_xticks(sorted({row["alpha"] for row in rows}))
    axes.xaxis.set_major_formatter("{x:g}")
    axes.minorticks_off()
    axes.grid(alpha=0.25)


def _draw_curve(axes: Axes, rows: Rows, *, style: str, label: str) -> None:
    alpha = [row["alpha"] for row in rows]
    axes.plot(alpha, [row["ours"] for row in rows], marker=MARKERS[style], markersize=5, color=COLORS[style], label=label)
    low, high = ([row[end] for row in rows] for end in ("ci_low", "ci_high"))
    axes.fill_between(alpha, low, high, color=COLORS[style], alpha=0.2, linewidth=0)


def draw_table1(result: Drawable) -> Figure:
    """Each prediction's true value and what the estimators say, a panel a metric."""
    rows = result.rows
    figure = new_figure(9, 4.1)
    figure.suptitle("True values and their estimates (mean and standard deviation over draws)", fontsize="medium")
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
        axes.set(yticks=place, yticklabels=[row["prediction"] for row in shown], xlabel=LABELS[metric])
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
        image = axes.imshow(grid, cmap="cividis", aspect="auto", interpolation="nearest", vmin=low, vmax=high)
        places = (np.arange(len(GENRES)) + 0.5) * grid.shape[1] / len(GENRES) - 0.5
        axes.set(title=title, ylabel="users", xticks=places, xticklabels=GENRES, yticks=[])
        axes.tick_params(length=0)
        figure.colorbar(image, ax=axes, shrink=0.9, ticks=list(range(1, 6)) if is_rating else np.unique(grid).tolist())
    return figure


def draw_table2(result: Drawable) -> Figure:
    """Test errors of the models, ours beside the paper's, a panel a metric."""
    rows = [row for row in result.rows if "variant" not in row]
    figure = new_figure(9, 2.6)
    figure.suptitle("Error on the uniformly random test of Coat, ours and the paper's", fontsize="medium")
    metrics = list(dict.fromkeys(row["metric"] for row in rows))
    for axes, metric in zip(figure.subplots(1, len(metrics)), metrics, strict=True):
        shown = [row for row in rows if row["metric"] == metric]
        place = np.arange(len(shown))
        axes.barh(place, [row["paper"] for row in shown], color="0.85", height=0.7, label="paper")
        axes.plot([row["ours"] for row in shown], place, MARKERS["ips"], color=COLORS["ips"], label="ours")
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
    "table2": draw_table2,
}


def draw(result: Drawable) -> Figure:
    """The figure of an experiment, by its name."""
    return DRAWINGS[result.name](result)
