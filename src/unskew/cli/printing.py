"""Tables and paragraphs for the terminal."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Mapping, Sequence

from rich.console import Console

from unskew.tables import text_table

PIPED_WIDTH = 100


def console() -> Console:
    """Standard output, as wide as the terminal; prose for a pipe or a file wraps at 100."""
    return Console(highlight=False, markup=False, emoji=False, width=None if sys.stdout.isatty() else PIPED_WIDTH)


def print_prose(out: Console, text: str) -> None:
    """A paragraph, wrapped without blanks at the ends of lines."""
    _print_lines(out, textwrap.wrap(text, out.width))


def print_table(out: Console, columns: Mapping[str, Sequence[object]], *, title: str, caption: str = "") -> None:
    """A title, columns side by side under a rule, and what the numbers are. Lines are never cut or wrapped."""
    head, *lines = text_table(columns).splitlines()
    rule = ("─" if out.encoding.startswith("utf") else "-") * max(map(len, [head, *lines]))
    out.print(title, style="bold")
    _print_lines(out, [head, rule, *lines])
    print_prose(out, caption)
    out.print()


def _print_lines(out: Console, lines: Sequence[str]) -> None:
    for line in lines:
        out.print(line, no_wrap=True, overflow="ignore", crop=False)
