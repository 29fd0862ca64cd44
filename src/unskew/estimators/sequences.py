"""Confidence sequences: limits that hold at every look at a growing log, at once.

An ordinary 95 % interval is right at one sample size that was fixed beforehand. Somebody who looks
again and again finds the truth outside of it far more often than in 5 % of logs. The limits below
hold for all sample sizes t = 1, 2, ... at once, so that one may look and stop at any time.

Asymptotic (Waudby-Smith et al.), for means of independent units with standard deviation sd:

    mean +- sd / sqrt(t) * m_t,    m_t = sqrt( 2 (1 + 1/v) log( sqrt(1 + v) / alpha ) ),
    v = t rho^2 = t / t* * ( -2 log alpha + log(1 - 2 log alpha) )

t* is the planned size, at which the limits are about narrowest: 1.55 times as wide as ordinary
ones for alpha = 0.05. It must be fixed before the first look.

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

from unskew.errors import UsageError
from unskew.types import Matrix, Vector

MIN_EFFECTIVE_SIZE = 100.0
"""Below this effective sample size the asymptotic limits are not given: they can be wrong."""
SMALL_EFFECTIVE_SIZE = 300.0
"""Below this they covered 92 % in a simulation whose rarest rows had the largest losses."""
EARLY = (
    f"below {SMALL_EFFECTIVE_SIZE:.0f} limits are too narrow if rarely rated rows have the largest "
    "losses"
)
CHUNK = 1 << 15
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

    def limits(self, value: float, std_error: float, *, level: float) -> tuple[float, float]:
        """Limits that hold at every look; infinite if it is too early."""
        if self.is_early:
            return -math.inf, math.inf
        half_width = std_error * self.multiplier(level)
        return value - half_width, value + half_width

    def multiplier(self, level: float) -> float:
        """m_t: the distance of the limits in standard errors."""
        v = self._scaled_time(level)
        return math.sqrt(2 * (1 + 1 / v) * (0.5 * math.log1p(v) - math.log1p(-level)))

    def p_value(self, value: float, std_error: float, *, level: float) -> float:
        """The least alpha at which zero lies outside the limits; 1 if it is too early.

        It holds at every look too. ``level`` fixes rho; below 1 - ``level`` the p-value means that
        zero lies outside the limits of that level.
        """
        if self.is_early:
            return 1.0
        if std_error == 0.0:
            return float(value == 0.0)
        v = self._scaled_time(level)
        exponent = 0.5 * math.log1p(v) - 0.5 * (value / std_error) ** 2 / (1 + 1 / v)
        return math.exp(min(exponent, 0.0))

    def _scaled_time(self, level: float) -> float:
        """Units so far, in units of 1 / rho^2: v in the formula."""
        log_alpha = math.log1p(-level)
        return self.n_units / self.planned_size * (-2 * log_alpha + math.log(1 - 2 * log_alpha))


@dataclass(frozen=True, slots=True, eq=False)
class UnitMoments:
    """Sums over units of x = (h delta of model 1, ..., h delta of model K, h base), and of x x'.

    Moments of disjoint sets of units can be added. Units that are added one batch after the other
    give the same numbers, bit for bit, however they are cut into batches.
    """

    n_units: int
    total: Vector
    moment: Matrix

    @classmethod
    def empty(cls, n_models: int) -> UnitMoments:
        return cls(0, np.zeros(n_models + 1), np.zeros((n_models + 1, n_models + 1)))

    def update(self, units: Matrix) -> UnitMoments:
        """With more units: one row of x for each."""
        total, moment = self.total, self.moment
        for start in range(0, len(units), CHUNK):
            part = units[start : start + CHUNK]
            total = _accumulate(total, part)
            moment = _accumulate(moment, part[:, :, None] * part[:, None, :])
        return UnitMoments(self.n_units + len(units), total, moment)

    def __add__(self, other: UnitMoments) -> UnitMoments:
        return UnitMoments(
            self.n_units + other.n_units, self.total + other.total, self.moment + other.moment
        )

    @property
    def effective_size(self) -> float:
        """(sum h)^2 / sum h^2; 0 without any weight."""
        square = float(self.moment[-1, -1])
        return float(self.total[-1]) ** 2 / square if square > 0 else 0.0

    def ratio(self) -> tuple[Vector, Matrix]:
        """SNIPS, sum h delta / sum h, and its covariance by the delta method."""
        weight = float(self.total[-1])
        if weight <= 0:
            raise UsageError(
                "all weights are zero: there is no rated cell to average over.",
                remedy="Wait until the log has ratings.",
            )
        value = self.total[:-1] / weight
        influence = np.column_stack([np.eye(value.size), -value]) / weight
        return value, influence @ self.moment @ influence.T

    def mean(self, *, n_units: int | None = None, size: float = 1.0) -> tuple[Vector, Matrix]:
        """IPS, sum h delta / (n_units * size), and its covariance.

        ``n_units`` counts also units without weight; ``size`` is the number of cells of a unit.
        """
        n = self.n_units if n_units is None else n_units
        value = self.total[:-1] / n
        spread = self.moment[:-1, :-1] / n - np.outer(value, value)
        return value / size, spread / (n * size**2)


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
