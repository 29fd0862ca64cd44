"""How the probability that a cell is observed depends on its rating.

Likelihood models do not weight ratings by inverse propensities. They need P(O = 1 | Y = r), the
probability that a cell with rating r is observed. ``value_propensities`` gives it directly. From
``propensities``, one for each observed cell, it is estimated as

    P(O = 1 | Y = r) = n_r / (sum of 1 / P over the n_r observed ratings r),

the inverse-propensity estimate. If P depends on the rating alone, this is P itself. In a fold of
cross-validation, where P is scaled to the fold, it is the probability for the fold.

The mechanisms are those of Marlin & Zemel (2009). Each gives P(O = 1 | Y = r) of item i as
sigma(s_r + t_i).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol, TypeAlias, runtime_checkable

import numpy as np
import numpy.typing as npt
from scipy.special import expit, log_expit

from unskew.data.checks import float_array
from unskew.data.propensities import PropensitiesLike, PropensityPredictor, as_propensities
from unskew.data.ratings import Ratings
from unskew.data.universe import require_all_ids
from unskew.errors import BadPropensityError, UsageError
from unskew.types import Matrix, Vector

MAX_LEVELS = 100
"""More distinct ratings are taken for a continuous scale."""
ITEM_VARIANCE = 10.0
"""Variance of the normal prior of t_i."""
MAX_HALVINGS = 30

LevelCodes: TypeAlias = npt.NDArray[np.uint8]


@runtime_checkable
class RatingPropensityPredictor(Protocol):
    """A fitted model, such as naive Bayes, whose propensities depend on the rating alone."""

    def predict_ratings(self, ratings: npt.ArrayLike, /) -> npt.ArrayLike:
        """P(O = 1 | Y = r) for each rating."""
        ...


ValuePropensities: TypeAlias = RatingPropensityPredictor | Mapping[float, float] | npt.ArrayLike
"""P(O = 1 | Y = r): a fitted naive Bayes model, a table {rating: P}, or values in the order of the
log's rating levels."""


# P(O = 1 | Y = r) as the caller passes it


def encode_levels(log: Ratings) -> tuple[Vector, LevelCodes]:
    """The distinct ratings of a log in ascending order, and the index of each rating in them."""
    levels, codes = np.unique(log.rating, return_inverse=True)
    if levels.size > MAX_LEVELS:
        raise UsageError(
            f"the log has {levels.size:,} distinct ratings, and this model takes at most "
            f"{MAX_LEVELS} rating levels.",
            parameter="log",
            value=levels.size,
            remedy="If ratings are continuous, round them to whole or half points first.",
        )
    return levels, codes.reshape(-1).astype(np.uint8)


def check_value_propensities(levels: Vector, value_propensities: ValuePropensities) -> Vector:
    """P(O = 1 | Y = r) of each level as an array; every value must lie in (0, 1)."""
    values = _as_vector(levels, value_propensities)
    if values.shape != levels.shape:
        raise BadPropensityError(
            f"`value_propensities` has shape {values.shape}, but the log has {levels.size} "
            f"rating levels ({_join(levels)}).",
            parameter="value_propensities",
            value=values.shape,
            remedy="Pass one value for each level in this order, or a table {rating: P}.",
        )
    is_bad = ~(np.isfinite(values) & (values > 0) & (values < 1))
    if is_bad.any():
        first = int(is_bad.argmax())
        raise BadPropensityError(
            f"{int(is_bad.sum())} of {is_bad.size} `value_propensities` lie outside (0, 1); the "
            f"first is {values[first]:g}, for rating {levels[first]:g}.",
            parameter="value_propensities",
            value=values[first],
            where=f"rating {levels[first]:g}",
            remedy="Estimate them with smoothing or from a larger sample: a rating that is never "
            "or always observed has no log odds.",
        )
    return values


def resolve_value_propensities(
    log: Ratings,
    levels: Vector,
    codes: LevelCodes,
    propensities: PropensitiesLike | None,
    value_propensities: ValuePropensities | None,
) -> Vector | None:
    """P(O = 1 | Y = r) of each level, from the argument that was passed; None if neither was."""
    if value_propensities is None:
        return None if propensities is None else _average_by_level(log, levels, codes, propensities)
    if propensities is not None:
        raise UsageError(
            "`propensities` and `value_propensities` both state how likely each rating is to be "
            "observed.",
            parameter="value_propensities",
            remedy="Pass only one of the two. This model does not weight ratings.",
        )
    return check_value_propensities(levels, value_propensities)


