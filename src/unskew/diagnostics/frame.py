"""``diagnose_frame``: the weights of a log that stays in a data frame, a database or a cluster."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

import numpy as np

from unskew.data.columns import find_column
from unskew.data.estimation import Estimation, TakenAsKnown, describe_assumption
from unskew.data.frames import (
    BACKENDS,
    LazyFrame,
    count_distinct,
    count_groups,
    count_missing,
    free_name,
    has_numbers,
    open_lazily,
)
from unskew.data.propensities import SMALLEST
from unskew.data.universe import Universe, UniverseLike, parse_universe, require_room
from unskew.diagnostics.coverage import Coverage
from unskew.diagnostics.diagnose import warn_of_problems
from unskew.diagnostics.result import Diagnosis, DiagnosisRow
from unskew.diagnostics.weighting import Counts, WeightDistribution
from unskew.errors import BadPropensityError, BadRatingError, EmptyLogError, UsageError
from unskew.propensity.model import PropensityModel
from unskew.tables import count_noun
from unskew.types import Vector

ColumnOrModel: TypeAlias = str | PropensityModel
MAX_DISTINCT = 1 << 22
"""The most distinct propensities that are fetched: as many as there may be items."""
NOT_MEASURED = (
    "fit, calibration, balance and tests of popularity, activity and ratings need the log in "
    "memory: call diagnose(log, ...) with a log of some users, with all of their rows"
)


def diagnose_frame(
    frame: object,
    propensity: Mapping[str, ColumnOrModel] | ColumnOrModel,
    *,
    user: str | None = None,
    item: str | None = None,
    rating: str | None = None,
    universe: UniverseLike = None,
) -> Diagnosis:
    """Examine the weights of propensities, and coverage, in pandas, polars, DuckDB or PySpark.

    These numbers are those of :func:`unskew.diagnose`. They are computed from the distinct
    propensities and how many rows have each, and from the numbers of different users and items.
    Only these are fetched, so the log may be larger than memory. What needs the log in memory is
    left out, and the notes of the result name it.

    Parameters
    ----------
    frame
        One row for each rating. Lazy frames are allowed.
    propensity
        The name of a column, or a model that was fitted with ``fit_frame``; or several of them by
        name. A column with more than 4 million distinct values raises an error.
    user, item, rating
        Names of the columns. By default they are found as in :meth:`unskew.Ratings.from_frame`.
    universe
        (n_users, n_items), or ``"log"`` if the users and items of the frame are all there are.

    Examples
    --------
    >>> import polars as pl
    >>> log = pl.LazyFrame(
    ...     {"user_id": [1, 1, 2], "item_id": [7, 8, 7], "propensity": [0.5, 0.25, 0.5]}
    ... )
    >>> diagnosis = diagnose_frame(log, "propensity", universe=(2, 2))
    >>> diagnosis["propensity"].weights.summary.mass
    8.0
    """
    opened, names = open_lazily(frame)
    counts = {
        role: _count_ids(opened, names[find_column(role, name, list(names))], role)
        for role, name in (("user", user), ("item", item))
    }
    size = _find_universe(universe, **counts)
    columns = {"user": user, "item": item, "rating": rating}
    rows = tuple(
        _measure(name, *_count_weights(opened, names, each, columns), size, each)
        for name, each in _name_sources(propensity).items()
    )
    n_users, n_items = (counts["user"], counts["item"])
    if size is not None:
        n_users, n_items = size.n_users, size.n_items
    coverage = Coverage(n_users, n_items, n_users - counts["user"], n_items - counts["item"])
    library = opened.implementation.value
    signs = warn_of_problems(rows, coverage)
    return Diagnosis(
        rows, coverage, size, (NOT_MEASURED,), signs, library if library in BACKENDS else None
    )


def _name_sources(
    propensity: Mapping[str, ColumnOrModel] | ColumnOrModel,
) -> dict[str, ColumnOrModel]:
    """Columns and models by name."""
    if isinstance(propensity, str):
        return {propensity: propensity}
    named = dict(propensity) if isinstance(propensity, Mapping) else {"model": propensity}
    bad = [name for name, each in named.items() if not isinstance(each, str | PropensityModel)]
    if bad or not named:
        raise UsageError(
            "`propensity` must be a column or a propensity model that was fitted with fit_frame, "
            "or several by name.",
            parameter="propensity",
            value=propensity,
            remedy="For values in memory call diagnose(log, ...).",
        )
    return {str(name): each for name, each in named.items()}


def _count_ids(frame: LazyFrame, column: str, role: str) -> int:
    n_missing = count_missing(frame, column)
    if n_missing:
        raise BadRatingError(
            f"the frame has {count_noun(n_missing, f'missing {role} id')}.",
            parameter=role,
            remedy=f"Drop these rows, or fill in {column!r}.",
        )
    return count_distinct(frame, column)


def _find_universe(universe: UniverseLike, *, user: int, item: int) -> Universe | None:
    if universe is None:
        return None
    if isinstance(universe, str) and universe == "log":
        return Universe(user, item)
    size = parse_universe(universe)
    require_room(size, user, item)
    return size


def _count_weights(
    frame: LazyFrame,
    names: Mapping[str, str],
    source: ColumnOrModel,
    columns: Mapping[str, str | None],
) -> tuple[Vector, Counts]:
    """The distinct weights 1/P, and how many rows have each."""
    if isinstance(source, str):
        name = names[find_column("propensity", source, list(names))]
        if not has_numbers(frame, name):
            raise BadPropensityError(
                f"propensities must be numbers; column {name!r} has other values.",
                parameter="propensity",
                value=source,
                remedy="Name a column of probabilities.",
            )
    else:
        name = free_name("propensity_of_model", names)
        frame = source.add_to_frame(frame, names, columns, name)
    counted = count_groups(frame, {"propensity": name}, most=MAX_DISTINCT + 1)
    if len(counted["number"]) > MAX_DISTINCT:
        raise UsageError(
            f"there are more than {MAX_DISTINCT:,} different propensities.",
            parameter="propensity",
            value=source if isinstance(source, str) else type(source).__name__,
            remedy="Diagnose a sample of the users, each with all of its rows, with diagnose(log).",
        )
    propensity = np.array([np.nan if p is None else p for p in counted["propensity"]], np.float64)
    number = np.array(counted["number"], np.int64)
    _require_probabilities(propensity, number)
    return 1.0 / propensity, number


def _require_probabilities(propensity: Vector, number: Counts) -> None:
    if not number.sum():
        raise EmptyLogError("the frame has no rows.", remedy="Check the filter or the file.")
    is_bad = ~((propensity >= SMALLEST) & (propensity <= 1))
    if is_bad.any():
        raise BadPropensityError(
            f"{number[is_bad].sum():,} of {number.sum():,} propensities are missing or outside "
            f"(0, 1]; one is {propensity[is_bad][0]:g}.",
            parameter="propensity",
            remedy="Drop these rows, or use propensities that are probabilities.",
        )


def _measure(
    name: str, weight: Vector, number: Counts, size: Universe | None, source: ColumnOrModel
) -> DiagnosisRow:
    estimation = None if isinstance(source, str) else _describe(source)
    return DiagnosisRow(
        name=name,
        weights=WeightDistribution.of_counts(
            weight,
            number,
            n_cells=None if size is None else size.n_cells,
            is_balanced=not isinstance(estimation, TakenAsKnown | None),
        ),
        assumption=describe_assumption(estimation),
        sees_ratings=None if estimation is None else estimation.sees_ratings,
    )


def _describe(model: PropensityModel) -> Estimation:
    """How the propensities were estimated; of a model without strata what is known of it."""
    try:
        return model.describe_frame().estimation
    except UsageError:
        return TakenAsKnown(
            model=type(model).__name__,
            sees_ratings=model.sees_ratings,
            adjusts_for=model.adjusts_for,
            reason="the propensities of the frame are not counted by stratum",
        )
