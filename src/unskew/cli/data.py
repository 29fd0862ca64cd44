"""``unskew data list|fetch|check``: public data sets."""

from __future__ import annotations

import json

import click

from unskew.cli import COMMANDS, options
from unskew.cli.printing import open_console, print_paragraph, print_table
from unskew.cli.program import CommandGroup
from unskew.datasets import DATASETS


@click.group("data", cls=CommandGroup)
def data() -> None:
    """List, download and check public data sets. None of them is shipped with unskew.

    \b
    Example:
      unskew data list
      unskew data fetch coat
      unskew data check
    """  # noqa: D301


COMMANDS.add(
    "data",
    data,
    label="Data",
    summary="List, download and check public data sets.",
    traits={"order": 9},
)


@data.command("list", short_help="List the data sets and where they are.")
@options.data_option("Folder to search; by default $UNSKEW_DATA.")
@options.json_option
def list_datasets(path: str | None, as_json: bool) -> None:
    """List the data sets that can be read, and where they were found.

    \b
    Example:
      unskew data list --data DIR
    """  # noqa: D301
    from unskew.datasets.location import describe_search, find_folder

    rows = [
        {
            "name": name,
            "title": declaration.label,
            "found": find_folder(name, path),
            "can_be_fetched": declaration.traits["source"].archive is not None,
        }
        for name, declaration in DATASETS.items()
    ]
    if as_json:
        click.echo(json.dumps(rows))
        return
    columns: dict[str, list[object]] = {
        "name": [row["name"] for row in rows],
        "data set": [row["title"] for row in rows],
        "found in": [row["found"] or "-" for row in rows],
        "fetch": ["yes" if row["can_be_fetched"] else "by hand" for row in rows],
    }
    caption = f"Searched {describe_search(path)}."
    print_table(open_console(), columns, title="Data sets", caption=caption)


@data.command("fetch", short_help="Download a data set, or tell where to get it.")
@click.argument("name", type=options.DATASET)
@options.data_option("Folder that may already have it; by default $UNSKEW_DATA.")
def fetch(name: str, path: str | None) -> None:
    """Download a data set into the cache folder of the operating system, and check it.

    Nothing is downloaded if --data or $UNSKEW_DATA has it. For a data set that cannot be
    downloaded, the command tells where to get it.

    \b
    Example:
      unskew data fetch coat
    """  # noqa: D301
    from unskew.datasets.location import find_folder

    declaration = DATASETS.find(name)
    folder = find_folder(name, path)
    declaration.target(path if folder else None)
    print_paragraph(open_console(), f"{declaration.label} is in {folder or 'the cache folder'}.")


@data.command("check", short_help="Compare data sets with what was published.")
@click.argument("names", nargs=-1, type=options.DATASET)
@options.data_option("Folder to search; by default $UNSKEW_DATA.")
def check(names: tuple[str, ...], path: str | None) -> None:
    """Read data sets and compare their checksums with the published ones.

    Without NAMES all data sets that are found are checked.

    \b
    Example:
      unskew data check coat
    """  # noqa: D301
    from unskew.datasets.location import check_dataset, describe_search, find_folder

    chosen = names or [name for name in DATASETS if find_folder(name, path)]
    console = open_console()
    if not chosen:
        print_paragraph(console, f"No data set was found. Searched {describe_search(path)}.")
    for name in chosen:
        print_paragraph(console, f"{name}: {check_dataset(name, path)}")
