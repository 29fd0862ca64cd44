"""What an estimator says: a value for each model, how they vary together, and what follows from that."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy import special

from unskew.errors import UsageError
from unskew.types import Matrix, Vector


@dataclass(frozen=True, slots=True)
class Interval:
    """An estimate of one number with its standard error and confidence limits."""

    value: float
    std_error: float
    low: float
    high: float
    p_value: float
    """Two-sided, for the value being zero."""


ROUNDING = 1e-12
"""Differences and standard errors below this share of the risks themselves are rounding."""


@dataclass(frozen=True, slots=True, eq=False)
class Estimate:
    """The risks of k models judged on the same cells. Their covariance makes every difference a paired one."""

    value: Vector
    covariance: Matrix
    n_clusters: int | None = None
    """Independent units behind the covariance, where that may be a small number: Student's t instead of the normal."""
    n_left_out: int = 0
    """Users or items that the mean leaves out, for want of data."""
    replicates: Matrix | None = None
    """Bootstrap replicates, one row a resample; then intervals and p-values come from them."""

    def __post_init__(self) -> None:
        if not (np.isfinite(self.value).all() and np.isfinite(self.covariance).all()):
            raise UsageError(
                "an estimate overflowed: weights or deltas are too large for double precision. Rescale or clip them."
            )

    def of(self, model: int, *, level: float) -> Interval:
        """The risk of one model."""
        return self._interval(np.eye(self.value.size)[model], level)

    def difference(self, first: int, second: int, *, level: float) -> Interval:
        """Risk of ``first`` minus risk of ``second``, paired cell by cell."""
        unit = np.eye(self.value.size)
        return self._interval(unit[first] - unit[second], level)

    def _interval(self, contrast: Vector, level: float) -> Interval:
        value = self._unless_rounding(float(contrast @ self.value))
        std_error = self._unless_rounding(
            math.sqrt(max(float(contrast @ self.covariance @ contrast), 0.0))
        )
        if self.replicates is not None:
            return _from_replicates(self.replicates @ contrast, value, std_error, level)
        reach = self._quantile((1 + level) / 2) * std_error
        return Interval(
            value, std_error, value - reach, value + reach, self._p_value(value, std_error)
        )

    def _unless_rounding(self, number: float) -> float:
        return 0.0 if abs(number) <= ROUNDING * float(np.abs(self.value).max()) else number

    def _quantile(self, probability: float) -> float:
        if self.n_clusters is None:
            return float(special.ndtri(probability))
        return float(special.stdtrit(self.n_clusters - 1, probability))

    def _p_value(self, value: float, std_error: float) -> float:
        if std_error == 0.0:
            return float(value == 0.0)
        score = -abs(value) / std_error
        tail = (
            special.ndtr(score)
            if self.n_clusters is None
            else special.stdtr(self.n_clusters - 1, score)
        )
        return float(2 * tail)


def _from_replicates(replicates: Vector, value: float, std_error: float, level: float) -> Interval:
    """Percentiles, and twice the share of replicates on the rarer side of zero."""
    low, high = np.quantile(replicates, [(1 - level) / 2, (1 + level) / 2])
    rarer = min(int((replicates <= 0).sum()), int((replicates >= 0).sum()))
    return Interval(
        value, std_error, float(low), float(high), min(1.0, 2 * (1 + rarer) / (1 + replicates.size))
    )
