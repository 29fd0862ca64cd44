"""Models that wrap another propensity model: their base class, clipping and scaling."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, MISSING, dataclass, field, replace
from typing import Self

import numpy as np

from unskew.data.cells import iterate_cells, user_and_item
from unskew.data.estimation import Estimation, Replicates
from unskew.data.ratings import Ratings, require_log
from unskew.data.universe import Universe, UniverseLike
from unskew.errors import BadPropensityError, UsageError
from unskew.propensity import PROPENSITY_MODELS
from unskew.propensity.model import (
    McarPropensityModel,
    PropensityModel,
    SampleLike,
    require_listed_universe,
    require_universe,
)
from unskew.settings import (
    Number,
    WholeNumber,
    check_random_state,
    draw_seeds,
    fitted_state,
    setting,
)
from unskew.types import IntVector, RandomState, Vector


class PropensityWrapper(McarPropensityModel):
    """A propensity model made from another one, ``model``.

    A fitted inner model is used as it is. One that is not fitted stays so, and a copy is fitted.
    """

    model: PropensityModel
    model_: PropensityModel

    @property
    def sees_ratings(self) -> bool:
        return self.model.sees_ratings

    @property
    def adjusts_for(self) -> str:
        return self.model.adjusts_for

    @property
    def learns_users(self) -> bool:
        return self.model.learns_users

    def _check_settings(self) -> None:
        super()._check_settings()
        if not isinstance(self.model, PropensityModel):
            name = type(self).__name__
            raise UsageError(
                f"{name} wraps a propensity model; got {self.model!r}.",
                parameter="model",
                remedy=f"Pass one, such as {name}(PopularityPropensity(), ...).",
            )

    def _fit_inner(
        self, log: Ratings, *, mcar: SampleLike | None, universe: Universe
    ) -> PropensityModel:
        """The inner model, fitted to ``log`` unless it is fitted already."""
        model = self.model
        if not fitted_state(model):
            return fit_copy(model, log, mcar=mcar, universe=universe)
        if mcar is not None:
            raise UsageError(
                f"{model!r} is fitted already, so `mcar=...` would change nothing.",
                parameter="mcar",
                remedy="Wrap an unfitted model.",
            )
        model._require_fitted()
        for kind, fitted, logged in (
            ("user", model.users_, log.users),
            ("item", model.items_, log.items),
        ):
            if fitted.size and not np.array_equal(fitted, logged):
                raise UsageError(
                    f"{model!r} was fitted to {len(fitted):,} {kind}s, which are not the "
                    f"{len(logged):,} of this log in the same order.",
                    parameter="model",
                    remedy="Wrap an unfitted model, or list the same ids in both logs.",
                )
        return model

    def _find_inconsistency(self) -> str | None:
        for inner in self._inner_models():
            for kind in ("users", "items"):
                n_inner, n_own = len(getattr(inner, f"{kind}_")), len(getattr(self, f"{kind}_"))
                if n_inner not in (0, n_own):
                    return f"it has {n_own} {kind}, but the model inside has {n_inner}."
        return super()._find_inconsistency()

    def _inner_models(self) -> Sequence[PropensityModel]:
        """One model, or one for each fold."""
        return [self.model_]

    def _find_refit_obstacle(self) -> str | None:
        if fitted_state(self.model):
            return f"the {type(self.model).__name__} inside was fitted beforehand"
        return self.model._find_refit_obstacle()

    def _require_all_cells(self) -> None:
        """Raise an error if the inner model cannot predict unobserved cells."""
        if self.sees_ratings:
            raise UsageError(
                f"{type(self).__name__} needs the propensities of all cells, but "
                f"{type(self.model).__name__} needs the rating of a cell, and unobserved cells "
                "have none.",
                parameter="model",
                remedy="Wrap another model; to scale weights, use the snips estimator.",
            )


def fit_copy(
    model: PropensityModel, log: Ratings, *, mcar: SampleLike | None, universe: Universe
) -> PropensityModel:
    """A fitted copy of an unfitted model; ``mcar`` is only for models that can use it."""
    copy = type(model)(**model.get_params(deep=False))
    if isinstance(copy, McarPropensityModel):
        return copy.fit(log, universe=universe, mcar=mcar)
    if mcar is not None:
        raise UsageError(
            f"{type(model).__name__} does not use a random sample of ratings.",
            parameter="mcar",
            remedy="Leave `mcar=...` out.",
        )
    return copy.fit(log, universe=universe)


def assign_user_folds(n_users: int, *, n_folds: int, seed: int) -> IntVector:
    """The fold of each user: random, with sizes that differ by at most 1."""
    if n_folds > n_users:
        raise UsageError(
            f"`n_folds` must be at most the number of users, {n_users}; got {n_folds}.",
            parameter="n_folds",
        )
    return (np.random.default_rng(seed).permutation(n_users) % n_folds).astype(np.int32)


@PROPENSITY_MODELS.declare(
    "clipped",
    label="Clipped",
    summary="max(P, min_propensity): weights are at most 1 / min_propensity.",
    traits={"is_wrapper": True},
)
@dataclass(eq=False, repr=False)
class ClippedPropensity(PropensityWrapper):
    """max(P, min_propensity): weights of at most 1 / min_propensity, for a small bias.

    No other part of unskew clips propensities unless it is told to.

    Parameters
    ----------
    model
        The propensity model; if it is not fitted, a copy of it is.
    min_propensity
        The lower limit, in (0, 1].

    Attributes
    ----------
    model_ : the fitted inner model.
    share_clipped_ : share of the ratings of the fit whose propensity was raised.
    """

    model: PropensityModel
    _: KW_ONLY
    min_propensity: float = setting(MISSING, Number(above=0, most=1))

    model_: PropensityModel = field(init=False)
    share_clipped_: float = field(init=False)

    def fit(
        self, log: Ratings, *, universe: UniverseLike = None, mcar: SampleLike | None = None
    ) -> Self:
        """Fit the inner model if it is not fitted; ``mcar`` is passed on to it."""
        self._check_settings()
        size = require_universe(log, universe)
        self.model_ = self._fit_inner(log, mcar=mcar, universe=size)
        self._record_log(log, size)
        self.share_clipped_ = self.share_clipped(log)
        return self

    def share_clipped(self, log: Ratings) -> float:
        """The share of the ratings of ``log`` whose propensity is below the limit."""
        self._require_fitted()
        require_log(log)
        return float((self.model_._predict_log(log) < self.min_propensity).mean())

    def _predict_codes(self, user: IntVector, item: IntVector, rating: Vector | None) -> Vector:
        return np.maximum(self.model_._predict_codes(user, item, rating), self.min_propensity)

    def _describe_unknown(self, kind: str) -> str | None:
        return self.model_._describe_unknown(kind)

    def _describe_estimation(self, log: Ratings, values: Vector) -> Estimation:
        """That of the inner model; the propensity of a clipped cell does not vary."""
        unclipped = self.model_._predict_log(log)
        estimation = self.model_._describe_estimation(log, unclipped)
        inner = replace(estimation, model=type(self).__name__)
        if isinstance(inner, Replicates):
            refit = inner.refit
            return replace(inner, refit=lambda rows: np.maximum(refit(rows), self.min_propensity))
        return inner.with_fixed(unclipped < self.min_propensity)


@PROPENSITY_MODELS.declare(
    "scaled",
    label="Scaled",
    summary="min(1, k P), with k such that propensities add up to the number of ratings.",
    traits={"is_wrapper": True},
)
@dataclass(eq=False, repr=False)
class ScaledPropensity(PropensityWrapper):
    """min(1, k P), with k such that the propensities of all U I cells add up to n ratings.

    It turns scores that rank cells well into probabilities. The inner model predicts all cells,
    one block of users at a time, so it must support :meth:`predict_pairs`, and the log must list
    all users and items.

    Parameters
    ----------
    model
        The propensity model; if it is not fitted, a copy of it is.
    max_cells
        If there are more cells than this, the sum is estimated from this many cells, drawn
        uniformly. Its relative error is the coefficient of variation of P divided by
        ``sqrt(max_cells)``.
    random_state
        Seed of that draw.

    Attributes
    ----------
    model_ : the fitted inner model.
    scale_ : k.
    n_capped_ : cells whose propensity is 1 because of the limit; an estimate if cells are drawn.
    """

    model: PropensityModel
    _: KW_ONLY
    max_cells: int = setting(1 << 24, WholeNumber(least=1))
    random_state: RandomState = setting(0, check_random_state)

    model_: PropensityModel = field(init=False)
    scale_: float = field(init=False)
    n_capped_: int = field(init=False)

    def fit(
        self, log: Ratings, *, universe: UniverseLike = None, mcar: SampleLike | None = None
    ) -> Self:
        """Fit the inner model if it is not fitted, and find k: sum min(1, k P) = n ratings."""
        self._check_settings()
        size, seed = require_listed_universe(log, universe), draw_seeds(self.random_state)[0]
        self._require_all_cells()
        inner = self._fit_inner(log, mcar=mcar, universe=size)

        weight = size.n_cells / min(size.n_cells, self.max_cells)

        def split_at_cap(scale: float) -> CappedSum:
            n_capped = rest = 0.0
            rng = np.random.default_rng(seed)  # the same cells for every scale
            for cells in iterate_cells(
                size.n_users, size.n_items, max_cells=self.max_cells, rng=rng
            ):
                propensity = inner._predict_codes(*user_and_item(cells, size.n_items), None)
                is_below = scale * propensity < 1
                n_capped += weight * float(propensity.size - is_below.sum())
                rest += weight * float(propensity[is_below].sum())
            return CappedSum(n_capped, rest)

        scale, n_capped = scale_to_total(len(log), split_at_cap)
        self._record_log(log, size)
        self.model_, self.scale_, self.n_capped_ = inner, scale, round(n_capped)
        return self

    def _predict_codes(self, user: IntVector, item: IntVector, rating: Vector | None) -> Vector:
        return np.minimum(1.0, self.scale_ * self.model_._predict_codes(user, item, rating))

    def _describe_unknown(self, kind: str) -> str | None:
        return self.model_._describe_unknown(kind)


@dataclass(frozen=True, slots=True)
class CappedSum:
    """The effect of a scale k on scores s, split at k s = 1."""

    n_capped: float
    """How many scores have k s >= 1."""
    rest: float
    """The sum of the other scores s."""


def scale_to_total(total: float, split_at_cap: Callable[[float], CappedSum]) -> tuple[float, float]:
    """The k with ``sum min(1, k s) = total``, and how many scores it caps.

    ``split_at_cap(k)`` splits the scores at k s = 1. Newton's method from k = 0 is exact: the sum
    is concave and piecewise linear in k, so the steps approach the root from below and end on its
    piece.
    """
    scale, split = 0.0, split_at_cap(0.0)
    while split.rest > 0:
        scale = (total - split.n_capped) / split.rest
        next_split = split_at_cap(scale)
        if next_split.n_capped <= split.n_capped:
            return scale, split.n_capped
        split = next_split
    if split.n_capped < total * (1 - 1e-9):
        raise BadPropensityError(
            f"propensities cannot add up to {total:,.0f} ratings: only {split.n_capped:,.0f} "
            "cells have a propensity above 0.",
            remedy="Smooth the model to give other cells a positive propensity.",
        )
    return scale, split.n_capped
