"""The work of ``unskew propensity``: fit a model, add its propensities to a log, diagnose them."""

from __future__ import annotations

import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

from unskew.data.propensities import PropensitiesLike
from unskew.data.ratings import Ratings
from unskew.diagnostics.diagnose import diagnose
from unskew.diagnostics.result import Diagnosis
from unskew.errors import ColumnError, UnskewWarning, UsageError
from unskew.propensity import PROPENSITY_MODELS
from unskew.propensity.model import PropensityModel
from unskew.workflows import inputs
from unskew.workflows.gates import Numbers
from unskew.workflows.requests import DiagnosisRequest, LogRequest, PropensityRequest


def fit_propensity(request: PropensityRequest, *, verbose: bool = False) -> PropensityModel:
    """Fit the requested model to the log."""
    features = inputs.FeatureTables.read(request)
    log = inputs.as_part(inputs.read_log(request, features=features), request.share)
    return inputs.fit_named_model(request, log.ratings, features, verbose=verbose)


def apply_propensity(request: LogRequest, path: str, column: str) -> dict[str, Any]:
    """The columns of the log's file and one more: the propensities that a saved model predicts."""
    model, log = inputs.load_propensity(path), inputs.read_log(request)
    if column in log.table.names:
        raise ColumnError(
            f"{log.table.name} already has a column {column!r}.",
            parameter="column",
            value=column,
            remedy="Choose another name, such as `column='propensity_2'`.",
        )
    values = inputs.predict_propensities(model, log.ratings).values
    return {name: log.values(name) for name in log.table.names} | {column: values}


def diagnose_log(request: DiagnosisRequest) -> Diagnosis:
    """Check columns of the log's file, saved models, or models that are fitted now."""
    features = inputs.FeatureTables.read(request)
    is_known = _warn_about_unknown_features(request, features)
    log = inputs.read_log(request, features=features if is_known else None)
    sources: dict[str, PropensitiesLike] = {}
    for text in request.propensities:
        name = (
            Path(text).name.removesuffix(inputs.MODEL_EXTENSION)
            if inputs.is_model_file(text)
            else text
        )
        if name in sources:
            raise UsageError(
                f"two propensities have the name {name!r}.",
                parameter="propensities",
                value=request.propensities,
                remedy="Rename one of the files.",
            )
        needs_sample = text in PROPENSITY_MODELS and "needs_mcar" in PROPENSITY_MODELS[text].traits
        sampled = request if needs_sample else replace(request, mcar=None)
        source = inputs.find_propensity_source(text, log, sampled)
        sources[name] = source
        if isinstance(source, PropensityModel):
            matched = inputs.match_log_ids(log.ratings, source)
            sources[name] = source if matched is log.ratings else source.predict(matched)
    sample = None if request.mcar is None else inputs.read_sample(request.mcar)
    return diagnose(
        log.ratings,
        sources,
        mcar=sample if isinstance(sample, Ratings) else None,
        user_features=features.frame("user", log.ratings.users),
        item_features=features.frame("item", log.ratings.items),
        random_state=request.random_state,
    )


def _warn_about_unknown_features(request: DiagnosisRequest, features: inputs.FeatureTables) -> bool:
    """Whether all saved models know all ids that the features list; a warning if not."""
    users, items = features.ids("user"), features.ids("item")
    incomplete = [
        path
        for path in filter(inputs.is_model_file, request.propensities)
        for model in [inputs.load_propensity(path)]
        if (users is not None and inputs.count_unknown(users, model.users_))
        or (items is not None and inputs.count_unknown(items, model.items_))
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
