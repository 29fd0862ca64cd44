"""Imputed deltas of all cells, for doubly robust estimation.

The imputed delta of a cell is E[delta] over the distribution of its rating, not the delta at its
mean rating: E[(Y - F)^2] = (E[Y] - F)^2 + Var[Y].
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from unskew.data.cells import cell_numbers
from unskew.data.ids import format_id
from unskew.data.ratings import Ratings
from unskew.data.universe import Universe
from unskew.errors import BadPredictionError, UniverseError
from unskew.estimators.sums import Imputed
from unskew.evaluation.predictions import Predictions, ScoredCells
from unskew.evaluation.rating_distributions import (
    ImputedRatings,
    RatingDistribution,
    require_all_cells,
)
from unskew.metrics.metric import CandidateCounts, Metric, MetricInput, rating_degree
from unskew.ranking.candidates import Candidates
from unskew.ranking.positions import compute_positions
from unskew.tables import count_noun
from unskew.types import BoolVector, IntVector, Matrix, Scores, Vector

BLOCK_CELLS = 1 << 18
"""Cells whose deltas are imputed at once; they fit into the cache of a processor."""


def impute_deltas(
    metrics: Sequence[Metric],
    models: Sequence[Predictions],
    inputs: Sequence[MetricInput],
    ratings: ImputedRatings,
    log: Ratings,
    universe: Universe | None,
    candidates: Candidates | None = None,
    no_interval: str | None = None,
) -> dict[str, Imputed]:
    """By metric: the expected deltas of each model over the distributions of the ratings.

    They are given on the log, and summed over all cells of every user and of every item, or over
    their ``candidates``. A logged cell has the model of its fold in both; the others have the mean
    over the models. Ratio metrics have none.
    """
    means = [metric for metric in metrics if metric(inputs[0]).base is None]
    if not means:
        return {}
    scorers = [require_all_cells(model) for model in models]
    _require_ids(log, universe)
    logged, levels = [ratings.observed(log)], np.unique(log.rating)
    observed = {
        metric.name: np.stack(
            [_expect(metric, replace(cells, scale=levels), logged) for cells in inputs]
        )
        for metric in means
    }
    counts = inputs[0].candidates
    sums = _sum_all_cells(means, scorers, ratings, observed, log, levels, candidates, counts)
    return {
        name: Imputed(deltas, *sums[name], no_interval=no_interval)
        for name, deltas in observed.items()
    }


def _sum_all_cells(
    metrics: Sequence[Metric],
    models: Sequence[ScoredCells],
    ratings: ImputedRatings,
    observed: Mapping[str, Matrix],
    log: Ratings,
    levels: Vector,
    candidates: Candidates | None,
    counts: CandidateCounts | None,
) -> dict[str, tuple[Matrix, Matrix]]:
    """By metric: imputed deltas of candidates added up by user and by item, in blocks of users.

    ``observed`` has those of the logged cells.
    """
    n_models = len(models)
    sums = {
        metric.name: (np.zeros((log.n_users, n_models)), np.zeros((log.n_items, n_models)))
        for metric in metrics
    }
    by_user_order = np.argsort(log.user, kind="stable")
    sorted_user = log.user[by_user_order]
    size = max(1, BLOCK_CELLS // (log.n_items * ratings.n_columns))
    for first in range(0, log.n_users, size):
        users = np.arange(first, min(first + size, log.n_users), dtype=np.int32)
        start, end = np.searchsorted(sorted_user, (first, first + size))
        rows = by_user_order[start:end]
        logged = cell_numbers(log.user[rows] - first, log.item[rows], log.n_items)
        distributions = list(ratings.blocks(log, users))
        is_finite = np.logical_and.reduce([each.is_finite for each in distributions])
        is_hidden = _find_hidden(users, log.n_items, candidates)
        for column, model in enumerate(models):
            scores = model.block(log, users)
            for metric in metrics:
                used = scores if metric.ranks else model.as_ratings(log, users, scores)
                cells = _make_input(metric, used, levels, users, candidates, counts)
                delta = np.where(is_hidden, 0.0, _expect(metric, cells, distributions))
                _require_finite(delta, is_finite, model, log, users)
                delta[logged] = observed[metric.name][column, rows]
                by_user, by_item = sums[metric.name]
                by_user[users, column] = delta.reshape(scores.shape).sum(axis=1)
                by_item[:, column] += delta.reshape(scores.shape).sum(axis=0)
    return sums


def _expect(
    metric: Metric, cells: MetricInput, distributions: Sequence[RatingDistribution]
) -> Vector:
    """E[delta] of each cell; its mean if there are several distributions, one for each fold."""
    degree = rating_degree(metric)
    total: Vector | float = 0.0
    for distribution in distributions:
        for rating, share in distribution.points(degree):
            total = total + share * metric(replace(cells, rating=rating)).value
    expected: Vector = np.asarray(total) / len(distributions)
    return expected


def _find_hidden(
    users: IntVector, n_items: int, candidates: Candidates | None
) -> BoolVector | np.bool_:
    """Whether each cell of a block of users is not a candidate."""
    if candidates is None:
        return np.bool_(False)
    scores = np.zeros((users.size, n_items))
    candidates.hide_others(users, scores)
    return np.isneginf(scores.ravel())


def _require_ids(log: Ratings, universe: Universe | None) -> None:
    if universe is not None and (universe.n_users, universe.n_items) != (log.n_users, log.n_items):
        raise UniverseError(
            f"the universe has {universe}, but the log has the ids of only "
            f"{count_noun(log.n_users, 'user')} and {count_noun(log.n_items, 'item')}, so not "
            "every cell can be imputed.",
            parameter="universe",
            remedy="Build the log with users=[all user ids] and items=[all item ids].",
        )


def _require_finite(
    delta: Vector, is_finite: BoolVector, model: ScoredCells, log: Ratings, users: IntVector
) -> None:
    bad = np.flatnonzero(~(np.isfinite(delta) & is_finite))
    if bad.size:
        row, column = divmod(int(bad[0]), log.n_items)
        user, item = format_id(log.users[users[row]]), format_id(log.items[column])
        raise BadPredictionError(
            f"{model.name!r} or 'imputation' has no finite prediction for {bad.size} cells "
            f"outside the log; the first is user {user}, item {item}.",
            parameter="imputation",
            where=f"user {user}, item {item}",
            remedy="Doubly robust estimation reads every cell: also predict those.",
        )


def _make_input(
    metric: Metric,
    scores: Scores,
    levels: Vector,
    users: IntVector,
    candidates: Candidates | None,
    counts: CandidateCounts | None,
) -> MetricInput:
    """All cells of a block of users; their ratings are filled in later.

    Cells that are not candidates get any position.
    """
    n_users, n_items = scores.shape
    item = np.tile(np.arange(n_items, dtype=np.int32), n_users)
    empty: Matrix = np.empty(0)
    if not metric.ranks:
        prediction = scores.astype(np.float64).ravel()
        return MetricInput(empty, item, levels, prediction=prediction, n_items=n_items)
    user = np.repeat(np.arange(n_users, dtype=np.int32), n_items)
    positions = compute_positions(
        user,
        item,
        n_users,
        n_items,
        scores.__getitem__,
        top=metric.top,
        candidates=None if candidates is None else candidates.take(users),
    )
    if counts is not None:
        counts = replace(counts, of_cell=counts.by_user[users][user])
    return MetricInput(empty, item, levels, positions=positions, n_items=n_items, candidates=counts)
