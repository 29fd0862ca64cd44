"""Propensities of a log: a column of its file, a saved model, or a model that is fitted now."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import replace
from inspect import signature
from pathlib import Path
from typing import Any

import numpy as np

from unskew.data.ids import missing_ids
from unskew.data.propensities import PropensitiesLike, as_propensities
from unskew.data.ratings import Ratings
from unskew.diagnostics.diagnose import diagnose
from unskew.diagnostics.result import Diagnosis
from unskew.errors import ColumnError, UnknownNameError, UnskewWarning, UsageError
from unskew.io.files import read_table
from unskew.io.log_files import FileLog, read_numbers
from unskew.io.table import FileTable
from unskew.propensity import PROPENSITY_MODELS
from unskew.propensity.model import PropensityModel
from unskew.types import Vector
from unskew.workflows.gates import Numbers
from unskew.workflows.inputs import (
    FeatureTables,
    count_unknown,
    load_model,
    match_log_ids,
    read_log,
)
from unskew.workflows.requests import (
    DiagnosisRequest,
    LogRequest,
    PropensityRequest,
    WeightedLogRequest,
)

MODEL_EXTENSION = ".unskew"


def fit_propensity(request: PropensityRequest, *, verbose: bool = False) -> PropensityModel:
    """Fit the requested model to the log."""
    features = FeatureTables.read(request.user_features, request.item_features)
    log = read_log(request, features=features)
    return fit_named_model(request, log.ratings, features, verbose=verbose)


def list_named_models(*, with_features: bool = True) -> dict[str, str]:
    """Models that can be fitted by name, each with its summary.

    These are all but wrappers and models that cannot be saved. ``with_features=False`` leaves out
    those that need features of users and items.
    """
    unusable = {"is_wrapper", "has_code"} | (set() if with_features else {"needs_features"})
    return {
        name: declaration.summary
        for name, declaration in PROPENSITY_MODELS.items()
        if not unusable & declaration.traits.keys()
    }


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
        raise UnknownNameError("propensity model", name, list_named_models())
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
    if traits.get("needs_mcar"):
        sample = None if request.mcar is None else read_numbers(read_table(request.mcar), "rating")
        return model.fit(log, mcar=sample)  # type: ignore[call-arg]
    if request.mcar is not None:
        raise UsageError(
            f"the propensity model {name!r} does not use a random sample.",
            parameter="mcar",
            value=request.mcar,
            remedy="Leave `mcar` out.",
        )
    return model.fit(log)


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


def load_propensity(path: str) -> PropensityModel:
    return load_model(path, PropensityModel, "propensity fit")


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
        text.endswith(MODEL_EXTENSION) or text in list_named_models(with_features=False)
    )


def find_propensities(request: WeightedLogRequest, log: FileLog) -> PropensitiesLike | None:
    """The propensities of the log's rows; None if the request has none and there is no column."""
    text = request.propensities or log.columns.propensity
    source = None if text is None else _find_source(text, log, request)
    if request.mcar is not None and (text in log.table.names or text is None or _is_file(text)):
        raise UsageError(
            "`mcar=...` is a sample for a propensity model that is fitted now.",
            parameter="mcar",
            value=request.mcar,
            remedy="Add `propensities='nb'`, or leave `mcar` out.",
        )
    if isinstance(source, PropensityModel):
        return predict_propensities(source, log.ratings)
    return source


def _find_source(
    text: str, log: FileLog, request: WeightedLogRequest | DiagnosisRequest
) -> Vector | PropensityModel:
    """The column, the saved model, or a fit of the model that ``text`` names."""
    if find_propensity_column(log.table, text) is not None:
        return log.numbers(text)
    if _is_file(text):
        return load_propensity(text)
    fit = PropensityRequest(
        log=request.log, model=text, mcar=request.mcar, random_state=request.random_state
    )
    return fit_named_model(fit, log.ratings)


