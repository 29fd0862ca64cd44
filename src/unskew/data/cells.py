"""Cells by number, u I + i: how the observed ones are told from all others without listing those."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from unskew.data.ratings import Ratings
from unskew.types import BoolVector, IntVector

Cells: TypeAlias = npt.NDArray[np.int64]


def cell_numbers(user: IntVector, item: IntVector, n_items: int) -> Cells:
    """``u * n_items + i`` of each pair of codes."""
    return user.astype(np.int64) * n_items + item


def observed_cells(log: Ratings) -> Cells:
    """The numbers of a log's cells, rising."""
    cells = cell_numbers(log.user, log.item, log.n_items)
    return cells if (cells[1:] > cells[:-1]).all() else np.sort(cells)


def are_among(cells: Cells, rising: Cells) -> BoolVector:
    """Which of ``cells`` are in ``rising``, which is sorted and not empty."""
    place = np.minimum(np.searchsorted(rising, cells), rising.size - 1)
    return np.asarray(rising[place] == cells)
