"""Propensities from models that have not seen the cell, or not the user."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Literal, Self, TypeAlias

import numpy as np
import numpy.typing as npt

from unskew.data.cells import cell_numbers, hash_cells
from unskew.data.propensities import SMALLEST
from unskew.data.ratings import Ratings
from unskew.data.universe import Universe, UniverseLike
from unskew.errors import PropensityWarning, UnknownNameError, UsageError
from unskew.propensity import PROPENSITY_MODELS
from unskew.propensity.model import PropensityModel, SampleLike, require_universe
from unskew.propensity.wrapper import PropensityWrapper, assign_user_folds, fit_copy
from unskew.settings import WholeNumber, check_random_state, draw_seeds, fitted_state, setting
from unskew.types import ArrayShapes, IntVector, RandomState, Vector

HeldOut: TypeAlias = Literal["user", "cell"]
MAX_DEVIATION = 3.0
"""Warn if inverse propensities add up to a number this many standard errors away from U I."""


def _check_by(name: str, value: object) -> None:
    if not isinstance(value, str | None) or value not in (None, "user", "cell"):
        raise UnknownNameError(name, value, ("user", "cell"))


@PROPENSITY_MODELS.declare(
    "cross_fitted",
    label="Cross-fitted",
    summary="Each cell gets its propensity from a model that has not seen it.",
    traits={"is_wrapper": True},
)
@dataclass(eq=False, repr=False)
class CrossFittedPropensity(PropensityWrapper):
    """P_ui = P_ui^(-f) / (share of the training cells), for a model fitted without fold f.

    Fold f has user u, or cell (u, i). Every cell has a fold, observed or not, and the model of a
    fold treats the cells of the fold as unobserved. So the propensity of a cell never depends on
    whether it was observed. A cell is in the training log with probability (k - 1) / k, and the
    propensity is divided by this share; values above 1 become 1, with a warning. For models that
    are linear in counts, such as popularity and naive Bayes, P then has the right mean. 1 / P has
    not: the mean of an inverse is larger than the inverse of the mean, by a share of about one over
    the ratings behind a count. With few ratings of an item the weights add up to more than U I
    cells, and IPS is too large. A fit warns if they do; SNIPS divides by their sum. Models of odds,
    such as logistic ones, are also distorted if propensities are not small compared to 1.

    Parameters
    ----------
    model
        The propensity model, not fitted.
    n_folds
        Number of folds that are held out in turn.
    by
        ``"user"`` holds out whole users, which suits models of items, ratings and covariates. A
        model with parameters for each user needs ``"cell"``. None uses what suits the model.
    random_state
        Seed of the folds.

    Attributes
    ----------
    models_ : the model of each fold, fitted without the fold.
    training_share_ : for each fold, the share of the cells that its model was fitted to.
    fold_of_user_ : the fold of each user; empty if cells are held out.
    seed_ : the seed of the folds of cells.
    n_capped_ : ratings of the fit whose propensity would be above 1.
    """

    model: PropensityModel
    _: KW_ONLY
    n_folds: int = setting(5, WholeNumber(least=2))
    by: HeldOut | None = setting(None, _check_by)
    random_state: RandomState = setting(0, check_random_state)

    models_: tuple[PropensityModel, ...] = field(init=False)
    training_share_: Vector = field(init=False)
    fold_of_user_: IntVector = field(init=False)
    seed_: int = field(init=False)
    n_capped_: int = field(init=False)

    def fit(
        self, log: Ratings, *, universe: UniverseLike = None, mcar: SampleLike | None = None
    ) -> Self:
        """Fit the model once for each fold, to the ratings outside the fold.

        ``mcar`` is passed on to each fit.
        """
        self._check_settings()
        size, seed = require_universe(log, universe), draw_seeds(self.random_state)[0]
        if self._held_out_unit == "user":
            fold_of_user = assign_user_folds(log.n_users, n_folds=self.n_folds, seed=seed)
            fold_sizes = np.bincount(fold_of_user, minlength=self.n_folds)
            training_share = 1 - fold_sizes / fold_of_user.size
        else:
            fold_of_user = np.empty(0, np.int32)
            training_share = np.full(self.n_folds, 1 - 1 / self.n_folds)
        fold = _find_folds(log.user, log.item, log.n_items, fold_of_user, self.n_folds, seed)
        models = tuple(
            self._fit_without(held_out, log, fold, mcar, size) for held_out in range(self.n_folds)
        )
        propensity = _predict_held_out(models, training_share, fold, log.user, log.item, log.rating)
        self._require_positive(propensity, log)
        self._record_log(log, size)
        self.models_, self.training_share_ = models, training_share
        self.fold_of_user_, self.seed_ = fold_of_user, seed
        self.n_capped_ = int((propensity > 1).sum())
        self._warn_if_unreliable(np.minimum(propensity, 1.0), size.n_cells)
        return self

    def _predict_codes(self, user: IntVector, item: IntVector, rating: Vector | None) -> Vector:
        n_folds, n_items = len(self.models_), len(self.items_)
        fold = _find_folds(user, item, n_items, self.fold_of_user_, n_folds, self.seed_)
        propensity = _predict_held_out(self.models_, self.training_share_, fold, user, item, rating)
        return np.minimum(propensity, 1.0)

    def _fit_without(
        self,
        held_out_fold: int,
        log: Ratings,
        fold: IntVector,
        mcar: SampleLike | None,
        universe: Universe,
    ) -> PropensityModel:
        is_training = fold != held_out_fold
        if not is_training.any():
            raise UsageError(
                f"fold {held_out_fold} has every rating of the log ({len(log)}), so none is left "
                "to fit the model to.",
                parameter="n_folds",
                remedy="Use another `random_state`, or a log with more ratings.",
            )
        return fit_copy(self.model, log.take(is_training), mcar=mcar, universe=universe)

    def _check_settings(self) -> None:
        super()._check_settings()
        if _has_fitted_parts(self.model):
            raise UsageError(
                f"{self.model!r} is fitted already, to ratings that must be held out.",
                parameter="model",
                remedy="Wrap an unfitted model.",
            )

    @property
    def _held_out_unit(self) -> HeldOut:
        """What a fold consists of."""
        return self.by or ("cell" if self.model.learns_users else "user")

    def _remedy(self) -> str:
        if self._held_out_unit == "user" and self.model.learns_users:
            return "It has parameters for each user and cannot predict new users: use `by='cell'`."
        return "Smooth the model, or give it fewer parameters."

    def _require_positive(self, propensity: Vector, log: Ratings) -> None:
        is_zero = propensity < SMALLEST
        if is_zero.any():
            first = int(is_zero.argmax())
            raise UsageError(
                f"{int(is_zero.sum())} of {is_zero.size} ratings have propensity 0 by the model "
                f"that was fitted with their {self._held_out_unit} held out; "
                f"the first is {log.name_cell(first)}.",
                parameter="model",
                where=log.name_cell(first),
                remedy=self._remedy(),
            )

    def _warn_if_unreliable(self, propensity: Vector, n_cells: int) -> None:
        """Warn of capped propensities, and of inverse propensities that do not add up to U I."""
        if self.n_capped_:
            warnings.warn(
                PropensityWarning(
                    f"{self.n_capped_:,} of {propensity.size:,} cross-fitted propensities exceed 1 "
                    "and were set to 1: the model is too flexible for this log.",
                    parameter="model",
                    remedy="Use fewer parameters, a stronger penalty or more smoothing.",
                ),
                stacklevel=3,
            )
        total = float((1 / propensity).sum())
        std_error = float(np.sqrt(((1 - propensity) / np.square(propensity)).sum()))
        deviation = (total - n_cells) / std_error if std_error > 0 else 0.0
        if abs(deviation) > MAX_DEVIATION:
            warnings.warn(
                PropensityWarning(
                    f"the inverse propensities of the log add up to {total / n_cells:.3g} times "
                    f"the number of cells, {deviation:+.1f} standard errors away from 1: IPS with "
                    "these weights is biased.",
                    parameter="model",
                    remedy=f"{self._remedy()} Or use SNIPS, which divides by the sum of weights.",
                ),
                stacklevel=3,
            )

    def _inner_models(self) -> Sequence[PropensityModel]:
        return self.models_

    def _arrays_with_expected_shapes(self) -> ArrayShapes:
        n_users = len(self.users_) if self.fold_of_user_.size else 0
        return {
            "training_share": (self.training_share_, (len(self.models_),)),
            "fold_of_user": (self.fold_of_user_, (n_users,)),
        }


def assign_cell_folds(cells: npt.NDArray[np.int64], *, n_folds: int, seed: int) -> IntVector:
    """The fold of each cell: a hash of its number, so no folds of U I cells are stored."""
    start = np.random.SeedSequence(seed).generate_state(1, np.uint64)[0]
    return (hash_cells(cells, start) % np.uint64(n_folds)).astype(np.int32)


def _find_folds(
    user: IntVector,
    item: IntVector,
    n_items: int,
    fold_of_user: IntVector,
    n_folds: int,
    seed: int,
) -> IntVector:
    """The fold of each cell: that of its user, if users are held out."""
    if fold_of_user.size:
        return fold_of_user[user]
    return assign_cell_folds(cell_numbers(user, item, n_items), n_folds=n_folds, seed=seed)


def _predict_held_out(
    models: Sequence[PropensityModel],
    training_share: Vector,
    fold: IntVector,
    user: IntVector,
    item: IntVector,
    rating: Vector | None,
) -> Vector:
    """P of each cell by the model of its fold, divided by the training share; may exceed 1."""
    propensity = np.empty(user.size)
    for index, model in enumerate(models):
        rows = fold == index
        ratings = None if rating is None else rating[rows]
        predicted = model._predict_in_blocks(user[rows], item[rows], ratings)
        propensity[rows] = predicted / training_share[index]
    return propensity


def _has_fitted_parts(model: PropensityModel) -> bool:
    """Whether a model, or a model inside it, is fitted."""
    settings = model.get_params(deep=False).values()
    inner = [value for value in settings if isinstance(value, PropensityModel)]
    return bool(fitted_state(model)) or any(map(_has_fitted_parts, inner))
