"""The page of an evaluation of several groups, each one separately."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from unskew.estimators import main_estimator
from unskew.metrics import metric_label
from unskew.report import PAGES
from unskew.report.charts import (
    Chart,
    ChartAxis,
    Forest,
    ForestGroup,
    ForestRow,
    default_looks,
    keep_first,
    make_legend,
)
from unskew.report.comparison import (
    estimator_looks,
    opening,
    usable_estimators,
)
from unskew.report.evaluation import ESTIMATE_COLUMNS, list_facts
from unskew.report.page import Headline, Page, PageTable, Section, Tile, make_table
from unskew.report.text import (
    Record,
    common_decimals,
    describe_direction,
    describe_metric,
    estimator_label,
    format_count,
    format_share,
    interval_of,
    label_columns,
    select,
)
from unskew.tables import count_noun

SPREAD = (
    "The same models in every group. If their order changes from group to group, one number for "
    "all groups hides it."
)


@PAGES.declare(
    "grouped_evaluation",
    label="Evaluation by group",
    summary="Whether the groups agree, and the estimates of each group.",
)
def build_groups_page(record: Record) -> Page:
    groups = record["groups"]
    metric = next(iter(groups[0]["metrics"]))
    n_observed = sum(group["n_observed"] for group in groups)
    facts = [
        fact for fact in list_facts(groups[0]) if fact[0] not in ("logged ratings", "universe")
    ]
    return Page(
        _write_headline(record, metric),
        f"{describe_metric(metric)}. {count_noun(len(groups), 'group')} with "
        f"{count_noun(n_observed, 'logged rating')} in total.",
        (
            Tile(str(len(groups)), "group" if len(groups) == 1 else "groups", f"by {record['by']}"),
            Tile(format_count(n_observed), "logged ratings"),
        ),
        tuple(
            f"{record['by']} is {_group_name(group)}: {text}"
            for group in groups
            for text in group["warnings"]
        ),
        (
            Section("Estimates by group", SPREAD, tuple(_group_charts(record))),
            Section("Size of the groups", tables=(_size_table(record),)),
            Section("All numbers", tables=(_estimate_table(record),)),
        ),
        tuple(facts),
    )


def _group_name(group: Record) -> str:
    return "missing" if group["group"] is None else str(group["group"])


def _write_headline(record: Record, metric: str) -> Headline:
    """The groups in which each model leads; the range over groups if there is one model."""
    groups = record["groups"]
    usable = [set(usable_estimators(group, metric)) for group in groups]
    estimators = [name for name in groups[0]["estimators"] if all(name in part for part in usable)]
    if not estimators:
        return ((f"No estimate of {metric_label(metric)} can be trusted; see the warnings.", True),)
    models, main = groups[0]["models"], main_estimator(estimators)
    if len(models) == 1:
        estimates = sorted(
            (row["estimate"], _group_name(group))
            for group in groups
            for row in select(group["rows"], {"metric": metric, "estimator": main})
        )
        low, high = (f"{value:.2f} ({name})" for value, name in (estimates[0], estimates[-1]))
        text = f"{metric_label(metric)} of {models[0]} ranges from {low} to {high}"
    else:
        text = _count_winners([_find_winner(group, metric, main) for group in groups])
    return ((f"{opening(main, groups[0])} {text}.", True),)


def _find_winner(group: Record, metric: str, estimator: str) -> str | None:
    """The model that is better than all others; None if the data cannot tell."""
    rows = select(group["differences"], {"metric": metric, "estimator": estimator})
    return rows[0]["first"] if all(row["better"] == row["first"] for row in rows) else None


def _count_winners(winners: Sequence[str | None]) -> str:
    n_groups, n_unclear = len(winners), winners.count(None)
    if n_unclear == n_groups:
        return f"the models cannot be told apart in any of the {n_groups} groups"
    parts = []
    for name in dict.fromkeys(winner for winner in winners if winner is not None):
        n_won = winners.count(name)
        amount = "all" if n_won == n_groups else f"{n_won} of"
        parts.append(f"{name} is clearly ahead in {amount} {n_groups} groups")
    if n_unclear:
        parts.append(f"{n_unclear} cannot tell the models apart")
    return ", ".join(parts)


def _group_charts(record: Record) -> Iterator[Chart]:
    """One forest for each metric: a group for each group, a row for each model."""
    groups = record["groups"]
    models, main = groups[0]["models"], main_estimator(groups[0]["estimators"])
    looks = default_looks(models)
    if len(models) == 1:
        looks = {models[0]: estimator_looks([main])[main]}
    order = sorted(range(len(groups)), key=lambda position: -groups[position]["n_observed"])
    for metric, higher_is_better in groups[0]["metrics"].items():
        rows = [row for group in groups for row in select(group["rows"], {"metric": metric})]
        decimals = common_decimals(rows)
        forest_groups = []
        for group in groups:
            forest_rows = tuple(
                ForestRow.of_interval(
                    row["model"],
                    looks[row["model"]],
                    interval_of(row, "estimate"),
                    decimals=decimals,
                )
                for row in select(group["rows"], {"metric": metric, "estimator": main})
            )
            name = f"{record['by']}: {_group_name(group)}"
            forest_groups.append(ForestGroup(name, forest_rows))
        kept, caption = keep_first(
            forest_groups, order, rows_each=len(models), noun="largest groups"
        )
        title = f"{metric_label(metric)} by {estimator_label(main)}"
        axis = ChartAxis(f"{title} ({describe_direction(higher_is_better=higher_is_better)})")
        yield Chart(title, Forest(kept, axis), make_legend(looks), caption)


def _size_table(record: Record) -> PageTable:
    groups = record["groups"]
    sizes = [
        None if group["weights"] is None else round(group["weights"]["effective_sample_size"])
        for group in groups
    ]
    shares = [
        None if size is None else format_share(size / group["n_observed"])
        for size, group in zip(sizes, groups, strict=True)
    ]
    columns = {
        record["by"]: [_group_name(group) for group in groups],
        "logged ratings": [group["n_observed"] for group in groups],
        "effective sample size": sizes,
        "share": shares,
    }
    return make_table("Size of each group", columns)


def _estimate_table(record: Record) -> PageTable:
    rows = [row for group in record["groups"] for row in group["rows"]]
    names = [_group_name(group) for group in record["groups"] for _ in group["rows"]]
    columns = label_columns(rows, ESTIMATE_COLUMNS)
    return make_table("All estimates of all groups", {record["by"]: names} | columns)
