"""Two models compared: in a sentence, as a row of a chart, and on a page of its own."""

from __future__ import annotations

from collections.abc import Sequence

from unskew.estimators import ESTIMATORS
from unskew.estimators.choice import corrects_selection
from unskew.metrics import metric_label
from unskew.report import PAGES
from unskew.report.charts import (
    Chart,
    ChartAxis,
    Forest,
    ForestGroup,
    ForestRow,
    Look,
    default_look,
)
from unskew.report.page import Page, Section, Tile, make_table
from unskew.report.rows import Record, interval_of, label_columns
from unskew.report.text import (
    choose_decimals,
    describe_direction,
    describe_estimators,
    describe_metric,
    estimator_label,
    format_brief,
    format_number,
    join_words,
)

PAIRED = (
    "Both models are evaluated on the same ratings, and the difference is computed rating by "
    "rating."
)
FIELDS = ("difference", "std_error", "ci_low", "ci_high", "p_value")


def usable_estimators(record: Record, metric: str) -> list[str]:
    """Estimators whose values lie within the range of the metric and have intervals."""
    unusable = {tuple(name) for name in record.get("unusable", ())}
    return [name for name in record["estimators"] if (metric, name) not in unusable]


def estimator_looks(estimators: Sequence[str]) -> dict[str, Look]:
    """The declared look of each estimator, or a look by its position."""
    looks = {}
    for position, name in enumerate(estimators):
        traits = ESTIMATORS[name].traits if name in ESTIMATORS else {}
        if "color" in traits:
            shape, is_hollow = traits.get("marker", "circle"), traits.get("is_hollow", False)
            looks[name] = Look(traits["color"], shape, is_hollow=is_hollow)
        else:
            looks[name] = default_look(position + 1)
    return looks


def uses_weights(estimator: str) -> bool:
    """Whether an estimator uses propensities. Estimators of the caller are assumed to do so."""
    return estimator not in ESTIMATORS or ESTIMATORS[estimator].target.is_weighted


def opening(estimator: str, record: Record) -> str:
    """How a sentence on the estimates of this estimator begins: with what they depend on.

    Propensities that never saw a rating correct less, and the sentence says so.
    """
    if not corrects_selection(estimator):
        return f"{estimator_label(estimator)} says"
    imputes = estimator in ESTIMATORS and ESTIMATORS[estimator].target.imputes
    if not uses_weights(estimator):
        return "If the imputed ratings are right,"
    if record.get("sees_ratings") is False:
        others = ", popularity and imputed ratings" if imputes else " and popularity"
        return f"Adjusted only for activity{others},"
    if imputes:
        return "If the propensities or the imputed ratings are right,"
    condition = record.get("condition") or "if the propensities are right"
    return f"{condition[:1].upper()}{condition[1:]},"


def describe_comparison(row: Record, *, verb: str = "beats", with_interval: bool = True) -> str:
    """Which model is better and by how much, such as ``a beats b by 0.31 MAE [0.22, 0.40]``."""
    low, high, metric = row["ci_low"], row["ci_high"], metric_label(row["metric"])
    if low is None or high is None:
        difference = format_number(row["difference"], 3, with_sign=True)
        pair = f"{row['first']} minus {row['second']}"
        return f"{pair} is {difference} {metric}, without an interval"
    decimals = choose_decimals((high - low) / 2)
    if row["better"] is None:
        difference = format_number(row["difference"], decimals, with_sign=True)
        limits = f"{format_number(low, decimals)}, {format_number(high, decimals)}"
        text = f"{row['first']} and {row['second']} cannot be told apart on {metric}"
        return f"{text}: difference {difference} [{limits}]" if with_interval else text
    worse = row["second"] if row["better"] == row["first"] else row["first"]
    near, far = (format_number(end, decimals) for end in sorted((abs(low), abs(high))))
    distance = format_number(abs(row["difference"]), decimals)
    limits = f" [{near}, {far}]" if with_interval else ""
    return f"{row['better']} {verb} {worse} by {distance} {metric}{limits}"


