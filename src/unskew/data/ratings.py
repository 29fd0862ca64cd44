"""Ratings: the observed cells of a user x item matrix, and nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from numbers import Real
from typing import Any, Literal, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from unskew.data.checks import float_array, row_numbers
from unskew.data.columns import DEFAULTS, find_column
from unskew.data.frames import id_column, make_frame, number_column, open_frame
from unskew.data.ids import Ids, as_ids, check_id_list, encode, encode_with, format_id, missing_ids
from unskew.data.universe import Universe, UniverseLike, resolve_universe
from unskew.errors import (
    BadRatingError,
    DataError,
    DuplicateCellError,
    EmptyLogError,
    UniverseError,
    UnknownNameError,
    UsageError,
)
from unskew.tables import count_noun
from unskew.types import BoolVector, IntVector, Vector

Duplicates: TypeAlias = Literal["raise", "mean", "last"]


class SparseLike(Protocol):
    """Any scipy sparse array or matrix."""

    def tocoo(self) -> Any:
        """The same matrix as coordinates."""
        ...


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Ratings:
    """Observed cells: int32 codes of users and items, their ratings, and the vocabularies that the codes index.

    Build one with :meth:`from_frame`, :meth:`from_arrays`, :meth:`from_dense` or :meth:`from_sparse`; rows keep their order.
    Vocabularies that are not listed are sorted where the ids compare with one another, and in order of appearance otherwise.
    Matrices of predictions or propensities, and the rows and columns of scorers, are in the order of ``users`` and ``items``.

    >>> log = Ratings.from_arrays(["ann", "bob", "ann"], ["up", "up", "heat"], [5, 3, 1])
    >>> log
    Ratings(3 ratings by 2 users on 2 items, 1 to 5, mean 3; density 0.75)
    >>> log.users[log.user].tolist()
    ['ann', 'bob', 'ann']
    """

    user: IntVector
    item: IntVector
    rating: Vector
    users: Ids
    items: Ids
    universe: Universe | None = None
    """All users and items that could have been logged, where that is known."""
    columns: Mapping[str, str] = field(
        default_factory=lambda: {role: DEFAULTS[role] for role in ("user", "item", "rating")}
    )
    """Which column of the caller's frame was taken for which role."""
    backend: str | None = None
    """The data frame library that :meth:`to_frame` answers in."""

    def __post_init__(self) -> None:
        if self.rating.size == 0:
            raise EmptyLogError(
                "the log has no ratings. Check the filter or the file it came from."
            )
        bad = ~np.isfinite(self.rating)
        if bad.any():
            row = int(bad.argmax())
            raise BadRatingError(
                f"{int(bad.sum())} of {bad.size} ratings are missing or not finite; "
                f"the first is {self.rating[row]} at {self.name_cell(row)}. "
                "Drop those rows: a cell without a rating is an unobserved cell."
            )
        for name in ("user", "item", "rating", "users", "items"):
            column = getattr(
                self, name
            ).view()  # a view, so that the caller's own array stays writeable
            column.setflags(write=False)
            object.__setattr__(self, name, column)

    @classmethod
    def from_frame(
        cls,
        frame: object,
        *,
        user: str | None = None,
        item: str | None = None,
        rating: str | None = None,
        users: npt.ArrayLike | None = None,
        items: npt.ArrayLike | None = None,
        universe: UniverseLike = None,
        duplicates: Duplicates = "raise",
    ) -> Ratings:
        """From any eager data frame: pandas, polars, pyarrow and whatever else narwhals reads.

        Parameters
        ----------
        frame
            One rating a row.
        user, item, rating
            Names of the columns. Without them the columns are ``user_id``, ``item_id`` and ``rating``, else the one that is
            spelled in a known way, capitals and underscores aside: user, userId, uid, customer_id, reviewerID, ...; item,
            itemId, movieId, song_id, product_id, asin, isbn, ...; stars, ratings, overall, ... (``unskew.data.columns`` lists
            them). Where several could be meant, an error asks which.
        users, items
            All ids there are, the never-rated ones included, in the order that matrices and scorers are to have; without them
            the log's own ids, sorted where they compare with one another and in order of appearance otherwise.
        universe
            (n_users, n_items) or ``"log"``; see :func:`unskew.evaluate` for when it is needed.
        duplicates
            What to do where a (user, item) repeats: ``"raise"`` an error; ``"mean"`` keeps one row where the cell first stood,
            with the mean rating; ``"last"`` keeps the last row where it stands. The other rows keep their order, but are fewer
            than the frame's, and so must be propensities and predictions that come as one column.
        """
        table = open_frame(frame)
        given = {"user": user, "item": item, "rating": rating}
        columns = {role: find_column(role, name, table.columns) for role, name in given.items()}
        log = cls.from_arrays(
            id_column(table, columns["user"]),
            id_column(table, columns["item"]),
            number_column(table, columns["rating"]),
            users=users,
            items=items,
            universe=universe,
            duplicates=duplicates,
        )
        return replace(log, columns=columns, backend=table.implementation.value)

    @classmethod
    def from_arrays(
        cls,
        user: npt.ArrayLike,
        item: npt.ArrayLike,
        rating: npt.ArrayLike,
        *,
        users: npt.ArrayLike | None = None,
        items: npt.ArrayLike | None = None,
        universe: UniverseLike = None,
        duplicates: Duplicates = "raise",
    ) -> Ratings:
        """From three aligned columns: user ids, item ids, ratings. The rest is as in :meth:`from_frame`."""
        ratings = float_array(rating, "ratings", BadRatingError).copy()
        user_ids, item_ids = as_ids(user), as_ids(item)
        _require_columns(user_ids, item_ids, ratings)
        if ratings.size == 0:
            raise EmptyLogError(
                "the log has no ratings. Check the filter or the file it came from."
            )
        user_codes, user_vocabulary = _codes(user_ids, users, kind="user")
        item_codes, item_vocabulary = _codes(item_ids, items, kind="item")
        log = _settle_duplicates(
            cls(user_codes, item_codes, ratings, user_vocabulary, item_vocabulary), duplicates
        )
        both_listed = users is not None and items is not None
        return replace(
            log,
            universe=resolve_universe(log, "log" if universe is None and both_listed else universe),
        )

    @classmethod
    def from_dense(
        cls,
        matrix: npt.ArrayLike,
        *,
        missing: float = 0,
        users: npt.ArrayLike | None = None,
        items: npt.ArrayLike | None = None,
    ) -> Ratings:
        """From a users x items matrix in which ``missing`` (may be NaN) marks unobserved cells; its shape is the universe."""
        dense = float_array(matrix, "the ratings of a matrix", BadRatingError)
        _require_matrix(dense.shape)
        if not isinstance(missing, Real):
            raise UsageError(
                f"missing must be the number that marks unobserved cells, such as 0 or np.nan; got {missing!r}."
            )
        holes = np.isnan(dense)
        if holes.any() and not np.isnan(missing):
            raise BadRatingError(
                f"{int(holes.sum())} cells of the matrix are NaN. If that marks unobserved cells, pass missing=np.nan."
            )
        seen = ~holes if np.isnan(missing) else dense != missing
        rows, columns = np.nonzero(seen)
        return cls.from_codes(
            rows, columns, dense[rows, columns], shape=dense.shape, users=users, items=items
        )

    @classmethod
    def from_sparse(
        cls,
        matrix: SparseLike,
        *,
        users: npt.ArrayLike | None = None,
        items: npt.ArrayLike | None = None,
        duplicates: Duplicates = "raise",
    ) -> Ratings:
        """From a scipy sparse users x items matrix: every stored entry is a rating, explicit zeros included."""
        if not hasattr(matrix, "tocoo"):
            raise DataError(
                f"expected a scipy sparse matrix, got {type(matrix).__module__}.{type(matrix).__name__}. "
                "A matrix that is not sparse goes to Ratings.from_dense."
            )
        entries = matrix.tocoo()
        _require_matrix(entries.shape)
        return cls.from_codes(
            entries.row,
            entries.col,
            entries.data,
            shape=entries.shape,
            users=users,
            items=items,
            duplicates=duplicates,
        )

    @classmethod
    def from_codes(
        cls,
        user: npt.ArrayLike,
        item: npt.ArrayLike,
        rating: npt.ArrayLike,
        *,
        shape: tuple[int, ...],
        users: npt.ArrayLike | None = None,
        items: npt.ArrayLike | None = None,
        duplicates: Duplicates = "raise",
    ) -> Ratings:
        """From row and column numbers of a matrix of the given shape, which is the universe."""
        _require_matrix(shape)
        universe = Universe(*shape)
        ratings = float_array(rating, "ratings", BadRatingError).copy()
        user_codes = _bounded(user, universe.n_users, kind="user")
        item_codes = _bounded(item, universe.n_items, kind="item")
        _require_columns(user_codes, item_codes, ratings)
        user_vocabulary = _vocabulary(universe.n_users, users, kind="user")
        item_vocabulary = _vocabulary(universe.n_items, items, kind="item")
        log = cls(user_codes, item_codes, ratings, user_vocabulary, item_vocabulary, universe)
        return _settle_duplicates(log, duplicates)

    @property
    def n_users(self) -> int:
        """Users in the vocabulary, those without a rating included."""
        return len(self.users)

    @property
    def n_items(self) -> int:
        """Items in the vocabulary, those without a rating included."""
        return len(self.items)

    @property
    def n_cells(self) -> int:
        """``n_users * n_items``: observed and unobserved cells of the vocabulary."""
        return self.n_users * self.n_items

    @property
    def density(self) -> float:
        """The observed share of all cells: of the universe where it is known, else of the vocabulary."""
        return len(self) / (self.n_cells if self.universe is None else self.universe.n_cells)

    def __len__(self) -> int:
        return self.rating.size

    def __repr__(self) -> str:
        low, high, mean = self.rating.min(), self.rating.max(), self.rating.mean()
        renamed = [
            f"{role}={name!r}" for role, name in self.columns.items() if name != DEFAULTS[role]
        ]
        spelled = f"; columns {', '.join(renamed)}" if renamed else ""
        return (
            f"Ratings({count_noun(len(self), 'rating')} by {count_noun(self.n_users, 'user')} on {count_noun(self.n_items, 'item')}, "
            f"{low:g} to {high:g}, mean {mean:.4g}; density {self.density:.3g}{spelled})"
        )

    def take(self, rows: npt.NDArray[np.integer] | BoolVector) -> Ratings:
        """The log of the given rows (indices, each once, or a mask), with the same vocabularies and universe."""
        kept = row_numbers(rows, len(self))
        return replace(self, user=self.user[kept], item=self.item[kept], rating=self.rating[kept])

    def name_cell(self, row: int) -> str:
        """``row 3 (user 'ann', item 7)``: how errors point at a cell."""
        return f"row {row} (user {format_id(self.users[self.user[row]])}, item {format_id(self.items[self.item[row]])})"

    def to_frame(self, backend: str | None = None) -> Any:
        """The log as a data frame of the caller's own library (or the named one), with the caller's column names."""
        values = {
            "user": self.users[self.user],
            "item": self.items[self.item],
            "rating": self.rating,
        }
        return make_frame(
            {self.columns[role]: column for role, column in values.items()}, backend or self.backend
        )


