"""The result of an estimator: a value for each model, their covariance, and intervals."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy import special

from unskew.errors import UsageError
from unskew.types import Matrix, Vector

ROUNDING = 1e-12
"""Differences and standard errors below this share of the largest risk are rounding errors."""


@dataclass(frozen=True, slots=True)
class Interval:
    """An estimate of one number with its standard error and confidence limits."""

    value: float
    std_error: float
    low: float
    high: float
    p_value: float
    """Two-sided, for the hypothesis that the true value is zero."""


@dataclass(frozen=True, slots=True, eq=False)
class Estimate:
    """The risks of k models on the same cells. Their covariance makes differences paired."""

    value: Vector
    covariance: Matrix
    n_clusters: int | None = None
    """The number of clusters behind the covariance: intervals use Student's t. None: normal."""
    n_left_out: int = 0
    """Users or items that the mean leaves out because they have no weight."""
    replicates: Matrix | None = None
    """Bootstrap replicates, one row for each resample; intervals and p-values come from them."""

    def __post_init__(self) -> None:
        if not (np.isfinite(self.value).all() and np.isfinite(self.covariance).all()):
            raise UsageError(
                "an estimate overflowed: weights or deltas are too large for double precision.",
                remedy="Rescale the ratings and predictions, or clip the weights.",
            )

    def of(self, model: int, *, level: float) -> Interval:
        """The risk of one model."""
        return self._interval(np.eye(self.value.size)[model], level)

    def difference(self, first: int, second: int, *, level: float) -> Interval:
        """The risk of ``first`` minus the risk of ``second``, paired cell by cell."""
        unit = np.eye(self.value.size)
        return self._interval(unit[first] - unit[second], level)

    def _interval(self, contrast: Vector, level: float) -> Interval:
        value = self._zero_if_rounding(float(contrast @ self.value))
        variance = max(float(contrast @ self.covariance @ contrast), 0.0)
        std_error = self._zero_if_rounding(math.sqrt(variance))
        if self.replicates is not None:
            return _percentile_interval(self.replicates @ contrast, value, std_error, level)
        reach = self._quantile((1 + level) / 2) * std_error
        p_value = self._p_value(value, std_error)
        return Interval(value, std_error, value - reach, value + reach, p_value)

    def _zero_if_rounding(self, number: float) -> float:
        return 0.0 if abs(number) <= ROUNDING * float(np.abs(self.value).max()) else number

    def _quantile(self, probability: float) -> float:
        if self.n_clusters is None:
            return float(special.ndtri(probability))
        return float(special.stdtrit(self.n_clusters - 1, probability))

    def _p_value(self, value: float, std_error: float) -> float:
        if std_error == 0.0:
            return float(value == 0.0)
        score = -abs(value) / std_error
        if self.n_clusters is None:
            return float(2 * special.ndtr(score))
        return float(2 * special.stdtr(self.n_clusters - 1, score))


def _percentile_interval(
    replicates: Vector, value: float, std_error: float, level: float
) -> Interval:
    """Percentiles; the p-value is twice the share of replicates on the rarer side of zero."""
    low, high = np.quantile(replicates, [(1 - level) / 2, (1 + level) / 2])
    n_rarer = min(int((replicates <= 0).sum()), int((replicates >= 0).sum()))
    p_value = min(1.0, 2 * (1 + n_rarer) / (1 + replicates.size))
    return Interval(value, std_error, float(low), float(high), p_value)
