"""Propensities with a lower limit."""

from __future__ import annotations

from dataclasses import KW_ONLY, MISSING, dataclass, field, replace
from typing import Self

import numpy as np

from unskew.data.estimation import Estimation, Replicates
from unskew.data.ratings import Ratings
from unskew.data.universe import UniverseLike
from unskew.propensity import PROPENSITY_MODELS
from unskew.propensity.model import PropensityModel, SampleLike, require_universe
from unskew.propensity.wrapper import PropensityWrapper
from unskew.settings import Number, setting
from unskew.types import IntVector, Vector


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
        return float((self.model_._predict_log(log) < self.min_propensity).mean())

    def _predict_codes(self, user: IntVector, item: IntVector, rating: Vector | None) -> Vector:
        return np.maximum(self.model_._predict_codes(user, item, rating), self.min_propensity)

    def _describe_estimation(self, log: Ratings) -> Estimation:
        """That of the inner model; the propensity of a clipped cell does not vary."""
        inner = replace(self.model_._describe_estimation(log), model=type(self).__name__)
        if isinstance(inner, Replicates):
            refit = inner.refit
            return replace(inner, refit=lambda rows: np.maximum(refit(rows), self.min_propensity))
        return inner.with_fixed(self.model_._predict_log(log) < self.min_propensity)