def _require_columns(user: Ids, item: Ids, rating: Vector) -> None:
    if not user.shape == item.shape == rating.shape:
        raise BadRatingError(
            f"users, items and ratings must be columns of one length; got {user.shape}, {item.shape} and {rating.shape}."
        )


def _require_matrix(shape: tuple[int, ...]) -> None:
    if np.shape(shape) != (2,):
        raise BadRatingError(
            f"a rating matrix has two dimensions, users and items; got shape {shape}."
        )


def _codes(ids: Ids, listed: npt.ArrayLike | None, *, kind: str) -> tuple[IntVector, Ids]:
    if listed is not None:
        vocabulary = check_id_list(listed, kind=kind)
        return encode_with(ids, vocabulary, kind=kind), vocabulary
    codes, vocabulary = encode(ids)
    missing = missing_ids(vocabulary)[codes]
    if missing.any():
        raise BadRatingError(
            f"{int(missing.sum())} of {len(ids)} {kind} ids are missing; the first is at row {int(missing.argmax())}. "
            "Drop those rows first."
        )
    return codes, vocabulary


def _bounded(codes: npt.ArrayLike, size: int, *, kind: str) -> IntVector:
    """Codes as int32, each a whole number in 0 to size - 1."""
    values = np.asarray(codes)
    if values.ndim != 1 or values.dtype.kind not in "iuf":
        raise BadRatingError(
            f"{kind} codes must be one column of whole numbers; got {values.dtype} of shape {values.shape}. "
            "Ids of other kinds go to Ratings.from_arrays."
        )
    good = (values >= 0) & (values < size) & (values == np.floor(values))
    if not good.all():
        row = int(good.argmin())
        raise UniverseError(
            f"{kind} {values[row]} at row {row} is no place in the matrix, whose {kind}s are the whole numbers 0 to {size - 1}."
        )
    return values.astype(np.int32)


