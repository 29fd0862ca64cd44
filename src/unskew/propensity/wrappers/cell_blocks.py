"""All cells of a universe, in blocks, or a uniform sample of them where they are too many."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from unskew.types import IntVector

BLOCK_CELLS = 1 << 20


@dataclass(frozen=True, slots=True, eq=False)
class CellBlock:
    """Some cells by their codes, and how many cells of the universe each stands for."""

    user: IntVector
    item: IntVector
    weight: float


def cell_blocks(
    n_users: int, n_items: int, *, max_cells: int, random_state: int
) -> Iterator[CellBlock]:
    """Every cell once, if there are at most ``max_cells``; else that many, drawn uniformly with replacement."""
    n_cells = n_users * n_items
    return (
        _all_cells(n_users, n_items)
        if n_cells <= max_cells
        else _drawn_cells(n_cells, n_items, max_cells, random_state)
    )


def _all_cells(n_users: int, n_items: int) -> Iterator[CellBlock]:
    n_rows = max(1, BLOCK_CELLS // n_items)
    item = np.arange(n_items, dtype=np.int32)
    for first in range(0, n_users, n_rows):
        user = np.arange(first, min(first + n_rows, n_users), dtype=np.int32)
        yield CellBlock(np.repeat(user, n_items), np.tile(item, user.size), 1.0)


def _drawn_cells(
    n_cells: int, n_items: int, n_draws: int, random_state: int
) -> Iterator[CellBlock]:
    rng = np.random.default_rng(random_state)
    for first in range(0, n_draws, BLOCK_CELLS):
        cell = rng.integers(0, n_cells, min(BLOCK_CELLS, n_draws - first))
        user, item = np.divmod(cell, n_items)
        yield CellBlock(user.astype(np.int32), item.astype(np.int32), n_cells / n_draws)
