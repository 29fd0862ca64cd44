"""Ranking metrics: the value of a cell's position among the items of its user.

Scores often tie. Each formula is the expectation over random orders of tied items: items tied on
positions s to t all have the mean value of those positions (docs/decisions/003-ties.md).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from unskew.metrics import METRICS
from unskew.metrics.metric import Bounds, CellPositions, Delta, MetricInput
from unskew.settings import Number, WholeNumber, check_fields, setting
from unskew.types import Vector

TOP = WholeNumber(least=1)
TOP_OR_NONE = WholeNumber(least=1, allow_none=True)
THRESHOLD = Number(allow_none=True)
"""Checks of the settings that ranking metrics share."""
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


@dataclass(frozen=True, slots=True)
class PositionMetric:
    """A metric of positions: of the ``top`` items of a user's list, or of all if it is None."""

    top: int | None = setting(None, TOP_OR_NONE)
    stem: ClassVar[str]
    higher_is_better: ClassVar[bool] = True
    ranks: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_fields(self)

    @property
    def name(self) -> str:
        return self.stem if self.top is None else f"{self.stem}@{self.top}"


@dataclass(frozen=True, slots=True)
class RelevanceMetric(PositionMetric):
    """A share of relevant items; ratings from ``relevance_threshold`` on are relevant."""

    relevance_threshold: float | None = setting(None, THRESHOLD)
    bounds: ClassVar[Bounds] = SHARE


@METRICS.declare(
    "dcg",
    label="DCG",
    summary="Discounted cumulative gain: mean over users of sum rating / log2(position + 1).",
    traits={"order": 4, "top": "optional", "words": "discounted cumulative gain"},
)
@dataclass(frozen=True, slots=True)
class DiscountedGain(PositionMetric):
    """DCG and DCG@k: the mean over users of sum_i Y_ui / log2(position + 1)."""

    stem: ClassVar[str] = "dcg"
    rating_degree: ClassVar[int] = 1

    def __call__(self, cells: MetricInput, /) -> Delta:
        """Eq. (8): I * Y / log2(position + 1)."""
        positions, n_items = cells.require_positions()
        last = n_items if self.top is None else min(self.top, n_items)
        discounted = cells.mean_candidates * positions.mean(discount, last=last)
        full = cells.sum_over_list(discount, last)
        return Delta(discounted * cells.rating, slots=discounted / full)


@METRICS.declare(
    "cg",
    label="CG",
    summary="Cumulative gain: mean rating of the k items recommended to each user.",
    traits={"order": 5, "top": "always", "words": "cumulative gain"},
)
@dataclass(frozen=True, slots=True)
class CumulativeGain(PositionMetric):
    """CG@k: the mean rating of the k items recommended to each user."""

    top: int = setting(check=TOP)
    stem: ClassVar[str] = "cg"
    rating_degree: ClassVar[int] = 1

    def __call__(self, cells: MetricInput, /) -> Delta:
        """Eq. (7): (I / k) * Y * 1{position <= k}."""
        positions, n_items = cells.require_positions()
        last = min(self.top, n_items)
        in_top = cells.mean_candidates * share_in_top(positions, last)
        n_slots = cells.sum_over_list(np.ones_like, last)
        return Delta(in_top / self.top * cells.rating, slots=in_top / n_slots)


@METRICS.declare(
    "precision",
    label="precision",
    summary="Share of relevant items among the k items recommended to each user.",
    traits={"order": 6, "top": "always", "words": "precision"},
)
@dataclass(frozen=True, slots=True)
class Precision(RelevanceMetric):
    """PREC@k: the share of relevant items among the k recommended."""

    top: int = setting(check=TOP)
    stem: ClassVar[str] = "precision"

    def __call__(self, cells: MetricInput, /) -> Delta:
        """Eq. (9): (I / k) * Y * 1{position <= k} with Y in {0, 1}."""
        positions, n_items = cells.require_positions()
        last = min(self.top, n_items)
        in_top = cells.mean_candidates * share_in_top(positions, last)
        is_relevant = relevance(cells, self.relevance_threshold)
        n_slots = cells.sum_over_list(np.ones_like, last)
        return Delta(in_top / self.top * is_relevant, slots=in_top / n_slots)


@METRICS.declare(
    "recall",
    label="recall",
    summary="Share of a user's relevant items among the k recommended, mean over users.",
    traits={"order": 7, "top": "always", "words": "recall"},
)
@dataclass(frozen=True, slots=True)
class Recall(RelevanceMetric):
    """Recall@k: the share of a user's relevant items among the k recommended.

    The mean is over users with a relevant item.
    """

    top: int = setting(check=TOP)
    stem: ClassVar[str] = "recall"
    is_plug_in: ClassVar[bool] = True

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
class StratifiedRecall(RelevanceMetric):
    """Popularity-stratified recall@k (Steck 2011).

    A relevant cell of item i counts s_i = (number of relevant cells of item i)^-beta. With beta = 0
    all relevant cells count alike; with beta = 1 all items do.
    """

    top: int = setting(check=TOP)
    beta: float = setting(0.5, Number())
    stem: ClassVar[str] = "stratified_recall"

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

    relevance_threshold: float | None = setting(None, THRESHOLD)
    name: ClassVar[str] = "atop"
    higher_is_better: ClassVar[bool] = True
    bounds: ClassVar[Bounds] = SHARE
    ranks: ClassVar[bool] = True
    top: ClassVar[int | None] = None

    def __post_init__(self) -> None:
        check_fields(self)

    def __call__(self, cells: MetricInput, /) -> Delta:
        """1 - (position - 1) / (I - 1), over relevant cells."""
        positions, n_items = cells.require_positions()
        base = nonzero_relevance(cells, self.relevance_threshold)
        position = positions.mean(keep_position, last=n_items)
        n_below = np.maximum(cells.n_candidates - 1.0, 1.0)
        return Delta(base * (1.0 - (position - 1.0) / n_below), base)


def keep_position(position: Vector) -> Vector:
    return position
