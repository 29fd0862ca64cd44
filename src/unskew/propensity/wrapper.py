"""The base class of models that wrap another propensity model, and what several wrappers use."""

from __future__ import annotations

import numpy as np

from unskew.data.ratings import Ratings
from unskew.data.universe import Universe
from unskew.errors import UsageError
from unskew.propensity.model import McarPropensityModel, PropensityModel, SampleLike
from unskew.settings import fitted_state
from unskew.types import IntVector


class PropensityWrapper(McarPropensityModel):
    """A propensity model made from another one, ``model``.

    A fitted inner model is used as it is. One that is not fitted stays so, and a copy is fitted.
    """

    model: PropensityModel

    @property
    def sees_ratings(self) -> bool:
        return self.model.sees_ratings

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
