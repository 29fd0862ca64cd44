"""Names for the shapes of arrays that travel between rooms."""

from __future__ import annotations

from typing import Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

Vector: TypeAlias = npt.NDArray[np.float64]
Matrix: TypeAlias = npt.NDArray[np.float64]
IntVector: TypeAlias = npt.NDArray[np.int32]
BoolVector: TypeAlias = npt.NDArray[np.bool_]
Scores: TypeAlias = npt.NDArray[np.floating]
"""A block of scores, one row a user and one column an item; float32 or float64."""


class Scorer(Protocol):
    """Scores a block of users against all items.

    Given user codes, returns one row a user and one column an item, in the order of the log's ``users`` and ``items``.
    Larger is better.
    """

    def __call__(self, users: IntVector, /) -> Scores:
        """Scores of the given users for every item."""
        ...
