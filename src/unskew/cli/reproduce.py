"""``unskew reproduce``: compute the tables and figures of the paper again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from unskew.cli import options
from unskew.cli.printing import (
    PAGE,
    open_console,
    print_note,
    print_paragraph,
    print_table,
    print_written,
    write_page,
)
from unskew.cli.program import declare_command, render_message
from unskew.datasets import DATASETS
from unskew.errors import DatasetNotFoundError
from unskew.paper import EXPERIMENTS
from unskew.progress import no_progress, progress_bar
from unskew.tables import count_noun

if TYPE_CHECKING:
    from rich.console import Console

    from unskew.paper.reproduction import Reproduction
    from unskew.registry import Declaration


@declare_command("reproduce", "Compute a table or figure of the paper again.", order=8)
@click.argument("name", type=options.EXPERIMENT)
@click.option(
    "--trials",
    type=click.IntRange(min=1),
    metavar="N",
    help="Number of draws of the log. By default 50; 30 for figure3, 1 for table2.",
)
@options.seed_option
@options.data_option(
    "Folder of the data sets; by default $UNSKEW_DATA. table2 needs Coat, and downloads it if it "
    "is missing. table1 and the figures use MovieLens 100K, completed; without it, a simulation."
)
@options.choice_option("--panel", ["left", "right", "both"], "Panel of figure3.")
@options.json_option
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    help="Folder for JSON, PNG and SVG files; or FILE.html for a page.",
)
@options.verbosity_options
def reproduce(
    name: str,
    trials: int | None,
    random_state: int,
    path: str | None,
    panel: str,
    as_json: bool,
    output: Path | None,
    quiet: bool,
) -> None:
    """Reproduce a table or figure of Schnabel et al. 2016, next to the printed numbers.

    \b
    Example:
      unskew reproduce table1
      unskew reproduce figure2 --trials 10 -o out
      unskew reproduce figure2 --trials 10 -o figure2.html
      unskew reproduce figure3 --trials 3 --panel both --data DIR
      unskew reproduce table2 --data DIR
    """  # noqa: D301
    _check_output(output, name)
    folders = _find_folders(path) if name == "all" else {name: path}
    experiments = [EXPERIMENTS.find(each) for each in folders]
    _check_trials(trials, experiments)
    results = [
        experiment.target(
            trials=trials or experiment.traits["trials"],
            random_state=random_state,
            track=no_progress if quiet else progress_bar,
            **_data_arguments(experiment, folders[experiment.name], panel),
        )
        for experiment in experiments
    ]
    if output is not None:
        for result in results:
            _write_files(result, output, quiet=quiet)
    if as_json:
        click.echo(results[0].to_json() if name != "all" else _join_json(results, random_state))
    else:
        console = open_console()
        for number, result in enumerate(results):
            if number:
                console.print()
            _print_result(console, result)


def _find_folders(path: str | None) -> dict[str, str | None]:
    """The data folder for each experiment. Nothing is downloaded.

    Experiments that need missing data are left out with a note. Those that can do without use no
    folder.
    """
    from unskew.datasets.location import find_files

    folders: dict[str, str | None] = {}
    without_data: dict[str, list[str]] = {}
    for experiment in EXPERIMENTS.values():
        folders[experiment.name] = path
        dataset = experiment.traits["data"]
        try:
            if dataset is not None:
                find_files(DATASETS[dataset].traits["source"], path)
        except DatasetNotFoundError as error:
            if experiment.traits["needs_data"]:
                print_note(f"{experiment.name} is left out: {render_message(error)}")
                del folders[experiment.name]
            elif path is not None:
                folders[experiment.name] = None
                without_data.setdefault(DATASETS[dataset].label, []).append(experiment.name)
    for title, names in without_data.items():
        print_note(f"{', '.join(names)} run without data: {path} has no {title}.")
    return folders


def _data_arguments(
    experiment: Declaration[Any], folder: str | None, panel: str
) -> dict[str, str | None]:
    """The arguments that only some experiments have."""
    uses_data = experiment.traits["data"] is not None
    has_panels = "panels" in experiment.traits
    return ({"data": folder} if uses_data else {}) | ({"panel": panel} if has_panels else {})


def _check_trials(trials: int | None, experiments: list[Declaration[Any]]) -> None:
    if trials == 1 and any(experiment.traits["trials"] > 1 for experiment in experiments):
        raise click.BadParameter(
            "a standard deviation over draws needs at least 2 of them; only table2 accepts 1.",
            param_hint="--trials",
        )


def _check_output(output: Path | None, name: str) -> None:
    if output is None:
        return
    from unskew.io.writing import as_path

    as_path(output, "output")
    if output.suffix == PAGE and name == "all":
        raise click.BadParameter(
            "a page shows one table or figure. Choose one, or a folder.", param_hint="--output"
        )
    if output.suffix != PAGE and output.is_file():
        raise click.BadParameter(
            f"{str(output)!r} is a file. Choose a folder, or a file that ends in {PAGE}.",
            param_hint="--output",
        )


def _join_json(results: list[Reproduction], random_state: int) -> str:
    rows = [{"experiment": result.name, **row} for result in results for row in result.rows]
    record = {"name": "all", "trials": results[0].trials, "seed": random_state, "rows": rows}
    return json.dumps(record)


def _print_result(console: Console, result: Reproduction) -> None:
    if result.input_table:
        print_table(console, result.input_table, title="The movie lovers of Figure 1")
    title = f"{result.name}, {count_noun(result.trials, result.unit)}, seed {result.random_state}"
    print_table(console, result.table, title=title, caption=result.caption)
    print_paragraph(console, result.summary)


def _write_files(result: Reproduction, folder: Path, *, quiet: bool) -> None:
    from unskew.io.writing import write_file
    from unskew.report import draw
    from unskew.report.figures import save_figure

    if folder.suffix == PAGE:
        return write_page(result.to_json(), str(folder), quiet=quiet)
    path = folder / f"{result.name}.json"
    write_file(path, result.to_json().encode())
    print_written(str(path), quiet=quiet)
    for figure in save_figure(draw("reproduction", result, None), folder, result.name):
        print_written(str(figure), quiet=quiet)
    return None
