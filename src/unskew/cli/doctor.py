"""``unskew doctor``: check the installation."""

from __future__ import annotations

import json
from dataclasses import astuple

import click

from unskew.cli import options
from unskew.cli.printing import open_console, print_lines
from unskew.cli.program import declare_command


@declare_command("doctor", "Check the installation: versions, extras, caches, data sets.", order=10)
@options.json_option
def doctor(as_json: bool) -> None:
    """Show versions, threads, the kernel cache, optional packages, Java and data sets.

    Something that is missing is shown with the command that installs it. The exit code is 1 if
    unskew cannot work without it.

    \b
    Example:
      unskew doctor
    """  # noqa: D301
    from unskew.workflows.installation import check_installation

    checks = list(check_installation())
    if as_json:
        keys = ("what", "found", "is_fine", "remedy")
        rows = [dict(zip(keys, astuple(check), strict=True)) for check in checks]
        click.echo(json.dumps(rows))
    else:
        width = max(len(check.what) for check in checks) + 2
        print_lines(
            open_console(),
            (
                f"{'  ' if check.is_fine else '! '}{check.what:<{width}}{check.status}"
                f"{f'   -> {check.remedy}' if check.remedy else ''}"
                for check in checks
            ),
        )
    click.get_current_context().exit(0 if all(check.is_fine for check in checks) else 1)
