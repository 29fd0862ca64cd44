"""The result of an estimator: a value for each model, their covariance, and intervals."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from unskew.data.estimation import RandomSample
from unskew.errors import UsageError
from unskew.estimators.intervals import (
    Moments,
    ShareTest,
    combine_degrees,
    conservative_limits,
    conservative_p_value,
    wilson_limits,
)
from unskew.estimators.sequences import SequenceClock
from unskew.estimators.sums import Sums
from unskew.types import BoolVector, Matrix, Vector

ROUNDING = 1e-12
"""Differences and standard errors below this share of the largest risk are rounding errors."""
SMALL_SAMPLE = 1000
"""Up to this many random ratings, limits are found by tests of the shares of the levels."""
MAX_BIAS, MAX_GAP = 0.35, 1.0
"""There is no interval for a mean of ratios if its bias exceeds this share of its standard error
(a 95% interval then covers 93.6%), or its distance from the pooled ratio exceeds the other."""
WILSON_SLACK = 0.05
"""A variance that exceeds the one by the size of a sample by less than this is the same."""
SHARE = (0.0, 1.0)


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

    @classmethod
    def unknown(cls, value: float) -> Interval:
        """A value whose error is not known well enough for an interval."""
        return cls(value, math.nan, math.nan, math.nan, math.nan, math.nan, math.nan)

    def cut(self, low: float, high: float) -> Interval:
        """The limits within a range; no limits if the whole interval is outside of it."""
        if self.high < low or self.low > high:
            return replace(self, low=math.nan, high=math.nan)
        return replace(self, low=max(self.low, low), high=min(self.high, high))


@dataclass(frozen=True, slots=True, eq=False)
class SlotSample:
    """How much of each model's list of recommended items was observed."""

    count: Vector
    """Observed items on the lists."""
    effective: Vector
    """Their effective sample size, by their weights."""
    binomial: Vector
    """The size of a simple random sample in which a share has the same variance, if weights and
    gains are not related."""

    @classmethod
    def of(cls, sums: Sums) -> SlotSample | None:
        """From the sums of a metric with slots; None for other metrics."""
        if sums.slot_totals is None:
            return None
        count, squared, uncertain = sums.slot_totals.T
        total = np.square(sums.weighted_base)
        binomial = np.divide(total, uncertain, out=np.full_like(total, np.inf), where=uncertain > 0)
        return cls(count, total / squared, binomial)


@dataclass(frozen=True, slots=True, eq=False)
class RatioBias:
    """How far K means of ratios are from what they estimate, because each ratio has few cells."""

    first_order: Vector
    """The bias by the variance of the denominators; NaN if every ratio has a single cell. Of
    functions of weights, what remains after it was subtracted."""
    gap: Vector | None = None
    """The distance from the pooled ratio of all cells, which includes bias of any order; None if
    the pooled ratio estimates something else."""

    def of(self, contrast: Vector, std_error: float) -> float:
        """The bias of a contrast: the first-order one, unless the gap is too large for it."""
        gap = 0.0 if self.gap is None else float(contrast @ self.gap)
        return gap if abs(gap) > MAX_GAP * std_error else float(contrast @ self.first_order)


@dataclass(frozen=True, slots=True, eq=False)
class OutsideError:
    """The part of the errors of K risks that comes from an outside sample."""

    gradient: Matrix
    """K x levels: the derivative of each risk by the log share of each level."""
    sample: RandomSample
    base_share: Matrix | None = None
    """K x levels: the share of each level in the normaliser of each risk. None if it is the share
    of the level among all cells, whatever the sample says."""

    @classmethod
    def of_columns(
        cls, gradient: Matrix, columns: Matrix, sample: RandomSample, *, is_ratio: bool
    ) -> Self:
        """From the gradients of the risks and of the columns (deltas, base) by log share."""
        if not is_ratio:
            return cls(gradient, sample)
        base = np.broadcast_to(columns[len(gradient) :], gradient.shape)
        total = base.sum(axis=1, keepdims=True)
        return cls(gradient, sample, base / np.where(total > 0, total, 1.0))

    @property
    def covariance(self) -> Matrix:
        return self.sample.covariance(self.gradient)

    @property
    def degrees(self) -> float:
        return max(self.sample.n_units - 1, 1)

    def test_shares(
        self, contrast: Vector, value: float, variance: float, skewness: float
    ) -> ShareTest:
        """The test of a mean; ``variance`` and ``skewness`` are those of the log.

        A risk that is a ratio has the mean R at which sum_r q_r (a_r - R b_r) is 0. For a contrast
        of risks with different normalisers, it is linear in the shares.
        """
        gradient, share = contrast @ self.gradient, self.sample.share
        (used,) = np.nonzero(contrast)
        derivative = np.ones_like(share)
        if used.size == 1 and contrast[used[0]] == 1.0 and self.base_share is not None:
            derivative = _divide(self.base_share[used[0]], share)
        gap = _divide(gradient, share) - gradient.sum()
        design_effect = self.sample.find_design_effect(gradient)
        return ShareTest(
            value, gap, derivative, self.sample.count, variance, skewness, design_effect
        )


