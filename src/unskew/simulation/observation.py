"""How a complete rating matrix becomes a log: which cells are seen, and with what probability.

A model says how likely a cell is *relative* to others; the scale ``k`` is then set so that the expected share of seen cells is
exactly the density asked for. Rows of the matrix are worked through in blocks, so that only the truth itself has U x I size.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from unskew.data.checks import float_array, is_finite_number, whole_number
from unskew.data.propensities import Propensities
from unskew.data.ratings import Ratings
from unskew.data.universe import Universe
from unskew.errors import UsageError
from unskew.types import Matrix, Vector

BLOCK_CELLS = 1 << 20
Truth = npt.NDArray[np.floating] | npt.NDArray[np.integer]


class ObservationModel(Protocol):
    """Relative propensities of a block of rows. A model of particular users and items has their ``universe``, too."""

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
        if not (is_finite_number(self.alpha) and 0 < self.alpha <= 1):
            raise UsageError(
                f"alpha must lie in (0, 1]; got {self.alpha!r}. At 0 disliked cells could never be seen."
            )
        if not is_finite_number(self.full_from):
            raise UsageError(f"full_from must be a rating, such as 4; got {self.full_from!r}.")

    def relative(self, rating: Truth, users: slice, /) -> Matrix:  # noqa: ARG002
        """``alpha ** max(full_from - r, 0)``, looked up by level."""
        levels, level = np.unique(rating, return_inverse=True)
        likely: Vector = self.alpha ** np.maximum(self.full_from - levels.astype(np.float64), 0.0)
        return likely[level].reshape(rating.shape)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class ByCovariates:
    """Active users and popular items are logged more, whatever the rating: relative propensity activity_u * popularity_i."""

    activity: Vector
    popularity: Vector

    def __post_init__(self) -> None:
        for name, each, given in (
            ("activity", "user", self.activity),
            ("popularity", "item", self.popularity),
        ):
            values = float_array(given, name)
            if values.ndim != 1 or values.size == 0:
                raise UsageError(
                    f"{name} must be a list with a number for each {each}; got shape {values.shape}."
                )
            if not (np.isfinite(values).all() and (values > 0).all()):
                raise UsageError(
                    f"{name} must be positive and finite for every cell to have a chance."
                )
            object.__setattr__(self, name, values)

    @classmethod
    def long_tail(
        cls, n_users: int, n_items: int, *, skew: float = 0.5, random_state: int = 0
    ) -> ByCovariates:
        """Activity and popularity falling as place ** -skew, in random order."""
        size = Universe(n_users, n_items)
        if not is_finite_number(skew):
            raise UsageError(f"skew must be a number, such as 0.5; got {skew!r}.")
        rng = np.random.default_rng(whole_number("random_state", random_state, least=0))
        activity, popularity = (
            rng.permutation(np.arange(1, n + 1) ** -float(skew))
            for n in (size.n_users, size.n_items)
        )
        return cls(activity, popularity)

    @property
    def universe(self) -> Universe:
        """The users and items that it knows."""
        return Universe(self.activity.size, self.popularity.size)

    def relative(self, rating: Truth, users: slice, /) -> Matrix:  # noqa: ARG002
        """activity_u * popularity_i."""
        return np.outer(self.activity[users], self.popularity)

    def __repr__(self) -> str:
        return f"ByCovariates({self.universe})"


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Observation:
    """A truth, how it is observed, and the scale that gives the density asked for: draws as many logs as wanted."""

    truth: Truth
    model: ObservationModel
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
        if not (is_finite_number(density) and 0 < density <= 1):
            raise UsageError(f"density must lie in (0, 1]; got {density!r}.")
        truth = _complete(truth)
        _require_model(model, Universe(*truth.shape))
        relatives = (_relative(model, truth, rows) for rows in _row_blocks(truth))
        sums, maxima = zip(
            *((float(block.sum()), float(block.max())) for block in relatives), strict=True
        )
        total, largest = sum(sums), max(maxima)
        scale = density * truth.size / total
        if scale * largest > 1 + 1e-12:
            raise UsageError(
                f"a density of {density:g} would need a propensity of {scale * largest:.3g}; "
                f"at most {density / (scale * largest):.3g} can be had with this observation model. "
                "Lower the density, or take a milder model, such as a larger alpha."
            )
        return cls(truth, model, min(scale, 1 / largest), users, items)

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
        log = Ratings.from_codes(
            user,
            item,
            self.truth[user, item],
            shape=self.truth.shape,
            users=self.users,
            items=self.items,
        )
        return log, Propensities(np.concatenate(chances))

    def __repr__(self) -> str:
        return f"Observation({Universe(*self.truth.shape)}; {self.model!r}; scale {self.scale:.4g})"


def _complete(truth: Truth) -> Truth:
    found: npt.NDArray[Any] = np.asarray(truth)
    if found.ndim != 2 or found.size == 0 or found.dtype.kind not in "iuf":
        raise UsageError(
            f"the truth must be a complete users x items matrix of ratings; got {found.dtype} of shape {found.shape}."
        )
    return found


def _require_model(model: ObservationModel, truth: Universe) -> None:
    if isinstance(model, type) or not callable(getattr(model, "relative", None)):
        raise UsageError(
            f"an observation model is an object such as Uniform(), ByRating(0.25) or ByCovariates(...); got {model!r}."
        )
    known = getattr(model, "universe", truth)
    if known != truth:
        raise UsageError(
            f"the observation model is for {known}, but the truth has {truth}. Make one of the same size."
        )


def _relative(model: ObservationModel, truth: Truth, rows: slice) -> Matrix:
    """What the model says of some rows, checked."""
    block = float_array(
        model.relative(truth[rows], rows), f"relative propensities of {type(model).__name__}"
    )
    if block.shape != truth[rows].shape:
        raise UsageError(
            f"{type(model).__name__}.relative gave shape {block.shape} for a block of ratings of shape {truth[rows].shape}."
        )
    good = np.isfinite(block) & (block > 0)
    if not good.all():
        row, item = np.unravel_index(int(good.argmin()), block.shape)
        raise UsageError(
            f"{type(model).__name__}.relative must be positive and finite for every cell to have a chance; "
            f"it is {block[row, item]} at row {rows.start + row}, column {item}, where the rating is {truth[rows][row, item]}."
        )
    return block


def _row_blocks(truth: Truth) -> Iterator[slice]:
    size = max(1, BLOCK_CELLS // truth.shape[1])
    return (slice(first, min(first + size, len(truth))) for first in range(0, len(truth), size))