def _is_file(text: str) -> bool:
    return text.endswith(MODEL_EXTENSION)


def predict_propensities(model: PropensityModel, log: Ratings) -> Vector:
    """The propensity of each cell; ids may be text in the log and numbers in the model."""
    return as_propensities(match_log_ids(log, model), model).values


def apply_propensity(request: LogRequest, path: str, column: str) -> dict[str, Any]:
    """The columns of the log's file and one more: the propensities that a saved model predicts."""
    model, log = load_propensity(path), read_log(request)
    if column in log.table.names:
        raise ColumnError(
            f"{log.table.name} already has a column {column!r}.",
            parameter="column",
            value=column,
            remedy="Choose another name, such as `column='propensity_2'`.",
        )
    values = predict_propensities(model, log.ratings)
    return {name: _read_column(log, name) for name in log.table.names} | {column: values}


def _read_column(log: FileLog, name: str) -> Any:
    """A column as it is in the file; text is read as numbers if all of it is decimal numbers."""
    values = log.ids(name)
    if values.dtype.kind != "O" or missing_ids(values).any():
        return values
    numbers = log.numbers(name)
    has_integers = any(isinstance(value, int) for value in values)
    return numbers if np.isfinite(numbers).all() and not has_integers else values


def diagnose_log(request: DiagnosisRequest) -> Diagnosis:
    """Check columns of the log's file, saved models, or models that are fitted now."""
    features = FeatureTables.read(request.user_features, request.item_features)
    is_known = _warn_about_unknown_features(request, features)
    log = read_log(request, features=features if is_known else None)
    sources: dict[str, PropensitiesLike] = {}
    for text in request.propensities:
        name = Path(text).name.removesuffix(MODEL_EXTENSION) if _is_file(text) else text
        if name in sources:
            raise UsageError(
                f"two propensities have the name {name!r}.",
                parameter="propensities",
                value=request.propensities,
                remedy="Rename one of the files.",
            )
        needs_sample = text in PROPENSITY_MODELS and "needs_mcar" in PROPENSITY_MODELS[text].traits
        source = _find_source(text, log, request if needs_sample else replace(request, mcar=None))
        sources[name] = source
        if isinstance(source, PropensityModel):
            matched = match_log_ids(log.ratings, source)
            sources[name] = source if matched is log.ratings else source.predict(matched)
    return diagnose(
        log.ratings,
        sources,
        user_features=features.frame("user", log.ratings.users),
        item_features=features.frame("item", log.ratings.items),
        random_state=request.random_state,
    )


def _warn_about_unknown_features(request: DiagnosisRequest, features: FeatureTables) -> bool:
    """Whether all saved models know all ids that the features list; a warning if not."""
    users, items = features.ids("user"), features.ids("item")
    incomplete = [
        path
        for path in filter(_is_file, request.propensities)
        for model in [load_propensity(path)]
        if (users is not None and count_unknown(users, model.users_))
        or (items is not None and count_unknown(items, model.items_))
    ]
    if incomplete:
        warnings.warn(
            UnskewWarning(
                f"{', '.join(incomplete)} was fitted without some of the users and items in the "
                "files of features. All numbers are over the users and items of the log only.",
                remedy="Fit it again with `user_features=...` and `item_features=...`.",
            ),
            stacklevel=3,
        )
    return not incomplete


def list_numbers(diagnosis: Diagnosis) -> Numbers:
    """The numbers that gates can test: each measure by model; ``ess`` is the sample size."""
    measures = {row.name: row.measures() for row in diagnosis.rows}
    numbers: dict[str, dict[str, float | None]] = {}
    for name in next(iter(measures.values())):
        values = {model: row[name] for model, row in measures.items()}
        if not any(isinstance(value, str) for value in values.values()):
            numbers[name] = {
                model: float(value) if isinstance(value, (int, float)) else None
                for model, value in values.items()
            }
    return {"ess": numbers["effective_sample_size"]} | numbers
