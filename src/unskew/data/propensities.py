"""Propensities: the probability with which each logged cell was observed."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, runtime_checkable

import numpy as np
import numpy.typing as npt

from unskew.data.checks import float_array, row_numbers
from unskew.data.estimation import Estimation
from unskew.data.frames import (
    check_matrix_order,
    check_row_order,
    is_frame,
    open_frame,
    series_labels,
)
from unskew.data.ids import Ids, as_ids
from unskew.errors import BadPropensityError, UsageError
from unskew.settings import Number, describe, is_finite_number
from unskew.tables import html_table
from unskew.types import BoolVector, Vector

if TYPE_CHECKING:
    from unskew.data.ratings import Ratings

SMALLEST = 1e-100
"""A smaller propensity is refused: sums and squares of its inverse would overflow."""


@dataclass(frozen=True, slots=True, eq=False)
class Propensities:
    """P(O_ui = 1) for each observed cell, in the order of the log.

    Eq. (10) and (11) never read the propensities of unobserved cells.

    Examples
    --------
    >>> import numpy as np
    >>> propensities = Propensities(np.array([0.5, 0.1, 0.02]))
    >>> propensities.scaled(0.2).values    # of a random fifth of the log
    array([0.1  , 0.02 , 0.004])
    """

    values: Vector
    estimation: Estimation | None = None
    """How they were estimated, which intervals take into account; None if they are known."""
    share: float = 1.0
    """Of a part of a log: the probability with which ratings were drawn for it."""
    row_labels: Ids | None = None
    """The index of the caller's pandas Series, which must agree with that of the log; or None."""

    def __post_init__(self) -> None:
        values = float_array(self.values, "propensities", BadPropensityError)
        if values.ndim != 1:
            raise BadPropensityError(
                "propensities must form one column, in the order of the log; "
                f"got shape {values.shape}.",
                parameter="propensities",
                remedy="Pass one number for each row of the log.",
            )
        _require_valid(values, lambda row: f"row {row}")
        Number(above=0, most=1)("share", self.share)
        if self.estimation is not None and not isinstance(self.estimation, Estimation):
            raise BadPropensityError(
                f"`estimation` must say how the propensities were estimated; got "
                f"{describe(self.estimation)}.",
                parameter="estimation",
            )
        labels = series_labels(self.values)
        if self.row_labels is not None:
            labels = as_ids(self.row_labels, "row_labels")
        if labels is not None and len(labels) != values.size:
            raise BadPropensityError(
                f"`row_labels` has {len(labels)} labels for {values.size} propensities.",
                parameter="row_labels",
            )
        object.__setattr__(self, "row_labels", labels)
        object.__setattr__(self, "values", _read_only(values.copy()))

    @classmethod
    def _from_valid(
        cls,
        values: Vector,
        estimation: Estimation | None = None,
        share: float = 1.0,
        row_labels: Ids | None = None,
    ) -> Propensities:
        """From a new array that is known to be valid: nothing is checked or copied again."""
        propensities = object.__new__(cls)
        object.__setattr__(propensities, "values", _read_only(values))
        object.__setattr__(propensities, "estimation", estimation)
        object.__setattr__(propensities, "share", share)
        object.__setattr__(propensities, "row_labels", row_labels)
        return propensities

    def __reduce__(self) -> tuple[Any, ...]:
        return Propensities, (self.values, self.estimation, self.share, self.row_labels)

    def __len__(self) -> int:
        return self.values.size

    def __array__(
        self, dtype: npt.DTypeLike | None = None, copy: bool | None = None
    ) -> npt.NDArray[np.generic]:
        if copy is None:  # which NumPy before 2.0 always asks for, and `np.array` does not know
            return np.asarray(self.values, dtype=dtype)
        return np.array(self.values, dtype=dtype, copy=copy)

    def __repr__(self) -> str:
        low, high = (self.values.min(), self.values.max()) if len(self) else (np.nan, np.nan)
        return f"Propensities({len(self):,} values, {low:.4g} to {high:.4g})"

    def _repr_html_(self) -> str:
        quantiles = {"smallest": 0.0, "10 %": 0.1, "median": 0.5, "90 %": 0.9, "largest": 1.0}
        columns = {
            name: [float(np.quantile(self.values, share))] if len(self) else []
            for name, share in quantiles.items()
        }
        origin = "known" if self.estimation is None else f"estimated by {self.estimation.model}"
        return f"<p>{escape(repr(self))}, {escape(origin)}</p>{html_table(columns)}"

    @property
    def inverse(self) -> Vector:
        """1 / P: the number of cells that each observed cell represents."""
        return 1.0 / self.values

    def take(self, rows: npt.NDArray[np.integer] | BoolVector) -> Propensities:
        """The propensities of ``log.take(rows)``; rows are distinct indices, or a mask."""
        numbers = row_numbers(rows, len(self))
        estimation = self.estimation and self.estimation.take(numbers)
        labels = None if self.row_labels is None else self.row_labels[numbers]
        return Propensities._from_valid(self.values[numbers], estimation, self.share, labels)

    def scaled(self, share: float) -> Propensities:
        """``share * P``: the propensities of a random part of the log, such as a test set."""
        if not (is_finite_number(share) and 0 < share <= 1):
            raise UsageError(
                f"share must lie in (0, 1]: the part of the log that was kept; got {share!r}.",
                parameter="share",
                value=share,
            )
        values, whole = share * self.values, share * self.share
        return Propensities(values, self.estimation, whole, self.row_labels)

    def as_known(self) -> Propensities:
        """The same values, taken as known: intervals leave out the error of their estimation."""
        return Propensities._from_valid(self.values, None, self.share, self.row_labels)

    def follow(self, log: Ratings) -> Propensities:
        """The propensities of a part of the log, from those of its rows or of the whole log."""
        from unskew.data.ratings import require_log

        require_log(log)
        part, propensities = log.part, self
        if part is None:
            return self
        if len(self) == part.n_whole != len(log):
            propensities = self.take(part.rows)
        if propensities.share == part.share or len(propensities) != len(log):
            return propensities
        values = propensities.values * (part.share / propensities.share)
        _require_valid(values, log.name_cell)
        labels = propensities.row_labels
        return Propensities._from_valid(values, propensities.estimation, part.share, labels)


