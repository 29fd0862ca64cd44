"""The page of a verdict and how wrong the propensities would have to be to overturn it."""

from __future__ import annotations

from unskew.report.page import Page, Record, Section, Table, Tile, table
from unskew.report.pages.sensitivity import columns, sections
from unskew.report.pages.verdict import Headline
from unskew.report.wording import (
    brief,
    estimator_name,
    metric_in_words,
    metric_name,
    number,
    sentence,
)

ODDS = "An odds error of 2 means that the odds of being logged could be half or twice what is assumed, for every rating."


def robustness_page(record: Record) -> Page:
    """Until when the order holds."""
    name = f"{record['first']} minus {record['second']}"
    return Page(
        "Robustness",
        _headline(record),
        f"{sentence(metric_in_words(record['metric'])).removesuffix('.')} by {estimator_name(record['estimator'])}. {ODDS}",
        (
            Tile(number(record["difference"], 3, signed=True), "difference", name),
            Tile(_odds(record["flips_at"]), "odds error that could turn the order"),
            Tile(_odds(record["unsure_at"]), "odds error that could make it unsure"),
        ),
        (),
        (
            *sections(record["shifts"], record["level"]),
            Section("All numbers", "", tables=(_table(record),)),
        ),
        (("intervals", f"{record['level']:.0%}"), ("computed by", f"unskew {record['version']}")),
    )


def _odds(value: float | None) -> str:
    return "none" if value is None else brief(value)


def _headline(record: Record) -> Headline:
    if record["better"] is None:
        return (
            (
                f"{record['first']} and {record['second']} are equal on {metric_name(record['metric'])}.",
                True,
            ),
        )
    worse = record["second"] if record["better"] == record["first"] else record["first"]
    ahead = f"{record['better']} stays ahead of {worse}"
    if record["flips_at"] is None:
        return ((f"{ahead} however wrong the propensities are.", True),)
    unsure = (
        "although the data cannot tell them apart even if they are right"
        if record["unsure_at"] == 1
        else f"and clearly so up to a factor of {_odds(record['unsure_at'])}"
    )
    return (
        (
            f"{ahead} unless the odds of being logged are wrong by a factor of {brief(record['flips_at'])} or more, ",
            True,
        ),
        (f"{unsure}.", False),
    )


def _table(record: Record) -> Table:
    return table("The difference under every change", columns(record["shifts"]))
