"""Covariates of users and items: read from tables, and cells counted by their covariates."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from copy import copy
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from unskew.data.cells import CellNumbers, cell_numbers, user_and_item
from unskew.data.columns import find_column
from unskew.data.frames import (
    EagerFrame,
    frame_of_series,
    id_column,
    index_ids,
    is_frame,
    number_column,
    open_frame,
)
from unskew.data.ids import (
    Ids,
    as_ids,
    describe_id_types,
    encode,
    find_codes,
    format_id,
    missing_ids,
)
from unskew.data.ratings import Ratings
from unskew.data.universe import Universe
from unskew.errors import (
    AmbiguousColumnError,
    BadRatingError,
    ColumnError,
    DataError,
    PropensityWarning,
    UsageError,
)
from unskew.io.model_files import write_model
from unskew.io.writing import as_path
from unskew.propensity.model import PropensityModel, require_unobserved
from unskew.types import BoolVector, IntVector, Matrix, Vector

Kind: TypeAlias = Literal["user", "item"]
MIN_ROWS_LIKE_IDS = 20
"""With this many rows or more, whole numbers that are all different look like ids."""
MAX_LEVELS = 1000
"""A text column with more distinct values is a name, not a category."""
SHARE_LIKE_IDS = 0.9
"""A text column with at least this many distinct values per row also looks like names."""


@dataclass(frozen=True, slots=True, eq=False)
class CovariateProfiles:
    """The covariates of all users or all items, stored once for each distinct profile."""

    kind: Kind
    names: tuple[str, ...]
    values: Matrix
    """Profiles x covariates, in the caller's units; a category has a 0/1 column for each level."""
    profile: IntVector
    """The profile (row of ``values``) of each user or item."""
    size: Vector | None = None
    """How many users each entry of ``profile`` stands for; None if one."""

    @classmethod
    def read(
        cls,
        table: object,
        ids: Ids,
        kind: Kind,
        *,
        constants: Literal["refuse", "drop"] = "refuse",
    ) -> CovariateProfiles:
        """Read an array or a frame with one row for each of ``ids``; None has no covariates.

        Rows are in the order of ``ids``, or a frame has a column of ids. ``constants`` says what
        to do with columns that have the same value for all: raise an error, or drop them.
        """
        columns = list(_read_columns(table, ids, kind))
        names = tuple(name for name, _ in columns)
        matrix = np.column_stack([values for _, values in columns] or [np.empty((len(ids), 0))])
        _require_rows(matrix, ids, kind)
        _require_finite(matrix, names, kind)
        varies = np.array([bool((column != column[0]).any()) for column in matrix.T], dtype=bool)
        if constants == "refuse":
            _require_variation(varies, names, len(ids), kind)
        _warn_of_ids(matrix, names, kind)
        names, matrix = tuple(np.array(names, dtype=object)[varies]), matrix[:, varies]
        values, profile = _distinct_rows(matrix)
        return cls(kind, names, values, profile)

    @property
    def n_profiles(self) -> int:
        return len(self.values)

    @property
    def rows(self) -> Matrix:
        """The covariates of each user or item, one row each."""
        return self.values[self.profile]

    @property
    def profile_shares(self) -> Vector:
        """The share of users or items that have each profile."""
        count = np.bincount(self.profile, self.size, self.n_profiles)
        shares: Vector = count / count.sum()
        return shares

    def standard_units(self) -> tuple[Vector, Vector]:
        """Centre and scale of each covariate: its mean and standard deviation over users or items.

        They are 0 and 1 for covariates with values 0 and 1 only.
        """
        share = self.profile_shares
        mean = share @ self.values
        deviation = np.sqrt(share @ np.square(self.values - mean))
        binary = is_binary(self.values)
        return np.where(binary, 0.0, mean), np.where(binary, 1.0, deviation)


class CovariatePropensityModel(PropensityModel):
    """A propensity model that depends on covariates of users and items."""

    user_features: object
    item_features: object

    @property
    def adjusts_for(self) -> str:
        """Covariates of users and items, and nothing else of them."""
        return "covariates"

    def save(self, path: str | Path) -> None:
        """Write the fitted model as a zip of arrays and JSON, without code.

        Covariates that were a frame are stored as numbers.
        """
        self._require_fitted()
        model = copy(self)
        sides: tuple[tuple[Kind, Ids], ...] = (("user", self.users_), ("item", self.items_))
        for kind, ids in sides:
            table = getattr(self, f"{kind}_features")
            if table is not None:
                setattr(model, f"{kind}_features", CovariateProfiles.read(table, ids, kind).rows)
        write_model(model, as_path(path))

    def __repr__(self) -> str:
        model = copy(self)
        model.user_features = _shorten_table(self.user_features)
        model.item_features = _shorten_table(self.item_features)
        return super(CovariatePropensityModel, model).__repr__()

    def _read_covariates(self, log: Ratings, *, is_required: bool = True) -> ProfilePairs:
        user = CovariateProfiles.read(self.user_features, log.users, "user")
        item = CovariateProfiles.read(self.item_features, log.items, "item")
        if is_required and not (user.names or item.names):
            raise UsageError(
                f"{type(self).__name__} has no covariates, so all cells are alike.",
                parameter="user_features",
                remedy="Pass `user_features=...` or `item_features=...`. UniformPropensity "
                "treats all cells alike.",
            )
        return ProfilePairs(user, item)


