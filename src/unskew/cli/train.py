"""``unskew train`` and ``unskew recommend``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from unskew.cli.options import (
    FILE,
    METRICS,
    Careful,
    bad_row_options,
    columns_of,
    html_option,
    json_option,
    log_options,
    names_of,
    optional_source,
    output_option,
    seed_option,
    source_of,
    table_option,
    talk_options,
    universe_option,
)
from unskew.cli.printing import (
    console,
    note,
    print_prose,
    print_table,
    progress_line,
    shows_progress,
    write_columns,
    write_page,
    wrote,
)

if TYPE_CHECKING:
    from unskew.data.universe import UniverseLike
    from unskew.io.log_files import OnBad, Repeats
    from unskew.workflows.learners import Loss, Offsets

LEARNERS = (
    *("mf", "dr-jl", "mrdr", "dr-bias", "dr-mse", "eib", "stable-dr", "ips-v2", "dr-v2"),
    *("hl-mar", "hl-mnar", "mixture", "cpt-v", "logit-vd", "allrank", "wmf", "expomf", "relmf"),
    *("offsets", "mean", "popularity"),
)
"""As ``unskew.workflows.learners`` has them, which a command line that only shows its help does not load."""


@click.command(cls=Careful, short_help="Fit a recommender to a log, weighted by propensities.")
@log_options
@click.option(
    "--propensity",
    metavar="COL|FILE",
    help="A column of LOG, a .unskew file, or nb, popularity, uniform; without it every rating counts alike.",
)
@click.option("--mcar", type=FILE, help="Ratings of cells picked at random, for --propensity nb.")
@universe_option
@click.option(
    "--learner",
    type=click.Choice(LEARNERS),
    default="mf",
    show_default=True,
    metavar="NAME",
    help=f"What to fit: {', '.join(LEARNERS)}. Settings that are not given are the learner's own.",
)
@click.option("--factors", type=click.IntRange(min=0), help="Rank of the factors.  [mf: 20]")
@click.option("--l2", type=click.FloatRange(min=0), help="Strength of the penalty.  [mf: 1]")
@click.option(
    "--loss",
    type=click.Choice(["squared", "absolute"]),
    help="Squared error, or absolute.  [mf: squared]",
)
@click.option(
    "--offsets",
    type=click.Choice(["regularized", "free", "none"]),
    help="Offsets of users and items.  [mf: regularized]",
)
@click.option("--max-iter", type=click.IntRange(min=1), help="Most steps.  [mf: 500]")
@click.option(
    "--cross-validate",
    is_flag=True,
    help="Choose among the settings of --grid, then fit the best to all of LOG.",
)
@click.option(
    "--grid",
    multiple=True,
    metavar="NAME=V,V,...",
    help="Settings to try: l2=0.2,1,5 or factors=5,20 or clip=10,50.",
)
@click.option(
    "--folds",
    type=click.IntRange(min=2),
    default=4,
    show_default=True,
    help="Parts of the cross-validation.",
)
@click.option(
    "--metric",
    shell_complete=names_of(*METRICS),
    metavar="NAME",
    help="What --cross-validate judges by, as in evaluate; else mse, mae with --loss absolute, and dcg@10 for learners whose "
    "scores are no ratings.",
)
@click.option(
    "--relevant",
    type=float,
    metavar="R",
    help="Ratings from here on are relevant, for precision, recall and atop.",
)
@click.option(
    "--checkpoint",
    type=click.Path(dir_okay=False),
    help="Keep the state there; a run that was killed goes on from it.",
)
@bad_row_options
@json_option
@output_option("The model's file, such as model.unskew.", required=True)
@html_option("With --cross-validate: the search as a page to look at.")
@seed_option
@talk_options
def train(
    log: str,
    form: str | None,
    names: str | None,
    user: str | None,
    item: str | None,
    rating: str | None,
    propensity: str | None,
    mcar: str | None,
    universe: UniverseLike,
    learner: str,
    factors: int | None,
    l2: float | None,
    loss: Loss | None,
    offsets: Offsets | None,
    max_iter: int | None,
    cross_validate: bool,
    grid: tuple[str, ...],
    folds: int,
    metric: str | None,
    relevant: float | None,
    checkpoint: str | None,
    on_bad: OnBad,
    duplicates: Repeats,
    as_json: bool,
    output: str,
    html: str | None,
    seed: int,
    quiet: bool,
) -> None:
    """Fit a recommender to LOG: by default a matrix factorisation, each rating weighted by its inverse propensity.

    \b
    Example:
      unskew train log.csv --propensity p.unskew --factors 20 -o model.unskew
      unskew train log.csv --cross-validate --grid l2=0.2,1,5 -o model.unskew
      unskew train log.csv --propensity p.unskew --learner mrdr -o model.unskew
    """  # noqa: D301
    from unskew.workflows import training
    from unskew.workflows.propensities import propensities_for, read_weighted

    if bool(grid) != cross_validate:
        raise click.UsageError(
            "--cross-validate and --grid go together: --cross-validate --grid l2=0.2,1,5."
        )
    if cross_validate and checkpoint:
        raise click.UsageError("--checkpoint is for one fit, not for --cross-validate.")
    if html and not cross_validate:
        raise click.UsageError("--html shows a search: it goes with --cross-validate.")
    if not cross_validate and (metric is not None or relevant is not None):
        raise click.UsageError(
            "--metric and --relevant say how settings are judged: they go with --cross-validate."
        )
    choices = training.read_grid(grid)
    settings = training.Settings(factors, l2, loss, offsets, max_iter, seed, learner)
    judged_by = training.judging_metric(settings, metric, relevant=relevant)
    if cross_validate and metric is None and judged_by == training.RANKING and not quiet:
        note(
            f"the scores of {learner} are no ratings: settings are judged by {judged_by}; --metric chooses another"
        )
    with progress_line(quiet) as line:
        line(f"reading {log}")
        logged = read_weighted(
            source_of(log, form, names),
            columns_of(user, item, rating),
            propensity,
            universe=universe,
            on_bad=on_bad,
            repeats=duplicates,
        )
        values = propensities_for(logged, propensity, optional_source(mcar), seed)
    verbose = shows_progress(quiet)
    if cross_validate:
        found = training.search(
            logged,
            values,
            settings,
            grid=choices,
            n_folds=folds,
            metric=judged_by,
            relevant=relevant,
            verbose=verbose,
        )
        found.best_model.save(output)
        if as_json:
            click.echo(found.to_json())
        else:
            cells = (
                "of held-out ratings, each counted alike"
                if values is None
                else f"over all cells by {found.estimator}"
            )
            caption = f"score: {found.metric} {cells}, mean of {folds} folds; std is over folds"
            print_table(
                console(), found.to_columns(), title="Settings, the best first", caption=caption
            )
        wrote(output, quiet=quiet)
        if html is not None:
            write_page(found.to_json(), html, quiet=quiet)
        return
    model = training.train(logged, values, settings, checkpoint=checkpoint, verbose=verbose)
    model.save(output)
    told = training.summary(logged, model, settings, is_weighted=values is not None)
    if as_json:
        click.echo(told.to_json())
    else:
        print_prose(console(), str(told))
    wrote(output, quiet=quiet)


@click.command(cls=Careful, short_help="The best items of users, from a model that train wrote.")
@click.argument("model", type=click.Path(exists=True, dir_okay=False))
@click.option(
    "--users",
    type=FILE,
    help="A file with a column of users; without it and --user, all users of the log.",
)
@click.option("--user", multiple=True, metavar="ID", help="One user; may be given several times.")
@click.option(
    "-k", type=click.IntRange(min=1), default=10, show_default=True, help="Items for each user."
)
@click.option("--include-seen", is_flag=True, help="Items that the user has rated, too.")
@json_option
@table_option(
    "Write them there instead: .csv, .tsv, .jsonl, .parquet, .arrow; - is CSV on standard output."
)
@talk_options
def recommend(
    model: str,
    users: str | None,
    user: tuple[str, ...],
    k: int,
    include_seen: bool,
    as_json: bool,
    output: str | None,
    quiet: bool,
) -> None:
    """The K best items of each user, best first, without those that the user has rated.

    \b
    Example:
      unskew recommend model.unskew --user 42 --user 43 -k 5
      unskew recommend model.unskew --users users.csv -o best.parquet
    """  # noqa: D301
    from unskew.workflows.training import recommend as recommend_for
    from unskew.workflows.training import recommended_rows

    if users and user:
        raise click.UsageError("name users in a file or one by one: --users or --user, not both.")
    found, n_unknown = recommend_for(
        model, optional_source(users) if users else user or None, k=k, include_seen=include_seen
    )
    if n_unknown:
        strangers = f"{n_unknown} of {len(found.users)} users are not in the log that {model} was trained on"
        note(f"warning: {strangers}; they get what is best without knowing them")
    if as_json:
        click.echo(recommended_rows(found))
    elif output is not None:
        write_columns(found.to_columns(), output, quiet=quiet)
    else:
        columns = {name: values.tolist() for name, values in found.to_columns().items()}
        print_table(
            console(),
            columns,
            title=f"The best {k} of {len(found.users):,} user{'s' * (len(found.users) > 1)}",
        )
