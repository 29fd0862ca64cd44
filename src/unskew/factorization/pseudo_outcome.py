"""A value for every cell of the matrix: a product of factors everywhere, corrected where the log has a rating."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from unskew.data.ratings import Ratings
from unskew.factorization.objective import SortedCells
from unskew.factorization.parameters import Parameters
from unskew.types import Matrix, Vector

BLOCK_CELLS = 1 << 18


@dataclass(frozen=True, slots=True, eq=False)
class PseudoOutcome:
    """T_ui = G_ui + S_ui for all U I cells: G of low rank, S on the log alone; no matrix of them is ever built.

    Doubly robust learning has S = h (Y - G); a weighted click, and no imputation, is S = Y / P with G = 0.
    """

    by_user: SortedCells
    """S, in the place of ratings."""
    by_item: SortedCells
    user_lines: Matrix
    """``[v, a, 1]`` of G, or no columns at all."""
    item_lines: Matrix
    """``[w, 1, b + c]`` of G: the product of the two is G."""
    user_totals: Vector
    """The sum of each user's S."""
    sum_of_squares: float
    """Of T, over all cells."""

    @classmethod
    def of(
        cls,
        log: Ratings,
        correction: Vector,
        *,
        imputed: Parameters | None = None,
        dtype: npt.DTypeLike = "float64",
    ) -> PseudoOutcome:
        """``correction`` is S for each cell of ``log``, ``imputed`` is G; ratings of the log are not looked at."""
        users, items = (
            (np.zeros((n, 0)) for n in (log.n_users, log.n_items))
            if imputed is None
            else lines_of(imputed)
        )
        alike = np.ones(len(log))
        return cls(
            SortedCells.of(
                log.user, log.item, correction, alike, shape=(log.n_users, log.n_items), dtype=dtype
            ),
            SortedCells.of(
                log.item, log.user, correction, alike, shape=(log.n_items, log.n_users), dtype=dtype
            ),
            users,
            items,
            np.bincount(log.user, weights=correction, minlength=log.n_users).astype(np.float64),
            sum_of_products(users, items, users, items)
            + _added_squares(log, correction, users, items),
        )

    @property
    def n_cells(self) -> int:
        """U * I."""
        return self.by_user.n_rows * self.by_item.n_rows


def lines_of(parameters: Parameters) -> tuple[Matrix, Matrix]:
    """``[v, a, 1]`` of users and ``[w, 1, b + c]`` of items, in float64: offsets are factors whose partner is constant."""
    found = parameters
    user_ones, item_ones = (
        np.ones(len(factors)) for factors in (found.user_factors, found.item_factors)
    )
    item_offset = found.item_offset.astype(np.float64) + found.constant
    return (
        np.column_stack([found.user_factors, found.user_offset, user_ones]),
        np.column_stack([found.item_factors, item_ones, item_offset]),
    )


def sum_of_products(
    users: Matrix, items: Matrix, other_users: Matrix, other_items: Matrix
) -> float:
    """The sum over all cells of F_ui G_ui, each a product of lines, from Gram matrices: sum (L' L_G) * (R' R_G)."""
    return float(np.sum((users.T @ other_users) * (items.T @ other_items)))


def _added_squares(log: Ratings, correction: Vector, users: Matrix, items: Matrix) -> float:
    """The sum over the log of (G + S)^2 - G^2, in blocks."""
    total = 0.0
    for first in range(0, len(log), BLOCK_CELLS):
        cells = slice(first, first + BLOCK_CELLS)
        imputed = np.einsum("kd,kd->k", users[log.user[cells]], items[log.item[cells]])
        total += float(correction[cells] @ (correction[cells] + 2 * imputed))
    return total
