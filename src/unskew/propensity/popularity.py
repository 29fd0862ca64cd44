"""Propensities from counts alone: of the log, of each item, of each user."""

from __future__ import annotations

from typing import Literal, Self, TypeAlias

import numpy as np

from unskew.data.checks import is_finite_number
from unskew.data.ratings import Ratings
from unskew.data.universe import UniverseLike
from unskew.errors import UnknownNameError, UsageError
from unskew.propensity.density import Capped, scale_to_total
from unskew.propensity.model import PropensityModel, known_universe
from unskew.types import IntVector, Vector

By: TypeAlias = Literal["item", "user", "both"]


class UniformPropensity(PropensityModel):
    """P = n / (U I): every cell alike, which makes SNIPS the naive average."""

    def fit(self, log: Ratings, *, universe: UniverseLike = None) -> Self:
        """Count the log."""
        self._remember(log, known_universe(log, universe))
        return self

    def _predict_codes(self, user: IntVector, item: IntVector, rating: Vector | None) -> Vector:  # noqa: ARG002
        return np.full(user.size, self.n_observed_ / self.n_cells_)


class PopularityPropensity(PropensityModel):
    """P_ui = min(1, k a_u b_i), with k such that all U I propensities add up to the number of ratings.

    By item ``a_u = 1`` and ``b_i = (n_i + smoothing) ** power``; by user the other way round; by both of them each. With power 1
    and no smoothing that is n_i / U, n_u / I, and n_u n_i / n (while none of these passes 1).

    Parameters
    ----------
    by
        Whose counts to look at: ``"item"``, ``"user"`` or ``"both"``.
    power
        Below 1 flattens the differences, such as the 0.5 of the literature on implicit feedback.
    smoothing
        Added to every count. Without it an item (user) without a rating has no chance at all: :meth:`predict_pairs` gives 0.
        With it users and items of the universe that the log does not list take their part of the sum as well.
    """

    user_score_: Vector
    """a_u, up to a factor."""
    item_score_: Vector
    """b_i, up to a factor."""
    scale_: float
    """k."""
    n_capped_: int
    """Cells of the universe whose propensity is 1, or would be above it."""

    def __init__(self, by: By = "item", *, power: float = 1.0, smoothing: float = 0.0) -> None:
        self.by: By = by
        self.power = power
        self.smoothing = smoothing

    def fit(self, log: Ratings, *, universe: UniverseLike = None) -> Self:
        """Count ratings of items and users, and find the scale."""
        self.check_settings()
        space = known_universe(log, universe)
        user, silent_user = self._scores(log.user, log.n_users, counts=self.by != "item")
        item, silent_item = self._scores(log.item, log.n_items, counts=self.by != "user")
        rows = Distinct.of(user, silent_user, space.n_users - log.n_users)
        columns = Distinct.of(item, silent_item, space.n_items - log.n_items)
        scale, n_capped = scale_to_total(len(log), lambda k: capped_products(rows, columns, k))
        self._remember(log, space)
        self.user_score_, self.item_score_ = user, item
        self.scale_, self.n_capped_ = scale, round(n_capped)
        return self

    @property
    def learns_users(self) -> bool:
        """Where users are counted."""
        return self.by != "item"

    def _find_inconsistency(self) -> str | None:
        """Whether there is a score for each user and item, once fitted."""
        if (self.user_score_.size, self.item_score_.size) != (len(self.users_), len(self.items_)):
            return "it does not have one score for each user and item."
        return None

    def _predict_codes(self, user: IntVector, item: IntVector, rating: Vector | None) -> Vector:  # noqa: ARG002
        return np.minimum(1.0, self.scale_ * (self.user_score_[user] * self.item_score_[item]))

    def _scores(self, code: IntVector, size: int, *, counts: bool) -> tuple[Vector, float]:
        """(count + smoothing) ** power of those that are listed, and of one that is not; the largest is 1."""
        if not counts:
            return np.ones(size), 1.0
        smoothed = np.bincount(code, minlength=size).astype(np.float64) + self.smoothing
        largest = float(smoothed.max())
        score: Vector = (smoothed / largest) ** self.power
        return score, float((self.smoothing / largest) ** self.power)

    def check_settings(self) -> None:
        """Refuse settings that make no sense."""
        if self.by not in ("item", "user", "both"):
            raise UnknownNameError("by", self.by, ("item", "user", "both"))
        if not (is_finite_number(self.power) and self.power > 0):
            raise UsageError(
                f"power must be positive, such as 1 or 0.5; got {self.power!r}. UniformPropensity ignores counts."
            )
        if not (is_finite_number(self.smoothing) and self.smoothing >= 0):
            raise UsageError(
                f"smoothing must be a number of ratings, at least 0; got {self.smoothing!r}."
            )


class Distinct:
    """Distinct scores, rising, with how often each occurs: counts that add up to n have at most sqrt(2 n) values."""

    def __init__(self, value: Vector, count: Vector) -> None:
        self.value, self.count = value, count
        self.count_below = np.concatenate([[0.0], np.cumsum(count)])
        self.sum_below = np.concatenate([[0.0], np.cumsum(count * value)])

    @classmethod
    def of(cls, listed: Vector, silent: float, n_silent: int) -> Distinct:
        """Of listed scores, and of ``n_silent`` that are not listed and all alike."""
        value, place = np.unique(np.append(listed, silent), return_inverse=True)
        count = np.bincount(place, weights=np.append(np.ones(listed.size), n_silent))
        return cls(value, count.astype(np.float64))


def capped_products(rows: Distinct, columns: Distinct, scale: float) -> Capped:
    """Over all a_u b_i: how many the scale lifts to 1, and the sum of the others; a search among the b for each distinct a."""
    lifted = scale * rows.value
    with np.errstate(divide="ignore", over="ignore"):  # a score of 0 is lifted to 1 by no scale
        limit = 1.0 / lifted
    first_capped = np.searchsorted(columns.value, limit, side="left")
    n_capped = rows.count * (columns.count_below[-1] - columns.count_below[first_capped])
    rest = rows.count * rows.value * columns.sum_below[first_capped]
    return Capped(float(n_capped.sum()), float(rest.sum()))