def _divide(values: Vector, share: Vector) -> Vector:
    return np.divide(values, share, out=np.zeros_like(values), where=share > 0)


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
    bounds: tuple[float, float] | None = None
    """The range of the metric; None if unknown."""
    slots: SlotSample | None = None
    """What was observed of the lists, if the values are normalised by their slots."""
    ratio_bias: RatioBias | None = None
    """The estimated bias of a mean of ratios with few cells each, which the value still has."""
    max_relative_error: float | None = None
    """There is no interval if a standard error exceeds this share of its value; None for any."""
    clock: SequenceClock | None = None
    """For limits that hold at every look at a growing log; None for limits of this look alone."""
    no_interval: str | None = None
    """Why there is no interval: a sentence without its full stop. None if there is one."""

    def __post_init__(self) -> None:
        parts = [self.value, self.covariance]
        if self.moments is not None:
            parts += [self.moments.second, self.moments.third, self.moments.fourth]
        if not all(np.isfinite(part).all() for part in parts):
            raise UsageError(
                "an estimate overflowed: weights or prediction errors are too large for double "
                "precision.",
                remedy="Rescale the ratings and predictions, or clip the weights.",
            )

    def of(self, model: int, *, level: float) -> Interval:
        """The risk of one model."""
        return self._interval(model, None, level)

    def difference(self, first: int, second: int, *, level: float) -> Interval:
        """The risk of ``first`` minus the risk of ``second``, paired cell by cell."""
        return self._interval(first, second, level)

    def take_root(self) -> Estimate:
        """The square roots of the values, with errors by the delta method.

        Degrees of freedom and skewness of the errors stay.
        """
        if (self.value < 0).any():
            raise UsageError(
                f"a mean of squares was estimated as {self.value.min():.3g}, which is negative and "
                "has no root: this estimator is too noisy here.",
                remedy="Use 'snips', or the mean of squares itself.",
            )
        root = np.sqrt(self.value)
        derivative = np.divide(0.5, root, out=np.zeros_like(root), where=root > 0)
        both = np.outer(derivative, derivative)
        covariance, known_covariance = self.covariance * both, self.known_covariance
        moments, outside, ratio_bias = self.moments, self.outside, self.ratio_bias
        if ratio_bias is not None:
            gap = None if ratio_bias.gap is None else derivative * ratio_bias.gap
            ratio_bias = RatioBias(derivative * ratio_bias.first_order, gap)
        if outside is not None:
            gradient = outside.gradient * derivative[:, None]
            outside = replace(outside, gradient=gradient, base_share=None)
        if moments is not None:
            part = covariance if outside is None else covariance - outside.covariance
            moments = moments.with_variance(part)
        return replace(
            self,
            value=root,
            covariance=covariance,
            replicates=None if self.replicates is None else np.sqrt(self.replicates),
            moments=moments,
            outside=outside,
            known_covariance=None if known_covariance is None else known_covariance * both,
            bias=None if self.bias is None else self.bias * derivative,
            ratio_bias=ratio_bias,
        )

    def is_too_noisy(self, model: int) -> bool:
        """Whether the error of one model is too large to be trusted, or its value impossible."""
        if self.max_relative_error is None:
            return False
        limit = self.max_relative_error * abs(float(self.value[model]))
        return self.plain_std_error(model) > limit or bool(self.is_outside[model])

    @property
    def is_outside(self) -> BoolVector:
        """Whether the value of each model is outside the range of the metric."""
        low, high = self.bounds or (-math.inf, math.inf)
        margin = ROUNDING * max(float(np.abs(self.value).max()), 1.0)
        return (self.value < low - margin) | (self.value > high + margin)

    def plain_std_error(self, model: int) -> float:
        """The standard error of one model, even if it is too small to be used in an interval."""
        return math.sqrt(max(float(self.covariance[model, model]), 0.0))

    def find_ratio_bias(self, model: int) -> float:
        """The bias of one model's mean of ratios; 0 for other estimates."""
        if self.ratio_bias is None:
            return 0.0
        return self.ratio_bias.of(self._contrast(model, None), self.plain_std_error(model))

    def known_std_error(self, model: int) -> float | None:
        """The standard error if the propensities were known; None if they are."""
        if self.known_covariance is None:
            return None
        return math.sqrt(max(float(self.known_covariance[model, model]), 0.0))

    def _contrast(self, first: int, second: int | None) -> Vector:
        contrast = np.zeros(self.value.size)
        contrast[first] = 1.0
        if second is not None:
            contrast[second] -= 1.0
        return contrast

    def _interval(self, first: int, second: int | None, level: float) -> Interval:
        if self.bounds is None:
            return self._free_interval(first, second, level)
        low, high = self.bounds
        if second is not None:
            low, high = low - high, high - low
        return self._free_interval(first, second, level).cut(low, high)

    def _free_interval(self, first: int, second: int | None, level: float) -> Interval:
        """The interval before it is cut at the range of the metric."""
        contrast = self._contrast(first, second)
        value = self._zero_if_rounding(float(contrast @ self.value))
        variance = max(float(contrast @ self.covariance @ contrast), 0.0)
        std_error = self._zero_if_rounding(math.sqrt(variance))
        if self.no_interval is not None:
            return Interval.unknown(value)
        if self.clock is not None:
            return self._interval_at_all_looks(
                self.clock, first, second, value, std_error, level=level
            )
        if any(self.is_too_noisy(int(model)) for model in np.flatnonzero(contrast)):
            return Interval.unknown(value)
        if self.ratio_bias is not None:
            bias = self.ratio_bias.of(contrast, std_error)
            is_small = abs(self._zero_if_rounding(bias)) <= MAX_BIAS * std_error
            if not is_small or self.is_outside[contrast != 0].any():
                return Interval.unknown(value)
        if self.replicates is not None:
            return _percentile_interval(self.replicates @ contrast, value, std_error, level)
        if self.slots is not None and self.bounds == SHARE and second is None:
            return self._wilson_interval(first, variance, std_error, level)
        if std_error == 0.0:
            return Interval(value, 0.0, value, value, float(value == 0.0))
        outside = 0.0
        if self.outside is not None:
            outside = max(float(contrast @ self.outside.covariance @ contrast), 0.0)
        log_variance, degrees, skewness = self._measure_log_part(
            first, second, max(variance - outside, 0.0)
        )
        if self.outside is not None and log_variance + outside > 0:
            degrees = combine_degrees((log_variance, degrees), (outside, self.outside.degrees))
            skewness *= (log_variance / (log_variance + outside)) ** 1.5
            if self.outside.sample.size <= SMALL_SAMPLE:
                return self._share_interval(
                    contrast, value, std_error, log_variance, degrees, skewness, level
                )
        reach = math.sqrt(log_variance + outside)
        if reach == 0.0:
            reach = std_error
        low, high = conservative_limits(
            value, reach, level=level, degrees=degrees, skewness=skewness
        )
        p_value = conservative_p_value(value, reach, degrees=degrees, skewness=skewness)
        return Interval(value, std_error, low, high, p_value, degrees, skewness)

    def _interval_at_all_looks(
        self,
        clock: SequenceClock,
        first: int,
        second: int | None,
        value: float,
        std_error: float,
        *,
        level: float,
    ) -> Interval:
        log_variance, degrees, skewness = self._measure_log_part(first, second, std_error**2)
        if 0.0 < log_variance < std_error**2:  # the rest is the error of an earlier fit
            degrees = combine_degrees(
                (log_variance, degrees), (std_error**2 - log_variance, math.inf)
            )
            skewness *= (log_variance / std_error**2) ** 1.5
        low, high = clock.limits(value, std_error, level=level, degrees=degrees, skewness=skewness)
        p_value = clock.p_value(value, std_error, level=level, degrees=degrees, skewness=skewness)
        return Interval(value, std_error, low, high, p_value, degrees, skewness)

    def _measure_log_part(
        self, first: int, second: int | None, variance: float
    ) -> tuple[float, float, float]:
        """Variance, degrees of freedom and skewness of the part that comes from the log."""
        most = self.degrees if self.n_clusters is None else float(self.n_clusters - 1)
        if self.moments is None:
            return variance, most, 0.0
        variance, degrees, skewness = self.moments.of_contrast(first, second)
        return variance, max(min(degrees, most), 1.0), skewness

    def _wilson_interval(
        self, model: int, variance: float, std_error: float, level: float
    ) -> Interval:
        """Wilson's interval with the effective size of the observed slots.

        The size is smaller if gains are related to weights, cells depend on one another, or the
        propensities are uncertain: the one at which the variance of a share is the estimated one.
        """
        assert self.slots is not None
        value = float(self.value[model])
        size, degrees = float(self.slots.binomial[model]), math.inf
        log_variance, log_degrees, _ = self._measure_log_part(model, None, variance)
        outside = 0.0
        if self.outside is not None:
            outside = float(self.outside.covariance[model, model])
        spread = value * (1 - value)
        if 0 < spread * (1 + WILSON_SLACK) < size * variance:
            size, degrees = spread / (log_variance + outside), log_degrees
            if self.outside is not None:
                of_sample = outside, self.outside.degrees
                degrees = combine_degrees((log_variance, log_degrees), of_sample)
        low, high = wilson_limits(value, size, level=level, degrees=degrees)
        return Interval(value, std_error, low, high, float(value == 0.0), degrees)

    def _share_interval(
        self,
        contrast: Vector,
        value: float,
        std_error: float,
        log_variance: float,
        degrees: float,
        skewness: float,
        level: float,
    ) -> Interval:
        assert self.outside is not None
        test = self.outside.test_shares(contrast, value, log_variance, skewness)
        low, high = test.limits(level=level, degrees=degrees)
        return Interval(value, std_error, low, high, test.p_value(degrees), degrees, skewness)

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
