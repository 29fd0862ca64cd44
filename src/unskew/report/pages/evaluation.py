"""The page of an evaluation."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from unskew.report.charts.axes import Axis, percent, short
from unskew.report.charts.bars import Bars, Bin
from unskew.report.charts.chart import Chart, bar_key, chart, key, rule_key
from unskew.report.charts.forest import Block, Forest, Row, foremost
from unskew.report.charts.looks import Look, estimator_look
from unskew.report.page import Page, Record, Section, Table, Tile, table
from unskew.report.pages.shifts import clip_chart
from unskew.report.pages.verdict import Voices, headline
from unskew.report.wording import (
    MEANINGS,
    brief,
    count,
    decimals_of,
    estimator_name,
    interval,
    metric_in_words,
    metric_name,
    of_universe,
    sentence,
    share,
)
from unskew.tables import count_noun

Rows = Sequence[Mapping[str, Any]]


def evaluation_page(record: Record) -> Page:
    """Who is better, how sure that is, and what it rests on."""
    metric = next(iter(record["metrics"]))
    return Page(
        "Evaluation",
        headline(record, metric),
        lead(record, metric),
        tuple(tiles(record)),
        tuple(sentence(text) for text in record["warnings"]),
        tuple(sections(record)),
        tuple(facts(record)),
    )


def lead(record: Record, metric: str) -> str:
    """What the headline's numbers are."""
    better = "higher" if record["metrics"][metric] else "lower"
    by = estimator_name(Voices.of(record["estimators"]).main)
    return (
        f"{sentence(metric_in_words(metric)).removesuffix('.')}, {better} is better, estimated by {by} from "
        f"{count_noun(record['n_observed'], 'logged rating')}. Brackets are {record['level']:.0%} intervals."
    )


def tiles(record: Record) -> Iterator[Tile]:
    """The size of the log, and how much of it the weights leave."""
    universe, weights = record["universe"], record["weights"]
    seen = (
        ""
        if universe is None
        else f"{share(record['n_observed'] / (universe[0] * universe[1]))} of all cells"
    )
    yield Tile(count(record["n_observed"]), "logged ratings", seen)
    if weights is not None:
        size = weights["effective_sample_size"]
        yield Tile(
            count(size),
            "effective sample size",
            f"{share(size / weights['n_observed'])} of the log",
        )
        if record["weight_shares"] is not None:
            yield Tile(
                brief(record["weight_shares"]["largest"]),
                "largest weight",
                f"median {brief(record['weight_shares']['median'])}",
            )
    yield Tile(str(len(record["models"])), "model" if len(record["models"]) == 1 else "models", "")


def sections(
    record: Record, truth: Mapping[tuple[str, str], float] | None = None
) -> Iterator[Section]:
    """What there is to see, the verdict first."""
    if record["differences"]:
        charts = tuple(difference_charts(record))
        tables = (_differences_table(record),) if any(each.caption for each in charts) else ()
        yield Section("Who is ahead", DIFFERENCES, charts, tables)
    meanings = " ".join(MEANINGS[name] for name in record["estimators"] if name in MEANINGS)
    yield Section("Estimates", meanings, tuple(estimate_charts(record, truth or {})))
    if record["ratings"] is not None:
        is_corrected = record["ratings"]["corrected"] is not None
        title = "What was rated, and what there is" if is_corrected else "What was rated"
        yield Section(title, RATINGS if is_corrected else "", (ratings_chart(record["ratings"]),))
    if record["weight_shares"] is not None:
        yield Section(
            "Weights",
            WEIGHTS,
            (weights_chart(record["weight_shares"]),),
            notes=tuple(_of_weights(record["weights"])),
        )
    if len({row["amount"] for row in record["clipping"] or ()}) > 1:
        yield Section(
            "If large weights are clipped",
            CLIPPING,
            (clip_chart(record["clipping"], record["level"]),),
        )
    yield Section("All numbers", "", tables=(_estimates_table(record),))


DIFFERENCES = (
    "The leader minus each other model, paired rating by rating, which is far sharper than comparing two intervals. "
    "An interval that leaves out zero tells the two apart."
)
RATINGS = (
    "Grey is the share of each rating in the log. Blue is the same with every rating counted 1/P times: what the whole table of "
    "users and items would look like if the propensities are right."
)
WEIGHTS = (
    "Each rating counts 1/P times. Grey is how many ratings have a weight of that size, blue is how much of the total they hold: "
    "where blue sits far right of grey, few ratings decide."
)
CLIPPING = (
    "The estimates again, with no weight allowed above a limit. A flat line says that a few heavy ratings do not decide; "
    "further left is steadier but less corrected."
)


