"""Pages of sensitivity and robustness: estimates under clipped weights and wrong propensities."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from unskew.estimators import main_estimator
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
from unskew.report.figures import draw_charts
from unskew.report.page import Headline, Page, Section, Tile, make_table
from unskew.report.text import (
    Record,
    Rows,
    describe_metric,
    estimator_label,
    format_brief,
    format_count,
    format_interval,
    format_number,
    format_share,
    group_rows,
    interval_of,
    label_columns,
    select,
    to_sentence,
)
from unskew.tables import count_noun

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CLIPPED = (
    "The same estimates, with every weight limited to a maximum. A flat line means that a few "
    "heavy ratings do not decide the estimates, not that they are right. A line that moves can "
    "also mean that clipping removes the correction."
)
WRONG = (
    "How far the estimates could move if the true odds of being logged differ from the assumed "
    "odds by up to a factor, in the worst case over all ratings. At 1 the propensities are taken "
    "as right."
)
ODDS = (
    "An odds error of 2 means that the odds of being logged could be half or twice the assumed "
    "odds, for every rating."
)
CONSTRAINTS = {
    "mass": "The true weights of all ratings are assumed to add up as the assumed ones do.",
    "item": "The true weights of each item are assumed to add up as the assumed ones do.",
    "user": "The true weights of each user are assumed to add up as the assumed ones do.",
    None: "The true weights may add up to anything.",
}
CHANGES = {"clip": "weights clipped", "odds_error": "odds wrong"}
RISK = ("model", "metric", "estimator")
COLUMNS = {"low": "least", "high": "largest", "ci_low": "lower limit", "ci_high": "upper limit"}


def draw_sensitivity(record: Record, ax: Any, *, metric: str, estimator: str) -> Figure | None:
    """One panel for each kind of change, for one metric by one estimator."""
    rows = select(record["rows"], {"metric": metric, "estimator": estimator})
    return _draw_changes(rows, record["level"], ax)


def draw_robustness(record: Record, ax: Any) -> Figure | None:
    """One panel for each kind of change of the difference."""
    return _draw_changes(record["shifts"], record["level"], ax)


def _draw_changes(rows: Rows, level: float, ax: Any) -> Figure | None:
    clipped, odds = _split_changes(rows)
    charts = [clip_chart(clipped, level)] if clipped else []
    charts += [odds_chart(odds, level)] if odds else []
    return draw_charts(charts, ax)


@PAGES.declare(
    "sensitivity",
    label="Sensitivity",
    summary="How much the estimates depend on large weights and on right propensities.",
    traits={"draw": draw_sensitivity},
)
def build_sensitivity_page(record: Record) -> Page:
    main, metric = main_estimator(record["estimators"]), next(iter(record["metrics"]))
    rows = select(record["rows"], {"estimator": main})
    columns = label_columns(record["rows"], {name: name for name in RISK})
    table = make_table("All estimates under all changes", columns | list_changes(record["rows"]))
    notes = tuple(to_sentence(text) for text in record["notes"])
    leaders = record.get("leaders")  # not in records of 0.1.0
    movements = _write_headline(select(rows, {"metric": metric}), metric)
    return Page(
        ((movements, True),) if leaders is None else _robustness_headline(leaders),
        f"{describe_metric(metric)} by {estimator_label(main)}, from "
        f"{count_noun(record['n_observed'], 'logged rating')}. "
        f"{'' if leaders is None else f'{movements} '}The table has all estimators.",
        (
            Tile(format_count(record["n_observed"]), "logged ratings"),
            Tile(str(len(record["models"])), "models"),
            Tile(str(len(record["estimators"])), "weighted estimators"),
        ),
        sections=(
            *make_sections(rows, record["level"]),
            Section("All numbers", tables=(table,), notes=notes),
        ),
        facts=(
            ("logged ratings", f"{record['n_observed']:,}"),
            ("intervals", f"{record['level']:.0%}, {record['intervals']}"),
        ),
    )


def make_sections(rows: Rows, level: float) -> Iterator[Section]:
    """One section for each kind of change, with one chart for each metric and estimator."""
    clipped, odds = _split_changes(rows)
    yield from clip_sections(clipped, level)
    if odds:
        yield Section("If the propensities are wrong", WRONG, _chart_each(odds_chart, odds, level))


def clip_sections(rows: Rows, level: float, more: str = "") -> Iterator[Section]:
    """The section on clipped weights, if there are several limits; ``more`` ends its text."""
    if _has_several_amounts(rows):
        charts = _chart_each(clip_chart, rows, level)
        yield Section("Is the estimate stable? Clipped weights", CLIPPED + more, charts)


def _chart_each(
    make_chart: Callable[[Rows, float], Chart], rows: Rows, level: float
) -> tuple[Chart, ...]:
    by_measure = group_rows(rows, "metric", "estimator")
    return tuple(make_chart(selected, level) for selected in by_measure.values())


def _split_changes(rows: Rows) -> tuple[list[Record], list[Record]]:
    """The rows with clipped weights, and the rows with wrong odds."""
    clipped, odds = (select(rows, {"change": change}) for change in CHANGES)
    return clipped, odds


def _has_several_amounts(rows: Rows) -> bool:
    return len({row["amount"] for row in rows}) > 1


def _write_headline(rows: Rows, metric: str) -> str:
    """The largest movement under each kind of change."""
    clipped, odds = _split_changes(rows)
    parts: list[str] = []
    if _has_several_amounts(clipped):
        ranges = {
            model: (min(row["low"] for row in group), max(row["low"] for row in group))
            for (model,), group in group_rows(clipped, "model").items()
        }
        model = max(ranges, key=lambda name: ranges[name][1] - ranges[name][0])
        low, high = map(format_brief, ranges[model])
        moves = f"moves {metric_label(metric)} of {model} between {low} and {high}"
        parts.append(f"clipping {moves if low != high else 'changes almost nothing'}")
    if odds:
        worst = max(odds, key=lambda row: (row["amount"], row["high"] - row["low"]))
        parts.append(
            f"if the odds are wrong by up to {format_brief(worst['amount'])}, {worst['model']} "
            f"could be anywhere from {format_brief(worst['low'])} to {format_brief(worst['high'])}"
        )
    return to_sentence("; ".join(parts) or "there was nothing to vary")


def list_changes(rows: Rows) -> dict[str, list[Any]]:
    """Columns of a table: the kind of change, its amount, and the estimates under it."""
    return {
        "change": [CHANGES[row["change"]] for row in rows],
        "amount": [row["amount"] for row in rows],
        **label_columns(rows, COLUMNS),
        "ratings clipped": [format_share(row["share_clipped"]) for row in rows],
    }


def clip_chart(rows: Rows, level: float) -> Chart:
    """One metric by one estimator against the largest weight, a curve for each model."""
    looks, measure = default_looks(row["model"] for row in rows), _name_measure(rows)
    amounts = [row["amount"] for row in rows]
    curves = [
        Curve(look, tuple(map(_clipped_point, select(rows, {"model": model}))))
        for model, look in looks.items()
    ]
    is_log = max(amounts) > 4 * min(amounts)
    x_axis = ChartAxis("largest weight allowed", is_log=is_log, format=format_brief)
    content = Curves(curves, x_axis, ChartAxis(measure))
    caption = f"Shaded: {level:.0%} intervals."
    return Chart(f"{measure} under clipping", content, make_legend(looks, "line"), caption)


def _clipped_point(row: Record) -> CurvePoint:
    share = row["share_clipped"]
    clipped = "" if share is None else f", {format_share(share)} of ratings clipped"
    text = format_interval(*interval_of(row, "low"))
    tip = f"{row['model']}, weights up to {format_brief(row['amount'])}{clipped}: {text}"
    return CurvePoint(row["amount"], row["low"], tip, row["ci_low"], row["ci_high"])


def odds_chart(rows: Rows, level: float) -> Chart:
    """One metric by one estimator: its lowest and highest value under each odds error."""
    looks, measure = default_looks(row["model"] for row in rows), _name_measure(rows)
    curves = [
        Curve(look, points)
        for model, look in looks.items()
        for points in zip(*map(_odds_points, select(rows, {"model": model})), strict=True)
    ]
    x_axis = ChartAxis(
        "largest odds error (factor)",
        is_log=True,
        format=format_brief,
        ticks=sorted({row["amount"] for row in rows}),
    )
    crosses_zero = any(row["low"] < 0 < row["high"] for row in rows)
    content = Curves(curves, x_axis, ChartAxis(measure), reference=0.0 if crosses_zero else None)
    caption = (
        "The two lines of a model are its lowest and its highest possible estimate. "
        f"Shaded: {level:.0%} limits beyond them."
    )
    title = f"{measure} if the propensities are wrong"
    return Chart(title, content, make_legend(looks, "line"), caption)


def _odds_points(row: Record) -> tuple[CurvePoint, CurvePoint]:
    amount, low, high = row["amount"], row["low"], row["high"]
    case = f"{row['model']}, odds wrong by up to {format_brief(amount)}"
    return (
        CurvePoint(amount, low, f"{case}: at least {format_brief(low)}", row["ci_low"], low),
        CurvePoint(amount, high, f"{case}: at most {format_brief(high)}", high, row["ci_high"]),
    )


def _name_measure(rows: Rows) -> str:
    return f"{metric_label(rows[0]['metric'])} by {estimator_label(rows[0]['estimator'])}"


@PAGES.declare(
    "robustness",
    label="Robustness",
    summary="How wrong the propensities would have to be to reverse a comparison.",
    traits={"draw": draw_robustness},
)
def build_robustness_page(record: Record) -> Page:
    table = make_table("The difference under all changes", list_changes(record["shifts"]))
    difference = format_number(record["difference"], 3, with_sign=True)
    return Page(
        _robustness_headline(record),
        f"{describe_metric(record['metric'])} by {estimator_label(record['estimator'])}. {ODDS} "
        f"{CONSTRAINTS[record['constraint']]}{_describe_benchmark(record['benchmark'])}",
        (
            Tile(difference, "difference", f"{record['first']} minus {record['second']}"),
            Tile(_format_odds(record["flips_at"]), "odds error that could reverse the order"),
            Tile(_format_odds(record["unsure_at"]), "odds error that could make it unsure"),
        ),
        sections=(
            *make_sections(record["shifts"], record["level"]),
            Section("All numbers", tables=(table,)),
        ),
        facts=(("intervals", f"{record['level']:.0%}"),),
    )


def _describe_benchmark(benchmark: Mapping[str, float]) -> str:
    if not benchmark:
        return ""
    listed = ", ".join(f"{name} {format_brief(amount)}" for name, amount in benchmark.items())
    return f" Odds errors for comparison: {listed}."


def _format_odds(value: float | None) -> str:
    return "none" if value is None else format_brief(value)


def _robustness_headline(record: Record) -> Headline:
    first, second, better = record["first"], record["second"], record["better"]
    if better is None:
        return ((f"{first} and {second} are equal on {metric_label(record['metric'])}.", True),)
    ahead = f"{better} stays ahead of {second if better == first else first}"
    if record["flips_at"] is None:
        return ((f"{ahead}, however wrong the propensities are.", True),)
    if record["unsure_at"] is None:
        certainty = "but the difference has no interval, so chance alone may explain it."
    elif record["unsure_at"] == 1:
        certainty = "but the data cannot tell them apart, even with right propensities."
    else:
        certainty = f"and clearly so up to a factor of {_format_odds(record['unsure_at'])}."
    caution = f" {record['caution']}" if record.get("caution") else ""
    factor = format_brief(record["flips_at"])
    return (
        (
            f"{ahead} unless the odds of being logged are wrong by a factor of {factor} or more, ",
            True,
        ),
        (f"{certainty}{caution}", False),
    )
