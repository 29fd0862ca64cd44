"""Weighted least squares on terms of cells and on offsets of users and items.

    min over B of  sum over observed cells of w (y - B_u - B_i - B's)^2

One side's offsets are eliminated: given all others, they are weighted means. What remains is
solved by conjugate gradients in the space of the parameters, so that a step does not touch the
cells one by one, except through the sparse matrix of weights if both sides have offsets.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.sparse import csr_array

from unskew.data.logit_terms import CellTerms
from unskew.kernels.blocks import sum_by_code
from unskew.types import IntVector, Matrix, Vector

MAX_STEPS = 2000
PRECISION = 1e-9
"""Conjugate gradients stop when the residual is below this share of its first value."""


@dataclass(frozen=True, slots=True, eq=False)
class OffsetCoefficients:
    """K x users, K x items and K x terms; no columns for a side without offsets."""

    user: Matrix
    item: Matrix
    terms: Matrix

    def dot(self, other: OffsetCoefficients) -> Vector:
        """The inner product for each risk; ``other`` may have one row for all."""
        pairs = (self.user, other.user), (self.item, other.item), (self.terms, other.terms)
        total: Vector = np.sum([(one * another).sum(axis=1) for one, another in pairs], axis=0)
        return total


@dataclass(frozen=True, slots=True, eq=False)
class WeightedSide:
    """The users (or items) with their terms, weighted and added up over their cells."""

    code: IntVector
    """The user of each cell."""
    weight: Vector
    """The sum of w over the cells of each user."""
    columns: Matrix
    """Users x columns of the terms that belong to this side."""
    opposite: Matrix
    """Users x columns of the other side: their sum over the cells of the user, times w."""
    index: IntVector
    """The column of this side in each term."""
    opposite_index: IntVector

    @classmethod
    def add_up(
        cls,
        code: IntVector,
        columns: Matrix,
        index: IntVector,
        weight: Vector,
        opposite_columns: Matrix,
        opposite_row: IntVector,
        opposite_index: IntVector,
    ) -> WeightedSide:
        n = len(columns)
        opposite = [
            np.bincount(code, weight * column[opposite_row], n) for column in opposite_columns.T
        ]
        total = np.asarray(np.bincount(code, weight, n), dtype=np.float64)
        return cls(code, total, columns, np.stack(opposite, axis=1), index, opposite_index)

    def sum_values(self, values: Matrix, factor: Vector) -> Matrix:
        """Sums of values times factor: K x cells to K x users."""
        return sum_by_code(values, self.code, self.weight.size, factor)

    def multiply(self, coefficient: Matrix) -> Matrix:
        """The sum over each user's cells of ``w coefficient @ s``: (K, terms) to (K, users)."""
        by_user = self.opposite @ self._to_matrices(coefficient)
        product: Matrix = np.einsum("knm,nm->kn", by_user, self.columns)
        return product

    def transpose(self, values: Matrix) -> Matrix:
        """The sum over cells of ``w s`` times the value of the user: (K, users) to (K, terms)."""
        matrices = np.stack([(self.opposite * row[:, None]).T @ self.columns for row in values])
        product: Matrix = matrices[:, self.opposite_index, self.index]
        return product

    def fill_empty(self, offsets: Matrix, coefficient: Matrix, opposite_mean: Vector) -> None:
        """Set the offsets of users without cells, about whom the observed cells say nothing.

        A sum of (1 - P) P B's over all items is 0 for such a user. Items are weighted as they are
        on average over users.
        """
        is_empty = self.weight == 0
        columns = self.opposite.sum(axis=0) / self.weight.sum()
        term_sums = columns @ self._to_matrices(coefficient) @ self.columns[is_empty].T
        offsets[:, is_empty] = -term_sums - opposite_mean[:, None]

    def _to_matrices(self, coefficient: Matrix) -> Matrix:
        """K x columns of the other side x columns of this side."""
        shape = len(coefficient), self.opposite.shape[1], self.columns.shape[1]
        matrices = np.zeros(shape)
        matrices[:, self.opposite_index, self.index] = coefficient
        return matrices

    def divide(self, values: Matrix) -> Matrix:
        """Values divided by the weight of each user; 0 for users without cells."""
        return np.divide(values, self.weight, out=np.zeros_like(values), where=self.weight > 0)


