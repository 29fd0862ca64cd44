"""What estimates do under changed weights: the curve under clipping, the fan under wrong propensities."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from unskew.report.charts.axes import Axis, percent
from unskew.report.charts.chart import Chart, Key, chart, key
from unskew.report.charts.curves import Curve, Curves, Point
from unskew.report.charts.looks import Look, look_of
from unskew.report.wording import brief, estimator_name, interval, metric_name

Rows = Sequence[Mapping[str, Any]]


def clip_chart(rows: Rows, level: float) -> Chart:
    """One metric by one estimator, a line a model."""
    models = _models(rows)
    amounts = sorted({row["amount"] for row in rows})
    lines = [
        Curve(look, tuple(_clipped(row) for row in rows if row["model"] == model))
        for model, look in models.items()
    ]
    across = Axis("largest weight allowed", is_log=amounts[-1] > 4 * amounts[0], show=brief)
    curves = Curves(lines, across, Axis(_measure(rows)))
    caption = f"Shaded: {level:.0%} intervals."
    return chart(
        f"{_measure(rows)} under clipping", curves.draw, legend=_keys(models), caption=caption
    )


def odds_chart(rows: Rows, level: float) -> Chart:
    """One metric by one estimator: the lowest and the highest that such an error allows."""
    models = _models(rows)
    lines = [
        Curve(look, tuple(points))
        for model, look in models.items()
        for points in zip(*(_ends(row) for row in rows if row["model"] == model), strict=True)
    ]
    across = Axis(
        "odds of being logged are off by up to a factor of",
        ticks=sorted({row["amount"] for row in rows}),
        show=brief,
    )
    curves = Curves(
        lines,
        across,
        Axis(_measure(rows)),
        level=0.0 if any(row["low"] < 0 < row["high"] for row in rows) else None,
    )
    caption = f"Two lines a model: the least and the largest estimate possible. Shaded: {level:.0%} limits beyond them."
    return chart(
        f"{_measure(rows)} if the propensities are wrong",
        curves.draw,
        legend=_keys(models),
        caption=caption,
    )


def by_question(rows: Rows) -> Iterator[Rows]:
    """The rows of each metric and estimator."""
    for metric, estimator in dict.fromkeys((row["metric"], row["estimator"]) for row in rows):
        yield [row for row in rows if (row["metric"], row["estimator"]) == (metric, estimator)]


def _measure(rows: Rows) -> str:
    return f"{metric_name(rows[0]['metric'])} by {estimator_name(rows[0]['estimator'])}"


def _models(rows: Rows) -> dict[str, Look]:
    return {
        model: look_of(place)
        for place, model in enumerate(dict.fromkeys(row["model"] for row in rows))
    }


def _keys(models: Mapping[str, Look]) -> list[Key]:
    return [key(model, look, is_line=True) for model, look in models.items()]


def _clipped(row: Mapping[str, Any]) -> Point:
    cut = (
        "" if row["share_clipped"] is None else f", {percent(row['share_clipped'])} of ratings cut"
    )
    shown = interval(row["low"], row["ci_low"], row["ci_high"])
    return Point(
        row["amount"],
        row["low"],
        f"{row['model']}, weights up to {brief(row['amount'])}{cut}: {shown}",
        row["ci_low"],
        row["ci_high"],
    )


def _ends(row: Mapping[str, Any]) -> tuple[Point, Point]:
    where = f"{row['model']}, odds off by up to {brief(row['amount'])}"
    return (
        Point(
            row["amount"],
            row["low"],
            f"{where}: at least {brief(row['low'])}",
            row["ci_low"],
            row["low"],
        ),
        Point(
            row["amount"],
            row["high"],
            f"{where}: at most {brief(row['high'])}",
            row["high"],
            row["ci_high"],
        ),
    )
