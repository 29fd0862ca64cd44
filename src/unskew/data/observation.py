"""How a complete rating matrix becomes a log: which cells are seen, and with what probability.

A model says how likely a cell is *relative* to others; the scale ``k`` is then set so that the expected share of seen cells is
exactly the density asked for. Rows of the matrix are worked through in blocks, so that only the truth itself has U x I size.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from unskew.data.propensities import Propensities
from unskew.data.ratings import Ratings
from unskew.errors import UsageError
from unskew.types import Matrix, Vector

BLOCK_CELLS = 1 << 20
Truth = npt.NDArray[np.floating] | npt.NDArray[np.integer]


class ObservationModel(Protocol):
    """Relative propensities of a block of rows."""

    def relative(self, rating: Truth, users: slice, /) -> Matrix:
        """Positive numbers, one a cell; only their ratios matter."""
        ...


@dataclass(frozen=True, slots=True)
class Uniform:
    """Missing completely at random: every cell alike."""

    def relative(self, rating: Truth, users: slice, /) -> Matrix:  # noqa: ARG002
        """1 everywhere."""
        return np.ones(rating.shape)


@dataclass(frozen=True, slots=True)
class ByRating:
    """The paper's model (Section 6.2): people rate what they like.

    k for ratings of ``full_from`` and more, ``k * alpha ** (full_from - r)`` below. alpha = 1 is uniform; alpha to 0 shows only
    what is liked.
    """

    alpha: float = 0.25
    full_from: float = 4.0

    def __post_init__(self) -> None:
        if not 0 < self.alpha <= 1:
            raise UsageError(f"alpha must lie in (0, 1]; got {self.alpha}. At 0 disliked cells could never be seen.")

    def relative(self, rating: Truth, users: slice, /) -> Matrix:  # noqa: ARG002
        """``alpha ** max(full_from - r, 0)``, looked up by level."""
        levels, level = np.unique(rating, return_inverse=True)
        likely: Vector = self.alpha ** np.maximum(self.full_from - levels.astype(np.float64), 0.0)
        return likely[level].reshape(rating.shape)


@dataclass(frozen=True, slots=True, eq=False)
class ByCovariates:
    """Active users and popular items are logged more, whatever the rating: relative propensity activity_u * popularity_i."""

    activity: Vector
    popularity: Vector

    def __post_init__(self) -> None:
        for name, values in (("activity", self.activity), ("popularity", self.popularity)):
            if not (np.isfinite(values).all() and (np.asarray(values) > 0).all()):
                raise UsageError(f"{name} must be positive and finite for every cell to have a chance.")

    @classmethod
    def long_tail(cls, n_users: int, n_items: int, *, skew: float = 0.5, random_state: int = 0) -> ByCovariates:
        """Activity and popularity falling as place ** -skew, in random order."""
        rng = np.random.default_rng(random_state)
        activity, popularity = (rng.permutation(np.arange(1, size + 1) ** -skew) for size in (n_users, n_items))
        return cls(activity, popularity)

    def relative(self, rating: Truth, users: slice, /) -> Matrix:
        """activity_u * popularity_i."""
        product = np.outer(self.activity[users], self.popularity)
        if product.shape != rating.shape:
            raise UsageError(
                f"activity and popularity are for {self.activity.size} users and {self.popularity.size} items, "
                f"not for a matrix with rows of {rating.shape[1]} items that holds users {users.start} to {users.stop}."
            )
        return product


@dataclass(frozen=True, slots=True, eq=False)
class Observation:
    """A truth, how it is observed, and the scale that gives the density asked for: draws as many logs as wanted."""

    truth: Truth
    model: ObservationModel
    density: float
    scale: float
    """The paper's k: propensity = scale * relative."""
    users: npt.NDArray[np.generic] | None = None
    items: npt.NDArray[np.generic] | None = None

    @classmethod
    def of(
        cls,
        truth: Truth,
        model: ObservationModel,
        *,
        density: float,
        users: npt.NDArray[np.generic] | None = None,
        items: npt.NDArray[np.generic] | None = None,
    ) -> Observation:
        """Find the scale. A density that would need a probability above 1 is refused."""
        if not 0 < density <= 1:
            raise UsageError(f"density must lie in (0, 1]; got {density}.")
        relatives = (model.relative(truth[rows], rows) for rows in _row_blocks(truth))
        sums, maxima = zip(*((float(block.sum()), float(block.max())) for block in relatives), strict=True)
        total, largest = sum(sums), max(maxima)
        scale = density * truth.size / total
        if scale * largest > 1 + 1e-12:
            raise UsageError(
                f"a density of {density:g} would need a propensity of {scale * largest:.3g}; "
                f"at most {density / (scale * largest):.3g} can be had with this observation model."
            )
        return cls(truth, model, density, min(scale, 1 / largest), users, items)

    def propensities(self, rows: slice) -> Matrix:
        """P(O = 1) of every cell of some rows."""
        return self.scale * self.model.relative(self.truth[rows], rows)

    def draw(self, rng: np.random.Generator) -> tuple[Ratings, Propensities]:
        """A log, each cell an independent coin toss, and the true propensities of what it shows."""
        users, items, chances = [], [], []
        for rows in _row_blocks(self.truth):
            chance = self.propensities(rows)
            user, item = np.nonzero(rng.random(chance.shape) < chance)
            users.append(user.astype(np.int32) + np.int32(rows.start))
            items.append(item.astype(np.int32))
            chances.append(chance[user, item])
        user, item = np.concatenate(users), np.concatenate(items)
        log = Ratings.from_codes(user, item, self.truth[user, item], shape=self.truth.shape, users=self.users, items=self.items)
        return log, Propensities(np.concatenate(chances))


def _row_blocks(truth: Truth) -> Iterator[slice]:
    size = max(1, BLOCK_CELLS // truth.shape[1])
    return (slice(first, min(first + size, len(truth))) for first in range(0, len(truth), size))
