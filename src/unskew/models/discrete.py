"""Recommenders that predict how likely each rating is."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from unskew.data.vocabulary import Ids, as_ids, find_codes
from unskew.errors import UnknownNameError
from unskew.models.estimator import OnUnknown, Recommender, Shapes
from unskew.types import IntVector, Matrix, Scorer, Scores, Vector

Statistic: TypeAlias = Literal["mean", "median"]
STATISTICS: tuple[Statistic, ...] = ("mean", "median")
BLOCK_PAIRS = 1 << 17
"""Pairs whose distributions are in memory at once."""


class DistributionRecommender(Recommender):
    """Predicts a distribution over the rating levels of the log; ``predict`` gives its mean (for MSE) or median (for MAE).

    Subclasses have a setting ``statistic``, say which of the two ``predict`` gives, and fit what :meth:`_distribution` needs.
    """

    statistic: Statistic
    levels_: Vector
    """The different ratings of the log, from low to high."""

    def predict_distribution(self, users: npt.ArrayLike, items: npt.ArrayLike, *, on_unknown: OnUnknown = "fallback") -> Matrix:
        """One row for each pair of ids: the probability of each of ``levels_``. Unknown ids are treated as in ``predict``."""
        user, item = self._pairs(users, items, on_unknown)
        shares = np.empty((user.size, self.levels_.size))
        for first in range(0, user.size, BLOCK_PAIRS):
            piece = slice(first, first + BLOCK_PAIRS)
            shares[piece] = self._distribution(user[piece], item[piece])
        if on_unknown == "nan":
            shares[(user < 0) | (item < 0)] = np.nan
        return shares

    @abstractmethod
    def _distribution(self, user: IntVector, item: IntVector) -> Matrix:
        """A row of probabilities for each pair of codes; -1 is an unknown user or item."""

    def _predict_codes(self, user: IntVector, item: IntVector) -> Vector:
        values = np.empty(user.size)
        for first in range(0, user.size, BLOCK_PAIRS):
            piece = slice(first, first + BLOCK_PAIRS)
            values[piece] = self._summary(self._distribution(user[piece], item[piece]))
        return values

    def _summary(self, shares: Matrix) -> Vector:
        """The mean, or the first level at which half of the probability is reached."""
        if self.statistic == "mean":
            mean: Vector = shares @ self.levels_
            return mean
        median: Vector = self.levels_[(np.cumsum(shares, axis=1) < 0.5 - 1e-12).sum(axis=1)]
        return median

    def scorer(self, users: Ids, items: Ids, /) -> Scorer:
        """Codes index ``users``, columns are ``items``; scores are means, since medians have too many ties to rank."""
        self.require_fit()
        user, item = find_codes(as_ids(users), self.users_), find_codes(as_ids(items), self.items_)
        return _MeanScorer(self._distribution, self.levels_, user, item)

    def _check_statistic(self) -> None:
        if self.statistic not in STATISTICS:
            raise UnknownNameError("statistic", self.statistic, STATISTICS)

    def _shapes(self) -> Shapes:
        return {"levels": (self.levels_, (self.levels_.size,))}


@dataclass(frozen=True, slots=True, eq=False)
class _MeanScorer:
    """Means of the distributions of some users against all items."""

    distribution: Callable[[IntVector, IntVector], Matrix]
    levels: Vector
    user: IntVector
    item: IntVector

    def __call__(self, users: IntVector, /, *, out: Scores | None = None) -> Scores:
        scores = np.empty((users.size, self.item.size)) if out is None else out
        size = max(1, BLOCK_PAIRS // max(1, self.item.size))
        for first in range(0, users.size, size):
            block = self.user[users[first : first + size]]
            pairs = np.repeat(block, self.item.size), np.tile(self.item, block.size)
            scores[first : first + size] = (self.distribution(*pairs) @ self.levels).reshape(block.size, self.item.size)
        return scores
