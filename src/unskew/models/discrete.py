"""Recommenders that predict how likely each rating is."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from unskew.data.ids import Ids, as_ids, find_codes
from unskew.errors import UnknownNameError
from unskew.models.recommender import OnUnknown, Recommender, Shapes
from unskew.settings import require_fitted
from unskew.threads import Workers
from unskew.types import IntVector, Matrix, Scorer, Scores, Vector

Statistic: TypeAlias = Literal["mean", "median"]
Distribution: TypeAlias = Callable[[IntVector, IntVector], Matrix]
"""A row of probabilities for each pair of places among users and items that were named before."""
STATISTICS: tuple[Statistic, ...] = ("mean", "median")
BLOCK_PAIRS = 1 << 17
"""Pairs whose distributions are in memory at once, for each thread."""


class DistributionRecommender(Recommender):
    """Predicts a distribution over the rating levels of the log; ``predict`` gives its mean (for MSE) or median (for MAE).

    Subclasses have a setting ``statistic``, say which of the two ``predict`` gives, and fit what :meth:`_distribution` needs.
    """

    statistic: Statistic
    n_threads: int | None
    levels_: Vector
    """The different ratings of the log, from low to high."""

    def predict_distribution(
        self, users: npt.ArrayLike, items: npt.ArrayLike, *, on_unknown: OnUnknown = "fallback"
    ) -> Matrix:
        """One row for each pair of ids: the probability of each of ``levels_``. Unknown ids are treated as in ``predict``."""
        user, item = self._pairs(users, items, on_unknown)
        shares = np.empty((user.size, self.levels_.size))
        self._fill(shares, user, item, lambda of_block: of_block)
        if on_unknown == "nan":
            shares[(user < 0) | (item < 0)] = np.nan
        return shares

    @abstractmethod
    def _distribution(self, user: IntVector, item: IntVector) -> Distribution:
        """That of pairs of these users and items, by their places among them; -1 is an unknown user or item."""

    def _predict_codes(self, user: IntVector, item: IntVector) -> Vector:
        values = np.empty(user.size)
        self._fill(values, user, item, self._summary)
        return values

    def _fill(
        self,
        out: npt.NDArray[np.float64],
        user: IntVector,
        item: IntVector,
        made: Callable[[Matrix], npt.NDArray[np.float64]],
    ) -> None:
        """What is made of the distributions of pairs of codes, in blocks."""
        (users, row), (items, column) = (
            _different(user, len(self.users_)),
            _different(item, len(self.items_)),
        )
        distribution = self._distribution(users, items)

        def work(first: int) -> None:
            piece = slice(first, first + BLOCK_PAIRS)
            out[piece] = made(distribution(row[piece], column[piece]))

        with Workers(self.n_threads) as workers:
            workers.map(work, range(0, user.size, BLOCK_PAIRS))

    def _summary(self, shares: Matrix) -> Vector:
        """The mean, or the first level at which half of the probability is reached."""
        if self.statistic == "mean":
            mean: Vector = shares @ self.levels_
            return mean
        median: Vector = self.levels_[(np.cumsum(shares, axis=1) < 0.5 - 1e-12).sum(axis=1)]
        return median

    def scorer(self, users: Ids, items: Ids, /) -> Scorer:
        """Codes index ``users``, columns are ``items``; scores are means, since medians have too many ties to rank."""
        require_fitted(self)
        user, item = find_codes(as_ids(users), self.users_), find_codes(as_ids(items), self.items_)
        return _MeanScorer(self._distribution, self.levels_, user, item, self.n_threads)

    def _check_statistic(self) -> None:
        if self.statistic not in STATISTICS:
            raise UnknownNameError("statistic", self.statistic, STATISTICS)

    def _shapes(self) -> Shapes:
        return {"levels": (self.levels_, (self.levels_.size,))}


@dataclass(frozen=True, slots=True, eq=False)
class _MeanScorer:
    """Means of the distributions of some users against all items."""

    distribution: Callable[[IntVector, IntVector], Distribution]
    levels: Vector
    user: IntVector
    item: IntVector
    n_threads: int | None

    def __call__(self, users: IntVector, /, *, out: Scores | None = None) -> Scores:
        n_items = self.item.size
        scores = np.empty((users.size, n_items)) if out is None else out
        distribution, size = (
            self.distribution(self.user[users], self.item),
            max(1, BLOCK_PAIRS // max(1, n_items)),
        )
        columns = np.tile(np.arange(n_items, dtype=np.int32), min(size, users.size))

        def work(first: int) -> None:
            rows = np.arange(first, min(first + size, users.size), dtype=np.int32)
            shares = distribution(np.repeat(rows, n_items), columns[: rows.size * n_items])
            scores[rows] = (shares @ self.levels).reshape(rows.size, n_items)

        with Workers(self.n_threads) as workers:
            workers.map(work, range(0, users.size, size))
        return scores


def _different(codes: IntVector, n: int) -> tuple[IntVector, IntVector]:
    """Codes that have each of ``codes`` among them, and its place: the different ones, or all ``n`` and -1 if that is no more."""
    if codes.size <= n:
        some, place = np.unique(codes, return_inverse=True)
        return some, place.astype(np.int32)
    return np.arange(-1, n, dtype=np.int32), codes.astype(np.int32) + np.int32(1)
