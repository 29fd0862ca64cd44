"""The prediction of doubly robust learning on Spark: least squares over all cells.

The mathematics is that of :mod:`unskew.factorization.pseudo_outcome`. A sweep is one job. A block
solves its users and sends the product of S with their rows, d + 1 numbers for each item, and the
Gram matrix of their rows; the driver solves the items.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np
from scipy import linalg

from unskew.data.factors import Factors
from unskew.engines.spark.blocks import UserBlocks, share
from unskew.engines.spark.solving import ItemFactors
from unskew.engines.spark.sums import BlockSum
from unskew.factorization.als import ItemSide, SweepingSolver, best_constant
from unskew.factorization.penalty import Offsets, Penalty
from unskew.factorization.pseudo_outcome import factor_gram
from unskew.types import Floats, Matrix, Vector


@dataclass(frozen=True, eq=False)
class PredictedItems(ItemFactors):
    """The items of a prediction, and the penalty of the users that they were solved with."""

    _: KW_ONLY
    user_penalty: float


@dataclass(frozen=True, slots=True, eq=False)
class PredictionUsers:
    """Solves the users of corrected blocks, given the items: what is sent to the executors."""

    design: Floats
    """``[w, 1]`` of the items, or ``[w]`` without offsets, as padded rows."""
    cholesky: tuple[Matrix, bool]
    offset_part: Vector
    imputed_part: Matrix | None
    """The part of G on the right, for each column of its rows; None if S alone is predicted."""
    n_factors: int
    has_offsets: bool

    @property
    def n_unknowns(self) -> int:
        return self.n_factors + self.has_offsets

    @property
    def n_more_rows(self) -> int:
        """Rows of ``n_unknowns`` numbers that :meth:`add_up` returns after those of the items."""
        n_columns = self.n_factors + 2
        if self.imputed_part is not None:
            n_columns += self.imputed_part.shape[1]
        return -(-(n_columns**2 + 1) // self.n_unknowns)

    def solve(self, block: Any) -> tuple[Floats, Floats]:
        """The factors and offsets of the block's users, without those of G."""
        solutions = self._solve_rows(block)
        if not self.has_offsets:
            return solutions, np.zeros(len(solutions), solutions.dtype)
        return solutions[:, : self.n_factors], solutions[:, self.n_factors]

    def _solve_rows(self, block: Any) -> Floats:
        from unskew.kernels.rows import multiply_rows, padded_zeros

        n_rows, dtype = block.cells.n_rows, self.design.dtype
        products = padded_zeros(n_rows, self.n_unknowns, dtype)
        multiply_rows((0, n_rows), block.cells.cells, self.design, products)
        right = products[:, : self.n_unknowns] - self.offset_part
        if self.imputed_part is not None:
            right = right + block.imputed_rows @ self.imputed_part.T
        return linalg.cho_solve(self.cholesky, right.T).T.astype(dtype)

    def add_up(self, block: Any) -> BlockSum:
        """S times ``[v, 1]`` of the users for each item, then the Gram matrix of ``[v, a, 1]``.

        The rows of G follow those of the users in the matrix if G is predicted too. The last number
        is the sum of S times a.
        """
        from unskew.kernels.rows import multiply_rows, padded_zeros

        factors, offset = self.solve(block)
        n_items, size = len(self.design), self.n_unknowns
        rows = padded_zeros(len(factors), size, self.design.dtype)
        rows[:, : self.n_factors], rows[:, self.n_factors : size] = factors, 1
        products = padded_zeros(n_items, size, self.design.dtype)
        multiply_rows((0, n_items), block.sort_by_item(n_items).cells, rows, products)
        columns = [factors, offset, np.ones(len(factors))]
        if self.imputed_part is not None:
            columns.append(block.imputed_rows)
        exact = np.column_stack(columns).astype(np.float64)
        offset_of_cell = np.repeat(offset.astype(np.float64), np.diff(block.cells.starts))
        numbers = np.append((exact.T @ exact).ravel(), block.cells.rating @ offset_of_cell)
        more = np.zeros((self.n_more_rows, size))
        more.ravel()[: numbers.size] = numbers
        return 0.0, np.concatenate([products[:, :size].astype(np.float64), more])


@dataclass(frozen=True, slots=True, eq=False)
class PredictedUsers:
    """The users of F: those of the correction with those of G beside them, if G is added."""

    users: PredictionUsers
    adds_imputed: bool

    def solve(self, block: Any) -> tuple[Floats, Floats]:
        factors, offset = self.users.solve(block)
        if not self.adds_imputed:
            return factors, offset
        imputed, imputed_offset = block.imputed_side
        return np.hstack([factors, imputed]), offset + imputed_offset


