"""Recommenders without factors: what any other recommender has to beat."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Self

import numpy as np

from unskew.data.factors import Factors
from unskew.data.propensities import PropensitiesLike
from unskew.data.ratings import Ratings, require_log
from unskew.data.weights import inverse_weights
from unskew.errors import UsageError
from unskew.models import PRESETS, RECOMMENDERS
from unskew.models.engine_choice import refuse_other_engines
from unskew.models.factor_recommender import FactorRecommender
from unskew.models.fold_in import append_ids, join_seen
from unskew.models.matrix_factorization import MatrixFactorization
from unskew.models.recommender import Preset
from unskew.settings import fitted_state
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

    Attributes
    ----------
    total_weight_ : the sum of 1 / P.
    """

    total_weight_: float = field(init=False)

    def fit(
        self,
        log: Ratings,
        propensities: PropensitiesLike | None = None,
        *,
        engine: str | object = "auto",
    ) -> Self:
        """Without propensities the prediction is the plain mean of the log.

        ``engine`` is ``"local"`` or ``"auto"``: other engines are refused by name.
        """
        refuse_other_engines(self, engine)
        require_log(log)
        weight = _weights(log, propensities)
        mean = float(np.average(log.rating, weights=weight))
        self._record_factors(log, _without_factors(log, mean, np.zeros(log.n_items)), mean)
        self.total_weight_ = float(weight.sum())
        return self

    def partial_fit(self, log: Ratings, propensities: PropensitiesLike | None = None) -> Self:
        """Add the ratings of another log: exactly what a fit to both logs together gives."""
        if not fitted_state(self):
            return self.fit(log, propensities)
        added = GlobalMean().fit(log, propensities)
        total = self.total_weight_ + added.total_weight_
        mean = (self.total_weight_ * self.fallback_ + added.total_weight_ * added.fallback_) / total
        item_offset = _add_log(self, log, np.zeros(log.n_items))
        self.factors_ = _constant_for_users(len(self.users_), mean, item_offset)
        self.fallback_, self.total_weight_ = mean, total
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

    def fit(
        self,
        log: Ratings,
        propensities: PropensitiesLike | None = None,
        *,
        engine: str | object = "auto",
    ) -> Self:
        """Without propensities the predictions are plain means.

        ``engine`` is ``"local"`` or ``"auto"``: other engines are refused by name.
        """
        refuse_other_engines(self, engine)
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

    def fit(
        self,
        log: Ratings,
        propensities: PropensitiesLike | None = None,
        *,
        engine: str | object = "auto",
    ) -> Self:
        """Without propensities each rating counts 1.

        ``engine`` is ``"local"`` or ``"auto"``: other engines are refused by name.
        """
        refuse_other_engines(self, engine)
        require_log(log)
        weight = _weights(log, propensities)
        counts = np.bincount(log.item, weights=weight, minlength=log.n_items).astype(np.float64)
        self._record_factors(log, _without_factors(log, 0.0, counts), 0.0)
        return self

    def partial_fit(self, log: Ratings, propensities: PropensitiesLike | None = None) -> Self:
        """Add the ratings of another log: exactly what a fit to both logs together gives."""
        if not fitted_state(self):
            return self.fit(log, propensities)
        added = Popularity().fit(log, propensities)
        counts = _add_log(self, log, added.factors_.item_offset.astype(np.float64))
        self.factors_ = _constant_for_users(len(self.users_), 0.0, counts)
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
    return _constant_for_users(log.n_users, global_offset, item_offset)


def _constant_for_users(n_users: int, global_offset: float, item_offset: Vector) -> Factors:
    """A prediction of ``global_offset`` plus the offset of the item, the same for all users."""
    return Factors(
        np.zeros((n_users, 0)),
        np.zeros((item_offset.size, 0)),
        np.zeros(n_users),
        item_offset,
        global_offset,
    )


def _add_log(model: FactorRecommender, log: Ratings, added: Vector) -> Vector:
    """Add the ids and seen items of ``log``; returns the sum of both item offsets.

    ``added`` are the item offsets of ``log``. New ids follow the known ones.
    """
    n_seen = model.count_seen(log)
    if n_seen:
        raise UsageError(
            f"{n_seen} of {len(log)} ratings are of cells that the model has seen, and would count "
            "twice.",
            parameter="log",
            remedy="Pass new ratings only, or fit again.",
        )
    old = model.factors_.item_offset
    users, user_code = append_ids(log.users, model.users_, "user")
    items, item_code = append_ids(log.items, model.items_, "item")
    seen = model.seen_starts_, model.seen_items_
    cells = user_code[log.user], item_code[log.item]
    model.seen_starts_, model.seen_items_ = join_seen(seen, users.size, items.size, *cells)
    model.users_, model.items_ = users, items
    offset = np.zeros(items.size)
    offset[: old.size] = old
    offset[item_code] += added
    return offset
