"""Ratings: the observed cells of a user x item matrix, and nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields
from numbers import Real
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias, cast

import numpy as np
import numpy.typing as npt

from unskew.data.cells import cell_numbers, describe_duplicates, find_duplicates, last_rows
from unskew.data.checks import float_array, require_rows, row_number, row_numbers
from unskew.data.columns import DEFAULTS, find_column
from unskew.data.frames import (
    check_matrix_order,
    check_row_order,
    check_same_order,
    id_column,
    index_ids,
    make_frame,
    matrix_ids_of,
    number_column,
    open_frame,
    series_labels,
    timestamp_column,
)
from unskew.data.ids import (
    Ids,
    as_ids,
    check_codes,
    encode_ids,
    format_id,
    matrix_ids,
    require_no_missing_ids,
)
from unskew.data.parts import Part
from unskew.data.timestamps import Timestamps, read_timestamps
from unskew.data.universe import (
    Universe,
    UniverseLike,
    parse_universe,
    require_room,
    resolve_universe,
)
from unskew.errors import (
    BadRatingError,
    DataError,
    DuplicateCellError,
    EmptyLogError,
    UnknownNameError,
    UsageError,
)
from unskew.memory import require_memory
from unskew.settings import Number, describe, is_finite_number
from unskew.tables import PREVIEW, count_noun, html_preview
from unskew.types import BoolVector, IntVector, Vector

if TYPE_CHECKING:
    from unskew.data.propensities import Propensities

Duplicates: TypeAlias = Literal["raise", "mean", "last"]
_ARRAYS = ("user", "item", "rating", "users", "items", "timestamp", "examination", "row_labels")


def default_columns() -> dict[str, str]:
    """The names of the columns of user, item and rating."""
    return {role: DEFAULTS[role] for role in ("user", "item", "rating")}


class SparseLike(Protocol):
    """Any scipy sparse array or matrix."""

    def tocoo(self) -> Any:
        """The same matrix as coordinates."""
        ...


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Ratings:
    """Observed cells: int32 codes of users and items, ratings, and the ids behind the codes.

    Build one with :meth:`from_frame`, :meth:`from_arrays`, :meth:`from_dense` or
    :meth:`from_sparse`; rows keep their order. User code u stands for the id ``users[u]``, item
    code i for ``items[i]``. These vocabularies are sorted if the ids can be compared, and in
    order of appearance otherwise, unless you list them. Matrices of predictions or propensities
    have their rows in the order of ``users`` and their columns in the order of ``items``.

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
    """All users and items that could have been logged; None if unknown."""
    columns: Mapping[str, str] = field(default_factory=default_columns)
    """The column of the caller's frame for each role."""
    backend: str | None = None
    """The data frame library that :meth:`to_frame` uses."""
    row_labels: Ids | None = None
    """The index of the caller's pandas frame; None if it is 0, 1, 2, ..., or if there is none."""
    timestamp: Timestamps | None = None
    """When each rating was given, as numbers or NumPy dates; None if unknown."""
    part: Part | None = None
    """The place of this log in the log that it was split from; None if it was not split."""
    examination: Vector | None = None
    """How often each cell was examined, if the ratings are relevances made from clicks by
    :meth:`unskew.Impressions.to_cells`; None for ordinary ratings."""

    def __post_init__(self) -> None:
        """Check and copy everything: compiled code reads these arrays without a check."""
        rating = float_array(self.rating, "ratings", BadRatingError).copy()
        users, items = (
            require_no_missing_ids(as_ids(ids, f"{kind}s").copy(), kind=kind)
            for kind, ids in (("user", self.users), ("item", self.items))
        )
        user = check_codes(self.user, len(users), kind="user")
        item = check_codes(self.item, len(items), kind="item")
        _require_same_length(user, item, rating)
        times = None if self.timestamp is None else read_timestamps(self.timestamp, rating.size)
        universe = None if self.universe is None else parse_universe(self.universe)
        if universe is not None:
            require_room(universe, len(users), len(items))
        if self.part is not None and not isinstance(self.part, Part):
            raise DataError(
                f"`part` must be a Part, the place of these ratings in a whole log; got "
                f"{describe(self.part)}.",
                parameter="part",
                remedy="Leave it out: unskew.split sets it.",
            )
        labels = None if self.row_labels is None else as_ids(self.row_labels, "row_labels").copy()
        part_rows = None if self.part is None else self.part.rows
        examination = None if self.examination is None else _read_examination(self.examination)
        per_row = (("part", part_rows), ("row_labels", labels), ("examination", examination))
        for name, rows in per_row:
            if rows is not None and len(rows) != rating.size:
                raise DataError(
                    f"`{name}` has {len(rows)} rows, but the log has {rating.size}.",
                    parameter=name,
                )
        arrays = (user, item, rating, users, items, times, examination, labels)
        for name, array in zip(_ARRAYS, arrays, strict=True):
            object.__setattr__(self, name, None if array is None else _read_only(array))
        object.__setattr__(self, "universe", universe)
        _require_ratings(self)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), tuple(getattr(self, each.name) for each in fields(self))

    @classmethod
    def from_frame(
        cls,
        frame: object,
        *,
        user: str | None = None,
        item: str | None = None,
        rating: str | float | None = None,
        timestamp: str | None = None,
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
            Names of the columns. The defaults are ``user_id``, ``item_id`` and ``rating``. If
            there is no such column, the one with a common name is used, whatever its capitals and
            underscores: user, userId, uid, customer_id, reviewerID, ...; item, itemId, movieId,
            song_id, product_id, asin, isbn, ...; stars, ratings, overall, ... (listed in
            ``unskew.data.columns``). If several columns have such names, an error lists them.
            In a log of clicks without a column of ratings, ``rating=1`` gives each row a 1.
        timestamp
            Name of the column that says when each rating was given: numbers, such as seconds, or
            dates. None: the log has no times.
        users, items
            All ids that exist, those without a rating included, in the order that the rows and
            columns of matrices have. The default is the ids in the log, sorted if they can be
            compared and in order of appearance otherwise.
        universe
            (n_users, n_items) or ``"log"``; see :func:`unskew.evaluate` for when it is needed.
        duplicates
            What to do if a (user, item) occurs more than once: ``"raise"`` an error; ``"mean"``
            keeps the first of the rows, with the mean rating; ``"last"`` keeps the last row. The
            other rows keep their order. Propensities and predictions that come as one column must
            then have as many values as there are rows left.
        """
        table = open_frame(frame)
        names = {"user": user, "item": item}
        columns = {role: find_column(role, name, table.columns) for role, name in names.items()}
        if isinstance(rating, Real) and rating not in table.columns:
            Number()("rating", rating)
            columns["rating"], ratings = DEFAULTS["rating"], np.full(len(table), float(rating))
        else:
            name = cast(str | None, rating)
            columns["rating"] = find_column("rating", name, table.columns, takes_number=True)
            ratings = number_column(table, columns["rating"])
        if timestamp is not None:
            columns["timestamp"] = find_column("timestamp", timestamp, table.columns)
        log = cls._from_columns(
            id_column(table, columns["user"]),
            id_column(table, columns["item"]),
            ratings,
            None if timestamp is None else timestamp_column(table, columns["timestamp"]),
            index_ids(frame),
            users=users,
            items=items,
            universe=universe,
            duplicates=duplicates,
        )
        return log._replace_valid(columns=columns, backend=table.implementation.value)

    @classmethod
    def from_arrays(
        cls,
        user: npt.ArrayLike,
        item: npt.ArrayLike,
        rating: npt.ArrayLike,
        *,
        timestamp: npt.ArrayLike | None = None,
        users: npt.ArrayLike | None = None,
        items: npt.ArrayLike | None = None,
        universe: UniverseLike = None,
        duplicates: Duplicates = "raise",
    ) -> Ratings:
        """From three aligned columns: user ids, item ids, ratings; and times if they are known.

        The other arguments are as in :meth:`from_frame`. If both ``users`` and ``items`` are
        listed, they are the universe unless another is stated.
        """
        return cls._from_columns(
            user,
            item,
            rating,
            timestamp,
            index_ids(rating),
            users=users,
            items=items,
            universe=universe,
            duplicates=duplicates,
        )

    @classmethod
    def _from_columns(
        cls,
        user: npt.ArrayLike,
        item: npt.ArrayLike,
        rating: npt.ArrayLike,
        timestamp: npt.ArrayLike | None,
        row_labels: Ids | None,
        *,
        users: npt.ArrayLike | None,
        items: npt.ArrayLike | None,
        universe: UniverseLike,
        duplicates: Duplicates,
    ) -> Ratings:
        """From three aligned columns and the index of the frame that they come from."""
        check_same_order({"user": user, "item": item, "rating": rating, "timestamp": timestamp})
        ratings = float_array(rating, "ratings", BadRatingError).copy()
        user_ids, item_ids = as_ids(user, "user"), as_ids(item, "item")
        _require_same_length(user_ids, item_ids, ratings)
        if ratings.size == 0:
            raise _empty_log_error()
        user_codes, user_vocabulary = encode_ids(user_ids, users, kind="user")
        item_codes, item_vocabulary = encode_ids(item_ids, items, kind="item")
        times = None if timestamp is None else read_timestamps(timestamp, ratings.size)
        log = cls._from_valid(
            user=user_codes,
            item=item_codes,
            rating=ratings,
            users=user_vocabulary,
            items=item_vocabulary,
            timestamp=times,
            row_labels=row_labels,
        )
        are_both_listed = users is not None and items is not None
        return _resolve_duplicates(log, duplicates).with_universe(
            "log" if universe is None and are_both_listed else universe
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
        """From a users x items matrix, whose shape is the universe.

        ``missing`` is the value of unobserved cells; it may be NaN. The labels of a pandas frame
        are the ids, unless ``users`` and ``items`` list them.
        """
        dense = float_array(matrix, "the ratings of a matrix", BadRatingError)
        _require_matrix(dense.shape)
        row_ids, column_ids = matrix_ids_of(matrix)
        users, items = row_ids if users is None else users, column_ids if items is None else items
        if not (is_finite_number(missing) or _is_nan(missing)):
            raise UsageError(
                "`missing` must be the number that marks unobserved cells, such as 0 or np.nan; "
                f"got {missing!r}.",
                parameter="missing",
                value=missing,
            )
        is_nan = np.isnan(dense)
        if is_nan.any() and not np.isnan(missing):
            raise BadRatingError(
                f"{int(is_nan.sum())} of {dense.size} cells of the matrix are NaN.",
                parameter="matrix",
                remedy="If that marks unobserved cells, pass `missing=np.nan`.",
            )
        is_observed = ~is_nan if np.isnan(missing) else dense != missing
        rows, columns = np.nonzero(is_observed)
        log = cls.from_codes(
            rows, columns, dense[rows, columns], shape=dense.shape, users=users, items=items
        )
        check_matrix_order(matrix, log.users, log.items, parameter="matrix")
        return log

    @classmethod
    def from_sparse(
        cls,
        matrix: SparseLike,
        *,
        users: npt.ArrayLike | None = None,
        items: npt.ArrayLike | None = None,
        duplicates: Duplicates = "raise",
    ) -> Ratings:
        """From a scipy sparse users x items matrix, whose shape is the universe.

        Every stored entry is a rating, explicit zeros included.
        """
        if not hasattr(matrix, "tocoo"):
            raise DataError(
                "expected a scipy sparse matrix, "
                f"got {type(matrix).__module__}.{type(matrix).__name__}.",
                parameter="matrix",
                remedy="A matrix that is not sparse goes to Ratings.from_dense.",
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
        require_memory(
            8.0 * (universe.n_users + universe.n_items),
            f"a log of {universe}",
            parameter="shape",
            remedy="Number only users and items with ratings, and pass their number as "
            "`universe=...`.",
        )
        check_same_order({"user": user, "item": item, "rating": rating})
        ratings = float_array(rating, "ratings", BadRatingError).copy()
        user_codes = check_codes(user, universe.n_users, kind="user")
        item_codes = check_codes(item, universe.n_items, kind="item")
        _require_same_length(user_codes, item_codes, ratings)
        user_vocabulary = matrix_ids(universe.n_users, users, kind="user")
        item_vocabulary = matrix_ids(universe.n_items, items, kind="item")
        log = cls._from_valid(
            user=user_codes,
            item=item_codes,
            rating=ratings,
            users=user_vocabulary,
            items=item_vocabulary,
            universe=universe,
        )
        return _resolve_duplicates(log, duplicates)

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
        """``n_users * n_items``: observed and unobserved cells of the vocabularies."""
        return self.n_users * self.n_items

    @property
    def share(self) -> float:
        """The probability that a rating of the whole log is in this part of it; 1 if not split."""
        return 1.0 if self.part is None else self.part.share

    @property
    def density(self) -> float:
        """The observed share of all cells of the universe, or of the vocabularies without one."""
        return len(self) / (self.n_cells if self.universe is None else self.universe.n_cells)

    def __len__(self) -> int:
        return self.rating.size

    def __repr__(self) -> str:
        low, high, mean = self.rating.min(), self.rating.max(), self.rating.mean()
        renamed = [
            f"{role}={name!r}" for role, name in self.columns.items() if name != DEFAULTS.get(role)
        ]
        columns = f"; columns {', '.join(renamed)}" if renamed else ""
        part = "" if self.part is None else f"; {self.part.describe()}"
        return (
            f"Ratings({count_noun(len(self), 'rating')} by {count_noun(self.n_users, 'user')} "
            f"on {count_noun(self.n_items, 'item')}, {low:g} to {high:g}, mean {mean:.4g}; "
            f"density {self.density:.3g}{part}{columns})"
        )

    def examination_weights(self) -> Propensities:
        """Propensities whose inverse is proportional to the examination of each cell.

        Pass them to ``fit``: a relevance from few looks is noisy, and so weighs less.
        """
        if self.examination is None:
            raise UsageError(
                "`log` has no examination probabilities (how likely each shown position was looked "
                "at): it was not made from impressions.",
                parameter="log",
                remedy="Make it with `impressions.to_cells(curve)`.",
            )
        from unskew.data.propensities import Propensities  # loads scipy

        return Propensities(self.examination.min() / self.examination)

    def _repr_html_(self) -> str:
        columns = {
            self.columns.get("user", "user"): self.users[self.user[PREVIEW]].tolist(),
            self.columns.get("item", "item"): self.items[self.item[PREVIEW]].tolist(),
            self.columns.get("rating", "rating"): self.rating[PREVIEW].tolist(),
        }
        return html_preview(repr(self), columns, len(self))

    def take(self, rows: npt.NDArray[np.integer] | BoolVector) -> Ratings:
        """The log of some rows (distinct indices, or a mask), with the same ids and universe."""
        numbers = row_numbers(rows, len(self))
        if np.asarray(rows).dtype == bool:
            labels = series_labels(rows)
            check_row_order(
                labels, self.row_labels, what="the mask", parameter="rows", error=DataError
            )
        return self._take_valid(numbers)

    def with_universe(self, universe: UniverseLike) -> Ratings:
        """The same log with another universe; None keeps its own."""
        return self._replace_valid(universe=resolve_universe(self, universe))

    def name_cell(self, row: int) -> str:
        """``row 3 (user 'ann', item 7)``: how errors refer to a cell."""
        row = row_number(row, len(self))
        user, item = self.users[self.user[row]], self.items[self.item[row]]
        return f"row {row} (user {format_id(user)}, item {format_id(item)})"

    def to_frame(self, backend: str | None = None) -> Any:
        """The log as a data frame, with the column names and in the library that it came from.

        ``backend`` names another library, such as ``"pandas"``.
        """
        values = {
            "user": self.users[self.user],
            "item": self.items[self.item],
            "rating": self.rating,
        }
        if self.timestamp is not None:
            values["timestamp"] = self.timestamp
        return make_frame(
            {self.columns.get(role, role): column for role, column in values.items()},
            self.backend if backend is None else backend,
        )

    def _take_valid(self, rows: npt.NDArray[np.intp]) -> Ratings:
        """:meth:`take` without a check that the rows are distinct."""
        if rows.size == 0:
            raise _empty_log_error()
        return self._replace_valid(
            user=self.user[rows],
            item=self.item[rows],
            rating=self.rating[rows],
            timestamp=None if self.timestamp is None else self.timestamp[rows],
            part=None if self.part is None else self.part.take(rows),
            row_labels=self._take_labels(rows),
            examination=None if self.examination is None else self.examination[rows],
        )

    def _take_labels(self, rows: npt.NDArray[np.intp]) -> Ids | None:
        """The index that rows of the caller's frame have; None if there was no pandas frame."""
        if self.row_labels is not None:
            return self.row_labels[rows]
        return rows if self.backend == "pandas" else None

    def _replace_valid(self, **changes: Any) -> Ratings:
        """A copy with other values that are known to be valid: nothing is checked again.

        ``dataclasses.replace`` checks everything, as the constructor does.
        """
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        return self._build(values | changes)

    @classmethod
    def _from_valid(cls, **values: Any) -> Ratings:
        """From new arrays with valid codes: only the ratings are checked, and nothing is copied."""
        defaults = {
            each.name: None if each.default is MISSING else each.default for each in fields(cls)
        }
        log = cls._build(defaults | {"columns": default_columns()} | values)
        _require_ratings(log)
        return log

    @classmethod
    def _build(cls, values: Mapping[str, Any]) -> Ratings:
        log = object.__new__(cls)
        for name, value in values.items():
            is_array = name in _ARRAYS and value is not None
            object.__setattr__(log, name, _read_only(value) if is_array else value)
        return log


def _require_ratings(log: Ratings) -> None:
    """Raise an error unless there are ratings, and all are finite."""
    if log.rating.size == 0:
        raise _empty_log_error()
    require_rows(
        np.isfinite(log.rating),
        log.rating,
        "ratings are missing or not finite",
        log.name_cell,
        parameter="rating",
        error_type=BadRatingError,
        remedy="Drop those rows: a cell without a rating is an unobserved cell.",
    )


def _read_examination(examination: npt.ArrayLike) -> Vector:
    """A copy of how often each cell was examined; an error unless all are positive and finite."""
    values = float_array(examination, "examination", BadRatingError).copy()
    if values.ndim != 1:
        raise DataError(
            f"`examination` must have one number for each row; got shape {values.shape}.",
            parameter="examination",
        )
    is_valid = np.isfinite(values) & (values > 0)
    if not is_valid.all():
        row = int(is_valid.argmin())
        raise DataError(
            f"`examination` must be positive and finite; it is {values.flat[row]:g} at row {row}.",
            parameter="examination",
            value=float(values.flat[row]),
            where=f"row {row}",
            remedy="Pass how often each cell was examined, as Impressions.to_cells does.",
        )
    return values


def _read_only(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """A view that cannot be written to; the caller's array stays writeable."""
    view = array.view()
    view.setflags(write=False)
    return view


def _empty_log_error() -> EmptyLogError:
    return EmptyLogError(
        "the log has no ratings.", remedy="Check the filter or the file it came from."
    )


def _require_same_length(user: Ids, item: Ids, rating: Vector) -> None:
    if not user.shape == item.shape == rating.shape:
        raise BadRatingError(
            "users, items and ratings must be columns of one length; "
            f"got {user.shape}, {item.shape} and {rating.shape}."
        )


def _is_nan(value: object) -> bool:
    return isinstance(value, float | np.floating) and bool(np.isnan(value))


def _require_matrix(shape: tuple[int, ...]) -> None:
    is_ragged = isinstance(shape, list | tuple) and any(np.iterable(size) for size in shape)
    if is_ragged or np.shape(shape) != (2,):
        raise BadRatingError(
            f"a rating matrix has two dimensions, users and items; got shape {shape}.",
            parameter="matrix",
        )


def _resolve_duplicates(log: Ratings, rule: Duplicates) -> Ratings:
    """The log with each cell once; see :meth:`Ratings.from_frame` for the rules."""
    if not isinstance(rule, str) or rule not in ("raise", "mean", "last"):
        raise UnknownNameError(
            "duplicates rule", rule, ("raise", "mean", "last"), parameter="duplicates"
        )
    cells = cell_numbers(log.user, log.item, log.n_items)
    n_duplicates, row, earlier_row = find_duplicates(cells)
    if n_duplicates == 0:
        return log
    if rule == "last":
        return log._take_valid(last_rows(cells))
    if rule == "mean":
        _, first, group = np.unique(cells, return_index=True, return_inverse=True)
        means = np.bincount(group, weights=log.rating) / np.bincount(group)
        rows = np.argsort(first)
        return log._take_valid(first[rows])._replace_valid(rating=means[rows])
    raise DuplicateCellError(
        f"{describe_duplicates(n_duplicates)}; the first is {log.name_cell(row)}, "
        f"which is also at row {earlier_row}.",
        where=log.name_cell(row),
        remedy="Choose `duplicates='mean'` or `duplicates='last'`, or aggregate first.",
    )


def require_log(log: object, *, for_frames: str | None = None) -> None:
    """Raise an error unless ``log`` is a :class:`Ratings`.

    ``for_frames`` is the function that reads a frame where it is; None if there is none.
    """
    if not isinstance(log, Ratings):
        other = "" if for_frames is None else f", or call {for_frames}, which reads it where it is"
        raise UsageError(
            f"the log must be unskew.Ratings, not {type(log).__name__}.",
            parameter="log",
            remedy=f"Build one with Ratings.from_frame(frame){other}.",
        )
