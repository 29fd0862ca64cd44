"""Imputed deltas of all cells, for doubly robust estimation.

An imputed delta is the delta of a cell if its imputed rating were the true one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from unskew.data.ids import format_id
from unskew.data.ratings import Ratings
from unskew.data.universe import Universe
from unskew.errors import BadPredictionError, UniverseError
from unskew.estimators.sums import Imputed
from unskew.evaluation.predictions import BLOCK_CELLS, Predictions, ScoredCells
from unskew.metrics.metric import Metric, MetricInput
from unskew.ranking.positions import compute_positions
from unskew.tables import count_noun
from unskew.types import IntVector, Matrix, Scores, Vector


def impute_deltas(
    metrics: Sequence[Metric],
    models: Sequence[Predictions],
    inputs: Sequence[MetricInput],
    imputation: Predictions,
    log: Ratings,
    universe: Universe | None,
) -> dict[str, Imputed]:
    """By metric: the deltas of each model against the imputed ratings.

    They are given on the log, and summed over all items of every user. Ratio metrics have none.
    """
    imputer = _require_all_cells(imputation)
    imputed_rating = imputer.values(log)
    imputed = {}
    for metric in metrics:
        deltas = [metric(replace(cells, rating=imputed_rating)) for cells in inputs]
        if deltas[0].base is None:
            scorers = [_require_all_cells(model) for model in models]
            by_user = _sum_by_user(metric, scorers, imputer, log, universe)
            imputed[metric.name] = Imputed(np.stack([delta.value for delta in deltas]), by_user)
    return imputed


def _sum_by_user(
    metric: Metric,
    models: Sequence[ScoredCells],
    imputer: ScoredCells,
    log: Ratings,
    universe: Universe | None,
) -> Matrix:
    """Users x models: imputed deltas added up over all items, in blocks of users."""
    if universe is not None and universe.n_cells != log.n_cells:
        raise UniverseError(
            f"the universe has {universe}, but the log has the ids of only "
            f"{count_noun(log.n_users, 'user')} and {count_noun(log.n_items, 'item')}, so not "
            "every cell can be imputed.",
            parameter="universe",
            remedy="Build the log with users=[all user ids] and items=[all item ids].",
        )
    sums = np.empty((log.n_users, len(models)))
    size = max(1, BLOCK_CELLS // log.n_items)
    for first in range(0, log.n_users, size):
        users = np.arange(first, min(first + size, log.n_users), dtype=np.int32)
        imputed = imputer.block(log, users)
        for column, model in enumerate(models):
            cells = _block_input(metric, model.block(log, users), imputed, log.rating)
            delta = metric(cells).value.reshape(imputed.shape)
            _require_finite(delta, model, imputer, log, users)
            sums[users, column] = delta.sum(axis=1)
    return sums


def _require_finite(
    delta: Matrix, model: ScoredCells, imputer: ScoredCells, log: Ratings, users: IntVector
) -> None:
    bad = np.argwhere(~np.isfinite(delta))
    if bad.size:
        user, item = format_id(log.users[users[bad[0, 0]]]), format_id(log.items[bad[0, 1]])
        raise BadPredictionError(
            f"{model.name!r} or {imputer.name!r} has no finite prediction for {len(bad)} cells "
            f"outside the log; the first is user {user}, item {item}.",
            parameter="imputation",
            where=f"user {user}, item {item}",
            remedy="Doubly robust estimation reads every cell: also predict those.",
        )


def _block_input(metric: Metric, scores: Scores, imputed: Scores, scale: Vector) -> MetricInput:
    """All cells of a block of users, with imputed ratings."""
    n_users, n_items = scores.shape
    item = np.tile(np.arange(n_items, dtype=np.int32), n_users)
    rating = imputed.astype(np.float64).ravel()
    if not metric.ranks:
        prediction = scores.astype(np.float64).ravel()
        return MetricInput(rating, item, scale, prediction=prediction, n_items=n_items)
    user = np.repeat(np.arange(n_users, dtype=np.int32), n_items)
    positions = compute_positions(user, item, n_users, n_items, scores.__getitem__, top=metric.top)
    return MetricInput(rating, item, scale, positions=positions, n_items=n_items)


def _require_all_cells(model: Predictions) -> ScoredCells:
    if not isinstance(model, ScoredCells):
        raise BadPredictionError(
            "doubly robust estimation needs predictions for every cell.",
            remedy="Pass a model, a users x items matrix, or a callable that scores a block of "
            "users for all items, as predictions and as `imputation`.",
        )
    return model