def require_full_vocabulary(log: Ratings) -> None:
    """Raise an error if the universe is larger than the log's lists of users and items."""
    if log.universe is not None:
        require_all_ids(
            log,
            log.universe,
            "and this model uses the unobserved cells of the whole universe",
            shell_remedy="Leave `universe` out to use only the users and items of the log.",
        )


def _average_by_level(
    log: Ratings, levels: Vector, codes: LevelCodes, propensities: PropensitiesLike
) -> Vector:
    """n_r / sum of 1 / P, for each level."""
    inverse = as_propensities(log, propensities).inverse
    n_cells = np.bincount(codes, weights=inverse, minlength=levels.size)
    share = np.bincount(codes, minlength=levels.size) / n_cells
    if (share >= 1).any():
        raise BadPropensityError(
            "according to `propensities`, every cell with rating "
            f"{_join(levels[share >= 1])} is observed, so nothing can be learned about "
            "unobserved ones.",
            parameter="propensities",
            remedy="Pass propensities below 1, or `value_propensities`.",
        )
    return check_value_propensities(levels, share)


def _as_vector(levels: Vector, value_propensities: ValuePropensities) -> Vector:
    """The values in the order of the levels, not checked yet."""
    if isinstance(value_propensities, RatingPropensityPredictor):
        predicted = value_propensities.predict_ratings(levels)
        return float_array(predicted, "value_propensities", BadPropensityError)
    if isinstance(value_propensities, Mapping):
        return _look_up(levels, value_propensities)
    if hasattr(value_propensities, "to_dict") and hasattr(value_propensities, "index"):
        return _look_up(levels, value_propensities.to_dict())
    if isinstance(value_propensities, PropensityPredictor):
        raise UsageError(
            f"{type(value_propensities).__name__} cannot predict a propensity from a rating alone.",
            parameter="value_propensities",
            remedy="Pass it as `propensities` instead.",
        )
    return float_array(value_propensities, "value_propensities", BadPropensityError)


def _look_up(levels: Vector, table: Mapping[float, float]) -> Vector:
    ratings = float_array(
        list(table.keys()), "the ratings of value_propensities", BadPropensityError
    )
    values = float_array(list(table.values()), "value_propensities", BadPropensityError)
    missing = levels[~np.isin(levels, ratings)]
    if missing.size:
        raise BadPropensityError(
            f"`value_propensities` has no entry for rating {_join(missing)}, which the log has.",
            parameter="value_propensities",
            remedy="Add an entry for each of these ratings.",
        )
    by_rating = dict(zip(ratings.tolist(), values.tolist(), strict=True))
    return np.array([by_rating[level] for level in levels.tolist()])


def _join(levels: Vector) -> str:
    return ", ".join(f"{level:g}" for level in levels)


# Mechanisms


@dataclass(frozen=True, slots=True, eq=False)
class SelectionEffects:
    """The log odds of being observed: ``value[r] + item[i]``."""

    value: Vector
    item: Vector

    @property
    def log_odds(self) -> Matrix:
        """s_r + t_i, items x levels."""
        return self.item[:, None] + self.value

    @property
    def p_observed(self) -> Matrix:
        """P(O = 1 | Y = r), items x levels."""
        return expit(self.log_odds)


@dataclass(frozen=True, slots=True, eq=False)
class BetaPrior:
    """A Beta prior of each sigma(s_r), as numbers of observed and unobserved pseudo-cells."""

    observed: Vector
    unobserved: Vector

    def log_density(self, value: Vector) -> float:
        """The log density at s = ``value``, up to a constant."""
        return float(self.observed @ log_expit(value) + self.unobserved @ log_expit(-value))


