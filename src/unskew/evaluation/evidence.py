"""What an evaluation was computed from, kept so that it can be asked again under other weights."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from unskew.data.propensities import Propensities
from unskew.estimators.cells import Deltas, Imputed, Sample
from unskew.estimators.estimate import Estimate
from unskew.estimators.family import (
    DoublyRobust,
    Estimator,
    FixedNormalizer,
    GroupNormalized,
    SelfNormalized,
)
from unskew.estimators.odds import largest_ratio, largest_sum, weight_range
from unskew.estimators.transforms import WeightTransform
from unskew.types import Matrix, Vector

SOLVED = (DoublyRobust, FixedNormalizer, GroupNormalized, SelfNormalized)
"""Estimators whose worst weights are known; a caller's own is not among them."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Evidence:
    """Deltas of every metric, where their cells lie, the estimators and the ratings: references, no copies."""

    deltas: Mapping[str, Deltas]
    sample: Sample
    estimators: Mapping[str, Estimator]
    rating: Vector | None = None

    def question(self, metric: str, estimator: str, contrast: Vector) -> Question:
        """One number: the risk of a model, or the difference of two, as a contrast of the models."""
        return Question(
            _contrasted(self.deltas[metric], contrast), self.sample, self.estimators[estimator]
        )


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Question:
    """One row of deltas and how to estimate its mean over all cells."""

    deltas: Deltas
    sample: Sample
    estimator: Estimator

    @property
    def allows_odds_error(self) -> bool:
        """Whether the worst weights are known."""
        return self.estimator.is_weighted and isinstance(self.estimator, SOLVED)

    def transformed(self, transform: WeightTransform) -> Estimate:
        """The estimate by other weights."""
        return self.estimator(self.deltas, replace(self.sample, transform=transform))

    def extreme(self, odds_error: float, *, is_largest: bool) -> Estimate:
        """The least or the largest estimate that propensities within the odds error allow, with its covariance there."""
        worst = self._largest(
            1.0 if is_largest else -1.0, *weight_range(self.sample.weight, odds_error)
        )
        return self.estimator(
            self.deltas, replace(self.sample, propensities=Propensities(1.0 / worst))
        )

    def _largest(self, sign: float, low: Vector, high: Vector) -> Vector:
        """The weights at which ``sign`` times the estimate is largest."""
        delta, base = sign * self.deltas.value[0], self.deltas.base
        match self.estimator:
            case DoublyRobust() if self.deltas.imputed is not None:
                return largest_sum(delta - sign * self.deltas.imputed.observed[0], low, high)
            case FixedNormalizer() if base is None:
                return largest_sum(delta, low, high)
            case GroupNormalized(by=by):
                return largest_ratio(
                    delta,
                    low,
                    high,
                    groups=self.sample.users if by == "users" else self.sample.items,
                )
        return largest_ratio(
            delta,
            low,
            high,
            base=base,
            groups=self.sample.users if self.deltas.is_mean_of_users else None,
        )


def _contrasted(deltas: Deltas, contrast: Vector) -> Deltas:
    imputed = deltas.imputed
    return replace(
        deltas,
        value=_combine(contrast, deltas.value),
        imputed=None
        if imputed is None
        else Imputed(_combine(contrast, imputed.observed), _combine(contrast, imputed.by_user.T).T),
    )


def _combine(contrast: Vector, rows: Matrix) -> Matrix:
    """The contrast as one row; no BLAS, whose order of addition depends on its threads."""
    row: Vector = np.einsum("k,kn->n", contrast, rows)
    return row[None]
