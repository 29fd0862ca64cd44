"""Input of the ordinal kernels: a row of numbers for each user and item, and the log.

Factors and exposure are padded with zeros to a multiple of 8 columns, which the kernels read as
vectors. This module does not import the compiler.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from unskew.types import IntVector, Matrix, RowStarts, Vector

COLUMNS = 8


def pad_columns(factors: Matrix) -> Matrix:
    """A copy that is padded with columns of zeros to a multiple of ``COLUMNS``."""
    n_rows, n_columns = factors.shape
    padded = np.zeros((n_rows, -(-n_columns // COLUMNS) * COLUMNS))
    padded[:, :n_columns] = factors
    return padded


class UserRows(NamedTuple):
    """One row for each user. A gradient by these numbers has the same form."""

    factors: Matrix
    offset: Vector
    noise: Vector
    """Logarithm of the scale of the noise."""
    activity: Vector
    exposure: Matrix
    effect: Matrix
    """Users x levels, including the effect that all users share."""


class ItemRows(NamedTuple):
    """One row for each item. A gradient by these numbers has the same form."""

    factors: Matrix
    offset: Vector
    noise: Vector
    """Logarithm of the scale of the noise."""
    popularity: Vector
    exposure: Matrix
    effect: Matrix
    cuts: Matrix
    """Cut points, items x (levels - 1), in ascending order."""


class RowExponentials(NamedTuple):
    """exp(-noise) and exp(effect), computed once for each row instead of for each cell."""

    user_precision: Vector
    item_precision: Vector
    user_odds: Matrix
    item_odds: Matrix

    @classmethod
    def of(cls, users: UserRows, items: ItemRows) -> RowExponentials:
        return cls(
            np.exp(-users.noise), np.exp(-items.noise), np.exp(users.effect), np.exp(items.effect)
        )


class LevelsByUser(NamedTuple):
    """The log sorted by user and item: the cells of user u are ``starts[u]`` to ``starts[u + 1]``.

    ``level`` is the index of the rating among the rating levels.
    """

    starts: RowStarts
    item: IntVector
    level: IntVector
