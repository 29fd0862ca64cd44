"""Evaluation on a test whose cells were drawn uniformly at random: no weights are needed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import numpy as np

from unskew.data.ratings import Ratings, require_log
from unskew.data.result import Result
from unskew.estimators.estimate import Estimate
from unskew.estimators.point import Naive
from unskew.estimators.sums import Clusters, Deltas, ObservedCells, Sums, add_up
from unskew.evaluation.candidates import TestedCells
from unskew.evaluation.predictions import PredictionsLike, read_predictions
from unskew.metrics.logged import EmptyUsers, LoggedNormalizedGain
from unskew.metrics.metric import Delta, Metric, MetricInput, find_metric
from unskew.ranking.candidates import CandidatesLike
from unskew.settings import Number, WholeNumber
from unskew.types import Vector


@dataclass(frozen=True, slots=True, repr=False)
class TestRanking(Result):
    """How a model ranks the test items of each user."""

    __test__: ClassVar[bool] = False  # pytest must not collect it
    kind: ClassVar[str] = "test_ranking"
    auc: float
    """Over all pairs of a relevant and another cell of the test."""
    user_auc: float
    """Over such pairs of one user's cells, mean over users."""
    ndcg: float
    k: int
    relevance_threshold: float
    n_users: int
    """Users in the mean of ``ndcg``."""
    n_empty: int
    """Users with test items, none of which is relevant."""
    empty_users: str
    n_outside: int = 0
    """Test cells that were left out because they are excluded, or not among the candidates."""

    def to_columns(self) -> dict[str, list[Any]]:
        """All fields, as a table of one row."""
        return {name: [value] for name, value in asdict(self).items()}

    def to_record(self) -> dict[str, Any]:
        return asdict(self)


def ranking_on_test(
    test: Ratings,
    predictions: PredictionsLike,
    *,
    relevance_threshold: float,
    k: int = 5,
    empty_users: EmptyUsers = "drop",
    exclude: Ratings | None = None,
    candidates: CandidatesLike | None = None,
) -> TestRanking:
    """AUC and NDCG of every user's items in a test that was drawn uniformly at random.

    Parameters
    ----------
    test
        The ratings of the test.
    predictions
        Predictions of one model, as for :func:`unskew.evaluate`.
    relevance_threshold
        Ratings of at least this value are relevant.
    k
        The number of positions of NDCG@k.
    empty_users
        The NDCG of users without a relevant item: ``"drop"`` leaves them out, as AutoDebias and
        MRDR do; ``"one"`` (the CVIB family) and ``"zero"`` count them as 1 and 0.
    exclude, candidates
        Which items are ranked for each user, as for :func:`unskew.evaluate`. Test cells with other
        items leave the test and are counted.
    """
    require_log(test)
    Number()("relevance_threshold", relevance_threshold)
    WholeNumber(least=1)("k", k)
    tested = TestedCells.find(test, candidates, exclude)
    n_outside = len(test) - len(tested.log)
    reader = read_predictions("model", predictions, test, rows=tested.rows)
    test = tested.log
    prediction = reader.values(test)
    threshold = float(relevance_threshold)
    ndcg = _add_up_on_test(test, LoggedNormalizedGain(k, threshold, empty_users), prediction)
    auc, user_auc = (
        _add_up_on_test(test, find_metric(name, relevance_threshold=threshold), prediction)
        for name in ("logged_auc", "logged_user_auc")
    )
    n_relevant = np.bincount(test.user, test.rating >= threshold)
    n_empty = int(((np.bincount(test.user) > 0) & (n_relevant == 0)).sum())
    return TestRanking(
        float(auc.ratio[0]),
        float(user_auc.ratio[0]),
        float(ndcg.ratio[0]),
        k,
        threshold,
        ndcg.n_clusters or 0,
        n_empty,
        empty_users,
        n_outside,
    )


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


def _add_up_on_test(test: Ratings, metric: Metric, prediction: Vector) -> Sums:
    """The sums alone: unlike standard errors, they exist for a single user."""
    delta = compute_test_delta(test, metric, prediction)
    spec = Naive().sums_needed(
        is_ratio=delta.base is not None, is_mean_of_users=delta.is_mean_of_users, cluster="user"
    )
    return add_up(spec, _stack([delta]), _test_cells(test))


def _stack(deltas: Sequence[Delta]) -> Deltas:
    values = np.stack([delta.value for delta in deltas])
    first = deltas[0]
    return Deltas(values, first.base, first.is_mean_of_users, is_root=first.is_root)


def _test_cells(test: Ratings) -> ObservedCells:
    return ObservedCells(
        Clusters(test.user, test.n_users), Clusters(test.item, test.n_items), cluster="user"
    )
