"""Confidence limits and p-values that hold for skewed, heavy-tailed and small samples."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations_with_replacement

import numpy as np
import numpy.typing as npt
from scipy import special
from scipy.optimize import brentq

from unskew.kernels.blocks import BLOCK, cut_rows, dot
from unskew.threads import single_blas_thread
from unskew.types import Matrix, Vector

SMALL_SKEWNESS = 1e-6
"""Below this Hall's correction is smaller than rounding errors."""
ROUNDING = 1e-12
"""Distances below this share of the largest one are rounding errors."""
MAX_STEPS = 200
"""Steps in the search for the most likely shares, which takes about ten."""


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

        A contribution adds ``variance * z^2`` to the variance and ``variance * third * z^3`` to the
        third moment. A factor of None is 1.
        """
        buffer = np.empty((3, BLOCK))
        with single_blas_thread():
            parts = [_sum_powers(*block, buffer) for block in blocks]
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

    def with_variance(self, covariance: Matrix) -> Moments:
        """Moments of the same degrees of freedom and skewness, with another covariance."""
        second = covariance_of_contrasts(covariance)
        ratio = np.divide(second, self.second, out=np.ones_like(second), where=self.second > 0)
        return Moments(second, self.third * np.abs(ratio) ** 1.5, self.fourth * ratio**2)

    def combine(self, other: Moments, covariance: Matrix) -> Moments:
        """Moments of two-way clusters with this covariance, from those of users and of items.

        They have the fewer degrees of freedom and the larger third moment of the two. If
        cells are independent, both estimate the same third moment; if the cells of an item depend
        on one another, only that of items is right, and it is the larger one.
        """
        second = covariance_of_contrasts(covariance)
        degrees = np.maximum(np.minimum(self.degrees, other.degrees), 1.0)
        third = np.where(np.abs(self.third) > np.abs(other.third), self.third, other.third)
        return Moments(second, third, 2 * second**2 / degrees)

    def of_contrast(self, first: int, second: int | None) -> tuple[float, float, float]:
        """Variance, degrees of freedom and skewness of a risk, or of ``first - second``."""
        i, j = (first, first) if second is None else (min(first, second), max(first, second))
        variance, fourth = float(self.second[i, j]), float(self.fourth[i, j])
        if variance <= 0 or fourth <= 0:
            return max(variance, 0.0), math.inf, 0.0
        skewness = float(self.third[i, j]) / variance / math.sqrt(variance)
        degrees = 2 * variance / (fourth / variance)
        return variance, degrees, -skewness if second is not None and first > second else skewness


def _sum_powers(
    contributions: Matrix, variance: Vector | None, third: Vector | None, buffer: Matrix
) -> npt.NDArray[np.float64]:
    """The second, third and fourth moment of a block, for all models and their differences.

    One contrast is computed at a time, so that its numbers stay in the cache.
    """
    n_models, size = contributions.shape
    difference, scaled, square = buffer[:, :size]
    moments = np.zeros((3, n_models, n_models))
    for i, j in combinations_with_replacement(range(n_models), 2):
        z = contributions[i]
        if i != j:
            z = np.subtract(z, contributions[j], out=difference)
        weighted = z if variance is None else np.multiply(z, variance, out=scaled)
        np.multiply(z, weighted, out=square)
        moments[0, i, j], moments[2, i, j] = dot(z, weighted), dot(square, square)
        weighted = z if third is None else np.multiply(z, third, out=scaled)
        moments[1, i, j] = dot(square, weighted)
    return moments


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


def conservative_limits(
    value: float, std_error: float, *, level: float, degrees: float, skewness: float
) -> tuple[float, float]:
    """On each side the wider of Student's interval and Hall's, which corrects for skewness.

    Hall (1992) transforms the studentized error to T(t) = ((1 + g t/3)^3 - 1)/g + g/6, whose
    distribution is less skewed, and transforms its quantiles back. g is ``skewness``, that of the
    error of ``value``; ``degrees`` are the degrees of freedom of ``std_error``.
    """
    low, high = conservative_quantiles(level, degrees=degrees, skewness=skewness)
    return value - std_error * low, value + std_error * high


def conservative_quantiles(level: float, *, degrees: float, skewness: float) -> tuple[float, float]:
    """By how many standard errors :func:`conservative_limits` reach down and up."""
    return correct_quantile(t_quantile(level, degrees), skewness)


def correct_quantile(t: float, skewness: float) -> tuple[float, float]:
    """How far limits reach down and up: the wider of a quantile and of Hall's correction of it."""
    return max(t, _invert_hall(t, skewness)), max(t, -_invert_hall(-t, skewness))


