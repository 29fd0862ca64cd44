"""The terms of a logistic model of all cells, and sums of them over observed and over all cells."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from unskew.data.cells import RowNumbers
from unskew.data.estimation import Unit
from unskew.kernels.blocks import add_pairs, sum_by_code, take_columns
from unskew.types import IntVector, Matrix, Vector

BLOCK_CELLS = 1 << 18
"""Cells whose terms or propensities are held at once."""
MAX_LOGIT = 300.0
"""Parts of a logit beyond this leave P as it is: 0 or 1 up to rounding."""
SMALLEST_EIGENVALUE = 1e-10
"""Eigenvalues of a scaled information matrix below this share of the largest count as zero."""


@dataclass(frozen=True, slots=True, eq=False)
class CellTerms:
    """The terms s of cells: products of a column of the user and a column of the item.

    Term t is ``user[r, left[t]] * item[q, right[t]]`` in the cell of a user with row r and an item
    with row q. The first column of both sides is 1.
    """

    user: Matrix
    item: Matrix
    left: IntVector
    right: IntVector

    @classmethod
    def build(cls, user: Matrix, item: Matrix, n_crossed: tuple[int, int] = (0, 0)) -> CellTerms:
        """An intercept, the columns of users, those of items, and products of the first columns.

        ``n_crossed`` says how many of the first columns of each side are multiplied.
        """
        user_column, item_column = np.arange(user.shape[1]) + 1, np.arange(item.shape[1]) + 1
        crossed = np.meshgrid(user_column[: n_crossed[0]], item_column[: n_crossed[1]])
        left = np.concatenate([[0], user_column, 0 * item_column, crossed[0].T.ravel()])
        right = np.concatenate([[0], 0 * user_column, item_column, crossed[1].T.ravel()])
        return cls(
            np.column_stack([np.ones(len(user)), user]),
            np.column_stack([np.ones(len(item)), item]),
            left.astype(np.int32),
            right.astype(np.int32),
        )

    def __len__(self) -> int:
        return self.left.size

    def select(self, index: IntVector) -> CellTerms:
        """Some of the terms, with the columns that they need and the first ones."""
        (left, left_position), (right, right_position) = (
            np.unique(np.append(0, columns[index]), return_inverse=True)
            for columns in (self.left, self.right)
        )
        return CellTerms(
            self.user[:, left],
            self.item[:, right],
            left_position[1:].astype(np.int32),
            right_position[1:].astype(np.int32),
        )

    def multiply(
        self, coefficient: Matrix, user_row: IntVector, item_row: IntVector
    ) -> Callable[[slice], Matrix]:
        """``coefficient @ s`` of some of the cells, given (K, terms): (K, cells)."""
        by_row = self.user @ self._to_matrices(coefficient)
        if self._has_few_pairs(user_row.size):
            table = (by_row @ self.item.T).reshape(len(coefficient), -1)
            return lambda rows: take_columns(table, self._pair_rows(user_row[rows], item_row[rows]))
        if not self.has_products:
            of_users, of_items = self.split(coefficient)
            return lambda rows: add_pairs(of_users, user_row[rows], of_items, item_row[rows])

        def multiply_rows(rows: slice) -> Matrix:
            users, items = user_row[rows], item_row[rows]
            product = np.empty((len(coefficient), users.size))
            size = max(1, BLOCK_CELLS // self.item.shape[1])
            for first in range(0, users.size, size):
                block = slice(first, first + size)
                product[:, block] = np.einsum(
                    "knc,nc->kn", by_row[:, users[block]], self.item[items[block]]
                )
            return product

        return multiply_rows

    def add_up(
        self, values: Matrix, user_row: IntVector, item_row: IntVector, factor: Vector
    ) -> Matrix:
        """The sum over cells of ``values * factor * s``: (K, cells) to (K, terms)."""
        if not self.has_products and not self._has_few_pairs(user_row.size):
            return self.join(
                sum_by_code(values, user_row, len(self.user), factor) @ self.user,
                sum_by_code(values, item_row, len(self.item), factor) @ self.item,
            )
        by_row = np.stack(
            [self._sum_by_row(row * factor, user_row, item_row, self.item) for row in values]
        )
        matrices = self.user.T @ by_row
        totals: Matrix = matrices[:, self.left, self.right]
        return totals

    @property
    def has_products(self) -> bool:
        """Whether a term is a product of a user's and an item's column other than 1."""
        return bool(((self.left > 0) & (self.right > 0)).any())

    def split(self, coefficient: Matrix) -> tuple[Matrix, Matrix]:
        """``coefficient @ s`` as a sum of a number of the user's row and one of the item's row.

        K x user rows and K x item rows, of terms that have no products.
        """
        matrices = self._to_matrices(coefficient)
        return matrices[:, :, 0] @ self.user.T, matrices[:, 0, 1:] @ self.item[:, 1:].T

    def join(self, of_users: Matrix, of_items: Matrix) -> Matrix:
        """K x terms, from K x user columns and K x item columns, if terms have no products."""
        return np.where(self.right == 0, of_users[:, self.left], of_items[:, self.right])

    def sum_squares(self, weight: Vector, user_row: IntVector, item_row: IntVector) -> Matrix:
        """The sum over cells of ``weight s s'``: terms x terms."""
        products = self.item_products
        return self.combine_products(self._sum_by_row(weight, user_row, item_row, products))

    @property
    def item_products(self) -> Matrix:
        """Item rows x distinct products of two item columns that occur in s s'."""
        first, second = self._product_columns()[0]
        return self.item[:, first] * self.item[:, second]

    def combine_products(self, by_row: Matrix) -> Matrix:
        """The sum of s s' from sums of ``item_products`` by user row.

        There are fewer distinct products of two item columns than of two terms.
        """
        position = self._product_columns()[1]
        by_product = np.einsum("rj,rl,rq->qjl", self.user, self.user, by_row, optimize=True)
        left = np.meshgrid(self.left, self.left, indexing="ij")
        squares: Matrix = by_product[position, left[0], left[1]]
        return squares

    def _product_columns(self) -> tuple[IntVector, IntVector]:
        """Pairs of item columns, and which of them belongs to each pair of terms."""
        pairs = np.sort(np.stack(np.meshgrid(self.right, self.right, indexing="ij")), axis=0)
        columns, position = np.unique(pairs.reshape(2, -1), axis=1, return_inverse=True)
        return columns, position.reshape(len(self), len(self)).astype(np.int32)

    def _sum_by_row(
        self, values: Vector, user_row: IntVector, item_row: IntVector, columns: Matrix
    ) -> Matrix:
        """User rows x columns: the sum over cells of values times the columns of the item."""
        n_rows = len(self.user)
        if self._has_few_pairs(user_row.size):
            pair = self._pair_rows(user_row, item_row)
            by_pair = np.bincount(pair, values, n_rows * len(self.item))
            return by_pair.reshape(n_rows, -1) @ columns
        by_row = np.empty((n_rows, columns.shape[1]))
        for sums, column in zip(by_row.T, columns.T, strict=True):
            sums[:] = np.bincount(user_row, values * column[item_row], n_rows)
        return by_row

    def _has_few_pairs(self, n_cells: int) -> bool:
        """Whether a table of all pairs of rows is smaller than a column of cells."""
        return len(self.user) * len(self.item) <= n_cells

    def _pair_rows(self, user_row: IntVector, item_row: IntVector) -> RowNumbers:
        """The number of each cell's pair of rows, counted row by row."""
        return user_row.astype(np.intp) * len(self.item) + item_row

    def _to_matrices(self, coefficient: Matrix) -> Matrix:
        """K x user columns x item columns."""
        shape = len(coefficient), self.user.shape[1], self.item.shape[1]
        matrices = np.zeros(shape)
        matrices[:, self.left, self.right] = coefficient
        return matrices


