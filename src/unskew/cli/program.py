"""The ``unskew`` program: its commands, errors as exit codes, and messages that name options."""

from __future__ import annotations

import ast
import io
import shlex
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields
from functools import wraps
from pathlib import Path
from typing import Any, TextIO, TypeVar

import click

from unskew._version import __version__
from unskew.cli import COMMANDS
from unskew.cli.options import DeclaredName
from unskew.cli.printing import COMMAND_LINE, print_note
from unskew.errors import (
    DataError,
    GateError,
    Message,
    UnskewError,
    UnskewWarning,
    UsageError,
    format_keyword,
)

EXIT_CODES = {UsageError: 2, DataError: 3, GateError: 4}
"""Every other error exits with 1."""
RUNNING_COMMAND = "unskew.running_command"
"""Key of the command that runs, in the dictionary that all contexts share."""
OUTPUT_PARAMETER = "output"
"""The parameter that names files to write."""

Function = TypeVar("Function", bound=Callable[..., Any])


class SafeCommand(click.Command):
    """A command that refuses to overwrite a file that it reads.

    For ``--html``, an option of 0.1.0, it names ``-o``. Its help lists the names that its options
    accept, as the registries declare them.
    """

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            self._refuse_repetition(ctx, args)
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            output = find_parameter(self, OUTPUT_PARAMETER)
            writes_page = ".html" in (getattr(output, "help", None) or "")
            if error.option_name == "--html" and writes_page:
                message = "there is no option --html: `-o FILE.html` writes a page."
                raise click.UsageError(message, ctx) from error
            raise

    def _refuse_repetition(self, ctx: click.Context, args: list[str]) -> None:
        """Raise an error if an option of one value has several, of which click takes the last."""
        _, _, parameters = self.make_parser(ctx).parse_args(args=[*args])
        for option in set(parameters):
            takes_one = isinstance(option, click.Option) and not (option.multiple or option.is_flag)
            if takes_one and parameters.count(option) > 1:
                name = "/".join(option.opts)
                raise click.UsageError(f"{name} takes one value, and got several. Pass one.", ctx)

    def invoke(self, context: click.Context) -> Any:
        inputs = [
            text
            for name, value in context.params.items()
            if name != OUTPUT_PARAMETER
            for text in _find_texts(value)
        ]
        for path in _find_texts(context.params.get(OUTPUT_PARAMETER)):
            overwritten = next((text for text in inputs if _is_same_file(path, text)), None)
            if overwritten is not None:
                raise click.UsageError(
                    f"-o {path} would overwrite the input file {overwritten}. Choose another file."
                )
        return super().invoke(context)

    def format_options(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        super().format_options(context, formatter)
        for parameter in self.params:
            if isinstance(parameter.type, DeclaredName) and parameter.type.is_listed:
                with formatter.section(parameter.type.title):
                    formatter.write_dl(list(parameter.type.list_names().items()))


class CommandGroup(click.Group):
    """A group that keeps track of which command runs, for :func:`format_option`."""

    command_class = SafeCommand

    def resolve_command(
        self, context: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name, command, rest = super().resolve_command(context, args)
        context.meta[RUNNING_COMMAND] = command
        return name, command, rest

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)


def _find_texts(value: object) -> Iterator[str]:
    """Every text in the value of a parameter, which may be a tuple or a mapping."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, (tuple, Mapping)):
        for part in value.values() if isinstance(value, Mapping) else value:
            yield from _find_texts(part)


def _is_same_file(path: str, other: str) -> bool:
    try:
        return Path(path).samefile(other)
    except (OSError, ValueError):  # one of them does not exist
        return False


def declare_command(
    name: str, summary: str, *, order: float, request: type[Any] | None = None
) -> Callable[[Callable[..., None]], click.Command]:
    """Declare the function below as a command; ``order`` is its position in ``unskew --help``.

    The parameters that are fields of the dataclass ``request`` are passed as one record, the first
    argument of the function. The others follow by name.
    """

    def decorate(function: Callable[..., None]) -> click.Command:
        body = function if request is None else collect_request(request)(function)
        command = click.command(name, cls=SafeCommand)(body)
        traits = {"order": order}
        return COMMANDS.add(name, command, label=name.capitalize(), summary=summary, traits=traits)

    return decorate


def collect_request(kind: type[Any]) -> Callable[[Function], Function]:
    """Pass a command one object of the dataclass ``kind``, made from parameters of those names."""
    names = {field.name for field in fields(kind)}

    def decorate(function: Function) -> Function:
        @wraps(function)
        def _call(**parameters: Any) -> Any:
            request = kind(**{name: parameters.pop(name) for name in names & parameters.keys()})
            return function(request, **parameters)

        return _call  # type: ignore[return-value]

    return decorate


class Program(CommandGroup):
    """The group of all declared commands.

    Errors and warnings of the library are one line each on standard error; ``-v`` adds the
    traceback of an error.
    """

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
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


def render_message(message: Message) -> str:
    """A message of the library on one line, with arguments shown as options."""
    return " ".join(message.render(format_argument=format_option, for_shell=True).split())


def format_option(name: str, value: str | None) -> str:
    """A reference to an argument as the running command spells it: ``--universe UxI``.

    ``value`` is Python text, such as ``'log'`` or ``(n_users, n_items)``. An argument that the
    command does not have is shown as a Python keyword.
    """
    context = click.get_current_context(silent=True)
    command = context.meta.get(RUNNING_COMMAND) if context is not None else None
    parameter = find_parameter(command, name) if command is not None else None
    if context is None or parameter is None:
        return format_keyword(name, value)
    if isinstance(parameter, click.Argument):
        return parameter.make_metavar(context)
    option = max(parameter.opts, key=len)
    if not value or getattr(parameter, "is_flag", False):
        return option
    if value == "None":
        return f"no {option}"
    return " ".join(f"{option} {text}" for text in _shell_values(value, parameter, context))


def _shell_values(value: str, parameter: click.Parameter, context: click.Context) -> Iterator[str]:
    """A Python value as the shell writes it, one text for each time that the option is repeated.

    A value that is not a literal, such as ``(n_users, n_items)``, is a placeholder.
    """
    try:
        literal = ast.literal_eval(value.replace("...", "placeholder"))
    except (ValueError, SyntaxError):
        yield parameter.make_metavar(context)
        return
    if isinstance(literal, tuple):
        yield "x".join(map(str, literal))
    else:
        yield from map(str, literal if isinstance(literal, list) else [literal])


def find_parameter(command: click.Command, name: str) -> click.Parameter | None:
    """The parameter of a command with this Python name or this long option.

    ``factors`` and ``n_factors`` both find ``--factors``.
    """
    long_option = f"--{name.replace('_', '-')}"
    for parameter in command.params:
        if name == parameter.name or long_option in parameter.opts:
            return parameter
    return None


@click.group(
    cls=Program,
    context_settings={
        "help_option_names": ["-h", "--help"],
        "max_content_width": 100,
        "show_default": True,
    },
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