def is_binary(values: Matrix) -> BoolVector:
    """Which columns have no values other than 0 and 1."""
    return np.asarray(((values == 0) | (values == 1)).all(axis=0))


def varying_products(values: Matrix) -> tuple[IntVector, IntVector]:
    """Columns (j, k), j < k, whose product varies.

    The product of two levels of the same category is always 0, so such pairs are left out.
    """
    first, second = np.triu_indices(values.shape[1], k=1)
    varies = np.fromiter(
        (np.ptp(values[:, j] * values[:, k]) > 0 for j, k in zip(first, second, strict=True)),
        bool,
        first.size,
    )
    return first[varies].astype(np.int32), second[varies].astype(np.int32)


# Counts of cells by pairs of profiles


@dataclass(frozen=True, slots=True, eq=False)
class ProfilePairs:
    """Pairs of a user profile and an item profile, numbered like cells."""

    user: CovariateProfiles
    item: CovariateProfiles

    @property
    def shape(self) -> tuple[int, int]:
        return self.user.n_profiles, self.item.n_profiles

    @property
    def n_pairs(self) -> int:
        return self.user.n_profiles * self.item.n_profiles

    def find_pairs(self, users: IntVector, items: IntVector) -> CellNumbers:
        """The pairs of profiles that cells have."""
        profiles = self.user.profile[users], self.item.profile[items]
        return cell_numbers(*profiles, self.item.n_profiles)

    def covariates(self, pairs: CellNumbers) -> Matrix:
        """The covariates of the user, then those of the item, of each pair."""
        user, item = user_and_item(pairs, self.item.n_profiles)
        return np.concatenate([self.user.values[user], self.item.values[item]], axis=1)

    def count_cells(self, log: Ratings, *, users: BoolVector | None = None) -> ProfilePairCounts:
        """Count all cells, or those of some users, by pairs of profiles."""
        require_unobserved(len(log), Universe(log.n_users, log.n_items))
        is_counted = np.ones(log.n_users, dtype=bool) if users is None else users
        rows = is_counted[log.user]
        pairs = self.find_pairs(log.user[rows], log.item[rows])
        observed = np.bincount(pairs, minlength=self.n_pairs).astype(np.float64)
        n_users = np.bincount(self.user.profile[is_counted], minlength=self.shape[0])
        n_items = np.bincount(self.item.profile, minlength=self.shape[1])
        n_cells = np.outer(n_users.astype(np.float64), n_items.astype(np.float64)).ravel()
        return ProfilePairCounts(np.arange(self.n_pairs), observed, n_cells - observed, 1.0)

    def count_sampled_cells(self, log: Ratings, unobserved: CellNumbers) -> ProfilePairCounts:
        """Count the observed cells and a sample of unobserved cells.

        Pairs of profiles without any of these cells are left out.
        """
        observed_pairs = self.find_pairs(log.user, log.item)
        sampled_pairs = self.find_pairs(*user_and_item(unobserved, log.n_items))
        both = np.concatenate([observed_pairs, sampled_pairs])
        pairs, row = np.unique(both, return_inverse=True)
        n_observed, n_sampled = (
            np.bincount(rows, minlength=pairs.size).astype(np.float64)
            for rows in (row[: len(log)], row[len(log) :])
        )
        share = unobserved.size / (log.n_cells - len(log))
        return ProfilePairCounts(pairs, n_observed, n_sampled, share)

    def labelled_rows(self, counts: ProfilePairCounts) -> tuple[Matrix, Vector, Vector]:
        """Rows for a classifier: covariates, labels (1 for observed cells), and cell counts."""
        observed, unobserved = np.flatnonzero(counts.observed), np.flatnonzero(counts.unobserved)
        rows = np.concatenate([observed, unobserved])
        weight = np.concatenate([counts.observed[observed], counts.unobserved[unobserved]])
        label = np.repeat([1.0, 0.0], [observed.size, unobserved.size])
        return self.covariates(counts.pair[rows]), label, weight


