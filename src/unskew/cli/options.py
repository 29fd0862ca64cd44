"""Options that several commands share, and how their values are parsed.

The destination of an option is the name of the argument in the library, so that messages of the
library can name the option. A registry is read only when its names are shown: importing this
module loads none of them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.shell_completion import CompletionItem

from unskew.cli.printing import PAGE
from unskew.datasets import DATASETS
from unskew.errors import UsageError
from unskew.estimators import ESTIMATORS
from unskew.io.sources import EXTENSIONS, FORMATS, choose_format, is_remote
from unskew.metrics import METRICS
from unskew.models import PRESETS, RECOMMENDERS
from unskew.paper import EXPERIMENTS, WORLDS
from unskew.registry import Declaration
from unskew.workflows.gates import Gate
from unskew.workflows.requests import list_named_models

Decorated = TypeVar("Decorated", bound=Callable[..., Any])
Decorator = Callable[[Decorated], Decorated]

if TYPE_CHECKING:
    AnyParameter = click.ParamType[Any]
else:
    AnyParameter = click.ParamType  # not generic in older versions


class InputFile(click.Path):
    """A file that exists, or an address such as ``s3://bucket/log.csv``."""

    def convert(self, value: Any, param: Any, ctx: Any) -> Any:
        return value if is_remote(str(value)) else super().convert(value, param, ctx)


INPUT_FILE = InputFile(exists=True, dir_okay=False, allow_dash=True)
OUTPUT_FILE = click.Path(dir_okay=False, allow_dash=True, writable=True)
FOLDER = click.Path(file_okay=False)
UNIVERSE = re.compile(r"([0-9][0-9_,]*)\s*[xX×*]\s*([0-9][0-9_,]*)")

# Names that registries declare


@dataclass(frozen=True)
class DeclaredName(AnyParameter):
    """A name from a registry. The library checks it, and suggests a similar name."""

    title: str
    """Heading of the names in the help text."""
    list_names: Callable[[], Mapping[str, str]]
    """Returns a one-line summary for each name."""
    is_listed: bool = True
    """Whether the help text lists the names."""
    name = "name"

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        return [
            CompletionItem(name, help=summary)
            for form, summary in self.list_names().items()
            for name in _expand_form(form)
            if name.startswith(incomplete)
        ]


def _expand_form(form: str) -> list[str]:
    """Examples of the names that a form stands for.

    >>> _expand_form("mse"), _expand_form("cg@k"), _expand_form("dcg[@k]")
    (['mse'], ['cg@10'], ['dcg', 'dcg@10'])
    """
    stem, is_optional, _ = form.partition("[")
    return [stem, f"{stem}@10"] if is_optional else [form.replace("@k", "@10")]


def _list_metrics() -> dict[str, str]:
    """Metrics of ratings first, those for random tests last. ``dcg[@k]``: ``dcg`` or ``dcg@k``."""
    suffixes = {"never": "", "optional": "[@k]", "always": "@k"}
    ordered = sorted(
        METRICS.values(),
        key=lambda each: (getattr(each.target, "compares_logged_cells", False), each.target.ranks),
    )
    return {
        f"{each.name}{suffixes[each.traits.get('top', 'never')]}": each.summary for each in ordered
    }


def _list_estimators() -> dict[str, str]:
    """Estimators that need nothing but a log, predictions and propensities."""
    return _summarize(each for each in ESTIMATORS.values() if not each.target.imputes)


def list_learners() -> dict[str, str]:
    """Recommenders that can be fitted to a log with the propensities of its cells."""
    learners: list[Declaration[Any]] = [*RECOMMENDERS.values(), *PRESETS.values()]
    return _summarize(
        each
        for each in learners
        if not (each.traits.get("needs_all_propensities") or each.traits.get("needs_mcar"))
    )


def _list_experiments() -> dict[str, str]:
    return _summarize(EXPERIMENTS.values()) | {"all": "All of them."}


def _summarize(declarations: Iterable[Declaration[Any]]) -> dict[str, str]:
    return {each.name: each.summary for each in declarations}


METRIC = DeclaredName("Metrics", _list_metrics)
ESTIMATOR = DeclaredName("Estimators", _list_estimators)
LEARNER = DeclaredName("Learners", list_learners)
PROPENSITY_MODEL = DeclaredName("Propensity models", list_named_models)
QUICK_MODEL = DeclaredName("Propensity models", partial(list_named_models, with_features=False))
"""Without features, so that other commands can fit it on the way."""
DATASET = DeclaredName("Data sets", lambda: _summarize(DATASETS.values()))
EXPERIMENT = DeclaredName("Experiments", _list_experiments)
WORLD = DeclaredName("Data", lambda: _summarize(WORLDS.values()))


