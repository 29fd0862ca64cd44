"""``unskew split``: a training part and a test part of a log."""

from __future__ import annotations

from pathlib import Path

import click

from unskew.cli import options
from unskew.cli.printing import print_note, show_progress
from unskew.cli.program import declare_command
from unskew.workflows.requests import SplitRequest


@declare_command(
    "split",
    "Split a log into a training part and a test part.",
    order=2.5,
    request=SplitRequest,
)
@options.log_options
@click.option(
    "--share", type=float, default=0.2, metavar="S", help="Share of the test part, in (0, 1)."
)
@options.choice_option(
    "--by",
    ["random", "user", "time"],
    "Draw single ratings, draw whole users, or take the latest ratings for the test.",
)
@options.timestamp_option("Column of times, for --by time; by default one with a common name.")
@options.bad_row_options
@options.table_pair_option(
    "The training part and the test part: .csv, .tsv, .jsonl, .parquet, .arrow."
)
@options.seed_option
@options.verbosity_options
def split(request: SplitRequest, *, output: tuple[str, str], quiet: bool) -> None:
    """Split LOG into a training part and a test part, with all columns of LOG.

    The share of each part is printed. `unskew evaluate TEST --held-out SHARE` needs that of the
    test part, because a rating is in TEST if it was observed and then drawn. A split by time is
    not random: there the share is the same for all ratings only by assumption.

    \b
    Example:
      unskew split log.csv -o train.csv test.csv
      unskew split log.csv --share 0.1 --by user -o train.parquet test.csv
      unskew split log.csv --by time --timestamp when -o train.csv test.csv
    """  # noqa: D301
    from unskew.io.files import write_table
    from unskew.workflows.held_out import split_log

    train, test = output
    if Path(train).resolve() == Path(test).resolve():
        raise click.UsageError(f"-o names {train} twice. The two parts need two files.")
    with show_progress(quiet, f"splitting {request.log}"):
        parts = split_log(request)
    for path, part in zip(output, parts, strict=True):
        write_table(part.columns, path)
        if not quiet:
            print_note(f"wrote {path}: {part.describe()}")
