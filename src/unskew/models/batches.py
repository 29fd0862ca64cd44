"""Factorisations fitted at once by an engine, as cross-validation needs them."""

from __future__ import annotations

from collections.abc import Sequence

from unskew.data.propensities import PropensitiesLike
from unskew.data.ratings import Ratings
from unskew.factorization.engine import BatchEngine
from unskew.factorization.objective import name_unsolved_rows
from unskew.models.matrix_factorization import MatrixFactorization


def fit_many(
    models: Sequence[MatrixFactorization],
    logs: Sequence[Ratings],
    propensities: Sequence[PropensitiesLike | None],
    engine: BatchEngine,
) -> None:
    """Fit each model to its log, as ``model.fit(log, propensities, engine=engine)`` does."""
    requests = []
    for model, log, weights in zip(models, logs, propensities, strict=True):
        requests.append(model._prepare_fit(log, weights, engine=engine))
    results = engine.run_many(requests)
    for model, log, request in zip(models, logs, requests, strict=True):
        with name_unsolved_rows(log, model.l2_):
            result = next(results)
        model._finish_fit(log, request.log, result)
