"""Factors of a fitted matrix factorisation, as a scorer of blocks of users."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from unskew.data.checks import float_array
from unskew.errors import BadPredictionError, UsageError
from unskew.types import IntVector, Scores


@dataclass(frozen=True, slots=True, eq=False)
class Factors:
    """F_ui = v_u . w_i + a_u + b_i + c, for a block of users against all items, in the factors' own precision.

    >>> factors = Factors(np.array([[1.0], [2.0]]), np.array([[3.0], [5.0]]), item_offset=np.array([0.0, 0.5]))
    >>> factors(np.array([1], np.int32))
    array([[ 6. , 10.5]])
    """

    user_factors: Scores
    item_factors: Scores
    user_offset: Scores | None = None
    item_offset: Scores | None = None
    global_offset: float = 0.0
    _item_side: Scores = field(init=False, repr=False)
    """One column an item: w_i, and where there are offsets 1 and b_i below it."""

    def __post_init__(self) -> None:
        for name in ("user_factors", "item_factors", "user_offset", "item_offset"):
            given = getattr(self, name)
            object.__setattr__(self, name, None if given is None else _floats(name, given))
        for name, factors in (
            ("user_factors", self.user_factors),
            ("item_factors", self.item_factors),
        ):
            if factors.ndim != 2:
                raise UsageError(
                    f"{name} has shape {factors.shape}; it must be a matrix with one row for each."
                )
        if self.user_factors.shape[1] != self.item_factors.shape[1]:
            raise UsageError(
                f"users have {self.user_factors.shape[1]} factors and items {self.item_factors.shape[1]}; "
                "v_u . w_i needs as many on both sides."
            )
        for name, offset, size in (
            ("user_offset", self.user_offset, self.n_users),
            ("item_offset", self.item_offset, self.n_items),
        ):
            if offset is not None and offset.shape != (size,):
                raise UsageError(
                    f"{name} has shape {offset.shape}; it must have shape ({size},), one for each row of factors."
                )
        object.__setattr__(self, "_item_side", self._stack_items())

    @property
    def n_users(self) -> int:
        """Users with factors."""
        return len(self.user_factors)

    @property
    def n_items(self) -> int:
        """Items with factors."""
        return len(self.item_factors)

    @property
    def dtype(self) -> np.dtype[np.floating[Any]]:
        """Of the scores: float32, or float64 if one side is."""
        return np.result_type(self.user_factors, self.item_factors)

    def __call__(self, users: IntVector, /, *, out: Scores | None = None) -> Scores:
        """[v_u, a_u + c, 1] . [w_i, 1, b_i]: the offsets ride along in one matrix product, written to ``out`` where given."""
        if users.size and not 0 <= users.min() <= users.max() < self.n_users:
            raise BadPredictionError(
                f"user code {users.min() if users.min() < 0 else users.max()} has no factors, "
                f"which end at code {self.n_users - 1}. "
                "Fit the factors on a log with the same users, or leave the others out."
            )
        return np.matmul(self._user_side(users), self._item_side, out=out)

    def sides(self) -> tuple[Scores, Scores]:
        """[v_u, a_u + c, 1] of all users, and the transpose of [w_i, 1, b_i]: scores are their product."""
        return self._user_side(np.arange(self.n_users, dtype=np.int32)), self._item_side

    def _user_side(self, users: IntVector) -> Scores:
        user_side = self.user_factors[users]
        if self._has_offsets:
            user_side = np.column_stack(
                [user_side, self._user_constant(users), np.ones(users.size)]
            )
        return user_side.astype(self.dtype, copy=False)

    @property
    def _has_offsets(self) -> bool:
        return (
            self.user_offset is not None or self.item_offset is not None or self.global_offset != 0
        )

    def _user_constant(self, users: IntVector) -> Scores:
        """a_u + c."""
        offset = np.zeros(users.size) if self.user_offset is None else self.user_offset[users]
        return offset + self.global_offset

    def _stack_items(self) -> Scores:
        if not self._has_offsets:
            return np.ascontiguousarray(self.item_factors.T, self.dtype)
        offset = np.zeros(self.n_items) if self.item_offset is None else self.item_offset
        return np.vstack([self.item_factors.T, np.ones(self.n_items), offset]).astype(self.dtype)


def _floats(name: str, given: npt.ArrayLike) -> Scores:
    """float32 as it is, anything else as float64."""
    if isinstance(given, np.ndarray) and given.dtype == np.float32:
        return given
    return float_array(given, name)
