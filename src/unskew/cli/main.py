"""The ``unskew`` command, and how every command fails."""

from __future__ import annotations

import io
import sys
from typing import Any

import click

from unskew._version import __version__
from unskew.cli.demo import demo
from unskew.cli.reproduce import reproduce
from unskew.errors import DataError, UnskewError, UsageError

EXIT_CODES = {UsageError: 2, DataError: 3}


class Commands(click.Group):
    """Turns our errors into one line and an exit code; ``-v`` shows where they came from."""

    def invoke(self, context: click.Context) -> Any:
        """Run the command."""
        try:
            return super().invoke(context)
        except (UnskewError, OSError) as error:
            if context.params.get("verbose"):
                raise
            click.echo(f"error: {error}", err=True)
            sys.exit(next((code for kind, code in EXIT_CODES.items() if isinstance(error, kind)), 1))


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("-v", "--verbose", is_flag=True, help="Show the traceback of an error.")
@click.version_option(__version__, prog_name="unskew")
def main(verbose: bool) -> None:  # noqa: ARG001
    """Evaluate and train recommenders on logs that are missing not at random.

    Results go to standard output, progress and warnings to standard error. Exit codes: 0 fine, 1 failure, 2 usage, 3 bad data.

    \b
    Example:
      unskew demo
    """  # noqa: D301
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # so that "±" fails on no terminal


main.add_command(demo)
main.add_command(reproduce)
