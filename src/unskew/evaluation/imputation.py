"""Imputed deltas over all cells, for doubly robust estimation: what a metric would say if imputed ratings were the truth."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from unskew.data.ids import format_id
from unskew.data.ratings import Ratings
from unskew.errors import BadPredictionError, UniverseError
from unskew.estimators.cells import Imputed
from unskew.evaluation.predictions import BLOCK_CELLS, Predictions, Scored
from unskew.metrics.metric import Metric, MetricInput
from unskew.ranking.positions import positions
from unskew.tables import count_noun
from unskew.types import IntVector, Matrix, Scores, Vector


def impute(
    metric: Metric,
    models: Sequence[Predictions],
    judged: Sequence[MetricInput],
    imputation: Scored,
    log: Ratings,
) -> Imputed:
    """Deltas of each model against the imputed ratings, on the log and summed over all items of every user."""
    imputed_rating = imputation.values(log)
    observed = np.stack([metric(replace(cells, rating=imputed_rating)).value for cells in judged])
    return Imputed(observed, _by_user(metric, [scored(model) for model in models], imputation, log))


def _by_user(metric: Metric, models: Sequence[Scored], imputation: Scored, log: Ratings) -> Matrix:
    if log.universe is not None and log.universe.n_cells != log.n_cells:
        raise UniverseError(
            f"the universe has {log.universe}, but the log knows the ids of {count_noun(log.n_users, 'user')} "
            f"and {count_noun(log.n_items, 'item')} only. Build the log with users=[all user ids], "
            "items=[all item ids], so that every cell can be imputed."
        )
    sums = np.empty((log.n_users, len(models)))
    size = max(1, BLOCK_CELLS // log.n_items)
    for first in range(0, log.n_users, size):
        users = np.arange(first, min(first + size, log.n_users), dtype=np.int32)
        imputed = imputation.block(log, users)
        for column, model in enumerate(models):
            delta = metric(
                _judge_block(metric, model.block(log, users), imputed, log.rating)
            ).value.reshape(imputed.shape)
            _check_finite(delta, model, imputation, log, users)
            sums[users, column] = delta.sum(axis=1)
    return sums


def _check_finite(
    delta: Matrix, model: Scored, imputation: Scored, log: Ratings, users: IntVector
) -> None:
    bad = np.argwhere(~np.isfinite(delta))
    if bad.size:
        user, item = format_id(log.users[users[bad[0, 0]]]), format_id(log.items[bad[0, 1]])
        raise BadPredictionError(
            f"{model.name!r} or {imputation.name!r} predicts no finite number for {len(bad)} cells outside the log; "
            f"the first is user {user}, item {item}. Doubly robust estimation reads every cell: predict those too."
        )


def _judge_block(metric: Metric, scores: Scores, imputed: Scores, scale: Vector) -> MetricInput:
    n_users, n_items = scores.shape
    item = np.tile(np.arange(n_items, dtype=np.int32), n_users)
    rating = imputed.astype(np.float64).ravel()
    if not metric.ranks:
        return MetricInput(
            rating, item, scale, prediction=scores.astype(np.float64).ravel(), n_items=n_items
        )
    user = np.repeat(np.arange(n_users, dtype=np.int32), n_items)

    def scorer(users: IntVector, /) -> Scores:
        return scores[users]

    places = positions(user, item, n_users, n_items, scorer, top=metric.top)
    return MetricInput(rating, item, scale, positions=places, n_items=n_items)


def scored(model: Predictions) -> Scored:
    """The model as one that scores every cell, which imputation asks of it."""
    if not isinstance(model, Scored):
        raise BadPredictionError(
            "doubly robust estimation imputes every cell, so that it needs predictions for every cell: "
            "pass a model, a users x items matrix, or a callable that scores a block of users against all items."
        )
    return model
