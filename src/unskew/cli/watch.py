"""``unskew watch``: a growing log, with limits that hold at every look."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from unskew.cli import options
from unskew.cli.printing import open_console, print_table, show_progress, write_columns
from unskew.cli.program import declare_command
from unskew.workflows.gates import Gate
from unskew.workflows.requests import WatchRequest

if TYPE_CHECKING:
    from unskew.evaluation.monitor import Watch

SHOWN_LOOKS = 12
"""Looks of the path that are printed, evenly spread; the page and the JSON have all."""


@declare_command(
    "watch",
    "Look at a growing log as often as you like, with limits that stay right.",
    order=3.5,
    request=WatchRequest,
)
@options.log_options
@click.option(
    "--state",
    type=options.OUTPUT_FILE,
    required=True,
    metavar="FILE",
    help="What was counted so far, as JSON. It is made at the first look and replaced at each.",
)
@options.prediction_option(required=True)
@click.option(
    "--propensity",
    "propensities",
    metavar="COL",
    help="Column of propensities that were fixed when a row arrived.",
)
@click.option(
    "--planned-size",
    type=click.IntRange(min=1),
    metavar="N",
    help="Rows (or users) that LOG is planned to have; the limits are narrowest there. Needed at "
    "the first look, fixed from then on.",
)
@options.universe_option
@options.metric_option
@options.level_option("Probability with which a limit holds at all looks.")
@options.choice_option(
    "--unit", ["row", "user"], "What is independent: each row, or the rows of each user together."
)
@click.option(
    "--has-unobserved",
    is_flag=True,
    help="LOG also has the arrivals that were not rated, with an empty rating. Adds IPS.",
)
@click.option(
    "--max-weight",
    type=click.FloatRange(min=1),
    metavar="W",
    help="1/P is never above W by design. With --max-delta: exact limits of IPS.",
)
@click.option(
    "--max-delta",
    type=click.FloatRange(min=0, min_open=True),
    metavar="D",
    help="The metric of one row is never above D, such as 4 for mae of ratings from 1 to 5.",
)
@click.option(
    "--look-every",
    type=click.IntRange(min=1),
    metavar="N",
    help="The path has a look after every N rows; by default 50 until the planned size.",
)
@options.on_bad_option
@options.fail_option("this is shown: snips.mae.ci_low>0.9, compare.snips.mae.ci_low>0.")
@options.json_option
@options.table_option(
    "Also write the table (.csv, .tsv, .json, .jsonl, .parquet, .arrow; - is CSV on standard "
    "output) or a page with the path (.html).",
    page=True,
)
@options.verbosity_options
def watch(
    request: WatchRequest,
    *,
    gates: tuple[Gate, ...],
    as_json: bool,
    output: str | None,
    quiet: bool,
) -> None:
    """Watch a growing log: estimates whose limits hold at every look.

    Run it again whenever LOG has grown. It counts the new rows, adds them to FILE, and prints the
    estimates. An ordinary 95% interval is wrong sooner or later if you look often enough; these
    limits are right at all looks together with 95%. Rows that were counted must not change.

    Of CSV, TSV and JSON lines only the new bytes are read. Other formats are read as a whole.

    \b
    Numbers that an expression of --fail-if can compare with a limit:
      ESTIMATOR.METRIC.ci_low[.MODEL]   with > or >=: fail once it is shown to be above
      ESTIMATOR.METRIC.ci_high[.MODEL]  with < or <=: fail once it is shown to be below
      compare.ESTIMATOR.METRIC.FIELD    ci_low, ci_high or p_value of each pair of models
      ess, n_rows                       effective and actual number of rows

    \b
    Example:
      unskew watch log.csv --state s.json --prediction new --planned-size 20000
      unskew watch log.csv --state s.json --prediction new -o page.html
      unskew watch log.csv --state s.json --prediction a --prediction b --json
    """  # noqa: D301
    from unskew.workflows.gates import require_passed
    from unskew.workflows.watch import check_watch, require_proofs, watch_log

    require_proofs(gates)
    with show_progress(quiet, f"reading {request.log}"):
        result = watch_log(request)
    tripped = check_watch(gates, result)
    if as_json:
        click.echo(json.dumps(json.loads(result.to_json())))
    elif output != "-":
        _print_watch(result)
    if output is not None:
        write_columns(result.to_columns(), output, quiet=quiet, to_json=result.to_json)
    require_passed(tripped)


def _print_watch(result: Watch) -> None:
    from unskew.evaluation.monitor import mark_early

    console = open_console()
    print_table(
        console, mark_early(result.to_columns()), title="Estimates", caption=result.describe()
    )
    if result.look["differences"]:
        print_table(
            console,
            mark_early(result.difference_columns()),
            title="Differences",
            caption="first minus second, row by row; limits and p-values hold at every look",
        )
    if result.path:
        print_table(
            console, mark_early(_list_path(result)), title="Path", caption=_describe_path(result)
        )


def _list_path(result: Watch) -> dict[str, list[Any]]:
    """The main number at evenly spread looks: the first difference, else the first risk."""
    looks = [*result.path]
    if looks[-1]["n_rows"] != result.look["n_rows"]:
        looks.append(result.look)
    step = -(-len(looks) // SHOWN_LOOKS)
    shown = looks[::-1][::step][::-1]
    key, name = (
        ("differences", "difference") if len(result.plan.models) > 1 else ("rows", "estimate")
    )
    numbers = [look[key][0] if look[key] else {} for look in shown]
    return {
        "rows": [f"{look['n_rows']:,}" for look in shown],
        "ess": [f"{look['effective_size']:,.0f}" for look in shown],
        **{field: [row.get(field) for row in numbers] for field in (name, "ci_low", "ci_high")},
    }


def _describe_path(result: Watch) -> str:
    models, metric = result.plan.models, result.plan.metrics[0]
    subject = f"{models[0]} minus {models[1]}" if len(models) > 1 else models[0]
    return f"{metric} of {subject} by {result.plan.estimators[0]}"
