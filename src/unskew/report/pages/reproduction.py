"""The page of a table or figure of the paper, run again."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from unskew.report.charts.axes import Axis
from unskew.report.charts.chart import Chart, chart, key, rule_key, small_chart
from unskew.report.charts.curves import Curve, Curves, Point
from unskew.report.charts.forest import Block, Forest, Row
from unskew.report.charts.heat import small_heat
from unskew.report.charts.looks import CORRECTED, SEEN, Look, estimator_look, look_of
from unskew.report.page import Page, Record, Section, Tile, table
from unskew.report.wording import estimator_name, interval, metric_name, number

Rows = Sequence[Mapping[str, Any]]
TITLES = {
    "toy": "Figure 1",
    "table1": "Table 1",
    "figure2": "Figure 2",
    "figure3": "Figure 3",
    "figure4": "Figure 4",
    "table2": "Table 2",
}
PAPER = (
    "Schnabel, Swaminathan, Singh, Chandak and Joachims: Recommendations as Treatments. ICML 2016."
)
SENTENCES = re.compile(r"(?<=[.!?])\s+(?=[A-Z])")
AXES = {"alpha": "alpha (1: missing at random)", "sample_size": "random ratings for naive Bayes"}
LOOKS: Mapping[str, Look] = {
    "MF-Naive": SEEN,
    "MF-IPS": CORRECTED,
    "naive": SEEN,
    "ips": estimator_look("ips", 0),
    "snips": CORRECTED,
    "ips-known": estimator_look("ips", 0),
    "snips-known": CORRECTED,
}
ESTIMATORS = ("naive", "ips", "snips")


def reproduction_page(record: Record) -> Page:
    """Ours beside the paper's."""
    title = TITLES.get(record["name"], record["name"])
    first, *rest = SENTENCES.split(record["summary"]) or [""]
    unit = f"{record['unit']}{'' if record['trials'] == 1 else 's'}"
    return Page(
        f"{title} of the paper, run again",
        ((first or f"{title}, run again.", True),),
        " ".join(rest),
        (Tile(f"{record['trials']:,}", unit), Tile(str(record["seed"]), "seed")),
        (),
        tuple(_sections(record)),
        (
            ("experiment", record["name"]),
            (unit, str(record["trials"])),
            ("seed", str(record["seed"])),
            ("paper", PAPER),
            ("computed by", f"unskew {record['version']}"),
        ),
    )


def _sections(record: Record) -> Iterator[Section]:
    draw = CHARTS.get(record["name"])
    shown = [row for row in record["rows"] if "variant" not in row]
    if draw is not None and shown:
        yield Section("What comes out", CAPTIONS[record["name"]], tuple(draw(shown)))
    if record["grids"]:
        yield Section("What it is made of", GRIDS, tuple(_grids(record["grids"])), is_small=True)
    if record["setting"]:
        yield Section(
            "The setting", "", tables=(table("The setting, block by block", record["setting"]),)
        )
    if record["table"]:
        yield Section("The table", "", tables=(table(record["caption"], _named(record["table"])),))


def _named(columns: Mapping[str, Sequence[Any]]) -> dict[str, list[Any]]:
    """A name that stands for the lines below it too is written out, so that sorting keeps it with them."""
    filled = {name: list(values) for name, values in columns.items()}
    for name in {"prediction", "metric"} & filled.keys():
        for place in range(1, len(filled[name])):
            filled[name][place] = filled[name][place] or filled[name][place - 1]
    return filled


GRIDS = "Users down, films across; the stronger the colour, the more."
CAPTIONS = {
    "toy": "Each prediction's true value and what the estimators say: mean and standard deviation over draws.",
    "table1": "Each prediction's true value and what the estimators say: mean and standard deviation over draws.",
    "figure2": "How far each estimate is off as selection grows stronger. Shaded: 95% bands over trials. Axes are logarithmic.",
    "figure3": "Error over all cells of each model. Shaded: 95% bands over trials. Axes are logarithmic.",
    "figure4": "How far each estimate is off as the random sample grows. Shaded: 95% bands over trials. Axes are logarithmic.",
    "table2": "Error on the uniformly random test: ours with its 95% interval, and what the paper prints.",
}


def _grids(grids: Mapping[str, Sequence[Sequence[float]]]) -> Iterator[Chart]:
    for title, values in grids.items():
        is_rating = title.startswith(("Y:", "Y1", "Y2"))
        low, high = (1.0, 5.0) if is_rating else (0.0, max(max(row) for row in values))
        yield small_chart(title, small_heat(values, low, high))


