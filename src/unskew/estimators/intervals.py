"""Confidence limits and p-values that hold for skewed, heavy-tailed and small samples."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations_with_replacement

import numpy as np
from scipy import special
from scipy.optimize import brentq

from unskew.kernels.blocks import cut_rows, dot
from unskew.types import Matrix, Vector

SMALL_SKEWNESS = 1e-6
"""Below this Hall's correction is smaller than rounding errors."""


@dataclass(frozen=True, slots=True, eq=False)
class Moments:
    """Moments of the independent contributions to the errors of K risks.

    Entry (k, k) belongs to model k, and entry (i, j) with i < j to the difference i - j.
    """

    second: Matrix
    """The variance."""
    third: Matrix
    fourth: Matrix
    """Sum of the squares of what each contribution adds to the variance."""

    @classmethod
    def of(cls, contributions: Matrix) -> Moments:
        """From K x n contributions z, each of which adds z^2 to the variance."""
        n = contributions.shape[1]
        return cls.add_up((contributions[:, rows], None, None) for rows in cut_rows(n))

    @classmethod
    def add_up(cls, blocks: Iterable[tuple[Matrix, Vector | None, Vector | None]]) -> Moments:
        """From blocks of contributions z, with two factors for each contribution.

        A contribution adds ``variance * z^2`` to the variance and ``third * z^3`` to the third
        moment. A factor of None is 1.
        """
        parts = []
        for contributions, variance, third in blocks:
            n_models = len(contributions)
            moments = np.zeros((3, n_models, n_models))
            for i, j in combinations_with_replacement(range(n_models), 2):
                z = contributions[i] if i == j else contributions[i] - contributions[j]
                square = z * z
                cubed = dot(square, z if third is None else z * third)
                if variance is not None:
                    square *= variance
                moments[:, i, j] = square.sum(), cubed, dot(square, square)
            parts.append(moments)
        return cls(*np.sum(parts, axis=0))

    @property
    def covariance(self) -> Matrix:
        """The covariance of the risks, from the variances of the risks and of their differences."""
        variance = np.diag(self.second)
        upper = np.triu(variance[:, None] + variance - self.second, 1) / 2
        return upper + upper.T + np.diag(variance)

    @property
    def degrees(self) -> Matrix:
        """Degrees of freedom of each variance."""
        return 2 * self.second**2 / np.where(self.fourth > 0, self.fourth, np.inf)

    def scale(self, factor: float) -> Moments:
        """Moments of contributions that are all multiplied by a number."""
        return Moments(self.second * factor**2, self.third * factor**3, self.fourth * factor**4)

    def with_variance(self, covariance: Matrix, degrees: Matrix | None = None) -> Moments:
        """Moments of the same degrees of freedom and skewness, with another covariance.

        With ``degrees``, they have these degrees of freedom and no skewness.
        """
        second = covariance_of_contrasts(covariance)
        ratio = np.divide(second, self.second, out=np.ones_like(second), where=self.second > 0)
        if degrees is None:
            return Moments(second, self.third * np.abs(ratio) ** 1.5, self.fourth * ratio**2)
        fourth = 2 * second**2 / np.maximum(degrees, 1.0)
        return Moments(second, np.zeros_like(second), fourth)

    def of_contrast(self, first: int, second: int | None) -> tuple[float, float, float]:
        """Variance, degrees of freedom and skewness of a risk, or of ``first - second``."""
        i, j = (first, first) if second is None else (min(first, second), max(first, second))
        variance, fourth = float(self.second[i, j]), float(self.fourth[i, j])
        if variance <= 0 or fourth <= 0:
            return max(variance, 0.0), math.inf, 0.0
        skewness = float(self.third[i, j]) / variance / math.sqrt(variance)
        degrees = 2 * variance / (fourth / variance)
        return variance, degrees, -skewness if second is not None and first > second else skewness


def covariance_of_contrasts(covariance: Matrix) -> Matrix:
    """Variance of each risk on the diagonal, and of the difference i - j off the diagonal."""
    variance = np.diag(covariance)
    difference = variance[:, None] + variance - 2 * covariance
    return np.where(np.eye(len(variance), dtype=bool), variance, difference)


def combine_degrees(log: tuple[float, float], outside: tuple[float, float]) -> float:
    """Welch and Satterthwaite: degrees of freedom of a sum of two variances.

    Each argument is a variance with its degrees of freedom.
    """
    total = log[0] + outside[0]
    spread = sum(variance / total * variance / degrees for variance, degrees in (log, outside))
    return math.inf if spread == 0 else total / spread


def t_quantile(level: float, degrees: float) -> float:
    """The two-sided quantile of Student's t; of the normal distribution if degrees are infinite."""
    probability = (1 + level) / 2
    if math.isinf(degrees):
        return float(special.ndtri(probability))
    return float(special.stdtrit(degrees, probability))


def t_p_value(statistic: float, degrees: float) -> float:
    """Two-sided p-value of a non-negative statistic."""
    if math.isinf(degrees):
        return float(2 * special.ndtr(-statistic))
    return float(2 * special.stdtr(degrees, -statistic))


def wide_limits(
    value: float, std_error: float, *, level: float, degrees: float, skewness: float
) -> tuple[float, float]:
    """On each side the wider of Student's interval and Hall's, which corrects for skewness.

    Hall (1992) transforms the studentized error to T(t) = ((1 + g t/3)^3 - 1)/g + g/6, whose
    distribution is less skewed, and transforms its quantiles back.
    """
    t = t_quantile(level, degrees)
    low = max(t, _invert_hall(t, skewness))
    high = max(t, -_invert_hall(-t, skewness))
    return value - std_error * low, value + std_error * high


