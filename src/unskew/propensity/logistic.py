"""Propensities by logistic regression on covariates, with offsets of users and items."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Any, Literal, Self, TypeAlias, get_args

import numpy as np
import numpy.typing as npt
from scipy.special import expit, log_expit

from unskew.data.cells import (
    all_or_sampled_cells,
    cell_numbers,
    fingerprint_cells,
    user_and_item,
)
from unskew.data.estimation import Estimation
from unskew.data.frames import LazyFrame
from unskew.data.ids import Ids, format_id
from unskew.data.logit_terms import CellTerms, LogitGrid
from unskew.data.offset_equations import OffsetCoefficients
from unskew.data.ratings import Ratings
from unskew.data.score_estimation import Offsets, Score
from unskew.data.universe import UniverseLike, parse_universe
from unskew.errors import DataError, PropensityWarning, UnknownNameError, UsageError
from unskew.progress import progress_line
from unskew.propensity import PROPENSITY_MODELS
from unskew.propensity.cell_likelihood import CellLikelihood, LikelihoodMaximum, maximize
from unskew.propensity.covariates import CovariateProfiles, CovariatePropensityModel, is_binary
from unskew.propensity.logistic_design import (
    CellFolds,
    Interactions,
    LogisticData,
    SideDesign,
    name_coefficients,
    name_terms,
)
from unskew.propensity.logistic_frame import (
    GroupCounts,
    add_group_propensities,
    require_group_settings,
)
from unskew.propensity.low_rank import pair_products, shift_to_total
from unskew.propensity.model import (
    BLOCK_PAIRS,
    require_listed_universe,
    require_unobserved,
    warn_if_not_converged,
)
from unskew.settings import Number, OneOf, WholeNumber, check_random_state, setting
from unskew.tables import join_words
from unskew.threads import Workers, single_blas_thread
from unskew.types import ArrayShapes, IntVector, Matrix, RandomState, Vector

Report: TypeAlias = Callable[[str], None]
RIDGE_GRID = tuple(float(f"{10**power:.3g}") for power in np.arange(4, -1.1, -0.5))
"""The penalties of ``ridge="cv"``, strongest first."""
MAX_CHECKED_CELLS = 1 << 22
"""Cells that are drawn to set the intercept of a fit to sampled cells."""
ROUGH_TOL = 1e-2
"""``tol`` of the fits that only choose the penalty."""
LARGE_COEFFICIENT = 15.0
"""Without a penalty, a coefficient beyond this is assumed to tend to infinity."""


def list_penalties(ridge: Any) -> list[float]:
    """The penalties to try, strongest first: each fit is a good start for the next one."""
    if isinstance(ridge, str):
        if ridge != "cv":
            raise UnknownNameError("ridge", ridge, ("cv",))
        return list(RIDGE_GRID)
    values = list(ridge) if isinstance(ridge, Iterable) and np.iterable(ridge) else [ridge]
    if not values:
        raise UsageError(
            "`ridge` is an empty list.",
            parameter="ridge",
            remedy="Pass a number, several numbers, or 'cv'.",
        )
    for value in values:
        Number(least=0)("ridge", value)
    return sorted(map(float, values), reverse=True)


def _check_ridge(name: str, value: object) -> None:  # noqa: ARG001
    list_penalties(value)


@PROPENSITY_MODELS.declare(
    "logistic",
    label="Logistic regression",
    summary="Covariates of users and items, all pairs of them, and offsets (Section 5.1).",
    traits={"takes_features": True},
)
@dataclass(eq=False, repr=False)
class LogisticPropensity(CovariatePropensityModel):
    """P = sigma(c + x_u.a + z_i.b + x_u M z_i' + g_u + h_i): the paper's model of Section 5.1.

        max  sum_O log P + sum_(D - O) log(1 - P)
             - ridge / 2 (||a||^2 + ||b||^2 + ||M||^2 + ||g||^2 + ||h||^2)

    The intercept c is not penalised, so the propensities of all cells add up to the number of
    observations.

    Parameters
    ----------
    user_features, item_features
        Covariates: an array or a data frame with one row for each of ``log.users`` or
        ``log.items``, in the same order. A frame with a column of ids (``user_id``, ``movieId``,
        ...) can be in any order. Numbers are standardised for the fit unless they are 0 and 1
        only; text and categories become one 0/1 column for each level.
    interactions
        Products of covariates: ``"user-item"`` multiplies those of users by those of items,
        ``"all"`` also those of users (items) by one another, ``"none"`` has no products.
    user_offsets, item_offsets
        Whether each user has a number g_u, and each item a number h_i, penalised like the rest.
        Items have one by default, because covariates seldom explain all of their popularity.
    ridge
        The penalty, 1 / C in scikit-learn: a number, or several, of which the one with the
        largest held-out log-likelihood is used. ``"cv"`` tries 0.1 to 10,000. Whole users are
        held out if users have no offsets, else whole items, or blocks of users x items if both
        have offsets.
    n_folds
        Folds of this cross-validation.
    negatives
        None sums over all cells. The cost is the number of distinct pairs of profiles (with
        offsets, of profile and number of ratings); above 50 million, three unobserved cells are
        sampled for each observed one. A number samples that many. A sample of a share s of the
        unobserved cells has logit P_sample = logit P - log s, which is corrected in the
        intercept. Then the intercept is changed until P adds up to n over all cells, or over
        4 million random cells if there are more.
    max_iter, tol
        Stop after this many iterations, or when no coefficient would move by more than this
        part of its standard error.
    random_state
        Seed of the folds and of the sample.
    n_threads
        One for each processor by default; the result does not depend on it.
    verbose
        Show progress on standard error.

    Attributes
    ----------
    coefficients_ : coefficients for covariates in the caller's units, by name: ``"intercept"``,
        ``"user:age"``, ``"user:age x item:new"``, ...
    user_offset_, item_offset_ : g and h, with mean 0.
    ridge_ : the penalty used.
    tried_ridges_, held_out_log_likelihood_ : the penalties that were tried, and their held-out
        log-likelihood.
    log_likelihood_ : of all cells, without the penalty; an estimate if cells were sampled.
    expected_observations_ : the sum of P over all cells.
    term_excess_, user_excess_, item_excess_ : the observed minus the expected sum of each term and
        offset; 0 without a penalty.
    sampled_share_ : the share of the unobserved cells in the fit; 1 if there was no sample.
    converged_, n_iter_ : whether the last fit reached ``tol``, and its iterations.
    group_ : after ``fit_frame`` the column of groups, or ``""``; else None.

    Examples
    --------
    5 of the 8 cells of the first two items were observed, and 1 of the 4 cells of the last:

    >>> from unskew.data.ratings import Ratings
    >>> log = Ratings.from_dense([[5, 0, 1], [4, 0, 0], [0, 3, 0], [2, 4, 0]])
    >>> features = [[1], [1], [0]]
    >>> model = LogisticPropensity(item_features=features, item_offsets=False, ridge=0).fit(log)
    >>> model.predict(log).values.round(3)
    array([0.625, 0.25 , 0.625, 0.625, 0.625, 0.625])
    """

    user_features: object = None
    item_features: object = None
    _: KW_ONLY
    interactions: Interactions = setting("all", OneOf(get_args(Interactions)))
    user_offsets: bool = False
    item_offsets: bool = True
    ridge: float | Sequence[float] | Literal["cv"] = setting("cv", _check_ridge)
    n_folds: int = setting(5, WholeNumber(least=2))
    negatives: float | None = setting(None, Number(above=0, allow_none=True))
    max_iter: int = setting(1000, WholeNumber(least=1))
    tol: float = setting(1e-3, Number(above=0))
    random_state: RandomState = setting(0, check_random_state)
    n_threads: int | None = setting(None, WholeNumber(least=1, allow_none=True))
    verbose: bool = False

    coefficients_: dict[str, float] = field(init=False)
    intercept_: float = field(init=False)
    user_offset_: Vector = field(init=False)
    item_offset_: Vector = field(init=False)
    user_profile_: IntVector = field(init=False)
    item_profile_: IntVector = field(init=False)
    user_effect_: Vector = field(init=False)
    item_effect_: Vector = field(init=False)
    user_crossed_: Matrix = field(init=False)
    item_crossed_: Matrix = field(init=False)
    user_design_: Matrix = field(init=False)
    item_design_: Matrix = field(init=False)
    n_crossed_: IntVector = field(init=False)
    term_excess_: Vector = field(init=False)
    user_excess_: Vector = field(init=False)
    item_excess_: Vector = field(init=False)
    fingerprint_: str = field(init=False)
    ridge_: float = field(init=False)
    tried_ridges_: Vector = field(init=False)
    held_out_log_likelihood_: Vector = field(init=False)
    log_likelihood_: float = field(init=False)
    expected_observations_: float = field(init=False)
    sampled_share_: float = field(init=False)
    converged_: bool = field(init=False)
    n_iter_: int = field(init=False)
    group_: str | None = field(init=False)

    @property
    def _has_groups(self) -> bool:
        """Whether the model was fitted to groups of users; files of earlier versions were not."""
        return getattr(self, "group_", None) is not None

    @property
    def learns_users(self) -> bool:
        """True if users have offsets."""
        return bool(self.user_offsets)

    @property
    def adjusts_for(self) -> str:
        """Users and items with offsets, and covariates if there are any."""
        parts = [f"{unit}s" for unit in ("user", "item") if getattr(self, f"{unit}_offsets")]
        if self.user_features is not None or self.item_features is not None:
            parts.append("covariates")
        return join_words(parts)

    def fit(self, log: Ratings, *, universe: UniverseLike = None) -> Self:
        """Learn which cells were observed. The log must list all users and items."""
        self._check_settings()
        self._require_log(log)
        size = require_listed_universe(log, universe)
        require_unobserved(len(log), size)
        has_offsets = self.user_offsets or self.item_offsets
        profiles = self._read_covariates(log, is_required=not has_offsets)
        user = SideDesign.build(profiles.user, self.interactions, has_offset=self.user_offsets)
        item = SideDesign.build(profiles.item, self.interactions, has_offset=self.item_offsets)
        sample_rng, fold_rng, check_rng = np.random.default_rng(self.random_state).spawn(3)
        data = LogisticData.prepare(log, user, item, self.negatives, sample_rng)
        with (
            Workers(self.n_threads) as workers,
            single_blas_thread(),
            progress_line(self.verbose) as report,
        ):
            likelihood = data.likelihood(workers)
            self._choose_ridge(data, likelihood, fold_rng, workers, report)
            maximum = self._maximize(data, likelihood, report)
        self._record_log(log, size)
        self.group_ = None
        if data.unobserved is not None:
            self._correct_for_sample(data, check_rng)
        warn_if_not_converged(
            self, remedy=f"Raise `max_iter` (now {self.max_iter}) or `ridge` (now {self.ridge_:g})."
        )
        self._warn_of_separation(float(np.abs(maximum.vector[1:]).max()))
        return self

    def fit_frame(  # type: ignore[override]
        self,
        frame: object,
        *,
        universe: UniverseLike,
        items: npt.ArrayLike,
        group: str | None = None,
        group_sizes: Mapping[Any, int] | None = None,
        item: str | None = None,
    ) -> Self:
        """Fit the model to a log that stays in its frame or database.

        Users of one group share their covariates, so the number of ratings of each group and item
        is all that is read. Without a group, all users are alike. The model needs one penalty
        above 0, no offsets of users and no sample.

        Parameters
        ----------
        frame
            An eager or lazy frame, or a relation, of any library that narwhals supports.
        universe
            (n_users, n_items).
        items
            The ids of all items, also of those without ratings, in the order of ``item_features``.
        group
            The column with the group of the row's user.
        group_sizes
            The number of users of each group, in the order of the rows of ``user_features``.
        item
            The column of items; found by its name by default.
        """
        self._check_settings()
        require_group_settings(self)
        counts = GroupCounts.read(frame, parse_universe(universe), items, group, group_sizes, item)
        return self._fit_counts(counts)

    def _fit_counts(self, counts: GroupCounts) -> Self:
        """Fit the model to the number of ratings of each group and item."""
        log = counts.log
        profiles = CovariateProfiles.read(self.user_features, log.users, "user")
        by_group = replace(profiles, size=counts.sizes)
        by_item = CovariateProfiles.read(self.item_features, log.items, "item")
        sides = (
            SideDesign.build(by_group, self.interactions, has_offset=False),
            SideDesign.build(by_item, self.interactions, has_offset=self.item_offsets),
        )
        data = LogisticData(log, *sides, None, log.rating)
        self.ridge_ = float(list_penalties(self.ridge)[0])
        self.tried_ridges_, self.held_out_log_likelihood_ = np.array([self.ridge_]), np.empty(0)
        with (
            Workers(self.n_threads) as workers,
            single_blas_thread(),
            progress_line(self.verbose) as report,
        ):
            self._maximize(data, data.likelihood(workers), report)
        self._record_frame(round(float(log.rating.sum())), counts.universe)
        self.users_, self.items_, self.group_ = log.users, log.items, counts.group
        warn_if_not_converged(
            self, remedy=f"Raise `max_iter` (now {self.max_iter}) or `ridge` (now {self.ridge_:g})."
        )
        return self

    def add_to_frame(
        self,
        frame: LazyFrame,
        names: Mapping[str, str],
        columns: Mapping[str, str | None],
        name: str,
    ) -> LazyFrame:
        """``frame`` with a column of propensities by the group and the item of the row."""
        self._require_fitted()
        if not self._has_groups:
            return super().add_to_frame(frame, names, columns, name)
        return add_group_propensities(self, self.group_ or "", frame, names, columns, name)

    def _find_codes(self, values: npt.ArrayLike, vocabulary: Ids, kind: str) -> IntVector:
        if kind == "user" and self._has_groups:
            raise UsageError(
                "this model was fitted to groups of users in a data frame, and does not know the "
                "group of a user.",
                remedy="Use predict_frame(frame), whose rows have the group; or fit it to a log.",
            )
        return super()._find_codes(values, vocabulary, kind)

    def _maximize(
        self, data: LogisticData, likelihood: CellLikelihood, report: Report
    ) -> LikelihoodMaximum:
        """Maximise with the chosen penalty, and store the result."""
        maximum = maximize(
            likelihood,
            self.ridge_,
            start=likelihood.start(),
            max_iter=self.max_iter,
            tol=self.tol,
            report=report,
        )
        self._record_fit(data, likelihood, maximum)
        return maximum

    def _predict_codes(self, user: IntVector, item: IntVector, rating: Vector | None) -> Vector:
        propensity: Vector = expit(self._logits(user, item))
        return propensity

    def _logits(self, user: IntVector, item: IntVector) -> Vector:
        user_profile, item_profile = self.user_profile_[user], self.item_profile_[item]
        effects = (
            self.user_effect_[user_profile]
            + self.user_offset_[user]
            + self.item_effect_[item_profile]
            + self.item_offset_[item]
        )
        crossed = pair_products(self.user_crossed_, self.item_crossed_, user_profile, item_profile)
        return self.intercept_ + effects + crossed

    def _logits_in_blocks(self, user: IntVector, item: IntVector) -> Iterator[Vector]:
        for first in range(0, user.size, BLOCK_PAIRS):
            block = slice(first, first + BLOCK_PAIRS)
            yield self._logits(user[block], item[block])

    def _choose_ridge(
        self,
        data: LogisticData,
        likelihood: CellLikelihood,
        rng: np.random.Generator,
        workers: Workers,
        report: Report,
    ) -> None:
        """Set the penalty; of several, the one with the largest held-out log-likelihood."""
        penalties = list_penalties(self.ridge)
        if penalties[-1] == 0:
            _require_finite_maximum(likelihood, data)
        self.ridge_, self.tried_ridges_ = penalties[0], np.array(penalties)
        self.held_out_log_likelihood_ = np.empty(0)
        if len(penalties) > 1:
            folds = CellFolds.draw(self.n_folds, data.user, data.item, rng)
            scores = self._score_penalties(data, folds, workers, report)
            self.ridge_, self.held_out_log_likelihood_ = penalties[int(scores.argmax())], scores

    def _score_penalties(
        self, data: LogisticData, folds: CellFolds, workers: Workers, report: Report
    ) -> Vector:
        """The held-out log-likelihood of each penalty.

        Each fit starts from the fit with the next stronger penalty.
        """
        scores = np.zeros(self.tried_ridges_.size)
        for training, held_out in data.split(folds, workers):
            vector = training.start()
            for index, ridge in enumerate(self.tried_ridges_):
                vector = maximize(
                    training,
                    ridge,
                    start=vector,
                    max_iter=self.max_iter,
                    tol=max(self.tol, ROUGH_TOL),
                    report=report,
                ).vector
                scores[index] += held_out.log_likelihood(vector)[0]
        return scores

    def _record_fit(
        self, data: LogisticData, likelihood: CellLikelihood, maximum: LikelihoodMaximum
    ) -> None:
        """Store what predictions need; offsets are centred, and their means go to the intercept."""
        terms, user, item = likelihood.split_terms(maximum.vector), data.user, data.item
        user_offset, item_offset = np.zeros(data.log.n_users), np.zeros(data.log.n_items)
        if user.has_offset:
            user_offset = terms.user_offset[likelihood.user.unit]
        if item.has_offset:
            item_offset = terms.item_offset[likelihood.item.unit]
        intercept = terms.intercept + float(user_offset.mean() + item_offset.mean())
        terms = replace(terms, intercept=intercept)
        self.user_offset_ = user_offset - user_offset.mean()
        self.item_offset_ = item_offset - item_offset.mean()
        self.intercept_, self.coefficients_ = intercept, name_coefficients(user, item, terms)
        self.user_profile_, self.item_profile_ = user.covariates.profile, item.covariates.profile
        self.user_effect_, self.item_effect_ = user.design @ terms.user, item.design @ terms.item
        self.user_crossed_ = user.standardized[:, : len(terms.crossed)] @ terms.crossed
        self.item_crossed_ = item.standardized[:, : terms.crossed.shape[1]]
        self.log_likelihood_, self.n_iter_ = maximum.log_likelihood, maximum.n_iter
        self.converged_, self.sampled_share_ = maximum.has_converged, data.sampled_share
        self._record_excess(data, likelihood, maximum.vector)

    def _record_excess(
        self, data: LogisticData, likelihood: CellLikelihood, vector: Vector
    ) -> None:
        """Store observed minus expected sums, and what the terms of all cells follow from."""
        gradient = likelihood.log_likelihood(vector)[1]
        self.expected_observations_ = likelihood.observed.intercept - float(gradient[0])
        excess = likelihood.split_terms(gradient)
        self.user_excess_, self.item_excess_ = (
            (offset / side.count)[side.unit] if side.has_offset else np.empty(0)
            for side, offset in (
                (likelihood.user, excess.user_offset),
                (likelihood.item, excess.item_offset),
            )
        )
        n_terms = gradient.size - excess.user_offset.size - excess.item_offset.size
        self.term_excess_ = gradient[:n_terms]
        self.user_design_, self.item_design_ = data.user.design, data.item.design
        self.n_crossed_ = np.array(excess.crossed.shape, dtype=np.int32)
        self.fingerprint_ = fingerprint_cells(
            cell_numbers(data.log.user, data.log.item, data.log.n_items)
        )

    def _describe_estimation(self, log: Ratings, values: Vector) -> Estimation:
        if self.sampled_share_ < 1:
            return super()._describe_estimation(log, values)
        grid = self._build_grid()
        users = self._find_codes(log.users, self.users_, "user")
        items = self._find_codes(log.items, self.items_, "item")
        user, item = users[log.user], items[log.item]
        is_same = fingerprint_cells(cell_numbers(user, item, len(self.items_))) == self.fingerprint_
        fields: dict[str, Any] = {
            "model": type(self).__name__,
            "n_parameters": len(grid.terms) + self.user_excess_.size + self.item_excess_.size,
            "learned": frozenset(
                unit
                for unit, excess in (("user", self.user_excess_), ("item", self.item_excess_))
                if excess.size
            ),
            "user": user,
            "item": item,
            "users": users,
            "items": items,
            "uncertainty": 1.0 - values,
            "n_fitted": self.n_observed_,
            "relation": self._relate(log, is_same),
            "grid": grid,
        }
        if not (self.user_excess_.size or self.item_excess_.size):
            return Score(excess=self.term_excess_, **fields)
        return Offsets(
            has_user=self.user_excess_.size > 0,
            has_item=self.item_excess_.size > 0,
            excess=OffsetCoefficients(
                self.user_excess_[None], self.item_excess_[None], self.term_excess_[None]
            ),
            **fields,
        )

    def _build_grid(self) -> LogitGrid:
        """P of all cells, by units of users and items with the same covariates and offset."""
        user_unit, user_row, user_offset = _group_units(self.user_profile_, self.user_offset_)
        item_unit, item_row, item_offset = _group_units(self.item_profile_, self.item_offset_)
        n_user_crossed, n_item_crossed = self.n_crossed_.tolist()
        return LogitGrid(
            terms=CellTerms.build(
                self.user_design_, self.item_design_, (n_user_crossed, n_item_crossed)
            ),
            user_unit=user_unit,
            item_unit=item_unit,
            user_row=user_row,
            item_row=item_row,
            row=self.intercept_ + self.user_effect_[user_row] + user_offset,
            column=self.item_effect_[item_row] + item_offset,
            left=self.user_crossed_[user_row],
            right=self.item_crossed_[item_row],
        )

    def _correct_for_sample(self, data: LogisticData, rng: np.random.Generator) -> None:
        """Correct the intercept and the log-likelihood of a fit to sampled cells.

        The intercept is lowered by about log s, such that the sum of P over all cells is n.
        """
        log, unobserved = data.log, data.unobserved
        cells = all_or_sampled_cells(log.n_cells, MAX_CHECKED_CELLS, rng)
        logits = np.concatenate(list(self._logits_in_blocks(*user_and_item(cells, log.n_items))))
        expected = len(log) * (logits.size / log.n_cells)
        start = float(np.log(self.sampled_share_))
        shift = shift_to_total(logits, expected, start=start, rtol=1e-12)
        self.intercept_ += shift
        intercept = self.coefficients_["intercept"] + shift
        self.coefficients_ = {**self.coefficients_, "intercept": intercept}
        self.expected_observations_ = float(expit(logits + shift).mean()) * log.n_cells
        sampled = user_and_item(unobserved, log.n_items)  # type: ignore[arg-type]
        observed_part, sampled_part = (
            sum(float(log_expit(sign * logits).sum()) for logits in self._logits_in_blocks(*codes))
            for sign, codes in ((1, (log.user, log.item)), (-1, sampled))
        )
        self.log_likelihood_ = observed_part + sampled_part / self.sampled_share_

    def _warn_of_separation(self, largest: float) -> None:
        if self.ridge_ == 0 and largest > LARGE_COEFFICIENT:
            warnings.warn(
                PropensityWarning(
                    f"without a penalty, the largest coefficient is {largest:.3g}: some "
                    "covariates separate observed from unobserved cells, so the likelihood has "
                    "no maximum.",
                    parameter="ridge",
                    remedy="Use `ridge` > 0, or drop these covariates.",
                ),
                stacklevel=3,
            )

    def _find_inconsistency(self) -> str | None:
        misfit = super()._find_inconsistency()
        if misfit is not None:
            return misfit
        for profile, effect in (
            (self.user_profile_, self.user_effect_),
            (self.item_profile_, self.item_effect_),
        ):
            if not 0 <= profile.min() <= profile.max() < len(effect):
                return "a profile is missing."
        return None

    def _arrays_with_expected_shapes(self) -> ArrayShapes:
        shapes: ArrayShapes = {"n_crossed": (self.n_crossed_, (2,))}
        n_crossed = self.user_crossed_.shape[-1]
        for role, n_ids in (("user", len(self.users_)), ("item", len(self.items_))):
            effect, design, excess = (
                getattr(self, f"{role}_{part}_") for part in ("effect", "design", "excess")
            )
            n_profiles = len(effect)
            shapes |= {
                f"{role}_offset": (getattr(self, f"{role}_offset_"), (n_ids,)),
                f"{role}_profile": (getattr(self, f"{role}_profile_"), (n_ids,)),
                f"{role}_effect": (effect, (n_profiles,)),
                f"{role}_crossed": (getattr(self, f"{role}_crossed_"), (n_profiles, n_crossed)),
                f"{role}_design": (design, (n_profiles, design.shape[-1])),
                f"{role}_excess": (excess, (n_ids if excess.size else 0,)),
            }
        return shapes


def _group_units(profile: IntVector, offset: Vector) -> tuple[IntVector, IntVector, Vector]:
    """The unit of each user (or item), and the profile and the offset of each unit."""
    distinct, unit = np.unique(np.column_stack([profile, offset]), axis=0, return_inverse=True)
    return unit.ravel().astype(np.int32), distinct[:, 0].astype(np.int32), distinct[:, 1]


def _require_finite_maximum(likelihood: CellLikelihood, data: LogisticData) -> None:
    """Raise an error if a coefficient would be infinite without a penalty.

    That is so for a 0/1 term whose cells were never, or always, observed.
    """
    log = data.log
    _require_finite_offsets(log.user, log.n_items, log.users, data.user)
    _require_finite_offsets(log.item, log.n_users, log.items, data.item)
    user, item, observed = likelihood.user, likelihood.item, likelihood.observed
    user_sums, item_sums = user.count @ user.design, item.count @ item.design
    n_cells = np.concatenate(
        [
            user_sums * log.n_items,
            item_sums * log.n_users,
            np.outer(user_sums[: user.n_crossed], item_sums[: item.n_crossed]).ravel(),
        ]
    )
    n_observed = np.concatenate([observed.user, observed.item, observed.crossed.ravel()])
    user_binary, item_binary = is_binary(user.design), is_binary(item.design)
    crossed = np.outer(user_binary[: user.n_crossed], item_binary[: item.n_crossed]).ravel()
    is_infinite = np.concatenate([user_binary, item_binary, crossed]) & (n_cells > 0)
    is_infinite &= (n_observed == 0) | (n_observed == n_cells)
    if is_infinite.any():
        index = int(is_infinite.argmax())
        name = name_terms(data.user, data.item)[1 + index]
        raise DataError(
            f"{'none' if n_observed[index] == 0 else 'all'} of the {n_cells[index]:,.0f} cells "
            f"with {name!r} were observed, so its coefficient is infinite without a penalty; "
            f"{int(is_infinite.sum()) - 1} other coefficients are infinite, too.",
            parameter="ridge",
            remedy="Use `ridge` > 0, or drop the covariate.",
        )


def _require_finite_offsets(code: IntVector, n_cells: int, ids: Ids, side: SideDesign) -> None:
    count, kind = np.bincount(code, minlength=len(ids)), side.covariates.kind
    is_infinite = (count == 0) | (count == n_cells)
    if side.has_offset and is_infinite.any():
        first = int(is_infinite.argmax())
        raise DataError(
            f"{kind} {format_id(ids[first])} was observed {count[first]:,} times of {n_cells:,}, "
            "so its offset is infinite without a penalty; so are those of "
            f"{int(is_infinite.sum()) - 1} other {kind}s.",
            parameter="ridge",
            remedy=f"Use `ridge` > 0, or drop such {kind}s.",
        )
