"""Factorisation of a pseudo-outcome over all cells: every row of a side has the same normal matrix.

    min  sum over all cells of (F - T)^2  +  l2 (||V||^2 + ||W||^2 [+ ||a||^2 + ||b||^2 + c^2]),     T = G + S

With x_i = (w_i, 1), user u solves  (sum_i x_i x_i' + ridge) z = sum_i x_i (G_ui - b_i - c) + sum over u's log of x_i S_ui.
The matrix is everybody's, so that one Cholesky factorisation serves a side; the first sum is a product of Gram matrices; only the
last one looks at the log. A sweep costs O(n d + (U + I) d^2), where weights that differ by cell would make it O(n d^2).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import linalg

from unskew.errors import UsageError
from unskew.factorization.momentum import State, Sweeping
from unskew.factorization.objective import Offsets, SortedCells
from unskew.factorization.parameters import Floats, Parameters, without_offsets
from unskew.factorization.pseudo_outcome import PseudoOutcome, lines_of, sum_of_products
from unskew.threads import Workers
from unskew.types import Matrix, Vector


@dataclass(frozen=True, slots=True, eq=False)
class SharedGram(Sweeping):
    """A solver of squared loss over all cells. The objective is exact, by Gram matrices."""

    outcome: PseudoOutcome
    n_factors: int
    offsets: Offsets
    l2: float
    """The ridge itself, after scaling."""
    workers: Workers

    def start(self, parameters: Parameters, /) -> State:
        """At ``parameters``; offsets that are not to be are dropped."""
        if self.offsets == "none":
            parameters = without_offsets(parameters)
        return Sweeping.start(self, parameters)  # super() does not know classes with slots

    def _sweep(self, now: Parameters) -> tuple[Parameters, float]:
        """Users, items, constant."""
        outcome, d = self.outcome, self.n_factors
        design, known = (
            self._design(now.item_factors),
            now.item_offset.astype(np.float64) + now.constant,
        )
        users, _ = self._solve(
            outcome.by_user, design, known, outcome.user_lines, outcome.item_lines
        )
        design, known = (
            self._design(users[:, :d]),
            self._offset(users).astype(np.float64) + now.constant,
        )
        items, products = self._solve(
            outcome.by_item, design, known, outcome.item_lines, outcome.user_lines
        )
        constant = self._best_constant(self._offset(items), now.constant)
        swept = Parameters(
            users[:, :d], items[:, :d], self._offset(users), self._offset(items), constant
        )
        return swept, self._objective(swept, products)

    def _design(self, factors: Floats) -> Floats:
        """``[w, 1]``, or ``[w]`` without offsets."""
        from unskew.kernels.rows import lines_of_zeros

        lines = lines_of_zeros(len(factors), self._n_solved, self.outcome.by_user.dtype)
        lines[:, : self.n_factors] = factors
        lines[:, self.n_factors : self._n_solved] = 1
        return lines

    @property
    def _n_solved(self) -> int:
        return self.n_factors + (self.offsets != "none")

    def _offset(self, solutions: Floats) -> Floats:
        return (
            solutions[:, self.n_factors]
            if self.offsets != "none"
            else np.zeros(len(solutions), solutions.dtype)
        )

    def _solve(
        self,
        side: SortedCells,
        design: Floats,
        known: Vector,
        own_lines: Matrix,
        partner_lines: Matrix,
    ) -> tuple[Floats, Floats]:
        """The best rows of ``side``, and what the log adds to their right-hand sides: S times the design."""
        from unskew.kernels.rows import lines_of_zeros, multiply_rows

        exact = design[:, : self._n_solved].astype(np.float64)
        factor = self._factorized(exact)
        of_imputed, of_known = exact.T @ partner_lines, exact.T @ known
        products = lines_of_zeros(side.n_rows, self._n_solved, design.dtype)
        solutions = np.empty((side.n_rows, self._n_solved), design.dtype)

        def work(rows: tuple[int, int]) -> None:
            multiply_rows(rows, side.cells, design, products)
            part = slice(*rows)
            right = products[part, : self._n_solved] + own_lines[part] @ of_imputed.T - of_known
            solutions[part] = linalg.cho_solve(factor, right.T).T

        self.workers.map(work, side.tasks)
        return solutions, products[:, : self._n_solved]

    def _factorized(self, design: Matrix) -> tuple[Matrix, bool]:
        ridge = np.full(self._n_solved, self.l2)
        ridge[self.n_factors :] *= self.offsets == "regularized"
        try:
            factor: tuple[Matrix, bool] = linalg.cho_factor(design.T @ design + np.diag(ridge))
        except linalg.LinAlgError as error:
            raise UsageError(
                f"the factors have no unique solution at l2 = {self.l2:g}. Raise l2."
            ) from error
        return factor

    def _best_constant(self, item_offset: Floats, constant: float) -> float:
        """After the items' solve, sum e = l2 sum b, so that the best step of c needs no pass over the cells."""
        if self.offsets != "regularized":
            return constant
        return constant + self.l2 * (float(item_offset.sum()) - constant) / (
            self.outcome.n_cells + self.l2
        )

    def _objective(self, at: Parameters, products: Floats) -> float:
        """Sum F^2 - 2 sum F T + sum T^2 + penalty; ``products`` are S times the users' design, for every item."""
        outcome, (users, items) = self.outcome, lines_of(at)
        of_log = float(
            np.einsum("kd,kd->", items[:, : self.n_factors], products[:, : self.n_factors])
        )
        if self.offsets != "none":
            of_log += float(
                items[:, -1] @ products[:, self.n_factors] + users[:, -2] @ outcome.user_totals
            )
        together = sum_of_products(users, items, outcome.user_lines, outcome.item_lines) + of_log
        loss = sum_of_products(users, items, users, items) - 2 * together + outcome.sum_of_squares
        return loss + self.l2 * at.penalty(with_offsets=self.offsets == "regularized")
