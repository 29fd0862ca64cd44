"""Propensities raked to the known totals of users and items."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, field
from typing import Literal, Self

import numpy as np
from scipy.special import wrightomega

from unskew.data.estimation import Estimation, TakenAsKnown
from unskew.data.ratings import Ratings
from unskew.data.universe import Universe, UniverseLike
from unskew.propensity import PROPENSITY_MODELS
from unskew.propensity.model import (
    PropensityModel,
    SampleLike,
    require_universe,
    warn_if_not_converged,
)
from unskew.propensity.wrapper import PropensityWrapper
from unskew.settings import Number, WholeNumber, setting
from unskew.types import ArrayShapes, IntVector, Vector

WITH_RIDGE = (
    "raking with a ridge leaves a part of the errors of the inner model, and with them a bias of "
    "unknown size"
)


@PROPENSITY_MODELS.declare(
    "raked",
    label="Raked",
    summary="Weights are adjusted to the known number of cells of each user and each item.",
    traits={"is_wrapper": True},
)
@dataclass(eq=False, repr=False)
class RakedPropensity(PropensityWrapper):
    """1 / P' = 1 + (1 / P - 1) r_u s_i, so that weights add up to the cells of users and items.

    Each user has I cells and each item U, so right weights add up to about I over the ratings of a
    user and to U over those of an item. Raking finds the factors r_u and s_i that make it so, and
    changes the odds of P as little as possible. P' lies in (0, 1]. It removes any error of the odds
    of P that is a product of a factor of the user and one of the item, and no other error: whether
    people rate what they like is still up to ``model``. Only ratings of the log are read, so any
    model can be wrapped.

    A user with few ratings has a noisy sum of weights even if P is right. A ``ridge`` shrinks
    log r_u and log s_i to 0; with ``"auto"`` it follows from the log. A side whose sums vary no
    more than by chance is left as it is. If some users (or items) have no rating, the others stand
    for them.

    Estimates with a ridge have no interval: what the ridge leaves of the errors of P is a bias of
    unknown size. In a simulation with 20 ratings of each user, intervals that left it out covered
    50 to 90 %. Without a ridge the error of the fit is found by refits to halves of the log, unless
    ``model`` is fitted beforehand or needs a random sample: then it is left out.

    Parameters
    ----------
    model
        The propensity model; if it is not fitted, a copy of it is.
    ridge
        The penalty of (log r_u)^2 / 2 as a share of the number of cells of a user, the same for
        items. 0 is exact raking, which sparse logs do not always allow. ``"auto"`` is the variance
        by chance of the sums of weights over the rest of their variance, for each side.
    max_iter, tol
        The fit stops after ``max_iter`` sweeps, or when no factor changes by more than ``tol``
        times itself.

    Attributes
    ----------
    model_ : the fitted inner model.
    user_factor_, item_factor_ : r and s; their product includes a common factor, which is in r.
    ridges_ : the ridge of users and of items; infinite for a side that is left as it is.
    largest_error_ : the largest relative error of the sum of the weights of a user or an item.
    n_iter_, converged_ : the number of sweeps, and whether the fit converged.
    """

    model: PropensityModel
    _: KW_ONLY
    ridge: float | Literal["auto"] = setting("auto", Number(least=0, allow_auto=True))
    max_iter: int = setting(500, WholeNumber(least=1))
    tol: float = setting(1e-8, Number(above=0))

    model_: PropensityModel = field(init=False)
    user_factor_: Vector = field(init=False)
    item_factor_: Vector = field(init=False)
    ridges_: tuple[float, float] = field(init=False)
    largest_error_: float = field(init=False)
    n_iter_: int = field(init=False)
    converged_: bool = field(init=False)

    @property
    def adjusts_for(self) -> str:
        """Users and items, and covariates if the inner model has them."""
        has_covariates = "covariates" in self.model.adjusts_for
        return "users, items and covariates" if has_covariates else "users and items"

    def fit(
        self, log: Ratings, *, universe: UniverseLike = None, mcar: SampleLike | None = None
    ) -> Self:
        """Fit the inner model if it is not fitted, then r and s."""
        self._check_settings()
        size = require_universe(log, universe)
        inner = self._fit_inner(log, mcar=mcar, universe=size)
        odds = 1.0 / inner._predict_log(log) - 1.0
        sides = (
            Margin.of(log.user, log.n_users, size),
            Margin.of(log.item, log.n_items, size),
        )
        total = size.n_cells - float(len(log))
        if self.ridge == "auto":
            scale = total / float(odds.sum()) if odds.any() else 1.0
            ridges = tuple(side.choose_ridge(1.0 + scale * odds) for side in sides)
        else:
            ridges = (float(self.ridge), float(self.ridge))
        fit = rake(odds, sides, (ridges[0], ridges[1]), total, self.max_iter, self.tol)
        self._record_log(log, size)
        self.model_, self.ridges_ = inner, (ridges[0], ridges[1])
        self.user_factor_, self.item_factor_ = fit.user_factor, fit.item_factor
        self.n_iter_, self.converged_ = fit.n_iter, fit.converged
        self.largest_error_ = max(side.largest_error(1.0 + fit.odds) for side in sides)
        warn_if_not_converged(
            self,
            remedy="Raise `max_iter`, or pass a larger `ridge`, such as 1: no weights may have "
            "these totals.",
        )
        return self

    def _predict_codes(self, user: IntVector, item: IntVector, rating: Vector | None) -> Vector:
        propensity = self.model_._predict_codes(user, item, rating)
        factor = _take_factor(self.user_factor_, user) * _take_factor(self.item_factor_, item)
        return propensity / (propensity + (1.0 - propensity) * factor)

    def _describe_unknown(self, kind: str) -> str | None:
        return self.model_._describe_unknown(kind)

    def _describe_estimation(self, log: Ratings, values: Vector) -> Estimation:
        """By refits if raking is exact. With a ridge there is no interval: its bias is unknown."""
        if self.ridges_ == (0.0, 0.0):
            return super()._describe_estimation(log, values)
        return TakenAsKnown(
            model=type(self).__name__,
            reason=WITH_RIDGE,
            sees_ratings=self.sees_ratings,
            has_interval=False,
        )

    def _arrays_with_expected_shapes(self) -> ArrayShapes:
        return {
            "user_factor": (self.user_factor_, (len(self.users_),)),
            "item_factor": (self.item_factor_, (len(self.items_),)),
        }


def _take_factor(factor: Vector, code: IntVector) -> Vector:
    """The factor of each code; 1 for the code -1, an unknown user or item."""
    return np.where(code >= 0, factor[code], 1.0)


@dataclass(frozen=True, slots=True, eq=False)
class Margin:
    """The users or the items of a log, and the total to which their weights shall add up."""

    code: IntVector
    """Of each rating."""
    n_ratings: Vector
    """Of each user or item."""
    total: float
    """The sum of weights of each one that has ratings: U I over their number."""

    @classmethod
    def of(cls, code: IntVector, n: int, universe: Universe) -> Margin:
        n_ratings = np.bincount(code, minlength=n).astype(np.float64)
        return cls(code, n_ratings, universe.n_cells / max(int((n_ratings > 0).sum()), 1))

    def add_up(self, values: Vector) -> Vector:
        """The sum of the values of each user or item."""
        sums: Vector = np.bincount(self.code, values, self.n_ratings.size).astype(np.float64)
        return sums

    def choose_ridge(self, weight: Vector) -> float:
        """The variance of sums of weights by chance, sum w (w - 1), over the rest of it.

        Both are relative to the squared total. A sum with the relative error x and the chance
        variance v is best corrected by x t / (t + v), where t is the rest of the variance.
        """
        has_ratings = self.n_ratings > 0
        error = self.add_up(weight)[has_ratings] / self.total - 1.0
        noise = float(self.add_up(weight * (weight - 1.0)).sum()) / self.total**2 / error.size
        rest = float(np.square(error).mean()) - noise
        return noise / rest if rest > 0 else np.inf

    def largest_error(self, weight: Vector) -> float:
        """The largest relative error of a sum of weights."""
        has_ratings = self.n_ratings > 0
        return float(np.abs(self.add_up(weight)[has_ratings] / self.total - 1.0).max())

    def solve(self, sums: Vector, ridge: float) -> Vector:
        """The factor exp(x) of each one with  sum e^x + ridge total x = total - n ratings."""
        if np.isinf(ridge):
            return np.ones_like(sums)
        target, can_move = np.maximum(self.total - self.n_ratings, 0.0), sums > 0
        safe = np.where(can_move, sums, 1.0)
        if ridge == 0:
            return np.where(can_move, target / safe, 1.0)
        scale = ridge * self.total
        root = target / scale - wrightomega(np.log(safe / scale) + target / scale)
        return np.where(can_move, np.exp(root), 1.0)


@dataclass(frozen=True, slots=True, eq=False)
class RakedOdds:
    """The factors, and the odds against observation that they lead to."""

    user_factor: Vector
    item_factor: Vector
    odds: Vector
    n_iter: int
    converged: bool


def rake(
    odds: Vector,
    sides: tuple[Margin, Margin],
    ridges: tuple[float, float],
    total: float,
    max_iter: int,
    tol: float,
) -> RakedOdds:
    """Solve users, items and their common factor in turn until nothing changes.

    Each sweep minimises the convex function  sum odds r s  -  sum (total - n) log r s  +  penalty
    by one block of its variables. ``total`` is the sum of all odds: U I minus the ratings.
    """
    users, items = sides
    user_factor, item_factor = np.ones(users.n_ratings.size), np.ones(items.n_ratings.size)
    common, has_common, n_iter, converged = 1.0, min(ridges) > 0, 0, False
    while n_iter < max_iter and not converged:
        n_iter += 1
        before = np.concatenate([user_factor * common, item_factor])
        by_item_factor = common * odds * item_factor[items.code]
        user_factor = users.solve(users.add_up(by_item_factor), ridges[0])
        by_user_factor = common * odds * user_factor[users.code]
        item_factor = items.solve(items.add_up(by_user_factor), ridges[1])
        if has_common:
            free = float((odds * user_factor[users.code] * item_factor[items.code]).sum())
            common = total / free if free > 0 else 1.0
        after = np.concatenate([user_factor * common, item_factor])
        converged = bool((np.abs(after - before) <= tol * np.abs(after)).all())
    raked = common * odds * user_factor[users.code] * item_factor[items.code]
    return RakedOdds(user_factor * common, item_factor, raked, n_iter, converged)
