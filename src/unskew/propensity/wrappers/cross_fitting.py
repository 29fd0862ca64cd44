"""Propensities of cells that the model has not seen."""

from __future__ import annotations

import warnings
from typing import Literal, Self, TypeAlias

import numpy as np

from unskew.data.checks import whole_number
from unskew.data.propensities import SMALLEST
from unskew.data.ratings import Ratings
from unskew.data.universe import Universe, UniverseLike
from unskew.errors import PropensityWarning, UnknownNameError, UsageError
from unskew.propensity.model import PropensityModel, known_universe
from unskew.propensity.sample import SampleLike
from unskew.propensity.wrappers.held_out import folds_of_cells, folds_of_users
from unskew.propensity.wrappers.wrapper import Wrapper, fit_copy, has_fitted_parts, require_model
from unskew.types import IntVector, Vector

Held: TypeAlias = Literal["user", "cell"]
HELD: tuple[Held, ...] = ("user", "cell")


class CrossFittedPropensity(Wrapper):
    """P_ui = P_ui^(-f) / (share of the cells left), where the model of fold f was fitted without user u, or without cell (u, i).

    Every cell has its fold, whether it is in the log or not, and the model of that fold takes the cells of the fold as
    unobserved; so the propensity of a cell never depends on whether that cell was observed. A cell is left in the training log
    by chance, (k - 1) / k, which is divided out again; values that this lifts above 1 are taken as 1, with a warning. That is
    exact for what is linear in counts, such as popularity and naive Bayes; a model of odds, such as a logistic one, is bent by
    it where propensities are not small against 1.

    Parameters
    ----------
    model
        The propensity model, unfitted.
    n_folds
        How many parts to hold out in turn.
    by
        ``"user"`` holds out whole users, which suits models of items, ratings and covariates; a model with parameters of each
        user needs ``"cell"``. None takes the one that suits the model.
    random_state
        Seed of the folds.
    """

    models_: tuple[PropensityModel, ...]
    """The model of each fold, fitted without it."""
    share_left_: Vector
    """What part of the cells each of them could see."""
    fold_of_user_: IntVector
    """The fold of each user; empty where cells are held out."""
    seed_: int
    n_capped_: int
    """Ratings of the fit whose propensity would be above 1."""

    def __init__(
        self,
        model: PropensityModel,
        *,
        n_folds: int = 5,
        by: Held | None = None,
        random_state: int = 0,
    ) -> None:
        self.model = model
        self.n_folds = n_folds
        self.by: Held | None = by
        self.random_state = random_state

    def fit(
        self, log: Ratings, *, mcar: SampleLike | None = None, universe: UniverseLike = None
    ) -> Self:
        """Fit the model once for each fold; ``mcar`` goes to each of them."""
        self._check_settings()
        space, seed = (
            known_universe(log, universe),
            whole_number("random_state", self.random_state, least=0),
        )
        of_user = (
            folds_of_users(log.n_users, n_folds=self.n_folds, seed=seed)
            if self._held == "user"
            else np.empty(0, np.int32)
        )
        fold = _fold(log.user, log.item, log.n_items, of_user, self.n_folds, seed)
        left = (
            1 - np.bincount(of_user, minlength=self.n_folds) / of_user.size
            if of_user.size
            else _even(self.n_folds)
        )
        models = tuple(
            self._fit_without(each, log, fold, mcar, space) for each in range(self.n_folds)
        )
        value = _held_out(models, left, fold, log.user, log.item, log.rating)
        self._judge(value, log, space)
        self._remember(log, space)
        self.models_, self.share_left_, self.fold_of_user_, self.seed_ = models, left, of_user, seed
        self.n_capped_ = int((value > 1).sum())
        return self

    def _find_inconsistency(self) -> str | None:
        """Whether each fold has a model, and each user a fold, once fitted."""
        if len(self.models_) != self.share_left_.size or self.fold_of_user_.size not in (
            0,
            len(self.users_),
        ):
            return "it does not have a model for each fold and a fold for each user."
        return None

    def _predict_codes(self, user: IntVector, item: IntVector, rating: Vector | None) -> Vector:
        fold = _fold(
            user, item, len(self.items_), self.fold_of_user_, len(self.models_), self.seed_
        )
        return np.minimum(_held_out(self.models_, self.share_left_, fold, user, item, rating), 1.0)

    def _fit_without(
        self,
        fold: int,
        log: Ratings,
        of_cell: IntVector,
        mcar: SampleLike | None,
        universe: Universe,
    ) -> PropensityModel:
        kept = of_cell != fold
        if not kept.any():
            raise UsageError(
                f"all {len(log)} ratings of the log fall into fold {fold}, which leaves none. Take fewer folds."
            )
        return fit_copy(self.model, log.take(kept), mcar=mcar, universe=universe)

    def _check_settings(self) -> None:
        require_model(self, self.model)
        whole_number("n_folds", self.n_folds, least=2)
        if self.by not in (None, *HELD):
            raise UnknownNameError("by", self.by, HELD)
        if has_fitted_parts(self.model):
            raise UsageError(
                f"{self.model!r} is fitted already, and has seen what is to be held out. Wrap an unfitted model."
            )

    @property
    def _held(self) -> Held:
        return self.by or ("cell" if self.model.learns_users else "user")

    def _advice(self) -> str:
        if self._held == "user" and self.model.learns_users:
            return (
                "It has parameters of each user, and knows nothing of one held out: take by='cell'."
            )
        return (
            f"Smooth the model, so that what only {self._held}s held out speak for keeps a chance."
        )

    def _judge(self, value: Vector, log: Ratings, universe: Universe) -> None:
        none = value < SMALLEST
        if none.any():
            raise UsageError(
                f"{int(none.sum())} of {none.size} ratings have no chance under a model that has not seen their {self._held}; "
                f"the first is at {log.name_cell(int(none.argmax()))}. {self._advice()}"
            )
        self._warn(int((value > 1).sum()), len(log), float((1 / value).sum()) / universe.n_cells)

    def _warn(self, n_capped: int, n_ratings: int, stands_for: float) -> None:
        if n_capped:
            warnings.warn(
                f"{n_capped} of {n_ratings} held-out propensities would be above 1 and are taken as 1.",
                PropensityWarning,
                stacklevel=4,
            )
        if stands_for > 2:
            warnings.warn(
                f"the log's inverse propensities stand for {stands_for:.3g} times as many cells as there are: the model says "
                f"little of what it has not seen. {self._advice()}",
                PropensityWarning,
                stacklevel=4,
            )


def _even(n_folds: int) -> Vector:
    return np.full(n_folds, 1 - 1 / n_folds)


def _fold(
    user: IntVector, item: IntVector, n_items: int, of_user: IntVector, n_folds: int, seed: int
) -> IntVector:
    if of_user.size:
        return of_user[user]
    return folds_of_cells(user.astype(np.int64) * n_items + item, n_folds=n_folds, seed=seed)


def _held_out(
    models: tuple[PropensityModel, ...],
    share_left: Vector,
    fold: IntVector,
    user: IntVector,
    item: IntVector,
    rating: Vector | None,
) -> Vector:
    """Each cell by the model of its fold, divided by the share of cells that the model could see. May pass 1."""
    value = np.empty(user.size)
    for each, model in enumerate(models):
        own = fold == each
        value[own] = (
            model._in_blocks(user[own], item[own], None if rating is None else rating[own])
            / share_left[each]
        )
    return value