@dataclass(frozen=True, slots=True, eq=False)
class SparkPredictionSweeps(SweepingSolver):
    """Alternating least squares for a pseudo-outcome with users in Spark's executors."""

    blocks: UserBlocks
    n_users: int
    n_factors: int
    offsets: Offsets
    penalty: Penalty
    dtype: str
    imputed_rows: Matrix | None
    """``[w, 1, b + c]`` of G for the items; None if S alone is predicted."""
    sum_of_squares: float
    """The sum of T^2 over all cells."""

    @property
    def _has_offsets(self) -> bool:
        return self.offsets != "none"

    def make_users(self, items: ItemSide) -> PredictionUsers:
        """What solves the users, given these items."""
        from unskew.kernels.rows import padded_zeros

        n_factors, size = self.n_factors, self.n_factors + self._has_offsets
        design = padded_zeros(len(items.factors), size, self.dtype)
        design[:, :n_factors], design[:, n_factors:size] = items.factors, 1
        exact = design[:, :size].astype(np.float64)
        ridges = self.penalty.of_row("user", size, n_factors)
        cholesky = factor_gram(exact.T @ exact, ridges, "user")
        offset = items.offset.astype(self.dtype).astype(np.float64) + items.global_offset
        imputed_part = None if self.imputed_rows is None else exact.T @ self.imputed_rows
        return PredictionUsers(
            design, cholesky, exact.T @ offset, imputed_part, n_factors, self._has_offsets
        )

    def _sweep(self, start: Factors, *, is_exact: bool) -> tuple[Factors, float]:
        """Users in one job; then items and constant on the driver. The objective is exact."""
        before = ItemSide.of(start)
        users, blocks = self.make_users(before), self.blocks
        with share(blocks.session, users) as solver:
            _, added = blocks.add_up(
                lambda block: solver.value.add_up(block),
                width=users.n_unknowns,
                dtype="float64",
                n_more_rows=users.n_more_rows,
            )
        sums = added.astype(np.float64, copy=False)
        products, numbers = sums[: blocks.n_items], sums[blocks.n_items :].ravel()
        n_columns = self.n_factors + 2
        if self.imputed_rows is not None:
            n_columns += self.imputed_rows.shape[1]
        gram = numbers[: n_columns**2].reshape(n_columns, n_columns)
        items = self._solve_items(products, gram, before.global_offset)
        factors = ItemFactors.of(items, before)
        user_penalty = self.penalty.factors * float(np.trace(gram[: self.n_factors]))
        user_penalty += self.penalty.user_offset * float(gram[self.n_factors, self.n_factors])
        whole = PredictedItems(
            *factors.arrays, factors.global_offset, start=factors.start, user_penalty=user_penalty
        )
        return whole, self._objective(whole, products, gram, float(numbers[n_columns**2]))

    def _solve_items(self, products: Matrix, gram: Matrix, c: float) -> ItemSide:
        """All items share one matrix, so this takes I (d + 1)^2 steps."""
        n_factors = self.n_factors
        size = n_factors + self._has_offsets
        offset, one = n_factors, n_factors + 1
        design = [*range(n_factors), one][:size]
        cholesky = factor_gram(
            gram[np.ix_(design, design)],
            self.penalty.of_row("item", size, n_factors),
            "item",
        )
        right = products - (gram[design, offset] + c * gram[design, one])
        if self.imputed_rows is not None:
            right = right + self.imputed_rows @ gram[np.ix_(design, range(one + 1, len(gram)))].T
        solutions = linalg.cho_solve(cholesky, right.T).T.astype(self.dtype).astype(np.float64)
        if not self._has_offsets:
            return ItemSide(solutions, np.zeros(len(solutions)), c)
        offsets = solutions[:, n_factors].copy()
        n_cells = self.n_users * self.blocks.n_items
        c = best_constant(c, float(offsets.sum()), n_cells, self.penalty)
        return ItemSide(solutions[:, :n_factors], offsets, c)

    def _objective(
        self, items: PredictedItems, products: Matrix, gram: Matrix, offset_total: float
    ) -> float:
        """Sum F^2 - 2 sum F T + sum T^2 + penalty, from sums over the users."""
        n_factors, size = self.n_factors, self.n_factors + 2
        _, rows = items.as_float64_rows()
        cross = float(np.einsum("kd,kd->", rows[:, :n_factors], products[:, :n_factors]))
        if self._has_offsets:
            cross += float(rows[:, -1] @ products[:, n_factors]) + offset_total
        if self.imputed_rows is not None:
            cross += float((gram[:size, size:] * (rows.T @ self.imputed_rows)).sum())
        squares = float((gram[:size, :size] * (rows.T @ rows)).sum())
        loss = squares - 2 * cross + self.sum_of_squares
        return loss + items.user_penalty + self.penalty.value(items)
