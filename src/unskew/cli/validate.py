"""``unskew validate``."""

from __future__ import annotations

import textwrap
from itertools import zip_longest
from typing import TYPE_CHECKING

import click

from unskew.cli.options import columns_of, json_option, log_options, source_of, talk_options
from unskew.cli.printing import console, print_lines, print_prose, print_table
from unskew.cli.wording import as_options

if TYPE_CHECKING:
    from rich.console import Console

    from unskew.workflows.validating import Validation

WIDEST_BAR = 40


@click.command(short_help="What a log holds, and what is wrong with it.")
@log_options
@json_option
@talk_options
@click.pass_context
def validate(
    context: click.Context,
    log: str,
    form: str | None,
    names: str | None,
    user: str | None,
    item: str | None,
    rating: str | None,
    as_json: bool,
    quiet: bool,  # noqa: ARG001
) -> None:
    """Look at every row of LOG: its columns, counts, repeats, bad values, ratings and density.

    Exits with 3 where LOG cannot be used as it is, and says everything that is in the way, not only the first.

    \b
    Example:
      unskew validate log.csv
      unskew validate u.data --format tsv --names user_id,item_id,rating,time
      unskew validate - --format jsonl --json
    """  # noqa: D301
    from unskew.workflows.validating import validate_log

    found = validate_log(source_of(log, form, names), columns_of(user, item, rating))
    if as_json:
        click.echo(found.to_json())
    else:
        _print(console(), found)
    for problem in found.problems:
        click.echo(f"error: {found.file}: {as_options(problem)}", err=True)
    context.exit(0 if found.is_usable else 3)


def _print(out: Console, found: Validation) -> None:
    facts = {"rows": f"{found.n_rows:,}"} | {
        f"{role} column": name for role, name in found.columns.items()
    }
    if found.other_columns:
        facts["other columns"] = ", ".join(found.other_columns)
    if found.n_users:
        facts |= {
            "users": f"{found.n_users:,}",
            "items": f"{found.n_items:,}",
            "density": f"{found.density:.4g} of these users x items",
        }
        facts |= {"repeated cells": f"{found.n_repeats:,}", "bad rows": f"{found.n_bad_rows:,}"}
        facts["mean rating"] = f"{found.rating_mean:.4g}"
    out.print(found.file, style="bold")
    width = max(map(len, facts)) + 2
    for name, value in facts.items():
        lines = textwrap.wrap(value, out.width - width)
        print_lines(
            out,
            "\n".join(
                f"{label:<{width}}{line}"
                for label, line in zip_longest([name], lines, fillvalue="")
            ),
        )
    out.print()
    if found.histogram:
        print_table(out, _bars(found), title="Ratings")
    verdict = (
        "can be used as a log"
        if found.is_usable
        else f"cannot be used as it is: {len(found.problems)} problem{'s' * (len(found.problems) > 1)}, on standard error"
    )
    print_prose(out, f"{found.file} {verdict}.")


def _bars(found: Validation) -> dict[str, list[object]]:
    most = max(count for _, count in found.histogram)
    return {
        "rating": [level for level, _ in found.histogram],
        "count": [count for _, count in found.histogram],
        "": ["#" * round(WIDEST_BAR * count / most) for _, count in found.histogram],
    }
