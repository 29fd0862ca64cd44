"""A page as a record, and the one HTML file that it becomes. The file needs nothing else."""

from __future__ import annotations

import base64
import hashlib
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any, TypeAlias

from unskew._version import __version__
from unskew.report.charts import Chart
from unskew.report.svg import draw_chart, draw_sample
from unskew.report.text import to_sentence
from unskew.tables import escape_controls, format_cell

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup

Headline: TypeAlias = tuple[tuple[str, bool], ...]
"""Parts of a sentence; True for the part that is emphasized."""
MAX_OPEN_ROWS = 30
"""Longer tables are closed until the reader opens them."""
MIN_FIXED = 1e-6
"""Smaller numbers are written with an exponent."""
MAX_CELL_LETTERS = 32
"""Longer cells are broken into several lines."""
NUMBER_IN_TEXT = re.compile(
    r"([+−-]?[0-9][0-9,]*(?:\.[0-9]+)?(?:e[+-]?[0-9]+)?)\s?%?(?: (?:±|\[).*)?"
)
"""A number written as text, such as ``0.31 ± 0.02`` or ``45%``."""
CODE_IN_TEXT = re.compile("`([^`]+)`")


@dataclass(frozen=True, slots=True)
class TableCell:
    """What a cell shows, and the value that its column is sorted by."""

    text: str
    value: float | str
    is_number: bool = False

    @property
    def is_long(self) -> bool:
        return len(self.text) > MAX_CELL_LETTERS


@dataclass(frozen=True, slots=True)
class PageTable:
    """A table that the reader can sort by any column."""

    caption: str
    names: tuple[str, ...]
    rows: tuple[tuple[TableCell, ...], ...]

    @property
    def is_open(self) -> bool:
        return len(self.rows) <= MAX_OPEN_ROWS

    @property
    def is_numeric(self) -> tuple[bool, ...]:
        """For each column, whether it has numbers, which are aligned to the right."""
        columns = range(len(self.names))
        return tuple(any(row[column].is_number for row in self.rows) for column in columns)


@dataclass(frozen=True, slots=True)
class Section:
    """A heading with a text, charts, tables and notes."""

    title: str
    text: str = ""
    charts: tuple[Chart, ...] = ()
    tables: tuple[PageTable, ...] = ()
    notes: tuple[str, ...] = ()
    has_small_charts: bool = False
    """Whether the charts are small and lie side by side."""


@dataclass(frozen=True, slots=True)
class Tile:
    """A large number at the top of the page, with its label and a note."""

    value: str
    label: str
    note: str = ""


@dataclass(frozen=True, slots=True)
class Page:
    """Everything that a page shows, in this order."""

    headline: Headline
    lead: str = ""
    """The paragraph below the headline."""
    tiles: tuple[Tile, ...] = ()
    warnings: tuple[str, ...] = ()
    sections: tuple[Section, ...] = ()
    facts: tuple[tuple[str, str], ...] = ()
    """How the result was computed: names and values."""
    topic: str = ""
    """The line above the headline; by default the label of the result's kind."""
    assumptions: tuple[str, ...] = ()
    """What must be true for the headline; shown below the lead."""

    @property
    def title(self) -> str:
        return "".join(text for text, _ in self.headline)


def make_table(caption: str, columns: Mapping[str, Sequence[Any]]) -> PageTable:
    """A table of named columns; None is shown as a dash and sorted last."""
    cells = [[_make_cell(name, value) for value in values] for name, values in columns.items()]
    return PageTable(caption, tuple(columns), tuple(zip(*cells, strict=True)))


def _make_cell(column: str, value: Any) -> TableCell:
    if value is None:
        return TableCell("–", "")
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        text = f"{value:,}" if isinstance(value, int) else format_cell(column, value)
        if MIN_FIXED <= abs(value) < 0.001 and not text.startswith("<"):
            text = f"{value:.{1 - math.floor(math.log10(abs(value)))}f}"
        return TableCell(text.replace("-", "−"), value, is_number=True)
    text = str(value)
    number = NUMBER_IN_TEXT.fullmatch(text)
    if number is None:
        return TableCell(text, text.casefold())
    return TableCell(text, float(number[1].replace(",", "").replace("−", "-")), is_number=True)


def render(page: Page, *, command: str | None = None) -> str:
    """The page as HTML; ``command`` is the command line that computed the result."""
    style, script = read_template("page.css"), read_template("page.js")
    written = f"{datetime.now(UTC):%d %B %Y, %H:%M} UTC by unskew {__version__}"
    command_fact = [("command", command)] if command else []
    page = replace(
        page,
        assumptions=tuple(map(to_sentence, page.assumptions)),
        warnings=tuple(map(to_sentence, page.warnings)),
        facts=(*page.facts, *command_fact, ("page written", written)),
    )
    template = _environment().get_template("page.html")
    policy = _content_policy(style, script)
    text = template.render(page=page, style=style, script=script, policy=policy)
    return escape_controls(text, keep="\n\t")


def _content_policy(style: str, script: str) -> str:
    """Forbids everything except the page's own style and script."""
    return (
        f"default-src 'none'; style-src '{_digest(style)}'; script-src '{_digest(script)}'; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )


def _digest(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


@cache
def read_template(name: str) -> str:
    return (files("unskew.report") / "templates" / name).read_text(encoding="utf-8")


@cache
def _environment() -> Environment:
    from jinja2 import Environment, FunctionLoader, StrictUndefined

    environment = Environment(
        loader=FunctionLoader(read_template),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals.update(draw_chart=draw_chart, draw_sample=draw_sample)
    environment.filters["code"] = _mark_code
    return environment


def _mark_code(text: str) -> Markup:
    """The text as HTML, with names in backticks as code."""
    from markupsafe import Markup, escape

    return Markup(CODE_IN_TEXT.sub(r"<code>\1</code>", str(escape(text))))
