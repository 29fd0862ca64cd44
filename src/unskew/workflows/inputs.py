"""What workflows read: logs, features of users and items, saved models, and propensities.

Propensities are a column of the log's file, a saved model, or a model that is fitted now.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib.util import find_spec
from inspect import signature
from typing import Any, Literal, TypeAlias, TypeVar

import numpy as np

from unskew.data.frames import make_frame
from unskew.data.ids import Ids, find_codes, missing_ids
from unskew.data.parts import Part
from unskew.data.propensities import Propensities, PropensitiesLike
from unskew.data.ratings import Ratings
from unskew.errors import BadFileError, ColumnError, UnknownNameError, UnskewWarning, UsageError
from unskew.io.files import read_table
from unskew.io.log_files import (
    ColumnNames,
    FileLog,
    extract_log,
    find_id_rows,
    match_id_types,
    read_ids,
    read_numbers,
)
from unskew.io.sources import FileSource
from unskew.io.table import FileTable
from unskew.loading import load
from unskew.models.recommender import Recommender
from unskew.propensity import PROPENSITY_MODELS
from unskew.propensity.cross_fitted import CrossFittedPropensity
from unskew.propensity.model import PropensityModel
from unskew.propensity.wrapper import ScaledPropensity
from unskew.types import Vector
from unskew.workflows.requests import (
    FeatureRequest,
    LogRequest,
    PropensityRequest,
    SampledLogRequest,
    WeightedLogRequest,
    list_named_models,
)

MODEL_EXTENSION = ".unskew"

Model = TypeVar("Model")
IdKind: TypeAlias = Literal["user", "item"]


@dataclass(frozen=True, slots=True)
class FeatureTables:
    """Features of users and of items, each a table with a column of ids; None without a file."""

    user: FileTable | None = None
    item: FileTable | None = None

    @classmethod
    def read(cls, request: FeatureRequest) -> FeatureTables:
        files = (request.user_features, request.item_features)
        return cls(*(None if file is None else read_table(file) for file in files))

    def ids(self, kind: IdKind) -> Ids | None:
        """The ids that a table lists; None without a table."""
        table = getattr(self, kind)
        return None if table is None else read_ids(table, kind)

    def frame(self, kind: IdKind, ids: Ids) -> Any:
        """A frame with one row for each of ``ids``, in their order; None without a table.

        A column is numeric if all its values are numbers, else categorical.
        """
        table = getattr(self, kind)
        if table is None:
            return None
        rows, key = find_id_rows(table, kind, ids), table.find_column(kind)
        columns = {f"{kind}_id": ids.tolist()}
        for name, column in table.columns.items():
            if name != key:
                numbers, values = column.numbers()[rows], column.ids()[rows]
                is_numeric = bool(np.isfinite(numbers[~missing_ids(values)]).all())
                texts = [None if value is None else str(value) for value in values.tolist()]
                columns[name] = numbers.tolist() if is_numeric else texts
        return make_frame(columns, "pyarrow" if find_spec("pyarrow") else None)


def open_log(request: LogRequest) -> FileSource:
    """The file of the log; nothing is read yet."""
    return FileSource.from_name(request.log, format=request.format, columns=request.columns)


def read_log_table(request: LogRequest, source: FileSource | str | None = None) -> FileTable:
    """The rows of the log, or of another file of ratings with the same columns.

    If the rating is a number instead of a column, every row has this rating.
    """
    return read_table(source or open_log(request)).with_constant(request.rating)


def read_log(
    request: LogRequest,
    table: FileTable | None = None,
    *,
    columns: ColumnNames | None = None,
    features: FeatureTables | None = None,
) -> FileLog:
    """The log of a request, with a warning about rows that were dropped.

    ``table`` saves reading the file again. ``columns`` names columns in addition to user,
    item and rating. Users and items that only ``features`` lists are users and items of the log
    without ratings.
    """
    listed = features or FeatureTables()
    log = extract_log(
        read_log_table(request) if table is None else table,
        replace(
            columns or ColumnNames(), user=request.user, item=request.item, rating=request.rating
        ),
        universe=request.universe,
        on_bad=request.on_bad,
        duplicates=request.duplicates,
        users=listed.ids("user"),
        items=listed.ids("item"),
    )
    for note in log.notes:
        warnings.warn(UnskewWarning(note), stacklevel=3)
    return log


def match_log_ids(log: Ratings, model: Any) -> Ratings:
    """The log with ids of the type that a fitted model has, numbers or text; itself if it has."""
    return _match_ids(log, model.users_, model.items_)


def match_ids(log: Ratings, other: Ratings) -> Ratings:
    """The log with ids of the type that another log has, numbers or text; itself if it has."""
    return _match_ids(log, other.users, other.items)


def _match_ids(log: Ratings, like_users: Ids, like_items: Ids) -> Ratings:
    users = match_id_types(log.users, like_users)
    items = match_id_types(log.items, like_items)
    is_same = users is log.users and items is log.items
    return log if is_same else replace(log, users=users, items=items)


def as_part(log: FileLog, share: float | None) -> FileLog:
    """The log as a random part with this share of a larger log; None leaves it as it is."""
    if share is None:
        return log
    part = Part(np.arange(len(log.ratings)), len(log.ratings), share, "random")
    return replace(log, ratings=replace(log.ratings, part=part))


def count_unknown(ids: Ids, vocabulary: Ids) -> int:
    """The number of ids that are not in the vocabulary, whether as numbers or as text."""
    return int((find_codes(match_id_types(ids, vocabulary), vocabulary) < 0).sum())


@contextmanager
def refuse_overflow(name: str) -> Iterator[None]:
    """Raise an error if a sum of NumPy numbers exceeds the largest float; ``name`` is the file."""
    try:
        with np.errstate(over="raise"):
            yield
    except FloatingPointError as error:
        raise BadFileError(
            f"{name}: a rating, prediction or weight is too large: a sum of them or of their "
            "squares exceeds 1.8e308.",
            remedy="Look for values such as 1e200 in these columns, and drop or correct their "
            "rows.",
        ) from error


# Models


def load_model(path: str, kind: type[Model], command: str) -> Model:
    """A saved model of this kind; an error that names the command that writes such files."""
    model = load(path)
    if not isinstance(model, kind):
        raise UsageError(
            f"{path} has a {type(model).__name__}, not a {kind.__name__}.",
            value=path,
            remedy=f"Use a file that `unskew {command}` wrote.",
        )
    return model


def build_model(
    kind: Any, settings: Mapping[str, Any], *, random_state: int = 0, verbose: bool = False
) -> Any:
    """A model that is not fitted; an error if it does not have one of the settings.

    Only models that have ``random_state`` and ``verbose`` get them.
    """
    valid = signature(kind).parameters
    unknown = next((name for name in settings if name not in valid), None)
    if unknown is not None:
        names = f"settings: {', '.join(valid)}" if valid else "no settings"
        raise UsageError(
            f"{kind.__name__} does not have the setting `{unknown}`; it has {names}.",
            parameter=unknown,
            value=settings[unknown],
        )
    optional = {"random_state": random_state, "verbose": verbose}
    return kind(
        **{name: value for name, value in optional.items() if name in valid} | dict(settings)
    )


# Propensities


def read_sample(path: str) -> Ratings | Vector:
    """Ratings of random cells: with users and items if the file names them, else the ratings."""
    table = read_table(path)
    rating = read_numbers(table, "rating")
    try:
        users, items = (read_ids(table, role) for role in ("user", "item"))
    except ColumnError:
        return rating
    return Ratings.from_arrays(users, items, rating)


def find_propensities(request: WeightedLogRequest, log: FileLog) -> PropensitiesLike | None:
    """The propensities of the log's rows; None if the request has none and there is no column.

    The request names a column, a file of propensities or of a fitted model, or a model to fit.
    """
    text = request.propensities or log.columns.propensity
    source = None if text is None else find_propensity_source(text, log, request)
    is_fitted_here = not (text is None or text in log.table.names or is_model_file(text))
    if request.mcar is not None and not is_fitted_here:
        raise UsageError(
            "`mcar=...` is a sample to fit a propensity model to, but no model is fitted here.",
            parameter="mcar",
            value=request.mcar,
            remedy="Add `propensities='nb'`, or leave `mcar` out.",
        )
    if isinstance(source, PropensityModel):
        return predict_propensities(source, log.ratings)
    return source


def predict_propensities(model: PropensityModel, log: Ratings) -> Propensities:
    """The propensity of each cell; ids may be text in the log and numbers in the model."""
    return model.predict(match_log_ids(log, model))


def find_propensity_column(table: FileTable, text: str | None) -> str | None:
    """The column that ``text`` names; without it, the one with a common name for propensities.

    None if ``text`` is a file or a model instead, or if there is no such column.
    """
    if text is None:
        has_column = table.has_column_for("propensity")
        return table.find_column("propensity") if has_column else None
    if text in table.names:
        return text
    if is_model(text):
        return None
    raise ColumnError(
        f"{table.name}: {text!r} is neither a column ({', '.join(map(repr, table.names))}), "
        f"nor a file that ends in {MODEL_EXTENSION}, "
        f"nor a propensity model ({', '.join(list_named_models(with_features=False))}).",
        parameter="propensities",
        value=text,
    )


def is_model(text: str | None) -> bool:
    """Whether a text names a saved model or one that can be fitted, if it is not a column."""
    return text is not None and (
        is_model_file(text) or text in list_named_models(with_features=False)
    )


def find_propensity_source(
    text: str, log: FileLog, request: SampledLogRequest
) -> Vector | PropensityModel:
    """The column, the saved model, or a fit of the model that ``text`` names."""
    if find_propensity_column(log.table, text) is not None:
        return log.numbers(text)
    if is_model_file(text):
        return load_propensity(text)
    fit = PropensityRequest(
        log=request.log, model=text, mcar=request.mcar, random_state=request.random_state
    )
    return fit_named_model(fit, log.ratings)


def fit_named_model(
    request: PropensityRequest,
    log: Ratings,
    features: FeatureTables | None = None,
    *,
    verbose: bool = False,
) -> PropensityModel:
    """Fit the requested model to a log that was read already."""
    name = request.model
    if name not in list_named_models():
        raise UnknownNameError("propensity model", name, list_named_models(), parameter="model")
    tables, traits = features or FeatureTables(), PROPENSITY_MODELS[name].traits
    frames = {
        "user_features": tables.frame("user", log.users),
        "item_features": tables.frame("item", log.items),
    }
    passed = {parameter: frame for parameter, frame in frames.items() if frame is not None}
    if passed and not traits.get("takes_features"):
        models = [
            other
            for other in list_named_models()
            if "takes_features" in PROPENSITY_MODELS[other].traits
        ]
        raise UsageError(
            f"the propensity model {name!r} does not use features of users or items.",
            parameter=next(iter(passed)),
            remedy=f"Leave them out, or choose one of {', '.join(models)}.",
        )
    model: PropensityModel = build_model(
        PROPENSITY_MODELS[name].target,
        {**request.settings, **passed},
        random_state=request.random_state,
        verbose=verbose,
    )
    if request.cross_fit is not None:
        model = CrossFittedPropensity(
            model, n_folds=request.cross_fit, random_state=request.random_state
        )
    if request.scale:
        model = ScaledPropensity(model, random_state=request.random_state)
    if traits.get("needs_mcar"):
        sample = None if request.mcar is None else read_sample(request.mcar)
        return model.fit(log, mcar=sample)  # type: ignore[call-arg]
    if request.mcar is not None:
        raise UsageError(
            f"the propensity model {name!r} does not use a random sample.",
            parameter="mcar",
            value=request.mcar,
            remedy="Leave `mcar` out.",
        )
    return model.fit(log)


def load_recommender(path: str) -> Recommender:
    return load_model(path, Recommender, "train")  # type: ignore[type-abstract]


def load_propensity(path: str) -> PropensityModel:
    return load_model(path, PropensityModel, "propensity fit")


def is_model_file(text: str) -> bool:
    return text.endswith(MODEL_EXTENSION)
