"""Propensities by logistic regression on covariates, with offsets of users and items."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Literal, Self, TypeAlias, get_args

import numpy as np
import numpy.typing as npt
from scipy.special import expit, log_expit

from unskew.data.checks import is_finite_number, whole_number
from unskew.data.ids import Ids, format_id
from unskew.data.ratings import Ratings
from unskew.data.universe import UniverseLike
from unskew.errors import DataError, PropensityWarning, UnknownNameError, UsageError
from unskew.progress import progress_line
from unskew.propensity.covariate.cells import Unobserved, draw_cells, require_unobserved
from unskew.propensity.covariate.covariates import CovariatePropensity, are_marks
from unskew.propensity.covariate.design import Interactions, Side, named_coefficients, term_names
from unskew.propensity.covariate.likelihood import Maximum, Problem, maximize
from unskew.propensity.covariate.observations import Folds, Observations
from unskew.propensity.low_rank.bits import pair_products
from unskew.propensity.model import BLOCK_PAIRS, listed_universe
from unskew.tables import count_noun
from unskew.threads import Workers, single_blas_thread
from unskew.types import IntVector, Matrix, Vector

Report: TypeAlias = Callable[[str], None]
L2_GRID = tuple(float(f"{10**power:.3g}") for power in np.arange(4, -1.1, -0.5))
"""Penalties that ``l2="cv"`` tries."""
CHECKED_CELLS = 1 << 22
"""Cells drawn to set the intercept of a fit to sampled cells."""
ROUGH = 1e-2
"""Precision of the fits that only choose ``l2``, in standard errors."""
LARGE = 15.0
"""A coefficient that, without a penalty, is on its way to infinity."""
MOST_STEPS = 100


class LogisticPropensity(CovariatePropensity):
    """P = sigma(c + x_u.a + z_i.b + x_u M z_i' + gamma_u + beta_i): the paper's second model (Section 5.1).

        max  sum_O log P + sum_(D - O) log(1 - P)  -  l2 / 2 (||a||^2 + ||b||^2 + ||M||^2 + ||gamma||^2 + ||beta||^2)

    The intercept c is not penalised, so that the propensities of all cells add up to the number of observations.

    Parameters
    ----------
    user_features, item_features
        Covariates: an array, or a data frame of any library, with a row for each of ``log.users`` and ``log.items``, in their
        order; a frame with a column of ids (``user_id``, ``movieId``, ...) may be in any order. Numbers are brought to mean 0
        and variance 1 for the fit, unless they are 0 and 1 only; text and categories become a column of 0 and 1 a level.
    interactions
        ``"all"`` pairs of covariates: of a user's with an item's, and among a user's and among an item's own; ``"user-item"``
        only the first; ``"none"``.
    user_offsets, item_offsets
        A number gamma_u for each user, beta_i for each item, penalised like the rest. Items have one by default: what makes a
        thing popular is seldom all in its covariates.
    l2
        The penalty, 1 / C of scikit-learn: a number, or several of which the best is taken: that with the largest
        log-likelihood of cells held out in cross-validation. ``"cv"`` tries 0.1 to 10,000 in half powers of ten. Held out are
        whole users where users have no offsets, else whole items, else (both have offsets) blocks of users x items.
    n_folds
        Parts of that cross-validation.
    negatives
        None sums over all cells, at the cost of the distinct pairs of profiles (with offsets: of profile and number of
        ratings), and samples only where those are more than 50 million, three unobserved cells for each observed one. A number
        samples so many (case-control): logit P_sample = logit P - log s for a share s, which is taken off the intercept again.
        The intercept is then set so that P adds up to n over all cells, or over 4 million random ones where there are more.
    max_iter, tol
        Stop after so many steps, or when no coefficient would move by more than this part of its standard error.
    random_state
        Seed of the folds and of the sample.
    n_threads
        One for each processor by default; the result never depends on it.
    verbose
        Show a line of progress on standard error.

    Attributes
    ----------
    coefficients_ : all of them by name, for the covariates as given: ``"intercept"``, ``"user:age"``, ``"user:age x item:new"``.
    user_offset_, item_offset_ : gamma and beta, in the order of the log's users and items; their means are 0.
    l2_ : the penalty used; tried_l2_, held_out_ : those it was chosen from, and the log-likelihood of held-out cells for each.
    log_likelihood_ : of all cells, without the penalty; estimated where cells were sampled.
    expected_observations_ : the sum of P over all cells.
    sampled_share_ : the part of the unobserved cells that the fit has seen; 1 where it has seen all.
    converged_, n_iter_ : whether the last fit reached ``tol``, and its steps.

    Examples
    --------
    >>> from unskew.data.ratings import Ratings
    >>> log = Ratings.from_dense([[5, 0, 1], [4, 0, 0], [0, 3, 0], [2, 4, 0]])
    >>> model = LogisticPropensity(item_features=[[1], [1], [0]], item_offsets=False, l2=0).fit(log)
    >>> model.predict(log).round(3)  # 5 of the 8 cells of the first two items, 1 of the 4 cells of the last
    array([0.625, 0.25 , 0.625, 0.625, 0.625, 0.625])
    """

    coefficients_: dict[str, float]
    user_offset_: Vector
    item_offset_: Vector
    l2_: float
    tried_l2_: Vector
    held_out_: Vector
    log_likelihood_: float
    expected_observations_: float
    sampled_share_: float
    converged_: bool
    n_iter_: int
    intercept_: float
    user_profile_: IntVector
    item_profile_: IntVector
    user_effect_: Vector
    item_effect_: Vector
    user_crossed_: Matrix
    item_crossed_: Matrix

    def __init__(
        self,
        user_features: object = None,
        item_features: object = None,
        *,
        interactions: Interactions = "all",
        user_offsets: bool = False,
        item_offsets: bool = True,
        l2: float | Sequence[float] | Literal["cv"] = "cv",
        n_folds: int = 5,
        negatives: float | None = None,
        max_iter: int = 1000,
        tol: float = 1e-3,
        random_state: int = 0,
        n_threads: int | None = None,
        verbose: bool = False,
    ) -> None:
        self.user_features = user_features
        self.item_features = item_features
        self.interactions = interactions
        self.user_offsets = user_offsets
        self.item_offsets = item_offsets
        self.l2 = l2
        self.n_folds = n_folds
        self.negatives = negatives
        self.max_iter = max_iter
        self.tol = tol
        self.random_state = random_state
        self.n_threads = n_threads
        self.verbose = verbose

    def fit(self, log: Ratings, *, universe: UniverseLike = None) -> Self:
        """Learn which cells were observed. The log must list all users and items; ratings play no part."""
        penalties = self._check()
        size = listed_universe(log, universe)
        require_unobserved(log)
        of_users, of_items = self._covariates(log)
        user = Side.of(of_users, self.interactions, has_offset=self.user_offsets)
        item = Side.of(of_items, self.interactions, has_offset=self.item_offsets)
        draw_rng, fold_rng, check_rng = np.random.default_rng(self.random_state).spawn(3)
        cells = Observations.of(log, user, item, self.negatives, draw_rng)
        with (
            Workers(self.n_threads) as workers,
            single_blas_thread(),
            progress_line(self.verbose) as line,
        ):
            problem = cells.problem(workers)
            if penalties[-1] == 0:
                _require_maximum(problem, cells)
            self.l2_, self.held_out_ = penalties[0], np.empty(0)
            self.tried_l2_ = np.array(penalties)
            if len(penalties) > 1:
                self.held_out_ = self._held_out(
                    cells, Folds.of(self.n_folds, user, item, fold_rng), workers, line
                )
                self.l2_ = penalties[int(self.held_out_.argmax())]
            found = maximize(
                problem,
                self.l2_,
                start=problem.start(),
                max_iter=self.max_iter,
                tol=self.tol,
                report=line,
            )
            self._keep(cells, problem, found)
        self._remember(log, size)
        if cells.unobserved is not None:
            self._correct_for(cells.unobserved, log, check_rng)
        self._warn(found)
        return self

    @property
    def learns_users(self) -> bool:
        """Where users have offsets."""
        return bool(self.user_offsets)

    def _find_inconsistency(self) -> str | None:
        """Sizes that belong together."""
        sizes = {self.users_.size, self.user_offset_.size, self.user_profile_.size}
        sizes_of_items = {self.items_.size, self.item_offset_.size, self.item_profile_.size}
        if (
            len(sizes) > 1
            or len(sizes_of_items) > 1
            or self.user_crossed_.shape[1] != self.item_crossed_.shape[1]
        ):
            return "its users, items, offsets and covariates are of different numbers."
        if self.user_profile_.max() >= len(self.user_effect_) or self.item_profile_.max() >= len(
            self.item_effect_
        ):
            return "a profile is missing."
        return None

    def _predict_codes(self, user: IntVector, item: IntVector, rating: Vector | None) -> Vector:  # noqa: ARG002
        chances: Vector = expit(self._logits(user, item))
        return chances

    def _logits(self, user: IntVector, item: IntVector) -> Vector:
        profile, other = self.user_profile_[user], self.item_profile_[item]
        single = (
            self.user_effect_[profile]
            + self.user_offset_[user]
            + self.item_effect_[other]
            + self.item_offset_[item]
        )
        return (
            self.intercept_
            + single
            + pair_products(self.user_crossed_, self.item_crossed_, profile, other)
        )

    def _check(self) -> list[float]:
        """The penalties to try, strongest first."""
        if self.interactions not in get_args(Interactions):
            raise UnknownNameError("interactions", self.interactions, get_args(Interactions))
        if (
            self.user_features is None
            and self.item_features is None
            and not (self.user_offsets or self.item_offsets)
        ):
            raise UsageError(
                "LogisticPropensity has nothing to tell cells apart by: give user_features or item_features, or set "
                "user_offsets or item_offsets. UniformPropensity treats all cells alike."
            )
        whole_number("n_folds", self.n_folds, least=2)
        whole_number("max_iter", self.max_iter, least=1)
        whole_number("random_state", self.random_state, least=0)
        if self.negatives is not None and not (
            is_finite_number(self.negatives) and self.negatives > 0
        ):
            raise UsageError(
                f"negatives must be None or the sampled cells for each observed one, above 0; got {self.negatives!r}."
            )
        if not (is_finite_number(self.tol) and self.tol > 0):
            raise UsageError(f"tol must be a positive number; got {self.tol!r}.")
        return _penalties(self.l2)

    def _held_out(
        self, cells: Observations, folds: Folds, workers: Workers, line: Report
    ) -> Vector:
        """The log-likelihood of held-out cells for each penalty; each fit starts where the stronger penalty ended."""
        scores = np.zeros(self.tried_l2_.size)
        for training, held_out in cells.split(folds, workers):
            at = training.start()
            for place, l2 in enumerate(self.tried_l2_):
                at = maximize(
                    training,
                    l2,
                    start=at,
                    max_iter=self.max_iter,
                    tol=max(self.tol, ROUGH),
                    report=line,
                ).flat
                scores[place] += held_out.log_likelihood(at)[0]
        return scores

    def _keep(self, cells: Observations, problem: Problem, found: Maximum) -> None:
        at, user, item = problem.terms(found.flat), cells.user, cells.item
        user_offset = (
            at.user_offset[problem.user.member] if user.has_offset else np.zeros(cells.log.n_users)
        )
        item_offset = (
            at.item_offset[problem.item.member] if item.has_offset else np.zeros(cells.log.n_items)
        )
        at = replace(at, intercept=at.intercept + float(user_offset.mean() + item_offset.mean()))
        self.user_offset_, self.item_offset_ = (
            user_offset - user_offset.mean(),
            item_offset - item_offset.mean(),
        )
        self.intercept_, self.coefficients_ = at.intercept, named_coefficients(user, item, at)
        self.user_profile_, self.item_profile_ = user.covariates.profile, item.covariates.profile
        self.user_effect_, self.item_effect_ = user.design @ at.user, item.design @ at.item
        self.user_crossed_ = user.standard[:, : len(at.crossed)] @ at.crossed
        self.item_crossed_ = item.standard[:, : at.crossed.shape[1]]
        self.log_likelihood_, self.n_iter_, self.converged_ = (
            found.log_likelihood,
            found.n_iter,
            found.converged,
        )
        self.expected_observations_, self.sampled_share_ = (
            float(problem.masses(found.flat).by_user.sum()),
            1.0,
        )

    def _correct_for(self, sample: Unobserved, log: Ratings, rng: np.random.Generator) -> None:
        """Take the sampling off the intercept: log s, and the little that then keeps sum P from n; log L of all cells follows."""
        is_small = log.n_cells <= CHECKED_CELLS
        user, item = (
            np.divmod(np.arange(log.n_cells), log.n_items)
            if is_small
            else draw_cells(log, CHECKED_CELLS, rng)
        )
        logits = np.concatenate(list(self._logits_of(user, item)))
        shift = shift_to_mean(logits, len(log) / log.n_cells, start=float(np.log(sample.share)))
        self.intercept_ += shift
        self.coefficients_ = {
            **self.coefficients_,
            "intercept": self.coefficients_["intercept"] + shift,
        }
        self.expected_observations_ = float(expit(logits + shift).mean()) * log.n_cells
        seen = sum(float(log_expit(each).sum()) for each in self._logits_of(log.user, log.item))
        unseen = sum(
            float(log_expit(-each).sum()) for each in self._logits_of(sample.user, sample.item)
        )
        self.log_likelihood_, self.sampled_share_ = seen + unseen / sample.share, sample.share

    def _logits_of(self, user: IntVector, item: IntVector) -> Iterator[Vector]:
        for first in range(0, user.size, BLOCK_PAIRS):
            piece = slice(first, first + BLOCK_PAIRS)
            yield self._logits(user[piece], item[piece])

    def _warn(self, found: Maximum) -> None:
        if not found.converged:
            warnings.warn(
                f"the fit had not converged after {count_noun(found.n_iter, 'step')}; raise max_iter (now {self.max_iter}) "
                f"or l2 (now {self.l2_:g}).",
                PropensityWarning,
                stacklevel=3,
            )
        largest = float(np.abs(found.flat[1:]).max())
        if self.l2_ == 0 and largest > LARGE:
            warnings.warn(
                f"without a penalty, the largest coefficient is {largest:.3g}: some covariates tell observed from unobserved "
                "cells exactly (separation), and the likelihood has no maximum. Give l2 > 0, or drop them.",
                PropensityWarning,
                stacklevel=3,
            )


def shift_to_mean(logits: Vector, mean: float, *, start: float = 0.0) -> float:
    """The number to add to all logits for their sigma to have this mean: Newton's steps on the logarithm of the mean."""
    shift = start
    for _ in range(MOST_STEPS):
        chance = expit(logits + shift)
        gap = float(np.log(mean / chance.mean()))
        if abs(gap) < 1e-12:
            break
        slope = float((chance * (1 - chance)).sum() / chance.sum())
        shift += float(np.clip(gap / max(slope, 1e-3), -3, 3))
    return shift


def _penalties(l2: Any) -> list[float]:
    """The penalties that ``l2`` stands for, strongest first, so that each fit is a good start for the next."""
    if isinstance(l2, str):
        if l2 != "cv":
            raise UnknownNameError("l2", l2, ("cv",))
        return list(L2_GRID)
    tried = l2 if isinstance(l2, Iterable) else [l2]
    penalties = sorted(
        (float(each) if is_finite_number(each) and each >= 0 else _refuse(each) for each in tried),
        reverse=True,
    )
    if not penalties:
        raise UsageError("l2 lists no penalty to try. Give a number, several, or 'cv'.")
    return penalties


def _refuse(l2: object) -> float:
    raise UsageError(
        f"l2 must be a finite number, at least 0, several of them, or 'cv'; got {l2!r}."
    )


def _require_maximum(problem: Problem, cells: Observations) -> None:
    """Refuse what drives a coefficient to infinity where there is no penalty: a 0/1 term that was never or always observed."""
    n_users, n_items = cells.log.n_users, cells.log.n_items
    _require_offsets(
        np.bincount(cells.log.user, minlength=n_users), n_items, cells.log.users, cells.user, "user"
    )
    _require_offsets(
        np.bincount(cells.log.item, minlength=n_items), n_users, cells.log.items, cells.item, "item"
    )
    user, item, seen = problem.user, problem.item, problem.observed
    of_user, of_item = user.count @ user.design, item.count @ item.design
    crossed = np.outer(of_user[: user.n_crossed], of_item[: item.n_crossed]).ravel()
    possible = np.concatenate([of_user * n_items, of_item * n_users, crossed])
    observed = np.concatenate([seen.user, seen.item, seen.crossed.ravel()])
    marks_user, marks_item = (are_marks(units.design) for units in (user, item))
    crossed_marks = np.outer(marks_user[: user.n_crossed], marks_item[: item.n_crossed]).ravel()
    is_mark = np.concatenate([marks_user, marks_item, crossed_marks])
    stuck = is_mark & (possible > 0) & ((observed == 0) | (observed == possible))
    if stuck.any():
        place = int(stuck.argmax())
        name = list(term_names(cells.user, cells.item))[1 + place]
        raise DataError(
            f"{'none' if observed[place] == 0 else 'all'} of the {possible[place]:,.0f} cells with {name!r} were observed, "
            f"so that its coefficient is infinite without a penalty; {int(stuck.sum()) - 1} others are, too. Give l2 > 0, or "
            "drop the covariate."
        )


def _require_offsets(
    count: npt.NDArray[np.int64], most: int, ids: Ids, side: Side, kind: str
) -> None:
    stuck = (count == 0) | (count == most)
    if side.has_offset and stuck.any():
        place = int(stuck.argmax())
        raise DataError(
            f"{kind} {format_id(ids[place])} was observed {count[place]:,} times of {most:,}, so that its offset is infinite without "
            f"a penalty; {int(stuck.sum()) - 1} other {kind}s are alike. Give l2 > 0, or drop such {kind}s."
        )
