"""An approximate Hessian of the all-cells log-likelihood of a logistic model, solved exactly.

The Hessian is the sum over cells of w t t' with w = P (1 - P), where t has the terms of a cell.
Here w_ui is replaced by a_u b_i / sum a, where a and b are about the sums of w by user unit and by
item unit. Then no pass over the cells is needed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np

from unskew.types import IntVector, Matrix, Vector

LEAST_EIGENVALUE = 1e-8
"""Of the Schur complement in units of the covariates: offsets can replace covariates."""
JITTER = 1e-6
"""Added to the diagonal of offsets, as a share: without a penalty, those of users and items can
replace one another."""


@dataclass(frozen=True, slots=True, eq=False)
class SideTerms:
    """The terms of all user units, or of all item units."""

    design: Matrix
    n_crossed: int
    """How many of the first columns are multiplied by those of the other side."""
    has_offset: bool
    weight: Vector
    """a or b: the sum of P (1 - P) of each unit."""

    @property
    def with_one(self) -> Matrix:
        return np.column_stack([np.ones(len(self.design)), self.design])


@dataclass(frozen=True, slots=True, eq=False)
class ProductHessian:
    """The Hessian in the order intercept, covariates, their products, offsets of users and items.

    With the offsets' block K, which is a diagonal plus a matrix of rank two, and the border B of
    covariates, the rest is the Schur complement H - B' K^-1 B.
    """

    diagonal: Vector
    """The diagonal of K without its matrix of rank two."""
    factors: Matrix
    """U of K = diagonal + U M U'; no columns unless both sides have offsets."""
    core: Matrix
    """The inverse of M^-1 + U' diagonal^-1 U, for Woodbury's identity."""
    solved_border: Matrix
    """K^-1 times B, for every covariate."""
    inverse: Matrix
    """The inverse of the Schur complement."""

    @classmethod
    def of(cls, user: SideTerms, item: SideTerms, penalty: Vector) -> Self:
        """``penalty`` is added to the diagonal; it has an entry for each coefficient."""
        total, rows, columns = float(user.weight.sum()), *_columns(user, item)
        weights = user.weight, item.weight * (total / item.weight.sum())
        sides = (user, rows, weights[0]), (item, columns, weights[1])
        squares = [
            (side.with_one * weight[:, None]).T @ side.with_one / total for side, _, weight in sides
        ]
        by_rows, by_columns = squares[0][np.ix_(rows, rows)], squares[1][np.ix_(columns, columns)]
        block = total * by_rows * by_columns
        n_covariates = rows.size
        block += np.diag(penalty[:n_covariates])
        means = [square[0] for square in squares]
        borders = [
            weight[:, None] * side.with_one[:, chosen] * means[1 - k][sides[1 - k][1]]
            for k, (side, chosen, weight) in enumerate(sides)
            if side.has_offset
        ]
        offsets = [weight for side, _, weight in sides if side.has_offset]
        border = np.vstack([np.empty((0, n_covariates)), *borders])
        diagonal = np.concatenate([np.empty(0), *offsets]) * (1 + JITTER) + 1e-12
        diagonal += penalty[n_covariates:]
        factors: Matrix = np.empty((diagonal.size, 0))
        core: Matrix = np.empty((0, 0))
        if len(offsets) == 2:
            factors = np.zeros((diagonal.size, 2))
            factors[: weights[0].size, 0], factors[weights[0].size :, 1] = weights
            exchange = np.array([[0.0, total], [total, 0.0]])
            small = exchange + factors.T @ (factors / diagonal[:, None])
            core = np.linalg.inv(small).astype(np.float64)
        solved = _solve_offsets(diagonal, factors, core, border)
        return cls(diagonal, factors, core, solved, _invert(block - border.T @ solved, block))

    def solve(self, right: Vector) -> Vector:
        """The inverse of the Hessian times a vector."""
        n_covariates = len(self.inverse)
        of_covariates, of_offsets = right[:n_covariates], right[n_covariates:]
        top = self.inverse @ (of_covariates - self.solved_border.T @ of_offsets)
        offsets = _solve_offsets(self.diagonal, self.factors, self.core, of_offsets[:, None])[:, 0]
        return np.concatenate([top, offsets - self.solved_border @ top])


def _columns(user: SideTerms, item: SideTerms) -> tuple[IntVector, IntVector]:
    """For each covariate term, the columns of both sides' ``with_one`` whose product it is."""
    n_user, n_item = user.design.shape[1], item.design.shape[1]
    crossed = np.indices((user.n_crossed, item.n_crossed)).reshape(2, -1) + 1
    rows = [0, *range(1, n_user + 1), *[0] * n_item, *crossed[0]]
    columns = [0, *[0] * n_user, *range(1, n_item + 1), *crossed[1]]
    return np.array(rows, dtype=np.int32), np.array(columns, dtype=np.int32)


def _solve_offsets(diagonal: Vector, factors: Matrix, core: Matrix, right: Matrix) -> Matrix:
    """The inverse of K times a matrix, by Woodbury's identity."""
    solved: Matrix = right / diagonal[:, None]
    return solved - factors / diagonal[:, None] @ (core @ (factors.T @ solved))


def _invert(matrix: Matrix, block: Matrix) -> Matrix:
    """The inverse, positive definite also if ``matrix`` is singular."""
    unit = 1 / np.sqrt(np.diag(block) + 1e-300)
    values, axes = np.linalg.eigh(unit[:, None] * matrix * unit)
    scaled = unit[:, None] * axes
    inverse: Matrix = scaled / np.maximum(values, LEAST_EIGENVALUE) @ scaled.T
    return inverse
