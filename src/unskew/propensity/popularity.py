"""Propensities from counts: of the whole log, of each item, of each user."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, Literal, Self, TypeAlias

import numpy as np

from unskew.data.columns import find_column
from unskew.data.estimation import Estimation, FrameStrata, Strata
from unskew.data.frames import (
    LazyFrame,
    capped_product,
    constant_column,
    count_column,
    count_occurrences,
    count_sizes,
    count_values,
    free_name,
    open_lazily,
)
from unskew.data.ids import Ids, as_ids, encode
from unskew.data.ratings import Ratings
from unskew.data.score_estimation import Margins
from unskew.data.universe import Universe, UniverseLike
from unskew.errors import UniverseError, UsageError
from unskew.propensity import PROPENSITY_MODELS
from unskew.propensity.model import (
    PropensityModel,
    empty_frame_error,
    require_frame_universe,
    require_universe,
)
from unskew.propensity.wrapper import CappedSum, scale_to_total
from unskew.settings import Number, OneOf, setting
from unskew.tables import count_noun, join_words
from unskew.types import ArrayShapes, IntVector, Vector

By: TypeAlias = Literal["item", "user", "both"]
ROLES: Mapping[str, tuple[str, ...]] = {
    "item": ("item",),
    "user": ("user",),
    "both": ("user", "item"),
}
"""Whose ratings are counted, for each value of ``by``."""
ALL_VALUES = (1 << 31) - 1
"""A limit on the number of rows that every data frame library accepts."""


@PROPENSITY_MODELS.declare(
    "uniform",
    label="Uniform",
    summary="The density of the log for every cell; SNIPS is then the naive average.",
)
@dataclass(eq=False, repr=False)
class UniformPropensity(PropensityModel):
    """P = n / (U I): the same for every cell, which makes SNIPS the naive average."""

    @property
    def adjusts_for(self) -> str:
        """Empty, because all cells have the same propensity."""
        return ""

    def fit(self, log: Ratings, *, universe: UniverseLike = None) -> Self:
        """Count the ratings of the log."""
        self._record_log(log, require_universe(log, universe))
        return self

    def _predict_codes(self, user: IntVector, item: IntVector, rating: Vector | None) -> Vector:
        return np.full(user.size, self.n_observed_ / self.n_cells_)

    def _describe_unknown(self, kind: str) -> str | None:
        return ""

    def add_to_frame(
        self,
        frame: LazyFrame,
        names: Mapping[str, str],
        columns: Mapping[str, str | None],
        name: str,
    ) -> LazyFrame:
        """``frame`` with the same propensity in each row."""
        self._require_fitted()
        return constant_column(frame, self.n_observed_ / self.n_cells_, name)

    def describe_frame(self) -> FrameStrata:
        """One stratum of all cells."""
        self._require_fitted()
        return FrameStrata(
            estimation=Estimation(
                model=type(self).__name__, n_parameters=1, adjusts_for=self.adjusts_for
            ),
            kind="all",
            n_observed=self.n_observed_,
            propensity=np.array([self.n_observed_ / self.n_cells_]),
            count=np.array([float(self.n_observed_)]),
        )

    def _describe_estimation(self, log: Ratings, values: Vector) -> Estimation:
        return Strata(
            model=type(self).__name__,
            n_parameters=1,
            group=np.zeros(len(log), dtype=np.int32),
            n_observed=np.array([float(self.n_observed_)]),
            propensity=np.array([self.n_observed_ / self.n_cells_]),
            kind="all",
            relation=self._relate(log, len(log) == self.n_observed_),
        )


@dataclass(frozen=True, slots=True)
class CountedFrame:
    """The frame a model was fitted to, with its columns of users and items."""

    frame: LazyFrame
    names: Mapping[str, str]
    """What the caller's columns are called in ``frame``."""
    columns: Mapping[str, str]
    """The caller's column for ``"user"`` and ``"item"``, if it is counted."""

    def count_ids(self, role: str) -> tuple[Ids, Vector]:
        """The sorted ids of users or items, and the number of rows of each."""
        count_by_id = count_values(self.frame, self.names[self.columns[role]], most=ALL_VALUES)
        codes, ids = encode(as_ids(list(count_by_id)))
        counts = np.empty(len(ids))
        counts[codes] = list(count_by_id.values())
        return ids, counts


