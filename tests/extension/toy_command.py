"""A command from another package."""

import click

from unskew.cli import COMMANDS


@COMMANDS.declare("greet", label="Greet", summary="Print a greeting.")
@click.command(short_help="Print a greeting.")
def greet() -> None:
    """Print a greeting."""
    click.echo("hello from outside")
