"""Propensities from counts, for logs that stay where they are: the same models as for arrays, fitted by group-bys.

What is fetched has the size of a rating scale, or of the number of different counts; never that of a log, its users or its items.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from unskew.data.columns import find_column
from unskew.data.frames import (
    LazyFrame,
    add_column,
    capped_product,
    count_occurrences,
    count_sizes,
    count_values,
    look_up,
    open_lazily,
)
from unskew.data.universe import Universe, UniverseLike, parse_universe
from unskew.errors import BadRatingError, EmptyLogError, UniverseError, UsageError
from unskew.propensity.density import scale_to_total
from unskew.propensity.naive_bayes import (
    MOST_LEVELS,
    require_shares,
    smoothed_shares,
    warn_of_losses,
)
from unskew.propensity.popularity import By, Distinct, PopularityPropensity, capped_products
from unskew.propensity.sample import SampleLike, marginal_of
from unskew.types import Vector


@dataclass(frozen=True, slots=True)
class RatingPropensity:
    """P(O = 1 | Y = r) of each rating, as a table."""

    by_rating: Mapping[float, float]

    def apply(self, frame: object, *, rating: str | None = None, name: str = "propensity") -> Any:
        """The frame with a column of propensities, worked out by its own engine; null for a rating that is not in the table."""
        return add_column(
            frame,
            name,
            lambda opened, names: look_up(
                opened, names[find_column("rating", rating, list(names))], self.by_rating, name
            ),
        )


def fit_naive_bayes_frame(
    frame: object,
    *,
    mcar: SampleLike,
    universe: UniverseLike,
    rating: str | None = None,
    smoothing: float = 1.0,
) -> RatingPropensity:
    """Eq. (18): n_r / (U I pi_r), the n_r counted where the log is. See :class:`unskew.NaiveBayesPropensity`."""
    opened, names = open_lazily(frame)
    counted = count_values(
        opened, names[find_column("rating", rating, list(names))], most=MOST_LEVELS + 1
    )
    log_levels, log_counts = _numbers(counted)
    sample = marginal_of(mcar)
    levels = np.union1d(log_levels, sample.rating)
    if levels.size > MOST_LEVELS:
        raise UsageError(
            f"log and sample have more than {MOST_LEVELS} distinct ratings: they look continuous. Round them first."
        )
    observed = _spread(levels, log_levels, log_counts)
    share = smoothed_shares(
        _spread(levels, sample.rating, sample.weight), sample.is_share, smoothing
    )
    require_shares(levels, observed, share)
    n_cells = _universe(universe, opened, names, {}).n_cells
    ratio = np.divide(observed, n_cells * share, out=np.zeros(levels.size), where=share > 0)
    warn_of_losses(levels, observed, share, ratio)
    seen = observed > 0
    return RatingPropensity(
        dict(zip(levels[seen].tolist(), np.minimum(ratio, 1.0)[seen].tolist(), strict=True))
    )


def _numbers(counted: Mapping[Any, int]) -> tuple[Vector, Vector]:
    if not counted:
        raise EmptyLogError("the frame has no ratings. Check the filter or the file it came from.")
    try:
        values = np.array([float(value) for value in counted])
    except (TypeError, ValueError) as error:
        raise BadRatingError(f"ratings must be numbers: {error}.") from error
    if not np.isfinite(values).all():
        raise BadRatingError(
            "some ratings are NaN or infinite. Drop those rows: a cell without a rating is an unobserved cell."
        )
    order = np.argsort(values)
    return values[order], np.array(list(counted.values()), dtype=np.float64)[order]


def _spread(levels: Vector, some: Vector, weight: Vector) -> Vector:
    """Weights of some levels among all of them."""
    found = np.zeros(levels.size)
    found[np.searchsorted(levels, some)] = weight
    return found


@dataclass(frozen=True, slots=True)
class CountPropensity:
    """P_ui = min(1, k a_u b_i), where a and b are powers of counts in the log that it was fitted to."""

    scale: float
    """k."""
    power: float
    smoothing: float
    largest: Mapping[str, float]
    """By ``"user"`` and ``"item"``, for those that matter: the largest count, smoothed."""
    columns: Mapping[str, str] = field(repr=False)
    """The caller's names of these columns."""
    log: LazyFrame = field(repr=False)
    names: Mapping[str, str] = field(repr=False)

    def apply(
        self,
        frame: object,
        *,
        user: str | None = None,
        item: str | None = None,
        name: str = "propensity",
    ) -> Any:
        """The frame with a column of propensities, worked out by its own engine; 0 for what the log does not have, unsmoothed."""
        given = {"user": user, "item": item}

        def build(opened: LazyFrame, names: Mapping[str, str]) -> LazyFrame:
            for role in self.largest:
                column = find_column(role, given[role] or self._same(role, names), list(names))
                opened = count_occurrences(
                    opened,
                    names[column],
                    self.log,
                    self.names[self.columns[role]],
                    f"count_of_{role}",
                )
            factors = [
                (f"count_of_{role}", self.smoothing, largest, self.power)
                for role, largest in self.largest.items()
            ]
            return capped_product(opened, factors, self.scale, name)

        return add_column(frame, name, build)

    def _same(self, role: str, names: Mapping[str, str]) -> str | None:
        return self.columns[role] if self.columns[role] in names else None


