"""The page of a growing log: the path of the estimates, with limits that hold at every look."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

from unskew.metrics import metric_label
from unskew.report import PAGES
from unskew.report.charts import (
    Chart,
    ChartAxis,
    Curve,
    CurvePoint,
    Curves,
    default_looks,
    make_legend,
)
from unskew.report.page import Headline, Page, Section, Tile, make_table
from unskew.report.text import (
    Record,
    format_brief,
    format_count,
    format_interval,
    format_number,
    format_share,
    format_universe,
    interval_of,
)

LABELS = {"snips": "SNIPS", "ips": "IPS", "exact": "IPS, exact limits"}
MEANING = (
    "The shaded limits hold at all looks together with the stated probability: you may look as "
    "often as you like and stop at any time. Limits begin at an effective sample size of 100."
)
NOT_COUNTED = (
    "The limits take the propensities as right and as fixed when each row arrived. They do not "
    "count errors of the propensities."
)
UNIT_NOTES = {
    "row": "Each row is taken as independent of the others. If users have several rows that "
    "resemble one another, the limits are too narrow; then watch users as units.",
    "user": "All rows of a user count as one unit. This is right if the rows of a user arrive "
    "together.",
}
ASYMPTOTIC = (
    "The limits of SNIPS and IPS are asymptotic: they need many rows, and rare rows with large "
    "weights can make them too narrow."
)
EXACT = "The exact limits need no large sample. They need the largest possible weight and delta."
MAX_WIDTH = 8.0
"""Wider limits, in widths of the last ones, are not drawn."""
LIMIT_NAMES = {"ci_low": "lower limit", "ci_high": "upper limit", "p_value": "p-value"}
RISK_FIELDS = ("model", "metric", "estimator", "estimate", "ci_low", "ci_high")
DIFFERENCE_FIELDS = (
    *("first", "second", "metric", "estimator"),
    *("difference", "ci_low", "ci_high", "p_value"),
)


@PAGES.declare("watch", label="Growing log", summary="A growing log with limits at every look.")
def build_watch_page(record: Record) -> Page:
    look = record["look"]
    share = record["mass_share"]
    tiles = [
        Tile(
            format_count(look["n_rows"]),
            "rows",
            f"planned: {record['planned_size']:,} {_units(record)}",
        ),
        Tile(format_count(look["effective_size"]), "effective sample size", _units(record)),
    ]
    if share is not None:
        tiles.append(Tile(format_share(share), "of all cells", "that these rows stand for"))
    return Page(
        _write_headline(record),
        MEANING,
        tuple(tiles),
        warnings=tuple(record["warnings"]),
        sections=tuple(_make_sections(record)),
        facts=(
            ("limits", f"{record['level']:.0%}, at all looks together, each number by itself"),
            ("planned size", f"{record['planned_size']:,} {_units(record)}"),
            ("unit", record["unit"]),
            ("universe", format_universe(record["universe"])),
            ("rated rows", f"{record['n_observed']:,}"),
        ),
        assumptions=tuple(filter(None, [record.get("assumption")])),
    )


def _units(record: Record) -> str:
    return f"{record['unit']}s"


def _write_headline(record: Record) -> Headline:
    look, metric = record["look"], next(iter(record["metrics"]))
    if record["is_early"]:
        size = format_count(look["effective_size"])
        text = f"Too early: an effective sample size of {size} is below 100."
        return ((text, True),)
    if look["differences"]:
        row = look["differences"][0]
        text = format_interval(*interval_of(row, "difference"), with_sign=True)
        verdict = _describe_difference(row, higher_is_better=record["metrics"][metric])
        subject = f"{metric_label(metric)} of {row['first']} − {row['second']}"
        return ((f"{verdict} ", True), (f"({subject}: {text}).", False))
    row = look["rows"][0]
    text = format_interval(*interval_of(row, "estimate"))
    return ((f"{metric_label(metric)} of {row['model']} is {text}.", True),)


def _describe_difference(row: Record, *, higher_is_better: bool) -> str:
    first, second = row["first"], row["second"]
    if row["ci_low"] <= 0 <= row["ci_high"]:
        return f"{first} and {second} cannot be told apart so far"
    is_first_better = (row["difference"] > 0) == higher_is_better
    better, worse = (first, second) if is_first_better else (second, first)
    return f"{better} is better than {worse}, if the propensities are right"


def _make_sections(record: Record) -> Iterator[Section]:
    looks = list(record["path"])
    if not looks or looks[-1]["n_rows"] != record["look"]["n_rows"]:
        looks.append(record["look"])
    notes = [NOT_COUNTED, UNIT_NOTES[record["unit"]], ASYMPTOTIC]
    notes += [EXACT] if "exact" in record["estimators"] else []
    charts = [
        _draw_path(record, looks, table, metric, estimator)
        for metric in record["metrics"]
        for table in (["differences"] if record["look"]["differences"] else []) + ["rows"]
        for estimator in record["estimators"]
    ]
    yield Section("The path", "", tuple(charts), notes=tuple(notes))
    current = record["look"]
    tables = [make_table("Estimates now", _list_columns(current["rows"], RISK_FIELDS))]
    if current["differences"]:
        columns = _list_columns(current["differences"], DIFFERENCE_FIELDS)
        tables.append(make_table("Differences now: first minus second", columns))
    yield Section("The numbers", "A dash means: too early for limits.", tables=tuple(tables))


def _list_columns(rows: Sequence[Record], names: Sequence[str]) -> dict[str, list[object]]:
    return {LIMIT_NAMES.get(name, name): [row[name] for row in rows] for name in names}


def _draw_path(
    record: Record, looks: Sequence[Record], table: str, metric: str, estimator: str
) -> Chart:
    """The path of each model, or of each difference, by one metric and estimator."""
    value = "estimate" if table == "rows" else "difference"
    paths: dict[str, list[CurvePoint]] = {}
    for look in looks:
        for row in look[table]:
            if (row["metric"], row["estimator"]) == (metric, estimator):
                subject = row["model"] if table == "rows" else f"{row['first']} − {row['second']}"
                paths.setdefault(subject, []).append(_make_point(look, row, subject, value))
    paths = {subject: _hide_wide_limits(points) for subject, points in paths.items()}
    styles = default_looks(paths)
    label = metric_label(metric)
    measure = label if table == "rows" else f"difference of {label}"
    content = Curves(
        [Curve(styles[subject], tuple(points)) for subject, points in paths.items()],
        ChartAxis("rows", format=format_brief),
        ChartAxis(measure),
        reference=None if table == "rows" else 0.0,
    )
    caption = (
        f"Shaded: {record['level']:.0%} limits that hold at all looks together, from where they "
        f"are at most {MAX_WIDTH:.0f} times as wide as now."
    )
    return Chart(f"{measure}, {LABELS[estimator]}", content, make_legend(styles, "line"), caption)


def _make_point(look: Record, row: Record, subject: str, value: str) -> CurvePoint:
    if row["ci_low"] is None:
        text = f"{format_number(row[value])}, too early for limits"
    else:
        text = format_interval(*interval_of(row, value))
    tip = f"{subject}, {look['n_rows']:,} rows: {text}"
    return CurvePoint(look["n_rows"], row[value], tip, row["ci_low"], row["ci_high"])


def _hide_wide_limits(points: Sequence[CurvePoint]) -> list[CurvePoint]:
    """The points without the limits of early looks, which would hide the others."""
    last = points[-1]
    most = math.inf if last.low is None or last.high is None else MAX_WIDTH * (last.high - last.low)
    return [
        replace(point, low=None, high=None)
        if point.low is not None and point.high is not None and point.high - point.low > most
        else point
        for point in points
    ]
