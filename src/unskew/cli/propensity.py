"""``unskew propensity fit|apply|diagnose``."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import click

from unskew.cli.options import (
    FILE,
    Careful,
    bad_row_options,
    columns_of,
    json_option,
    log_options,
    optional_source,
    output_option,
    result_option,
    seed_option,
    source_of,
    table_option,
    talk_options,
    universe_option,
)
from unskew.cli.printing import (
    console,
    print_lines,
    progress_line,
    shows_progress,
    write_columns,
    wrote,
)

if TYPE_CHECKING:
    from unskew.data.universe import UniverseLike
    from unskew.io.log_files import OnBad, Repeats

MODELS = ("nb", "popularity", "uniform", "logistic", "onebit", "poisson")


@click.group(short_help="How likely was each rating to be observed? Fit, apply, diagnose.")
def propensity() -> None:
    """Estimate how likely each rating was to be observed, and see how far that can be trusted.

    \b
    Example:
      unskew propensity fit log.csv --model popularity --universe log -o p.unskew
      unskew propensity apply p.unskew log.csv -o weighted.csv
      unskew propensity diagnose log.csv p.unskew --universe log
    """  # noqa: D301


@propensity.command(cls=Careful, short_help="Fit a model of what was observed.")
@log_options
@click.option(
    "--model",
    type=click.Choice(MODELS),
    required=True,
    help="nb needs --mcar; logistic takes features.",
)
@click.option("--mcar", type=FILE, help="Ratings of cells picked at random, for nb.")
@click.option(
    "--user-features",
    type=FILE,
    help="A row for each user: a column of ids, and what is known of them.",
)
@click.option("--item-features", type=FILE, help="The same for items.")
@universe_option
@bad_row_options
@output_option("The model's file, such as p.unskew.", required=True)
@seed_option
@talk_options
def fit(
    log: str,
    form: str | None,
    names: str | None,
    user: str | None,
    item: str | None,
    rating: str | None,
    model: str,
    mcar: str | None,
    user_features: str | None,
    item_features: str | None,
    universe: UniverseLike,
    on_bad: OnBad,
    duplicates: Repeats,
    output: str,
    seed: int,
    quiet: bool,
) -> None:
    """Fit a propensity model to LOG and save it.

    Users and items that a file of features lists count as there, rated or not.

    \b
    Example:
      unskew propensity fit log.csv --model nb --mcar random.csv -o p.unskew
      unskew propensity fit log.csv --model onebit --universe log -o p.unskew
    """  # noqa: D301
    from unskew.workflows.propensities import Covariates, fit_propensity, read_logged

    covariates = Covariates.of(optional_source(user_features), optional_source(item_features))
    logged = read_logged(
        source_of(log, form, names),
        columns_of(user, item, rating),
        universe=universe,
        on_bad=on_bad,
        repeats=duplicates,
        covariates=covariates,
    )
    fitted = fit_propensity(
        model,
        logged.ratings,
        mcar=optional_source(mcar),
        covariates=covariates,
        seed=seed,
        verbose=shows_progress(quiet),
    )
    fitted.save(output)
    wrote(output, quiet=quiet)


@propensity.command(cls=Careful, short_help="Add a column of propensities to a log.")
@click.argument("model", type=click.Path(exists=True, dir_okay=False))
@log_options
@bad_row_options
@click.option(
    "--column",
    default="propensity",
    show_default=True,
    metavar="NAME",
    help="What the new column is called.",
)
@table_option(
    "LOG with a column of propensities: .csv, .tsv, .jsonl, .parquet, .arrow; - is standard output.",
    required=True,
)
@talk_options
def apply(
    model: str,
    log: str,
    form: str | None,
    names: str | None,
    user: str | None,
    item: str | None,
    rating: str | None,
    on_bad: OnBad,
    duplicates: Repeats,
    column: str,
    output: str,
    quiet: bool,
) -> None:
    """Write LOG again with a column ``propensity`` (or --column) that MODEL, a .unskew file, predicts.

    \b
    Example:
      unskew propensity apply p.unskew log.csv -o weighted.csv
    """  # noqa: D301
    from unskew.workflows.propensities import apply_propensity, read_logged

    with progress_line(quiet) as line:
        line(f"reading {log}")
        logged = read_logged(
            source_of(log, form, names),
            columns_of(user, item, rating),
            on_bad=on_bad,
            repeats=duplicates,
        )
        columns = apply_propensity(model, logged, column)
    write_columns(columns, output, quiet=quiet)


@propensity.command(cls=Careful, short_help="How far can these propensities be trusted?")
@log_options
@click.argument("propensities", nargs=-1, required=True, metavar="P.unskew|COL...")
@universe_option
@click.option("--mcar", type=FILE, help="Ratings of cells picked at random, where nb is diagnosed.")
@click.option(
    "--user-features",
    type=FILE,
    help="A row for each user, to compare the weighted log with all users.",
)
@click.option("--item-features", type=FILE, help="The same for items.")
@bad_row_options
@click.option(
    "--fail-if",
    multiple=True,
    metavar="EXPR",
    help="Exit with 4 if so: ess<1000, calibration_error>0.01, asam.MODEL>0.1.",
)
@json_option
@result_option(
    "Also write .html, a page to look at; or a row a model: .csv, .tsv, .json, .jsonl, .parquet, .arrow."
)
@seed_option
@talk_options
def diagnose(
    log: str,
    form: str | None,
    names: str | None,
    user: str | None,
    item: str | None,
    rating: str | None,
    propensities: tuple[str, ...],
    universe: UniverseLike,
    mcar: str | None,
    user_features: str | None,
    item_features: str | None,
    on_bad: OnBad,
    duplicates: Repeats,
    fail_if: tuple[str, ...],
    as_json: bool,
    output: str | None,
    seed: int,
    quiet: bool,
) -> None:
    """Weights, fit, balance and reach of propensities: columns of LOG, or models that ``propensity fit`` saved.

    \b
    Example:
      unskew propensity diagnose log.csv p.unskew propensity --universe log
      unskew propensity diagnose log.csv p.unskew --fail-if 'ess<1000'
    """  # noqa: D301
    from unskew.workflows.gates import Gate, check_gates, refuse_tripped
    from unskew.workflows.propensities import (
        Covariates,
        diagnose_log,
        diagnosis_numbers,
        listed_for,
        read_logged,
    )

    gates = [Gate.parse(text) for text in fail_if]
    covariates = Covariates.of(optional_source(user_features), optional_source(item_features))
    with progress_line(quiet) as line:
        line(f"diagnosing on {log}")
        logged = read_logged(
            source_of(log, form, names),
            columns_of(user, item, rating),
            universe=universe,
            on_bad=on_bad,
            repeats=duplicates,
            covariates=listed_for(covariates, propensities),
        )
        found = diagnose_log(
            logged, propensities, covariates=covariates, mcar=optional_source(mcar), seed=seed
        )
    tripped = check_gates(gates, diagnosis_numbers(found))
    if as_json:
        click.echo(found.to_json())
    elif output != "-":
        print_lines(console(), repr(replace(found, warnings=())))
    if output is not None:
        write_columns(found.to_columns(), output, quiet=quiet, as_json=found.to_json)
    refuse_tripped(tripped)
