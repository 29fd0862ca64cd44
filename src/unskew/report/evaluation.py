"""The page of an evaluation, and its figure."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from unskew.metrics import metric_label
from unskew.report import PAGES
from unskew.report.charts import (
    CORRECTED,
    OBSERVED,
    TRUTH,
    BarGroup,
    Bars,
    Chart,
    ChartAxis,
    Forest,
    ForestGroup,
    ForestRow,
    LegendEntry,
    Look,
    keep_first,
    make_legend,
)
from unskew.report.comparison import (
    contrast_estimators,
    describe_comparison,
    difference_forest,
    estimator_looks,
    main_estimator,
    split_estimators,
    usable_estimators,
)
from unskew.report.figures import draw_charts
from unskew.report.page import Headline, Page, Section, Tile, make_table
from unskew.report.rows import Record, Rows, interval_of, label_columns, select
from unskew.report.sensitivity import clip_sections
from unskew.report.text import (
    choose_decimals,
    common_decimals,
    describe_direction,
    describe_estimators,
    describe_metric,
    estimator_label,
    format_brief,
    format_count,
    format_interval,
    format_number,
    format_share,
    format_tick,
    format_universe,
)
from unskew.tables import count_noun

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Truth = Mapping[tuple[str, str], float]
"""The true value of each model and metric, where it is known."""
DIFFERENCES = (
    "The leading model minus each other model, rating by rating. This is far more precise than "
    "comparing two intervals. An interval that excludes zero tells the two models apart."
)
RATINGS = (
    "Gray bars show the share of each rating in the log. Blue bars count every rating 1/P times. "
    "They show the ratings of all users and items, if the propensities are right."
)
WEIGHTS = (
    "Each rating counts 1/P times. Gray bars show how many ratings have a weight of that size, "
    "and blue bars show their share of all weight. Where the blue bars are far to the right of the "
    "gray bars, a few ratings decide the estimates."
)
LOWER_LIMITS = " Lower limits give steadier estimates that correct less."
ESTIMATE_COLUMNS = {
    "model": "model",
    "metric": "metric",
    "estimator": "estimator",
    "estimate": "estimate",
    "std_error": "std. error",
    "ci_low": "low",
    "ci_high": "high",
    "degrees": "degrees of freedom",
}
DIFFERENCE_COLUMNS = {
    "first": "model",
    "second": "minus",
    "metric": "metric",
    "estimator": "estimator",
    "difference": "difference",
    "ci_low": "low",
    "ci_high": "high",
}


def draw_evaluation(record: Record, ax: Any) -> Figure:
    """One panel for each metric, with all estimates and their intervals."""
    return draw_charts(list(estimate_charts(record)), ax)


@PAGES.declare(
    "evaluation",
    label="Evaluation",
    summary="Which model is better, how sure that is, and what the estimates rest on.",
    traits={"draw": draw_evaluation},
)
def build_evaluation_page(record: Record) -> Page:
    metric = next(iter(record["metrics"]))
    shown = usable_estimators(record, metric) or record["estimators"]
    lead = (
        f"{describe_metric(metric)}, "
        f"{describe_direction(higher_is_better=record['metrics'][metric])}, estimated by "
        f"{estimator_label(main_estimator(shown))} from "
        f"{count_noun(record['n_observed'], 'logged rating')}. "
        f"Brackets are {record['level']:.0%} intervals."
    )
    return Page(
        write_headline(record, metric),
        lead,
        tuple(_make_tiles(record)),
        tuple(record["warnings"]),
        tuple(make_sections(record)),
        tuple(list_facts(record)),
        assumptions=tuple(list_assumptions(record)),
    )


def list_assumptions(record: Record) -> Iterator[str]:
    """What the weights rest on, and how wrong they may be until the verdict changes."""
    yield from filter(None, (record.get("assumption"), record.get("propensities")))
    robustness = record.get("robustness")
    if robustness:
        yield robustness


def write_headline(record: Record, metric: str) -> Headline:
    """The leading model against its closest rival, without and with correction for selection."""
    estimators = usable_estimators(record, metric)
    if not estimators:
        return ((f"No estimate of {metric_label(metric)} can be trusted; see the warnings.", True),)
    if len(record["models"]) == 1:
        return _headline_of_one_model(record, metric)
    best = _leading_model(record, metric, main_estimator(estimators))
    pair = {best, _find_rival(record, metric, best)}
    rows = {
        row["estimator"]: row
        for row in select(record["differences"], {"metric": metric})
        if {row["first"], row["second"]} == pair
    }

    def describe(estimator: str) -> str:
        return describe_comparison(rows[estimator])

    def contrast(plain: str, corrected: str) -> tuple[str, str]:
        is_tie = rows[plain]["better"] is None
        return describe_comparison(rows[plain], with_interval=is_tie), describe(corrected)

    sees_ratings = record.get("sees_ratings", True)
    return contrast_estimators(estimators, describe, contrast, sees_ratings=sees_ratings)


def _headline_of_one_model(record: Record, metric: str) -> Headline:
    rows = {row["estimator"]: row for row in select(record["rows"], {"metric": metric})}
    subject = f"{record['models'][0]} has {metric_label(metric)}"

    def describe(estimator: str, start: str = subject) -> str:
        return f"{start} {format_interval(*interval_of(rows[estimator], 'estimate'))}"

    def contrast(plain: str, corrected: str) -> tuple[str, str]:
        spread = (rows[corrected]["ci_high"] - rows[corrected]["ci_low"]) / 2
        value = format_number(rows[plain]["estimate"], choose_decimals(spread))
        return f"{subject} {value}", describe(corrected, "it is")

    estimators, sees_ratings = usable_estimators(record, metric), record.get("sees_ratings", True)
    return contrast_estimators(estimators, describe, contrast, sees_ratings=sees_ratings)


def _leading_model(record: Record, metric: str, estimator: str) -> str:
    return str(
        select(record["differences"], {"metric": metric, "estimator": estimator})[0]["first"]
    )


def _find_rival(record: Record, metric: str, best: str) -> str:
    """The leader without correction, if it is another model; else the second best model."""
    estimators = usable_estimators(record, metric)
    plain, _ = split_estimators(estimators)
    if plain is not None and (leader := _leading_model(record, metric, plain)) != best:
        return leader
    rows = select(
        record["differences"], {"metric": metric, "estimator": main_estimator(estimators)}
    )
    return str(min(rows, key=lambda row: abs(row["difference"]))["second"])


def _make_tiles(record: Record) -> Iterator[Tile]:
    universe, weights = record["universe"], record["weights"]
    density = ""
    if universe is not None:
        density = f"{format_share(record['n_observed'] / (universe[0] * universe[1]))} of all cells"
    yield Tile(format_count(record["n_observed"]), "logged ratings", density)
    if weights is not None:
        size = weights["effective_sample_size"]
        share = f"{format_share(size / weights['n_observed'])} of the log"
        yield Tile(format_count(size), "effective sample size", share)
    if record["weight_shares"] is not None:
        largest, median = (format_brief(record["weight_shares"][k]) for k in ("largest", "median"))
        yield Tile(largest, "largest weight", f"median {median}")
    yield Tile(str(len(record["models"])), "model" if len(record["models"]) == 1 else "models")


def make_sections(record: Record, truth: Truth | None = None) -> Iterator[Section]:
    """All sections of the page; ``truth`` is drawn next to the estimates."""
    if record["differences"]:
        charts = tuple(difference_charts(record))
        columns = label_columns(record["differences"], DIFFERENCE_COLUMNS)
        is_cut = any(chart.caption for chart in charts)
        tables = (make_table("All differences", columns),) if is_cut else ()
        yield Section("Which model is ahead", DIFFERENCES, charts, tables)
    text = describe_estimators(record["estimators"])
    yield Section("Estimates", text, tuple(estimate_charts(record, truth)))
    if record["ratings"] is not None:
        is_corrected = record["ratings"]["corrected"] is not None
        title = "Ratings in the log and in all cells" if is_corrected else "Ratings in the log"
        yield Section(title, RATINGS if is_corrected else "", (ratings_chart(record["ratings"]),))
    if record["weight_shares"] is not None:
        charts = (weights_chart(record["weight_shares"]),)
        yield Section("Weights", WEIGHTS, charts, notes=tuple(_weight_notes(record["weights"])))
    yield from clip_sections(record["clipping"] or (), record["level"], LOWER_LIMITS)
    table = make_table("All estimates", label_columns(record["rows"], ESTIMATE_COLUMNS))
    yield Section("All numbers", tables=(table,))


def estimate_charts(record: Record, truth: Truth | None = None) -> Iterator[Chart]:
    """One forest for each metric: a group for each model, a row for each estimator."""
    looks = estimator_looks(record["estimators"])
    legend = make_legend({estimator_label(name): look for name, look in looks.items()})
    models, main = record["models"], main_estimator(record["estimators"])
    for metric, higher_is_better in record["metrics"].items():
        rows = select(record["rows"], {"metric": metric})
        decimals = common_decimals(rows)
        groups = [
            ForestGroup(
                model,
                tuple(
                    _estimate_row(row, looks, decimals) for row in select(rows, {"model": model})
                ),
                (truth or {}).get((model, metric)),
            )
            for model in models
        ]
        value = {row["model"]: row["estimate"] for row in rows if row["estimator"] == main}
        order = sorted(
            range(len(models)), key=lambda model: value[models[model]], reverse=higher_is_better
        )
        groups, caption = keep_first(groups, order, rows_each=len(looks), noun="best models")
        has_truth = any(group.truth is not None for group in groups)
        truth_entry = (LegendEntry("Truth", TRUTH, "rule"),) if has_truth else ()
        direction = describe_direction(higher_is_better=higher_is_better)
        label, words = metric_label(metric), describe_metric(metric)
        title = label if label.lower() == words.lower() else f"{label}, {words.lower()}"
        axis = ChartAxis(f"{label} ({direction}), {record['level']:.0%} intervals")
        yield Chart(title, Forest(groups, axis), (*legend, *truth_entry), caption)


def _estimate_row(row: Record, looks: Mapping[str, Look], decimals: int) -> ForestRow:
    label, interval = estimator_label(row["estimator"]), interval_of(row, "estimate")
    subject = f"{row['model']}, {label}"
    look = looks[row["estimator"]]
    return ForestRow.of_interval(label, look, interval, subject=subject, decimals=decimals)


def difference_charts(record: Record) -> Iterator[Chart]:
    """One forest for each metric: a group for each pair of models, a row for each estimator."""
    looks, main = estimator_looks(record["estimators"]), main_estimator(record["estimators"])
    for metric, higher_is_better in record["metrics"].items():
        label = metric_label(metric)
        rows = select(record["differences"], {"metric": metric})
        pairs = _list_pairs(rows)
        title, names = f"{label}: the leader minus each other", [f"{a} minus {b}" for a, b in pairs]
        if len(pairs) == 1:
            title, names = f"{label}: {names[0]}", [""]
        elif len({first for first, _ in pairs}) == 1:
            leader = pairs[0][0]
            title, names = f"{label}: {leader} minus each other", [f"minus {b}" for _, b in pairs]
        groups = [
            ForestGroup(name, _difference_rows(rows, pair, looks))
            for name, pair in zip(names, pairs, strict=True)
        ]
        distances = [_distance(group, estimator_label(main)) for group in groups]
        order = sorted(range(len(groups)), key=distances.__getitem__)
        groups, caption = keep_first(groups, order, rows_each=len(looks), noun="closest models")
        pair = pairs[0] if len(pairs) == 1 else None
        forest = difference_forest(groups, metric, pair=pair, higher_is_better=higher_is_better)
        yield Chart(title, forest, caption=caption)


def _distance(group: ForestGroup, label: str) -> float:
    """How far two models are apart by the estimator with that label."""
    return next((abs(row.value) for row in group.rows if row.label == label), math.inf)


def _list_pairs(rows: Rows) -> list[tuple[str, str]]:
    """Every pair of models once, in the order of its first row."""
    pairs: dict[frozenset[str], tuple[str, str]] = {}
    for row in rows:
        pairs.setdefault(frozenset((row["first"], row["second"])), (row["first"], row["second"]))
    return list(pairs.values())


def _difference_rows(
    rows: Rows, pair: tuple[str, str], looks: Mapping[str, Look]
) -> tuple[ForestRow, ...]:
    """The first model of the pair minus the second, also where the second one leads."""
    decimals = common_decimals(rows)
    forest_rows = []
    for row in rows:
        if {row["first"], row["second"]} == set(pair):
            sign = 1.0 if row["first"] == pair[0] else -1.0
            low, high = row["ci_low"], row["ci_high"]
            if sign < 0 and low is not None and high is not None:
                low, high = -high, -low
            label = estimator_label(row["estimator"])
            forest_row = ForestRow.of_interval(
                label,
                looks[row["estimator"]],
                (sign * row["difference"], low, high),
                subject=f"{pair[0]} minus {pair[1]}, {label}",
                decimals=decimals,
                with_sign=True,
            )
            forest_rows.append(forest_row)
    return tuple(forest_rows)


def ratings_chart(ratings: Record) -> Chart:
    """The distribution of ratings in the log and, where there are weights, corrected."""
    shares = [ratings["seen"]] + ([ratings["corrected"]] if ratings["corrected"] else [])
    groups = []
    for low, high, *values in zip(ratings["low"], ratings["high"], *shares, strict=True):
        is_single = low == high
        label = f"{low:g}" if is_single else format_tick(low)
        subject = f"rating {low:g}" if is_single else f"rating {low:.3g} to {high:.3g}"
        tip = f"{subject}: {format_share(values[0])} of the log"
        tip += f", {format_share(values[1])} corrected" if len(values) > 1 else ""
        groups.append(BarGroup(label, tuple(values), tip))
    legend = make_legend({"in the log": OBSERVED, "corrected": CORRECTED}, "bar")[: len(shares)]
    bars = Bars(groups, tuple(entry.look.color for entry in legend), "rating", "share of ratings")
    return Chart("Ratings in the log and corrected for selection", bars, legend)


def weights_chart(shares: Record) -> Chart:
    """How many ratings have weights of each size, and their share of all weight."""
    columns = (shares[name] for name in ("low", "high", "rows", "held"))
    groups = []
    for low, high, rows, held in zip(*columns, strict=True):
        size = format_brief(low) if low == high else f"{format_brief(low)} to {format_brief(high)}"
        tip = f"weight {size}: {format_share(rows)} of ratings, {format_share(held)} of all weight"
        groups.append(BarGroup(format_brief(low), (rows, held), tip))
    legend = make_legend({"share of ratings": OBSERVED, "share of all weight": CORRECTED}, "bar")
    x_title = "weight 1/P" if shares["low"] == shares["high"] else "weight 1/P, from"
    bars = Bars(groups, (OBSERVED.color, CORRECTED.color), x_title, "share")
    return Chart("Sizes of the weights", bars, legend)


def _weight_notes(weights: Record) -> Iterator[str]:
    if weights["top_share"] is not None:
        yield f"The heaviest 1% of ratings have {format_share(weights['top_share'])} of all weight."
    if weights["n_cells"]:
        ratio = format_share(weights["mass"] / weights["n_cells"])
        yield (
            f"The sum of the weights is {ratio} of the number of cells. "
            "With right propensities it is about 100%."
        )
    if weights["n_touched"]:
        yield f"The weight transform changed {count_noun(weights['n_touched'], 'weight')}."


def list_facts(record: Record) -> Iterator[tuple[str, str]]:
    """How the estimates were computed."""
    yield "logged ratings", f"{record['n_observed']:,}"
    yield "universe", format_universe(record["universe"])
    if record.get("n_dropped"):
        yield "bad rows dropped", f"{record['n_dropped']:,}"
    yield "intervals", f"{record['level']:.0%}, {record['intervals']}"
    yield "estimators", ", ".join(record["estimators"])
    if record.get("notes"):
        yield "notes", "; ".join(record["notes"])
