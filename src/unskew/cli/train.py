"""``unskew train`` and ``unskew recommend``: fit a recommender, and use it."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from unskew.cli import options
from unskew.cli.printing import (
    PAGE,
    is_progress_shown,
    open_console,
    print_note,
    print_paragraph,
    print_table,
    print_written,
    show_progress,
    write_columns,
    write_page,
)
from unskew.cli.program import declare_command, find_parameter
from unskew.tables import count_noun
from unskew.workflows.requests import TrainingRequest

if TYPE_CHECKING:
    from unskew.workflows.training import TrainingData


OFFSETS = click.Choice(["regularized", "free", "none"])
setting = partial(click.option, cls=options.SettingOption)


def _parse_grid(
    context: click.Context, parameter: click.Parameter, texts: tuple[str, ...]
) -> dict[str, list[Any]]:
    """Values by setting, from texts such as ``l2=0.2,1,5``.

    A name is that of a setting or of the option that sets it: ``n_factors`` or ``factors``.
    """
    grid: dict[str, list[Any]] = {}
    for text in texts:
        name, separator, listed = (part.strip() for part in text.partition("="))
        if not (name and separator and listed):
            raise click.BadParameter(f"{text!r} must be NAME=VALUE,VALUE,..., as in l2=0.2,1,5.")
        option = find_parameter(context.command, name)
        key = name if option is None or option.name is None else option.name
        if key in grid:
            raise click.BadParameter(f"{name!r} occurs twice. List all its values at once.")
        values = [options.parse_value(value.strip()) for value in listed.split(",")]
        if option is not None and isinstance(option.type, options.MaxWeightType):
            values = [option.type(str(value), parameter, context) for value in values]
        elif float in map(type, values):
            values = [float(value) if type(value) is int else value for value in values]
        grid[key] = values
    return grid


def _parse_outputs(
    _context: click.Context, _parameter: click.Parameter, paths: tuple[str, ...]
) -> tuple[str, str | None]:
    """The file of the model, and that of the page."""
    pages = [path for path in paths if path.endswith(PAGE)]
    models = [path for path in paths if path not in pages]
    if len(models) != 1 or len(pages) > 1:
        raise click.BadParameter(
            f"name one file for the model and at most one page that ends in {PAGE}."
        )
    return models[0], pages[0] if pages else None


@declare_command(
    "train",
    "Fit a recommender to a log, weighted by inverse propensities.",
    order=5,
    request=TrainingRequest,
)
@options.log_options
@options.propensity_options
@options.universe_option
@click.option(
    "--learner",
    type=options.LEARNER,
    default="mf",
    metavar="NAME",
    help="The recommender to fit; see the list below.",
)
@setting("--factors", "n_factors", type=click.IntRange(min=0), help="Number of factors.")
@setting("--l2", type=click.FloatRange(min=0), metavar="X", help="Strength of the penalty.")
@setting("--loss", type=click.Choice(["squared", "absolute"]), help="Squared or absolute error.")
@setting("--offsets", type=OFFSETS, help="Offsets of users and items.")
@setting("--max-iter", type=click.IntRange(min=1), help="Largest number of steps.")
@options.max_weight_option(cls=options.SettingOption)
@options.set_option
@click.option(
    "--cross-validate",
    is_flag=True,
    help="Choose among the settings of --grid, then fit the best to all of LOG.",
)
@click.option(
    "--grid",
    multiple=True,
    metavar="NAME=V,V,...",
    callback=_parse_grid,
    help="Values to try: l2=0.2,1,5 or factors=5,20 or max-weight=10,50.",
)
@click.option(
    "--folds",
    "n_folds",
    type=click.IntRange(min=2),
    default=4,
    help="Number of parts of the cross-validation.",
)
@click.option(
    "--repeats",
    "n_repeats",
    type=click.IntRange(min=1),
    default=1,
    help="Number of splits into folds; their scores are averaged.",
)
@click.option(
    "--rule",
    type=click.Choice(["best", "one_standard_error"]),
    default="best",
    help="Choose the best score, or the simplest model within one standard error of it.",
)
@click.option(
    "--halving", is_flag=True, help="After each fold, drop the worse half of the settings."
)
@click.option(
    "--score",
    type=click.Choice(["naive", "ips", "snips", "dr", "sndr"]),
    help="Estimator of the criterion; by default ips, and naive without --propensity.",
)
@click.option(
    "--metric",
    type=replace(options.METRIC, is_listed=False),
    metavar="NAME",
    help="Criterion of --cross-validate, as in evaluate. By default mse, mae with --loss absolute, "
    "and dcg@10 for learners that only rank items.",
)
@options.relevance_option
@click.option(
    "--checkpoint",
    type=click.Path(dir_okay=False),
    help="Save the state of the fit here; an interrupted fit continues from it.",
)
@click.option(
    "--engine",
    default="auto",
    metavar="NAME",
    help="Where the model is fitted: local, gpu, spark or disk. The default auto takes disk for a "
    "Parquet file that would fill more than half of the memory, and local otherwise.",
)
@options.bad_row_options
@options.json_option
@click.option(
    "-o",
    "--output",
    type=options.OUTPUT_FILE,
    multiple=True,
    required=True,
    callback=_parse_outputs,
    help="The file of the model, such as model.unskew. With --cross-validate, a second -o writes "
    "the search as a page (.html).",
)
@options.seed_option
@options.verbosity_options
def train(
    request: TrainingRequest,
    *,
    cross_validate: bool,
    as_json: bool,
    output: tuple[str, str | None],
    quiet: bool,
) -> None:
    """Fit a recommender to LOG.

    The default is a matrix factorisation that weights each rating by its inverse propensity.
    Without --propensity all ratings have equal weight. Settings that are not given have the default
    of the learner.

    \b
    Example:
      unskew train log.csv --propensity p.unskew --factors 20 -o model.unskew
      unskew train log.csv --cross-validate --grid l2=0.2,1,5 -o model.unskew
      unskew train log.csv --cross-validate --grid l2=1,5 -o m.unskew -o search.html
      unskew train log.csv --propensity p.unskew --learner mrdr -o model.unskew
    """  # noqa: D301
    from unskew.workflows.training import (
        choose_engine,
        explain_large_log,
        fit_from_file,
        read_training_data,
        reads_files,
    )

    path, page = output
    _require_consistent(request, cross_validate=cross_validate, page=page)
    engine = choose_engine(request)
    note = None if quiet else explain_large_log(request, engine)
    if note is not None:
        print_note(note)
    verbose = is_progress_shown(quiet)  # within `show_progress`, rich 13 hides the terminal
    if reads_files(engine):
        with show_progress(quiet, f"fitting {request.log} by --engine {engine}"):
            fitted = fit_from_file(request, engine, verbose=verbose)
        _write_model(None, fitted, as_json=as_json, path=path, quiet=quiet)
        return
    with show_progress(quiet, f"reading {request.log}"):
        data = read_training_data(request, verbose=verbose)
    if cross_validate:
        _search_settings(data, as_json=as_json, path=path, page=page, quiet=quiet)
    else:
        _fit_once(data, as_json=as_json, path=path, quiet=quiet)


def _require_consistent(
    request: TrainingRequest, *, cross_validate: bool, page: str | None
) -> None:
    if bool(request.grid) != cross_validate:
        raise click.UsageError(
            "--cross-validate and --grid need each other: --cross-validate --grid l2=0.2,1,5."
        )
    if cross_validate and request.checkpoint:
        raise click.UsageError("--checkpoint cannot be combined with --cross-validate.")
    for option, value in ((f"-o {page}", page), ("--metric", request.metric)):
        if value is not None and not cross_validate:
            raise click.UsageError(f"{option} needs --cross-validate.")


def _fit_once(data: TrainingData, *, as_json: bool, path: str, quiet: bool) -> None:
    from unskew.workflows.training import fit_model

    _write_model(data, fit_model(data), as_json=as_json, path=path, quiet=quiet)


def _write_model(
    data: TrainingData | None, model: Any, *, as_json: bool, path: str, quiet: bool
) -> None:
    from unskew.workflows.training import summarize_fit

    model.save(path)
    summary = summarize_fit(data, model)
    if as_json:
        click.echo(summary.to_json())
    else:
        print_paragraph(open_console(), str(summary))
    print_written(path, quiet=quiet)


def _search_settings(
    data: TrainingData, *, as_json: bool, path: str, page: str | None, quiet: bool
) -> None:
    from unskew.workflows.training import search_settings

    request = data.request
    if request.metric is None and not data.model.predicts_ratings and not quiet:
        print_note(
            f"{request.learner} only ranks items, so settings are compared by "
            f"{data.metric}; --metric chooses another metric"
        )
    search = search_settings(data, verbose=is_progress_shown(quiet))
    search.best_model.save(path)
    if as_json:
        click.echo(search.to_json())
    else:
        scope = (
            "of held-out ratings, unweighted"
            if data.propensities is None
            else f"over all cells by {search.estimator}"
        )
        caption = (
            f"score: {search.metric} {scope}, mean of {request.n_folds} folds; std is over folds"
        )
        edges = "".join(f"; {sentence}" for sentence in search.edges)
        caption = f"{caption}{edges}"
        title = "Settings, the best first"
        print_table(open_console(), search.to_columns(), title=title, caption=caption)
    print_written(path, quiet=quiet)
    if page is not None:
        write_page(search.to_json(), page, quiet=quiet)


@declare_command("recommend", "List the best items of users, from a trained model.", order=6)
@click.argument("model", type=click.Path(exists=True, dir_okay=False))
@click.option(
    "--users",
    type=options.INPUT_FILE,
    help="A file with a column of users. Without --users and --user, all users of the log.",
)
@click.option(
    "--user", multiple=True, metavar="ID", help="A user; repeat the option for several users."
)
@click.option("-k", type=click.IntRange(min=1), default=10, help="Items for each user.")
@click.option("--include-seen", is_flag=True, help="Include items that the user has rated.")
@options.ranking_engine_option
@options.json_option
@options.table_option(
    "Write the table to a file: .csv, .tsv, .jsonl, .parquet, .arrow; - is CSV on standard output."
)
@options.verbosity_options
def recommend(
    model: str,
    users: str | None,
    user: tuple[str, ...],
    k: int,
    include_seen: bool,
    engine: str,
    as_json: bool,
    output: str | None,
    quiet: bool,
) -> None:
    """List the K best items of each user, best first, without items that the user has rated.

    MODEL is a file that `unskew train` wrote.

    \b
    Example:
      unskew recommend model.unskew --user 42 --user 43 -k 5
      unskew recommend model.unskew --users users.csv -o best.parquet
    """  # noqa: D301
    from unskew.workflows.training import format_rows, recommend_items

    if users and user:
        raise click.UsageError("--users and --user cannot be combined.")
    recommendations = recommend_items(
        model, file=users, users=user, k=k, include_seen=include_seen, engine=engine
    )
    if as_json:
        click.echo(format_rows(recommendations))
    elif output is not None:
        write_columns(recommendations.to_columns(), output, quiet=quiet)
    else:
        columns = recommendations.to_columns()
        title = f"The best {k} of {count_noun(len(recommendations.users), 'user')}"
        table = {name: values.tolist() for name, values in columns.items()}
        print_table(open_console(), table, title=title)
