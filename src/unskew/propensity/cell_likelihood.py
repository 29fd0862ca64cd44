"""The log-likelihood of a logistic model over all cells, its gradient, and its maximum.

    log L = sum_O eta - sum_D log(1 + exp(eta)),   eta = c + x_u.a + z_i.b + x_u M z_i' + g_u + h_i

O are the observed cells and D all cells. The log enters only through its sufficient statistics:
how often each covariate, pair of covariates, user and item was observed. Users with the same
covariates (and, if users have offsets, the same number of observations) can be exchanged without
changing log L. Because log L is concave, they have the same eta at its maximum. Such users form
one unit, items likewise, and the sum over all cells is a sum over pairs of units.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from unskew.data.cells import RowStarts, group_rows, row_starts
from unskew.optimization import LbfgsState, ProductHessian, SideTerms, start_at, take_step
from unskew.threads import Workers
from unskew.types import IntVector, Matrix, Vector

BLOCK_CELLS = 1 << 17
"""Cells whose eta is held at once, for each thread: few enough for the cache."""
LBFGS_MEMORY = 20
"""Steps that L-BFGS uses to approximate the Hessian."""
MAX_LOGIT = 500.0
"""Larger eta are replaced by this number, because exp(eta) would overflow."""


@dataclass(frozen=True, slots=True, eq=False)
class ExchangeableUnits:
    """Groups of users (or items) that the model cannot distinguish, one row for each group.

    The comments speak of users; items are the same.
    """

    design: Matrix
    """Units x columns: the covariates, then products of two covariates."""
    n_crossed: int
    """How many of the first columns are also multiplied by covariates of the other side."""
    count: Vector
    """Users in each unit."""
    unit: IntVector
    """The unit of each user."""
    has_offset: bool
    fold: IntVector
    """The cross-validation fold of each unit, in ascending order."""

    @classmethod
    def group(
        cls,
        design: Matrix,
        profile: IntVector,
        *keys: IntVector,
        n_crossed: int,
        has_offset: bool,
        fold: IntVector,
        size: Vector | None = None,
    ) -> ExchangeableUnits:
        """Group users with the same profile, the same fold and the same ``keys``.

        ``size`` says how many users each entry stands for.
        """
        columns = np.column_stack([fold, profile, *keys])
        distinct, inverse = np.unique(columns.astype(np.int32), axis=0, return_inverse=True)
        unit = inverse.ravel().astype(np.int32)
        count = np.bincount(unit, size, len(distinct)).astype(np.float64)
        return cls(design[distinct[:, 1]], n_crossed, count, unit, has_offset, distinct[:, 0])

    @property
    def crossed(self) -> Matrix:
        """The columns that are multiplied by covariates of the other side."""
        return self.design[:, : self.n_crossed]

    def __len__(self) -> int:
        return len(self.count)


@dataclass(frozen=True, slots=True, eq=False)
class LogitTerms:
    """A number for each term of eta: its coefficient, its gradient, or its observed sum."""

    intercept: float
    user: Vector
    item: Vector
    crossed: Matrix
    user_offset: Vector
    item_offset: Vector

    def to_vector(self) -> Vector:
        """All numbers in one vector."""
        parts = (self.user, self.item, self.crossed.ravel(), self.user_offset, self.item_offset)
        return np.concatenate(([self.intercept], *parts))


@dataclass(frozen=True, slots=True, eq=False)
class CellSums:
    """Sums over cells at given coefficients."""

    log_partition: float
    """sum log(1 + exp(eta))."""
    by_user: Vector
    """sum sigma(eta) of each user unit."""
    by_item: Vector
    by_user_and_covariate: Matrix
    """sum sigma(eta) z_i of each user unit."""


@dataclass(frozen=True, slots=True, eq=False)
class UnitGrid:
    """All cells, as pairs of units with the number of cells as weight."""

    user: ExchangeableUnits
    item: ExchangeableUnits
    included: Matrix | None = None
    """User folds x item folds: 1 if these cells count, 0 if not. None: all count."""

    def sums(
        self, row: Vector, column: Vector, left: Matrix, right: Matrix, workers: Workers
    ) -> CellSums:
        """The sums at eta = row + column' + left right', block by block of user units."""

        def sum_block(block: tuple[slice, IntVector]) -> tuple[float, Matrix, Vector]:
            rows, items = block
            item_count, item_columns = self.item.count[items], right[items]
            weighted = np.column_stack([item_count, item_columns * item_count[:, None]])
            eta = left[rows] @ item_columns.T
            eta += row[rows, None]
            eta += column[items]
            probability, log_partition = _sigmoid_and_softplus(eta)
            user_count = self.user.count[rows]
            by_item = np.zeros(len(self.item))
            by_item[items] = item_count * (user_count @ probability)
            return (
                float(user_count @ (log_partition @ item_count)),
                (probability @ weighted) * user_count[:, None],
                by_item,
            )

        return _add_blocks(workers.stream(sum_block, list(self._blocks())), len(self.item))

    def _blocks(self) -> Iterator[tuple[slice, IntVector]]:
        """Ranges of user units of one fold, with the item units whose cells count."""
        for fold in np.unique(self.user.fold):
            items = np.arange(len(self.item), dtype=np.int32)
            if self.included is not None:
                items = items[self.included[fold][self.item.fold] > 0]
            first, last = np.searchsorted(self.user.fold, [fold, fold + 1])
            size = max(1, BLOCK_CELLS // max(1, items.size))
            for start in range(first, last, size):
                yield slice(start, min(start + size, last)), items

    def count_cells(self) -> tuple[Vector, Vector]:
        """The number of cells of each user unit, and of each item unit."""
        users, items = (np.bincount(side.fold, side.count) for side in (self.user, self.item))
        included = np.ones((users.size, items.size)) if self.included is None else self.included
        return (
            self.user.count * (included @ items)[self.user.fold],
            self.item.count * (users @ included)[self.item.fold],
        )


@dataclass(frozen=True, slots=True, eq=False)
class ListedCells:
    """Cells that are listed one by one, sorted by user unit."""

    user: ExchangeableUnits
    item: ExchangeableUnits
    starts: RowStarts
    column: IntVector
    """The item unit of each cell."""

    @classmethod
    def sort(
        cls,
        user: ExchangeableUnits,
        item: ExchangeableUnits,
        users: IntVector,
        items: IntVector,
    ) -> ListedCells:
        """The cells of the given users and items, in any order."""
        rows, columns = user.unit[users], item.unit[items]
        if (rows[1:] >= rows[:-1]).all():
            return cls(user, item, row_starts(rows, len(user)), columns)
        starts, order = group_rows(rows, len(user))
        return cls(user, item, starts, columns[order])

    def sums(
        self, row: Vector, column: Vector, left: Matrix, right: Matrix, workers: Workers
    ) -> CellSums:
        """The sums at eta = row + column' + left right', in blocks of whole user units."""
        with_ones = np.column_stack([np.ones(len(self.item)), right])
        item_columns = np.ascontiguousarray(right.T)

        def sum_block(rows: slice) -> tuple[float, Matrix, Vector]:
            """Over the cells of some user units: the sum of log(1 + e^eta), and sums of P.

            P = 1 / (1 + e^-eta) is summed for each user unit, alone and times each column of
            ``right``, and for each item unit.
            """
            starts = self.starts[rows.start : rows.stop + 1]
            items, n_cells = self.column[starts[0] : starts[-1]], np.diff(starts)
            eta = np.repeat(row[rows], n_cells)
            eta += np.take(column, items)
            for user_column, item_column in zip(left[rows].T, item_columns, strict=True):
                eta += np.repeat(user_column, n_cells) * np.take(item_column, items)
            probability, log_partition = _sigmoid_and_softplus(eta)
            shape = (len(n_cells), len(self.item))
            matrix = csr_array((probability, items, starts - starts[0]), shape=shape)
            return (
                float(log_partition.sum()),
                matrix @ with_ones,
                matrix.T @ np.ones(len(n_cells)),
            )

        return _add_blocks(workers.stream(sum_block, list(self._blocks())), len(self.item))

    def count_cells(self) -> tuple[Vector, Vector]:
        """The number of cells of each user unit, and of each item unit."""
        by_item = np.bincount(self.column, minlength=len(self.item))
        return np.diff(self.starts).astype(np.float64), by_item.astype(np.float64)

    def _blocks(self) -> Iterator[slice]:
        """Ranges of user units with about ``max(BLOCK_CELLS, item units)`` cells each."""
        size = max(BLOCK_CELLS, len(self.item))
        cuts = np.searchsorted(self.starts, np.arange(0, self.starts[-1] + size, size))
        edges = np.unique(np.concatenate(([0], np.minimum(cuts, len(self.user)), [len(self.user)])))
        return (slice(int(first), int(last)) for first, last in pairwise(edges))


@dataclass(frozen=True, slots=True, eq=False)
class CellLikelihood:
    """log L as a function of one vector of coefficients."""

    user: ExchangeableUnits
    item: ExchangeableUnits
    cells: UnitGrid | ListedCells
    observed: LogitTerms
    """The sum of each term over the observed cells."""
    workers: Workers

    @classmethod
    def of_cells(
        cls,
        cells: UnitGrid | ListedCells,
        users: IntVector,
        items: IntVector,
        workers: Workers,
        times: Vector | None = None,
    ) -> CellLikelihood:
        """The likelihood if exactly the given users and items were observed among ``cells``.

        ``times`` says how often, if one code stands for several users.
        """
        user, item = cells.user, cells.item
        rows, columns = user.unit[users], item.unit[items]
        by_user = np.bincount(rows, times, len(user)).astype(np.float64)
        by_item = np.bincount(columns, times, len(item)).astype(np.float64)
        crossed = np.zeros((len(user), item.n_crossed))
        if item.n_crossed and user.n_crossed:
            for column in range(item.n_crossed):
                weight = item.design[columns, column] * (1.0 if times is None else times)
                crossed[:, column] = np.bincount(rows, weight, len(user))
        sums = CellSums(0.0, by_user, by_item, crossed)
        return cls(user, item, cells, _sum_terms(user, item, sums), workers)

    def split_terms(self, vector: Vector) -> LogitTerms:
        """The coefficients of each kind of term; the inverse of ``LogitTerms.to_vector``."""
        user, item = self.user, self.item
        sizes = (
            1,
            user.design.shape[1],
            item.design.shape[1],
            user.n_crossed * item.n_crossed,
            self.observed.user_offset.size,
        )
        parts = np.split(vector, np.cumsum(sizes))
        crossed = parts[3].reshape(user.n_crossed, item.n_crossed)
        return LogitTerms(float(parts[0][0]), parts[1], parts[2], crossed, parts[4], parts[5])

    def cell_sums(self, vector: Vector) -> CellSums:
        """The sums over all cells at the given coefficients."""
        terms, user, item = self.split_terms(vector), self.user, self.item
        user_offset = terms.user_offset if user.has_offset else 0.0
        row = terms.intercept + user.design @ terms.user + user_offset
        column = item.design @ terms.item + (terms.item_offset if item.has_offset else 0.0)
        left = user.crossed @ terms.crossed
        return self.cells.sums(row, column, left, item.crossed, self.workers)

    def log_likelihood(self, vector: Vector, sums: CellSums | None = None) -> tuple[float, Vector]:
        """log L and its gradient: the observed sum of each term minus its expected sum.

        ``sums`` are those at ``vector`` if they are known.
        """
        sums = sums or self.cell_sums(vector)
        observed = self.observed.to_vector()
        gradient = observed - _sum_terms(self.user, self.item, sums).to_vector()
        return float(observed @ vector) - sums.log_partition, gradient

    def hessian(self, sums: CellSums, penalty: Vector) -> ProductHessian:
        """About the Hessian of -log L + penalty where the sums over cells are ``sums``."""

        def side_terms(side: ExchangeableUnits, expected: Vector, size: Vector) -> SideTerms:
            weight = np.maximum(expected * (1 - expected / np.maximum(size, 1)), 0) + 1e-12
            return SideTerms(side.design, side.n_crossed, side.has_offset, weight)

        by_user, by_item = self.cells.count_cells()
        return ProductHessian.of(
            side_terms(self.user, sums.by_user, by_user),
            side_terms(self.item, sums.by_item, by_item),
            penalty,
        )

    @property
    def has_cheap_hessian(self) -> bool:
        """Whether solving with :meth:`hessian` costs no more than a sum over the cells of units."""
        sides = self.user, self.item
        n_covariates = 1 + sum(side.design.shape[1] for side in sides) + self.observed.crossed.size
        return bool(n_covariates**3 <= self.user.count.size * self.item.count.size)

    def penalty_weights(self) -> Vector:
        """How often the square of each coefficient is penalised.

        Never for the intercept, once for each user of a unit for offsets, else once.
        """
        n_user, n_item = self.user.design.shape[1], self.item.design.shape[1]
        ones = np.ones(n_user + n_item + self.observed.crossed.size)
        offsets = [side.count for side in (self.user, self.item) if side.has_offset]
        return np.concatenate(([0.0], ones, *offsets))

    def curvatures(self) -> Vector:
        """About -d2 log L / d coefficient2, the sum of P (1 - P) term^2, to scale the steps."""
        by_user, by_item = self.cells.count_cells()
        n_cells = by_user.sum()
        share = self.observed.intercept / n_cells
        user_squares, item_squares = (
            side.count @ np.square(side.design) / side.count.sum()
            for side in (self.user, self.item)
        )
        crossed = np.outer(
            user_squares[: self.user.n_crossed], item_squares[: self.item.n_crossed]
        ).ravel()
        squares = np.concatenate(([1.0], user_squares, item_squares, crossed))
        observed = ((self.observed.user_offset, by_user), (self.observed.item_offset, by_item))
        offsets = [
            count * (1 - count / np.maximum(size, 1)) for count, size in observed if count.size
        ]
        return np.concatenate((share * (1 - share) * n_cells * squares, *offsets)) + 1e-12

    def start(self) -> Vector:
        """Coefficients 0, and the intercept whose expected number of observations is right."""
        vector = np.zeros(self.observed.to_vector().size)
        observed, n_cells = self.observed.intercept, float(self.cells.count_cells()[0].sum())
        vector[0] = np.log(max(observed, 0.5) / max(n_cells - observed, 0.5))
        return vector


@dataclass(frozen=True, slots=True, eq=False)
class LikelihoodMaximum:
    """The coefficients that maximise the penalised log L."""

    vector: Vector
    log_likelihood: float
    """Without the penalty."""
    n_iter: int
    has_converged: bool


def maximize(
    likelihood: CellLikelihood,
    ridge: float,
    *,
    start: Vector,
    max_iter: int,
    tol: float,
    report: Callable[[str], None],
) -> LikelihoodMaximum:
    """Maximise log L - ridge / 2 ||coefficients||^2 by L-BFGS, which starts from an
    approximate Hessian, or from its diagonal if there are many covariates; the intercept is not
    penalised.

    The fit has converged when the gradient by coefficients in units of about their standard errors
    is at most ``tol``, or when rounding errors hide it.
    """
    penalty = ridge * likelihood.penalty_weights()
    scale = 1 / np.sqrt(likelihood.curvatures() + penalty)
    latest: list[CellSums] = []

    def objective(vector: Vector) -> tuple[float, Vector]:
        latest[:] = [likelihood.cell_sums(vector)]
        value, gradient = likelihood.log_likelihood(vector, latest[0])
        penalized = -value + float(penalty @ np.square(vector)) / 2
        return penalized, penalty * vector - gradient

    def solve_diagonal(right: Vector) -> Vector:
        return np.square(scale) * right

    def largest_step(state: LbfgsState) -> float:
        return float(np.abs(state.gradient * scale).max())

    state, n_iter = start_at(objective, start), 0
    while n_iter < max_iter and largest_step(state) > tol and not state.has_stalled:
        state = take_step(
            objective,
            state,
            memory=LBFGS_MEMORY,
            first_length=1.0,
            precondition=(
                likelihood.hessian(latest[0], penalty).solve
                if likelihood.has_cheap_hessian
                else solve_diagonal
            ),
        )
        n_iter += 1
        report(f"ridge {ridge:g}: step {n_iter}")
    value = -state.value + float(penalty @ np.square(state.point)) / 2
    rounding = 100 * np.sqrt(np.finfo(np.float64).eps * abs(state.value))
    has_converged = largest_step(state) <= max(tol, rounding)
    return LikelihoodMaximum(state.point, value, n_iter, bool(has_converged))


def _add_blocks(parts: Iterable[tuple[float, Matrix, Vector]], n_items: int) -> CellSums:
    """Add up blocks of user units in their order, for the same result with any thread count."""
    log_partition, by_user, by_item = 0.0, [], np.zeros(n_items)
    for block_partition, block_users, block_items in parts:
        log_partition += block_partition
        by_user.append(block_users)
        by_item += block_items
    rows = np.concatenate(by_user)
    return CellSums(log_partition, rows[:, 0], by_item, rows[:, 1:])


def _sum_terms(user: ExchangeableUnits, item: ExchangeableUnits, sums: CellSums) -> LogitTerms:
    """Sums by unit to sums by term."""
    return LogitTerms(
        intercept=float(sums.by_user.sum()),
        user=user.design.T @ sums.by_user,
        item=item.design.T @ sums.by_item,
        crossed=user.crossed.T @ sums.by_user_and_covariate,
        user_offset=sums.by_user if user.has_offset else np.empty(0),
        item_offset=sums.by_item if item.has_offset else np.empty(0),
    )


def _sigmoid_and_softplus(
    eta: npt.NDArray[np.float64],
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """sigma(eta) and log(1 + exp(eta)); ``eta`` is overwritten."""
    odds = np.exp(np.minimum(eta, MAX_LOGIT, out=eta), out=eta)
    larger = odds + 1
    odds /= larger
    return odds, np.log(larger, out=larger)
