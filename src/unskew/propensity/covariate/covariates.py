"""What is known of every user and item: covariates as numbers, their pairs, and the distinct profiles that they form."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from copy import copy
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from unskew.data.columns import find_column
from unskew.data.frames import EagerFrame, id_column, index_ids, is_frame, number_column, open_frame
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
from unskew.errors import BadRatingError, ColumnError, DataError, PropensityWarning, UsageError
from unskew.io.model_files import write_model
from unskew.propensity.model import PropensityModel
from unskew.settings import require_fitted
from unskew.types import BoolVector, IntVector, Matrix, Vector

Kind: TypeAlias = Literal["user", "item"]
LIKE_IDS = 20
"""From so many rows on, whole numbers that are all different look like ids."""
MOST_LEVELS = 1000
"""A column of text with more distinct values is a name, not a category."""
NEARLY_ALL = 0.9
"""A column of text with a value of its own for such a share of rows looks like names, too."""


@dataclass(frozen=True, slots=True, eq=False)
class Covariates:
    """The covariates of all users or all items, one row for each distinct profile."""

    kind: Kind
    names: tuple[str, ...]
    values: Matrix
    """Profiles x covariates, as given; a category is a column of 0 and 1 for each of its levels."""
    profile: IntVector
    """The row of ``values`` that each user or item has."""

    @classmethod
    def of(
        cls, given: object, ids: Ids, kind: Kind, *, constants: Literal["refuse", "drop"] = "refuse"
    ) -> Covariates:
        """Read ``given``: None, an array or a frame with a row for each of ``ids``, in their order or with ids.

        Columns that are the same for all are refused, or left out where ``constants`` says so.
        """
        columns = list(_columns(given, ids, kind))
        names = tuple(name for name, _ in columns)
        matrix = (
            np.column_stack([column for _, column in columns])
            if columns
            else np.empty((len(ids), 0))
        )
        _require_rows(matrix, ids, kind)
        _require_finite(matrix, names, kind)
        varies = np.array([bool((column != column[0]).any()) for column in matrix.T], dtype=bool)
        if constants == "refuse":
            _require_variety(varies, names, len(ids), kind)
        _warn_of_ids(matrix, names, kind)
        names, matrix = tuple(np.array(names, dtype=object)[varies]), matrix[:, varies]
        values, profile = _distinct_rows(matrix)
        return cls(kind, names, values, profile)

    @property
    def n_profiles(self) -> int:
        """Distinct rows."""
        return len(self.values)

    @property
    def complete(self) -> Matrix:
        """One row for each user or item."""
        return self.values[self.profile]

    def standard_units(self) -> tuple[Vector, Vector]:
        """Centre and scale of every column: mean and standard deviation over users or items, 0 and 1 for columns of 0 and 1."""
        share = np.bincount(self.profile, minlength=self.n_profiles) / self.profile.size
        mean = share @ self.values
        deviation = np.sqrt(share @ np.square(self.values - mean))
        is_mark = are_marks(self.values)
        return np.where(is_mark, 0.0, mean), np.where(is_mark, 1.0, deviation)


class CovariatePropensity(PropensityModel):
    """A propensity model that looks at covariates of users and items."""

    user_features: object
    item_features: object

    def _covariates(self, log: Ratings) -> tuple[Covariates, Covariates]:
        return Covariates.of(self.user_features, log.users, "user"), Covariates.of(
            self.item_features, log.items, "item"
        )

    def save(self, path: str | Path) -> None:
        """Write the fitted model: arrays and JSON, never code. Covariates that came as a frame are kept as their numbers."""
        require_fitted(self)
        plain = copy(self)
        if self.user_features is not None:
            plain.user_features = Covariates.of(self.user_features, self.users_, "user").complete
        if self.item_features is not None:
            plain.item_features = Covariates.of(self.item_features, self.items_, "item").complete
        write_model(plain, Path(path))

    def __repr__(self) -> str:
        changed = (
            f"{name}={_brief(value)}"
            for name, value in self.get_params().items()
            if self._is_changed(name, value)
        )
        return f"{type(self).__name__}({', '.join(changed)})"


def require_covariates(model: CovariatePropensity, user: Covariates, item: Covariates) -> None:
    """Refuse to fit a model of covariates without any."""
    if not (user.names or item.names):
        raise UsageError(
            f"{type(model).__name__} has nothing to tell cells apart by: give user_features or item_features. "
            "UniformPropensity treats all cells alike."
        )


def _brief(value: object) -> str:
    """A table as its shape, anything else as it is."""
    shape = (
        open_frame(value).shape
        if is_frame(value)
        else np.shape(value)
        if isinstance(value, np.ndarray | list)
        else ()
    )
    return f"<{shape[0]} x {shape[1] if len(shape) > 1 else 1}>" if shape else repr(value)


def are_marks(values: Matrix) -> BoolVector:
    """Which columns hold nothing but 0 and 1."""
    return np.asarray(((values == 0) | (values == 1)).all(axis=0))


def within_pairs(values: Matrix) -> tuple[IntVector, IntVector]:
    """Places (j, k), j < k, of the columns whose product says anything: two levels of one category never meet, so not they."""
    first, second = np.triu_indices(values.shape[1], k=1)
    kept = np.fromiter(
        (np.ptp(values[:, j] * values[:, k]) > 0 for j, k in zip(first, second, strict=True)),
        bool,
        first.size,
    )
    return first[kept].astype(np.int32), second[kept].astype(np.int32)


def _columns(given: object, ids: Ids, kind: Kind) -> Iterator[tuple[str, Vector]]:
    """Named columns of numbers; categories become one column a level."""
    if given is None:
        return
    for name, column in (
        _frame_columns(given, ids, kind) if is_frame(given) else _array_columns(given, kind)
    ):
        if column.dtype.kind == "f":
            yield name, column
        else:
            yield from _levels(name, column, kind)


def _array_columns(given: Any, kind: Kind) -> Iterator[tuple[str, npt.NDArray[Any]]]:
    try:
        table = np.asarray(given)
    except ValueError as error:
        raise UsageError(
            f"{kind}_features must be a table with a row for each {kind}: {error}."
        ) from error
    if table.ndim not in (1, 2):
        raise UsageError(
            f"{kind}_features must be a table with a row for each {kind}; got shape {table.shape}."
        )
    for place, column in enumerate(table.reshape(len(table), -1).T):
        yield f"{kind}:{place}", _numbers_or_ids(column)


def _numbers_or_ids(column: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Numbers as float64, anything else as it is."""
    if column.dtype.kind not in "biufO":
        return column
    try:
        if column.dtype.kind != "O" or not any(isinstance(value, str) for value in column):
            return column.astype(np.float64)
    except (TypeError, ValueError):
        pass
    return column