@dataclass(frozen=True, eq=False)
class LogitGrid:
    """P = sigma(row + column' + left right') of all cells, by units of users and of items.

    Users with the same terms and the same offset have the same P and form one unit, items
    likewise. No array of all cells is kept.
    """

    terms: CellTerms
    user_unit: IntVector
    """The unit of each user."""
    item_unit: IntVector
    user_row: IntVector
    """The row of each user unit in ``terms.user``."""
    item_row: IntVector
    row: Vector
    column: Vector
    left: Matrix
    right: Matrix

    @cached_property
    def user_count(self) -> Vector:
        """The number of users in each unit."""
        return np.bincount(self.user_unit, minlength=self.row.size).astype(np.float64)

    @cached_property
    def item_count(self) -> Vector:
        return np.bincount(self.item_unit, minlength=self.column.size).astype(np.float64)

    def find_rows(self) -> tuple[IntVector, IntVector]:
        """The row of each user, and of each item, in the terms."""
        return self.user_row[self.user_unit], self.item_row[self.item_unit]

    def expect(self, unit: Unit, columns: Matrix) -> Matrix:
        """Units of users x K: sums of P times columns over all items; or the reverse.

        The columns have one row for each unit of the other side, for all of its members.
        """
        if unit == "user":
            return np.concatenate([propensity @ columns for _, propensity in self._blocks()])
        by_item = np.zeros((self.column.size, columns.shape[1]))
        for rows, propensity in self._blocks():
            by_item += propensity.T @ columns[rows]
        return by_item

    def expect_terms(self, unit: Unit, coefficient: Matrix) -> Matrix:
        """Sums of ``P coefficient @ s``: user units x K over all items, or item units x K."""
        matrices = self.terms._to_matrices(coefficient)
        if unit == "user":
            left = (self.terms.user @ matrices)[:, self.user_row]
            by_user: Matrix = np.einsum("kuc,uc->uk", left, self._item_columns_by_user)
            return by_user
        right = (self.terms.item @ matrices.transpose(0, 2, 1))[:, self.item_row]
        by_item: Matrix = np.einsum("kic,ic->ik", right, self._user_columns_by_item)
        return by_item

    @cached_property
    def _item_columns_by_user(self) -> Matrix:
        """Sums of P times the item columns of the terms, for a user of each unit."""
        return self.expect("user", self.item_count[:, None] * self.terms.item[self.item_row])

    @cached_property
    def _user_columns_by_item(self) -> Matrix:
        return self.expect("item", self.user_count[:, None] * self.terms.user[self.user_row])

    @cached_property
    def information(self) -> Matrix:
        """A = sum over all cells of P (1 - P) s s', without a penalty."""
        terms = self.terms
        products = terms.item_products[self.item_row] * self.item_count[:, None]
        by_row = np.zeros((len(terms.user), products.shape[1]))
        for rows, propensity in self._blocks():
            spread = (propensity * (1.0 - propensity)) @ products
            np.add.at(by_row, self.user_row[rows], spread * self.user_count[rows, None])
        return terms.combine_products(by_row)

    @cached_property
    def inverse_information(self) -> Matrix:
        """The inverse of A; if terms are collinear, its pseudo-inverse."""
        size = np.sqrt(np.maximum(np.diag(self.information), np.finfo(np.float64).tiny))
        scaled = self.information / np.outer(size, size)
        inverse = np.linalg.pinv(scaled, rcond=SMALLEST_EIGENVALUE, hermitian=True)
        inverse_information: Matrix = inverse / np.outer(size, size)
        return inverse_information

    @cached_property
    def n_parameters(self) -> int:
        """The number of terms that are not collinear."""
        return round(float(np.trace(self.inverse_information @ self.information)))

    def _blocks(self) -> Iterator[tuple[slice, Matrix]]:
        """P of all item units, for some user units at a time.

        1/P - 1 is a product of exponentials of the row and the column, so that there is no
        exponential for each cell unless users and items interact.
        """
        size = max(1, BLOCK_CELLS // self.column.size)
        row_odds, column_odds = (
            np.exp(-np.clip(part, -MAX_LOGIT, MAX_LOGIT)) for part in (self.row, self.column)
        )
        for first in range(0, self.row.size, size):
            rows = slice(first, first + size)
            odds = np.multiply.outer(row_odds[rows], column_odds)
            if self.left.any():
                odds *= np.exp(-(self.left[rows] @ self.right.T))
            odds += 1.0
            yield rows, np.divide(1.0, odds, out=odds)
