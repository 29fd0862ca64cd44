"""Tables and paragraphs for the terminal."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence

from rich import box
from rich.console import Console
from rich.table import Table

from unskew.tables import show


def console() -> Console:
    """Standard output; wide enough for a table where it is not a terminal, so that a pipe or a file keeps every column."""
    out = Console(highlight=False, soft_wrap=False)
    return out if sys.stdout.isatty() else Console(highlight=False, width=200)


def print_table(out: Console, columns: Mapping[str, Sequence[object]], *, title: str | None = None) -> None:
    """Columns side by side, numbers to the right."""
    table = Table(box=box.SIMPLE_HEAD, title=title, title_justify="left", title_style="bold", pad_edge=False)
    for name, values in columns.items():
        numeric = any(isinstance(value, (int, float)) for value in values)
        table.add_column(name, justify="right" if numeric else "left", no_wrap=True)
    for row in zip(*columns.values(), strict=True):
        table.add_row(*(show(value) for value in row))
    out.print(table)
