"""The ``unskew`` command: lists the declared commands and turns errors into exit codes."""

from __future__ import annotations

import io
import shlex
import sys
import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TextIO

import click

from unskew._version import __version__
from unskew.cli import COMMANDS
from unskew.cli.command import CommandGroup, render_message
from unskew.cli.printing import COMMAND_LINE, print_note
from unskew.errors import DataError, GateError, UnskewError, UnskewWarning, UsageError

EXIT_CODES = {UsageError: 2, DataError: 3, GateError: 4}
"""Every other error exits with 1."""


class Program(CommandGroup):
    """The group of all declared commands.

    Errors and warnings of the library are one line each on standard error; ``-v`` adds the
    traceback of an error.
    """

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(
        self,
        ctx: click.Context,
        cmd_name: str,
    ) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        declaration = COMMANDS[cmd_name]
        command = declaration.target
        command.short_help = command.short_help or declaration.summary
        return command

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.meta[COMMAND_LINE] = shlex.join(["unskew", *args])
        with _warnings_as_lines():
            return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            with _warnings_as_lines():
                return super().invoke(ctx)
        except BrokenPipeError:
            raise
        except (UnskewError, OSError) as error:
            if ctx.params.get("verbose"):
                traceback.print_exception(error, file=sys.stderr)
            prefix = "gate tripped" if isinstance(error, GateError) else "error"
            text = render_message(error) if isinstance(error, UnskewError) else str(error)
            print_note(f"{prefix}: {text}")
            codes = (code for kind, code in EXIT_CODES.items() if isinstance(error, kind))
            sys.exit(next(codes, 1))


@contextmanager
def _warnings_as_lines() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("always", UnskewWarning)
        warnings.showwarning = _show_warning
        yield


def _show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,  # noqa: ARG001
    line: str | None = None,
) -> None:
    """Print a warning of the library as one line, and another as Python does."""
    if isinstance(message, UnskewWarning):
        print_note(f"warning: {render_message(message)}")
    else:
        text = warnings.formatwarning(message, category, filename, lineno, line)
        click.echo(text, err=True, nl=False)


@click.group(
    cls=Program, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100}
)
@click.option("-v", "--verbose", is_flag=True, help="Show the traceback of an error.")
@click.version_option(__version__, prog_name="unskew")
def main(verbose: bool) -> None:  # noqa: ARG001
    """Evaluate and train recommenders on logs that are missing not at random.

    Results go to standard output, progress and warnings to standard error. Files are written
    completely or not at all, missing folders are created, and input files are never overwritten.
    Exit codes: 0 success, 1 failure, 2 wrong usage, 3 bad data, 4 a limit of --fail-if exceeded.

    \b
    Example:
      unskew demo
      unskew evaluate log.csv --prediction old --prediction new --universe 943x1682

    \b
    Completion in bash (zsh and fish likewise):
      eval "$(_UNSKEW_COMPLETE=bash_source unskew)"
    """  # noqa: D301
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal without "±" shows "?"