def fit_popularity_frame(
    frame: object,
    *,
    universe: UniverseLike,
    by: By = "item",
    power: float = 1.0,
    smoothing: float = 0.0,
    user: str | None = None,
    item: str | None = None,
) -> CountPropensity:
    """min(1, k a_u b_i), the counts taken where the log is. See :class:`unskew.PopularityPropensity`."""
    PopularityPropensity(by, power=power, smoothing=smoothing).check_settings()
    opened, names = open_lazily(frame)
    roles = {"item": ("item",), "user": ("user",), "both": ("user", "item")}[by]
    columns = {
        role: find_column(role, {"user": user, "item": item}[role], list(names)) for role in roles
    }
    sizes = {role: count_sizes(opened, names[column]) for role, column in columns.items()}
    n_rows = sum(size * number for size, number in sizes[roles[0]].items())
    if n_rows == 0:
        raise EmptyLogError("the frame has no ratings. Check the filter or the file it came from.")
    space = _universe(universe, opened, names, columns)
    scores = {
        role: _scores(sizes.get(role), space, role, power, smoothing) for role in ("user", "item")
    }
    scale, _ = scale_to_total(n_rows, lambda k: capped_products(scores["user"], scores["item"], k))
    largest = {role: max(sizes[role]) + smoothing for role in roles}
    return CountPropensity(scale, power, smoothing, largest, columns, opened, names)


def _scores(
    sizes: Mapping[int, int] | None, space: Universe, role: str, power: float, smoothing: float
) -> Distinct:
    """Distinct (count + smoothing) ** power over the largest, of users or items, with how often each occurs; 1 without counts."""
    n_all = space.n_users if role == "user" else space.n_items
    if sizes is None:
        return Distinct.of(np.empty(0), 1.0, n_all)
    n_silent = n_all - sum(sizes.values())
    if n_silent < 0:
        raise UniverseError(
            f"the universe has {space}, but the log alone has {sum(sizes.values()):,} {role}s. Count all of them."
        )
    largest = max(sizes) + smoothing
    counts = np.array(sorted(sizes))
    number = np.array([sizes[size] for size in sorted(sizes)], dtype=np.float64)
    value = np.append((smoothing / largest) ** power, ((counts + smoothing) / largest) ** power)
    return Distinct(value, np.append(n_silent, number))


def _universe(
    given: UniverseLike, opened: LazyFrame, names: Mapping[str, str], columns: Mapping[str, str]
) -> Universe:
    if given is None:
        raise UniverseError(
            "propensities are shares of all cells, so a fit needs universe=(n_users, n_items), or universe='log'."
        )
    if isinstance(given, str) and given == "log":
        found = {
            role: columns.get(role) or find_column(role, None, list(names))
            for role in ("user", "item")
        }
        n_users, n_items = (
            sum(count_sizes(opened, names[found[role]]).values()) for role in ("user", "item")
        )
        return Universe(n_users, n_items)
    return parse_universe(given)