@dataclass(frozen=True, slots=True, eq=False)
class ProfilePairCounts:
    """Cells counted by pairs of profiles, one row for each pair."""

    pair: CellNumbers
    observed: Vector
    unobserved: Vector
    """Unobserved cells, or those of them that are in a sample."""
    sampled_share: float
    """The share of all unobserved cells that are counted."""


# Reading tables


def _read_columns(table: object, ids: Ids, kind: Kind) -> Iterator[tuple[str, Vector]]:
    """Columns of numbers with their names; categories become one column for each level."""
    if table is None:
        return
    table = frame_of_series(table)
    read = _frame_columns(table, ids, kind) if is_frame(table) else _array_columns(table, kind)
    for name, column in read:
        if column.dtype.kind == "f":
            yield name, column
        else:
            yield from _level_columns(name, column, kind)


def _array_columns(table: Any, kind: Kind) -> Iterator[tuple[str, npt.NDArray[Any]]]:
    parameter = f"{kind}_features"
    problem = f"`{parameter}` must be a table with one row for each {kind}"
    try:
        array = np.asarray(table)
    except ValueError as error:
        raise UsageError(f"{problem}: {error}.", parameter=parameter) from error
    if array.ndim not in (1, 2) or array.size == 0:
        raise UsageError(f"{problem}; got shape {array.shape}.", parameter=parameter)
    for index, column in enumerate(array.reshape(len(array), -1).T):
        yield f"{kind}:{index}", _as_numbers(column)


