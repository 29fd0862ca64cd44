"""The page of an examination curve: how much less lower positions are examined."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from unskew.report import PAGES
from unskew.report.charts import (
    CORRECTED,
    OBSERVED,
    Chart,
    ChartAxis,
    Curve,
    CurvePoint,
    Curves,
    make_legend,
)
from unskew.report.figures import draw_charts
from unskew.report.page import Headline, Page, Section, Tile, make_table
from unskew.report.text import (
    Record,
    format_brief,
    format_count,
    format_interval,
    interval_of,
    label_columns,
    to_sentence,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

EXPLAINED = (
    "Examination is the probability that a user looks at a position, as a share of that at the "
    "first. The click rate falls faster or slower than that if better items are ranked higher or "
    "lower."
)
COLUMNS = {
    "position": "position",
    "examination": "examination",
    "std_error": "std. error",
    "ci_low": "low",
    "ci_high": "high",
    "click_rate": "click rate",
}


def draw_position_bias(record: Record, ax: Any) -> Figure | None:
    """The examination curve with its band, next to the relative click rate."""
    return draw_charts([examination_chart(record)], ax)


@PAGES.declare(
    "position_bias",
    label="Position bias",
    summary="How much less lower positions are examined.",
    traits={"draw": draw_position_bias},
)
def build_position_bias_page(record: Record) -> Page:
    computed, assumption, *missing = map(to_sentence, record["notes"])
    table = make_table("Examination by position", label_columns(record["rows"], COLUMNS))
    return Page(
        _write_headline(record),
        f"Estimated from {record['method_label']}. {computed}",
        (
            Tile(format_count(record["n_impressions"]), "impressions"),
            Tile(format_count(record["n_clicks"]), "clicks"),
            Tile(format_count(record["n_informative"]), "clicks that inform the curve"),
        ),
        sections=(Section("The curve", EXPLAINED, (examination_chart(record),), (table,)),),
        assumptions=(assumption,),
        warnings=tuple(missing),
        facts=(("method", record["method_label"]), ("intervals", f"{record['level']:.0%}")),
    )


def _write_headline(record: Record) -> Headline:
    *_, last = record["rows"]
    share = f"{last['examination']:.0%}"
    if last["ci_low"] is not None:
        share += f" [{last['ci_low']:.0%}, {last['ci_high']:.0%}]"
    return (
        (f"Position {last['position']} is examined ", False),
        (share, True),
        (" as often as the first.", False),
    )


def examination_chart(record: Record) -> Chart:
    """Examination and relative click rate against the position."""
    looks = {"examination": CORRECTED, "click rate, as a share of the first": OBSERVED}
    first = record["rows"][0]["click_rate"]
    curves = [
        Curve(CORRECTED, tuple(map(_examined_point, record["rows"]))),
        Curve(OBSERVED, tuple(_clicked_point(row, first) for row in record["rows"])),
    ]
    ticks = [row["position"] for row in record["rows"]]
    content = Curves(
        curves,
        ChartAxis("position", ticks=ticks, format=format_brief),
        ChartAxis("share of the first position", low=0.0),
    )
    caption = f"Shaded: {record['level']:.0%} intervals of single positions."
    return Chart("Examination by position", content, make_legend(looks, "line"), caption)


def _examined_point(row: Record) -> CurvePoint:
    text = format_interval(*interval_of(row, "examination"))
    tip = f"position {row['position']}: examination {text}"
    return CurvePoint(row["position"], row["examination"], tip, row["ci_low"], row["ci_high"])


def _clicked_point(row: Record, first: float) -> CurvePoint:
    tip = f"position {row['position']}: click rate {row['click_rate']:.3g}"
    return CurvePoint(row["position"], row["click_rate"] / first, tip)
