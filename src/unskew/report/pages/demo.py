"""The page of the demonstration: an evaluation whose truth is known, and what its propensities are worth."""

from __future__ import annotations

from dataclasses import replace

from unskew.report.page import Page, Record, Section
from unskew.report.pages import diagnosis
from unskew.report.pages.evaluation import evaluation_page, sections

TRUTH = "This log is simulated, so that the truth is known. On each chart of estimates it is the upright line."


def demo_page(record: Record) -> Page:
    """The evaluation with the truth beside it, and the diagnosis of its propensities."""
    page = evaluation_page(record)
    truth = {(row["model"], row["metric"]): row["value"] for row in record["truth"]}
    own = list(sections(record, truth))
    *shown, numbers = [
        replace(each, text=f"{each.text} {TRUTH}") if each.title == "Estimates" else each
        for each in own
    ]
    trusted = [each for each in diagnosis.sections(record["diagnosis"]) if each.charts]
    story = Section("What happened", record["summary"])
    facts = (*page.facts[:-1], ("seed", str(record["seed"])), page.facts[-1])
    return replace(
        page,
        kicker="Demonstration on a simulated log",
        sections=(story, *shown, *trusted, numbers),
        facts=facts,
    )
