"""``unskew report``."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from unskew.cli.options import FILE, Careful, output_option, talk_options
from unskew.cli.printing import command_line, wrote


@click.command(cls=Careful, short_help="A result's JSON as a page to look at.")
@click.argument("result", type=FILE, metavar="RESULT.json")
@output_option("The page; else RESULT with .html in place of .json. - is standard output.")
@talk_options
def report(result: str, output: str | None, quiet: bool) -> None:
    """Write RESULT, the JSON that --json prints and -o FILE.json writes, as one HTML file that needs nothing else.

    \b
    Example:
      unskew evaluate log.csv --universe 943x1682 -o result.json
      unskew report result.json -o report.html
    """  # noqa: D301
    from unskew.io.model_files import replace_file
    from unskew.report.kinds import read_page
    from unskew.report.page import render

    if result == "-" and output is None:
        raise click.UsageError("name the page of what comes from standard input: -o report.html.")
    page = render(read_page(*_read(result)), command=command_line())
    if output == "-":
        sys.stdout.write(page)
        return
    path = output or str(Path(result).with_suffix(".html"))
    if output is None and path == result:
        raise click.UsageError(
            f"the page of {result} would be written over it; name another: -o report.html."
        )
    replace_file(Path(path), page.encode())
    wrote(path, quiet=quiet)


def _read(path: str) -> tuple[str, str]:
    """The text of a file, and what errors call it."""
    content = sys.stdin.buffer.read() if path == "-" else Path(path).read_bytes()
    return content.decode("utf-8", errors="replace"), "standard input" if path == "-" else path