def estimate_charts(record: Record, truth: Mapping[tuple[str, str], float]) -> Iterator[Chart]:
    """A forest a metric."""
    looks = {name: estimator_look(name, place) for place, name in enumerate(record["estimators"])}
    legend = [key(estimator_name(name), look) for name, look in looks.items()]
    for metric, is_higher in record["metrics"].items():
        blocks = []
        decimals = decimals_of(row for row in record["rows"] if row["metric"] == metric)
        for model in record["models"]:
            rows = [
                row for row in record["rows"] if (row["model"], row["metric"]) == (model, metric)
            ]
            lines = tuple(_estimate(row, looks[row["estimator"]], decimals) for row in rows)
            blocks.append(Block(model, lines, truth.get((model, metric))))
        best = _best_first(record, metric, is_higher=is_higher)
        shown, left_out = foremost(blocks, best, rows_each=len(looks), what="best models")
        axis = Axis(f"{metric_name(metric)} ({'higher' if is_higher else 'lower'} is better)")
        truths = (
            [rule_key("Truth", "truth rule")]
            if any(block.truth is not None for block in shown)
            else []
        )
        title = f"{metric_name(metric)}, {metric_in_words(metric)}"
        yield chart(title, Forest(shown, axis).draw, legend=[*legend, *truths], caption=left_out)


def _best_first(record: Record, metric: str, *, is_higher: bool) -> list[int]:
    """Places of the models, by the estimator that counts."""
    main = Voices.of(record["estimators"]).main
    value = {
        row["model"]: row["estimate"]
        for row in record["rows"]
        if (row["metric"], row["estimator"]) == (metric, main)
    }
    models = record["models"]
    return sorted(range(len(models)), key=lambda place: value[models[place]], reverse=is_higher)


def _estimate(row: Mapping[str, Any], look: Look, decimals: int) -> Row:
    shown = interval(row["estimate"], row["ci_low"], row["ci_high"], decimals)
    name = estimator_name(row["estimator"])
    tip = f"{row['model']}, {name}: {shown}"
    return Row(name, row["estimate"], look, tip, row["ci_low"], row["ci_high"], shown)


def difference_charts(record: Record) -> Iterator[Chart]:
    """How far the leader is ahead by each estimator, a chart a metric."""
    main = Voices.of(record["estimators"]).main
    for metric, is_higher in record["metrics"].items():
        rows = [row for row in record["differences"] if row["metric"] == metric]
        pairs = list(_pairs(rows))
        leaders = {first for first, _ in pairs}
        title, names = (
            f"{metric_name(metric)}: the leader minus each other",
            [f"{first} minus {second}" for first, second in pairs],
        )
        if len(leaders) == 1:
            title, names = (
                f"{metric_name(metric)}: {pairs[0][0]} minus each other",
                [f"minus {second}" for _, second in pairs],
            )
        if len(pairs) == 1:
            title, names = f"{metric_name(metric)}: {pairs[0][0]} minus {pairs[0][1]}", [""]
        blocks = [
            Block(name, _lines(rows, pair, record["estimators"]))
            for name, pair in zip(names, pairs, strict=True)
        ]
        sides = _sides(pairs[0], is_higher=is_higher) if len(pairs) == 1 else None
        distances = [_distance(block, main) for block in blocks]
        nearest = sorted(range(len(blocks)), key=distances.__getitem__)
        shown, left_out = foremost(
            blocks, nearest, rows_each=len(record["estimators"]), what="nearest models"
        )
        forest = Forest(
            shown, Axis(f"difference of {metric_name(metric)}"), reference=0.0, sides=sides
        )
        yield chart(title, forest.draw, caption=left_out)


def _distance(block: Block, estimator: str) -> float:
    """How far apart two models are by an estimator."""
    return next(
        (abs(row.value) for row in block.rows if row.label == estimator_name(estimator)), math.inf
    )


def _pairs(rows: Rows) -> Iterator[tuple[str, str]]:
    """Every pair once, whoever leads."""
    seen: set[frozenset[str]] = set()
    for row in rows:
        pair = frozenset((row["first"], row["second"]))
        if pair not in seen:
            seen.add(pair)
            yield row["first"], row["second"]


def _sides(pair: tuple[str, str], *, is_higher: bool) -> tuple[str, str]:
    first, second = pair
    return (second, first) if is_higher else (first, second)