# Other types of values


class UniverseType(AnyParameter):
    """``943x1682`` as a pair of numbers, or ``log``."""

    name = "UxI"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if value == "log" or isinstance(value, tuple):
            return value
        sizes = UNIVERSE.fullmatch(value.strip())
        if sizes is None:
            self.fail(f"{value!r} is neither USERSxITEMS, such as 943x1682, nor log.", param, ctx)
        return tuple(int(re.sub("[_,]", "", size)) for size in sizes.groups())


class MaxWeightType(AnyParameter):
    """The largest weight, as a transform that clips larger ones."""

    name = "W"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        from unskew.estimators.transforms import Clip

        return Clip(click.FLOAT(value, param, ctx)) if isinstance(value, str) else value


def split_commas(
    _context: click.Context, parameter: click.Parameter, value: Any
) -> tuple[str, ...]:
    """``--metric mse,mae`` means ``--metric mse --metric mae``."""
    texts = value if parameter.multiple else (value,) if value else ()
    return tuple(part.strip() for text in texts for part in text.split(","))


def combine_options(*options: Decorator[Any]) -> Decorator[Any]:
    """Several options as one decorator, listed in this order."""

    def decorate(command: Decorated) -> Decorated:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


# Options


def choice_option(name: str, values: Sequence[str], text: str) -> Decorator[Any]:
    """An option that takes one of these values; the first is the default."""
    return click.option(name, type=click.Choice(values), default=values[0], help=text)


def level_option(text: str) -> Decorator[Any]:
    return click.option("--level", type=float, default=0.95, help=text)


def fail_option(text: str) -> Decorator[Any]:
    """``--fail-if EXPR``, a limit on a number of the result; ``text`` says when it fails."""
    return click.option(
        "--fail-if",
        "gates",
        multiple=True,
        metavar="EXPR",
        callback=_parse_gates,
        help=f"Exit with 4 if {text}",
    )


def _parse_gates(
    _context: click.Context, _parameter: click.Parameter, texts: tuple[str, ...]
) -> tuple[Gate, ...]:
    return tuple(map(Gate.parse, texts))


def share_option(name: str, text: str) -> Decorator[Any]:
    """An option whose value is the share of a part of a log, in (0, 1]."""
    kind = click.FloatRange(min=0, max=1, min_open=True)
    return click.option(name, type=kind, metavar="SHARE", help=text)


def prediction_option(*, required: bool = False) -> Decorator[Any]:
    text = "A model: a column of LOG with its predictions."
    return click.option("--prediction", multiple=True, required=required, metavar="COL", help=text)


