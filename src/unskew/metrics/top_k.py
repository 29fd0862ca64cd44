"""Metrics of the whole ranking of a user, among all candidates: NDCG, MAP, MRR, hit rate, AUC.

They are no sums over cells, so weights enter them as in :mod:`unskew.kernels.user_metrics`. The
mean is over users. Metrics *per positive* are ratios of sums over the relevant cells of all users,
which weights correct without such a bias.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from unskew.errors import UsageError
from unskew.metrics import METRICS
from unskew.metrics.logged import EMPTY_USER_VALUES, EmptyUsers
from unskew.metrics.metric import Delta, MetricInput
from unskew.metrics.ranking import RelevanceMetric, discount, nonzero_relevance
from unskew.metrics.user_functions import RankingFunction
from unskew.settings import OneOf, setting
from unskew.types import Vector

MAX_RELATIVE_ERROR = 0.25
"""Products of weights have no interval if their standard error exceeds this share of the value."""


def gains(cells: MetricInput, threshold: float | None) -> Vector:
    """1 for relevant cells and else 0; without a threshold, the ratings."""
    if threshold is not None:
        return nonzero_relevance(cells, threshold)
    if (cells.rating < 0).any():
        raise UsageError(
            f"ratings are gains here, but one is {cells.rating.min():g}, which is negative.",
            parameter="relevance_threshold",
            remedy="Pass `relevance_threshold`, from which on a rating is relevant.",
        )
    if not cells.rating.any():
        raise UsageError(
            "all ratings are 0, so no item is relevant.", parameter="relevance_threshold"
        )
    return cells.rating


@dataclass(frozen=True, slots=True)
class _RankingMetric(RelevanceMetric):
    """A mean over users of a function of their relevant items.

    A user without an observed relevant item is dropped, or counts as 1 or 0 (``empty_users``).
    """

    empty_users: EmptyUsers = setting("drop", OneOf(tuple(EMPTY_USER_VALUES)))
    kernel: ClassVar[str]
    is_plug_in: ClassVar[bool] = True

    def __call__(self, cells: MetricInput, /) -> Delta:
        from unskew.kernels import user_metrics

        gain = self._gains(cells)
        function = RankingFunction.of(
            getattr(user_metrics, self.kernel),
            cells,
            gain,
            top=self.top,
            worth=discount,
            empty_value=EMPTY_USER_VALUES[self.empty_users],
        )
        return Delta(gain * function.worth, gain, is_mean_of_users=True, function=function)

    def _gains(self, cells: MetricInput) -> Vector:
        return nonzero_relevance(cells, self.relevance_threshold)


@METRICS.declare(
    "ndcg",
    label="NDCG",
    summary="DCG of a user's list over the best possible one, mean over users.",
    traits={"order": 10, "top": "optional", "words": "normalised discounted cumulative gain"},
)
@dataclass(frozen=True, slots=True)
class NormalizedGain(_RankingMetric):
    """NDCG and NDCG@k: DCG of a user's list over that of the best list, mean over users.

    Gains are the ratings, or 1 for relevant items if there is a ``relevance_threshold``.
    """

    stem: ClassVar[str] = "ndcg"
    kernel: ClassVar[str] = "NDCG"

    def _gains(self, cells: MetricInput) -> Vector:
        return gains(cells, self.relevance_threshold)


@METRICS.declare(
    "map",
    label="MAP",
    summary="Precision at each relevant item of a user's list, mean over them and over users.",
    traits={"order": 11, "top": "optional", "words": "mean average precision"},
)
@dataclass(frozen=True, slots=True)
class AveragePrecision(_RankingMetric):
    """MAP and MAP@k: (1 / N) sum of the precision at each relevant position up to k.

    N is the number of relevant candidates of the user, also if it exceeds k.
    """

    stem: ClassVar[str] = "map"
    kernel: ClassVar[str] = "AVERAGE_PRECISION"


@dataclass(frozen=True, slots=True)
class _FirstRelevant(_RankingMetric):
    """Depends on the first relevant item alone. Weights enter by products.

    A user without an observed relevant item counts as 0: only then are the products unbiased.
    """

    empty_users: EmptyUsers = setting("zero", OneOf(tuple(EMPTY_USER_VALUES)))
    is_plug_in: ClassVar[bool] = False
    max_relative_error: ClassVar[float] = MAX_RELATIVE_ERROR


@METRICS.declare(
    "mrr",
    label="MRR",
    summary="1 / position of the first relevant item of a user's list, mean over all users.",
    traits={"order": 12, "top": "optional", "words": "mean reciprocal rank"},
)
@dataclass(frozen=True, slots=True)
class ReciprocalRank(_FirstRelevant):
    """MRR and MRR@k: 1 / position of the first relevant item, mean over all users."""

    stem: ClassVar[str] = "mrr"
    kernel: ClassVar[str] = "RECIPROCAL_RANK"


@METRICS.declare(
    "hit_rate",
    label="hit rate",
    summary="Share of users with a relevant item among the k recommended.",
    traits={"order": 13, "top": "always", "words": "hit rate"},
)
@dataclass(frozen=True, slots=True)
class HitRate(_FirstRelevant):
    """Hit rate@k: the share of all users with a relevant item among the k recommended."""

    stem: ClassVar[str] = "hit_rate"
    kernel: ClassVar[str] = "HIT"


@METRICS.declare(
    "auc",
    label="AUC",
    summary="Probability that a relevant item of a user is ranked above another, mean over users.",
    traits={"order": 14, "words": "area under the ROC curve within users"},
)
@dataclass(frozen=True, slots=True)
class Auc(_RankingMetric):
    """The probability that a relevant candidate of a user is ranked above another candidate.

    The mean is over users with relevant candidates and others; ties count half.
    """

    stem: ClassVar[str] = "auc"
    kernel: ClassVar[str] = "AUC"


@METRICS.declare(
    "pooled_auc",
    label="pooled AUC",
    summary="Share of pairs of a user's relevant and other items in the right order, all users.",
    traits={"order": 15, "words": "area under the ROC curve over all pairs within users"},
)
@dataclass(frozen=True, slots=True)
class PooledAuc(_RankingMetric):
    """As ``auc``, but users count by their number of such pairs, which has hardly any bias."""

    is_plug_in: ClassVar[bool] = False
    stem: ClassVar[str] = "pooled_auc"
    kernel: ClassVar[str] = "AUC_PAIRS"


@dataclass(frozen=True, slots=True)
class _PerPositive(RelevanceMetric):
    """Sum Y worth(position) / sum Y over the cells of all users."""

    def __call__(self, cells: MetricInput, /) -> Delta:
        positions, n_items = cells.require_positions()
        base = nonzero_relevance(cells, self.relevance_threshold)
        last = n_items if self.top is None else min(self.top, n_items)
        return Delta(base * positions.mean(self._worth, last=last), base)

    def _worth(self, position: Vector) -> Vector:
        raise NotImplementedError


@METRICS.declare(
    "recall_per_positive",
    label="recall per positive",
    summary="Share of all relevant cells that are among the k recommended.",
    traits={"order": 16, "top": "always", "words": "recall per positive"},
)
@dataclass(frozen=True, slots=True)
class RecallPerPositive(_PerPositive):
    """Recall@k of all users together: all relevant cells have equal weight."""

    stem: ClassVar[str] = "recall_per_positive"

    def _worth(self, position: Vector) -> Vector:
        return np.ones_like(position)


@METRICS.declare(
    "mrr_per_positive",
    label="reciprocal rank per positive",
    summary="1 / position of relevant cells, mean over all of them.",
    traits={"order": 17, "top": "optional", "words": "reciprocal rank per positive"},
)
@dataclass(frozen=True, slots=True)
class ReciprocalRankPerPositive(_PerPositive):
    """The mean of 1 / position over all relevant cells, not only the first of a user."""

    stem: ClassVar[str] = "mrr_per_positive"

    def _worth(self, position: Vector) -> Vector:
        return 1.0 / position


@METRICS.declare(
    "ndcg_per_positive",
    label="discount per positive",
    summary="1 / log2(position + 1) of relevant cells, mean over all of them.",
    traits={"order": 18, "top": "optional", "words": "discounted gain per positive"},
)
@dataclass(frozen=True, slots=True)
class NormalizedGainPerPositive(_PerPositive):
    """The mean of 1 / log2(position + 1) over all relevant cells, as if each were a list."""

    stem: ClassVar[str] = "ndcg_per_positive"

    def _worth(self, position: Vector) -> Vector:
        return discount(position)
