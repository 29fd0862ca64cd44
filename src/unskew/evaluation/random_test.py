"""Evaluation on a test whose cells were drawn uniformly at random: no weights are needed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Literal

import numpy as np

from unskew.data.ratings import Ratings
from unskew.data.universe import UniverseLike
from unskew.estimators.estimate import Estimate
from unskew.estimators.observed import Cluster, Clusters, Deltas, ObservedCells
from unskew.estimators.point import Naive, RandomTestMean
from unskew.evaluation.arguments import find_metrics
from unskew.evaluation.evaluate import evaluate
from unskew.evaluation.predictions import PredictionsLike
from unskew.evaluation.result import Evaluation
from unskew.metrics.logged import EMPTY_USER_VALUES, EmptyUsers, LoggedNormalizedGain
from unskew.metrics.metric import Delta, Metric, MetricInput
from unskew.ranking.candidates import CandidatesLike
from unskew.settings import OneOf
from unskew.types import Vector

RANDOM_TEST = (
    "the test is taken as drawn uniformly at random from all cells, and nothing here can confirm it"
)
LOGGED_NAMES: Mapping[str, str] = {
    "ndcg": "logged_ndcg",
    "auc": "logged_user_auc",
    "pooled_auc": "logged_auc",
}
"""Metrics that rank the tested items of a user among each other on a random test."""


def evaluate_random_test(
    test: Ratings,
    predictions: Mapping[str, PredictionsLike] | PredictionsLike,
    *,
    metrics: Sequence[str | Metric] = ("mse", "mae"),
    relevance_threshold: float | None = None,
    empty_users: EmptyUsers = "drop",
    exclude: Ratings | None = None,
    candidates: CandidatesLike | None = None,
    universe: UniverseLike = None,
    level: float = 0.95,
    cluster: Cluster | Literal["auto"] = "auto",
) -> Evaluation:
    """Evaluate models on a test whose cells were drawn uniformly at random: no weights are needed.

    Parameters
    ----------
    test
        Ratings of cells that were drawn at random from all cells, such as the test of Coat or of
        Yahoo! R3.
    predictions
        Models by name, or one model, as for :func:`unskew.evaluate`.
    metrics
        As for :func:`unskew.evaluate`. ``ndcg``, ``auc`` (within users) and ``pooled_auc`` rank the
        tested items among each other, as is usual on such tests; the result has them as
        ``logged_ndcg``, ``logged_user_auc`` and ``logged_auc``. All other metrics of rankings rank
        the items of the universe.
    relevance_threshold
        Ratings of at least this value are relevant.
    empty_users
        The ``ndcg`` of users without a relevant item: ``"drop"`` leaves them out, as AutoDebias and
        MRDR do; ``"one"`` (the CVIB family) and ``"zero"`` count them as 1 and 0.
    exclude, candidates, universe, level, cluster
        As for :func:`unskew.evaluate`.

    Examples
    --------
    >>> test = Ratings.from_arrays([0, 0, 1, 1], [0, 1, 0, 1], [5, 1, 2, 4])
    >>> result = evaluate_random_test(
    ...     test, {"m": [4.0, 2.0, 3.0, 3.5]}, metrics=["mae", "auc"], relevance_threshold=4
    ... )
    >>> result.risk("m", metric="logged_user_auc", estimator="test_mean").estimate
    1.0
    """
    OneOf(tuple(EMPTY_USER_VALUES))("empty_users", empty_users)
    chosen = [
        _set_empty_users(metric, empty_users)
        for metric in find_metrics(_name_on_test(metrics), relevance_threshold=relevance_threshold)
    ]
    result = evaluate(
        test,
        predictions,
        metrics=chosen,
        estimators=[RandomTestMean()],
        relevance_threshold=relevance_threshold,
        exclude=exclude,
        candidates=candidates,
        universe=universe,
        level=level,
        cluster=cluster,
    )
    return replace(result, notes=(*result.notes, RANDOM_TEST))


def _name_on_test(metrics: object) -> object:
    """One metric or several, with the usual meaning of their names on a random test."""
    if isinstance(metrics, str):
        name, separator, top = metrics.partition("@")
        return f"{LOGGED_NAMES.get(name, name)}{separator}{top}"
    return [_name_on_test(each) for each in metrics] if isinstance(metrics, Sequence) else metrics


def _set_empty_users(metric: Metric, empty_users: EmptyUsers) -> Metric:
    if isinstance(metric, LoggedNormalizedGain):
        return replace(metric, empty_users=empty_users)
    return metric


def compute_test_delta(test: Ratings, metric: Metric, prediction: Vector) -> Delta:
    """The delta of each cell of the test, from predictions in its order."""
    return metric(
        MetricInput(test.rating, test.item, test.rating, prediction=prediction, user=test.user)
    )


def estimate_on_test(test: Ratings, deltas: Sequence[Delta]) -> Estimate:
    """Means over the cells (or users) of a test; users are the sample of the standard errors.

    ``deltas`` are those of several models for one metric.
    """
    return Naive().estimate(_stack(deltas), _test_cells(test))


def _stack(deltas: Sequence[Delta]) -> Deltas:
    values = np.stack([delta.value for delta in deltas])
    first = deltas[0]
    return Deltas(values, first.base, first.is_mean_of_users, is_root=first.is_root)


def _test_cells(test: Ratings) -> ObservedCells:
    return ObservedCells(
        Clusters(test.user, test.n_users), Clusters(test.item, test.n_items), cluster="user"
    )
