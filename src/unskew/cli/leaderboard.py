"""``unskew leaderboard``: all learners on a random test, under the same protocols."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from unskew.cli import options
from unskew.cli.printing import (
    open_console,
    print_paragraph,
    print_table,
    write_columns,
)
from unskew.cli.program import declare_command
from unskew.paper import WORLDS
from unskew.workflows.requests import LeaderboardRequest

if TYPE_CHECKING:
    from unskew.model_selection.leaderboard import Leaderboard
    from unskew.model_selection.protocols import LeaderboardData


@declare_command(
    "leaderboard",
    "Rank all learners by their error on a random test.",
    order=6.5,
    request=LeaderboardRequest,
)
@click.argument("log", metavar="DATA", type=options.WORLD)
@click.option("--test", type=options.INPUT_FILE, help="The random test, if DATA is a log file.")
@click.option("--user", metavar="COL", help="Column of users; by default one with a common name.")
@click.option("--item", metavar="COL", help="Column of items.")
@click.option("--rating", metavar="COL", help="Column of ratings.")
@options.universe_option
@options.propensity_options
@options.data_option("Folder of the data sets; by default $UNSKEW_DATA.")
@click.option(
    "--learner",
    "learners",
    multiple=True,
    metavar="LABEL",
    help="A learner by its label, such as DR-JL; repeat the option. By default all.",
)
@options.list_option(
    "--protocol",
    "protocols",
    help="Protocols: clean, defaults, paper, sample, leaky. By default all but sample.",
)
@click.option(
    "--seeds",
    "n_repeats",
    type=click.IntRange(min=1),
    default=10,
    metavar="N",
    help="Number of seeds.",
)
@options.level_option("Confidence level of the intervals.")
@options.json_option
@options.table_option("Write the table to a file, or a page (.html).", page=True)
@options.seed_option
@options.verbosity_options
def leaderboard(
    request: LeaderboardRequest,
    *,
    path: str | None,
    as_json: bool,
    output: str | None,
    quiet: bool,
) -> None:
    """Fit every learner, and rank all by their error on ratings of random cells.

    DATA is a name of the list below, or the file of a log. A log needs --test, a file with ratings
    of cells that were drawn uniformly at random. All learners choose their settings from the same
    grids of penalties and offsets. Learners that cannot be told from the best are marked with =,
    which does not say that they are as good. Ten seeds on Coat take less than half an hour on two
    processors. Ctrl-C prints and writes the numbers of the seeds that are finished.

    \b
    Protocols:
      clean     propensities of the data, settings by cross-validation on the log,
                tested on random cells that are not in the log
      defaults  the same with default settings
      paper     the same as clean, on all random cells
      sample    the same as clean, but naive-Bayes propensities with 5 % of the test
      leaky     what part of the literature does: 5 % of the test for propensities, settings
                by the error on the test, on all random cells. Not to be used for a choice.

    \b
    Example:
      unskew leaderboard coat -o leaderboard.html
      unskew leaderboard simulation --seeds 3
      unskew leaderboard log.csv --test random.csv --propensity p --json
    """  # noqa: D301
    from unskew.model_selection.leaderboard import LeaderboardInterrupted
    from unskew.workflows.training import rank_all_learners

    def show(board: Leaderboard) -> None:
        if output is not None:
            write_columns(board.to_columns(), output, quiet=quiet, to_json=board.to_json)
        if as_json:
            click.echo(board.to_json())
        elif output != "-":
            _print_board(board)

    data = _open_data(request, path)
    try:
        show(rank_all_learners(data, request, verbose=not quiet))
    except LeaderboardInterrupted as interrupt:
        show(interrupt.leaderboard)
        raise


def _open_data(request: LeaderboardRequest, path: str | None) -> LeaderboardData:
    """The world with this name, else the log in this file."""
    from unskew.workflows.training import read_leaderboard_data

    if request.log in WORLDS:
        if request.test is not None:
            raise click.UsageError(f"--test is for a log file; {request.log!r} has its own test.")
        return WORLDS[request.log].target(data=path)
    if request.test is None:
        names = ", ".join(WORLDS)
        raise click.UsageError(
            f"{request.log!r} is none of {names}. If it is a log file, pass its random test: "
            "--test FILE."
        )
    return read_leaderboard_data(request)


def _print_board(board: Leaderboard) -> None:
    from unskew.model_selection.verdicts import format_seeds

    console = open_console()
    seeds = format_seeds(board.to_record())
    title = f"Leaderboard: {board.data}, {seeds}"
    print_paragraph(console, board.headline)
    print_table(console, board.errors_by_protocol(), title=title)
    for text in board.notes():
        print_paragraph(console, text)
