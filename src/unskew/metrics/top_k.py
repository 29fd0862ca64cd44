"""Metrics of the whole ranking of a user, among all candidates: NDCG, MAP, MRR, hit rate, AUC.

They are no sums over cells, so weights enter them as in :mod:`unskew.kernels.user_metrics`. The
mean is over users. Metrics *per positive* are ratios of sums over the relevant cells of all users,
which weights correct without such a bias.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from unskew.data.cells import RowNumbers
from unskew.metrics import METRICS
from unskew.metrics.logged import EMPTY_USER_VALUES, EmptyUsers
from unskew.metrics.metric import Delta, MetricInput
from unskew.metrics.ranking import RelevanceMetric, discount, nonzero_relevance
from unskew.settings import OneOf, setting
from unskew.types import IndexVector, IntVector, Matrix, Vector


@dataclass(frozen=True, eq=False)
class RankingFunction:
    """One of the functions of :mod:`unskew.kernels.user_metrics`, for all users."""

    kind: int
    user: IntVector
    above: IntVector
    equal: IntVector
    gain: Vector
    """0 for cells that are not relevant."""
    worth: Vector
    """What a gain at the cell's position counts."""
    sums: Vector
    """What gains of 1 at the first 0, 1, 2, ... positions count together."""
    n_candidates: IntVector
    """Of all users of the universe."""
    top: int
    empty_value: float | None = None
    """The value of users without an observed relevant item; None leaves them out."""

    @classmethod
    def of(
        cls,
        kind: int,
        cells: MetricInput,
        gain: Vector,
        *,
        top: int | None,
        worth: Any = np.ones_like,
        empty_value: float | None = None,
    ) -> RankingFunction:
        """The function of one model; ``worth`` gives what a gain at a position counts."""
        user, tie_counts = cells.require_users(), cells.require_tie_counts()
        positions, n_items = cells.require_positions()
        last = n_items if top is None else min(top, n_items)
        values = worth(np.arange(1.0, last + 1.0))
        return cls(
            kind,
            user,
            *tie_counts,
            gain,
            positions.mean(worth, last=last),
            np.append(0.0, np.cumsum(values)),
            cells.count_candidates(),
            last,
            empty_value,
        )

    def take(self, rows: IndexVector, /) -> RankingFunction:
        return replace(
            self,
            user=self.user[rows],
            above=self.above[rows],
            equal=self.equal[rows],
            gain=self.gain[rows],
            worth=self.worth[rows],
        )

    @property
    def has_bias(self) -> bool:
        from unskew.kernels.user_metrics import LINEAR_IN_EACH

        return self.kind not in LINEAR_IN_EACH

    def measure(self, weight: Vector, p_unobserved: Vector | None = None, /) -> Matrix:
        from unskew.kernels.user_metrics import measure_users

        cells, users, arguments = self._sorted
        results = np.zeros((self.n_candidates.size, 2))
        if self.empty_value is not None:
            results[self.n_candidates > 0] = self.empty_value, 1.0
        p_unobserved_of_cells = np.empty(0) if p_unobserved is None else p_unobserved[cells]
        measured = measure_users(self.kind, weight[cells], p_unobserved_of_cells, *arguments)
        if self.empty_value is None:
            results[users] = measured
        else:
            is_empty = np.bincount(self.user[cells], weight[cells], len(results))[users] <= 0
            results[users[~is_empty]] = measured[~is_empty]
        return results

    def differentiate(self, weight: Vector, /) -> Matrix:
        from unskew.kernels.user_metrics import differentiate_users

        cells, _, arguments = self._sorted
        results = np.zeros((weight.size, 2))
        results[cells] = differentiate_users(self.kind, weight[cells], *arguments)
        return results

    @cached_property
    def _sorted(self) -> tuple[RowNumbers, IntVector, tuple[Any, ...]]:
        """Relevant cells by user and position, their users, and what kernels read."""
        chosen = np.flatnonzero(self.gain > 0)
        order = np.lexsort((self.above[chosen], self.user[chosen]))
        cells = chosen[order]
        users, starts = np.unique(self.user[cells], return_index=True)
        gain = self.gain[cells]
        arguments = (
            np.append(starts, cells.size),
            self.above[cells],
            self.equal[cells],
            gain,
            self.worth[cells],
            np.lexsort((-gain, self.user[cells])),
            self.n_candidates[users],
            self.sums,
            self.top,
        )
        return cells, users, arguments


MAX_RELATIVE_ERROR = 0.25
"""Products of weights have no interval if their standard error exceeds this share of the value."""


def gains(cells: MetricInput, threshold: float | None) -> Vector:
    """1 for relevant cells and else 0; without a threshold, the ratings."""
    if threshold is not None:
        return nonzero_relevance(cells, threshold)
    cells.require_gains()
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

    N is the number of relevant candidates of the user, even if it exceeds k.
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

    def _gains(self, cells: MetricInput) -> Vector:
        gain = nonzero_relevance(cells, self.relevance_threshold)
        cells.require_distinct_positions(gain)
        return gain


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
