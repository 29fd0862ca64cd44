"""``unskew evaluate``: the error of models, corrected for how the log was selected."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from unskew.cli import COMMANDS
from unskew.cli.options import (
    bad_row_options,
    estimator_option,
    json_option,
    log_options,
    max_weight_option,
    metric_option,
    parse_named_files,
    propensity_options,
    relevance_option,
    seed_option,
    table_option,
    universe_option,
    verbosity_options,
)
from unskew.cli.printing import open_console, print_table, show_progress, write_columns
from unskew.cli.program import SafeCommand, collect_request
from unskew.workflows.requests import EvaluationRequest

if TYPE_CHECKING:
    from unskew.workflows.evaluation import AnyEvaluation

HIDDEN_COLUMNS = ("first", "second", "std_error", "level", "higher_is_better")
"""Columns of a comparison that the table for people leaves out."""


@COMMANDS.declare(
    "evaluate",
    label="Evaluate",
    summary="Which model is better? Estimate the errors of predictions.",
    traits={"order": 3},
)
@click.command("evaluate", cls=SafeCommand)
@log_options
@click.option(
    "--predictions",
    multiple=True,
    metavar="[NAME=]FILE",
    callback=parse_named_files,
    help="A model: a file with columns user, item and prediction, or a MODEL.unskew file. For "
    "ranking metrics the file has all items of each logged user, or a column of positions.",
)
@click.option(
    "--prediction",
    multiple=True,
    metavar="COL",
    help="A model: a column of LOG with its predictions.",
)
@click.option(
    "--position",
    multiple=True,
    metavar="COL",
    help="For ranking metrics: the item's position among all items, one for each --prediction.",
)
@propensity_options
@universe_option
@metric_option
@estimator_option
@click.option(
    "--cluster",
    type=click.Choice(["auto", "user", "item", "both", "cell"]),
    default="auto",
    show_default=True,
    help="Allow for dependence within users, items or both; auto takes users if they have "
    "several ratings, cell takes all ratings as independent.",
)
@click.option(
    "--propensities-known",
    is_flag=True,
    help="Leave the error of estimated propensities out of the intervals.",
)
@click.option(
    "--level",
    type=float,
    default=0.95,
    show_default=True,
    help="Confidence level of the intervals.",
)
@max_weight_option
@relevance_option
@click.option("--by", metavar="COL", help="Evaluate each value of this column separately.")
@bad_row_options
@click.option("--compare", nargs=2, metavar="A B", help="Compare two models cell by cell.")
@click.option(
    "--reader",
    type=click.Choice(["auto", "memory", "duckdb"]),
    default="auto",
    show_default=True,
    help="How to read LOG; auto takes DuckDB if LOG does not fit into memory.",
)
@click.option(
    "--fail-if",
    multiple=True,
    metavar="EXPR",
    help="Exit with 4 if this holds: snips.mae.ci_high>0.9, ess<1000.",
)
@json_option
@table_option(
    "Also write the table (.csv, .tsv, .json, .jsonl, .parquet, .arrow; - is CSV on standard "
    "output) or a page (.html).",
    page=True,
)
@seed_option
@verbosity_options
@collect_request(EvaluationRequest)
def evaluate(
    request: EvaluationRequest,
    *,
    compare: tuple[str, str] | None,
    fail_if: tuple[str, ...],
    as_json: bool,
    output: str | None,
    quiet: bool,
) -> None:
    """Evaluate models on a log whose ratings were not observed at random.

    LOG has one rating per row: user, item, rating, and perhaps propensities and predictions. Its
    extension tells the format: CSV, TSV, JSON lines, Parquet or Arrow. Text may be gzipped; - is
    standard input.

    \b
    Numbers that an expression of --fail-if can compare with a limit:
      ESTIMATOR.METRIC.FIELD[.MODEL]  estimate, std_error, ci_low or ci_high
      compare.ESTIMATOR.METRIC.FIELD  difference, ci_low, ci_high or p_value
      ess, n_observed                 effective and actual number of ratings

    \b
    Example:
      unskew evaluate log.csv --universe 943x1682
      unskew evaluate log.csv --prediction old --prediction new --compare old new
      unskew evaluate log.csv --prediction old --prediction new -o report.html
      unskew evaluate log.csv --predictions model.unskew --propensity p.unskew
      unskew evaluate log.parquet --fail-if 'snips.mae.ci_high>0.9' --json
    """  # noqa: D301
    from unskew.workflows.evaluation import evaluate_log, list_numbers
    from unskew.workflows.gates import Gate, check_gates, require_passed

    gates = [Gate.parse(text) for text in fail_if]
    with show_progress(quiet) as show:
        show(f"evaluating on {request.log}")
        evaluation = evaluate_log(request)
    tripped = check_gates(gates, list_numbers(evaluation, compare))
    _print_evaluation(evaluation, compare, as_json=as_json, is_silent=output == "-")
    if output is not None:
        write_columns(evaluation.to_columns(), output, quiet=quiet, to_json=evaluation.to_json)
    require_passed(tripped)


def _print_evaluation(
    evaluation: AnyEvaluation,
    models: tuple[str, str] | None,
    *,
    as_json: bool,
    is_silent: bool,
) -> None:
    from unskew.tables import UNDECIDED
    from unskew.workflows.evaluation import compare_models

    comparisons = compare_models(evaluation, *models) if models else []
    if as_json:
        record = json.loads(evaluation.to_json())
        click.echo(json.dumps(record | ({"comparisons": comparisons} if models else {})))
    elif not is_silent:
        console = open_console()
        caption = evaluation.describe()
        print_table(console, evaluation.to_columns(), title="Estimates", caption=caption)
        if models:
            names = [name for name in comparisons[0] if name not in HIDDEN_COLUMNS]
            print_table(
                console,
                {name: [row[name] for row in comparisons] for name in names}
                | {"better": [row["better"] or UNDECIDED for row in comparisons]},
                title=f"{models[0]} minus {models[1]}",
                caption="better: the model to which the interval points, if it excludes zero",
            )
