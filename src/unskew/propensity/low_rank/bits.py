"""The observed bits: which of all cells the log has seen, as rows of item codes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from unskew.data.ratings import Ratings
from unskew.data.universe import Universe
from unskew.errors import UniverseError
from unskew.types import IntVector, Matrix, Vector

BLOCK_PAIRS = 1 << 15


@dataclass(frozen=True, slots=True, eq=False)
class Bits:
    """O, sorted by user and item, so that the order of the log never shows in a fit.

    Users that the log does not list have seen nothing and are all alike: one more row stands for all of them, and one more
    column for all items that are not listed.
    """

    user: IntVector
    item: IntVector
    starts: npt.NDArray[np.int64]
    """Where each row begins in ``item``, and the end of the last."""
    user_count: Vector
    """How many users each row stands for: 1, but for the last where the universe is larger than the vocabulary."""
    item_count: Vector

    @classmethod
    def of(cls, log: Ratings, universe: Universe) -> Bits:
        """The bits of a log. One that has seen every cell is refused: there is nothing to estimate."""
        if len(log) >= universe.n_cells:
            raise UniverseError(
                f"every one of the {universe.n_cells:,} cells ({universe}) was observed, so that P = 1 and there is nothing to "
                "estimate. If more users or items could have been logged, list them or name a larger universe; if not, "
                "UniformPropensity gives the 1."
            )
        order = np.lexsort((log.item, log.user))
        user_count = _counts(log.n_users, universe.n_users)
        starts = np.searchsorted(log.user[order], np.arange(user_count.size + 1)).astype(np.int64)
        return cls(
            log.user[order],
            log.item[order],
            starts,
            user_count,
            _counts(log.n_items, universe.n_items),
        )

    @property
    def n_cells(self) -> float:
        """U * I."""
        return float(self.user_count.sum() * self.item_count.sum())

    @property
    def density(self) -> float:
        """The observed share of all cells, n / (U I)."""
        return self.item.size / self.n_cells

    def row_blocks(self, n_cells: int) -> list[slice]:
        """Rows in blocks of about ``n_cells`` cells. Their number depends on the sizes alone."""
        step = max(1, n_cells // self.item_count.size)
        return [slice(first, first + step) for first in range(0, self.user_count.size, step)]


def pair_products(left: Matrix, right: Matrix, user: IntVector, item: IntVector) -> Vector:
    """left_u . right_i of each pair, in blocks, so that no array of pairs x factors is larger than one."""
    products = np.empty(user.size)
    for first in range(0, user.size, BLOCK_PAIRS):
        piece = slice(first, first + BLOCK_PAIRS)
        products[piece] = np.einsum("pk,pk->p", left[user[piece]], right[item[piece]])
    return products


def _counts(n_listed: int, n_all: int) -> Vector:
    return np.append(np.ones(n_listed), n_all - n_listed) if n_all > n_listed else np.ones(n_listed)
