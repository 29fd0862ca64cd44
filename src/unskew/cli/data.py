"""``unskew data list|fetch|check``."""

from __future__ import annotations

import click

from unskew.cli.options import json_option, names_of
from unskew.cli.printing import console, print_prose, print_table

NAMES = ("coat", "movielens-100k", "yahoo-r3", "cm100k", "jester")
FOLDER = click.Path(file_okay=False)


@click.group(short_help="Public data sets: list, fetch, check.")
def data() -> None:
    """Public data sets that can be read. None is shipped; most are asked for at their owner's.

    \b
    Example:
      unskew data list
      unskew data fetch coat
      unskew data check
    """  # noqa: D301


@data.command("list", short_help="The data sets, and where they were found.")
@click.option("--data", "folder", type=FOLDER, help="Folder to look in; else $UNSKEW_DATA.")
@json_option
def list_(folder: str | None, as_json: bool) -> None:
    """The data sets that are known, and where they were found.

    \b
    Example:
      unskew data list --data DIR
    """  # noqa: D301
    import json

    from unskew.datasets.registry import DATASETS, looked_in

    rows = [
        {
            "name": name,
            "title": known.source.name,
            "found": known.folder(folder),
            "can_be_fetched": known.source.archive is not None,
        }
        for name, known in DATASETS.items()
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
    print_table(console(), columns, title="Data sets", caption=f"Looked in {looked_in(folder)}.")


@data.command(short_help="Download a data set, or say where to get it.")
@click.argument("name", shell_complete=names_of(*NAMES))
def fetch(name: str) -> None:
    """Download a data set once, into the cache folder of the operating system, and check it.

    Where $UNSKEW_DATA has it already, nothing is downloaded. What cannot be downloaded is described: where to ask for it.

    \b
    Example:
      unskew data fetch coat
    """  # noqa: D301
    from unskew.datasets.registry import find_dataset

    known = find_dataset(name)
    known.load(None)
    print_prose(
        console(), f"{known.source.name} is there: {known.folder() or 'in the cache folder'}."
    )


@data.command(short_help="Read what is there, and compare it with what was published.")
@click.argument("names", nargs=-1, shell_complete=names_of(*NAMES))
@click.option("--data", "folder", type=FOLDER, help="Folder to look in; else $UNSKEW_DATA.")
def check(names: tuple[str, ...], folder: str | None) -> None:
    """Read the data sets that are there (or those named), and compare their digests with the published ones.

    \b
    Example:
      unskew data check coat
    """  # noqa: D301
    from unskew.datasets.registry import DATASETS, find_dataset, looked_in

    chosen = [find_dataset(name) for name in names] or [
        known for known in DATASETS.values() if known.folder(folder)
    ]
    out = console()
    if not chosen:
        print_prose(out, f"No data set was found. Looked in {looked_in(folder)}.")
    for known in chosen:
        print_prose(out, f"{known.name}: {known.check(folder)}")
