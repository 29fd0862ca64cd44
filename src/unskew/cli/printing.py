"""Tables and paragraphs for the terminal, results for machines and files."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from rich.console import Console

PIPED_WIDTH = 100
PAGE = ".html"
COMMAND = "unskew.command"
"""Where the context keeps what was typed."""


def console() -> Console:
    """Standard output, as wide as the terminal; prose for a pipe or a file wraps at 100."""
    from rich.console import Console

    return Console(
        highlight=False,
        markup=False,
        emoji=False,
        width=None if sys.stdout.isatty() else PIPED_WIDTH,
    )


def print_prose(out: Console, text: str) -> None:
    """A paragraph, wrapped without blanks at the ends of lines."""
    _print_lines(out, textwrap.wrap(text, out.width))


def print_table(
    out: Console, columns: Mapping[str, Sequence[object]], *, title: str, caption: str = ""
) -> None:
    """A title, columns side by side under a rule, and what the numbers are. Lines are never cut or wrapped."""
    from unskew.tables import text_table

    head, *lines = text_table(columns).splitlines()
    rule = ("─" if out.encoding.startswith("utf") else "-") * max(map(len, [head, *lines]))
    out.print(title, style="bold")
    _print_lines(out, [head, rule, *lines])
    print_prose(out, caption)
    out.print()


def print_lines(out: Console, text: str) -> None:
    """Lines as they are."""
    _print_lines(out, text.splitlines())


def write_columns(
    columns: Mapping[str, Sequence[Any]],
    path: str,
    *,
    quiet: bool,
    as_json: Callable[[], str] | None = None,
) -> None:
    """Columns to a file in the format of its extension; ``.json`` and ``.html`` are the whole result where there is one."""
    from pathlib import Path

    from unskew.io.files import write_table
    from unskew.io.model_files import replace_file

    if as_json is not None and path.endswith(PAGE):
        return write_page(as_json(), path, quiet=quiet)
    if as_json is not None and path.endswith(".json"):
        replace_file(Path(path), (as_json() + "\n").encode())
    else:
        write_table(columns, path)
    return wrote(path, quiet=quiet)


def write_page(text: str, path: str, *, quiet: bool) -> None:
    """The page of a result, given its JSON."""
    from unskew.report.page import write

    write(text, path, command=command_line())
    wrote(path, quiet=quiet)


def command_line() -> str | None:
    """What was typed, for the page to tell."""
    return click.get_current_context().meta.get(COMMAND)


def wrote(path: str, *, quiet: bool) -> None:
    """A note that a file is there now."""
    if not quiet and path != "-":
        note(f"wrote {path}")


def note(text: str) -> None:
    """A line beside the result."""
    click.echo(text, err=True)


def shows_progress(quiet: bool) -> bool:
    """Whether somebody watches."""
    return not quiet and sys.stderr.isatty()


def progress_line(quiet: bool) -> AbstractContextManager[Callable[[str], None]]:
    """What is being done, on one line of standard error that goes away."""
    from unskew.progress import progress_line

    return progress_line(shows_progress(quiet))


def _print_lines(out: Console, lines: Sequence[str]) -> None:
    for line in lines:
        out.print(line, no_wrap=True, overflow="ignore", crop=False)
