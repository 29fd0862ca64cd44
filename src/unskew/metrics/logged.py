"""Metrics that rank the logged cells among each other.

They are for tests drawn uniformly at random: on other logs, which cells compete depends on the
selection, and weights cannot help. Their names start with ``logged_``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal, TypeAlias

import numpy as np

from unskew.errors import UsageError
from unskew.metrics import METRICS
from unskew.metrics.metric import Bounds, Delta, MetricInput
from unskew.metrics.ranking import SHARE, THRESHOLD, TOP, discount, keep_position, relevance
from unskew.settings import OneOf, check_fields, setting
from unskew.types import IntVector, Vector

EmptyUsers: TypeAlias = Literal["drop", "one", "zero"]
EMPTY_USER_VALUES: Mapping[str, float | None] = {"drop": None, "one": 1.0, "zero": 0.0}
"""The value of a user without a relevant item; None drops such users."""


@METRICS.declare(
    "logged_ndcg",
    label="NDCG of logged items",
    summary="DCG of each user's logged items over the best possible, on a random test.",
    traits={"order": 30, "top": "always", "words": "normalised discounted cumulative gain"},
)
@dataclass(frozen=True, slots=True)
class LoggedNormalizedGain:
    """NDCG@k over each user's logged items, with gains 0 and 1; the mean over users.

    A user without a relevant item is dropped, or counts as 1 or 0 (``empty_users``).
    """

    top: int = setting(check=TOP)
    relevance_threshold: float | None = setting(None, THRESHOLD)
    empty_users: EmptyUsers = setting("drop", OneOf(tuple(EMPTY_USER_VALUES)))
    higher_is_better: ClassVar[bool] = True
    bounds: ClassVar[Bounds] = SHARE
    ranks: ClassVar[bool] = False
    compares_logged_cells: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_fields(self)

    @property
    def name(self) -> str:
        return f"logged_ndcg@{self.top}"

    def __call__(self, cells: MetricInput, /) -> Delta:
        """Per user sum Y d(position) / sum Y d(ideal position), d the discount up to k."""
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


@dataclass(frozen=True, slots=True)
class _PairMetric:
    """A share of pairs of a relevant cell and another one."""

    relevance_threshold: float | None = setting(None, THRESHOLD)
    higher_is_better: ClassVar[bool] = True
    bounds: ClassVar[Bounds] = SHARE
    ranks: ClassVar[bool] = False
    top: ClassVar[int | None] = None
    compares_logged_cells: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_fields(self)


@METRICS.declare(
    "logged_user_auc",
    label="AUC of logged items by user",
    summary="AUC within each user's logged items, mean over users, on a random test.",
    traits={"order": 32, "words": "area under the ROC curve within users"},
)
@dataclass(frozen=True, slots=True)
class LoggedUserAuc(_PairMetric):
    """The probability that a relevant item of a user is ranked above another of the user's items.

    The pairs are of one user's logged items, relevant and not; ties count half. The mean is over
    users who have both.
    """

    name: ClassVar[str] = "logged_user_auc"

    def __call__(self, cells: MetricInput, /) -> Delta:
        """The rank-sum formula of the AUC, divided among the relevant cells of the user.

        With n relevant and m other items, AUC = 1 + ((n + 1) / 2 - mean position) / m.
        """
        user, score = cells.require_users(), cells.require_predictions()
        is_relevant = relevance(cells, self.relevance_threshold)
        position = mean_over_ties(user, score, keep_position)
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
    "logged_auc",
    label="AUC of logged cells",
    summary="Probability that a relevant cell scores above another one, on a random test.",
    traits={"order": 31, "words": "area under the ROC curve"},
)
@dataclass(frozen=True, slots=True)
class LoggedAuc(_PairMetric):
    """The probability that a relevant cell scores above another cell; ties count half."""

    name: ClassVar[str] = "logged_auc"

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
        position = mean_over_ties(one_group, score, keep_position)
        position_in_class = mean_over_ties(is_relevant.astype(np.int32), score, keep_position)
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
