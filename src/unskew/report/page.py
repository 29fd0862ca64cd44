"""A page: what it says, in order, and how it becomes one HTML file that needs nothing else.

Every page is made from the JSON that a result writes, so that a result and its file give the same page.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unskew._version import __version__
from unskew.errors import MissingExtraError
from unskew.io.model_files import replace_file
from unskew.report.charts.chart import Chart
from unskew.tables import show

if TYPE_CHECKING:
    from jinja2 import Environment

Record = Mapping[str, Any]
MOST_OPEN = 24
"""Rows of a table that lies open; a longer one is opened by whoever wants it."""
MOST_LETTERS = 32
"""Of a cell on one line."""
WRITTEN_NUMBER = re.compile(
    r"([+−-]?[0-9][0-9,]*(?:\.[0-9]+)?(?:e[+-]?[0-9]+)?)\s?%?(?: (?:±|\[).*)?"
)
"""A number that came as text, with what surrounds it: 0.31 ± 0.02, say, or 45%."""


@dataclass(frozen=True, slots=True)
class Cell:
    """What a table shows, and what it is sorted by."""

    text: str
    value: float | str
    is_number: bool = False

    @property
    def is_long(self) -> bool:
        """Whether it takes more than one line."""
        return len(self.text) > MOST_LETTERS


@dataclass(frozen=True, slots=True)
class Table:
    """Columns with names, a cell each row."""

    caption: str
    names: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]

    @property
    def is_open(self) -> bool:
        """Whether it is short enough to lie open."""
        return len(self.rows) <= MOST_OPEN

    @property
    def numeric(self) -> tuple[bool, ...]:
        """Which columns stand to the right."""
        return tuple(
            any(row[place].is_number for row in self.rows) for place in range(len(self.names))
        )


@dataclass(frozen=True, slots=True)
class Section:
    """A heading, a few words, and what there is to see."""

    title: str
    text: str = ""
    charts: tuple[Chart, ...] = ()
    tables: tuple[Table, ...] = ()
    notes: tuple[str, ...] = ()
    is_small: bool = False
    """Whether its charts are small ones side by side."""


@dataclass(frozen=True, slots=True)
class Tile:
    """A number that stands out."""

    value: str
    label: str
    note: str = ""


@dataclass(frozen=True, slots=True)
class Page:
    """All that a page says."""

    kicker: str
    """What kind of result this is."""
    headline: tuple[tuple[str, bool], ...]
    """Parts of a sentence; True where it is what to take away."""
    lead: str = ""
    tiles: tuple[Tile, ...] = ()
    warnings: tuple[str, ...] = ()
    sections: tuple[Section, ...] = ()
    facts: tuple[tuple[str, str], ...] = field(default=())
    """How it was computed."""

    @property
    def title(self) -> str:
        """The headline as plain text."""
        return "".join(text for text, _ in self.headline)


def table(caption: str, columns: Mapping[str, Sequence[Any]]) -> Table:
    """Named columns; None is a dash, and sorts last."""
    rows = zip(*columns.values(), strict=True)
    return Table(
        caption, tuple(columns), tuple(tuple(_cell(value) for value in row) for row in rows)
    )


def _cell(value: Any) -> Cell:
    if value is None:
        return Cell("–", "", is_number=False)
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return Cell(
            (f"{value:,}" if isinstance(value, int) else show(value)).replace("-", "−"),
            value,
            is_number=True,
        )
    return _text_cell(str(value))


def _text_cell(text: str) -> Cell:
    found = WRITTEN_NUMBER.fullmatch(text)
    if found is None:
        return Cell(text, text.casefold())
    return Cell(text, float(found[1].replace(",", "").replace("−", "-")), is_number=True)


def render(page: Page, *, command: str | None = None) -> str:
    """The whole file."""
    style, script = _asset("page.css"), _asset("page.js")
    written = ("page written", f"{datetime.now(UTC):%d %B %Y, %H:%M} UTC by unskew {__version__}")
    facts = (*page.facts, *([("command", command)] if command else []), written)
    return (
        _environment()
        .get_template("page.html")
        .render(
            page=replace(page, facts=facts),
            style=style,
            script=script,
            policy=_policy(style, script),
        )
    )


def write(text: str, path: str | Path, *, command: str | None = None) -> Path:
    """Write the page of a result, given its JSON; all of the file or nothing."""
    from unskew.report.kinds import page_of

    target = Path(path)
    replace_file(target, render(page_of(json.loads(text)), command=command).encode())
    return target


def _policy(style: str, script: str) -> str:
    """Nothing is fetched, and nothing runs but this page's own style and script."""
    return (
        f"default-src 'none'; style-src '{_digest(style)}'; script-src '{_digest(script)}'; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )


def _digest(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


@cache
def _asset(name: str) -> str:
    return (files("unskew.report") / "templates" / name).read_text(encoding="utf-8")


@cache
def _environment() -> Environment:
    try:
        from jinja2 import Environment, FunctionLoader, StrictUndefined
    except ImportError as error:
        raise MissingExtraError("jinja2", extra="report", purpose="writing a page") from error
    loader = FunctionLoader(_asset)
    return Environment(
        loader=loader,
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
