"""``unskew reproduce``: the paper, one command a table or figure."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from unskew.cli.printing import PAGE, console, print_prose, print_table, write_page

if TYPE_CHECKING:
    from unskew.datasets.location import Source
    from unskew.paper.reproduction import Reproduction
    from unskew.progress import Track

TRIALS = {"toy": 50, "table1": 50, "figure2": 50, "figure3": 30, "figure4": 50, "table2": 1}
"""What is run, and how often where nothing else is asked for."""
ON_MOVIELENS = ("table1", "figure2", "figure3", "figure4")
ON_COAT = ("table2",)
PANELS = ("left", "right", "both")


@click.command(short_help="Run a table or figure of the paper again.")
@click.argument("name", type=click.Choice([*TRIALS, "all"]))
@click.option(
    "--trials",
    type=click.IntRange(min=1),
    help="Draws of the log (50; 30 for figure3, each fitted), or seeds for table2 (1).",
)
@click.option(
    "--seed",
    default=0,
    show_default=True,
    type=click.IntRange(min=0),
    help="Seed of everything random.",
)
@click.option(
    "--data",
    type=click.Path(path_type=Path),
    help="Folder of the data sets; else $UNSKEW_DATA. table2 runs on Coat, or downloads it; table1 and the figures run on "
    "MovieLens 100K, completed, or without it on a simulation.",
)
@click.option(
    "--panel",
    default="left",
    show_default=True,
    type=click.Choice(PANELS),
    help="Panel of figure3.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object on standard output.")
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    help="Folder for the JSON, PNG and SVG files; or FILE.html, a page to look at.",
)
@click.option("-q", "--quiet", is_flag=True, help="No progress bar.")
def reproduce(
    name: str,
    trials: int | None,
    seed: int,
    data: Path | None,
    panel: str,
    as_json: bool,
    output: Path | None,
    quiet: bool,
) -> None:
    """Run a table or figure of Schnabel et al. 2016 again, ours beside the paper's.

    \b
    Example:
      unskew reproduce table1
      unskew reproduce figure2 --trials 10 -o out
      unskew reproduce figure2 --trials 10 -o figure2.html
      unskew reproduce figure3 --trials 3 --panel both --data DIR
      unskew reproduce table2 --data DIR
    """  # noqa: D301
    from unskew.progress import no_progress, progress_bar

    if trials == 1 and name not in ON_COAT:
        raise click.BadParameter(
            "a spread over draws needs at least 2 of them; table2 can do with 1.",
            param_hint="--trials",
        )
    _require_output(name, output)
    track = no_progress if quiet else progress_bar
    folders = _folders(data) if name == "all" else {name: data}
    results = [_run(each, trials, seed, folder, panel, track) for each, folder in folders.items()]
    if output is not None:
        for result in results:
            _write(result, output, quiet=quiet)
    if as_json:
        click.echo(
            results[0].to_json()
            if name != "all"
            else _joined(results, trials or TRIALS["toy"], seed)
        )
        return
    for place, result in enumerate(results):
        out = console()
        if place:
            out.print()
        if result.setting:
            print_table(out, result.setting, title="The movie lovers of Figure 1")
        count = f"{result.trials} {result.unit}{'s' if result.trials > 1 else ''}"
        print_table(
            out,
            result.table,
            title=f"{result.name}, {count}, seed {result.seed}",
            caption=result.caption,
        )
        print_prose(out, result.summary)


def _folders(data: Path | None) -> dict[str, Path | None]:
    """Everything with the folder of its data. What cannot do without and has none is left out, aloud; nothing is downloaded."""
    from unskew.datasets.coat import COAT
    from unskew.datasets.movielens import MOVIELENS_100K

    folders: dict[str, Path | None] = dict.fromkeys(TRIALS, data)
    if (lack := _lack(COAT, data)) is not None:
        click.echo(f"{' and '.join(ON_COAT)} left out: {lack}", err=True)
        folders = {name: folder for name, folder in folders.items() if name not in ON_COAT}
    if data is not None and _lack(MOVIELENS_100K, data) is not None:
        click.echo(
            f"{', '.join(ON_MOVIELENS)} run as without --data: {data} has no MovieLens 100K.",
            err=True,
        )
        folders.update(dict.fromkeys(ON_MOVIELENS, None))
    return folders


def _lack(source: Source, data: Path | None) -> str | None:
    """Why a data set is not there, if it is not."""
    from unskew.datasets.location import find
    from unskew.errors import DatasetNotFoundError

    try:
        find(source, data)
    except DatasetNotFoundError as error:
        return str(error)
    return None


def _run(
    name: str, trials: int | None, seed: int, data: Path | None, panel: str, track: Track
) -> Reproduction:
    from unskew.paper.figure2 import figure2
    from unskew.paper.figure3 import figure3
    from unskew.paper.figure4 import figure4
    from unskew.paper.table1 import table1
    from unskew.paper.table2 import table2
    from unskew.paper.toy import toy

    experiments: dict[str, Callable[..., Reproduction]] = {
        "toy": toy,
        "table1": partial(table1, data=data),
        "figure2": partial(figure2, data=data),
        "figure3": partial(figure3, data=data, panel=panel),
        "figure4": partial(figure4, data=data),
        "table2": partial(table2, data=data),
    }
    return experiments[name](trials=trials or TRIALS[name], seed=seed, track=track)


def _joined(results: list[Reproduction], trials: int, seed: int) -> str:
    rows = [{"experiment": result.name, **row} for result in results for row in result.rows]
    return json.dumps({"name": "all", "trials": trials, "seed": seed, "rows": rows})


def _require_output(name: str, output: Path | None) -> None:
    if output is None:
        return
    if output.suffix == PAGE and name == "all":
        raise click.BadParameter(
            "a page has one table or figure; name one, or a folder.", param_hint="--output"
        )
    if output.suffix != PAGE and output.is_file():
        raise click.BadParameter(
            f"{str(output)!r} is a file; name a folder, or a file in {PAGE}.", param_hint="--output"
        )


def _write(result: Reproduction, directory: Path, *, quiet: bool) -> None:
    from unskew.report import figures

    if directory.suffix == PAGE:
        return write_page(result.to_json(), str(directory), quiet=quiet)
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"{result.name}.json"
    path.write_text(result.to_json())
    click.echo(f"wrote {path}", err=True)
    for each in figures.save(figures.draw(result), directory, result.name):
        click.echo(f"wrote {each}", err=True)
    return None
