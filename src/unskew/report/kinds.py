"""Which page belongs to which kind of result. A new kind is a builder and a line here."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from unskew.errors import BadFileError
from unskew.report.page import Page, Record
from unskew.report.pages.comparison import comparison_page
from unskew.report.pages.cross_validation import cross_validation_page
from unskew.report.pages.demo import demo_page
from unskew.report.pages.diagnosis import diagnosis_page
from unskew.report.pages.evaluation import evaluation_page
from unskew.report.pages.groups import groups_page
from unskew.report.pages.learners import learners_page
from unskew.report.pages.reproduction import reproduction_page
from unskew.report.pages.robustness import robustness_page
from unskew.report.pages.sensitivity import sensitivity_page

PAGES: Mapping[str, Callable[[Record], Page]] = {
    "evaluation": evaluation_page,
    "grouped_evaluation": groups_page,
    "comparison": comparison_page,
    "sensitivity": sensitivity_page,
    "robustness": robustness_page,
    "diagnosis": diagnosis_page,
    "cross_validation": cross_validation_page,
    "learners": learners_page,
    "reproduction": reproduction_page,
    "demo": demo_page,
}
DAMAGE = (
    LookupError,
    TypeError,
    ValueError,
    AttributeError,
    ArithmeticError,
    StopIteration,
    RuntimeError,
)
"""What a page's builder raises on a file that somebody changed by hand."""


def page_of(record: Record) -> Page:
    """The page of a result."""
    return PAGES[record["kind"]](record)


def read_record(text: str, name: str) -> Record:
    """A result's JSON; anything else is refused in words."""
    try:
        found: Any = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadFileError(
            f"{name} is not JSON ({error}). Write a result with --json, or with to_json()."
        ) from error
    if not isinstance(found, dict) or str(found.get("kind")) not in PAGES:
        kind = (
            f"its kind is {found.get('kind')!r}"
            if isinstance(found, dict) and "kind" in found
            else "it names no kind"
        )
        raise BadFileError(
            f"{name} holds no result that has a page: {kind}; the kinds are {', '.join(PAGES)}. "
            "Write a result with --json, or with to_json(), of this version."
        )
    return found


def read_page(text: str, name: str) -> Page:
    """The page of a result's JSON, as somebody's file has it."""
    record = read_record(text, name)
    try:
        return page_of(record)
    except DAMAGE as error:
        raise BadFileError(
            f"{name} is not a whole {record['kind'].replace('_', ' ')} ({type(error).__name__}: {error}). Write it again."
        ) from error
