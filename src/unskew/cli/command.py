"""Classes of commands and groups, and how messages of the library name options of a command."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar

import click

from unskew.cli.names import DeclaredName
from unskew.errors import Message, format_keyword

RUNNING_COMMAND = "unskew.running_command"
"""Key of the command that runs, in the dictionary that all contexts share."""
OUTPUT_PARAMETERS = ("output", "html")
"""Parameters that name a file to write."""

Function = TypeVar("Function", bound=Callable[..., Any])


class CommandGroup(click.Group):
    """A group that keeps track of which command runs, for :func:`format_option`."""

    def resolve_command(
        self, context: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name, command, rest = super().resolve_command(context, args)
        context.meta[RUNNING_COMMAND] = command
        return name, command, rest

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)


class SafeCommand(click.Command):
    """A command that refuses to overwrite a file that it reads.

    Its help lists the names that its options accept, as the registries declare them.
    """

    def invoke(self, context: click.Context) -> Any:
        inputs = [
            text
            for name, value in context.params.items()
            if name not in OUTPUT_PARAMETERS
            for text in _find_texts(value)
        ]
        for parameter in self.params:
            path = context.params.get(parameter.name or "")
            if parameter.name in OUTPUT_PARAMETERS and isinstance(path, str):
                overwritten = next((text for text in inputs if _is_same_file(path, text)), None)
                if overwritten is not None:
                    raise click.UsageError(
                        f"{parameter.opts[0]} {path} would overwrite the input file {overwritten}."
                        " Choose another file."
                    )
        return super().invoke(context)

    def format_options(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        super().format_options(context, formatter)
        for parameter in self.params:
            if isinstance(parameter.type, DeclaredName) and parameter.type.is_listed:
                with formatter.section(parameter.type.title):
                    formatter.write_dl(list(parameter.type.list_names().items()))


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


def collect_request(kind: type[Any]) -> Callable[[Function], Function]:
    """Pass the parameters that are fields of the dataclass ``kind`` as one record.

    The record is the first argument of the decorated function; the other parameters follow by
    name.
    """
    names = {field.name for field in fields(kind)}

    def decorate(function: Function) -> Function:
        @wraps(function)
        def _call(**parameters: Any) -> Any:
            request = kind(**{name: parameters.pop(name) for name in names & parameters.keys()})
            return function(request, **parameters)

        return _call  # type: ignore[return-value]

    return decorate


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
    """The parameter of a command with this destination, or with this long option.

    ``factors`` and ``n_factors`` both find ``--factors``.
    """
    long_option = f"--{name.replace('_', '-')}"
    for parameter in command.params:
        if name == parameter.name or long_option in parameter.opts:
            return parameter
    return None
