"""Options that several commands share, and how their texts are read."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.shell_completion import CompletionItem

from unskew.cli.printing import PAGE

if TYPE_CHECKING:
    from unskew.io.formats import Source
    from unskew.io.log_files import Wanted

Command = TypeVar("Command", bound=Callable[..., Any])
WRITTEN = ("output", "html")
"""Parameters that name a file to write."""
FORMATS = ("csv", "tsv", "jsonl", "parquet", "arrow")
FILE = click.Path(exists=True, dir_okay=False, allow_dash=True)
OUTPUT = click.Path(dir_okay=False, allow_dash=True, writable=True)
METRICS = (
    "mse",
    "mae",
    "accuracy",
    "dcg",
    "dcg@10",
    "cg@10",
    "precision@10",
    "recall@10",
    "stratified_recall@10",
    "atop",
)
UNIVERSE = re.compile(r"([0-9][0-9_,]*)\s*[xX×*]\s*([0-9][0-9_,]*)")


class Careful(click.Command):
    """A command that never writes over a file it is told to read."""

    def invoke(self, context: click.Context) -> Any:
        """Look at the names, then run."""
        written = {
            name: value
            for name, value in context.params.items()
            if name in WRITTEN and isinstance(value, str)
        }
        others = (value for name, value in context.params.items() if name not in WRITTEN)
        each = (
            text for value in others for text in (value if isinstance(value, tuple) else (value,))
        )
        read = sorted({text for text in each if isinstance(text, str)})
        for name, path in written.items():
            for given in read:
                if _are_same(path, given) or _are_same(path, named_file(given)[1]):
                    option = "-o" if name == "output" else f"--{name}"
                    raise click.UsageError(
                        f"{option} {path} would write over {given}, which is to be read; name another file."
                    )
        return super().invoke(context)


def _are_same(one: str, other: str) -> bool:
    """Whether two names are of one file, which is there."""
    try:
        return Path(one).samefile(other)
    except (OSError, ValueError):
        return False


class UniverseType(click.ParamType[Any]):
    """``943x1682``, or ``log``."""

    name = "UxI|log"

    def convert(
        self, value: Any, param: click.Parameter | None, context: click.Context | None
    ) -> Any:
        """Two numbers, or the word."""
        if value == "log" or isinstance(value, tuple):
            return value
        found = UNIVERSE.fullmatch(value.strip())
        if found is None:
            self.fail(
                f"{value!r} is neither USERSxITEMS, such as 943x1682, nor log.", param, context
            )
        return tuple(int(re.sub("[_,]", "", number)) for number in found.groups())


def names_of(*names: str) -> Callable[[click.Context, click.Parameter, str], list[CompletionItem]]:
    """Completes words that begin so."""
    return lambda _context, _parameter, typed: [
        CompletionItem(name) for name in names if name.startswith(typed)
    ]


def split_commas(
    _context: click.Context, _parameter: click.Parameter, values: tuple[str, ...]
) -> tuple[str, ...]:
    """``--metric mse,mae`` is ``--metric mse --metric mae``."""
    return tuple(part.strip() for value in values for part in value.split(","))


def log_options(command: Command) -> Command:
    """The log, its format and the names of its columns."""
    for option in reversed(
        (
            click.argument("log", type=FILE),
            click.option(
                "--format",
                "form",
                type=click.Choice(FORMATS),
                help="Format of LOG; else its extension tells.",
            ),
            click.option(
                "--names",
                help="Names of the columns of a LOG without a line of them: user_id,item_id,rating.",
            ),
            click.option(
                "--user", metavar="COL", help="Column of users; else the one that is spelled so."
            ),
            click.option("--item", metavar="COL", help="Column of items."),
            click.option("--rating", metavar="COL", help="Column of ratings."),
        )
    ):
        command = option(command)
    return command


def bad_row_options(command: Command) -> Command:
    """What to do with rows that cannot be used."""
    command = click.option(
        "--duplicates",
        type=click.Choice(["raise", "last"]),
        default="raise",
        show_default=True,
        help="Refuse a (user, item) that is there twice, or keep its last row.",
    )(command)
    return click.option(
        "--on-bad",
        type=click.Choice(["raise", "drop"]),
        default="raise",
        show_default=True,
        help="Refuse rows with a missing or impossible value, or drop them and say how many.",
    )(command)


def universe_option(command: Command) -> Command:
    """How many users and items there are."""
    return click.option(
        "--universe",
        type=UniverseType(),
        metavar="UxI|log",
        help="All users and items that could have been logged: 943x1682, or log if LOG has them all.",
    )(command)


def json_option(command: Command) -> Command:
    """One object for machines."""
    return click.option(
        "--json", "as_json", is_flag=True, help="One JSON object on standard output."
    )(command)


def output_option(what: str, *, required: bool = False) -> Callable[[Command], Command]:
    """A file for the result."""
    return click.option("-o", "--output", type=OUTPUT, required=required, help=what)


def table_option(what: str, *, required: bool = False) -> Callable[[Command], Command]:
    """A file for a table, whose extension is looked at before any work is done."""
    return click.option(
        "-o",
        "--output",
        type=OUTPUT,
        required=required,
        callback=partial(_known, (".json",)),
        help=what,
    )


def result_option(what: str) -> Callable[[Command], Command]:
    """The same for a result, which can be a page too."""
    return click.option(
        "-o", "--output", type=OUTPUT, callback=partial(_known, (".json", PAGE)), help=what
    )


def html_option(what: str) -> Callable[[Command], Command]:
    """A page beside what else a command does."""
    return click.option(
        "--html",
        "html",
        type=click.Path(dir_okay=False, writable=True),
        metavar="FILE.html",
        help=what,
    )


def _known(
    also: tuple[str, ...], _context: click.Context, _parameter: click.Parameter, value: str | None
) -> str | None:
    from unskew.errors import UsageError
    from unskew.io.formats import EXTENSIONS, format_of

    try:
        if value is not None and not value.endswith(also):
            format_of(value)
    except UsageError as error:
        raise click.BadParameter(
            f"{value!r} ends in none of {', '.join([*also, *EXTENSIONS])}."
        ) from error
    return value


def seed_option(command: Command) -> Command:
    """What makes a run repeatable."""
    seed = click.IntRange(min=0)
    return click.option(
        "--seed", default=0, show_default=True, type=seed, help="Seed of everything random."
    )(command)


def talk_options(command: Command) -> Command:
    """How much is said beside the result."""
    command = click.option(
        "-q", "--quiet", is_flag=True, help="No progress, no notes; warnings and errors only."
    )(command)
    return click.option(
        "-v",
        "--verbose",
        is_flag=True,
        expose_value=False,
        callback=_remember_verbose,
        help="Show the traceback of an error.",
    )(command)


def _remember_verbose(context: click.Context, _parameter: click.Parameter, value: bool) -> None:
    if value:
        context.find_root().params["verbose"] = True


def source_of(path: str, form: str | None = None, names: str | None = None) -> Source:
    """A file by its name."""
    from unskew.io.formats import Source

    return Source.of(
        path, format=form, columns=tuple(each.strip() for each in names.split(",")) if names else ()
    )  # type: ignore[arg-type]


def optional_source(path: str | None) -> Source | None:
    """A file, where one is named."""
    return None if path is None else source_of(path)


def columns_of(user: str | None, item: str | None, rating: str | None) -> Wanted:
    """The columns that are named."""
    from unskew.io.log_files import Wanted

    return Wanted(user, item, rating)


def named_file(text: str) -> tuple[str, str]:
    """``NAME=FILE``, or a file that is called by its own name."""
    name, sign, path = text.partition("=")
    if sign and name and path:
        return name, path
    stem = re.split(r"[/\\]", text)[-1].removesuffix(".gz")
    return stem.rpartition(".")[0] or stem, text