json_option = click.option(
    "--json", "as_json", is_flag=True, help="Print one JSON object to standard output."
)
seed_option = click.option(
    "--seed",
    "random_state",
    default=0,
    type=click.IntRange(min=0),
    metavar="N",
    help="Seed of all random numbers.",
)
ranking_engine_option = click.option(
    "--engine",
    default="auto",
    metavar="NAME",
    help="Where saved models rank items: local, or gpu if their scores are products of factors. "
    "The default auto is local.",
)
universe_option = click.option(
    "--universe",
    type=UniverseType(),
    metavar="UxI",
    help="Number of all users and items that could have been in the log, such as 943x1682; "
    "or log, if LOG has all of them.",
)
list_option = partial(click.option, multiple=True, metavar="NAME", callback=split_commas)
metric_option = list_option(
    "--metric",
    "metrics",
    type=METRIC,
    default=["mse", "mae"],
    help="What to estimate; see the list below.",
)
estimator_option = list_option(
    "--estimator",
    "estimators",
    type=ESTIMATOR,
    default=["naive", "ips", "snips"],
    help="How to estimate it; see the list below.",
)
relevance_option = click.option(
    "--relevance-threshold",
    type=float,
    metavar="R",
    help="Ratings of at least R are relevant; for metrics that count relevant items.",
)
max_weight_option = partial(
    click.option,
    "--max-weight",
    "weight_transform",
    type=MaxWeightType(),
    metavar="W",
    help="Limit the weights 1/P to W.",
)
mcar_option = click.option(
    "--mcar",
    type=INPUT_FILE,
    help="Ratings of cells drawn at random, for models that learn from them.",
)
propensity_options = combine_options(
    click.option(
        "--propensity",
        "propensities",
        type=QUICK_MODEL,
        metavar="COL|FILE|NAME",
        help="A column of LOG, a .unskew file, or the name of a model to fit now.",
    ),
    mcar_option,
)
feature_options = combine_options(
    *(
        click.option(
            f"--{kind}-features",
            type=INPUT_FILE,
            help=f"One row for each {kind}: the id, and features.",
        )
        for kind in ("user", "item")
    )
)
impression_log_options = combine_options(
    click.argument("log", type=INPUT_FILE),
    click.option(
        "--format",
        type=click.Choice(FORMATS),
        help="Format of LOG; by default its extension tells.",
    ),
    click.option(
        "--names",
        "columns",
        metavar="COL,COL,...",
        callback=split_commas,
        help="Names of the columns of LOG if it has no header: user_id,item_id,rating.",
    ),
    click.option(
        "--user", metavar="COL", help="Column of users; by default one with a common name."
    ),
    click.option("--item", metavar="COL", help="Column of items."),
)
log_options = combine_options(
    impression_log_options,
    click.option(
        "--rating",
        metavar="COL",
        help="Column of ratings; 1 if every row is a click and there is no such column.",
    ),
)
impression_options = combine_options(
    click.option("--request", metavar="COL", help="Column of requests."),
    click.option("--position", metavar="COL", help="Column of positions; the top is 1."),
    click.option("--reward", metavar="COL", help="Column of rewards, such as clicks."),
    click.option("--probability", metavar="COL", help="Column of logged probabilities."),
    click.option(
        "--probability-is",
        type=click.Choice(["step", "marginal", "slate", "product"]),
        help="What they are the probability of: the item given those above it, the item at its "
        "position over all slates, the whole slate, or independent slots.",
    ),
    click.option("--repeats", is_flag=True, help="A slate may show an item more than once."),
)


def timestamp_option(text: str) -> Decorator[Any]:
    return click.option("--timestamp", metavar="COL", help=text)


on_bad_option = choice_option(
    "--on-bad",
    ["raise", "drop"],
    "Stop at rows with a missing or invalid value, or drop and count them.",
)
bad_row_options = combine_options(
    on_bad_option,
    choice_option(
        "--duplicates",
        ["raise", "last"],
        "Stop if a (user, item) occurs twice, or keep its last row.",
    ),
)


def _collect_setting(context: click.Context, parameter: click.Parameter, value: Any) -> None:
    settings = context.params.setdefault("settings", {})
    if value is not None:
        settings[parameter.name] = value


def _parse_settings(
    context: click.Context, _parameter: click.Parameter, texts: tuple[str, ...]
) -> None:
    settings = context.params.setdefault("settings", {})
    for text in texts:
        name, separator, value = (part.strip() for part in text.partition("="))
        if not (name and separator and value):
            raise click.BadParameter(f"{text!r} must be NAME=VALUE, such as ridge=2.")
        settings[name] = parse_value(value)


class SettingOption(click.Option):
    """An option for a setting of a model. Its value goes into the parameter ``settings``."""

    def __init__(self, *names: Any, **attributes: Any) -> None:
        super().__init__(*names, expose_value=False, callback=_collect_setting, **attributes)


set_option = click.option(
    "--set",
    "other_settings",
    multiple=True,
    metavar="NAME=VALUE",
    expose_value=False,
    callback=_parse_settings,
    help="Any other setting of the model, by its name in Python.",
)


def data_option(text: str) -> Decorator[Any]:
    return click.option("--data", "path", type=FOLDER, metavar="DIR", help=text)


def output_option(text: str, *, required: bool = False) -> Decorator[Any]:
    """``-o FILE`` for a file of one fixed format, such as a model."""
    return click.option("-o", "--output", type=OUTPUT_FILE, required=required, help=text)


def table_option(text: str, *, required: bool = False, page: bool = False) -> Decorator[Any]:
    """``-o FILE`` for a table, whose extension is checked before any work is done.

    With ``page`` the file may also be an HTML page of the result.
    """
    other_endings = (".json", PAGE) if page else (".json",)

    def check(_context: click.Context, _parameter: click.Parameter, value: Any) -> Any:
        if value is not None:
            _check_extension(value, other_endings)
        return value

    return click.option(
        "-o", "--output", type=OUTPUT_FILE, required=required, callback=check, help=text
    )