@dataclass(frozen=True, slots=True, eq=False)
class OffsetEquations:
    """The normal equations of the least squares problem, without the target."""

    weight: Vector
    terms: CellTerms
    """Without those that offsets can replace: a user's columns if users have offsets."""
    term_index: IntVector
    """The place of these terms among all terms of the model."""
    n_terms: int
    """All terms of the model."""
    rows: tuple[IntVector, IntVector]
    """The rows of each cell's user and item in the terms."""
    eliminated: WeightedSide
    kept: WeightedSide | None
    """The other side, if it has offsets too."""
    links: csr_array | None
    """Kept x eliminated: w of each cell."""
    gram: Matrix
    """Terms x terms: the sum over cells of w s s'."""
    is_item_eliminated: bool

    @classmethod
    def build(
        cls,
        terms: CellTerms,
        codes: tuple[IntVector, IntVector],
        row_of: tuple[IntVector, IntVector],
        weight: Vector,
        *,
        has_user: bool,
        has_item: bool,
    ) -> OffsetEquations:
        """The equations of a log's cells.

        ``codes`` holds the user and the item of each cell, ``row_of`` the row of each user and
        each item in ``terms``; ``has_user`` and ``has_item`` say which of them have offsets.
        """
        rows = row_of[0][codes[0]], row_of[1][codes[1]]
        n_terms, term_index = len(terms), _find_free_terms(terms, has_user, has_item)
        terms = terms.select(term_index)
        columns, index = (terms.user, terms.item), (terms.left, terms.right)
        user, item = (
            WeightedSide.add_up(
                codes[side],
                columns[side][row_of[side]],
                index[side],
                weight,
                columns[1 - side],
                rows[1 - side],
                index[1 - side],
            )
            for side in (0, 1)
        )
        eliminated, kept = (item, user) if has_item else (user, item)
        links = None
        if has_user and has_item:
            shape = kept.weight.size, eliminated.weight.size
            links = csr_array((weight, (kept.code, eliminated.code)), shape=shape)
        gram = terms.sum_squares(weight, *rows)
        other = kept if links is not None else None
        return cls(
            weight, terms, term_index, n_terms, rows, eliminated, other, links, gram, has_item
        )

    def solve(self, target: Matrix, scale: Vector) -> OffsetCoefficients:
        """The weighted least-squares coefficients of K targets, given K x cells and a scale.

        Cell (u, i) of a target is explained by g_u + h_i + m . s_ui: an offset of the user, one of
        the item, and coefficients of the terms s. The offsets g of one side are eliminated: given
        the rest, g_u is the weighted mean of what the rest leaves of u's cells. This gives
        equations for h and m, which conjugate gradients solve; g follows.
        """
        factor = self.weight * scale
        eliminated_sums = self.eliminated.sum_values(target, factor)
        mean = self.eliminated.divide(eliminated_sums)
        kept_sums = np.empty((len(target), 0))
        if self.kept is not None and self.links is not None:
            kept_sums = self.kept.sum_values(target, factor)
            term_sums = self._sum_terms(target, factor, eliminated_sums, kept_sums)
            kept_sums = kept_sums - (self.links @ mean.T).T
        else:
            term_sums = self.terms.add_up(target, *self.rows, factor)
        term_sums = term_sums - self.eliminated.transpose(mean)
        solution = self._find_solution(np.hstack([kept_sums, term_sums]))
        kept, terms = self._split(solution)
        rest = eliminated_sums - self._sum_by_eliminated(kept, terms)
        eliminated = self.eliminated.divide(rest)
        self._fill_empty(kept, eliminated, terms)
        user, item = (kept, eliminated) if self.is_item_eliminated else (eliminated, kept)
        all_terms = np.zeros((len(target), self.n_terms))
        all_terms[:, self.term_index] = terms
        return OffsetCoefficients(user, item, all_terms)

    def _fill_empty(self, kept: Matrix, eliminated: Matrix, terms: Matrix) -> None:
        """Set the offsets of users and items without cells."""
        mean = np.zeros(len(terms))
        if self.kept is not None:
            eliminated_mean = eliminated @ self.eliminated.weight / self.eliminated.weight.sum()
            self.kept.fill_empty(kept, terms, eliminated_mean)
            mean = kept @ self.kept.weight / self.kept.weight.sum()
        self.eliminated.fill_empty(eliminated, terms, mean)

    def _sum_terms(
        self, target: Matrix, factor: Vector, eliminated_sums: Matrix, kept_sums: Matrix
    ) -> Matrix:
        """The sum over cells of target, factor and s; sums by user and item are known."""
        if self.kept is None or self.terms.has_products:
            return self.terms.add_up(target, *self.rows, factor)
        parts = [kept_sums @ self.kept.columns, eliminated_sums @ self.eliminated.columns]
        return self.terms.join(*(parts if self.is_item_eliminated else reversed(parts)))

    def _find_solution(self, right: Matrix) -> Matrix:
        """Conjugate gradients, scaled by the diagonal of the equations."""
        kept_weight = np.empty(0) if self.kept is None else self.kept.weight
        diagonal = np.concatenate([kept_weight, np.diag(self.gram)])
        scale = np.divide(1.0, diagonal, out=np.zeros_like(diagonal), where=diagonal > 0)
        solution, residual, direction = np.zeros_like(right), right, right * scale
        size = first_size = (residual * direction).sum(axis=1)
        for _ in range(MAX_STEPS):
            is_open = size > PRECISION**2 * first_size
            if not is_open.any():
                break
            image = self._apply(direction)
            curvature = (direction * image).sum(axis=1)
            is_open &= curvature > 0
            step = np.divide(size, curvature, out=np.zeros_like(size), where=is_open)
            solution = solution + step[:, None] * direction
            residual = residual - step[:, None] * image
            scaled = residual * scale
            previous, size = size, np.where(is_open, (residual * scaled).sum(axis=1), 0.0)
            ratio = np.divide(size, previous, out=np.zeros_like(size), where=is_open)
            direction = scaled + ratio[:, None] * direction
        return solution

    def _apply(self, solution: Matrix) -> Matrix:
        """The equations of the kept offsets and the terms, after the elimination."""
        kept, terms = self._split(solution)
        mean = self.eliminated.divide(self._sum_by_eliminated(kept, terms))
        term_sums = terms @ self.gram - self.eliminated.transpose(mean)
        if self.kept is None or self.links is None:
            return term_sums
        kept_sums = kept * self.kept.weight + self.kept.multiply(terms) - (self.links @ mean.T).T
        return np.hstack([kept_sums, term_sums + self.kept.transpose(kept)])

    def _sum_by_eliminated(self, kept: Matrix, terms: Matrix) -> Matrix:
        """Sums of w times the fit without eliminated offsets, by eliminated user or item."""
        sums = self.eliminated.multiply(terms)
        return sums if self.links is None else sums + (self.links.T @ kept.T).T

    def _split(self, solution: Matrix) -> tuple[Matrix, Matrix]:
        n_kept = solution.shape[1] - len(self.terms)
        return solution[:, :n_kept], solution[:, n_kept:]


def _find_free_terms(terms: CellTerms, has_user: bool, has_item: bool) -> IntVector:
    """The terms that are not a sum of a number for each user and a number for each item.

    The fit is the same without the others, and conjugate gradients then need half of the steps.
    """
    is_free = ~((terms.right == 0) & has_user | (terms.left == 0) & has_item)
    is_free &= (terms.left > 0) | (terms.right > 0)
    return np.flatnonzero(is_free).astype(np.int32)
