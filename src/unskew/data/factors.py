"""The factors and offsets of a matrix factorisation, and the predictions they give."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from unskew.data.checks import float_array
from unskew.errors import BadPredictionError, UsageError
from unskew.settings import Flag, Instance, Number, describe, is_finite_number, require_name
from unskew.types import Floats, IntVector, Matrix, Scores, Vector

BLOCK_CELLS = 1 << 12
"""Pairs whose rows of factors fit into the cache of a core."""
S = TypeVar("S", bound=np.floating[Any])


@dataclass(frozen=True, eq=False)
class Factors:
    """F_ui = v_u . w_i + a_u + b_i + c.

    This is the only place where the formula is written. A ``Factors`` is also a scorer: called
    with user codes, it returns their scores of all items.

    Parameters
    ----------
    user_factors, item_factors
        v and w: one row for each user or item, as many columns on both sides. float32 stays
        float32; any other numbers become float64.
    user_offset, item_offset
        a and b: one number for each user or item; zeros by default.
    global_offset
        c.

    Examples
    --------
    >>> factors = Factors([[1.0], [2.0]], [[3.0], [5.0]], item_offset=[0.0, 0.5])
    >>> factors(np.array([1], np.int32))
    array([[ 6. , 10.5]])
    >>> factors.predict(np.array([0, 1]), np.array([1, 1]))
    array([ 5.5, 10.5])
    """

    user_factors: Floats
    item_factors: Floats
    user_offset: Floats = None  # type: ignore[assignment]  # zeros after __post_init__
    item_offset: Floats = None  # type: ignore[assignment]
    global_offset: float = 0.0

    def __post_init__(self) -> None:
        for name in ("user_factors", "item_factors"):
            factors = _as_floats(name, getattr(self, name))
            object.__setattr__(self, name, factors)
            if factors.ndim != 2:
                raise UsageError(
                    f"{name} has shape {factors.shape}; it must be a matrix with one row for "
                    f"each {name.partition('_')[0]}.",
                    parameter=name,
                )
        if self.user_factors.shape[1] != self.item_factors.shape[1]:
            raise UsageError(
                f"users have {self.user_factors.shape[1]} factors, but items have "
                f"{self.item_factors.shape[1]}.",
                remedy="User and item factors must have the same number of columns.",
            )
        if not is_finite_number(self.global_offset):
            raise UsageError(
                f"global_offset must be a finite number; got {self.global_offset!r}.",
                parameter="global_offset",
                value=self.global_offset,
            )
        # A NumPy number would turn predictions of float32 factors into float64.
        object.__setattr__(self, "global_offset", float(self.global_offset))
        for name, size in (("user_offset", self.n_users), ("item_offset", self.n_items)):
            offset = getattr(self, name)
            offset = np.zeros(size) if offset is None else _as_floats(name, offset)
            object.__setattr__(self, name, offset)
            if offset.shape != (size,):
                raise UsageError(
                    f"{name} has shape {offset.shape}; it must have shape ({size},): one number "
                    "for each row of factors.",
                    parameter=name,
                )

    @property
    def n_users(self) -> int:
        return len(self.user_factors)

    @property
    def n_items(self) -> int:
        return len(self.item_factors)

    @property
    def n_factors(self) -> int:
        return int(self.item_factors.shape[1])

    @property
    def arrays(self) -> tuple[Floats, Floats, Floats, Floats]:
        """v, w, a and b."""
        return self.user_factors, self.item_factors, self.user_offset, self.item_offset

    @property
    def user_side(self) -> tuple[Floats, Floats]:
        """v and a: the factors and the offsets of all users."""
        return self.user_factors, self.user_offset

    @property
    def item_side(self) -> tuple[Floats, Floats]:
        """w and b: the factors and the offsets of all items."""
        return self.item_factors, self.item_offset

    @property
    def dtype(self) -> np.dtype[np.floating[Any]]:
        """The dtype of scores: float64, or float32 if the factors of both sides are float32."""
        return np.result_type(self.user_factors, self.item_factors)

    def predict(
        self, user_codes: IntVector, item_codes: IntVector, *, fallback: float | None = None
    ) -> Vector:
        """F for each pair of codes. The code -1 is an unknown user or item: a row of zeros.

        ``fallback`` replaces c in pairs with an unknown user or item.
        """
        user_codes, item_codes = self._check_codes(user_codes, item_codes)
        Number(allow_none=True, allow_infinity=True)("fallback", fallback)
        values = np.empty(user_codes.size)
        for first in range(0, user_codes.size, BLOCK_CELLS):
            block = slice(first, first + BLOCK_CELLS)
            values[block] = self._predict_block(user_codes[block], item_codes[block], fallback)
        return values

    def _predict_block(self, user: IntVector, item: IntVector, fallback: float | None) -> Floats:
        product: Floats = np.einsum(
            "kd,kd->k", take_rows(self.user_factors, user), take_rows(self.item_factors, item)
        )
        constant: float | Vector = self.global_offset
        if fallback is not None and fallback != constant:
            constant = np.where((user >= 0) & (item >= 0), constant, fallback)
        offsets = take_rows(self.user_offset, user) + take_rows(self.item_offset, item)
        return offsets + (product + constant)

    def __call__(self, users: IntVector, /, *, out: Scores | None = None) -> Scores:
        """Scores of all items, one row for each of ``users`` (codes), as one matrix product."""
        if users.size and not 0 <= users.min() <= users.max() < self.n_users:
            code = users.min() if users.min() < 0 else users.max()
            raise BadPredictionError(
                f"user code {code} has no factors; the last code is {self.n_users - 1}.",
                value=int(code),
                remedy="Fit the factors on a log with the same users, or drop the other users.",
            )
        return np.matmul(self._user_rows(users), self._item_columns, out=out)

    def as_product(self) -> tuple[Floats, Floats]:
        """Two matrices whose product is F for all cells: ``[v, a + c, 1]`` and ``[w, 1, b]'``.

        Without any offset they are v and w'. Both have the dtype of the scores.
        """
        return self._user_rows(slice(None)), self._item_columns

    def as_float64_rows(self) -> tuple[Matrix, Matrix]:
        """``[v, a, 1]`` of all users and ``[w, 1, b + c]`` of all items, in float64."""
        users, items = np.ones(self.n_users), np.ones(self.n_items)
        item_offset = self.item_offset.astype(np.float64) + self.global_offset
        return (
            np.column_stack([self.user_factors, self.user_offset, users]),
            np.column_stack([self.item_factors, items, item_offset]),
        )

    def take(self, user_codes: IntVector, item_codes: IntVector) -> Factors:
        """The factors of these users and items, in this order; zeros for the code -1."""
        user_codes, item_codes = self._check_codes(user_codes, item_codes, is_paired=False)
        return Factors(
            take_rows(self.user_factors, user_codes),
            take_rows(self.item_factors, item_codes),
            take_rows(self.user_offset, user_codes),
            take_rows(self.item_offset, item_codes),
            self.global_offset,
        )

    def astype(self, dtype: npt.DTypeLike) -> Factors:
        """The same numbers in another precision."""
        name = dtype if isinstance(dtype, str) else getattr(dtype, "__name__", str(dtype))
        require_name("dtype", name, ("float32", "float64"))
        return Factors(
            self.user_factors.astype(dtype, copy=False),
            self.item_factors.astype(dtype, copy=False),
            self.user_offset.astype(dtype, copy=False),
            self.item_offset.astype(dtype, copy=False),
            self.global_offset,
        )

    def without_offsets(self, global_offset: float = 0.0) -> Factors:
        """The same factors with user and item offsets of zero."""
        Number()("global_offset", global_offset)
        zeros = np.zeros_like(self.user_offset), np.zeros_like(self.item_offset)
        return replace(
            self, user_offset=zeros[0], item_offset=zeros[1], global_offset=global_offset
        )

    def plus(self, other: Factors) -> Factors:
        """The factors whose predictions are the sums of both: their columns side by side."""
        Instance(Factors)("other", other)
        if (self.n_users, self.n_items) != (other.n_users, other.n_items):
            raise UsageError(
                f"`other` has factors of {other.n_users} users and {other.n_items} items, but "
                f"these are of {self.n_users} and {self.n_items}.",
                parameter="other",
            )
        return Factors(
            np.hstack([self.user_factors, other.user_factors]),
            np.hstack([self.item_factors, other.item_factors]),
            self.user_offset + other.user_offset,
            self.item_offset + other.item_offset,
            self.global_offset + other.global_offset,
        )

    def extrapolate(self, previous: Factors, share: float) -> Factors:
        """The factors beyond these by ``share`` of the change since ``previous``."""
        Instance(Factors)("previous", previous)
        Number()("share", share)
        if share == 0:
            return self

        def go_on(new: Any, old: Any) -> Any:
            return new + new.dtype.type(share) * (new - old)

        return Factors(
            go_on(self.user_factors, previous.user_factors),
            go_on(self.item_factors, previous.item_factors),
            go_on(self.user_offset, previous.user_offset),
            go_on(self.item_offset, previous.item_offset),
            self.global_offset + share * (self.global_offset - previous.global_offset),
        )

    def squared_norm(self, *, with_offsets: bool) -> float:
        """||V||^2 + ||W||^2, plus ||a||^2 + ||b||^2 + c^2 if offsets are penalised."""
        Flag()("with_offsets", with_offsets)
        squares = [np.square(part).sum() for part in (self.user_factors, self.item_factors)]
        if with_offsets:
            squares += [
                np.square(self.user_offset).sum(),
                np.square(self.item_offset).sum(),
                self.global_offset**2,
            ]
        return float(sum(squares))

    def _check_codes(
        self, user_codes: object, item_codes: object, *, is_paired: bool = True
    ) -> tuple[IntVector, IntVector]:
        user = check_code_column("user_codes", user_codes, self.n_users)
        item = check_code_column("item_codes", item_codes, self.n_items)
        if is_paired and user.size != item.size:
            raise UsageError(
                f"there are {user.size} `user_codes`, but {item.size} `item_codes`.",
                parameter="item_codes",
                remedy="Pass one of each for every pair.",
            )
        return user, item

    @cached_property
    def _has_offsets(self) -> bool:
        return bool(self.global_offset or self.user_offset.any() or self.item_offset.any())

    def _user_rows(self, users: IntVector | slice) -> Scores:
        rows = self.user_factors[users]
        if self._has_offsets:
            offset = self.user_offset[users] + self.global_offset
            rows = np.column_stack([rows, offset, np.ones(len(rows))])
        return rows.astype(self.dtype, copy=False)

    @cached_property
    def _item_columns(self) -> Scores:
        if not self._has_offsets:
            return np.ascontiguousarray(self.item_factors.T, self.dtype)
        columns = np.vstack([self.item_factors.T, np.ones(self.n_items), self.item_offset])
        return columns.astype(self.dtype)


def check_code_column(name: str, codes: object, size: int) -> IntVector:
    """Codes of rows: whole numbers from -1 (unknown) to ``size - 1``."""
    array = codes if isinstance(codes, np.ndarray) else None
    if array is None or array.ndim != 1 or array.dtype.kind not in "iu":
        raise UsageError(
            f"`{name}` must be an array of whole numbers; got {describe(codes)}.", parameter=name
        )
    if array.size and not -1 <= array.min() <= array.max() < size:
        raise UsageError(
            f"`{name}` must lie between -1 and {size - 1}; got {array.min()} to {array.max()}.",
            parameter=name,
        )
    return array


def take_rows(rows: npt.NDArray[S], codes: IntVector) -> npt.NDArray[S]:
    """``rows[codes]``, with zeros where a code is -1. There may be no rows at all."""
    is_known = codes >= 0
    if is_known.all():
        return rows[codes]
    taken = np.zeros((codes.size, *rows.shape[1:]), rows.dtype)
    taken[is_known] = rows[codes[is_known]]
    return taken


def _as_floats(name: str, values: npt.ArrayLike) -> Floats:
    if isinstance(values, np.ndarray) and values.dtype in (np.float32, np.float64):
        return values
    return float_array(values, name)
