"""The page of policies that were evaluated on logged impressions, and its figure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from unskew.report import PAGES
from unskew.report.charts import (
    OBSERVED,
    Chart,
    ChartAxis,
    Forest,
    ForestGroup,
    ForestRow,
    default_looks,
    make_legend,
)
from unskew.report.figures import draw_charts
from unskew.report.page import Headline, Page, Section, Tile, make_table
from unskew.report.text import (
    Record,
    common_decimals,
    format_brief,
    format_count,
    format_interval,
    interval_of,
    select,
)
from unskew.tables import UNDECIDED, format_p_value

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LOGGED = "logged"
REWARD = "reward of a request"
DIFFERENCES = (
    "Each policy minus the logging policy, paired request by request. This is far more precise "
    "than comparing two intervals. An interval that excludes zero tells the two apart, if the "
    "condition of the estimator holds and the logged probabilities are right."
)
CHECKS = (
    "Every mean weight must be 1 if the probabilities are right. A mean is off if it is above 1 by "
    "more than four standard errors, or below 1 by as much, and by more where a few large weights "
    "decide it. The probabilities are then of another kind than stated or wrong, or the policy "
    "shows items that the log never shows, or it was trained on this log. That all means are near "
    "1 does not show that everything is right. Requests are those with a weight other than 0, and "
    "effective is their effective sample size."
)
ESTIMATORS = (
    "Estimators differ in what they assume about users. The headline takes the one that assumes "
    "least among those with reliable weights: IPS and SNIPS assume nothing. Others are right only "
    "under their conditions."
)


def draw_policies(record: Record, ax: Any) -> Figure | None:
    """The values of all policies with their intervals."""
    return draw_charts([_draw_values(record)], ax)


@PAGES.declare(
    "policy_evaluation",
    label="Policies",
    summary="What other policies would earn, from logged impressions.",
    traits={"draw": draw_policies},
)
def build_policy_page(record: Record) -> Page:
    conditions = dict.fromkeys(
        f"{_list_labels(record, text)}: right if {text}" for text in record["conditions"].values()
    )
    return Page(
        _write_headline(record),
        f"The {REWARD}, higher is better, with {record['level']:.0%} intervals. {ESTIMATORS}",
        tuple(_list_tiles(record)),
        warnings=tuple(record["warnings"]),
        sections=tuple(_make_sections(record)),
        facts=(
            ("requests", f"{record['n_requests']:,}"),
            ("impressions", f"{record['n_impressions']:,}"),
            ("slots", f"up to {record['n_slots']:,}"),
            ("clusters", f"{record['cluster']}s"),
            ("intervals", f"{record['level']:.0%}"),
        ),
        assumptions=(
            *conditions,
            *record["notes"],
        ),
    )


def _list_labels(record: Record, condition: str) -> str:
    """The estimators that rest on a condition."""
    names = [name for name, text in record["conditions"].items() if text == condition]
    return ", ".join(record["labels"][name] for name in names)


def _list_tiles(record: Record) -> Iterator[Tile]:
    logged = record["rows"][0]
    yield Tile(format_brief(logged["estimate"]), f"logged {REWARD}", "mean of the logging policy")
    yield Tile(
        format_count(record["n_requests"]), "requests", f"{record['n_impressions']:,} impressions"
    )
    sizes = [check["effective"] for check in record["checks"] if check["weight"] != "additive"]
    if sizes:
        yield Tile(
            format_count(min(sizes)), "smallest effective sample size", "requests, by their weights"
        )


def _write_headline(record: Record) -> Headline:
    """What the estimator of the headline says about its best policy, and whether others agree."""
    headline = record["headline"]
    best, estimator = headline["policy"], headline["estimator"]
    (difference,) = select(record["differences"], {"first": best, "estimator": estimator})
    if difference["ci_low"] is None or difference["ci_high"] is None:
        return (("No verdict: ", True), ("no estimate of a policy has an interval.", False))
    text = format_interval(*interval_of(difference, "difference"), with_sign=True)
    label = record["labels"][estimator]
    if headline["better"] is None:
        verdict = f"{best} and the logging policy cannot be told apart "
    elif headline["better"] == best:
        verdict = f"{best} earns more than the logging policy "
    else:
        verdict = f"{best} earns less than the logging policy "
    ending = f"({text} a request by {label}, under its condition below)."
    if len(record["policies"]) > 1:
        ending += f" It {headline['rank']}"
        if headline["n_policies"] > 1:
            ending += (
                ", one of which can look better by chance: "
                f"{format_p_value(headline['p_value'])} if that is included"
            )
        ending += "."
    others = f" {headline['others']}." if headline["others"] else ""
    return ((verdict, True), (f"{ending}{others}", False))


def _is_shown(row: Record) -> bool:
    return row["estimate"] is not None and row["ci_low"] is not None


def _make_sections(record: Record) -> Iterator[Section]:
    columns = ("policy", "estimator", "estimate", "std_error", "ci_low", "ci_high", "degrees")
    values = make_table("Values", _list_columns(record, "rows", columns))
    notes = tuple(
        f"{row['policy']} by {record['labels'][row['estimator']]} has no interval: see the "
        "warnings."
        for row in record["rows"][1:]
        if not _is_shown(row)
    )
    yield Section("Values", "", (_draw_values(record),), (values,), notes)
    columns = ("first", "estimator", "difference", "ci_low", "ci_high", "p_value", "better")
    differences = make_table(
        "Each policy minus the logging policy", _list_columns(record, "differences", columns)
    )
    chart = _draw_differences(record)
    yield Section("Differences from the log", DIFFERENCES, chart, (differences,))
    if pair := record.get("comparisons"):
        title = f"{pair[0]['first']} minus {pair[0]['second']}"
        listed = make_table(title, _list_columns(record, "comparisons", columns[1:]))
        yield Section(title, "Paired request by request.", (), (listed,))
    if record["checks"]:
        shown = ("policy", "weight", "position", "mean", "std_error", "is_off", "n_positive")
        shown_columns = (*shown, "effective", "largest")
        checks = make_table("Weights", _list_columns(record, "checks", shown_columns))
        yield Section("Checks of the weights", CHECKS, (), (checks,))


HEADINGS = {
    "std_error": "std. error",
    "ci_low": "lower limit",
    "ci_high": "upper limit",
    "p_value": "p-value",
    "first": "policy",
    "is_off": "off",
    "n_positive": "requests",
}


def _list_columns(record: Record, table: str, names: tuple[str, ...]) -> dict[str, list[Any]]:
    return {
        HEADINGS.get(name, name): [_show(record, name, row) for row in record[table]]
        for name in names
    }


def _show(record: Record, name: str, row: Record) -> Any:
    """A cell as the reader sees it."""
    value = row[name]
    if name == "estimator":
        return record["labels"].get(value, value)
    if name == "is_off":
        return "yes" if value else "no"
    if name == "better":
        return "no interval" if row["ci_low"] is None else value or UNDECIDED
    return value


def _draw_values(record: Record) -> Chart:
    """One group for each policy, one row for each estimator; the logged value is a line."""
    rows = [row for row in record["rows"][1:] if _is_shown(row)]
    logged = record["rows"][0]
    decimals = common_decimals([*rows, logged])
    looks = _choose_looks(record, rows)
    groups = [
        ForestGroup(
            "",
            (ForestRow.of_interval(LOGGED, OBSERVED, interval_of(logged, "estimate"), decimals),),
        )
    ]
    for policy in record["policies"]:
        listed = [row for row in rows if row["policy"] == policy]
        if listed:
            groups.append(
                ForestGroup(
                    policy,
                    tuple(_make_row(record, looks, row, "estimate", decimals) for row in listed),
                )
            )
    content = Forest(groups, ChartAxis(REWARD), reference=logged["estimate"])
    caption = "Vertical line: mean reward of the log."
    return Chart(f"The {REWARD} under each policy", content, make_legend(looks), caption)


def _choose_looks(record: Record, rows: list[Record]) -> Any:
    """Colours and symbols of the estimators that are drawn."""
    drawn = {row["estimator"] for row in rows}
    return default_looks(record["labels"][name] for name in record["estimators"] if name in drawn)


def _make_row(record: Record, looks: Any, row: Record, value: str, decimals: int) -> ForestRow:
    label = record["labels"][row["estimator"]]
    subject = f"{row.get('policy', row.get('first'))} by {label}"
    return ForestRow.of_interval(
        label,
        looks[label],
        interval_of(row, value),
        decimals,
        subject=subject,
        with_sign=value == "difference",
    )


def _draw_differences(record: Record) -> tuple[Chart, ...]:
    rows = [
        row
        for row in record["differences"]
        if row["difference"] is not None and row["ci_low"] is not None
    ]
    if not rows:
        return ()
    decimals = common_decimals(rows)
    looks = _choose_looks(record, rows)
    groups = [
        ForestGroup(
            policy,
            tuple(
                _make_row(record, looks, row, "difference", decimals)
                for row in rows
                if row["first"] == policy
            ),
        )
        for policy in record["policies"]
        if any(row["first"] == policy for row in rows)
    ]
    content = Forest(
        groups,
        ChartAxis(f"difference of the {REWARD}"),
        reference=0.0,
        sides=("log", "policy"),
    )
    return (Chart("Each policy minus the logging policy", content, make_legend(looks)),)