@PROPENSITY_MODELS.declare(
    "popularity",
    label="Popularity",
    summary="Proportional to the number of ratings of the item, of the user, or of both.",
)
@dataclass(eq=False, repr=False)
class PopularityPropensity(PropensityModel):
    """P_ui = min(1, k a_u b_i), with k such that all U I propensities add up to n ratings.

    With ``by="item"``, ``a_u = 1`` and ``b_i = (n_i + smoothing) ** power`` for an item with n_i
    ratings; with ``by="user"`` the other way round; with ``by="both"`` both are counted. With
    power 1 and no smoothing, P is n_i / U, n_u / I or n_u n_i / n, if none of these exceeds 1.

    Parameters
    ----------
    by
        Whose ratings are counted: ``"item"``, ``"user"`` or ``"both"``.
    power
        A power below 1 reduces the differences. Implicit-feedback models often use 0.5.
    smoothing
        Added to every count. Without it, an item (user) without ratings has propensity 0. With
        it, users and items of the universe that the log does not list have a share of the sum.

    Attributes
    ----------
    user_score_, item_score_ : a_u and b_i, up to a factor; empty if they are 1 for all.
    largest_ : the largest count plus the smoothing, of users and items, if they are counted.
    scale_ : k.
    n_capped_ : cells of the universe whose propensity is 1 because of the limit.
    """

    by: By = setting("item", OneOf(tuple(ROLES)))
    _: KW_ONLY
    power: float = setting(1.0, Number(above=0))
    smoothing: float = setting(0.0, Number(least=0))

    user_score_: Vector = field(init=False)
    item_score_: Vector = field(init=False)
    largest_: dict[str, float] = field(init=False)
    scale_: float = field(init=False)
    n_capped_: int = field(init=False)
    _counted_frame: CountedFrame | None = field(default=None, init=False)

    @property
    def learns_users(self) -> bool:
        """True if the ratings of users are counted."""
        return self.by != "item"

    @property
    def adjusts_for(self) -> str:
        """Users, items or both, as ``by`` says."""
        return join_words([f"{role}s" for role in ROLES[self.by]])

    def fit(self, log: Ratings, *, universe: UniverseLike = None) -> Self:
        """Count the ratings of items and users, and find the scale k."""
        self._check_settings()
        self._require_log(log)
        size = require_universe(log, universe)
        codes = {"user": (log.user, log.n_users), "item": (log.item, log.n_items)}
        counts = {}
        for role in ROLES[self.by]:
            code, n_listed = codes[role]
            counts[role] = np.bincount(code, minlength=n_listed).astype(np.float64)
        distinct = {role: np.unique(values, return_counts=True) for role, values in counts.items()}
        self._find_scale(len(log), size, distinct)
        self._set_scores(counts)
        self._record_log(log, size)
        self._counted_frame = None
        return self

    def fit_frame(
        self,
        frame: object,
        *,
        universe: UniverseLike = None,
        user: str | None = None,
        item: str | None = None,
    ) -> Self:
        """Fit the model to a log that stays in its frame or database.

        Only the numbers of users and items with 1, 2, ... ratings are fetched. The counts of
        single ids are fetched when :meth:`predict` or :meth:`save` needs them.

        Parameters
        ----------
        frame
            An eager or lazy frame, or a relation, of any library that narwhals supports.
        universe
            (n_users, n_items) or ``"log"``.
        user, item
            Names of the columns of ids; found by common names by default.
        """
        self._check_settings()
        opened, names = open_lazily(frame)
        choice, distinct = {"user": user, "item": item}, {}
        for role, column in choice.items():
            if column is not None:
                find_column(role, column, list(names))
        columns = {role: find_column(role, choice[role], list(names)) for role in ROLES[self.by]}
        for role, column in columns.items():
            sizes = sorted(count_sizes(opened, names[column]).items())
            counts, times = np.array(sizes, dtype=np.int64).reshape(-1, 2).T
            distinct[role] = counts.astype(np.float64), times
        n_rows = int(counts @ times)
        if n_rows == 0:
            raise empty_frame_error()
        size = require_frame_universe(opened, names, universe, columns)
        self._find_scale(n_rows, size, distinct)
        self._set_scores({})
        self._record_frame(n_rows, size)
        self._counted_frame = CountedFrame(opened, names, columns)
        return self

    def add_to_frame(
        self,
        frame: LazyFrame,
        names: Mapping[str, str],
        columns: Mapping[str, str | None],
        name: str,
    ) -> LazyFrame:
        """``frame`` with a column of propensities, and one of each count that they depend on."""
        log = self._counted_frame
        if log is None:
            raise UsageError(
                "predicting for a frame needs a model that was fitted with fit_frame: the counts "
                "of users and items are read from that frame.",
                remedy="Call fit_frame(frame) first, or predict(log) for a model fitted to a log.",
            )
        factors = []
        for role, fitted_column in log.columns.items():
            default = fitted_column if fitted_column in names else None
            column = find_column(role, columns.get(role) or default, list(names))
            key, count = log.names[fitted_column], free_name(count_column(name, role), names)
            frame = count_occurrences(frame, names[column], log.frame, key, count)
            factors.append((count, self.smoothing, self.largest_[role], self.power))
        return capped_product(frame, factors, self.scale_, name)

    def describe_frame(self) -> FrameStrata:
        """Strata by item or by user, whose counts are in the frame."""
        if self.by == "both" or self.power != 1 or self.smoothing != 0:
            return super().describe_frame()
        return FrameStrata(
            estimation=Estimation(
                model=type(self).__name__,
                n_parameters=self.n_users_ if self.by == "user" else self.n_items_,
                adjusts_for=self.adjusts_for,
            ),
            kind=self.by,
            n_observed=self.n_observed_,
            has_limit=self.n_capped_ > 0,
        )

    def _find_scale(
        self, n_ratings: int, size: Universe, distinct: Mapping[str, tuple[Vector, Any]]
    ) -> None:
        """Find k from ascending counts of users and items, and how many of them have each."""
        scores = {}
        self.largest_ = {}
        for role, n_all in (("user", size.n_users), ("item", size.n_items)):
            values, times = np.ones(1), np.array([n_all])
            if role in distinct:
                counts, times = _count_all(*distinct[role], n_all, role)
                self.largest_[role] = float(counts[-1]) + self.smoothing
                values = self._score(counts, role)
            scores[role] = DistinctScores(values, times)
        scale, n_capped = scale_to_total(
            n_ratings, lambda k: sum_capped_products(scores["user"], scores["item"], k)
        )
        self.scale_, self.n_capped_ = scale, round(n_capped)

    def _score(self, counts: Vector, role: str) -> Vector:
        """(count + smoothing) ** power, relative to that of the largest count."""
        score: Vector = ((counts + self.smoothing) / self.largest_[role]) ** self.power
        return score

    def _set_scores(self, counts: Mapping[str, Vector]) -> None:
        self.user_score_, self.item_score_ = (
            self._score(counts[role], role) if role in counts else np.empty(0)
            for role in ("user", "item")
        )

    def _require_fitted(self) -> None:
        """Also fetch the counts of single ids if the model was fitted to a frame."""
        super()._require_fitted()
        log = self._counted_frame
        if log is not None and self.user_score_.size + self.item_score_.size == 0:
            counts = {}
            for role in log.columns:
                ids, counts[role] = log.count_ids(role)
                setattr(self, f"{role}s_", ids)
            self._set_scores(counts)

    def _find_inconsistency(self) -> str | None:
        for role in ROLES[self.by]:
            if role not in self.largest_:
                return f"the largest count of {role}s is missing."
        return super()._find_inconsistency()

    def _arrays_with_expected_shapes(self) -> ArrayShapes:
        roles = ROLES[self.by]
        return {
            "user_score": (self.user_score_, (len(self.users_) if "user" in roles else 0,)),
            "item_score": (self.item_score_, (len(self.items_) if "item" in roles else 0,)),
        }

    def _predict_codes(self, user: IntVector, item: IntVector, rating: Vector | None) -> Vector:
        user_score = self._find_scores(self.user_score_, user, "user")
        item_score = self._find_scores(self.item_score_, item, "item")
        return np.minimum(1.0, self.scale_ * (user_score * item_score))

    def _find_scores(self, scores: Vector, codes: IntVector, role: str) -> Vector | float:
        """The scores of users or items; -1 is one without ratings. 1 if they are not counted."""
        if not scores.size:
            return 1.0
        chosen: Vector = np.append(scores, self._score(np.zeros(1), role))[codes]
        return chosen

    def _describe_unknown(self, kind: str) -> str | None:
        if kind not in ROLES[self.by]:
            return ""
        return f"{kind}s without ratings" if self.smoothing > 0 else None

    def _describe_estimation(self, log: Ratings, values: Vector) -> Estimation:
        if self.power != 1 or self.smoothing != 0:
            return super()._describe_estimation(log, values)
        if self.by == "both":
            return self._describe_margins(log, values)
        ids, scores, group = (
            (self.users_, self.user_score_, log.user)
            if self.by == "user"
            else (self.items_, self.item_score_, log.item)
        )
        listed = log.users if self.by == "user" else log.items
        scores = scores[self._find_codes(listed, ids, self.by)]
        n_observed = scores * self.largest_[self.by]
        count = np.bincount(group, minlength=n_observed.size)
        is_same = len(log) == self.n_observed_ and np.array_equal(count, np.rint(n_observed))
        return Strata(
            model=type(self).__name__,
            n_parameters=int((n_observed > 0).sum()),
            learned=frozenset([self.by]),
            fixed=self.scale_ * scores[group] >= 1 if self.n_capped_ else None,
            group=group,
            n_observed=n_observed,
            propensity=np.minimum(1.0, self.scale_ * scores),
            kind=self.by,
            relation=self._relate(log, is_same),
        )

    def _describe_margins(self, log: Ratings, values: Vector) -> Margins:
        users = self._find_codes(log.users, self.users_, "user")
        items = self._find_codes(log.items, self.items_, "item")
        user, item = users[log.user], items[log.item]
        user_total, item_total = (
            np.rint(self.user_score_ * self.largest_["user"]),
            np.rint(self.item_score_ * self.largest_["item"]),
        )
        is_same = all(
            np.array_equal(np.bincount(code, minlength=total.size), total)
            for code, total in ((user, user_total), (item, item_total))
        )
        return Margins(
            model=type(self).__name__,
            n_parameters=int((user_total > 0).sum() + (item_total > 0).sum()) - 1,
            learned=frozenset(["user", "item"]),
            fixed=values >= 1 if self.n_capped_ else None,
            user=user,
            item=item,
            users=users,
            items=items,
            uncertainty=1.0 - values,
            n_fitted=self.n_observed_,
            relation=self._relate(log, is_same),
            user_total=user_total,
            item_total=item_total,
            scale=self.scale_ / (self.largest_["user"] * self.largest_["item"]),
        )


