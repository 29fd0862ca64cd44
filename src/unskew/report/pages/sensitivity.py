"""The page of a sensitivity."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from unskew.report.page import Page, Record, Section, Table, Tile, table
from unskew.report.pages.evaluation import shown
from unskew.report.pages.shifts import by_question, clip_chart, odds_chart
from unskew.report.pages.verdict import Voices
from unskew.report.wording import (
    brief,
    count,
    estimator_name,
    metric_in_words,
    metric_name,
    sentence,
    share,
)
from unskew.tables import count_noun

Rows = Sequence[Mapping[str, Any]]
CLIPPED = "The estimates again, with no weight allowed above a limit. A flat line says that a few heavy ratings do not decide."
WRONG = (
    "How far the estimates could move if the true odds of being logged differ from the assumed ones by up to a factor, the "
    "ratings conspiring. At 1 the propensities are taken as right."
)
CHANGES = {"clip": "weights clipped", "odds_error": "odds wrong"}
HEADS = {"low": "least", "high": "largest", "ci_low": "lower limit", "ci_high": "upper limit"}


def sensitivity_page(record: Record) -> Page:
    """How much the estimates depend on the weights."""
    main, metric = Voices.of(record["estimators"]).main, next(iter(record["metrics"]))
    rows = [row for row in record["rows"] if row["estimator"] == main]
    measure = sentence(metric_in_words(metric)).removesuffix(".")
    notes = tuple(sentence(text) for text in record["notes"])
    return Page(
        "Sensitivity",
        ((_headline([row for row in rows if row["metric"] == metric], metric), True),),
        f"{measure} by {estimator_name(main)}, from {count_noun(record['n_observed'], 'logged rating')}. "
        "The table has every estimator.",
        (
            Tile(count(record["n_observed"]), "logged ratings"),
            Tile(str(len(record["models"])), "models"),
            Tile(str(len(record["estimators"])), "estimators that weight"),
        ),
        (),
        (
            *sections(rows, record["level"]),
            Section("All numbers", "", tables=(_table(record["rows"]),), notes=notes),
        ),
        (
            ("logged ratings", f"{record['n_observed']:,}"),
            ("intervals", f"{record['level']:.0%}, {record['intervals']}"),
            ("computed by", f"unskew {record['version']}"),
        ),
    )


def sections(rows: Rows, level: float) -> Iterator[Section]:
    """A chart for each kind of change, metric and estimator."""
    clips, odds = ([row for row in rows if row["change"] == change] for change in CHANGES)
    if len({row["amount"] for row in clips}) > 1:
        yield Section(
            "If large weights are clipped",
            CLIPPED,
            tuple(clip_chart(each, level) for each in by_question(clips)),
        )
    if odds:
        yield Section(
            "If the propensities are wrong",
            WRONG,
            tuple(odds_chart(each, level) for each in by_question(odds)),
        )


def _headline(rows: Rows, metric: str) -> str:
    """What moves most."""
    clips, odds = ([row for row in rows if row["change"] == change] for change in CHANGES)
    parts: list[str] = []
    if len({row["amount"] for row in clips}) > 1:
        models = dict.fromkeys(row["model"] for row in clips)
        reach = {model: [row["low"] for row in clips if row["model"] == model] for model in models}
        model = max(reach, key=lambda name: max(reach[name]) - min(reach[name]))
        least, largest = brief(min(reach[model])), brief(max(reach[model]))
        moves = f"moves {metric_name(metric)} of {model} between {least} and {largest}"
        parts.append(f"clipping {moves if least != largest else 'changes next to nothing'}")
    if odds:
        worst = max(odds, key=lambda row: (row["amount"], row["high"] - row["low"]))
        ends = f"{brief(worst['low'])} to {brief(worst['high'])}"
        parts.append(
            f"odds wrong by up to {brief(worst['amount'])} could put {worst['model']} anywhere from {ends}"
        )
    return sentence("; ".join(parts) or "there was nothing to vary")


def _table(rows: Rows) -> Table:
    names = {
        name: [shown(name, row[name]) for row in rows] for name in ("model", "metric", "estimator")
    }
    return table("Every estimate under every change", names | columns(rows))


def columns(rows: Rows) -> dict[str, list[Any]]:
    """What was changed by how much, and what came of it."""
    found: dict[str, list[Any]] = {
        "change": [CHANGES[row["change"]] for row in rows],
        "amount": [row["amount"] for row in rows],
    }
    found |= {head: [row[name] for row in rows] for name, head in HEADS.items()}
    return found | {"ratings cut": [share(row["share_clipped"]) for row in rows]}