def _vocabulary(size: int, listed: npt.ArrayLike | None, *, kind: str) -> Ids:
    if listed is None:
        return np.arange(size)
    ids = check_id_list(listed, kind=kind)
    if len(ids) != size:
        raise BadRatingError(f"the matrix has {size} {kind}s, but {kind}s=... lists {len(ids)}.")
    return ids


def _settle_duplicates(log: Ratings, rule: Duplicates) -> Ratings:
    if rule not in ("raise", "mean", "last"):
        raise UnknownNameError("duplicates rule", rule, ("raise", "mean", "last"))
    cell = log.user.astype(np.int64) * log.n_items + log.item
    in_order = cell if (cell[1:] > cell[:-1]).all() else np.sort(cell)
    n_repeats = int((in_order[1:] == in_order[:-1]).sum())
    if n_repeats == 0:
        return log
    if rule == "last":
        _, from_the_end = np.unique(cell[::-1], return_index=True)
        return log.take(np.sort(cell.size - 1 - from_the_end))
    _, first, group = np.unique(cell, return_index=True, return_inverse=True)
    if rule == "mean":
        means = np.bincount(group, weights=log.rating) / np.bincount(group)
        rows = np.argsort(first)
        return replace(log.take(first[rows]), rating=means[rows])
    again = int((first[group] != np.arange(cell.size)).argmax())
    raise DuplicateCellError(
        f"{n_repeats} rows repeat a (user, item) that is already there; the first is {log.name_cell(again)}, "
        f"seen before at row {int(first[group[again]])}. Choose duplicates='mean' or duplicates='last', or aggregate first."
    )


def require_log(log: object) -> None:
    """Refuse what is no log: an array or a frame has to become one first."""
    if not isinstance(log, Ratings):
        raise UsageError(
            f"the log must be unskew.Ratings, not {type(log).__name__}: build one with Ratings.from_frame(frame)."
        )
