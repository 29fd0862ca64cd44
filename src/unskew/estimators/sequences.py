"""Confidence sequences: limits that hold at every look at a growing log, at once.

An ordinary 95 % interval is right at one sample size that was fixed beforehand. Somebody who looks
again and again finds the truth outside of it far more often than in 5 % of logs. The limits below
hold for all sample sizes t = 1, 2, ... at once, so that one may look and stop at any time.

Asymptotic (Waudby-Smith et al.), for means of independent units with standard deviation sd:

    mean +- sd / sqrt(t) * m_t,    m_t = sqrt( 2 (1 + 1/v) log( sqrt(1 + v) / alpha ) ),
    v = t rho^2 = t / t* * ( -2 log alpha + log(1 - 2 log alpha) )

t* is the planned size, at which the limits are about narrowest: 1.55 times as wide as ordinary
ones for alpha = 0.05. It must be fixed before the first look.

m_t is a quantile of a normal distribution, from which means of few or skewed units are far. So the
limits are the ordinary ones of such means, the wider ones of Student's and Hall's, at the tail
probability of m_t, with the degrees of freedom and the skewness of the units so far. They are wider
than m_t where a few units with large weights decide about the standard error.

Exact for values u in [0, 1] (empirical Bernstein with predictable weights lam):

    sum lam_i u_i / sum lam_i +- ( log(2/alpha) + sum 4 (u_i - mu_{i-1})^2 psi(lam_i) ) / sum lam_i
    psi(lam) = (-log(1 - lam) - lam) / 4,   mu_i = (1/2 + sum u) / (i + 1)
    lam_i = min( sqrt( 2 log(2/alpha) / (s2_{i-1} i log(1 + i)) ), 1/2 )
    s2_i = (1/4 + sum (u - mu)^2) / (i + 1)
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy import special

from unskew.errors import UsageError
from unskew.estimators.intervals import (
    Moments,
    correct_quantile,
    correct_statistic,
    covariance_of_contrasts,
    t_from_normal,
)
from unskew.types import Matrix, Vector

MIN_EFFECTIVE_SIZE = 100.0
"""Below this effective sample size the asymptotic limits are not given: they can be wrong."""
CHUNK = 1 << 15
N_POWERS = 9
"""Products a^i b^j with i + j = 3 or 4."""
ROUNDING_OF_SUMS = 1e-15
"""Rounding errors of a sum, as a share of its largest terms."""
ROUNDING = 1e-9
"""Values may leave their declared range by this share of it."""


@dataclass(frozen=True, slots=True)
class SequenceClock:
    """How far a growing log has come, which decides how wide its limits are."""

    n_units: float
    """Independent units so far."""
    planned_size: float
    """t*, in the same units."""
    effective_size: float
    """Effective number of units: (sum h)^2 / sum h^2 of the weights of units."""

    @property
    def is_early(self) -> bool:
        """Whether it is too early for limits."""
        return self.effective_size < MIN_EFFECTIVE_SIZE

    def limits(
        self,
        value: float,
        std_error: float,
        *,
        level: float,
        degrees: float = math.inf,
        skewness: float = 0.0,
    ) -> tuple[float, float]:
        """Limits that hold at every look; infinite if it is too early.

        As long as all units are equal, the standard error is 0 and says nothing: rare units that
        differ may come later.
        """
        if self.is_early or std_error == 0.0:
            return -math.inf, math.inf
        down, up = correct_quantile(t_from_normal(self.multiplier(level), degrees), skewness)
        return value - std_error * down, value + std_error * up

    def multiplier(self, level: float) -> float:
        """m_t: the distance of the limits in standard errors, for many units without skewness."""
        v = self._scaled_time(level)
        return math.sqrt(2 * (1 + 1 / v) * (0.5 * math.log1p(v) - math.log1p(-level)))

    def p_value(
        self,
        value: float,
        std_error: float,
        *,
        level: float,
        degrees: float = math.inf,
        skewness: float = 0.0,
    ) -> float:
        """The least alpha at which zero lies outside the limits; 1 if it is too early.

        It holds at every look too. ``level`` fixes rho; below 1 - ``level`` the p-value means that
        zero lies outside the limits of that level.
        """
        if self.is_early or std_error == 0.0:
            return 1.0
        v = self._scaled_time(level)
        z = correct_statistic(value / std_error, degrees=degrees, skewness=skewness)
        return math.exp(min(0.5 * math.log1p(v) - 0.5 * z**2 / (1 + 1 / v), 0.0))

    def _scaled_time(self, level: float) -> float:
        """Units so far, in units of 1 / rho^2: v in the formula."""
        log_alpha = math.log1p(-level)
        return self.n_units / self.planned_size * (-2 * log_alpha + math.log(1 - 2 * log_alpha))


class RunningMean(NamedTuple):
    """The risks of K models so far, their covariance, and the moments of their errors."""

    value: Vector
    covariance: Matrix
    moments: Moments


@dataclass(frozen=True, slots=True, eq=False)
class UnitMoments:
    """Sums over units of x = (h delta of model 1, ..., h delta of model K, h base), and of x x'.

    Moments of disjoint sets of units can be added. Units that are added one batch after the other
    give the same numbers, bit for bit, however they are cut into batches.
    """

    n_units: int
    total: Vector
    moment: Matrix
    powers: Matrix
    """Sums of a^3, a^2 b, a b^2, b^3 and of a^4, a^3 b, ..., b^4 with b = h base. Each row has
    another a: h delta of a model, or of a model minus a later one, in the order of pairs of models
    in the upper triangle of a matrix."""

    @classmethod
    def empty(cls, n_models: int) -> UnitMoments:
        size = n_models + 1
        powers = np.zeros((n_models * size // 2, N_POWERS))
        return cls(0, np.zeros(size), np.zeros((size, size)), powers)

    @property
    def sums(self) -> tuple[Vector, Matrix, Matrix]:
        return self.total, self.moment, self.powers

    def with_sums(self, n_units: int, *sums: npt.ArrayLike) -> UnitMoments:
        """Moments of as many models with other sums; an error if these have another shape."""
        arrays = (np.array(each, np.float64) for each in sums)
        shaped = (array.reshape(old.shape) for array, old in zip(arrays, self.sums, strict=True))
        return UnitMoments(n_units, *shaped)

    def update(self, units: Matrix) -> UnitMoments:
        """With more units: one row of x for each."""
        total, moment, powers = self.total, self.moment, self.powers
        n_rows = max(CHUNK // len(powers), 1)
        for start in range(0, len(units), n_rows):
            part = units[start : start + n_rows]
            total = _accumulate(total, part)
            moment = _accumulate(moment, part[:, :, None] * part[:, None, :])
            powers = _accumulate(powers, _find_powers(part))
        return UnitMoments(self.n_units + len(units), total, moment, powers)

    def __add__(self, other: UnitMoments) -> UnitMoments:
        return UnitMoments(
            self.n_units + other.n_units,
            self.total + other.total,
            self.moment + other.moment,
            self.powers + other.powers,
        )

    @property
    def effective_size(self) -> float:
        """(sum h)^2 / sum h^2; 0 without any weight."""
        square = float(self.moment[-1, -1])
        return float(self.total[-1]) ** 2 / square if square > 0 else 0.0

    def ratio(self) -> RunningMean:
        """SNIPS, sum h delta / sum h, with its covariance by the delta method."""
        weight = float(self.total[-1])
        if weight <= 0:
            raise UsageError(
                "all weights are zero: there is no rated cell to average over.",
                remedy="Wait until the log has ratings.",
            )
        value = self.total[:-1] / weight
        influence = np.column_stack([np.eye(value.size), -value]) / weight
        covariance = influence @ self.moment @ influence.T
        center = _contrast(value)
        third, fourth = _center(self.powers[:, :4], center), _center(self.powers[:, 4:], center)
        return RunningMean(value, covariance, _as_moments(covariance, third, fourth, weight))

    def mean(self, *, n_units: int | None = None, size: float = 1.0) -> RunningMean:
        """IPS, sum h delta / (n_units * size), with its covariance.

        ``n_units`` counts also units without weight; ``size`` is the number of cells of a unit.
        """
        n = self.n_units if n_units is None else n_units
        value = self.total[:-1] / n
        spread = self.moment[:-1, :-1] / n - np.outer(value, value)
        covariance = spread / (n * size**2)
        center, total = _contrast(value), _contrast(self.total[:-1])
        square = covariance_of_contrasts(self.moment[:-1, :-1])[np.triu_indices(value.size)]
        terms = np.column_stack([square, total, np.full(total.size, float(n))])
        third = _center(np.column_stack([self.powers[:, 0], terms]), center)
        fourth = _center(np.column_stack([self.powers[:, 4], self.powers[:, 0], terms]), center)
        moments = _as_moments(covariance, third, fourth, n * size)
        return RunningMean(value / size, covariance, moments)


def _contrast(values: Matrix) -> Matrix:
    """Values of models and their differences along the last axis, in the order of ``powers``."""
    first, second = np.triu_indices(values.shape[-1])
    difference: Matrix = values[..., first] - np.where(first == second, 0, values[..., second])
    return difference


def _find_powers(units: Matrix) -> npt.NDArray[np.float64]:
    """What each unit adds to ``UnitMoments.powers``."""
    a = _contrast(units[:, :-1])
    b = np.broadcast_to(units[:, -1:], a.shape)
    of_a, of_b = [np.ones_like(a), a], [np.ones_like(a), b]
    for powers, factor in ((of_a, a), (of_b, b)):
        for power in (2, 3, 4):
            powers.append(powers[power - 1] * factor)
    products = [of_a[k - j] * of_b[j] for k in (3, 4) for j in range(k + 1)]
    return np.stack(products, axis=2)


def _center(sums: Matrix, center: Vector) -> Vector:
    """Sum of (a - c b)^k in each row, from sums of a^k, a^(k-1) b, ..., b^k.

    Rounding errors of the terms are added to the size of the sum, so that it is not too small.
    """
    order = sums.shape[1] - 1
    powers = np.arange(order + 1)
    terms = sums * special.comb(order, powers) * (-center[:, None]) ** powers
    total: Vector = terms.sum(axis=1)
    sign = np.copysign(1.0, total) if order % 2 else 1.0
    centred: Vector = sign * (np.abs(total) + ROUNDING_OF_SUMS * np.abs(terms).sum(axis=1))
    return centred


def _as_moments(covariance: Matrix, third: Vector, fourth: Vector, normalizer: float) -> Moments:
    """The moments of contributions (a - c b) / normalizer to the errors of the risks."""
    upper = np.triu_indices(len(covariance))
    moments = np.zeros((2, *covariance.shape))
    moments[0][upper], moments[1][upper] = third / normalizer**3, fourth / normalizer**4
    return Moments(covariance_of_contrasts(covariance), *moments)


def _accumulate(start: Matrix, values: Matrix) -> Matrix:
    """``start`` plus all ``values``, added in their order, so that batches do not matter.

    A copy, because the last bit of a product of matrices depends on where a view lies in memory.
    """
    end: Matrix = np.cumsum(np.concatenate([start[None], values]), axis=0)[-1].copy()
    return end


class BernsteinSums(NamedTuple):
    """What the exact limits need of all values so far, in the letters of the formula."""

    u: float
    squared_deviation: float
    """Sum of (u - mu)^2."""
    lam: float
    lam_u: float
    penalty: float
    """Sum of 4 (u - mu)^2 psi(lam), with mu before the value was added."""


NO_SUMS = BernsteinSums(0.0, 0.0, 0.0, 0.0, 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class BernsteinSequence:
    """Exact limits of the mean of values that are known to lie between ``low`` and ``high``.

    The values may come from any distribution; their mean must stay the same. A state is updated
    with new values in their order. States cannot be added: the weights depend on the past.
    """

    low: float
    high: float
    level: float = 0.95
    n_units: int = 0
    sums: BernsteinSums = NO_SUMS

    def __post_init__(self) -> None:
        if not self.low < self.high:
            raise UsageError(f"`low` must be below `high`; got {self.low:g} and {self.high:g}.")

    def update(self, values: Vector) -> BernsteinSequence:
        """With more values; an error if one lies outside the declared range."""
        u = (np.asarray(values, dtype=np.float64) - self.low) / (self.high - self.low)
        is_outside = ~((u >= -ROUNDING) & (u <= 1 + ROUNDING))
        if is_outside.any():
            raise UsageError(
                f"{int(is_outside.sum()):,} of {u.size:,} values lie outside their range from "
                f"{self.low:g} to {self.high:g}; the first is "
                f"{float(values[int(is_outside.argmax())]):g}. Exact limits would be wrong.",
                remedy="Declare a wider range from the start.",
            )
        state = self
        for start in range(0, u.size, CHUNK):
            state = state._add_chunk(np.clip(u[start : start + CHUNK], 0.0, 1.0))
        return state

    def _add_chunk(self, u: Vector) -> BernsteinSequence:
        index = self.n_units + np.arange(1, u.size + 1)
        sum_u = np.cumsum(np.concatenate([[self.sums.u], u]))
        mean = (0.5 + sum_u) / np.append(index[0], index + 1)
        squares = np.concatenate([[self.sums.squared_deviation], (u - mean[1:]) ** 2])
        sum_square = np.cumsum(squares)
        variance = (0.25 + sum_square[:-1]) / index
        lam = np.minimum(
            np.sqrt(2 * math.log(2 / (1 - self.level)) / (variance * index * np.log1p(index))), 0.5
        )
        penalty = (u - mean[:-1]) ** 2 * (-np.log1p(-lam) - lam)
        sums = BernsteinSums(
            u=float(sum_u[-1]),
            squared_deviation=float(sum_square[-1]),
            lam=float(_accumulate(np.array(self.sums.lam), lam)),
            lam_u=float(_accumulate(np.array(self.sums.lam_u), lam * u)),
            penalty=float(_accumulate(np.array(self.sums.penalty), penalty)),
        )
        return replace(self, n_units=self.n_units + u.size, sums=sums)

    @property
    def value(self) -> float:
        """The weighted mean at the centre of the limits; NaN without any value."""
        if self.n_units == 0:
            return math.nan
        return self.low + (self.high - self.low) * self.sums.lam_u / self.sums.lam

    def limits(self) -> tuple[float, float]:
        """Limits that hold at every look, within the range of the values."""
        if self.n_units == 0:
            return self.low, self.high
        half_width = (math.log(2 / (1 - self.level)) + self.sums.penalty) / self.sums.lam
        half_width *= self.high - self.low
        return max(self.value - half_width, self.low), min(self.value + half_width, self.high)
