"""The page of a search for settings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from unskew.report.charts.axes import Axis, short
from unskew.report.charts.chart import Chart, chart
from unskew.report.charts.curves import Curve, Curves, Point
from unskew.report.charts.heat import Heat
from unskew.report.charts.looks import CORRECTED
from unskew.report.page import Page, Record, Section, Table, Tile, table
from unskew.report.wording import (
    NAIVE,
    brief,
    by_name,
    estimator_name,
    metric_in_words,
    metric_name,
    number,
    sentence,
    setting,
)

Rows = Sequence[Mapping[str, Any]]
SURFACE = "Each box is a setting: the better its score, the stronger its colour. The outlined one was chosen. The others are as chosen."
SLOPE = "The score of each value of the setting, mean over folds; shaded is one standard deviation over folds."
LEARNING = "What the solver lowers, step by step, as the chosen settings were fitted to the whole log. A flat end says that it was done."


def cross_validation_page(record: Record) -> Page:
    """Which settings are best, by how much, and how the fit went."""
    rows, name = record["rows"], metric_name(record["metric"])
    best = rows[0]
    cells = (
        "on ratings held out, each counted alike"
        if record["estimator"] == NAIVE
        else f"over all cells by {estimator_name(record['estimator'])}"
    )
    others = [row["score"] for row in rows[1:]]
    spread = f"± {number(best['std'], 3)} over folds" if best["std"] is not None else ""
    return Page(
        "Cross-validation",
        (
            (f"Of {len(rows)} settings, ", False),
            (f"{by_name(record['best_params'])} is best: {name} {number(best['score'], 3)}.", True),
        ),
        f"{sentence(metric_in_words(record['metric'])).removesuffix('.')} {cells}, mean over folds.",
        (
            Tile(number(best["score"], 3), f"{name} of the best", spread),
            *([Tile(number(others[-1], 3), f"{name} of the worst")] if others else []),
            Tile(str(len(rows)), "settings tried"),
            Tile(f"{sum(row['seconds'] for row in rows):.1f} s", "spent in fits"),
        ),
        tuple(_warnings(record)),
        tuple(_sections(record)),
        tuple(_facts(record)),
    )


def _warnings(record: Record) -> Iterator[str]:
    """A best value at the end of what was tried may not be the best there is."""
    for name, best in record["best_params"].items():
        values = _values(record["rows"], name)
        if len(values) > 2 and best in (values[0], values[-1]) and isinstance(best, (int, float)):
            yield f"The best {name}, {setting(best)}, is at the end of what was tried: try further values there."


def _sections(record: Record) -> Iterator[Section]:
    searched = [name for name in record["best_params"] if len(_values(record["rows"], name)) > 1]
    if len(searched) >= 2:
        yield Section("The surface", SURFACE, (surface_chart(record, searched[0], searched[1]),))
    if searched:
        charts = [
            slope_chart(record, name) for name in searched if _is_numeric(record["rows"], name)
        ]
        yield (
            Section("One setting at a time", SLOPE, tuple(charts))
            if charts
            else Section("One setting at a time")
        )
    if record["history"]:
        yield Section("Learning curve", LEARNING, (learning_chart(record["history"]),))
    yield Section("All settings", "", tables=(_table(record),))


def _values(rows: Rows, name: str) -> list[Any]:
    found = {setting(row[name]): row[name] for row in rows}.values()
    return sorted(
        found,
        key=lambda value: (
            not isinstance(value, (int, float)),
            value if isinstance(value, (int, float)) else 0,
            str(value),
        ),
    )


def _is_numeric(rows: Rows, name: str) -> bool:
    return all(
        isinstance(row[name], (int, float)) and not isinstance(row[name], bool) for row in rows
    )


def _like_best(record: Record, *free: str) -> list[Mapping[str, Any]]:
    """The rows that differ from the best in these settings alone."""
    return [
        row
        for row in record["rows"]
        if all(
            row[name] == best for name, best in record["best_params"].items() if name not in free
        )
    ]


def surface_chart(record: Record, across: str, up: str) -> Chart:
    """Two settings against one another, the others as chosen."""
    columns, lines = _values(record["rows"], across), _values(record["rows"], up)
    found = {
        (setting(row[up]), setting(row[across])): row for row in _like_best(record, across, up)
    }
    cells = [[found.get((setting(line), setting(column))) for column in columns] for line in lines]
    name, best = metric_name(record["metric"]), record["best_params"]
    heat = Heat(
        [setting(line) for line in lines],
        [setting(column) for column in columns],
        [[None if cell is None else cell["score"] for cell in row] for row in cells],
        [["" if cell is None else number(cell["score"], 3) for cell in row] for row in cells],
        [[_tip(cell, name, record["best_params"]) for cell in row] for row in cells],
        across,
        up,
        _is_higher_better(record),
        (
            [setting(line) for line in lines].index(setting(best[up])),
            [setting(column) for column in columns].index(setting(best[across])),
        ),
    )
    return chart(f"{name} by {across} and {up}", heat.draw, caption="Shaded by rank.")


def _tip(cell: Mapping[str, Any] | None, name: str, names: Mapping[str, Any]) -> str:
    if cell is None:
        return "not tried"
    return f"{by_name({each: cell[each] for each in names})}: {name} {number(cell['score'], 4)}"


def _is_higher_better(record: Record) -> bool:
    return bool(record["rows"][0]["score"] > record["rows"][-1]["score"])


def slope_chart(record: Record, name: str) -> Chart:
    """One setting, the others as chosen."""
    rows = sorted(_like_best(record, name), key=lambda row: row[name])
    measure = metric_name(record["metric"])
    points = tuple(
        Point(
            float(row[name]),
            row["score"],
            f"{name} = {setting(row[name])}: {measure} {number(row['score'], 4)}",
            row["score"] - row["std"],
            row["score"] + row["std"],
        )
        for row in rows
    )
    places = [point.x for point in points]
    is_log = places[0] > 0 and places[-1] > 8 * places[0]
    curves = Curves(
        [Curve(CORRECTED, points)],
        Axis(name, is_log=is_log, ticks=places, show=lambda value: f"{value:g}"),
        Axis(measure),
    )
    return chart(f"{measure} by {name}", curves.draw)


def learning_chart(history: Sequence[float]) -> Chart:
    """The objective after each step."""
    points = tuple(
        Point(float(step), value, f"step {step}: {value:,.6g}")
        for step, value in enumerate(history)
    )
    curves = Curves(
        [Curve(CORRECTED, points)],
        Axis("step", show=lambda value: f"{value:g}", low=0.0),
        Axis("objective", show=short),
    )
    return chart("Learning curve of the chosen model", curves.draw)


def _table(record: Record) -> Table:
    heads = {
        "score": metric_name(record["metric"]),
        "std": "std. over folds",
        "n_iter": "steps",
        "seconds": "seconds",
    }
    columns = {
        heads.get(name, name): [
            setting(row[name]) if name in record["best_params"] else row[name]
            for row in record["rows"]
        ]
        for name in record["rows"][0]
    }
    return table("Every setting, the best first", columns)


def _facts(record: Record) -> Iterator[tuple[str, str]]:
    told = {"model": "model", "n_observed": "logged ratings", "n_folds": "folds", "seed": "seed"}
    for name, label in told.items():
        if record.get(name) is not None:
            yield label, f"{record[name]:,}" if isinstance(record[name], int) else str(record[name])
    yield "score", f"{record['metric']} by {record['estimator']}"
    yield (
        "steps of the final fit",
        brief(len(record["history"]) - 1) if record["history"] else "not told",
    )
    yield "computed by", f"unskew {record['version']}"
