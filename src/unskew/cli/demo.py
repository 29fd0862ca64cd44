"""``unskew demo``: an evaluation on a simulated log whose truth is known."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from unskew.cli import options
from unskew.cli.printing import (
    open_console,
    print_paragraph,
    print_table,
    write_columns,
    write_page,
)
from unskew.cli.program import declare_command

if TYPE_CHECKING:
    from unskew.paper.demo import Demo
    from unskew.simulation.simulator import Simulation

CAPTION = "± is half of a 95 % interval."


@declare_command("demo", "Evaluate two models on a simulated log whose truth is known.", order=1)
@options.seed_option
@options.page_option("Also write the result as a page (.html).")
@click.option(
    "--files",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Also write log.csv and random.csv to try the other commands on.",
)
def demo(random_state: int, output: str | None, files: Path | None) -> None:
    """Evaluate two models on a simulated log whose truth is known.

    \b
    Example:
      unskew demo --seed 7
      unskew demo -o report.html
      unskew demo --files sample
    """  # noqa: D301
    folder = None if files is None else _as_folder(files)
    console = open_console()
    print_paragraph(
        console,
        "Simulating 943 users and 1,682 films, of which people rate 5 %, mostly what they like ...",
    )
    from unskew.paper.demo import run_demo
    from unskew.simulation.simulator import simulate

    simulation = simulate(random_state=random_state)
    print_paragraph(console, f"{simulation.log}")
    console.print()
    result = run_demo(simulation, random_state=random_state)
    title = "Error of two models, lower is better"
    print_table(console, result.to_columns(), title=title, caption=CAPTION)
    title = "Which is better? Optimist minus realist"
    print_table(console, _list_comparisons(result), title=title, caption=CAPTION)
    print_paragraph(console, result.summary())
    if output is not None:
        write_page(result.to_json(), output, quiet=False)
    if folder is not None:
        _write_sample_files(simulation, folder, random_state)


def _as_folder(files: Path) -> Path:
    from unskew.io.writing import as_path

    return as_path(files, "files")


def _write_sample_files(simulation: Simulation, folder: Path, random_state: int) -> None:
    from unskew.paper.demo import make_sample_files

    folder.mkdir(parents=True, exist_ok=True)
    for name, columns in make_sample_files(simulation, random_state=random_state).items():
        write_columns(columns, str(folder / name), quiet=False)


def _list_comparisons(result: Demo) -> dict[str, list[object]]:
    from unskew.tables import UNDECIDED

    comparisons = [result.compare(estimator) for estimator in result.evaluation.estimators]
    return {
        "estimator": [each.estimator for each in comparisons],
        "difference of mae": [
            f"{each.difference:+.3f} ± {(each.ci_high - each.ci_low) / 2:.3f}"
            for each in comparisons
        ],
        "better": [each.better or UNDECIDED for each in comparisons],
    }
