"""Fits that leave one part of a log out: they have not seen its ratings."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt

from unskew.data.ratings import Ratings
from unskew.factorization.automatic import LONG_LOG, MIN_RATINGS, N_PARTS
from unskew.factorization.balancing import BalanceFeatures
from unskew.types import BoolVector, Matrix, RandomState

N_PARTS_OF_LONG_LOG = 2


@dataclass(frozen=True, slots=True, eq=False)
class LogParts:
    """The part of each rating. Every part is left out by one fit.

    Four quarters, two halves of a long log, and a single part if the log is too short to be split;
    then the one fit is to the whole log.
    """

    number: npt.NDArray[np.int64]
    n_parts: int

    @classmethod
    def draw(cls, log: Ratings, random_state: RandomState) -> Self:
        n_parts = N_PARTS if len(log) < LONG_LOG else N_PARTS_OF_LONG_LOG
        if len(log) < MIN_RATINGS:
            n_parts = 1
        number = np.random.default_rng(random_state).permutation(len(log)) % n_parts
        return cls(number, n_parts)

    def exclude(self, part: int) -> BoolVector:
        """The ratings of all other parts; all ratings if there is only one part."""
        if self.n_parts == 1:
            return np.ones(self.number.size, bool)
        return np.asarray(self.number != part)

    def balance_features(
        self, find_features: Callable[[BoolVector], BalanceFeatures]
    ) -> BalanceFeatures:
        """Each rating has the features of the fit that has not seen it.

        ``find_features`` fits to the ratings that it gets, and returns its features of the whole
        log. With propensities that are right, the weighted sum over a part estimates the sum over
        all cells of the same function, because the function does not depend on the part.
        """
        features = [find_features(self.exclude(part)) for part in range(self.n_parts)]
        shares = np.bincount(self.number, minlength=self.n_parts) / self.number.size
        totals = np.sum([s * each.totals for s, each in zip(shares, features, strict=True)], axis=0)
        on_log = self.pick([each.on_log for each in features])
        return BalanceFeatures(on_log, totals, features[0].n_cells, features[0].smallest)

    def pick(self, matrices: list[Matrix]) -> Matrix:
        """The rows of each part from the matrix of the fit that has left it out."""
        rows = matrices[0].copy()
        for part in range(1, self.n_parts):
            rows[self.number == part] = matrices[part][self.number == part]
        return rows
