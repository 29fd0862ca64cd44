"""The page of an evaluation whose groups were judged apart."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from unskew.report.charts.axes import Axis
from unskew.report.charts.chart import Chart, chart, key
from unskew.report.charts.forest import Block, Forest, Row, foremost
from unskew.report.charts.looks import Look, estimator_look, look_of
from unskew.report.page import Page, Record, Section, Table, Tile, table
from unskew.report.pages.evaluation import facts, shown
from unskew.report.pages.verdict import Headline, Voices
from unskew.report.wording import (
    count,
    decimals_of,
    estimator_name,
    interval,
    metric_in_words,
    metric_name,
    sentence,
    share,
)
from unskew.tables import count_noun

SPREAD = "The same models in every group. Where the order changes from group to group, one number for all of them hides it."


def groups_page(record: Record) -> Page:
    """Whether the groups agree, and each of them."""
    groups = record["groups"]
    first = groups[0]
    metric = next(iter(first["metrics"]))
    warnings = tuple(
        f"{record['by']} is {_name(each)}: {text}" for each in groups for text in each["warnings"]
    )
    n_observed = sum(each["n_observed"] for each in groups)
    return Page(
        "Evaluation by group",
        _headline(record, metric),
        f"{sentence(metric_in_words(metric))} {count_noun(len(groups), 'group')} of {count_noun(n_observed, 'logged rating')} in all.",
        (
            Tile(str(len(groups)), "group" if len(groups) == 1 else "groups", f"by {record['by']}"),
            Tile(count(n_observed), "logged ratings"),
        ),
        warnings,
        (
            Section("Estimates by group", SPREAD, tuple(_charts(record))),
            Section("How much data each group has", "", tables=(_sizes(record),)),
            Section("All numbers", "", tables=(_table(record),)),
        ),
        tuple(
            (name, value)
            for name, value in facts(first)
            if name not in ("logged ratings", "universe")
        ),
    )


def _name(group: Mapping[str, Any]) -> str:
    return "missing" if group["group"] is None else str(group["group"])


def _headline(record: Record, metric: str) -> Headline:
    """Who leads in how many groups."""
    groups, main = record["groups"], Voices.of(record["groups"][0]["estimators"]).main
    by = "Naive says" if main == "naive" else "Corrected for selection,"
    if len(groups[0]["models"]) == 1:
        rows = {_name(each): _row(each, groups[0]["models"][0], metric, main) for each in groups}
        low, high = (
            min(rows, key=lambda name: rows[name]["estimate"]),
            max(rows, key=lambda name: rows[name]["estimate"]),
        )
        ends = f"{rows[low]['estimate']:.2f} ({low}) to {rows[high]['estimate']:.2f} ({high})"
        return (
            (f"{by} {metric_name(metric)} of {groups[0]['models'][0]} runs from {ends}.", True),
        )
    winners = [_winner(each, metric, main) for each in groups]
    counts = {name: winners.count(name) for name in dict.fromkeys(winners) if name is not None}
    unsure = winners.count(None)
    parts = [
        f"{name} is clearly ahead in {f'{n} of' if n < len(groups) else 'all'} {len(groups)} groups"
        for name, n in counts.items()
    ]
    parts += (
        [
            f"{unsure} cannot be told"
            if parts
            else f"none of the {len(groups)} groups can tell the models apart"
        ]
        if unsure
        else []
    )
    return ((f"{by} {', '.join(parts)}.", True),)


def _winner(group: Mapping[str, Any], metric: str, estimator: str) -> str | None:
    """Who beats all others."""
    rows = [
        row
        for row in group["differences"]
        if (row["metric"], row["estimator"]) == (metric, estimator)
    ]
    return rows[0]["first"] if all(row["better"] == row["first"] for row in rows) else None


def _row(group: Mapping[str, Any], model: str, metric: str, estimator: str) -> Mapping[str, Any]:
    wanted = (model, metric, estimator)
    found: Mapping[str, Any] = next(
        row for row in group["rows"] if (row["model"], row["metric"], row["estimator"]) == wanted
    )
    return found


def _charts(record: Record) -> Iterator[Chart]:
    """A forest a metric: blocks are groups, rows are models, by the estimator that counts."""
    first = record["groups"][0]
    main = Voices.of(first["estimators"]).main
    looks = {model: look_of(place) for place, model in enumerate(first["models"])}
    if len(looks) == 1:
        looks = {model: estimator_look(main, 0) for model in looks}
    for metric, is_higher in first["metrics"].items():
        decimals = decimals_of(
            row for each in record["groups"] for row in each["rows"] if row["metric"] == metric
        )
        blocks = []
        for each in record["groups"]:
            lines = tuple(
                _line(_row(each, model, metric, main), look, decimals)
                for model, look in looks.items()
            )
            blocks.append(Block(f"{record['by']}: {_name(each)}", lines))
        title = f"{metric_name(metric)} by {estimator_name(main)}"
        axis = Axis(f"{title} ({'higher' if is_higher else 'lower'} is better)")
        largest = sorted(
            range(len(blocks)), key=lambda place: -record["groups"][place]["n_observed"]
        )
        shown_blocks, left_out = foremost(
            blocks, largest, rows_each=len(looks), what="largest groups"
        )
        legend = [key(model, look) for model, look in looks.items()]
        yield chart(title, Forest(shown_blocks, axis).draw, legend=legend, caption=left_out)


def _line(row: Mapping[str, Any], look: Look, decimals: int) -> Row:
    told = interval(row["estimate"], row["ci_low"], row["ci_high"], decimals)
    return Row(
        row["model"],
        row["estimate"],
        look,
        f"{row['model']}: {told}",
        row["ci_low"],
        row["ci_high"],
        told,
    )


def _sizes(record: Record) -> Table:
    groups = record["groups"]
    sizes = [
        None if each["weights"] is None else round(each["weights"]["effective_sample_size"])
        for each in groups
    ]
    shares = [
        None if size is None else share(size / each["n_observed"])
        for size, each in zip(sizes, groups, strict=True)
    ]
    columns = {
        record["by"]: [_name(each) for each in groups],
        "logged ratings": [each["n_observed"] for each in groups],
    }
    return table("Size of each group", columns | {"effective sample size": sizes, "share": shares})


def _table(record: Record) -> Table:
    rows = [(_name(each), row) for each in record["groups"] for row in each["rows"]]
    names = ("model", "metric", "estimator", "estimate", "std_error", "ci_low", "ci_high")
    heads = ("model", "metric", "estimator", "estimate", "std. error", "low", "high")
    columns = {
        head: [shown(name, row[name]) for _, row in rows]
        for head, name in zip(heads, names, strict=True)
    }
    return table(
        "Every estimate of every group", {record["by"]: [name for name, _ in rows]} | columns
    )
