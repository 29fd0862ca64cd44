"""Judging on cells that were drawn uniformly at random: plain averages, and users as what is independent.

Each judgement is a value and how much every user of the test moves it, its influence, from which intervals and paired
differences follow: the variance is U / (U - 1) times the sum of their squares.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, TypeAlias

import numpy as np

from unskew.data.checks import is_finite_number, whole_number
from unskew.data.frames import make_frame
from unskew.data.ratings import Ratings
from unskew.errors import BadPredictionError, UnknownNameError, UsageError
from unskew.estimators.estimate import Estimate
from unskew.metrics.ranking import discount
from unskew.tables import html_table, text_table
from unskew.types import BoolVector, IntVector, Vector

EmptyUsers: TypeAlias = Literal["drop", "one", "zero"]
EMPTY: Mapping[str, float | None] = {"drop": None, "one": 1.0, "zero": 0.0}
"""What a user without a relevant test item scores; None leaves such users out."""


@dataclass(frozen=True, slots=True, eq=False)
class Judgement:
    """A value, and each user's influence on it; the influences add up to 0."""

    value: float
    influence: Vector
    """By code of the user; 0 for users without a cell, or left out."""
    n_users: int
    """How many count."""


def estimate_of(judgements: Sequence[Judgement]) -> Estimate:
    """The values of several models on one test, with the covariance that makes every difference a paired one."""
    influence = np.stack([each.influence for each in judgements])
    n_users = judgements[0].n_users
    if n_users < 2:
        raise UsageError(
            f"an interval over users needs at least 2 of them that count; the test has {n_users}."
        )
    covariance = influence @ influence.T * (n_users / (n_users - 1))
    return Estimate(np.array([each.value for each in judgements]), covariance, n_users)


def mean_of(test: Ratings, delta: Vector) -> Judgement:
    """The mean of a delta over the cells of the test."""
    mean = float(delta.mean())
    influence = np.bincount(test.user, delta - mean, test.n_users).astype(np.float64) / len(test)
    return Judgement(mean, influence, int(np.unique(test.user).size))


def ndcg(
    test: Ratings,
    score: Vector,
    is_relevant: BoolVector,
    *,
    k: int,
    empty_users: EmptyUsers = "drop",
) -> Judgement:
    """NDCG@k over each user's own test items: 0/1 gains by 1 / log2(place + 1), over the best that could be; mean over users.

    A tie is worth the mean over its random orders.
    """
    if empty_users not in EMPTY:
        raise UnknownNameError("empty_users", empty_users, EMPTY)
    worth = _tied_means(test.user, score, lambda place: np.where(place <= k, discount(place), 0.0))
    gain, positives = (
        np.bincount(test.user, part, test.n_users)
        for part in (worth * is_relevant, is_relevant.astype(float))
    )
    best = np.append(0.0, np.cumsum(discount(np.arange(1.0, k + 1))))[
        np.minimum(positives, k).astype(int)
    ]
    has_cells, filler = np.bincount(test.user, minlength=test.n_users) > 0, EMPTY[empty_users]
    counts = has_cells & (positives > 0) if filler is None else has_cells
    by_user = np.divide(gain, best, out=np.full(test.n_users, filler or 0.0), where=best > 0)
    return _mean_over_users(by_user, counts)


def user_auc(test: Ratings, score: Vector, is_relevant: BoolVector) -> Judgement:
    """The chance that a relevant test item of a user stands above one that is not, ties half; mean over users with both."""
    place = _tied_means(test.user, score, lambda place: place)
    positives, cells = (
        np.bincount(test.user, is_relevant, test.n_users),
        np.bincount(test.user, minlength=test.n_users),
    )
    others = cells - positives
    sum_of_places = np.bincount(test.user, place * is_relevant, test.n_users)
    counts = (positives > 0) & (others > 0)
    above = positives * others + positives * (positives + 1) / 2 - sum_of_places
    by_user = np.divide(above, positives * others, out=np.zeros(test.n_users), where=counts)
    return _mean_over_users(by_user, counts)


def auc(test: Ratings, score: Vector, is_relevant: BoolVector) -> Judgement:
    """The chance that a relevant cell of the test scores above one that is not, whoever's they are; ties half."""
    n_relevant = int(is_relevant.sum())
    if not 0 < n_relevant < len(test):
        raise UsageError(
            "the test needs relevant cells and others for an area under the curve. Choose another threshold."
        )
    n_other = len(test) - n_relevant
    everywhere = np.zeros(len(test), np.int32)
    place = _tied_means(everywhere, score, lambda place: place)
    own = np.empty(len(test))
    for side in (is_relevant, ~is_relevant):
        own[side] = _tied_means(everywhere[side], score[side], lambda place: place)
    worse_others = n_other - (place - own)
    share = np.where(is_relevant, worse_others / n_other, (place - own) / n_relevant)
    value = float(share[is_relevant].mean())
    centred = (share - value) / np.where(is_relevant, n_relevant, n_other)
    influence = np.bincount(test.user, centred, test.n_users).astype(np.float64)
    return Judgement(value, influence, int(np.unique(test.user).size))


