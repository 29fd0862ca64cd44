"""``unskew evaluate``: the error of models, corrected for how the log was selected."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from unskew.cli import options
from unskew.cli.printing import open_console, print_table, show_progress, write_columns
from unskew.cli.program import declare_command
from unskew.workflows.gates import Gate
from unskew.workflows.requests import EvaluationRequest

if TYPE_CHECKING:
    from unskew.workflows.evaluation import AnyEvaluation

HIDDEN_COLUMNS = (
    "first",
    "second",
    "std_error",
    "level",
    "higher_is_better",
    "warnings",
    "premise",
)
"""Columns of a comparison that the table for people leaves out."""


@declare_command(
    "evaluate",
    "Which model is better? Estimate the errors of predictions.",
    order=3,
    request=EvaluationRequest,
)
@options.log_options
@click.option(
    "--predictions",
    multiple=True,
    metavar="[NAME=]FILE",
    callback=options.parse_named_files,
    help="A model: a file with columns user, item and prediction, or a MODEL.unskew file. For "
    "ranking metrics the file has all items of each logged user, or --position names a column.",
)
@click.option(
    "--model",
    multiple=True,
    metavar="[NAME=]FILE",
    callback=options.parse_named_files,
    help="A model: a file that `unskew train` wrote.",
)
@options.prediction_option()
@click.option(
    "--position",
    multiple=True,
    metavar="COL",
    help="For ranking metrics: the column of the positions that a model gives the items, one for "
    "each --prediction, then one for each --predictions.",
)
@options.propensity_options
@click.option(
    "--exclude",
    type=options.INPUT_FILE,
    metavar="TRAIN",
    help="A log whose items are not ranked for its users, such as the training log. Cells of LOG "
    "that it has leave the test.",
)
@click.option(
    "--items",
    "candidates",
    type=options.INPUT_FILE,
    metavar="FILE",
    help="A file with the items that are ranked, for all users, or by user if it has a column of "
    "users. By default all items.",
)
@options.timestamp_option("Column of times in LOG and TRAIN, to warn of a test before training.")
@options.share_option(
    "--held-out",
    "LOG is a random part with this share of a larger log, such as the test part that `unskew "
    "split` wrote. Propensities are of the larger log and are multiplied by it.",
)
@options.universe_option
@options.metric_option
@options.estimator_option
@options.choice_option(
    "--cluster",
    ["auto", "user", "item", "both", "cell"],
    "Allow for dependence within users, items or both; auto takes users if they have "
    "several ratings, cell takes all ratings as independent.",
)
@click.option(
    "--propensities-known",
    is_flag=True,
    help="Leave the error of estimated propensities out of the intervals.",
)
@options.level_option("Confidence level of the intervals.")
@options.max_weight_option()
@options.relevance_option
@click.option("--by", metavar="COL", help="Evaluate each value of this column separately.")
@options.bad_row_options
@click.option("--compare", nargs=2, metavar="A B", help="Compare two models cell by cell.")
@options.choice_option(
    "--reader",
    ["auto", "memory", "duckdb"],
    "How to read LOG; auto takes DuckDB if LOG does not fit into memory.",
)
@options.ranking_engine_option
@options.fail_option("this holds: snips.mae.ci_high>0.9, ess<1000.")
@options.json_option
@options.table_option(
    "Also write the table (.csv, .tsv, .json, .jsonl, .parquet, .arrow; - is CSV on standard "
    "output) or a page (.html).",
    page=True,
)
@options.seed_option
@options.verbosity_options
def evaluate(
    request: EvaluationRequest,
    *,
    compare: tuple[str, str] | None,
    gates: tuple[Gate, ...],
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
      unskew evaluate test.csv --held-out 0.2 --prediction new --universe 943x1682
      unskew evaluate test.csv --model m.unskew --exclude train.csv --metric mrr
      unskew evaluate test.csv --model m.unskew --items shop.csv --metric mrr
      unskew evaluate log.parquet --fail-if 'snips.mae.ci_high>0.9' --json
    """  # noqa: D301
    from unskew.workflows.evaluation import evaluate_log, list_numbers
    from unskew.workflows.gates import check_gates, require_passed

    with show_progress(quiet, f"evaluating on {request.log}"):
        evaluation = evaluate_log(request)
    tripped = check_gates(gates, list_numbers(evaluation, compare))
    _print_evaluation(evaluation, compare, as_json=as_json, is_silent=output == "-")
    if output is not None:
        write_columns(evaluation.to_columns(), output, quiet=quiet, to_json=evaluation.to_json)
    require_passed(tripped)


def _name_better(comparison: dict[str, Any]) -> str:
    """The better model of a comparison, and whether to doubt it, such as ``a, not reliable``."""
    from unskew.estimators import corrects_selection
    from unskew.tables import UNDECIDED

    premise = comparison["premise"] or {"doubt": None, "sees_ratings": True}
    better = comparison["better"] or UNDECIDED
    if comparison["better"] and not corrects_selection(comparison["estimator"]):
        better += ", not corrected"
    elif comparison["better"] and premise["doubt"]:
        better += ", not reliable"
    elif comparison["better"] and not premise["sees_ratings"]:
        better += " is ahead"
    return f"{better}, doubtful" if comparison["warnings"] else better


def _print_evaluation(
    evaluation: AnyEvaluation, models: tuple[str, str] | None, *, as_json: bool, is_silent: bool
) -> None:
    from unskew.workflows.evaluation import compare_models, list_cautions

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
            doubts = dict.fromkeys(text for row in comparisons for text in row["warnings"])
            verdicts = list(map(_name_better, comparisons))
            cautions = list_cautions(comparisons)
            caption = "better: the model to which the interval points, if it excludes zero"
            print_table(
                console,
                {name: [row[name] for row in comparisons] for name in names} | {"better": verdicts},
                title=f"{models[0]} minus {models[1]}",
                caption="\n".join([caption, *cautions, *(f"doubtful: {text}" for text in doubts)]),
            )
