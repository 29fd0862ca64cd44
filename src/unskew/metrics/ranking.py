"""Ranking metrics: the value of a cell's position among the items of its user.

Scores often tie. Each formula is the expectation over random orders of tied items: items tied on
positions s to t all have the mean value of those positions (docs/decisions/003-ties.md).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal, TypeAlias

import numpy as np

from unskew.errors import UnknownNameError, UsageError
from unskew.metrics import METRICS
from unskew.metrics.metric import Bounds, CellPositions, Delta, MetricInput
from unskew.types import IntVector, Vector

EmptyUsers: TypeAlias = Literal["drop", "one", "zero"]
EMPTY_USER_VALUES: Mapping[str, float | None] = {"drop": None, "one": 1.0, "zero": 0.0}
"""The NDCG of a user without a relevant item; None drops such users."""
SHARE: Bounds = (0.0, 1.0)
"""The range of a share."""


def discount(position: Vector) -> Vector:
    """1 / log2(position + 1). The paper prints 1/log(rank), which is infinite at rank 1."""
    return 1.0 / np.log2(position + 1.0)


def share_in_top(positions: CellPositions, top: int) -> Vector:
    """The probability that a cell is among the first ``top``, over random orders of ties."""
    return positions.mean(np.ones_like, last=top)


def relevance(cells: MetricInput, threshold: float | None) -> Vector:
    """1 for cells with a relevant rating, else 0.

    Without a threshold the ratings of the log must be 0 and 1, and are returned unchanged. Imputed
    ones may then be probabilities of 1.
    """
    if threshold is not None:
        return np.where(cells.rating >= threshold, 1.0, 0.0)
    cells.require_binary()
    return cells.rating


def nonzero_relevance(cells: MetricInput, threshold: float | None) -> Vector:
    """As :func:`relevance`, for metrics that divide by the number of relevant cells."""
    is_relevant = relevance(cells, threshold)
    cells.require_relevant(1.0 if threshold is None else threshold)
    return is_relevant


@METRICS.declare(
    "dcg",
    label="DCG",
    summary="Discounted cumulative gain: mean over users of sum rating / log2(position + 1).",
    traits={"order": 4, "top": "optional", "words": "discounted cumulative gain"},
)
@dataclass(frozen=True, slots=True)
class DiscountedGain:
    """DCG and DCG@k: the mean over users of sum_i Y_ui / log2(position + 1)."""

    top: int | None = None
    higher_is_better: ClassVar[bool] = True
    ranks: ClassVar[bool] = True
    rating_degree: ClassVar[int] = 1

    @property
    def name(self) -> str:
        return "dcg" if self.top is None else f"dcg@{self.top}"

    def __call__(self, cells: MetricInput, /) -> Delta:
        """Eq. (8): I * Y / log2(position + 1)."""
        positions, n_items = cells.require_positions()
        last = n_items if self.top is None else min(self.top, n_items)
        discounted = n_items * positions.mean(discount, last=last)
        full = float(discount(np.arange(1.0, last + 1.0)).sum())
        return Delta(discounted * cells.rating, slots=discounted / full)


@METRICS.declare(
    "cg",
    label="CG",
    summary="Cumulative gain: mean rating of the k items recommended to each user.",
    traits={"order": 5, "top": "always", "words": "cumulative gain"},
)
@dataclass(frozen=True, slots=True)
class CumulativeGain:
    """CG@k: the mean rating of the k items recommended to each user."""

    top: int
    higher_is_better: ClassVar[bool] = True
    ranks: ClassVar[bool] = True
    rating_degree: ClassVar[int] = 1

    @property
    def name(self) -> str:
        return f"cg@{self.top}"

    def __call__(self, cells: MetricInput, /) -> Delta:
        """Eq. (7): (I / k) * Y * 1{position <= k}."""
        positions, n_items = cells.require_positions()
        last = min(self.top, n_items)
        in_top = n_items * share_in_top(positions, last)
        return Delta(in_top / self.top * cells.rating, slots=in_top / last)


@METRICS.declare(
    "precision",
    label="precision",
    summary="Share of relevant items among the k items recommended to each user.",
    traits={"order": 6, "top": "always", "words": "precision"},
)
@dataclass(frozen=True, slots=True)
class Precision:
    """PREC@k: the share of relevant items among the k recommended."""

    top: int
    relevance_threshold: float | None = None
    higher_is_better: ClassVar[bool] = True
    bounds: ClassVar[Bounds] = SHARE
    ranks: ClassVar[bool] = True

    @property
    def name(self) -> str:
        return f"precision@{self.top}"

    def __call__(self, cells: MetricInput, /) -> Delta:
        """Eq. (9): (I / k) * Y * 1{position <= k} with Y in {0, 1}."""
        positions, n_items = cells.require_positions()
        last = min(self.top, n_items)
        in_top = n_items * share_in_top(positions, last)
        is_relevant = relevance(cells, self.relevance_threshold)
        return Delta(in_top / self.top * is_relevant, slots=in_top / last)


@METRICS.declare(
    "recall",
    label="recall",
    summary="Share of a user's relevant items among the k recommended, mean over users.",
    traits={"order": 7, "top": "always", "words": "recall"},
)
@dataclass(frozen=True, slots=True)
class Recall:
    """Recall@k: the share of a user's relevant items among the k recommended.

    The mean is over users with a relevant item.
    """

    top: int
    relevance_threshold: float | None = None
    higher_is_better: ClassVar[bool] = True
    bounds: ClassVar[Bounds] = SHARE
    ranks: ClassVar[bool] = True

    @property
    def name(self) -> str:
        return f"recall@{self.top}"

    def __call__(self, cells: MetricInput, /) -> Delta:
        """Per user sum h Y 1{position <= k} / sum h Y: a ratio, so consistent but not unbiased."""
        positions, n_items = cells.require_positions()
        base = nonzero_relevance(cells, self.relevance_threshold)
        in_top = share_in_top(positions, min(self.top, n_items))
        return Delta(base * in_top, base, is_mean_of_users=True)


@METRICS.declare(
    "stratified_recall",
    label="stratified recall",
    summary="Recall of the k recommended items in which popular items count less.",
    traits={"order": 8, "top": "always", "words": "stratified recall"},
)
@dataclass(frozen=True, slots=True)
class StratifiedRecall:
    """Popularity-stratified recall@k (Steck 2011).

    A relevant cell of item i counts s_i = (number of relevant cells of item i)^-beta. With beta = 0
    all relevant cells count alike; with beta = 1 all items do.
    """

    top: int
    relevance_threshold: float | None = None
    beta: float = 0.5
    higher_is_better: ClassVar[bool] = True
    bounds: ClassVar[Bounds] = SHARE
    ranks: ClassVar[bool] = True

    @property
    def name(self) -> str:
        return f"stratified_recall@{self.top}"

    def __call__(self, cells: MetricInput, /) -> Delta:
        """Sum s_i Y 1{position <= k} / sum s_i Y over the cells of all users."""
        positions, n_items = cells.require_positions()
        positive = nonzero_relevance(cells, self.relevance_threshold)
        base = positive * np.maximum(cells.sum_by_item(positive), 1.0) ** -self.beta
        return Delta(base * share_in_top(positions, min(self.top, n_items)), base)


@METRICS.declare(
    "atop",
    label="atop",
    summary="Area under the recall curve: how high relevant items are ranked, 1 at the top.",
    traits={"order": 9, "words": "area under the recall curve"},
)
@dataclass(frozen=True, slots=True)
class AreaAboveTop:
    """ATOP (Steck 2010): how high relevant items are ranked, 1 at the top and 0 at the bottom.

    It is the mean of recall@k over k < I. Users count by their number of relevant items.
    """

    relevance_threshold: float | None = None
    name: ClassVar[str] = "atop"
    higher_is_better: ClassVar[bool] = True
    bounds: ClassVar[Bounds] = SHARE
    ranks: ClassVar[bool] = True
    top: ClassVar[int | None] = None

    def __call__(self, cells: MetricInput, /) -> Delta:
        """1 - (position - 1) / (I - 1), over relevant cells."""
        positions, n_items = cells.require_positions()
        base = nonzero_relevance(cells, self.relevance_threshold)

        def height(position: Vector) -> Vector:
            return 1.0 - (position - 1.0) / max(n_items - 1, 1)

        return Delta(base * positions.mean(height, last=n_items), base)


# Metrics below rank the logged cells among each other. They are for tests drawn uniformly at
# random: on other logs, which cells compete depends on the selection, and weights cannot help.


@METRICS.declare(
    "ndcg",
    label="NDCG",
    summary="DCG of each user's logged items over the best possible, on a random test.",
    traits={"order": 10, "top": "always", "words": "normalised discounted cumulative gain"},
)
@dataclass(frozen=True, slots=True)
class NormalizedGain:
    """NDCG@k over each user's logged items, with gains 0 and 1; the mean over users.

    A user without a relevant item is dropped, or counts as 1 or 0 (``empty_users``).
    """

    top: int
    relevance_threshold: float | None = None
    empty_users: EmptyUsers = "drop"
    higher_is_better: ClassVar[bool] = True
    bounds: ClassVar[Bounds] = SHARE
    ranks: ClassVar[bool] = False
    compares_logged_cells: ClassVar[bool] = True

    @property
    def name(self) -> str:
        return f"ndcg@{self.top}"

    def __call__(self, cells: MetricInput, /) -> Delta:
        """Per user sum Y d(position) / sum Y d(ideal position), d the discount up to k."""
        if self.empty_users not in EMPTY_USER_VALUES:
            raise UnknownNameError("empty_users", self.empty_users, EMPTY_USER_VALUES)
        user, score = cells.require_users(), cells.require_predictions()
        is_relevant = relevance(cells, self.relevance_threshold)
        gain = is_relevant * mean_over_ties(user, score, self._cut_discount)
        ideal_gain = is_relevant * mean_over_ties(user, is_relevant, self._cut_discount)
        n_relevant = np.bincount(user, is_relevant)
        empty_value = EMPTY_USER_VALUES[self.empty_users]
        if empty_value is None:
            if not n_relevant.any():
                raise UsageError(
                    "no user of the test has a relevant item.",
                    parameter="relevance_threshold",
                    remedy="Lower `relevance_threshold`.",
                )
        else:
            is_empty = (n_relevant == 0)[user]
            gain = np.where(is_empty, empty_value, gain)
            ideal_gain = np.where(is_empty, 1.0, ideal_gain)
        return Delta(gain, ideal_gain, is_mean_of_users=True)

    def _cut_discount(self, position: Vector) -> Vector:
        return np.where(position <= self.top, discount(position), 0.0)


@METRICS.declare(
    "user_auc",
    label="AUC by user",
    summary="AUC within each user's logged items, mean over users, on a random test.",
    traits={"order": 12, "words": "area under the ROC curve within users"},
)
@dataclass(frozen=True, slots=True)
class UserAuc:
    """The probability that a relevant item of a user is ranked above another of the user's items.

    The pairs are of one user's logged items, relevant and not; ties count half. The mean is over
    users who have both.
    """

    relevance_threshold: float | None = None
    name: ClassVar[str] = "user_auc"
    higher_is_better: ClassVar[bool] = True
    bounds: ClassVar[Bounds] = SHARE
    ranks: ClassVar[bool] = False
    top: ClassVar[int | None] = None
    compares_logged_cells: ClassVar[bool] = True

    def __call__(self, cells: MetricInput, /) -> Delta:
        """The rank-sum formula of the AUC, divided among the relevant cells of the user.

        With n relevant and m other items, AUC = 1 + ((n + 1) / 2 - mean position) / m.
        """
        user, score = cells.require_users(), cells.require_predictions()
        is_relevant = relevance(cells, self.relevance_threshold)
        position = mean_over_ties(user, score, _identity)
        n_relevant = np.bincount(user, is_relevant)
        n_other = np.bincount(user) - n_relevant
        has_both = (n_relevant > 0) & (n_other > 0)
        if not has_both.any():
            raise UsageError(
                "no test user has both relevant and other items.",
                parameter="relevance_threshold",
                remedy="Choose another `relevance_threshold`.",
            )
        base = is_relevant * has_both[user]
        below = n_other[user] + (n_relevant[user] + 1) / 2 - position
        return Delta(base * below / np.maximum(n_other, 1.0)[user], base, is_mean_of_users=True)


@METRICS.declare(
    "auc",
    label="AUC",
    summary="Probability that a relevant cell scores above another one, on a random test.",
    traits={"order": 11, "words": "area under the ROC curve"},
)
@dataclass(frozen=True, slots=True)
class Auc:
    """The probability that a relevant cell scores above another cell; ties count half."""

    relevance_threshold: float | None = None
    name: ClassVar[str] = "auc"
    higher_is_better: ClassVar[bool] = True
    bounds: ClassVar[Bounds] = SHARE
    ranks: ClassVar[bool] = False
    top: ClassVar[int | None] = None
    compares_logged_cells: ClassVar[bool] = True

    def __call__(self, cells: MetricInput, /) -> Delta:
        """Numbers whose mean is the AUC and whose spread gives its standard error.

        With R the AUC and N cells: R + N (share of other cells below - R) / (number of relevant
        cells) for a relevant cell, and R + N (share of relevant cells above - R) / (number of other
        cells) for another one (the Hajek projection of a two-sample statistic).
        """
        score = cells.require_predictions()
        is_relevant = relevance(cells, self.relevance_threshold) > 0
        n_relevant = int(is_relevant.sum())
        n_other = score.size - n_relevant
        if n_relevant == 0 or n_other == 0:
            raise UsageError(
                "the test needs relevant cells and others for an area under the curve.",
                parameter="relevance_threshold",
                remedy="Choose another `relevance_threshold`.",
            )
        one_group = np.zeros(score.size, np.int32)
        position = mean_over_ties(one_group, score, _identity)
        position_in_class = mean_over_ties(is_relevant.astype(np.int32), score, _identity)
        n_opposite_above = position - position_in_class
        share = np.where(
            is_relevant, 1.0 - n_opposite_above / n_other, n_opposite_above / n_relevant
        )
        auc = share[is_relevant].mean()
        n_class = np.where(is_relevant, n_relevant, n_other)
        return Delta(auc + score.size * (share - auc) / n_class)


def mean_over_ties(
    group: IntVector, score: Vector, value_at_position: Callable[[Vector], Vector]
) -> Vector:
    """The mean of ``value_at_position`` over the positions that tied cells share in their group.

    The cell with the highest score of a group has position 1.
    """
    order = np.lexsort((-score, group))
    groups, scores = group[order], score[order]
    starts_group = np.append(True, groups[1:] != groups[:-1])
    first = np.maximum.accumulate(np.where(starts_group, np.arange(groups.size), 0))
    tie = np.cumsum(starts_group | np.append(True, scores[1:] != scores[:-1])) - 1
    value = value_at_position((np.arange(groups.size) - first + 1).astype(np.float64))
    means = np.empty(groups.size)
    means[order] = (np.bincount(tie, value) / np.bincount(tie))[tie]
    return means


def _identity(position: Vector) -> Vector:
    return position
