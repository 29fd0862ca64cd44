"""What the models around other models share: how the inner one is fitted, and what it has to know."""

from __future__ import annotations

import numpy as np

from unskew.data.ratings import Ratings
from unskew.data.universe import Universe
from unskew.errors import UsageError
from unskew.propensity.model import PropensityModel
from unskew.propensity.sample import LearnsFromSample, SampleLike
from unskew.settings import fitted_state


class Wrapper(LearnsFromSample):
    """A propensity model made from another.

    An unfitted inner model stays as it is, and a copy of it is fitted; one that is fitted already is used as it is.
    """

    model: PropensityModel

    @property
    def sees_ratings(self) -> bool:  # type: ignore[override]
        """Whether the inner model needs the rating of a cell."""
        return self.model.sees_ratings

    @property
    def learns_users(self) -> bool:
        """Whether the inner model does."""
        return self.model.learns_users

    def _fit_inner(
        self, log: Ratings, *, mcar: SampleLike | None, universe: Universe
    ) -> PropensityModel:
        """The inner model, fitted to ``log`` unless it was fitted before."""
        require_model(self, self.model)
        if not fitted_state(self.model):
            return fit_copy(self.model, log, mcar=mcar, universe=universe)
        if mcar is not None:
            raise UsageError(
                f"{self.model!r} is fitted already, and mcar=... would change nothing. Wrap an unfitted model."
            )
        for kind, known, asked in (
            ("user", self.model.users_, log.users),
            ("item", self.model.items_, log.items),
        ):
            if not np.array_equal(known, asked):
                raise UsageError(
                    f"{self.model!r} was fitted to {len(known):,} {kind}s, which are not the {len(asked):,} of this log in their "
                    "order. Wrap an unfitted model, or list the same ids in both logs."
                )
        return self.model

    def _require_every_cell(self) -> None:
        """Refuse an inner model that knows logged cells only."""
        require_model(self, self.model)
        if self.sees_ratings:
            raise UsageError(
                f"{type(self).__name__} adds up the propensities of all cells, but {type(self.model).__name__} needs the rating "
                "of a cell, which an unobserved one does not have. The snips estimator scales its weights instead."
            )


def require_model(wrapper: Wrapper, model: object) -> None:
    """Refuse what is not a propensity model."""
    if not isinstance(model, PropensityModel):
        raise UsageError(
            f"{type(wrapper).__name__} wraps a propensity model, such as {type(wrapper).__name__}(PopularityPropensity()); "
            f"got {model!r}."
        )


def fit_copy(
    model: PropensityModel, log: Ratings, *, mcar: SampleLike | None, universe: Universe
) -> PropensityModel:
    """A copy of an unfitted ``model``, fitted; a sample goes only to a model that learns from one."""
    copy = type(model)(**model.get_params())
    if isinstance(copy, LearnsFromSample):
        return copy.fit(log, mcar=mcar, universe=universe)
    if mcar is not None:
        raise UsageError(
            f"{type(model).__name__} does not learn from a sample of random ratings; leave mcar=... out."
        )
    return copy.fit(log, universe=universe)


def has_fitted_parts(model: PropensityModel) -> bool:
    """Whether a model, or one inside it, is fitted already."""
    inner = (value for value in model.get_params().values() if isinstance(value, PropensityModel))
    return bool(fitted_state(model)) or any(has_fitted_parts(each) for each in inner)
