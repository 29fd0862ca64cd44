"""The ``unskew`` command, and how every command fails."""

from __future__ import annotations

import io
import shlex
import sys
import traceback
import warnings
from typing import Any, TextIO

import click

from unskew._version import __version__
from unskew.cli.data import data
from unskew.cli.demo import demo
from unskew.cli.doctor import doctor
from unskew.cli.evaluate import evaluate
from unskew.cli.printing import COMMAND
from unskew.cli.propensity import propensity
from unskew.cli.report import report
from unskew.cli.reproduce import reproduce
from unskew.cli.train import recommend, train
from unskew.cli.validate import validate
from unskew.cli.wording import as_options
from unskew.errors import DataError, GateError, UnskewError, UnskewWarning, UsageError

EXIT_CODES = {UsageError: 2, DataError: 3, GateError: 4}


class Commands(click.Group):
    """Turns our errors into one line and an exit code, and warnings into one line each; ``-v`` shows where errors came from."""

    def parse_args(self, context: click.Context, args: list[str]) -> list[str]:
        """Remember what was typed."""
        context.meta[COMMAND] = shlex.join(["unskew", *args])
        return super().parse_args(context, args)

    def invoke(self, context: click.Context) -> Any:
        """Run the command."""
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("always", UnskewWarning)
                warnings.showwarning = _show_warning
                return super().invoke(context)
        except BrokenPipeError:
            raise
        except (UnskewError, OSError) as error:
            if context.params.get("verbose"):
                traceback.print_exception(error, file=sys.stderr)
            kind = "gate tripped" if isinstance(error, GateError) else "error"
            click.echo(f"{kind}: {as_options(str(error))}", err=True)
            sys.exit(
                next((code for each, code in EXIT_CODES.items() if isinstance(error, each)), 1)
            )

    def list_commands(self, context: click.Context) -> list[str]:  # noqa: ARG002
        """In the order in which they are used."""
        return list(self.commands)


def _show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    """A line for each thing that is said."""
    if not issubclass(category, UnskewWarning):
        return click.echo(
            warnings.formatwarning(message, category, filename, lineno, line), err=True, nl=False
        )
    for said in str(message).splitlines():
        click.echo(f"warning: {as_options(said)}", err=True, file=file)
    return None


@click.group(
    cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100}
)
@click.option("-v", "--verbose", is_flag=True, help="Show the traceback of an error.")
@click.version_option(__version__, prog_name="unskew")
def main(verbose: bool) -> None:  # noqa: ARG001
    """Evaluate and train recommenders on logs that are missing not at random.

    Results go to standard output, progress and warnings to standard error. A file is written whole or not at all, its folders are
    made where there are none, and a file that is read is never written over. Exit codes: 0 fine, 1 failure, 2 usage, 3 bad data,
    4 a gate of --fail-if tripped.

    \b
    Example:
      unskew demo
      unskew evaluate log.csv --prediction old --prediction new --universe 943x1682

    \b
    Completion, for bash (zsh and fish likewise):
      eval "$(_UNSKEW_COMPLETE=bash_source unskew)"
    """  # noqa: D301
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # so that "±" fails on no terminal


for command in (
    demo,
    validate,
    evaluate,
    propensity,
    train,
    recommend,
    report,
    reproduce,
    data,
    doctor,
):
    main.add_command(command)