def _frame_columns(given: object, ids: Ids, kind: Kind) -> Iterator[tuple[str, npt.NDArray[Any]]]:
    frame = open_frame(given)
    key = _id_name(frame, kind)
    listed = index_ids(given) if key is None else id_column(frame, key)
    if listed is None and not (ids.dtype.kind in "iu" and np.array_equal(ids, np.arange(len(ids)))):
        warnings.warn(
            f"{kind}_features has neither a column {kind}_id nor an index of ids, so that its rows are taken in the order of "
            f"log.{kind}s, which is sorted. Add the ids, or pass an array if that is what you mean.",
            PropensityWarning,
            stacklevel=2,
        )
    rows = (
        slice(None)
        if listed is None
        else _rows_of(listed, "the index" if key is None else f"column {key!r}", ids, kind)
    )
    for name in frame.columns:
        if name != key:
            yield f"{kind}:{name}", _frame_column(frame, name, kind)[rows]


def _frame_column(frame: EagerFrame, name: str, kind: Kind) -> npt.NDArray[Any]:
    if frame.schema[name].is_temporal():
        raise UsageError(
            f"the {kind} covariate {name!r} is a date or a time; make a number of it, such as days since a day, or drop it."
        )
    try:
        return number_column(frame, name)
    except BadRatingError:
        return as_ids(frame.get_column(name).to_list())


def _id_name(frame: EagerFrame, kind: Kind) -> str | None:
    """The column that holds ids, if one is spelled so."""
    try:
        return find_column(kind, None, frame.columns)
    except ColumnError as error:
        if "several" in str(error):
            raise
        return None


