"""``unskew evaluate``."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from unskew.cli.options import (
    FILE,
    METRICS,
    Careful,
    bad_row_options,
    columns_of,
    json_option,
    log_options,
    named_file,
    names_of,
    optional_source,
    result_option,
    seed_option,
    source_of,
    split_commas,
    talk_options,
    universe_option,
)
from unskew.cli.printing import console, print_table, progress_line, write_columns

if TYPE_CHECKING:
    from unskew.data.universe import UniverseLike
    from unskew.io.duckdb_files import Engine
    from unskew.io.formats import Source
    from unskew.io.log_files import OnBad, Repeats
    from unskew.workflows.evaluating import Judgement

LEFT_OUT = ("first", "second", "std_error", "level", "higher_is_better")
"""What the table of a comparison does not show."""
ESTIMATORS = ("naive", "ips", "snips", "user_normalized", "item_normalized")


@click.command(cls=Careful, short_help="Which model is better, really? Judge predictions on a log.")
@log_options
@click.option(
    "--predictions",
    multiple=True,
    metavar="[NAME=]FILE",
    help="A model: a file of user, item, prediction; or MODEL.unskew.",
)
@click.option(
    "--prediction",
    multiple=True,
    metavar="COL",
    help="A model: a column of LOG that holds its predictions.",
)
@click.option(
    "--position",
    multiple=True,
    metavar="COL",
    help="For ranking metrics: the place among all items, one for each --prediction.",
)
@click.option(
    "--propensity",
    metavar="COL|FILE",
    help="A column of LOG, a .unskew file, or nb, popularity, uniform to fit one now.",
)
@click.option("--mcar", type=FILE, help="Ratings of cells picked at random, for nb.")
@universe_option
@click.option(
    "--metric",
    multiple=True,
    default=["mse", "mae"],
    show_default=True,
    shell_complete=names_of(*METRICS),
    callback=split_commas,
    help="mse mae accuracy dcg dcg@k cg@k precision@k recall@k stratified_recall@k atop.",
)
@click.option(
    "--estimator",
    multiple=True,
    default=["naive", "ips", "snips"],
    show_default=True,
    shell_complete=names_of(*ESTIMATORS),
    callback=split_commas,
    help="naive ips snips user_normalized item_normalized.",
)
@click.option(
    "--cluster",
    type=click.Choice(["user", "item"]),
    help="Let the cells of a user depend on one another.",
)
@click.option(
    "--level",
    type=float,
    default=0.95,
    show_default=True,
    help="Confidence level of the intervals.",
)
@click.option(
    "--clip", type=float, metavar="W", help="Largest weight 1/P; larger ones are cut to it."
)
@click.option(
    "--relevant",
    type=float,
    metavar="R",
    help="Ratings from here on are relevant, for precision, recall and atop.",
)
@click.option("--by", metavar="COL", help="Judge the values of a column apart.")
@bad_row_options
@click.option("--compare", nargs=2, metavar="A B", help="Compare two models, paired cell by cell.")
@click.option(
    "--engine",
    type=click.Choice(["auto", "memory", "duckdb"]),
    default="auto",
    show_default=True,
    help="auto takes DuckDB for a LOG that memory cannot hold.",
)
@click.option(
    "--fail-if",
    multiple=True,
    metavar="EXPR",
    help="Exit with 4 if so: snips.mae.ci_high>0.9, ess<1000.",
)
@json_option
@result_option(
    "Also write .html, a page to look at; or the table: .csv, .tsv, .json, .jsonl, .parquet, .arrow; - is CSV."
)
@seed_option
@talk_options
def evaluate(
    log: str,
    form: str | None,
    names: str | None,
    user: str | None,
    item: str | None,
    rating: str | None,
    predictions: tuple[str, ...],
    prediction: tuple[str, ...],
    position: tuple[str, ...],
    propensity: str | None,
    mcar: str | None,
    universe: UniverseLike,
    metric: tuple[str, ...],
    estimator: tuple[str, ...],
    cluster: Literal["user", "item"] | None,
    level: float,
    clip: float | None,
    relevant: float | None,
    by: str | None,
    on_bad: OnBad,
    duplicates: Repeats,
    compare: tuple[str, str] | None,
    engine: Engine,
    fail_if: tuple[str, ...],
    as_json: bool,
    output: str | None,
    seed: int,
    quiet: bool,
) -> None:
    """Judge models on a log whose ratings were not observed at random.

    LOG has a rating a row: user, item, rating, and perhaps propensities and predictions. It is CSV, TSV, JSON lines, Parquet or
    Arrow, told by its extension; text may be gzipped; - is standard input. A gate of --fail-if reads
    ESTIMATOR.METRIC.FIELD[.MODEL], where FIELD is estimate, std_error, ci_low or ci_high; or ess, n_observed, and with --compare
    compare.ESTIMATOR.METRIC.difference, ci_low, ci_high or p_value.

    \b
    Example:
      unskew evaluate log.csv --universe 943x1682
      unskew evaluate log.csv --prediction old --prediction new --compare old new
      unskew evaluate log.csv --prediction old --prediction new -o report.html
      unskew evaluate log.csv --predictions model.unskew --propensity p.unskew
      unskew evaluate log.parquet --fail-if 'snips.mae.ci_high>0.9' --json
    """  # noqa: D301
    from unskew.workflows.evaluating import Task, evaluate_log, evaluation_numbers
    from unskew.workflows.gates import Gate, check_gates, refuse_tripped

    gates = [Gate.parse(text) for text in fail_if]
    task = Task(
        source_of(log, form, names),
        replace(columns_of(user, item, rating), predictions=prediction, positions=position),
        _models(predictions),
        propensity=propensity,
        mcar=optional_source(mcar),
        universe=universe,
        metrics=metric,
        estimators=estimator,
        cluster=cluster,
        level=level,
        clip=clip,
        relevant=relevant,
        by=by,
        on_bad=on_bad,
        repeats=duplicates,
        engine=engine,
        seed=seed,
    )
    with progress_line(quiet) as line:
        line(f"judging on {task.log.shown}")
        result = evaluate_log(task)
    tripped = check_gates(gates, evaluation_numbers(result, compare))
    _print(result, compare, as_json=as_json, is_silent=output == "-")
    if output is not None:
        write_columns(result.to_columns(), output, quiet=quiet, as_json=result.to_json)
    refuse_tripped(tripped)


def _models(texts: Sequence[str]) -> dict[str, Source | str]:
    files = [named_file(text) for text in texts]
    for _, path in files:
        if path != "-" and not Path(path).is_file():
            raise click.BadParameter(f"there is no file {path!r}.", param_hint="'--predictions'")
    named = {name: path if path.endswith(".unskew") else source_of(path) for name, path in files}
    if len(named) < len(files):
        raise click.UsageError(
            "two files of --predictions have one name; name them apart: --predictions NAME=FILE."
        )
    return named


def _print(
    result: Judgement, compare: tuple[str, str] | None, *, as_json: bool, is_silent: bool
) -> None:
    from unskew.workflows.evaluating import comparisons, footer

    compared = comparisons(result, *compare) if compare else None
    if as_json:
        rows = (
            [dict(zip(compared, row, strict=True)) for row in zip(*compared.values(), strict=True)]
            if compared
            else None
        )
        click.echo(
            json.dumps(json.loads(result.to_json()) | ({"comparisons": rows} if compare else {}))
        )
    elif not is_silent:
        out = console()
        print_table(out, result.to_columns(), title="Estimates", caption=footer(result))
        if compared is not None and compare is not None:
            shown = {name: values for name, values in compared.items() if name not in LEFT_OUT}
            title = f"{compare[0]} minus {compare[1]}"
            print_table(out, shown, title=title, caption="better: the interval leaves out zero")
