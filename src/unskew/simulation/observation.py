"""How a complete rating matrix becomes a log: each cell is observed with some propensity.

An observation model gives *relative* propensities. They are multiplied by one scale such that the
expected share of observed cells equals the requested density. Rows of the matrix are processed in
blocks, so only the matrix itself takes U x I memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from unskew.data.checks import float_array
from unskew.data.ids import check_id_list
from unskew.data.propensities import Propensities
from unskew.data.ratings import Ratings
from unskew.data.universe import Universe
from unskew.errors import UsageError
from unskew.memory import require_memory
from unskew.settings import Instance, Number, check_random_state
from unskew.types import Matrix, RandomState, Vector

BLOCK_CELLS = 1 << 20
Truth: TypeAlias = npt.NDArray[np.floating] | npt.NDArray[np.integer]


class ObservationModel(Protocol):
    """Gives relative propensities. A model made for certain users and items has a ``universe``."""

    def relative_propensities(self, rating: Truth, users: slice, /) -> Matrix:
        """Positive numbers for the cells of ``users``, whose ratings are given.

        Only the ratios of these numbers matter.
        """
        ...


@dataclass(frozen=True, slots=True)
class Uniform:
    """Missing completely at random: all cells have the same propensity."""

    def relative_propensities(self, rating: Truth, users: slice, /) -> Matrix:
        return np.ones(rating.shape)


@dataclass(frozen=True, slots=True)
class ByRating:
    """The paper's model (Section 6.2): people rate what they like.

    The propensity is k for ratings r >= ``full_from`` and ``k * alpha ** (full_from - r)`` below.
    With alpha = 1 all cells are equally likely; as alpha goes to 0, only liked items are observed.
    """

    alpha: float = 0.25
    full_from: float = 4.0

    def __post_init__(self) -> None:
        Number(above=0, most=1)("alpha", self.alpha)
        Number()("full_from", self.full_from)

    def relative_propensities(self, rating: Truth, users: slice, /) -> Matrix:
        """``alpha ** max(full_from - r, 0)``, computed once for each distinct rating."""
        levels, level = np.unique(rating, return_inverse=True)
        by_level: Vector = self.alpha ** np.maximum(self.full_from - levels.astype(np.float64), 0.0)
        return by_level[level].reshape(rating.shape)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class ByCovariates:
    """Active users and popular items are observed more often, independently of the rating.

    The relative propensity of a cell is activity_u * popularity_i.
    """

    activity: Vector
    popularity: Vector

    def __post_init__(self) -> None:
        for name, owner in (("activity", "user"), ("popularity", "item")):
            values = float_array(getattr(self, name), name)
            if values.ndim != 1 or values.size == 0:
                raise UsageError(
                    f"`{name}` must be a list with one number for each {owner}; "
                    f"got shape {values.shape}.",
                    parameter=name,
                    value=values.shape,
                )
            is_valid = np.isfinite(values) & (values > 0)
            if not is_valid.all():
                first = int(is_valid.argmin())
                raise UsageError(
                    f"`{name}` must be positive and finite for every {owner}; "
                    f"got {values[first]} for {owner} {first}.",
                    parameter=name,
                    value=values[first],
                    where=f"{owner} {first}",
                )
            object.__setattr__(self, name, values)

    @classmethod
    def long_tail(
        cls, n_users: int, n_items: int, *, skew: float = 0.5, random_state: RandomState = 0
    ) -> ByCovariates:
        """Activities 1 ** -skew, 2 ** -skew, ... in random order; popularities likewise."""
        size = Universe(n_users, n_items)
        Number()("skew", skew)
        check_random_state("random_state", random_state)
        require_memory(
            24.0 * min(size.n_users + size.n_items, 1 << 62),
            "activities and popularities",
            parameter="n_users" if size.n_users > size.n_items else "n_items",
            remedy="Choose fewer users or items.",
        )
        rng = np.random.default_rng(random_state)
        activity, popularity = (
            rng.permutation(np.arange(1, n + 1) ** -float(skew))
            for n in (size.n_users, size.n_items)
        )
        return cls(activity, popularity)

    @property
    def universe(self) -> Universe:
        """The users and items that the model was made for."""
        return Universe(self.activity.size, self.popularity.size)

    def relative_propensities(self, rating: Truth, users: slice, /) -> Matrix:
        return np.outer(self.activity[users], self.popularity)

    def __repr__(self) -> str:
        return f"ByCovariates({self.universe})"


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Observation:
    """A complete rating matrix and how it is observed. Draws any number of logs."""

    truth: Truth
    model: ObservationModel
    scale: float
    """The paper's k: the propensity is ``scale`` times the relative propensity."""
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
        """Choose the scale such that the expected share of observed cells is ``density``.

        A density that would need a propensity above 1 is refused.
        """
        Number(above=0, most=1)("density", density)
        truth = _require_matrix(truth)
        _check_model(model, Universe(*truth.shape))
        for kind, ids in (("user", users), ("item", items)):
            if ids is not None:
                check_id_list(ids, kind=kind)
        blocks = (_checked_relative(model, truth, rows) for rows in _row_blocks(truth))
        sums, maxima = zip(
            *((float(block.sum()), float(block.max())) for block in blocks), strict=True
        )
        total, largest = sum(sums), max(maxima)
        scale = density * truth.size / total
        if scale * largest > 1 + 1e-12:
            raise UsageError(
                f"a density of {density:g} would need a propensity of {scale * largest:.3g}; "
                f"the largest density that this observation model can have is "
                f"{density / (scale * largest):.3g}.",
                parameter="density",
                value=density,
                remedy="Lower `density`, or use a larger `alpha`.",
            )
        return cls(truth, model, min(scale, 1 / largest), users, items)

    def propensities(self, rows: slice) -> Matrix:
        """P(O = 1) of every cell of these users."""
        Instance(slice)("rows", rows)
        return self.scale * self.model.relative_propensities(self.truth[rows], rows)

    def draw(self, random_state: RandomState = None) -> tuple[Ratings, Propensities]:
        """Draw a log: each cell is observed independently with its propensity.

        Returns the log and the true propensities of its cells.
        """
        check_random_state("random_state", random_state)
        rng = np.random.default_rng(random_state)
        users, items, propensities = [], [], []
        for rows in _row_blocks(self.truth):
            propensity = self.propensities(rows)
            user, item = np.nonzero(rng.random(propensity.shape) < propensity)
            users.append(user.astype(np.int32) + np.int32(rows.start))
            items.append(item.astype(np.int32))
            propensities.append(propensity[user, item])
        user, item = np.concatenate(users), np.concatenate(items)
        log = Ratings.from_codes(
            user,
            item,
            self.truth[user, item],
            shape=self.truth.shape,
            users=self.users,
            items=self.items,
        )
        return log, Propensities(np.concatenate(propensities))

    def __repr__(self) -> str:
        return f"Observation({Universe(*self.truth.shape)}; {self.model!r}; scale {self.scale:.4g})"