def _rows_of(listed: Ids, where: str, ids: Ids, kind: Kind) -> npt.NDArray[np.int32]:
    if len(set(listed.tolist())) < len(listed):
        raise DataError(
            f"{where} of {kind}_features lists a {kind} more than once. Keep one row for each."
        )
    rows = find_codes(ids, listed)
    if (rows < 0).any():
        missing = ids[int((rows < 0).argmax())]
        raise DataError(
            f"{where} of {kind}_features lacks {int((rows < 0).sum())} of the log's {len(ids)} {kind}s; "
            f"the first is {format_id(missing)}{describe_id_types(ids, listed)}. Add a row for each."
        )
    return rows


def _levels(name: str, column: Ids, kind: Kind) -> Iterator[tuple[str, Vector]]:
    missing = missing_ids(column)
    if missing.any():
        raise _missing(name, int(missing.sum()), int(missing.argmax()), kind)
    codes, levels = encode(column)
    if len(levels) > MOST_LEVELS:
        raise UsageError(
            f"the {kind} covariate {name!r} has {len(levels):,} levels, more than {MOST_LEVELS:,}; group them, "
            f"or leave it out and take {kind}_offsets=True."
        )
    if column.size >= LIKE_IDS and len(levels) >= NEARLY_ALL * column.size:
        warnings.warn(
            f"the {kind} covariate {name!r} is text with {len(levels):,} values for {column.size:,} {kind}s, as ids have, "
            f"and each becomes a covariate. If it is the column of ids, call it {kind}_id; else group its values, or drop it.",
            PropensityWarning,
            stacklevel=2,
        )
    for code, level in enumerate(levels):
        yield f"{name}={level}", (codes == code).astype(np.float64)


def _missing(name: str, count: int, row: int, kind: Kind) -> DataError:
    return DataError(
        f"the {kind} covariate {name!r} is missing or not finite {count} times; the first is at row {row}. "
        "Fill it in, and add a column that marks where it was missing."
    )


def _require_rows(matrix: Matrix, ids: Ids, kind: Kind) -> None:
    if len(matrix) != len(ids):
        raise DataError(
            f"{kind}_features has {len(matrix):,} rows, but the log lists {len(ids):,} {kind}s; give one row for each, in the "
            f"order of log.{kind}s, or a frame with a column {kind}_id."
        )


def _require_finite(matrix: Matrix, names: Sequence[str], kind: Kind) -> None:
    bad: BoolVector = ~np.isfinite(matrix)
    if bad.any():
        place = int(bad.any(axis=0).argmax())
        raise _missing(names[place], int(bad[:, place].sum()), int(bad[:, place].argmax()), kind)


def _require_variety(varies: BoolVector, names: Sequence[str], size: int, kind: Kind) -> None:
    if not varies.all():
        raise UsageError(
            f"{int((~varies).sum())} of {len(names)} {kind} covariates are the same for all {size} {kind}s, which tells nothing; "
            f"the first is {names[int(varies.argmin())]!r}. Drop it."
        )


def _warn_of_ids(matrix: Matrix, names: Sequence[str], kind: Kind) -> None:
    """Whole numbers of which no two are alike are more often ids than anything that was measured."""
    for name, column in zip(names, matrix.T, strict=True):
        is_whole = bool((column == np.floor(column)).all())
        if column.size >= LIKE_IDS and is_whole and np.unique(column).size == column.size:
            warnings.warn(
                f"the {kind} covariate {name!r} is another whole number for each of {column.size} {kind}s, as ids are. If it "
                f"is the column of ids, call it {kind}_id; if it tells nothing of a {kind}, drop it.",
                PropensityWarning,
                stacklevel=2,
            )


def _distinct_rows(matrix: Matrix) -> tuple[Matrix, IntVector]:
    if matrix.shape[1] == 0:
        return np.empty((1, 0)), np.zeros(len(matrix), dtype=np.int32)
    values, profile = np.unique(matrix, axis=0, return_inverse=True)
    return values, profile.ravel().astype(np.int32)
