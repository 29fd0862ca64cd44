"""Names for the kinds of arrays that travel between packages."""

from __future__ import annotations

from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

Vector: TypeAlias = npt.NDArray[np.float64]
Matrix: TypeAlias = npt.NDArray[np.float64]
Floats: TypeAlias = npt.NDArray[np.floating]
Singles: TypeAlias = npt.NDArray[np.float32]
"""Numbers of float32 or float64."""
IntVector: TypeAlias = npt.NDArray[np.int32]
IndexVector: TypeAlias = npt.NDArray[np.integer[Any]]
"""Rows of a log, from 0 on; int64 where int32 is too short."""
BoolVector: TypeAlias = npt.NDArray[np.bool_]
RandomState: TypeAlias = int | np.random.Generator | None
"""A seed, a generator, or None for a seed that differs each time."""
Scores: TypeAlias = npt.NDArray[np.floating]
"""A block of scores: one row for each user, one column for each item; float32 or float64."""
RowStarts: TypeAlias = npt.NDArray[np.int64]
"""Where the entries of each row start in a flat array: row r has ``starts[r]:starts[r + 1]``."""
SeenItems: TypeAlias = tuple[RowStarts, IntVector]
"""The items of each user in a log: where those of a user start, and the item codes."""
ArrayShapes: TypeAlias = dict[str, tuple[Any, tuple[int, ...]]]
"""Fitted arrays by name, each with the shape it must have."""


def row_type(n_rows: int) -> type[np.signedinteger[Any]]:
    """The shortest type that holds the numbers of so many rows.

    >>> row_type(2**31).__name__, row_type(2**31 + 1).__name__
    ('int32', 'int64')
    """
    return np.int32 if n_rows <= 1 << 31 else np.int64


class Scorer(Protocol):
    """Scores all items for a block of users; a larger score is better."""

    def __call__(self, users: IntVector, /) -> Scores:
        """One row for each user code, one column for each item, in the order of the log's items."""
        ...


class UserFunction(Protocol):
    """A metric that is no sum over cells: a number for each user that depends on all weights."""

    @property
    def has_bias(self) -> bool:
        """Whether it is not linear in each weight, so that weights do not make it unbiased."""
        ...

    def measure(self, weight: Vector, p_unobserved: Vector | None = None, /) -> Matrix:
        """Users x 2, given the weight of each logged cell: numerator and base of each user.

        The metric is the sum of all numerators over the sum of all bases. A base of 0 leaves the
        user out. With ``p_unobserved``, 1 - P of each cell, the first-order bias is subtracted.
        """
        ...

    def differentiate(self, weight: Vector, /) -> Matrix:
        """Logged cells x 2: derivatives of the numerator and base of its user by its weight."""
        ...

    def take(self, rows: IndexVector, /) -> UserFunction:
        """The same with some of the logged cells."""
        ...