def _as_numbers(column: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Numbers as float64; other columns are returned unchanged."""
    if column.dtype.kind not in "biufO":
        return column
    try:
        if column.dtype.kind != "O" or not any(isinstance(value, str) for value in column):
            return column.astype(np.float64)
    except (TypeError, ValueError):
        pass
    return column


def _frame_columns(table: object, ids: Ids, kind: Kind) -> Iterator[tuple[str, npt.NDArray[Any]]]:
    frame = open_frame(table)
    id_name = _find_id_column(frame, kind)
    table_ids = index_ids(table) if id_name is None else id_column(frame, id_name)
    rows: Any = slice(None)
    if table_ids is not None:
        id_place = "the index" if id_name is None else f"column {id_name!r}"
        rows = _match_rows(table_ids, id_place, ids, kind)
    elif not (ids.dtype.kind in "iu" and np.array_equal(ids, np.arange(len(ids)))):
        warnings.warn(
            PropensityWarning(
                f"`{kind}_features` has neither a column {kind}_id nor an index of ids, so its "
                f"rows are assumed to be in the order of log.{kind}s, which is sorted.",
                parameter=f"{kind}_features",
                remedy="Add a column of ids; to keep the order of the rows, pass an array.",
            ),
            stacklevel=2,
        )
    for name in frame.columns:
        if name != id_name:
            yield f"{kind}:{name}", _frame_column(frame, name, kind)[rows]


def _frame_column(frame: EagerFrame, name: str, kind: Kind) -> npt.NDArray[Any]:
    if frame.schema[name].is_temporal():
        raise UsageError(
            f"the {kind} covariate {name!r} is a date or a time.",
            parameter=f"{kind}_features",
            remedy="Convert it to a number, such as days since a fixed day, or drop it.",
        )
    try:
        return number_column(frame, name)
    except BadRatingError:
        return as_ids(frame.get_column(name).to_list())


def _find_id_column(frame: EagerFrame, kind: Kind) -> str | None:
    """The column of ids if the frame has one; an error if several columns could be it."""
    try:
        return find_column(kind, None, frame.columns)
    except AmbiguousColumnError:
        raise
    except ColumnError:
        return None


def _match_rows(table_ids: Ids, id_place: str, ids: Ids, kind: Kind) -> IntVector:
    """The row of the table for each of ``ids``; ``id_place`` is where the table has its ids."""
    repeated = [each for each, count in Counter(table_ids.tolist()).items() if count > 1]
    if repeated:
        raise DataError(
            f"{id_place} of `{kind}_features` lists {kind} {format_id(repeated[0])} more than "
            "once.",
            parameter=f"{kind}_features",
            remedy=f"Keep one row for each {kind}.",
        )
    rows = find_codes(ids, table_ids)
    if (rows < 0).any():
        missing = ids[int((rows < 0).argmax())]
        raise DataError(
            f"{id_place} of `{kind}_features` lacks {int((rows < 0).sum())} of the log's "
            f"{len(ids)} {kind}s; the first is {format_id(missing)}"
            f"{describe_id_types(ids, table_ids)}.",
            parameter=f"{kind}_features",
            remedy=f"Add a row for each {kind}.",
        )
    return rows


def _level_columns(name: str, column: Ids, kind: Kind) -> Iterator[tuple[str, Vector]]:
    missing = missing_ids(column)
    if missing.any():
        raise _missing_values_error(name, missing, kind)
    codes, levels = encode(column)
    if len(levels) > MAX_LEVELS:
        raise UsageError(
            f"the {kind} covariate {name!r} has {len(levels):,} levels, more than {MAX_LEVELS:,}.",
            parameter=f"{kind}_features",
            remedy=f"Group them, or drop it and use LogisticPropensity(`{kind}_offsets=True`).",
            shell_remedy="Group them, or drop the column.",
        )
    if column.size >= MIN_ROWS_LIKE_IDS and len(levels) >= SHARE_LIKE_IDS * column.size:
        warnings.warn(
            PropensityWarning(
                f"the {kind} covariate {name!r} is text with {len(levels):,} values for "
                f"{column.size:,} {kind}s, like ids, and each value becomes a covariate.",
                parameter=f"{kind}_features",
                remedy=f"If it has the ids, call it {kind}_id; otherwise group its values, or "
                "drop it.",
            ),
            stacklevel=2,
        )
    for code, level in enumerate(levels):
        yield f"{name}={level}", (codes == code).astype(np.float64)


def _missing_values_error(name: str, is_missing: BoolVector, kind: Kind) -> DataError:
    row = int(is_missing.argmax())
    return DataError(
        f"the {kind} covariate {name!r} has {int(is_missing.sum())} values that are missing or "
        f"not finite; the first is at row {row}.",
        parameter=f"{kind}_features",
        where=f"row {row}",
        remedy="Fill them in, and add a 0/1 column for the rows where the value was missing.",
    )


def _require_rows(matrix: Matrix, ids: Ids, kind: Kind) -> None:
    if len(matrix) != len(ids):
        raise DataError(
            f"`{kind}_features` has {len(matrix):,} rows, but the log lists {len(ids):,} {kind}s.",
            parameter=f"{kind}_features",
            remedy=f"Pass one row for each {kind}, in the order of log.{kind}s, or a frame with "
            f"a column {kind}_id.",
        )


def _require_finite(matrix: Matrix, names: Sequence[str], kind: Kind) -> None:
    is_bad: BoolVector = ~np.isfinite(matrix)
    if is_bad.any():
        column = int(is_bad.any(axis=0).argmax())
        raise _missing_values_error(names[column], is_bad[:, column], kind)


def _require_variation(varies: BoolVector, names: Sequence[str], size: int, kind: Kind) -> None:
    if not varies.all():
        first = names[int(varies.argmin())]
        raise UsageError(
            f"{int((~varies).sum())} of {len(names)} {kind} covariates are the same for all "
            f"{size} {kind}s; the first is {first!r}.",
            parameter=f"{kind}_features",
            remedy="Drop it.",
        )


def _warn_of_ids(matrix: Matrix, names: Sequence[str], kind: Kind) -> None:
    """Warn of columns of different whole numbers, which are more often ids than measurements."""
    for name, column in zip(names, matrix.T, strict=True):
        is_whole = bool((column == np.floor(column)).all())
        if column.size >= MIN_ROWS_LIKE_IDS and is_whole and np.unique(column).size == column.size:
            warnings.warn(
                PropensityWarning(
                    f"the {kind} covariate {name!r} is a different whole number for each of "
                    f"{column.size} {kind}s, like ids.",
                    parameter=f"{kind}_features",
                    remedy=f"If it has the ids, call it {kind}_id; if it does not describe the "
                    f"{kind}, drop it.",
                ),
                stacklevel=5,  # the caller of fit
            )


def _distinct_rows(matrix: Matrix) -> tuple[Matrix, IntVector]:
    if matrix.shape[1] == 0:
        return np.empty((1, 0)), np.zeros(len(matrix), dtype=np.int32)
    values, profile = np.unique(matrix, axis=0, return_inverse=True)
    return values, profile.ravel().astype(np.int32)


class _TableShape:
    """Stands for a table in the representation of a model, such as ``<943 x 4>``."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self._shape = shape

    def __repr__(self) -> str:
        return f"<{self._shape[0]} x {self._shape[1] if len(self._shape) > 1 else 1}>"


def _shorten_table(table: object) -> object:
    if is_frame(table):
        return _TableShape(open_frame(table).shape)
    return _TableShape(np.shape(table)) if isinstance(table, np.ndarray | list) else table