@dataclass(frozen=True, slots=True, eq=False)
class MissingAtRandom:
    """Selection does not depend on ratings: the likelihood is that of the observed ratings."""

    def log_probabilities(self, effects: SelectionEffects, /) -> tuple[Matrix, Matrix]:
        """Logarithms of P(O = 1 | Y = r) and P(O = 0 | Y = r), items x levels.

        Here they are zeros: selection does not contribute to the likelihood.
        """
        zeros = np.zeros((effects.item.size, effects.value.size))
        return zeros, zeros

    def update(
        self, effects: SelectionEffects, observed: Matrix, unobserved: Matrix, /
    ) -> SelectionEffects:
        """Effects with a log posterior at least as high.

        ``observed`` and ``unobserved`` are expected numbers of cells, items x levels.
        """
        return effects

    def log_prior(self, effects: SelectionEffects, /) -> float:
        """The log density of the effects' prior, up to a constant."""
        return 0.0


@dataclass(frozen=True, slots=True, eq=False)
class DependsOnRating(MissingAtRandom):
    """CPT-v: sigma(s_r), the same for all items. Without a prior, s is fixed."""

    prior: BetaPrior | None

    def log_probabilities(self, effects: SelectionEffects, /) -> tuple[Matrix, Matrix]:
        return log_expit(effects.log_odds), log_expit(-effects.log_odds)

    def update(
        self, effects: SelectionEffects, observed: Matrix, unobserved: Matrix, /
    ) -> SelectionEffects:
        """sigma(s_r) is the share of observed cells at each level, including pseudo-cells."""
        if self.prior is None:
            return effects
        odds = (self.prior.observed + observed.sum(axis=0)) / (
            self.prior.unobserved + unobserved.sum(axis=0)
        )
        return SelectionEffects(np.log(odds), effects.item)

    def log_prior(self, effects: SelectionEffects, /) -> float:
        return 0.0 if self.prior is None else self.prior.log_density(effects.value)


@dataclass(frozen=True, slots=True, eq=False)
class DependsOnRatingAndItem(DependsOnRating):
    """Logit-vd: sigma(s_r + t_i), t_i ~ N(0, 10). Without a prior, s is fixed."""

    def update(
        self, effects: SelectionEffects, observed: Matrix, unobserved: Matrix, /
    ) -> SelectionEffects:
        """One Newton step, halved until the log posterior does not decrease."""
        step = self._newton_step(effects, observed, unobserved)
        before = self._log_posterior(effects, observed, unobserved)
        for halving in range(MAX_HALVINGS):
            length = 0.5**halving
            candidate = SelectionEffects(
                effects.value + length * step.value, effects.item + length * step.item
            )
            if self._log_posterior(candidate, observed, unobserved) >= before:
                return candidate
        return effects

    def log_prior(self, effects: SelectionEffects, /) -> float:
        item_density = -float(np.square(effects.item).sum()) / (2 * ITEM_VARIANCE)
        return (
            item_density
            if self.prior is None
            else item_density + self.prior.log_density(effects.value)
        )

    def _log_posterior(
        self, effects: SelectionEffects, observed: Matrix, unobserved: Matrix
    ) -> float:
        """sum_ir [A log sigma + (C - A) log(1 - sigma)] + log prior."""
        log_observed, log_unobserved = self.log_probabilities(effects)
        likelihood = float((observed * log_observed).sum() + (unobserved * log_unobserved).sum())
        return likelihood + self.log_prior(effects)

    def _newton_step(
        self, effects: SelectionEffects, observed: Matrix, unobserved: Matrix
    ) -> SelectionEffects:
        """Newton's step. Items, which depend on one another only through s, are eliminated."""
        p = effects.p_observed
        gradient = observed - (observed + unobserved) * p
        hessian = (observed + unobserved) * p * (1 - p)
        item_gradient = gradient.sum(axis=1) - effects.item / ITEM_VARIANCE
        item_hessian = hessian.sum(axis=1) + 1 / ITEM_VARIANCE
        if self.prior is None:
            return SelectionEffects(np.zeros_like(effects.value), item_gradient / item_hessian)
        p_value = expit(effects.value)
        n_cells = self.prior.observed + self.prior.unobserved
        value_gradient = gradient.sum(axis=0) + self.prior.observed - n_cells * p_value
        value_hessian = np.diag(hessian.sum(axis=0) + n_cells * p_value * (1 - p_value))
        ratio = hessian / item_hessian[:, None]
        value = np.linalg.solve(
            value_hessian - ratio.T @ hessian, value_gradient - ratio.T @ item_gradient
        )
        return SelectionEffects(value, (item_gradient - hessian @ value) / item_hessian)