def _lines(rows: Rows, pair: tuple[str, str], estimators: Sequence[str]) -> tuple[Row, ...]:
    """The first minus the second, by each estimator that compared the two."""
    own = [row for row in rows if {row["first"], row["second"]} == set(pair)]
    decimals, lines = decimals_of(rows), []
    for row in own:
        sign = 1.0 if row["first"] == pair[0] else -1.0
        value, (low, high) = (
            sign * row["difference"],
            sorted((sign * row["ci_low"], sign * row["ci_high"])),
        )
        shown, name = (
            interval(value, low, high, decimals, signed=True),
            estimator_name(row["estimator"]),
        )
        look = estimator_look(row["estimator"], list(estimators).index(row["estimator"]))
        lines.append(
            Row(name, value, look, f"{pair[0]} minus {pair[1]}, {name}: {shown}", low, high, shown)
        )
    return tuple(lines)


def ratings_chart(ratings: Mapping[str, Any]) -> Chart:
    """The distribution of ratings, as logged and weighted."""
    is_weighted = ratings["corrected"] is not None
    bins = []
    for place, (low, high) in enumerate(zip(ratings["low"], ratings["high"], strict=True)):
        name = f"{low:g}" if low == high else short(low)
        shares = (ratings["seen"][place], *([ratings["corrected"][place]] if is_weighted else []))
        where = f"rating {low:g}" if low == high else f"rating {low:.3g} to {high:.3g}"
        told = [
            f"{percent(shares[0])} of the log",
            *([f"{percent(shares[1])} corrected"] if is_weighted else []),
        ]
        bins.append(Bin(name, shares, f"{where}: {', '.join(told)}"))
    colors = ("seen", "accent") if is_weighted else ("seen",)
    keys = [
        bar_key("in the log", "seen"),
        *([bar_key("corrected", "accent")] if is_weighted else []),
    ]
    return chart(
        "Ratings in the log and corrected for selection",
        Bars(bins, colors, "rating", "share of ratings").draw,
        legend=keys,
    )


def weights_chart(shares: Mapping[str, Any]) -> Chart:
    """How many ratings have which weight, and what they hold."""
    bins = []
    for low, high, rows, held in zip(
        *(shares[name] for name in ("low", "high", "rows", "held")), strict=True
    ):
        where = brief(low) if low == high else f"{brief(low)} to {brief(high)}"
        bins.append(
            Bin(
                brief(low),
                (rows, held),
                f"weight {where}: {percent(rows)} of ratings, {percent(held)} of all weight",
            )
        )
    across = "weight 1/P" if shares["low"] == shares["high"] else "weight 1/P, from"
    keys = [bar_key("share of ratings", "seen"), bar_key("share of all weight", "accent")]
    return chart(
        "Sizes of the weights", Bars(bins, ("seen", "accent"), across, "share").draw, legend=keys
    )


def _of_weights(weights: Mapping[str, Any]) -> Iterator[str]:
    if weights["top_share"] is not None:
        yield f"The heaviest 1% of ratings hold {share(weights['top_share'])} of all weight."
    if weights["n_cells"]:
        ratio = weights["mass"] / weights["n_cells"]
        yield f"The weights add up to {share(ratio)} of the number of cells; right propensities give about 100%."
    if weights["n_touched"]:
        yield f"Changed by a transform: {count_noun(weights['n_touched'], 'weight')}."


def _estimates_table(record: Record) -> Table:
    names = ("model", "metric", "estimator", "estimate", "std_error", "ci_low", "ci_high")
    heads = ("model", "metric", "estimator", "estimate", "std. error", "low", "high")
    columns = {
        head: [shown(name, row[name]) for row in record["rows"]]
        for head, name in zip(heads, names, strict=True)
    }
    return table("Every estimate with its standard error and interval", columns)


def _differences_table(record: Record) -> Table:
    names = ("first", "second", "metric", "estimator", "difference", "ci_low", "ci_high")
    heads = ("model", "minus", "metric", "estimator", "difference", "low", "high")
    columns = {
        head: [shown(name, row[name]) for row in record["differences"]]
        for head, name in zip(heads, names, strict=True)
    }
    return table("Every difference", columns)


def shown(name: str, value: Any) -> Any:
    """Metrics and estimators by the names that the charts have."""
    return (
        {"metric": metric_name, "estimator": estimator_name}[name](value)
        if name in ("metric", "estimator")
        else value
    )


def facts(record: Record) -> Iterator[tuple[str, str]]:
    """How the numbers came about."""
    yield "logged ratings", f"{record['n_observed']:,}"
    yield "universe", of_universe(record["universe"])
    if record.get("n_dropped"):
        yield "bad rows dropped", f"{record['n_dropped']:,}"
    yield "intervals", f"{record['level']:.0%}, {record['intervals']}"
    yield "estimators", ", ".join(record["estimators"])
    yield "computed by", f"unskew {record['version']}"