def difference_forest(
    groups: Sequence[ForestGroup],
    metric: str,
    *,
    pair: tuple[str, str] | None = None,
    higher_is_better: bool = False,
) -> Forest:
    """Differences around zero. With one ``pair``, it says on which side each of them is better."""
    sides = pair[::-1] if pair is not None and higher_is_better else pair
    return Forest(
        groups, ChartAxis(f"difference of {metric_label(metric)}"), reference=0.0, sides=sides
    )


@PAGES.declare(
    "comparison", label="Comparison", summary="Two models compared by one metric and estimator."
)
def build_comparison_page(record: Record) -> Page:
    first, second = record["first"], record["second"]
    metric, estimator = record["metric"], record["estimator"]
    title, higher_is_better = f"{first} minus {second}", record["higher_is_better"]
    row = ForestRow.of_interval(
        estimator_label(estimator),
        estimator_looks([estimator])[estimator],
        interval_of(record, "difference"),
        subject=title,
        with_sign=True,
    )
    forest = difference_forest(
        [ForestGroup("", (row,))], metric, pair=(first, second), higher_is_better=higher_is_better
    )
    headings = {name: name.replace("_", " ") for name in FIELDS}
    numbers = make_table("The difference", label_columns([record], headings))
    direction = describe_direction(higher_is_better=higher_is_better)
    p_value = format_brief(record["p_value"])
    if record["p_value"] is not None and record["p_value"] < 1e-4:
        p_value = "< 0.0001"
    texts = tuple(record.get("warnings", ()))
    verdict = f"{opening(estimator, record)} {describe_comparison(record)}."
    if texts:
        verdict = f"No verdict on {first} and {second}: {metric_label(metric)} by "
        verdict += f"{estimator_label(estimator)} cannot be used here."
    return Page(
        ((verdict, True),),
        f"{describe_metric(metric)}, {direction}. {describe_estimators([estimator])}",
        (
            Tile(format_number(record["difference"], 3, with_sign=True), "difference", title),
            Tile(format_brief(record["std_error"]), "standard error"),
            Tile(p_value, "p-value", "for no difference"),
        ),
        warnings=texts,
        sections=(Section("The difference", PAIRED, (Chart(title, forest),), (numbers,)),),
        facts=(
            ("metric", metric),
            ("estimator", estimator),
            ("intervals", f"{record['level']:.0%}"),
        ),
    )


@PAGES.declare(
    "pairwise_comparison",
    label="All pairs",
    summary="All pairs of models compared by one metric and estimator.",
)
def build_pairwise_page(record: Record) -> Page:
    metric, estimator = record["metric"], record["estimator"]
    leader, *ties = record["best"]
    verdict = f"{leader} has the best {metric_label(metric)} of {len(record['models'])} models"
    verdict += f"; {join_words(ties)} cannot be told apart from it." if ties else "."
    look = estimator_looks([estimator])[estimator]
    rows = tuple(
        ForestRow.of_interval(
            f"{pair['first']} minus {pair['second']}",
            look,
            interval_of(pair, "difference"),
            subject=f"{pair['first']} minus {pair['second']}",
            with_sign=True,
        )
        for pair in record["pairs"]
    )
    forest = difference_forest([ForestGroup("", rows)], metric)
    shown = [{**pair, "better": pair["better"] or "not told apart"} for pair in record["pairs"]]
    names = ("first", "second", *FIELDS[:1], *FIELDS[2:], "p_adjusted", "better")
    numbers = make_table(
        "All pairs", label_columns(shown, {name: name.replace("_", " ") for name in names})
    )
    direction = describe_direction(higher_is_better=record["higher_is_better"])
    text = (
        f"{PAIRED} P-values are adjusted for {len(rows)} pairs by Holm's method. Intervals are for "
        "each pair alone."
    )
    return Page(
        ((verdict, True),),
        f"{describe_metric(metric)}, {direction}. {describe_estimators([estimator])}",
        (),
        sections=(Section("Differences", text, (Chart("Differences", forest),), (numbers,)),),
        facts=(
            ("metric", metric),
            ("estimator", estimator),
            ("intervals", f"{record['level']:.0%}"),
        ),
    )