def _mean_over_users(by_user: Vector, counts: BoolVector) -> Judgement:
    n_users = int(counts.sum())
    if n_users == 0:
        raise UsageError(
            "no user of the test has a relevant item beside others. Choose another threshold."
        )
    mean = float(by_user[counts].mean())
    return Judgement(mean, np.where(counts, by_user - mean, 0.0) / n_users, n_users)


def _tied_means(group: IntVector, score: Vector, worth: Callable[[Vector], Vector]) -> Vector:
    """The mean of ``worth(place)`` over the places that a cell's tie fills among its group, the highest score in place 1."""
    order = np.lexsort((-score, group))
    groups, scores = group[order], score[order]
    starts = np.append(True, groups[1:] != groups[:-1])
    first = np.maximum.accumulate(np.where(starts, np.arange(groups.size), 0))
    tie = np.cumsum(starts | np.append(True, scores[1:] != scores[:-1])) - 1
    value = worth((np.arange(groups.size) - first + 1).astype(np.float64))
    means = np.empty(groups.size)
    means[order] = (np.bincount(tie, value) / np.bincount(tie))[tie]
    return means


@dataclass(frozen=True, slots=True, repr=False)
class TestRanking:
    """How a model ranks the test items of each user."""

    __test__ = False  # no test of pytest's

    auc: float
    """Over all pairs of cells of the test."""
    user_auc: float
    """Over pairs of one user's cells, mean over users."""
    ndcg: float
    k: int
    threshold: float
    n_users: int
    """Users behind ``ndcg``."""
    n_empty: int
    """Users with test items of which none is relevant: dropped, or given 1 or 0, as asked."""
    empty_users: str

    def to_columns(self) -> dict[str, list[Any]]:
        """All fields, as a table of one row."""
        return {name: [value] for name, value in asdict(self).items()}

    def to_frame(self, backend: str | None = None) -> Any:
        """The table as a data frame."""
        return make_frame(self.to_columns(), backend)

    def to_json(self) -> str:
        """All fields."""
        return json.dumps(asdict(self))

    def __repr__(self) -> str:
        return text_table(self.to_columns())

    def _repr_html_(self) -> str:
        return html_table(self.to_columns())


def ranking_on_test(
    model: Any, test: Ratings, threshold: float, k: int = 5, empty_users: EmptyUsers = "drop"
) -> TestRanking:
    """Rank every user's items of a test that was drawn uniformly at random; ratings of at least ``threshold`` are relevant.

    ``model`` has ``predict(users, items)``, or is an array of scores in the order of the test. Users without a relevant item are
    dropped, as AutoDebias and MRDR do; others give them ``"one"`` (the CVIB family) or ``"zero"``.
    """
    whole_number("k", k, least=1)
    score, is_relevant = scores_of(model, test), relevant_cells(test, threshold)
    found = ndcg(test, score, is_relevant, k=k, empty_users=empty_users)
    has_cells = np.bincount(test.user, minlength=test.n_users) > 0
    n_empty = int((has_cells & (np.bincount(test.user, is_relevant, test.n_users) == 0)).sum())
    whole, own = auc(test, score, is_relevant), user_auc(test, score, is_relevant)
    return TestRanking(
        whole.value,
        own.value,
        found.value,
        k,
        float(threshold),
        found.n_users,
        n_empty,
        empty_users,
    )


def relevant_cells(test: Ratings, threshold: float) -> BoolVector:
    """Which cells of the test are relevant."""
    if not is_finite_number(threshold):
        raise UsageError(
            f"threshold must be the least rating that counts as relevant, such as 4; got {threshold!r}."
        )
    is_relevant: BoolVector = test.rating >= threshold
    return is_relevant


def scores_of(model: Any, test: Ratings) -> Vector:
    """One finite number for each cell of the test."""
    predicted = (
        model.predict(test.users[test.user], test.items[test.item])
        if hasattr(model, "predict")
        else model
    )
    score = np.asarray(predicted, dtype=np.float64)
    if score.shape != (len(test),) or not np.isfinite(score).all():
        raise BadPredictionError(
            f"a test of {len(test)} cells needs a finite prediction for each; got shape {score.shape}."
        )
    return score