def _count_all(counts: Vector, times: Any, n_all: int, role: str) -> tuple[Vector, Any]:
    """Add the users or items without ratings to ascending counts and their frequencies."""
    n_listed = int(times.sum())
    if n_listed > n_all:
        raise UniverseError(
            f"the universe has {count_noun(n_all, role)}, but the log alone has "
            f"{count_noun(n_listed, role)}.",
            parameter="universe",
            remedy=f"Count every {role} that could have been in the log.",
        )
    if counts[0] == 0:
        return counts, np.append(times[0] + n_all - n_listed, times[1:])
    return np.append(0.0, counts), np.append(n_all - n_listed, times)


class DistinctScores:
    """Distinct scores in ascending order, and how often each occurs.

    Counts that add up to n have at most sqrt(2 n) distinct values, so there are few.
    """

    def __init__(self, value: Vector, times: Any) -> None:
        self.value, self.times = value, np.asarray(times, dtype=np.float64)
        self.times_below = np.concatenate([[0.0], np.cumsum(self.times)])
        self.sum_below = np.concatenate([[0.0], np.cumsum(self.times * value)])


def sum_capped_products(rows: DistinctScores, columns: DistinctScores, scale: float) -> CappedSum:
    """Split all products a_u b_i at ``scale * a_u * b_i = 1``.

    The split is found by a binary search among the b_i for each distinct a_u.
    """
    with np.errstate(divide="ignore", over="ignore"):  # a score of 0 is never capped
        limit = 1.0 / (scale * rows.value)
    first_capped = np.searchsorted(columns.value, limit, side="left")
    n_capped = rows.times * (columns.times_below[-1] - columns.times_below[first_capped])
    rest = rows.times * rows.value * columns.sum_below[first_capped]
    return CappedSum(float(n_capped.sum()), float(rest.sum()))
