"""The command line: parse arguments, call a workflow, print its result.

Each command is declared once, next to its code::

    @COMMANDS.declare("greet", label="Greet", summary="Print a greeting.", traits={"order": 99})
    @click.command()
    def greet() -> None: ...

A module that another package lists under the entry point group ``unskew.plugins`` can declare
commands in the same way.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from unskew.registry import Registry

if TYPE_CHECKING:
    import click

    from unskew.cli.program import main

__all__ = ["COMMANDS", "main"]

COMMANDS: Registry[click.Command] = Registry("command", "unskew.cli")
"""Trait ``order``: the position of the command in ``unskew --help``; the default is last."""


def __getattr__(name: str) -> Any:
    if name == "main":
        from unskew.cli.program import main

        return main
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
