"""Pages and figures of results, each declared next to the code that builds it.

A page is built from the JSON of a result, so a result and its file give the same page. Lower
packages reach this one through the entry points of the group ``unskew.report``. Other packages
add the page of their own kind of result with ``PAGES.declare``.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

from unskew.errors import BadFileError, UsageError
from unskew.io.writing import as_path, write_file
from unskew.registry import Registry
from unskew.report.page import Page, render
from unskew.report.text import Record

PageBuilder: TypeAlias = Callable[[Record], Page]
PAGES: Registry[PageBuilder] = Registry("result page", __name__)
"""By kind of result: the function that builds the page from the result's JSON object.

The trait ``draw`` is a function of the same object, of ``ax`` and of the options of ``plot()``
that returns a matplotlib figure.
"""
DAMAGE = (
    LookupError,
    TypeError,
    ValueError,
    AttributeError,
    ArithmeticError,
    StopIteration,
    RuntimeError,
)
"""What page builders raise when somebody has edited the JSON of a result."""


def build_page(record: Record) -> Page:
    """The page of a result, given its JSON object."""
    declaration = PAGES.find(record["kind"])
    page = declaration.target(record)
    facts = (*page.facts, ("computed by", f"unskew {record['version']}"))
    return replace(page, topic=page.topic or declaration.label, facts=facts)


def render_file(text: str, name: str, *, command: str | None = None) -> str:
    """The page of a file with a result's JSON; ``name`` is what errors call the file."""
    remedy = "Write a result with to_json()."
    shell_remedy = "Write a result with --json or -o FILE.json."
    try:
        record: Any = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadFileError(
            f"{name} is not JSON ({error}).", where=name, remedy=remedy, shell_remedy=shell_remedy
        ) from error
    kind = record.get("kind") if isinstance(record, dict) else None
    if str(kind) not in PAGES:
        reason = "it does not name its kind" if kind is None else f"its kind is {kind!r}"
        raise BadFileError(
            f"{name} is not a result that has a page: {reason}. Kinds with a page: "
            f"{', '.join(PAGES)}.",
            where=name,
            remedy=remedy,
            shell_remedy=shell_remedy,
        )
    try:
        return render(build_page(record), command=command)
    except DAMAGE as error:
        reason = f"{type(error).__name__}: {error}"
        if isinstance(error, KeyError):
            reason = f"it lacks {error}"
        raise BadFileError(
            f"{name} is not a complete {record['kind'].replace('_', ' ')}: {reason}.",
            where=name,
            remedy="Write the result to the file again.",
        ) from error


def write_page(text: str, path: str | Path, *, command: str | None = None) -> Path:
    """Write the page of a result, given its JSON; a failure leaves no partial file."""
    target = as_path(path)
    page = render(build_page(json.loads(text)), command=command)
    write_file(target, page.encode(errors="replace"))
    return target


def write_headline(text: str) -> str:
    """The headline of the page of a result, given its JSON; empty if its kind has no page."""
    record: Record = json.loads(text)
    return PAGES.find(record["kind"]).target(record).title if record["kind"] in PAGES else ""


def draw(kind: str, result: Any, ax: Any, **options: Any) -> Any:
    """The matplotlib figure of a result, in the axes ``ax`` or in a new figure.

    Without a trait ``draw`` it has the charts of the first section of the page that matplotlib
    can draw.
    """
    record: Record = json.loads(result.to_json())
    declaration = PAGES.find(kind) if kind in PAGES else None
    if declaration is not None and "draw" in declaration.traits:
        return declaration.traits["draw"](record, ax, **options)
    from unskew.report.figures import draw_charts, is_drawable

    for section in () if declaration is None else declaration.target(record).sections:
        if charts := [chart for chart in section.charts if is_drawable(chart.content)]:
            return draw_charts(charts, ax)
    raise UsageError(
        f"a result of the kind {kind!r} has no figure.",
        remedy="Use to_html(), to_frame() or print().",
    )
