"""The page of two models compared."""

from __future__ import annotations

from unskew.report.charts.axes import Axis
from unskew.report.charts.chart import chart
from unskew.report.charts.forest import Block, Forest, Row
from unskew.report.charts.looks import estimator_look
from unskew.report.page import Page, Record, Section, Tile, table
from unskew.report.pages.verdict import told
from unskew.report.wording import (
    MEANINGS,
    NAIVE,
    brief,
    estimator_name,
    interval,
    metric_in_words,
    metric_name,
    number,
    sentence,
)

PAIRED = (
    "Both models are judged on the same ratings, and their difference is taken rating by rating."
)


def comparison_page(record: Record) -> Page:
    """Who is better, by one metric and estimator."""
    first, second, metric, estimator = (
        record[name] for name in ("first", "second", "metric", "estimator")
    )
    opening = "Naive says" if estimator == NAIVE else "Corrected for selection,"
    better = "higher" if record["higher_is_better"] else "lower"
    shown = interval(record["difference"], record["ci_low"], record["ci_high"], signed=True)
    sides = (second, first) if record["higher_is_better"] else (first, second)
    name, look = estimator_name(estimator), estimator_look(estimator, 0)
    row = Row(
        name,
        record["difference"],
        look,
        f"{first} minus {second}: {shown}",
        record["ci_low"],
        record["ci_high"],
        shown,
    )
    forest = Forest([Block("", (row,))], Axis(f"difference of {metric_name(metric)}"), 0.0, sides)
    fields = ("difference", "std_error", "ci_low", "ci_high", "p_value")
    numbers = table("The difference", {name.replace("_", " "): [record[name]] for name in fields})
    return Page(
        "Comparison",
        ((f"{opening} {told(record)}.", True),),
        f"{sentence(metric_in_words(metric)).removesuffix('.')}, {better} is better. {MEANINGS.get(estimator, '')}".strip(),
        (
            Tile(
                number(record["difference"], 3, signed=True),
                "difference",
                f"{first} minus {second}",
            ),
            Tile(brief(record["std_error"]), "standard error"),
            Tile(
                "< 0.0001" if record["p_value"] < 1e-4 else brief(record["p_value"]),
                "p-value",
                "for no difference",
            ),
        ),
        (),
        (
            Section(
                "The difference",
                PAIRED,
                (chart(f"{first} minus {second}", forest.draw),),
                (numbers,),
            ),
        ),
        (
            ("metric", metric),
            ("estimator", estimator),
            ("intervals", f"{record['level']:.0%}"),
            ("computed by", f"unskew {record['version']}"),
        ),
    )
