"""``unskew validate``: the content of a log file and everything that is wrong with it."""

from __future__ import annotations

import textwrap
from itertools import zip_longest
from typing import TYPE_CHECKING

import click

from unskew.cli import options
from unskew.cli.printing import open_console, print_lines, print_note, print_paragraph, print_table
from unskew.cli.program import declare_command, render_message
from unskew.tables import count_noun, escape_controls
from unskew.workflows.requests import ValidationRequest

if TYPE_CHECKING:
    from rich.console import Console

    from unskew.data.leaks import Leaks
    from unskew.workflows.validation import Validation

BAR_WIDTH = 40


@declare_command(
    "validate", "Describe a log file and list all its problems.", order=2, request=ValidationRequest
)
@options.log_options
@click.option("--impressions", is_flag=True, help="LOG has shown items, not ratings.")
@options.impression_options
@click.option(
    "--train",
    type=options.INPUT_FILE,
    metavar="FILE",
    help="The log that models were trained on: tell what LOG shares with it.",
)
@options.timestamp_option("Column of times, for --train; by default one with a common name.")
@options.json_option
@options.verbosity_options
def validate(request: ValidationRequest, *, as_json: bool, quiet: bool) -> None:  # noqa: ARG001
    """Check every row of LOG: columns, counts, duplicates, invalid values, ratings and density.

    All problems are listed, not only the first. The exit code is 3 if LOG cannot be used. With
    --train, ratings of LOG that are in the training log or older than it are told as warnings.

    \b
    Example:
      unskew validate log.csv
      unskew validate u.data --names user_id,item_id,rating,time
      unskew validate test.csv --train train.csv
      unskew validate - --format jsonl --json
      unskew validate shown.csv --impressions --probability p --probability-is step
    """  # noqa: D301
    if request.impressions:
        _validate_impressions(request, as_json=as_json)
        return
    from unskew.workflows.validation import validate_log

    validation = validate_log(request)
    if as_json:
        click.echo(validation.to_json())
    else:
        _print_validation(open_console(), validation)
    if validation.leaks is not None:
        for warning in validation.leaks.warnings():
            print_note(f"warning: {render_message(warning)}")
    for error in validation.errors:
        print_note(f"error: {validation.file}: {render_message(error)}")
    click.get_current_context().exit(0 if validation.is_usable else 3)


def _validate_impressions(request: ValidationRequest, *, as_json: bool) -> None:
    from unskew.workflows.policies import validate_impression_file

    validation = validate_impression_file(request)
    if as_json:
        click.echo(validation.to_json())
    else:
        console = open_console()
        console.print(escape_controls(validation.file), style="bold")
        for role, name in validation.columns.items():
            print_lines(console, [f"{role} column".ljust(20) + name])
        if validation.other_columns:
            others = ", ".join(validation.other_columns)
            print_paragraph(console, "other columns".ljust(20) + others)
        print_paragraph(console, validation.log)
        for finding in validation.findings:
            count = count_noun(finding.count, "case")
            text = f"{finding.check}: {count}; {finding.example}. {finding.meaning}"
            print_paragraph(console, text)
        n_problems = count_noun(len(validation.errors), "problem")
        verdict = "can be used as a log of impressions"
        if not validation.is_usable:
            verdict = f"cannot be used as a log of impressions: {n_problems}"
        elif any(finding.prevents_intervals for finding in validation.findings):
            verdict = "can be read, but values of policies from it would have no intervals"
        print_paragraph(console, f"{validation.file} {verdict}.")
    for error in validation.errors:
        text = render_message(error)
        is_named = text.startswith(validation.file)
        print_note(f"error: {text if is_named else f'{validation.file}: {text}'}")
    click.get_current_context().exit(0 if validation.is_usable else 3)


def _print_validation(console: Console, validation: Validation) -> None:
    facts = {"rows": f"{validation.n_rows:,}"} | {
        f"{role} column": name for role, name in validation.columns.items()
    }
    if validation.other_columns:
        facts["other columns"] = ", ".join(validation.other_columns)
    if validation.n_users:
        facts |= {
            "users": f"{validation.n_users:,}",
            "items": f"{validation.n_items:,}",
            "density": f"{validation.density:.4g} of these users x items",
            "duplicate rows": f"{validation.n_repeats:,}",
            "bad rows": f"{validation.n_bad_rows:,}",
        }
    if validation.rating_mean is not None:
        facts["mean rating"] = f"{validation.rating_mean:.4g}"
    console.print(escape_controls(validation.file), style="bold")
    width = max(map(len, facts)) + 2
    for name, value in facts.items():
        lines = textwrap.wrap(value, console.width - width)
        labelled = zip_longest([name], lines, fillvalue="")
        print_lines(console, (f"{label:<{width}}{line}" for label, line in labelled))
    console.print()
    if validation.leaks is not None:
        print_paragraph(console, _describe_leaks(validation.leaks))
        console.print()
    if validation.histogram:
        print_table(console, _make_bars(validation), title="Ratings")
    n_problems = count_noun(len(validation.errors), "problem")
    verdict = (
        "can be used as a log"
        if validation.is_usable
        else f"cannot be used as a log: {n_problems}, listed on standard error"
    )
    print_paragraph(console, f"{validation.file} {verdict}.")


def _describe_leaks(leaks: Leaks) -> str:
    """What LOG shares with the training log, and what a model cannot know, as one line each."""
    early = "" if leaks.n_early is None else f", {leaks.n_early:,} older than its latest rating"
    shared = f"{leaks.n_shared:,} of {count_noun(leaks.n_test, 'rating')} in the training log"
    return "\n".join([f"{shared}{early}", *leaks.notes()])


def _make_bars(validation: Validation) -> dict[str, list[object]]:
    largest = max(count for _, count in validation.histogram)
    return {
        "rating": [level for level, _ in validation.histogram],
        "count": [count for _, count in validation.histogram],
        "": ["#" * round(BAR_WIDTH * count / largest) for _, count in validation.histogram],
    }
