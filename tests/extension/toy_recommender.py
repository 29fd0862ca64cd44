"""A recommender from another package: the mean rating of each item."""

from dataclasses import dataclass
from typing import Self

import numpy as np

from unskew.data.factors import Factors
from unskew.data.ratings import require_log
from unskew.models import RECOMMENDERS, FactorRecommender


@RECOMMENDERS.declare(
    "item-mean",
    label="Item mean",
    summary="The mean rating of each item.",
    traits={"reads_propensities": False, "needs_propensities": False},
)
@dataclass(eq=False, repr=False)
class ItemMean(FactorRecommender):
    def fit(self, log, propensities=None) -> Self:
        require_log(log)
        mean = float(log.rating.mean())
        sums = np.bincount(log.item, weights=log.rating - mean, minlength=log.n_items)
        counts = np.bincount(log.item, minlength=log.n_items)
        factors = Factors(
            np.zeros((log.n_users, 0)),
            np.zeros((log.n_items, 0)),
            item_offset=sums / np.maximum(counts, 1),
            global_offset=mean,
        )
        self._record_factors(log, factors, mean)
        return self