@runtime_checkable
class PropensityPredictor(Protocol):
    """A fitted model of how the log was selected."""

    def predict(self, log: Ratings, /) -> Propensities | npt.ArrayLike:
        """One propensity for each cell of ``log``, in its order.

        :class:`Propensities` may say how they were estimated; an array is taken as known.
        """
        ...


PropensitiesLike: TypeAlias = Propensities | PropensityPredictor | npt.ArrayLike


def as_propensities(log: Ratings, propensities: PropensitiesLike) -> Propensities:
    """One propensity for each cell of ``log``.

    ``propensities`` has values in the order of the log, or is a U x I matrix or a fitted model. If
    ``log`` is a part of a split, they are the propensities of the whole log, of all its rows or of
    those of the part, and are multiplied by the share of the part.
    """
    from unskew.data.ratings import require_log

    require_log(log)
    if isinstance(propensities, Propensities):
        followed = propensities.follow(log)
        if len(followed) == len(log):
            check_row_order(
                followed.row_labels,
                log.row_labels,
                what="the propensities",
                parameter="propensities",
                error=BadPropensityError,
                of_whole=propensities.row_labels,
            )
            return followed
    if isinstance(propensities, PropensityPredictor):
        _require_predict_log(propensities, log)
        return as_propensities(log, propensities.predict(log))
    if is_frame(propensities) and open_frame(propensities).shape != (log.n_users, log.n_items):
        raise BadPropensityError(
            f"a data frame of {open_frame(propensities).shape[1]} columns does not say which one "
            "holds the propensities.",
            parameter="propensities",
            remedy="Pass that column alone, such as frame['propensity'], in the order of the log.",
        )
    try:
        values = float_array(propensities, "propensities", BadPropensityError)
    except BadPropensityError as error:
        error.remedy = (
            "Pass one number for each row of the log, or a fitted model, such as "
            "NaiveBayesPropensity().fit(log, mcar=random_ratings)."
        )
        raise
    if values.ndim == 2 and values.shape == (log.n_users, log.n_items):
        check_matrix_order(propensities, log.users, log.items, parameter="propensities")
        values = values[log.user, log.item]
    labels = of_whole = series_labels(propensities)
    if log.part is not None and values.shape == (log.part.n_whole,):
        values = values[log.part.rows]
        labels = None if labels is None else labels[log.part.rows]
    if values.shape != (len(log),):
        raise BadPropensityError(
            f"got propensities of shape {values.shape} for a log of {len(log)} ratings.",
            parameter="propensities",
            remedy="Give one for each row of the log, in its order, or a matrix of shape "
            f"{(log.n_users, log.n_items)}.",
        )
    check_row_order(
        labels,
        log.row_labels,
        what="the propensities",
        parameter="propensities",
        error=BadPropensityError,
        of_whole=of_whole,
    )
    _require_valid(values, log.name_cell)
    return Propensities._from_valid(values.copy()).follow(log)


def _require_predict_log(model: PropensityPredictor, log: Ratings) -> None:
    """Raise an error if ``model.predict(log)`` is not a valid call."""
    try:
        inspect.signature(model.predict).bind(log)
    except TypeError as error:
        raise BadPropensityError(
            f"{type(model).__name__}.predict cannot be called as predict(log): {error}.",
            parameter="propensities",
            remedy="A propensity model has a method predict(log) that returns one propensity for "
            "each row of the log; wrap a model of (users, items) in such a class.",
        ) from error
    except ValueError:  # a compiled method without a signature
        return


def _require_valid(values: Vector, name_cell: Callable[[int], str]) -> None:
    """Raise an error unless all values lie in [SMALLEST, 1]."""
    if not values.size or (values.min() >= SMALLEST and values.max() <= 1):  # NaN is neither
        return
    for is_bad, problem, remedy in (
        (
            np.isnan(values),
            "are missing (NaN)",
            "Predict those too, or drop their rows with log.take(rows).",
        ),
        (
            values > 1,
            "lie outside (0, 1], above 1",
            "Percentages? Divide by 100. Inverse weights? Pass 1/w.",
        ),
        (
            values < SMALLEST,
            f"lie outside (0, 1], at 0 or less, or are too small to invert (below {SMALLEST:g})",
            "Drop cells that can never be observed, and pass the true probability of the others; "
            "limit large weights with `weight_transform=Clip(...)`.",
        ),
    ):
        if is_bad.any():
            row = int(is_bad.argmax())
            raise BadPropensityError(
                f"{int(is_bad.sum())} of {is_bad.size} propensities {problem}; "
                f"the first is {values[row]} at {name_cell(row)}.",
                parameter="propensities",
                value=float(values[row]),
                where=name_cell(row),
                remedy=remedy,
            )


def _read_only(array: Vector) -> Vector:
    array.setflags(write=False)
    return array
