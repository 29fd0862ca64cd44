"""Fits that leave one part of a log out: they have not seen its ratings."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from dataclasses import dataclass
from typing import Self, TypeVar

import numpy as np
import numpy.typing as npt

from unskew.data.ratings import Ratings
from unskew.factorization.automatic import LONG_LOG, MIN_RATINGS, N_PARTS
from unskew.factorization.balancing import BalanceFeatures
from unskew.models.factor_recommender import RatingFactorization
from unskew.types import BoolVector, Matrix, RandomState, Vector

N_PARTS_OF_LONG_LOG = 2
PART_TOLERANCE = 1e-4
"""``tol`` of a fit that leaves a part out, if that of the model is smaller. Any function of users
and items that has not seen the part can be balanced: it need not be the optimum."""

Array = TypeVar("Array", Vector, Matrix)
Model = TypeVar("Model", bound=RatingFactorization)


def loosen(model: Model) -> Model:
    """A copy of the model for the parts of a log, with a ``tol`` of at least ``PART_TOLERANCE``."""
    return copy(model).set_params(tol=max(model.tol, PART_TOLERANCE))


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
        self, log: Ratings, find_features: Callable[[BoolVector, Ratings], BalanceFeatures]
    ) -> BalanceFeatures:
        """Each rating has the features of the fit that has not seen it.

        ``find_features(is_left, part)`` fits to the ratings ``is_left``, and returns its features
        of the ratings ``part``. With propensities that are right, the weighted sum over a part
        estimates the sum over all cells of the same function, because the function does not depend
        on the part.
        """
        features = [
            find_features(self.exclude(part), rows) for part, rows in enumerate(self.split(log))
        ]
        shares = np.bincount(self.number, minlength=self.n_parts) / self.number.size
        totals = np.sum([s * each.totals for s, each in zip(shares, features, strict=True)], axis=0)
        on_log = self.join([each.on_log for each in features])
        return BalanceFeatures(on_log, totals, features[0].n_cells, features[0].smallest)

    def split(self, log: Ratings) -> list[Ratings]:
        """The ratings of each part."""
        return [log.take(self.number == part) for part in range(self.n_parts)]

    def join(self, values: list[Array]) -> Array:
        """The values of all ratings, from those of the ratings of each part."""
        joined = np.empty((self.number.size, *values[0].shape[1:]), values[0].dtype)
        for part, of_part in enumerate(values):
            joined[self.number == part] = of_part
        return joined
