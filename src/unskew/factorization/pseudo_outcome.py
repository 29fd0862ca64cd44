"""Least squares over all cells of a pseudo-outcome: a low-rank matrix, corrected on the log.

    min  sum over all cells of (F - T)^2  +  p (||V||^2 + ||W||^2)  [+ penalty of offsets]
    T = G + S

G has low rank and S is non-zero on the log only. With x_i = (w_i, 1), user u solves

    (sum_i x_i x_i' + p) z = sum_i x_i (G_ui - b_i - c) + sum over the log of u of x_i S_ui

The matrix is the same for all users, so one Cholesky factorisation serves a whole side. The first
sum on the right is a product of Gram matrices; only the second one reads the log. A sweep costs
O(n d + (U + I) d^2). Weights that differ by cell would cost O(n d^2).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy import linalg

from unskew.data.factors import Factors
from unskew.data.ratings import Ratings
from unskew.errors import UsageError
from unskew.factorization.als import SweepingSolver, SweepState, best_constant
from unskew.factorization.objective import SortedCells, sort_both_ways
from unskew.factorization.penalty import Offsets, Penalty, Side
from unskew.threads import Workers
from unskew.types import Floats, Matrix, Vector

BLOCK_CELLS = 1 << 18


@dataclass(frozen=True, slots=True, eq=False)
class PseudoOutcome:
    """T_ui = G_ui + S_ui for all U I cells, without building the matrix.

    Doubly robust learning has S = h (Y - G). Weighted clicks have G = 0 and S = Y / P.
    """

    by_user: SortedCells
    """S, stored as ratings."""
    by_item: SortedCells
    user_rows: Matrix
    """``[v, a, 1]`` of G; no columns if G is 0."""
    item_rows: Matrix
    """``[w, 1, b + c]`` of G."""
    user_totals: Vector
    """The sum of S over the cells of each user."""
    sum_of_squares: float
    """The sum of T^2 over all cells."""

    @classmethod
    def of(
        cls,
        log: Ratings,
        correction: Vector,
        *,
        imputed: Factors | None = None,
        dtype: npt.DTypeLike = "float64",
    ) -> PseudoOutcome:
        """``correction`` is S for each cell of ``log``, ``imputed`` is G. Ratings are not read."""
        user_rows: Matrix = np.zeros((log.n_users, 0))
        item_rows: Matrix = np.zeros((log.n_items, 0))
        if imputed is not None:
            user_rows, item_rows = imputed.as_float64_rows()
        ones, shape = np.ones(len(log)), (log.n_users, log.n_items)
        return cls(
            *sort_both_ways(log.user, log.item, correction, ones, shape=shape, dtype=dtype),
            user_rows,
            item_rows,
            np.bincount(log.user, weights=correction, minlength=log.n_users).astype(np.float64),
            sum_of_products(user_rows, item_rows, user_rows, item_rows)
            + _sum_added_squares(log, correction, user_rows, item_rows),
        )

    @property
    def n_cells(self) -> int:
        return self.by_user.n_rows * self.by_item.n_rows


def make_pseudo_outcome(
    log: Ratings,
    weight: Vector,
    imputed_on_log: Vector,
    imputed: Factors,
    *,
    dtype: str = "float64",
) -> tuple[PseudoOutcome, float]:
    """T, and a constant: sum over all cells of (F - T)^2 plus it is U I times the DR risk."""
    residual = log.rating - imputed_on_log
    outcome = PseudoOutcome.of(log, weight * residual, imputed=imputed, dtype=dtype)
    return outcome, outcome_constant(weight, residual)


def outcome_constant(weight: Vector, residual: Vector) -> float:
    """The sum over the log of h (1 - h) (Y - G)^2, with ``residual`` = Y - G."""
    return float((weight * (1 - weight)) @ np.square(residual))


def sum_of_products(
    users: Matrix, items: Matrix, other_users: Matrix, other_items: Matrix
) -> float:
    """The sum over all cells of F_ui G_ui, both products of rows, from their Gram matrices."""
    return float(np.sum((users.T @ other_users) * (items.T @ other_items)))


def _sum_added_squares(
    log: Ratings, correction: Vector, user_rows: Matrix, item_rows: Matrix
) -> float:
    """The sum over the log of (G + S)^2 - G^2."""
    total = 0.0
    for first in range(0, len(log), BLOCK_CELLS):
        cells = slice(first, first + BLOCK_CELLS)
        imputed = np.einsum("kd,kd->k", user_rows[log.user[cells]], item_rows[log.item[cells]])
        total += float(correction[cells] @ (correction[cells] + 2 * imputed))
    return total


@dataclass(frozen=True, slots=True, eq=False)
class PseudoOutcomeSolver(SweepingSolver):
    """Alternating least squares for a pseudo-outcome. The objective is exact."""

    outcome: PseudoOutcome
    n_factors: int
    offsets: Offsets
    penalty: Penalty
    workers: Workers

    def start(self, factors: Factors, /) -> SweepState:
        if self.offsets == "none":
            factors = factors.without_offsets()
        return SweepingSolver.start(self, factors)  # super() does not work in a slots dataclass

    def _sweep(self, start: Factors, *, is_exact: bool) -> tuple[Factors, float]:
        """Solve all users, then all items, then the constant."""
        outcome, n_factors, c = self.outcome, self.n_factors, start.global_offset
        users, _ = self._solve_side(
            outcome.by_user,
            self._design(start.item_factors),
            start.item_offset.astype(np.float64) + c,
            outcome.user_rows,
            outcome.item_rows,
        )
        items, products = self._solve_side(
            outcome.by_item,
            self._design(users[:, :n_factors]),
            self._offset(users).astype(np.float64) + c,
            outcome.item_rows,
            outcome.user_rows,
        )
        if self.offsets != "none":
            sum_of_offsets = float(self._offset(items).sum())
            c = best_constant(c, sum_of_offsets, outcome.n_cells, self.penalty)
        factors = Factors(
            users[:, :n_factors],
            items[:, :n_factors],
            self._offset(users),
            self._offset(items),
            c,
        )
        return factors, self._objective(factors, products)

    @property
    def _n_unknowns(self) -> int:
        return self.n_factors + (self.offsets != "none")

    def _design(self, factors: Floats) -> Floats:
        """``[w, 1]``, or ``[w]`` without offsets, as padded rows."""
        from unskew.kernels.rows import padded_zeros

        rows = padded_zeros(len(factors), self._n_unknowns, self.outcome.by_user.dtype)
        rows[:, : self.n_factors] = factors
        rows[:, self.n_factors : self._n_unknowns] = 1
        return rows

    def _offset(self, solutions: Floats) -> Floats:
        if self.offsets == "none":
            return np.zeros(len(solutions), solutions.dtype)
        return solutions[:, self.n_factors]

    def _solve_side(
        self,
        cells: SortedCells,
        design: Floats,
        opposite_offset: Vector,
        imputed_rows: Matrix,
        opposite_imputed_rows: Matrix,
    ) -> tuple[Floats, Floats]:
        """The best rows of one side, and S times the design, which the log adds on the right."""
        from unskew.kernels.rows import multiply_rows, padded_zeros

        n_unknowns = self._n_unknowns
        exact = design[:, :n_unknowns].astype(np.float64)
        ridges = self.penalty.of_row(cells.side, n_unknowns, self.n_factors)
        cholesky = factor_gram(exact.T @ exact, ridges, cells.side)
        imputed_part, offset_part = exact.T @ opposite_imputed_rows, exact.T @ opposite_offset
        products = padded_zeros(cells.n_rows, n_unknowns, design.dtype)
        solutions = np.empty((cells.n_rows, n_unknowns), design.dtype)

        def solve_rows(rows: tuple[int, int]) -> None:
            multiply_rows(rows, cells.cells, design, products)
            part = slice(*rows)
            right = products[part, :n_unknowns] + imputed_rows[part] @ imputed_part.T - offset_part
            solutions[part] = linalg.cho_solve(cholesky, right.T).T

        self.workers.map(solve_rows, cells.tasks)
        return solutions, products[:, :n_unknowns]

    def _objective(self, factors: Factors, products: Floats) -> float:
        """Sum F^2 - 2 sum F T + sum T^2 + penalty; ``products`` are S times the users' design."""
        outcome, n_factors = self.outcome, self.n_factors
        users, items = factors.as_float64_rows()
        log_part = float(np.einsum("kd,kd->", items[:, :n_factors], products[:, :n_factors]))
        if self.offsets != "none":
            log_part += float(
                items[:, -1] @ products[:, n_factors] + users[:, -2] @ outcome.user_totals
            )
        cross = sum_of_products(users, items, outcome.user_rows, outcome.item_rows) + log_part
        loss = sum_of_products(users, items, users, items) - 2 * cross + outcome.sum_of_squares
        return loss + self.penalty.value(factors)


def factor_gram(gram: Matrix, ridges: Vector, side: Side) -> tuple[Matrix, bool]:
    """The Cholesky factor of X'X plus the penalty, for the equations of all rows of a side."""
    try:
        cholesky: tuple[Matrix, bool] = linalg.cho_factor(gram + np.diag(ridges))
    except (linalg.LinAlgError, ValueError) as error:  # an infinite matrix is a ValueError
        raise no_unique_rows_error(side, float(ridges[0])) from error
    return cholesky


def no_unique_rows_error(side: Side, ridge: float) -> UsageError:
    """All rows of a side share their equations, so no row of it has a unique solution."""
    return UsageError(
        f"the least-squares problem for the factors of every {side} has no unique, finite "
        f"solution with a ridge of {ridge:g}.",
        parameter="l2",
        remedy="Use another `l2` or fewer factors.",
    )
