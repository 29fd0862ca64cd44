"""``unskew doctor``."""

from __future__ import annotations

import json
from dataclasses import asdict

import click

from unskew.cli.options import json_option
from unskew.cli.printing import console, print_lines


@click.command(short_help="What this installation has, and what it lacks.")
@json_option
@click.pass_context
def doctor(context: click.Context, as_json: bool) -> None:
    """Versions, threads, the kernel cache, extras with the line that installs them, Java, data sets.

    Exits with 1 where something is missing that unskew cannot do without.

    \b
    Example:
      unskew doctor
    """  # noqa: D301
    from unskew.workflows.health import findings

    found = list(findings())
    if as_json:
        click.echo(json.dumps([asdict(each) for each in found]))
    else:
        width = max(len(each.what) for each in found) + 2
        for each in found:
            remedy = f"   -> {each.remedy}" if each.remedy else ""
            print_lines(
                console(),
                f"{'  ' if each.is_fine else '! '}{each.what:<{width}}{each.found}{remedy}",
            )
    context.exit(0 if all(each.is_fine for each in found) else 1)