def table_pair_option(text: str) -> Decorator[Any]:
    """``-o FILE FILE`` for two tables; their extensions are checked before any work is done."""

    def check(_context: click.Context, _parameter: click.Parameter, value: Any) -> Any:
        for name in value:
            _check_extension(name)
        return value

    return click.option(
        "-o",
        "--output",
        nargs=2,
        type=click.Path(dir_okay=False, writable=True),
        required=True,
        metavar="TRAIN TEST",
        callback=check,
        help=text,
    )


def page_option(text: str) -> Decorator[Any]:
    """``-o FILE.html``, or ``--html FILE.html``, for a command that writes nothing but a page."""

    def check(_context: click.Context, _parameter: click.Parameter, value: Any) -> Any:
        if value is not None and not value.endswith(PAGE):
            raise click.BadParameter(f"{value!r} must end in {PAGE}.")
        return value

    file = click.Path(dir_okay=False, writable=True)
    return click.option("-o", "--output", "--html", "output", type=file, callback=check, help=text)


def _check_extension(name: str, other_endings: tuple[str, ...] = ()) -> None:
    """Raise an error unless the extension is one of a table, or one of ``other_endings``."""
    try:
        if not name.endswith(other_endings):
            choose_format(name)
    except UsageError as error:
        endings = ", ".join([*other_endings, *EXTENSIONS])
        raise click.BadParameter(f"{name!r} must end in one of {endings}.") from error


def _set_verbose(context: click.Context, _parameter: click.Parameter, value: bool) -> None:
    if value:
        context.find_root().params["verbose"] = True


verbosity_options = combine_options(
    click.option(
        "-v",
        "--verbose",
        is_flag=True,
        expose_value=False,
        callback=_set_verbose,
        help="Show the traceback of an error.",
    ),
    click.option(
        "-q", "--quiet", is_flag=True, help="Show warnings and errors, but no progress or notes."
    ),
)


def parse_named_files(
    _context: click.Context, _parameter: click.Parameter, texts: tuple[str, ...]
) -> dict[str, str]:
    """Files by name, from ``NAME=FILE`` or from ``FILE``, whose name is then its stem."""
    files = {}
    for text in texts:
        name, separator, path = text.partition("=")
        is_named = bool(name and separator and path) and not Path(text).is_file()
        if not is_named:
            stem = re.split(r"[/\\]", text)[-1].removesuffix(".gz")
            name, path = stem.rpartition(".")[0] or stem, text
        if path != "-" and not Path(path).is_file():
            read_as = f" ({text!r} was read as NAME=FILE)" if is_named else ""
            raise click.BadParameter(f"there is no file {path!r}{read_as}.")
        if name in files:
            raise click.BadParameter(
                f"two files have the name {name!r}. Give them different names: NAME=FILE."
            )
        files[name] = path
    return files


def parse_named_columns(
    _context: click.Context, _parameter: click.Parameter, texts: tuple[str, ...]
) -> dict[str, str]:
    """Columns by name, from ``NAME=COL`` or from ``COL``, which is then its own name."""
    columns: dict[str, str] = {}
    for text in texts:
        name, separator, column = text.partition("=")
        name, column = (name, column) if separator and name and column else (text, text)
        if name in columns:
            raise click.BadParameter(
                f"two columns have the name {name!r}. Give them different names: NAME=COL."
            )
        columns[name] = column
    return columns


def parse_arms(
    _context: click.Context, _parameter: click.Parameter, texts: tuple[str, ...]
) -> tuple[tuple[str, float | None], ...]:
    """Columns and shares, from ``SHARE=COL`` or from ``COL``, which has no share."""
    arms: list[tuple[str, float | None]] = []
    for text in texts:
        share, separator, column = text.partition("=")
        try:
            arms.append((column, float(share)) if separator else (text, None))
        except ValueError as error:
            raise click.BadParameter(f"{share!r} must be a number, as in 0.5=COL.") from error
    return tuple(arms)


def split_numbers(
    _context: click.Context, _parameter: click.Parameter, value: str | None
) -> tuple[float, ...]:
    """``1,0.5`` as numbers; nothing without a value."""
    try:
        return tuple(float(part) for part in (value or "").split(",") if part.strip())
    except ValueError as error:
        raise click.BadParameter(f"{value!r} must be numbers with commas.") from error


def parse_value(text: str) -> Any:
    """A whole number, a decimal number, or the text itself.

    >>> parse_value("20"), parse_value("0.5"), parse_value("squared")
    (20, 0.5, 'squared')
    """
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
