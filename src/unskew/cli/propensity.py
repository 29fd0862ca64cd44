"""``unskew propensity fit|apply|diagnose``: models of how the log was selected."""

from __future__ import annotations

from dataclasses import replace

import click

from unskew.cli import COMMANDS, options
from unskew.cli.printing import (
    is_progress_shown,
    open_console,
    print_lines,
    print_written,
    show_progress,
    write_columns,
)
from unskew.cli.program import CommandGroup, collect_request
from unskew.workflows.gates import Gate
from unskew.workflows.requests import DiagnosisRequest, LogRequest, PropensityRequest


@click.group("propensity", cls=CommandGroup)
def propensity() -> None:
    """Estimate the probability that each rating was observed, and check the estimates.

    \b
    Example:
      unskew propensity fit log.csv --model popularity --universe log -o p.unskew
      unskew propensity apply p.unskew log.csv -o weighted.csv
      unskew propensity diagnose log.csv p.unskew --universe log
    """  # noqa: D301


COMMANDS.add(
    "propensity",
    propensity,
    label="Propensity",
    summary="Fit, apply and diagnose models of how the log was selected.",
    traits={"order": 4},
)


@propensity.command("fit", short_help="Fit a propensity model to a log.")
@options.log_options
@click.option(
    "--model",
    type=options.PROPENSITY_MODEL,
    required=True,
    metavar="NAME",
    help="The model to fit; see the list below.",
)
@options.mcar_option
@options.feature_options
@options.universe_option
@click.option(
    "--cross-fit",
    type=click.IntRange(min=2),
    metavar="K",
    help="Fit K models, each without one of K folds, so that no cell is predicted by a model that "
    "has seen it.",
)
@click.option(
    "--scale",
    is_flag=True,
    help="Scale the propensities of all cells to add up to the number of ratings.",
)
@options.share_option(
    "--share",
    "LOG is a random part with this share of a larger log, such as the training part that "
    "`unskew split` wrote. `unskew evaluate --held-out` then needs no more than the share of the "
    "test part.",
)
@options.set_option
@options.bad_row_options
@options.output_option("The file of the model, such as p.unskew.", required=True)
@options.seed_option
@options.verbosity_options
@collect_request(PropensityRequest)
def fit(request: PropensityRequest, *, output: str, quiet: bool) -> None:
    """Fit a propensity model to LOG and save it.

    Users and items that only a file of features lists are counted too, without ratings.

    \b
    Example:
      unskew propensity fit log.csv --model nb --mcar random.csv -o p.unskew
      unskew propensity fit log.csv --model onebit --universe log -o p.unskew
      unskew propensity fit log.csv --model popularity --cross-fit 5 -o p.unskew
      unskew propensity fit train.csv --model poisson --share 0.8 -o p.unskew
    """  # noqa: D301
    from unskew.workflows.propensities import fit_propensity

    fit_propensity(request, verbose=is_progress_shown(quiet)).save(output)
    print_written(output, quiet=quiet)


@propensity.command("apply", short_help="Add a column of propensities to a log.")
@click.argument("model", type=click.Path(exists=True, dir_okay=False))
@options.log_options
@options.bad_row_options
@click.option("--column", default="propensity", metavar="NAME", help="Name of the new column.")
@options.table_option(
    "LOG with the new column: .csv, .tsv, .jsonl, .parquet, .arrow; - is standard output.",
    required=True,
)
@options.verbosity_options
@collect_request(LogRequest)
def apply(request: LogRequest, *, model: str, column: str, output: str, quiet: bool) -> None:
    """Write LOG with an additional column: the propensities that MODEL, a .unskew file, predicts.

    \b
    Example:
      unskew propensity apply p.unskew log.csv -o weighted.csv
    """  # noqa: D301
    from unskew.workflows.propensities import apply_propensity

    with show_progress(quiet, f"reading {request.log}"):
        columns = apply_propensity(request, model, column)
    write_columns(columns, output, quiet=quiet)


@propensity.command("diagnose", short_help="Check how far propensities can be trusted.")
@options.log_options
@click.argument(
    "propensities",
    nargs=-1,
    required=True,
    type=options.QUICK_MODEL,
    metavar="P.unskew|COL|NAME...",
)
@options.universe_option
@options.mcar_option
@options.feature_options
@options.bad_row_options
@options.fail_option("this holds: ess<1000, calibration_error>0.01, asam.MODEL>0.1.")
@options.json_option
@options.table_option(
    "Also write the table (.csv, .tsv, .json, .jsonl, .parquet, .arrow) or a page (.html).",
    page=True,
)
@options.seed_option
@options.verbosity_options
@collect_request(DiagnosisRequest)
def diagnose(
    request: DiagnosisRequest,
    *,
    gates: tuple[Gate, ...],
    as_json: bool,
    output: str | None,
    quiet: bool,
) -> None:
    """Check propensities: their weights, fit, balance of features, and coverage.

    Propensities are columns of LOG, files that `unskew propensity fit` wrote, or names of
    models to fit.

    \b
    Example:
      unskew propensity diagnose log.csv p.unskew propensity --universe log
      unskew propensity diagnose log.csv p.unskew --fail-if 'ess<1000'
    """  # noqa: D301
    from unskew.workflows.gates import check_gates, require_passed
    from unskew.workflows.propensities import diagnose_log, list_numbers

    with show_progress(quiet, f"diagnosing on {request.log}"):
        diagnosis = diagnose_log(request)
    tripped = check_gates(gates, list_numbers(diagnosis))
    if as_json:
        click.echo(diagnosis.to_json())
    elif output != "-":
        print_lines(open_console(), repr(replace(diagnosis, warnings=())).splitlines())
    if output is not None:
        write_columns(diagnosis.to_columns(), output, quiet=quiet, to_json=diagnosis.to_json)
    require_passed(tripped)
