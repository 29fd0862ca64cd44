"""``unskew report``: the HTML page of a result."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from unskew.cli import options
from unskew.cli.printing import PAGE, print_written, typed_command
from unskew.cli.program import declare_command


@declare_command("report", "Make an HTML page from the JSON of a result.", order=7)
@click.argument("result", type=options.INPUT_FILE, metavar="RESULT.json")
@options.output_option("The page; by default RESULT.html. - is standard output.")
@options.verbosity_options
def report(result: str, output: str | None, quiet: bool) -> None:
    """Write a result as one self-contained HTML file.

    RESULT.json is what --json prints and what -o FILE.json writes.

    \b
    Example:
      unskew evaluate log.csv --universe 943x1682 -o result.json
      unskew report result.json -o report.html
    """  # noqa: D301
    from unskew.io.writing import write_file
    from unskew.report import render_file

    if result == "-" and output is None:
        raise click.UsageError("standard input has no name: add -o report.html.")
    page = render_file(*_read_text(result), command=typed_command())
    if output == "-":
        sys.stdout.write(page)
        return
    path = output or str(Path(result).with_suffix(PAGE))
    if output is None and path == result:
        raise click.UsageError(f"the page would overwrite {result}: add -o report.html.")
    write_file(path, page.encode(errors="replace"))
    print_written(path, quiet=quiet)


def _read_text(path: str) -> tuple[str, str]:
    """The text of a file, and its name in error messages."""
    content = sys.stdin.buffer.read() if path == "-" else Path(path).read_bytes()
    return content.decode("utf-8", errors="replace"), "standard input" if path == "-" else path
