"""Recommenders without factors: what any other recommender has to beat."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np

from unskew.data.factors import Factors
from unskew.data.propensities import PropensitiesLike
from unskew.data.ratings import Ratings, require_log
from unskew.data.weights import inverse_weights
from unskew.models import PRESETS, RECOMMENDERS
from unskew.models.factor_recommender import FactorRecommender
from unskew.models.matrix_factorization import MatrixFactorization
from unskew.models.preset import Preset
from unskew.types import Vector


@RECOMMENDERS.declare(
    "mean",
    label="Mean rating",
    summary="The (weighted) mean rating for every cell.",
)
@dataclass(eq=False, repr=False)
class GlobalMean(FactorRecommender):
    """F_ui = sum(Y / P) / sum(1 / P): the SNIPS estimate of the mean rating, Eq. (11).

    This constant has the smallest weighted squared error. All items have the same score, so
    ``recommend`` gives unseen items in the order of the log's items.
    """

    def fit(self, log: Ratings, propensities: PropensitiesLike | None = None) -> Self:
        """Without propensities the prediction is the plain mean of the log."""
        require_log(log)
        mean = float(np.average(log.rating, weights=_weights(log, propensities)))
        self._record_factors(log, _without_factors(log, mean, np.zeros(log.n_items)), mean)
        return self


@RECOMMENDERS.declare(
    "item-average",
    label="Item mean",
    summary="The (weighted) mean rating of the item, for every user.",
)
@dataclass(eq=False, repr=False)
class ItemAverage(FactorRecommender):
    """F_ui = sum(Y / P) / sum(1 / P) over the ratings of item i, without any shrinkage.

    An item without ratings gets the mean of all ratings, and so does an unknown item.
    :data:`OffsetsOnly`, which shrinks the means of items with few ratings, is usually better.
    """

    def fit(self, log: Ratings, propensities: PropensitiesLike | None = None) -> Self:
        """Without propensities the predictions are plain means."""
        require_log(log)
        weight = _weights(log, propensities)
        mean = float(np.average(log.rating, weights=weight))
        total = np.bincount(log.item, weights=weight, minlength=log.n_items)
        gap = np.bincount(log.item, weights=weight * (log.rating - mean), minlength=log.n_items)
        offset = np.divide(gap, total, out=np.zeros(log.n_items), where=total > 0)
        self._record_factors(log, _without_factors(log, mean, offset), mean)
        return self


@RECOMMENDERS.declare(
    "popularity",
    label="Popularity",
    summary="The (weighted) number of ratings of an item; ranks items only.",
)
@dataclass(eq=False, repr=False)
class Popularity(FactorRecommender):
    """F_ui = sum over the ratings of item i of 1 / P: how often an item was rated.

    ``predict`` gives this count, which ranks items but is not a rating: evaluate it by ranking
    metrics. An unknown item counts 0. With the true propensities of *all* cells every item counts
    U in expectation: the weights remove the selection that makes an item popular.
    """

    predicts_ratings: ClassVar[bool] = False

    def fit(self, log: Ratings, propensities: PropensitiesLike | None = None) -> Self:
        """Without propensities each rating counts 1."""
        require_log(log)
        weight = _weights(log, propensities)
        counts = np.bincount(log.item, weights=weight, minlength=log.n_items).astype(np.float64)
        self._record_factors(log, _without_factors(log, 0.0, counts), 0.0)
        return self


OffsetsOnly = PRESETS.add(
    "offsets",
    Preset(
        "OffsetsOnly",
        MatrixFactorization,
        fixed={"n_factors": 0, "offsets": "regularized"},
        defaults={"tol": 1e-12},
    ),
    label="Offsets",
    summary="F_ui = a_u + b_i + c: a matrix factorisation without factors.",
)


def _weights(log: Ratings, propensities: PropensitiesLike | None) -> Vector:
    return np.ones(len(log)) if propensities is None else inverse_weights(log, propensities)


def _without_factors(log: Ratings, global_offset: float, item_offset: Vector) -> Factors:
    """A prediction of ``global_offset`` plus the offset of the item, the same for all users."""
    return Factors(
        np.zeros((log.n_users, 0)),
        np.zeros((log.n_items, 0)),
        np.zeros(log.n_users),
        item_offset,
        global_offset,
    )
