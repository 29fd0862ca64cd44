"""The parameters of an ordinal factorization, and its penalized likelihood as a solver."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, TypeVar

import numpy as np
import numpy.typing as npt

from unskew.data.cells import row_starts, split_groups
from unskew.data.factors import take_rows
from unskew.data.ratings import Ratings
from unskew.factorization.lbfgs import LbfgsSolver
from unskew.kernels.ordinal_rows import (
    ItemRows,
    LevelsByUser,
    RowExponentials,
    UserRows,
    pad_columns,
)
from unskew.latent.ordinal_tiles import SingleRows, TileSample, add_tiles
from unskew.optimization import LbfgsState, Precondition, RowHessians, start_at
from unskew.threads import Workers
from unskew.types import ArrayShapes, IntVector, Matrix, RandomState, Vector

Rows = TypeVar("Rows", UserRows, ItemRows)
MAX_TASKS = 8
CELLS_PER_TASK = 25_000
"""The number of tasks depends on the cells alone, and their sums are added in order. The result
then does not depend on the number of threads."""
CELLS_IN_DOUBLE = 100_000
"""If there are no more unobserved cells than this, all of them are computed in double precision."""
RATING_CURVATURE, SELECTION_CURVATURE = 0.25, 1.0
"""About what a rating adds to the Hessian of a score, and to that of the log odds of being
observed: with all unobserved cells of its row it adds up to about 1."""
USER_PARTS = tuple(f"user_{name}" for name in UserRows._fields)
ITEM_PARTS = tuple(f"item_{name}" for name in (*ItemRows._fields[:-1], "gaps"))
EFFECT_PARTS = ("value_effect", "user_effect", "item_effect")
SHARED_PARTS = ("cuts", "constant", "value_effect")
ROW_BLOCKS = (
    (("user_factors", "user_offset"), "item_factors", RATING_CURVATURE),
    (("item_factors", "item_offset"), "user_factors", RATING_CURVATURE),
    (("user_exposure", "user_activity"), "item_exposure", SELECTION_CURVATURE),
    (("item_exposure", "item_popularity"), "user_exposure", SELECTION_CURVATURE),
)
"""Factors with the intercept of their row, and the factors that they are multiplied with."""
NOISE_PARTS = ("user_noise", "item_noise")
"""Their mean is fixed at 0: less noise for all users or items is the same as larger factors."""


@dataclass(frozen=True, slots=True, eq=False)
class OrdinalParameters:
    """Parameters of the ratings and of the log odds that a cell is observed.

    Ratings: s = v_u . w_i + a_u + b_i between cut points, with noise.
    """

    user_factors: Matrix
    item_factors: Matrix
    user_offset: Vector
    item_offset: Vector
    user_noise: Vector
    """Logarithm of the scale, as for items; the scale of a cell is the product of the two."""
    item_noise: Vector
    cuts: Vector
    """The first cut point, which all items share, and the logarithms of the gaps to the next."""
    item_gaps: Matrix
    """Items x (levels - 2): what an item adds to the logarithms of the gaps."""
    constant: float
    """Log odds of being observed; all parts below are added to it."""
    user_activity: Vector
    item_popularity: Vector
    user_exposure: Matrix
    """e of the product e_u . f_i."""
    item_exposure: Matrix
    value_effect: Vector
    """What each rating level adds to the log odds, for all users and items."""
    user_effect: Matrix
    """Users x levels: what a user adds to the value effect."""
    item_effect: Matrix

    @classmethod
    def zeros(
        cls, n_users: int, n_items: int, n_levels: int, *, n_factors: int, n_exposure_factors: int
    ) -> OrdinalParameters:
        widths = {
            "factors": n_factors,
            "exposure": n_exposure_factors,
            "effect": n_levels,
            "gaps": max(0, n_levels - 2),
        }
        parts: dict[str, Any] = {}
        for size, names in ((n_users, USER_PARTS), (n_items, ITEM_PARTS)):
            for name in names:
                kind = name.partition("_")[2]
                parts[name] = np.zeros((size, widths[kind]) if kind in widths else size)
        shared = np.zeros(n_levels - 1), np.zeros(n_levels)
        return cls(**parts, cuts=shared[0], constant=0.0, value_effect=shared[1])

    def user_rows(self) -> UserRows:
        """The input of the kernels for each user, including what all users share."""
        rows = UserRows(*(getattr(self, name) for name in USER_PARTS))
        return rows._replace(
            factors=pad_columns(rows.factors),
            activity=self.constant + rows.activity,
            exposure=pad_columns(rows.exposure),
            effect=self.value_effect + rows.effect,
        )

    def item_rows(self) -> ItemRows:
        """The input of the kernels for each item, with its cut points."""
        parts = (getattr(self, name) for name in ITEM_PARTS[:-1])
        rows = ItemRows._make((*parts, item_cuts(self.cuts, self.item_gaps)))
        return rows._replace(factors=pad_columns(rows.factors), exposure=pad_columns(rows.exposure))

    def take(self, user: IntVector, item: IntVector) -> OrdinalParameters:
        """The parameters of these codes; an unknown user or item, -1, has zeros."""
        parts: dict[str, Any] = {
            **{name: take_rows(getattr(self, name), user) for name in USER_PARTS},
            **{name: take_rows(getattr(self, name), item) for name in ITEM_PARTS},
        }
        return replace(self, **parts)

    def gradient(self, by_user: UserRows, by_item: ItemRows) -> OrdinalParameters:
        """The gradient by these parameters, from the gradient by the rows (chain rule)."""
        by_cuts, by_gaps = _cuts_gradient(self.cuts, self.item_gaps, by_item.cuts)
        by_user, by_item = self._without_padding(by_user), self._without_padding(by_item)
        return OrdinalParameters(
            **dict(zip(USER_PARTS, by_user, strict=True)),
            **dict(zip(ITEM_PARTS, (*by_item[:-1], by_gaps), strict=True)),
            cuts=by_cuts,
            constant=float(by_user.activity.sum()),
            value_effect=by_user.effect.sum(axis=0),
        )

    def _without_padding(self, rows: Rows) -> Rows:
        n_factors, n_exposure = self.user_factors.shape[1], self.user_exposure.shape[1]
        return rows._replace(
            factors=rows.factors[:, :n_factors], exposure=rows.exposure[:, :n_exposure]
        )

    def array_shapes(self, n_users: int, n_items: int, n_levels: int) -> ArrayShapes:
        """Each array by name, with the shape that it must have."""
        expected = OrdinalParameters.zeros(
            n_users,
            n_items,
            n_levels,
            n_factors=self.user_factors.shape[-1],
            n_exposure_factors=self.user_exposure.shape[-1],
        )
        return {
            name: (getattr(self, name), np.shape(getattr(expected, name)))
            for name in (*USER_PARTS, *ITEM_PARTS, *SHARED_PARTS)
        }


def item_cuts(cuts: Vector, item_gaps: Matrix) -> Matrix:
    """k_i1 = the first cut point; k_ij = k_i,j-1 + exp(gap_j + what the item adds)."""
    steps = np.empty((len(item_gaps), cuts.size))
    steps[:, :1] = cuts[:1]
    steps[:, 1:] = np.exp(cuts[1:] + item_gaps)
    return np.cumsum(steps, axis=1)


def _cuts_gradient(cuts: Vector, item_gaps: Matrix, by_cut: Matrix) -> tuple[Vector, Matrix]:
    """The gradient by ``cuts`` and ``item_gaps``. A gap moves every cut point above it."""
    above = np.cumsum(by_cut[:, ::-1], axis=1)[:, ::-1]
    by_gaps = above[:, 1:] * np.exp(cuts[1:] + item_gaps)
    return np.concatenate([above[:, :1].sum(axis=0), by_gaps.sum(axis=0)]), by_gaps


def sort_levels(log: Ratings, level: IntVector) -> LevelsByUser:
    """The log sorted by user and, for each user, by item."""
    order = np.lexsort((log.item, log.user))
    return LevelsByUser(row_starts(log.user, log.n_users), log.item[order], level[order])


def split_users(
    n_cells: npt.NDArray[np.int64], users_per_block: int = 1
) -> tuple[tuple[int, int], ...]:
    """Ranges of users with about equal numbers of cells, in whole blocks of users."""
    first = np.arange(0, n_cells.size, users_per_block)
    starts = np.concatenate([[0], np.cumsum(np.add.reduceat(n_cells, first))])
    n_tasks = int(np.clip(starts[-1] // CELLS_PER_TASK, 1, MAX_TASKS))
    blocks = split_groups(starts, n_tasks)
    return tuple(
        (block * users_per_block, min(end * users_per_block, n_cells.size)) for block, end in blocks
    )


@dataclass(frozen=True, slots=True, eq=False)
class OrdinalLikelihood(LbfgsSolver[OrdinalParameters]):
    """-log likelihood + sum over parts of precision * penalty(part - center), for L-BFGS.

    Noise has an inverse gamma prior, as in the paper; all other parts have a normal prior.
    """

    log: LevelsByUser
    sample: TileSample | None
    """Unobserved cells in single precision; None for all of them in double precision."""
    has_selection: bool
    """Whether the likelihood includes which cells are observed."""
    center: OrdinalParameters
    """The means of the priors; parts without a precision are fixed there."""
    precision: Mapping[str, float]
    """By fitted part: the precision of its prior; 0 means no prior."""
    workers: Workers
    tasks: tuple[tuple[int, int], ...]
    n_ratings: Mapping[str, Vector]
    """The ratings of each user and of each item."""
    least_steps: int = 0
    memory: ClassVar[int] = 8
    first_length: ClassVar[float | None] = 1.0

    @classmethod
    def of(
        cls,
        log: Ratings,
        level: IntVector,
        *,
        center: OrdinalParameters,
        precision: Mapping[str, float],
        n_unobserved: int,
        random_state: RandomState,
        workers: Workers,
        least_steps: int = 0,
    ) -> OrdinalLikelihood:
        """``level`` is the index of each rating of the log among the rating levels.

        About ``n_unobserved`` unobserved cells are used; with 0 the likelihood is that of the
        ratings alone.
        """
        cells = sort_levels(log, level)
        n_observed = np.diff(cells.starts)
        available = log.n_cells - len(log)
        sample = None
        cells_of_user = n_observed + (log.n_items - n_observed if n_unobserved else 0)
        tasks = split_users(cells_of_user)
        if (n_unobserved and available > CELLS_IN_DOUBLE) or 0 < n_unobserved < available:
            share = min(1.0, n_unobserved / available)
            sample = TileSample.of(share, (log.n_users, log.n_items), random_state)
            cells_of_user = n_observed + sample.items.shape[1]
            tasks = split_users(cells_of_user, sample.users_per_tile)
        by_row = {"user": n_observed, "item": np.bincount(log.item, minlength=log.n_items)}
        n_ratings = {side: counts.astype(np.float64) for side, counts in by_row.items()}
        has_selection = n_unobserved > 0
        return cls(
            cells,
            sample,
            has_selection,
            center,
            precision,
            workers,
            tasks,
            n_ratings,
            least_steps,
        )

    def start(self, parameters: OrdinalParameters, /) -> LbfgsState:
        return start_at(self.evaluate, self._pack(parameters))

    def parameters(self, state: LbfgsState, /) -> OrdinalParameters:
        return self._unpack(state.point)

    def evaluate(self, point: Vector) -> tuple[float, Vector]:
        """The objective and its gradient. It can overflow to infinity in a line search."""
        with np.errstate(over="ignore", invalid="ignore"):
            return self._evaluate(self._unpack(point))

    def _evaluate(self, parameters: OrdinalParameters) -> tuple[float, Vector]:
        """The negative log posterior, up to a constant, and its gradient by all fitted parts."""
        log_likelihood, likelihood_gradient = self.likelihood(parameters)
        objective, gradients = -log_likelihood, []
        for name, precision in self.precision.items():
            deviation = np.asarray(getattr(parameters, name) - getattr(self.center, name))
            penalize = _noise_penalty if name in NOISE_PARTS else _normal_penalty
            penalty, penalty_gradient = penalize(deviation)
            objective += precision * penalty
            gradient = precision * penalty_gradient - getattr(likelihood_gradient, name)
            if name in NOISE_PARTS:  # _unpack subtracts the mean, so only deviations from it count
                gradient = gradient - gradient.mean()
            gradients.append(np.ravel(gradient))
        return objective, np.concatenate(gradients)

    def likelihood(self, parameters: OrdinalParameters) -> tuple[float, OrdinalParameters]:
        """The log likelihood and its gradient."""
        from unskew.kernels.ordinal import add_likelihood

        users, items = parameters.user_rows(), parameters.item_rows()
        exponentials = RowExponentials.of(users, items)
        by_user, sample = _zeros_like(users), self.sample
        in_single = None
        if sample is not None:
            in_single = SingleRows.of(
                users,
                items,
                exponentials,
                n_factors=parameters.user_factors.shape[1],
                n_exposure_factors=parameters.user_exposure.shape[1],
            )
        has_effects = not self.precision.keys().isdisjoint(EFFECT_PARTS)

        def add_task(rows: tuple[int, int]) -> tuple[float, ItemRows]:
            by_item = _zeros_like(items)
            gradient = by_user, by_item
            value = add_likelihood(
                rows,
                self.log,
                users,
                items,
                exponentials,
                self.has_selection,
                self.has_selection and sample is None,
                gradient,
            )
            if sample is not None and in_single is not None:
                value += add_tiles(rows, sample, self.log, in_single, has_effects, gradient)
            return value, by_item

        total, by_item = 0.0, _zeros_like(items)
        for value, task_gradient in self.workers.stream(add_task, self.tasks):
            total += value
            for array, part in zip(by_item, task_gradient, strict=True):
                array += part
        return total, parameters.gradient(by_user, by_item)

    def precondition(self, state: LbfgsState) -> Precondition:
        """A function that solves H z = r, with an approximate Hessian H for L-BFGS to start from.

        H has a block for the factors and the intercept of each user: the precision of their prior
        plus c n times the mean of x x' over all ratings. Here n is the user's number of ratings, x
        the factors and 1 of a rated item, and c the curvature of a rating. Items are alike. The
        other parameters have a diagonal.
        """
        parameters, counts = self._unpack(state.point), self.n_ratings
        blocks = {
            parts: self._row_hessians(parameters, counts, parts, opposite, curvature)
            for parts, opposite, curvature in ROW_BLOCKS
            if parts[0] in self.precision
        }
        paired = {name for parts in blocks for name in parts}

        def solve(right: Vector) -> Vector:
            solution = self._split(right)
            for (factors, intercept), hessians in blocks.items():
                columns = np.column_stack([solution[factors], solution[intercept]])
                columns = hessians.solve(columns)
                solution[factors], solution[intercept] = columns[:, :-1], columns[:, -1]
            for name in solution.keys() - paired:
                solution[name] = solution[name] / self._curvature(name, counts)
            return np.concatenate([np.ravel(part) for part in solution.values()])

        return solve

    def _row_hessians(
        self,
        parameters: OrdinalParameters,
        counts: Mapping[str, Vector],
        parts: tuple[str, str],
        opposite: str,
        curvature: float,
    ) -> RowHessians:
        """The blocks of factors and of the intercept that belongs to them."""
        factors, intercept = parts
        side, opposite_side = factors.partition("_")[0], opposite.partition("_")[0]
        rows: Matrix = getattr(parameters, opposite)
        design = np.column_stack([rows, np.ones(len(rows))])
        gram = (design * counts[opposite_side][:, None]).T @ design / counts[opposite_side].sum()
        ridge = [self.precision[factors]] * rows.shape[1] + [self.precision[intercept]]
        return RowHessians.of(np.array(ridge), curvature * counts[side], gram)

    def _curvature(self, name: str, counts: Mapping[str, Vector]) -> Any:
        """The diagonal of a part: its precision and what the ratings of each row add.

        Noise has one number for all rows, because its mean is fixed.
        """
        n_ratings = np.array(float(self.log.item.size))
        if name not in SHARED_PARTS:
            n_ratings = counts[name.partition("_")[0]]
        if name in NOISE_PARTS:
            n_ratings = n_ratings.mean()
        dimensions = np.ndim(getattr(self.center, name)) - np.ndim(n_ratings)
        rows = np.reshape(n_ratings, (*np.shape(n_ratings), *(1,) * dimensions))
        return self.precision[name] + RATING_CURVATURE * rows

    def _pack(self, parameters: OrdinalParameters) -> Vector:
        return np.concatenate([np.ravel(getattr(parameters, name)) for name in self.precision])

    def _split(self, point: Vector) -> dict[str, Any]:
        """A vector as an array for each fitted part."""
        parts: dict[str, Any] = {}
        first = 0
        for name in self.precision:
            center = np.asarray(getattr(self.center, name))
            parts[name] = point[first : first + center.size].reshape(center.shape)
            first += center.size
        return parts

    def _unpack(self, point: Vector) -> OrdinalParameters:
        parts = self._split(point)
        for name in parts.keys() & set(NOISE_PARTS):
            parts[name] = parts[name] - parts[name].mean()
        if "constant" in parts:
            parts["constant"] = float(parts["constant"])  # an array without axes otherwise
        return replace(self.center, **parts)


def _normal_penalty(deviation: Vector) -> tuple[float, Vector]:
    """A normal prior: t^2 / 2, and its gradient."""
    return 0.5 * float(np.vdot(deviation, deviation)), deviation


def _noise_penalty(deviation: Vector) -> tuple[float, Vector]:
    """An inverse gamma prior of exp(2 t) with mode 1: (2 t + exp(-2 t) - 1) / 4.

    It is like t^2 / 2 near 0 and keeps the noise from vanishing.
    """
    small = np.exp(-2 * deviation)
    return 0.25 * float((2 * deviation + small - 1).sum()), 0.5 * (1 - small)


def _zeros_like(rows: Any) -> Any:
    return type(rows)(*(np.zeros_like(array) for array in rows))