def _spreads(rows: Rows) -> Iterator[Chart]:
    """Truth and estimates, a forest a metric."""
    legend = [
        *(key(estimator_name(name), estimator_look(name, 0)) for name in ESTIMATORS),
        rule_key("Truth", "truth rule"),
    ]
    for metric in dict.fromkeys(row["metric"] for row in rows):
        blocks = []
        for row in (row for row in rows if row["metric"] == metric):
            lines = tuple(_spread(row, name) for name in ESTIMATORS)
            blocks.append(Block(row["prediction"], lines, row["true"]))
        yield chart(
            metric_name(metric), Forest(blocks, Axis(metric_name(metric))).draw, legend=legend
        )


def _spread(row: Mapping[str, Any], name: str) -> Row:
    mean, std = row[name]["mean"], row[name]["std"]
    shown = f"{number(mean, 3)} ± {number(std, 3)}"
    tip = f"{row['prediction']}, {estimator_name(name)}: {shown}; true {number(row['true'], 3)}"
    return Row(
        estimator_name(name), mean, estimator_look(name, 0), tip, mean - std, mean + std, shown
    )


def _lines(rows: Rows, who: str, across: str, title: str) -> Chart:
    """A curve for each model or estimator over one axis."""
    names = list(dict.fromkeys(row[who] for row in rows))
    looks = {name: LOOKS.get(name) or look_of(place + 1) for place, name in enumerate(names)}
    curves = [
        Curve(looks[name], tuple(_point(row, who, across) for row in rows if row[who] == name))
        for name in names
    ]
    places = sorted({row[across] for row in rows})
    drawn = Curves(curves, Axis(AXES[across], is_log=True, ticks=places), Axis(title, is_log=True))
    return chart(
        title,
        drawn.draw,
        legend=[key(estimator_name(name), look, is_line=True) for name, look in looks.items()],
    )


def _point(row: Mapping[str, Any], who: str, across: str) -> Point:
    shown = interval(row["ours"], row["ci_low"], row["ci_high"])
    tip = f"{estimator_name(row[who])} at {row[across]:g}: {shown}"
    return Point(
        row[across], row["ours"], tip, max(row["ci_low"], row["ours"] / 100), row["ci_high"]
    )


def _errors(across: str) -> Callable[[Rows], Iterator[Chart]]:
    """RMSE over an axis, a chart a metric."""

    def draw(rows: Rows) -> Iterator[Chart]:
        for metric in dict.fromkeys(row["metric"] for row in rows):
            shown = [row for row in rows if row["metric"] == metric]
            yield _lines(shown, "estimator", across, f"RMSE of the {metric_name(metric)} estimate")

    return draw


def _panels(rows: Rows) -> Iterator[Chart]:
    axes = {"left": "alpha", "right": "sample_size"}
    for panel in dict.fromkeys(row["panel"] for row in rows):
        yield _lines(
            [row for row in rows if row["panel"] == panel],
            "model",
            axes[panel],
            "MSE over all cells",
        )


def _beside_paper(rows: Rows) -> Iterator[Chart]:
    legend = [key("ours", CORRECTED), key("paper", SEEN)]
    for data, metric in dict.fromkeys((row["data"], row["metric"]) for row in rows):
        shown = [row for row in rows if (row["data"], row["metric"]) == (data, metric)]
        lines = tuple(_ours(row) for row in shown)
        title = f"{metric_name(metric)} on {str(data).capitalize()}"
        yield chart(
            title,
            Forest([Block("", lines)], Axis(f"{title} (lower is better)")).draw,
            legend=legend,
        )


def _ours(row: Mapping[str, Any]) -> Row:
    low, high, paper = row.get("ci_low"), row.get("ci_high"), row.get("paper")
    shown = number(row["ours"], 3)
    others = () if paper is None else ((paper, SEEN, f"{row['model']}, paper: {number(paper, 3)}"),)
    return Row(
        row["model"],
        row["ours"],
        CORRECTED,
        f"{row['model']}, ours: {shown}",
        low,
        high,
        shown,
        others,
    )


CHARTS: Mapping[str, Callable[[Rows], Iterator[Chart]]] = {
    "toy": _spreads,
    "table1": _spreads,
    "figure2": _errors("alpha"),
    "figure3": _panels,
    "figure4": _errors("sample_size"),
    "table2": _beside_paper,
}
