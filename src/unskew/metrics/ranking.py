"""What a cell's place in the ranking of all items is worth.

Scores tie often, so each formula takes the expectation over random orders of a tie: items tied on places s..t all get the mean
of those places' weights (docs/decisions/003-ties.md).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unskew.metrics.metric import CellPositions, Delta, MetricInput
from unskew.types import Vector


def discount(place: Vector) -> Vector:
    """1 / log2(place + 1): the paper prints 1/log(rank), infinite at rank 1; its numbers use this."""
    return 1.0 / np.log2(place + 1.0)


def share_in_top(places: CellPositions, top: int) -> Vector:
    """The chance that a cell's place is among the first ``top``: the share of its tie's places that are."""
    return places.mean(np.ones_like, last=top)


def relevance(judged: MetricInput, threshold: float | None) -> Vector:
    """1 where the rating counts as relevant. Without a threshold the log's ratings must be 0 and 1 already.

    Imputed ratings may then be probabilities of 1.
    """
    if threshold is not None:
        return np.where(judged.rating >= threshold, 1.0, 0.0)
    judged.require_binary()
    return judged.rating


def some_relevance(judged: MetricInput, threshold: float | None) -> Vector:
    """As :func:`relevance`, for metrics that divide by the number of relevant cells."""
    relevant = relevance(judged, threshold)
    judged.require_relevant(1.0 if threshold is None else threshold)
    return relevant


@dataclass(frozen=True, slots=True)
class DiscountedGain:
    """DCG and DCG@k: the mean over users of sum_i Y_ui / log2(position + 1)."""

    top: int | None = None
    higher_is_better: bool = True
    ranks: bool = True

    @property
    def name(self) -> str:
        """``dcg`` or ``dcg@k``."""
        return "dcg" if self.top is None else f"dcg@{self.top}"

    def __call__(self, judged: MetricInput, /) -> Delta:
        """Eq. (8): I * Y / log2(position + 1)."""
        places, n_items = judged.require_positions()
        last = n_items if self.top is None else min(self.top, n_items)
        return Delta(n_items * places.mean(discount, last=last) * judged.rating)


@dataclass(frozen=True, slots=True)
class CumulativeGain:
    """CG@k: the mean rating of the k items recommended to each user."""

    top: int
    higher_is_better: bool = True
    ranks: bool = True

    @property
    def name(self) -> str:
        """``cg@k``."""
        return f"cg@{self.top}"

    def __call__(self, judged: MetricInput, /) -> Delta:
        """Eq. (7): (I / k) * Y * 1{position <= k}."""
        places, n_items = judged.require_positions()
        return Delta(
            n_items / self.top * share_in_top(places, min(self.top, n_items)) * judged.rating
        )


@dataclass(frozen=True, slots=True)
class Precision:
    """PREC@k: the share of relevant items among the k recommended."""

    top: int
    relevant: float | None = None
    higher_is_better: bool = True
    ranks: bool = True

    @property
    def name(self) -> str:
        """``precision@k``."""
        return f"precision@{self.top}"

    def __call__(self, judged: MetricInput, /) -> Delta:
        """Eq. (9): (I / k) * Y * 1{position <= k} with Y in {0, 1}."""
        places, n_items = judged.require_positions()
        in_top = share_in_top(places, min(self.top, n_items))
        return Delta(n_items / self.top * in_top * relevance(judged, self.relevant))


@dataclass(frozen=True, slots=True)
class Recall:
    """Recall@k: the share of a user's relevant items among the k recommended, mean over users with a relevant one."""

    top: int
    relevant: float | None = None
    higher_is_better: bool = True
    ranks: bool = True

    @property
    def name(self) -> str:
        """``recall@k``."""
        return f"recall@{self.top}"

    def __call__(self, judged: MetricInput, /) -> Delta:
        """Per user sum h Y 1{position <= k} / sum h Y: a ratio, so only consistent."""
        places, n_items = judged.require_positions()
        base = some_relevance(judged, self.relevant)
        return Delta(
            base * share_in_top(places, min(self.top, n_items)), base, is_mean_of_users=True
        )


@dataclass(frozen=True, slots=True)
class StratifiedRecall:
    """Popularity-stratified recall@k (Steck 2011): relevant items count (number of positives)^-beta each.

    beta = 0 pools all relevant cells; beta = 1 gives every item the same say.
    """

    top: int
    relevant: float | None = None
    beta: float = 0.5
    higher_is_better: bool = True
    ranks: bool = True

    @property
    def name(self) -> str:
        """``stratified_recall@k``."""
        return f"stratified_recall@{self.top}"

    def __call__(self, judged: MetricInput, /) -> Delta:
        """Sum s_i Y 1{position <= k} / sum s_i Y over all users' cells, s_i = (positives of item i)^-beta."""
        places, n_items = judged.require_positions()
        positive = some_relevance(judged, self.relevant)
        base = positive * np.maximum(judged.sum_by_item(positive), 1.0) ** -self.beta
        return Delta(base * share_in_top(places, min(self.top, n_items)), base)


@dataclass(frozen=True, slots=True)
class AreaAboveTop:
    """ATOP (Steck 2010): how far up relevant items stand, 1 at the top and 0 at the bottom; the mean recall@k over k < I.

    Users count by their number of relevant items.
    """

    relevant: float | None = None
    name: str = "atop"
    higher_is_better: bool = True
    ranks: bool = True
    top: None = None

    def __call__(self, judged: MetricInput, /) -> Delta:
        """1 - (position - 1) / (I - 1), over relevant cells."""
        places, n_items = judged.require_positions()
        base = some_relevance(judged, self.relevant)
        height = places.mean(lambda place: 1.0 - (place - 1.0) / max(n_items - 1, 1), last=n_items)
        return Delta(base * height, base)