def t_from_normal(z: float, degrees: float) -> float:
    """The quantile of Student's t with the tail probability of a non-negative normal quantile."""
    if math.isinf(degrees):
        return z
    return -float(special.stdtrit(degrees, float(special.ndtr(-z))))


def correct_statistic(t: float, *, degrees: float, skewness: float) -> float:
    """The non-negative normal statistic that agrees with a ratio of value and standard error.

    It exceeds z where zero lies outside of the limits by :func:`t_from_normal` of z and
    :func:`correct_quantile`.
    """
    least = _least_statistic(t, skewness)
    return least if math.isinf(degrees) else -float(special.ndtri(special.stdtr(degrees, -least)))


def conservative_p_value(
    value: float, std_error: float, *, degrees: float, skewness: float
) -> float:
    """The p-value of zero that agrees with :func:`conservative_limits`."""
    return t_p_value(_least_statistic(value / std_error, skewness), degrees)


def _least_statistic(t: float, skewness: float) -> float:
    """The smaller of a statistic and of Hall's correction of it, but at least 0."""
    return max(min(abs(t), math.copysign(1.0, t) * _hall(t, skewness)), 0.0)


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

    A mean R is the one at which sum_r q_r g_r = 0, with the distances g_r = D_r - R of the level
    means from it. It is rejected if (sum_r f_r g_r)^2 exceeds t^2 times its variance under R:
    (1/m) sum_r q_r g_r^2 plus the variance of the D_r. Here f are the shares in the sample and q
    the most likely shares with mean R. With two levels it is Wilson's interval. A ratio of means
    has g_r = a_r - R b_r. If the errors of the D_r are skewed, the quantiles are those of
    :func:`conservative_limits`. The variance through the shares of a sample that was drawn user by
    user is multiplied by its design effect, as in the score tests of Rao and Scott (1981).
    """

    value: float
    """The estimate, at which ``gap`` was computed."""
    gap: Vector
    """g_r at the estimate."""
    derivative: Vector
    """-dg_r / dR: 1, or b_r of a ratio."""
    counts: Vector
    """Ratings of each level in the sample."""
    variance: float
    """The variance of the mean through the level values."""
    skewness: float = 0.0
    """The skewness of the mean through the level values."""
    design_effect: float = 1.0
    """The variance through the shares, divided by that of independent ratings."""

    @classmethod
    def of_levels(
        cls, values: Vector, counts: Vector, variance: float, skewness: float = 0.0
    ) -> ShareTest:
        """A mean of the level values D_r."""
        mean = float(counts @ values / counts.sum())
        return cls(mean, values - mean, np.ones_like(values), counts, variance, skewness)

    @property
    def mean(self) -> float:
        """R at the shares of the sample."""
        return self.value + float(self.counts @ self.gap) / float(self.counts @ self.derivative)

    def statistic(self, mean: float) -> float:
        """Positive if the sample mean is above ``mean``; compared with a t quantile."""
        size = float(self.counts.sum())
        observed: list[float] = (self.counts / size).tolist()
        away = self.gap - (mean - self.value) * self.derivative
        is_zero = np.abs(away) <= ROUNDING * np.abs(away).max()
        distance: list[float] = np.where(is_zero, 0.0, away).tolist()
        shares = _likeliest_shares(observed, distance)
        spread = sum(q * d * d for q, d in zip(shares, distance, strict=True))
        variance = self.design_effect * spread / size + self.variance
        gap = sum(f * d for f, d in zip(observed, distance, strict=True))
        if variance <= 0:
            return 0.0 if gap == 0 else math.copysign(math.inf, gap)
        return gap / math.sqrt(variance)

    def limits(self, *, level: float, degrees: float) -> tuple[float, float]:
        """All means that are not rejected, from the lowest to the highest."""
        down, up = conservative_quantiles(level, degrees=degrees, skewness=self.skewness)
        std_error, is_used = math.sqrt(self.variance), self.derivative > 0
        low, high = self.mean - down * std_error, self.mean + up * std_error
        values = self.value + self.gap[is_used] / self.derivative[is_used]
        least, largest = float(values.min()), float(values.max())
        if self.statistic(least) > down:
            low = brentq(lambda mean: self.statistic(mean) - down, least, self.mean)
        if self.statistic(largest) < -up:
            high = brentq(lambda mean: self.statistic(mean) + up, self.mean, largest)
        return float(low), float(high)

    def p_value(self, degrees: float) -> float:
        """The p-value of zero that agrees with the limits."""
        return conservative_p_value(
            self.statistic(0.0), 1.0, degrees=degrees, skewness=self.skewness
        )


def _likeliest_shares(observed: list[float], distance: list[float]) -> list[float]:
    """The shares q that maximise sum f log q subject to sum q = 1 and sum q distance = 0.

    q = f / (1 + lambda * distance). A level that the sample lacks gets the rest of the mass if
    lambda would otherwise leave its range.
    """
    least, largest = min(distance), max(distance)
    if least >= 0 or largest <= 0:
        is_zero = [float(d == 0) for d in distance]
        return [share / max(sum(is_zero), 1.0) for share in is_zero]
    low, high = -1.0 / largest, -1.0 / least
    levels = [(f, d) for f, d in zip(observed, distance, strict=True) if f > 0]
    margin = 1e-12 * (high - low)
    if _sum_distances(levels, low + margin)[0] <= 0:
        multiplier = low
    elif _sum_distances(levels, high - margin)[0] >= 0:
        multiplier = high
    else:
        multiplier = _solve_multiplier(levels, low + margin, high - margin)
    scales = [1 + multiplier * d for d in distance]
    shares = [
        f / scale if f > 0 and scale > 1e-12 else 0.0
        for f, scale in zip(observed, scales, strict=True)
    ]
    rest = 1.0 - sum(shares)
    if rest > 0 and multiplier in (low, high):
        shares[distance.index(largest if multiplier == low else least)] += rest
    return shares


def _solve_multiplier(levels: list[tuple[float, float]], low: float, high: float) -> float:
    """The root of sum f d / (1 + lambda d), which falls: Newton's steps, or halves of the rest."""
    precision, multiplier = 1e-14 * (high - low), 0.0
    for _ in range(MAX_STEPS):
        total, derivative = _sum_distances(levels, multiplier)
        low, high = (multiplier, high) if total > 0 else (low, multiplier)
        previous, multiplier = multiplier, multiplier + total / derivative
        if not low < multiplier < high:
            multiplier = (low + high) / 2
        if abs(multiplier - previous) <= precision:
            break
    return multiplier


def _sum_distances(levels: list[tuple[float, float]], multiplier: float) -> tuple[float, float]:
    """Sum of f d / (1 + lambda d), and of f (d / (1 + lambda d))^2, minus its derivative."""
    total = derivative = 0.0
    for f, d in levels:
        ratio = d / (1 + multiplier * d)
        total += f * ratio
        derivative += f * ratio * ratio
    return total, derivative


def adjust_p_values(p_values: Sequence[float]) -> list[float]:
    """Holm's adjustment: the i-th smallest of n p-values times n - i + 1, monotone, at most 1."""
    order = np.argsort(p_values, kind="stable")
    steps = np.maximum.accumulate(np.asarray(p_values)[order] * np.arange(len(p_values), 0, -1))
    adjusted = np.empty(len(p_values))
    adjusted[order] = np.minimum(steps, 1.0)
    values: list[float] = adjusted.tolist()
    return values
