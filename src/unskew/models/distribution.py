"""Recommenders that predict a probability for each rating level."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from unskew.data.ids import Ids
from unskew.models.recommender import OnUnknown, Recommender
from unskew.threads import Workers
from unskew.types import ArrayShapes, IntVector, Matrix, Scorer, Scores, Vector

Statistic: TypeAlias = Literal["mean", "median"]
STATISTICS: tuple[Statistic, ...] = ("mean", "median")
Distribution: TypeAlias = Callable[[IntVector, IntVector], Matrix]
"""Given positions in a list of users and in a list of items: a row of probabilities a pair."""
BLOCK_PAIRS = 1 << 17
"""Pairs whose distributions are in memory at once, for each thread."""


class DistributionRecommender(Recommender):
    """Predicts a distribution over the rating levels of the log.

    ``predict`` gives its mean (best for MSE) or its median (best for MAE), whichever the setting
    ``statistic`` names. A subclass fits what :meth:`_distribution` needs.

    Attributes
    ----------
    levels_ : the different ratings of the log, in increasing order.
    """

    statistic: Statistic
    n_threads: int | None
    levels_: Vector

    def predict_distribution(
        self, users: npt.ArrayLike, items: npt.ArrayLike, *, on_unknown: OnUnknown = "warn"
    ) -> Matrix:
        """The probability of each of ``levels_``, one row for each pair of ids.

        ``on_unknown`` is the same as in :meth:`predict`.
        """
        user, item = self._find_pairs(users, items, on_unknown)
        shares = np.empty((user.size, self.levels_.size))
        self._fill(shares, user, item, lambda block: block)
        if on_unknown == "nan":
            shares[(user < 0) | (item < 0)] = np.nan
        return shares

    @abstractmethod
    def _distribution(self, user: IntVector, item: IntVector) -> Distribution:
        """The distribution of pairs of these codes, as a function of positions in the two lists.

        The code -1 is an unknown user or item.
        """

    def _predict_codes(self, user: IntVector, item: IntVector) -> Vector:
        values = np.empty(user.size)
        self._fill(values, user, item, self._summarize)
        return values

    def _fill(
        self,
        out: npt.NDArray[np.float64],
        user: IntVector,
        item: IntVector,
        summarize: Callable[[Matrix], npt.NDArray[np.float64]],
    ) -> None:
        """Write ``summarize(distributions)`` of pairs of codes to ``out``, in blocks."""
        users, row = _unique_codes(user, len(self.users_))
        items, column = _unique_codes(item, len(self.items_))
        distribution = self._distribution(users, items)

        def fill_block(first: int) -> None:
            block = slice(first, first + BLOCK_PAIRS)
            out[block] = summarize(distribution(row[block], column[block]))

        with Workers(self.n_threads) as workers:
            workers.map(fill_block, range(0, user.size, BLOCK_PAIRS))

    def _summarize(self, shares: Matrix) -> Vector:
        """The mean, or the lowest level at which the cumulative probability reaches one half."""
        if self.statistic == "mean":
            mean: Vector = shares @ self.levels_
            return mean
        median: Vector = self.levels_[(np.cumsum(shares, axis=1) < 0.5 - 1e-12).sum(axis=1)]
        return median

    def scorer(self, users: Ids, items: Ids, /) -> Scorer:
        """A scorer of ``items``, in this order, for users given by their index in ``users``.

        Scores are means, because medians have too many ties to rank items by.
        """
        user, item = self._find_codes_or_none(users, items)
        return _MeanScorer(self._distribution, self.levels_, user, item, self.n_threads)

    def _arrays_with_expected_shapes(self) -> ArrayShapes:
        return {"levels": (self.levels_, (self.levels_.size,))}


@dataclass(frozen=True, slots=True, eq=False)
class _MeanScorer:
    """Scores items by the mean of their predicted distribution."""

    distribution: Callable[[IntVector, IntVector], Distribution]
    levels: Vector
    user: IntVector
    item: IntVector
    n_threads: int | None

    def __call__(self, users: IntVector, /, *, out: Scores | None = None) -> Scores:
        """The expected rating of every item (a column) by each user (a row)."""
        n_items = self.item.size
        scores = np.empty((users.size, n_items)) if out is None else out
        predict = self.distribution(self.user[users], self.item)
        block_users = max(1, BLOCK_PAIRS // max(1, n_items))
        items = np.tile(np.arange(n_items, dtype=np.int32), min(block_users, users.size))

        def score_block(first: int) -> None:
            rows = np.arange(first, min(first + block_users, users.size), dtype=np.int32)
            probabilities = predict(np.repeat(rows, n_items), items[: rows.size * n_items])
            scores[rows] = (probabilities @ self.levels).reshape(rows.size, n_items)

        with Workers(self.n_threads) as workers:
            workers.map(score_block, range(0, users.size, block_users))
        return scores


def _unique_codes(codes: IntVector, n: int) -> tuple[IntVector, IntVector]:
    """Codes without repeats, and the position of each of ``codes`` among them.

    If there are more than ``n`` codes, these are all codes from -1 to n - 1, without a sort.
    """
    if codes.size <= n:
        unique, position = np.unique(codes, return_inverse=True)
        return unique, position.astype(np.int32)
    return np.arange(-1, n, dtype=np.int32), codes.astype(np.int32) + np.int32(1)
