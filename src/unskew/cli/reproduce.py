"""``unskew reproduce``: the paper, one command a table or figure."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from unskew.cli.printing import console, print_prose, print_table

if TYPE_CHECKING:
    from unskew.experiments.reproduction import Reproduction
    from unskew.progress import Track

NAMES = ("toy", "table1", "figure2", "table2")
ON_DATA = ("table2",)
DRAWS, SEEDS = 50, 1


@click.command(short_help="Run a table or figure of the paper again.")
@click.argument("name", type=click.Choice([*NAMES, "all"]))
@click.option("--trials", type=click.IntRange(min=1), help=f"Draws of the log ({DRAWS}), or seeds for table2 ({SEEDS}).")
@click.option("--seed", default=0, show_default=True, type=click.IntRange(min=0), help="Seed of everything random.")
@click.option(
    "--data", type=click.Path(path_type=Path), help="Folder of the data sets, for table2; else $UNSKEW_DATA, else a download."
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object on standard output.")
@click.option("-o", "--output", type=click.Path(path_type=Path, file_okay=False), help="Folder for the JSON, PNG and SVG files.")
@click.option("-q", "--quiet", is_flag=True, help="No progress bar.")
def reproduce(
    name: str, trials: int | None, seed: int, data: Path | None, as_json: bool, output: Path | None, quiet: bool
) -> None:
    """Run a table or figure of Schnabel et al. 2016 again, ours beside the paper's.

    \b
    Example:
      unskew reproduce table1
      unskew reproduce figure2 --trials 10 -o out
      unskew reproduce table2 --data DIR
    """  # noqa: D301
    from unskew.progress import bar, silent

    names = _all_possible(data) if name == "all" else (name,)
    if trials == 1 and not set(names) <= set(ON_DATA):
        raise click.BadParameter("a spread over draws needs at least 2 of them; table2 can do with 1.", param_hint="--trials")
    track = silent if quiet else bar
    results = [_run(each, trials, seed, data, track) for each in names]
    if output is not None:
        for result in results:
            _write(result, output)
    if as_json:
        click.echo(results[0].to_json() if name != "all" else _joined(results, trials or DRAWS, seed))
        return
    for place, result in enumerate(results):
        out = console()
        if place:
            out.print()
        if result.setting:
            print_table(out, result.setting, title="The movie lovers of Figure 1")
        count = f"{result.trials} {result.unit}{'s' if result.trials > 1 else ''}"
        print_table(out, result.table, title=f"{result.name}, {count}, seed {result.seed}", caption=result.caption)
        print_prose(out, result.summary)


def _all_possible(data: Path | None) -> tuple[str, ...]:
    """Everything, or everything that needs no data where those are not here; nothing is downloaded for it."""
    from unskew.data.datasets.coat import COAT
    from unskew.data.datasets.location import find
    from unskew.errors import DatasetNotFoundError

    try:
        find(COAT, data)
    except DatasetNotFoundError as error:
        click.echo(f"{' and '.join(ON_DATA)} left out: {error}", err=True)
        return tuple(name for name in NAMES if name not in ON_DATA)
    return NAMES


def _run(name: str, trials: int | None, seed: int, data: Path | None, track: Track) -> Reproduction:
    from unskew.experiments.figure2 import figure2
    from unskew.experiments.table1 import table1
    from unskew.experiments.table2 import table2
    from unskew.experiments.toy import toy

    if name in ON_DATA:
        return table2(data=data, trials=trials or SEEDS, seed=seed, track=track)
    experiments: dict[str, Callable[..., Reproduction]] = {"toy": toy, "table1": table1, "figure2": figure2}
    return experiments[name](trials=trials or DRAWS, seed=seed, track=track)


def _joined(results: list[Reproduction], trials: int, seed: int) -> str:
    rows = [{"experiment": result.name, **row} for result in results for row in result.rows]
    return json.dumps({"name": "all", "trials": trials, "seed": seed, "rows": rows})


def _write(result: Reproduction, directory: Path) -> None:
    from unskew.report import figures

    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"{result.name}.json"
    path.write_text(result.to_json())
    click.echo(f"wrote {path}", err=True)
    for each in figures.save(figures.draw(result), directory, result.name):
        click.echo(f"wrote {each}", err=True)
