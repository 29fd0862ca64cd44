"""The result of an estimator: a value for each model, their covariance, and intervals."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from unskew.data.estimation import RandomSample
from unskew.errors import UsageError
from unskew.estimators.intervals import (
    Moments,
    ShareTest,
    combine_degrees,
    t_p_value,
    wide_limits,
    wide_p_value,
)
from unskew.estimators.sequences import SequenceClock
from unskew.types import Matrix, Vector

ROUNDING = 1e-12
"""Differences and standard errors below this share of the largest risk are rounding errors."""
SMALL_SAMPLE = 1000
"""Up to this many random ratings, limits are found by tests of the shares of the levels."""


@dataclass(frozen=True, slots=True)
class Interval:
    """An estimate of one number with its standard error and confidence limits."""

    value: float
    std_error: float
    low: float
    high: float
    p_value: float
    """Two-sided, for the hypothesis that the true value is zero."""
    degrees: float = math.inf
    """Degrees of freedom of the standard error."""
    skewness: float = 0.0


@dataclass(frozen=True, slots=True, eq=False)
class OutsideError:
    """The part of the errors of K risks that comes from an outside sample."""

    gradient: Matrix
    """K x levels: the derivative of each risk by the log share of each level."""
    sample: RandomSample

    @property
    def covariance(self) -> Matrix:
        return self.sample.covariance(self.gradient)

    @property
    def degrees(self) -> float:
        return max(self.sample.n_units - 1, 1)

    def level_values(self, contrast: Vector, value: float) -> Vector:
        """D_r: what the risk would be if all cells had level r, by linear extrapolation."""
        gradient = contrast @ self.gradient
        share = self.sample.share
        per_rating = np.divide(gradient, share, out=np.zeros_like(gradient), where=share > 0)
        values: Vector = value + per_rating - gradient.sum()
        return values


@dataclass(frozen=True, slots=True, eq=False)
class Estimate:
    """The risks of k models on the same cells. Their covariance makes differences paired."""

    value: Vector
    covariance: Matrix
    n_clusters: int | None = None
    """The number of clusters behind the covariance; None if cells are independent."""
    n_left_out: int = 0
    """Users or items that the mean leaves out because they have no weight."""
    replicates: Matrix | None = None
    """Bootstrap replicates, one row for each resample; intervals and p-values come from them."""
    degrees: float = math.inf
    """Degrees of freedom of the covariance, unless ``moments`` give them."""
    moments: Moments | None = None
    """Moments of the contributions of cells or clusters, for skewed and heavy-tailed samples."""
    outside: OutsideError | None = None
    """What an outside sample adds; included in ``covariance``."""
    known_covariance: Matrix | None = None
    """The covariance if the propensities were known; None if they are, or without weights."""
    bias: Vector | None = None
    """The bias by a penalty that was subtracted from each value."""
    clock: SequenceClock | None = None
    """For limits that hold at every look at a growing log; None for limits of this look alone."""

    def __post_init__(self) -> None:
        if not (np.isfinite(self.value).all() and np.isfinite(self.covariance).all()):
            raise UsageError(
                "an estimate overflowed: weights or deltas are too large for double precision.",
                remedy="Rescale the ratings and predictions, or clip the weights.",
            )

    def of(self, model: int, *, level: float) -> Interval:
        """The risk of one model."""
        return self._interval(model, None, level)

    def difference(self, first: int, second: int, *, level: float) -> Interval:
        """The risk of ``first`` minus the risk of ``second``, paired cell by cell."""
        return self._interval(first, second, level)

    def known_std_error(self, first: int, second: int | None = None) -> float | None:
        """The standard error if the propensities were known; None if they are."""
        if self.known_covariance is None:
            return None
        contrast = self._contrast(first, second)
        return math.sqrt(max(float(contrast @ self.known_covariance @ contrast), 0.0))

    def _contrast(self, first: int, second: int | None) -> Vector:
        contrast = np.zeros(self.value.size)
        contrast[first] = 1.0
        if second is not None:
            contrast[second] -= 1.0
        return contrast

    def _interval(self, first: int, second: int | None, level: float) -> Interval:
        contrast = self._contrast(first, second)
        value = self._zero_if_rounding(float(contrast @ self.value))
        variance = max(float(contrast @ self.covariance @ contrast), 0.0)
        std_error = self._zero_if_rounding(math.sqrt(variance))
        if self.clock is not None:
            limits = self.clock.limits(value, std_error, level=level)
            p_value = self.clock.p_value(value, std_error, level=level)
            return Interval(value, std_error, *limits, p_value)
        if self.replicates is not None:
            return _percentile_interval(self.replicates @ contrast, value, std_error, level)
        if std_error == 0.0:
            return Interval(value, 0.0, value, value, float(value == 0.0))
        outside = 0.0
        if self.outside is not None:
            outside = max(float(contrast @ self.outside.covariance @ contrast), 0.0)
        of_log, degrees, skewness = self._of_log(first, second, max(variance - outside, 0.0))
        if self.outside is not None and of_log + outside > 0:
            degrees = combine_degrees((of_log, degrees), (outside, self.outside.degrees))
            skewness *= (of_log / (of_log + outside)) ** 1.5
            if self.outside.sample.by_user is None and self.outside.sample.size <= SMALL_SAMPLE:
                return self._share_interval(contrast, value, std_error, of_log, degrees, level)
        reach = math.sqrt(of_log + outside)
        if reach == 0.0:
            reach = std_error
        low, high = wide_limits(value, reach, level=level, degrees=degrees, skewness=skewness)
        p_value = wide_p_value(value, reach, degrees=degrees, skewness=skewness)
        return Interval(value, std_error, low, high, p_value, degrees, skewness)

    def _of_log(
        self, first: int, second: int | None, variance: float
    ) -> tuple[float, float, float]:
        """Variance, degrees of freedom and skewness of the part that comes from the log."""
        most = self.degrees if self.n_clusters is None else float(self.n_clusters - 1)
        if self.moments is None:
            return variance, most, 0.0
        variance, degrees, skewness = self.moments.of_contrast(first, second)
        return variance, max(min(degrees, most), 1.0), skewness

    def _share_interval(
        self,
        contrast: Vector,
        value: float,
        std_error: float,
        of_log: float,
        degrees: float,
        level: float,
    ) -> Interval:
        assert self.outside is not None
        values = self.outside.level_values(contrast, value)
        test = ShareTest(values, self.outside.sample.count, of_log)
        low, high = test.limits(level=level, degrees=degrees)
        p_value = t_p_value(abs(test.statistic(0.0)), degrees)
        return Interval(value, std_error, low, high, p_value, degrees)

    def _zero_if_rounding(self, number: float) -> float:
        return 0.0 if abs(number) <= ROUNDING * float(np.abs(self.value).max()) else number


def _percentile_interval(
    replicates: Vector, value: float, std_error: float, level: float
) -> Interval:
    """Percentiles; the p-value is twice the share of replicates on the rarer side of zero."""
    low, high = np.quantile(replicates, [(1 - level) / 2, (1 + level) / 2])
    n_rarer = min(int((replicates <= 0).sum()), int((replicates >= 0).sum()))
    p_value = min(1.0, 2 * (1 + n_rarer) / (1 + replicates.size))
    return Interval(value, std_error, float(low), float(high), p_value)