def _require_matrix(truth: Truth) -> Truth:
    try:
        matrix: npt.NDArray[Any] = np.asarray(truth)
    except ValueError as error:  # lists of different lengths
        raise UsageError(
            "`truth` must be a users x items matrix of ratings; its rows differ in length.",
            parameter="truth",
            remedy="Pass as many ratings for each user as there are items.",
        ) from error
    if matrix.ndim != 2 or matrix.size == 0 or matrix.dtype.kind not in "iuf":
        raise UsageError(
            "`truth` must be a users x items matrix of ratings; "
            f"got {matrix.dtype} of shape {matrix.shape}.",
            parameter="truth",
            value=matrix.shape,
            remedy="Pass an array of numbers with a row for each user and a column for each item.",
        )
    for rows in _row_blocks(matrix):
        is_finite = np.isfinite(matrix[rows])
        if not is_finite.all():
            row, item = np.unravel_index(int(is_finite.argmin()), is_finite.shape)
            where = f"row {rows.start + row}, column {item}"
            raise UsageError(
                "`truth` must have a finite rating in every cell; got "
                f"{matrix[rows][row, item]} at {where}.",
                parameter="truth",
                where=where,
                remedy="Fill the missing cells, by a model's predictions for example.",
            )
    return matrix


def _check_model(model: ObservationModel, size: Universe) -> None:
    if isinstance(model, type) or not callable(getattr(model, "relative_propensities", None)):
        raise UsageError(
            "an observation model is an object such as Uniform(), ByRating(0.25) or "
            f"ByCovariates(...); got {model!r}.",
            parameter="observation",
            value=model,
        )
    model_size = getattr(model, "universe", size)
    if model_size != size:
        raise UsageError(
            f"the observation model is for {model_size}, but the rating matrix has {size}.",
            parameter="observation",
            value=model,
            remedy="Make an observation model of the same size.",
        )


def _checked_relative(model: ObservationModel, truth: Truth, rows: slice) -> Matrix:
    """The relative propensities of a block of rows: the right shape, positive and finite."""
    name = f"{type(model).__name__}.relative_propensities"
    block = float_array(model.relative_propensities(truth[rows], rows), f"values of {name}")
    if block.shape != truth[rows].shape:
        raise UsageError(
            f"{name} returned shape {block.shape} for ratings of shape {truth[rows].shape}.",
            parameter="observation",
            value=block.shape,
        )
    is_valid = np.isfinite(block) & (block > 0)
    if not is_valid.all():
        row, item = np.unravel_index(int(is_valid.argmin()), block.shape)
        where = f"row {rows.start + row}, column {item}"
        raise UsageError(
            f"{name} must be positive and finite for every cell; it is {block[row, item]} "
            f"at {where}, where the rating is {truth[rows][row, item]}.",
            parameter="observation",
            value=block[row, item],
            where=where,
        )
    return block


def _row_blocks(truth: Truth) -> Iterator[slice]:
    size = max(1, BLOCK_CELLS // truth.shape[1])
    return (slice(first, min(first + size, len(truth))) for first in range(0, len(truth), size))