def wide_p_value(value: float, std_error: float, *, degrees: float, skewness: float) -> float:
    """The p-value of zero that agrees with :func:`wide_limits`."""
    t = value / std_error
    hall = math.copysign(1.0, t) * _hall(t, skewness)
    return t_p_value(max(min(abs(t), hall), 0.0), degrees)


def _hall(t: float, skewness: float) -> float:
    if abs(skewness) < SMALL_SKEWNESS:
        return t
    return ((1 + skewness * t / 3) ** 3 - 1) / skewness + skewness / 6


def _invert_hall(x: float, skewness: float) -> float:
    if abs(skewness) < SMALL_SKEWNESS:
        return x
    return 3 / skewness * (math.cbrt(1 + skewness * (x - skewness / 6)) - 1)


def wilson_limits(
    share: float, size: float, *, level: float, degrees: float = math.inf
) -> tuple[float, float]:
    """Wilson's interval of a share in a sample of ``size`` independent draws."""
    if math.isinf(size):
        return share, share
    squared = t_quantile(level, degrees) ** 2
    middle = (share + squared / (2 * size)) / (1 + squared / size)
    spread = share * (1 - share) / size + squared / (4 * size**2)
    half_width = math.sqrt(squared * spread) / (1 + squared / size)
    return max(middle - half_width, 0.0), min(middle + half_width, 1.0)


@dataclass(frozen=True, slots=True, eq=False)
class ShareTest:
    """Tests a mean of level values whose shares come from a small random sample.

    A mean R is rejected if (sum_r f_r D_r - R)^2 exceeds t^2 times its variance under R:
    (1/m) sum_r q_r (D_r - R)^2 plus the variance of the D_r. Here f are the shares in the sample
    and q the most likely shares with mean R. With two levels it is Wilson's interval.
    """

    values: Vector
    """D_r: the mean of each level."""
    counts: Vector
    """Ratings of each level in the sample."""
    variance: float
    """The variance of the mean through the level values."""

    @property
    def mean(self) -> float:
        return float(self.counts @ self.values / self.counts.sum())

    def statistic(self, mean: float) -> float:
        """Positive if the sample mean is above ``mean``; compared with a t quantile."""
        distance = self.values - mean
        shares = _likeliest_shares(self.counts / self.counts.sum(), distance)
        variance = float(shares @ np.square(distance)) / self.counts.sum() + self.variance
        gap = self.mean - mean
        if variance <= 0:
            return 0.0 if gap == 0 else math.copysign(math.inf, gap)
        return gap / math.sqrt(variance)

    def limits(self, *, level: float, degrees: float) -> tuple[float, float]:
        """All means that are not rejected, from the lowest to the highest."""
        t = t_quantile(level, degrees)
        half_width = t * math.sqrt(self.variance)
        low, high = self.mean - half_width, self.mean + half_width
        least, largest = float(self.values.min()), float(self.values.max())
        if self.statistic(least) > t:
            low = brentq(lambda mean: self.statistic(mean) - t, least, self.mean)
        if self.statistic(largest) < -t:
            high = brentq(lambda mean: self.statistic(mean) + t, self.mean, largest)
        return float(low), float(high)


def _likeliest_shares(observed: Vector, distance: Vector) -> Vector:
    """The shares q that maximise sum f log q subject to sum q = 1 and sum q distance = 0.

    q = f / (1 + lambda * distance). A level that the sample lacks gets the rest of the mass if
    lambda would otherwise leave its range.
    """
    if not (distance > 0).any() or not (distance < 0).any():
        is_zero: Vector = np.where(distance == 0, 1.0, 0.0)
        return is_zero / max(float(is_zero.sum()), 1.0)
    low, high = -1.0 / float(distance.max()), -1.0 / float(distance.min())
    levels = [(f, d) for f, d in zip(observed.tolist(), distance.tolist(), strict=True) if f > 0]

    def excess(multiplier: float) -> float:
        return float(sum(f * d / (1 + multiplier * d) for f, d in levels))

    margin = 1e-12 * (high - low)
    if excess(low + margin) <= 0:
        multiplier = low
    elif excess(high - margin) >= 0:
        multiplier = high
    else:
        multiplier = float(brentq(excess, low + margin, high - margin, xtol=1e-14))
    scale = 1 + multiplier * distance
    is_inside = (observed > 0) & (scale > 1e-12)
    shares = np.divide(observed, scale, out=np.zeros_like(observed), where=is_inside)
    rest = 1.0 - float(shares.sum())
    if rest > 0 and multiplier in (low, high):
        shares[int(distance.argmax() if multiplier == low else distance.argmin())] += rest
    return shares


def adjust_p_values(p_values: Sequence[float]) -> list[float]:
    """Holm's adjustment: the i-th smallest of n p-values times n - i + 1, monotone, at most 1."""
    order = np.argsort(p_values, kind="stable")
    steps = np.maximum.accumulate(np.asarray(p_values)[order] * np.arange(len(p_values), 0, -1))
    adjusted = np.empty(len(p_values))
    adjusted[order] = np.minimum(steps, 1.0)
    values: list[float] = adjusted.tolist()
    return values
