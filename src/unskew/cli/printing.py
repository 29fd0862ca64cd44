"""What commands print for people, and the files that they write."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from unskew.progress import progress_line
from unskew.tables import escape_controls, text_table

if TYPE_CHECKING:
    from rich.console import Console

PIPED_WIDTH = 100
PAGE = ".html"
COMMAND_LINE = "unskew.command_line"
"""Key of the text that was typed, in the dictionary that all contexts share."""


def open_console() -> Console:
    """Standard output, as wide as the terminal; 100 columns if it is a pipe or a file."""
    from rich.console import Console

    return Console(
        highlight=False,
        markup=False,
        emoji=False,
        width=None if sys.stdout.isatty() else PIPED_WIDTH,
    )


def print_lines(console: Console, lines: Iterable[str]) -> None:
    """Print lines without wrapping or cutting them."""
    for line in lines:
        console.print(escape_controls(line), no_wrap=True, overflow="ignore", crop=False)


def print_paragraph(console: Console, text: str) -> None:
    lines = (textwrap.wrap(line, console.width) for line in text.splitlines())
    print_lines(console, [part for wrapped in lines for part in wrapped])


def print_table(
    console: Console, columns: Mapping[str, Sequence[object]], *, title: str, caption: str = ""
) -> None:
    """Print a title, a table with a rule under its header, and what the numbers are."""
    header, *rows = text_table(columns).splitlines()
    dash = "─" if console.encoding.startswith("utf") else "-"
    console.print(escape_controls(title), style="bold")
    print_lines(console, [header, dash * max(map(len, [header, *rows])), *rows])
    print_paragraph(console, caption)
    console.print()


def write_columns(
    columns: Mapping[str, Sequence[Any]],
    path: str,
    *,
    quiet: bool,
    to_json: Callable[[], str] | None = None,
) -> None:
    """Write columns in the format of the extension.

    With ``to_json``, a ``.json`` or ``.html`` file holds the whole result.
    """
    from unskew.io.files import write_table
    from unskew.io.writing import write_file

    if to_json is not None and path.endswith(PAGE):
        return write_page(to_json(), path, quiet=quiet)
    if to_json is not None and path.endswith(".json"):
        write_file(path, (to_json() + "\n").encode())
    else:
        write_table(columns, path)
    return print_written(path, quiet=quiet)


def write_page(text: str, path: str, *, quiet: bool) -> None:
    """Write the HTML page of a result, given its JSON."""
    from unskew.report import write_page

    write_page(text, path, command=typed_command())
    print_written(path, quiet=quiet)


def typed_command() -> str | None:
    """The command line as it was typed, which a page shows."""
    return click.get_current_context().meta.get(COMMAND_LINE)


def print_written(path: str, *, quiet: bool) -> None:
    if not quiet and path != "-":
        print_note(f"wrote {path}")


def print_note(text: str) -> None:
    """Print a line to standard error, where it does not mix with the result."""
    click.echo("\n".join(map(escape_controls, text.splitlines())), err=True)


def is_progress_shown(quiet: bool) -> bool:
    return not quiet and sys.stderr.isatty()


@contextmanager
def show_progress(quiet: bool, text: str) -> Iterator[None]:
    """Show a text on one line of standard error, until the block ends."""
    with progress_line(is_progress_shown(quiet)) as show:
        show(text)
        yield
