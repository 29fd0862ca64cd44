"""From values to positions on a drawing, and the round numbers to mark on an axis."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from unskew.report.charts import ChartAxis

ROUND_STEPS = (1.0, 2.0, 2.5, 5.0, 10.0)
LOG_STEPS = ((1.0, 2.0, 5.0), (1.0, 3.0), (1.0,))
MARGIN = 0.06
"""Space beyond the smallest and the largest value, as a share of their distance."""


@dataclass(frozen=True, slots=True)
class ChartScale:
    """Maps values from ``low`` to ``high`` to positions from ``start`` to ``end``.

    Values beyond the limits are drawn at the limits.
    """

    low: float
    high: float
    start: float
    end: float
    is_log: bool = False

    @classmethod
    def around(
        cls, values: Iterable[float], start: float, end: float, *, is_log: bool = False
    ) -> ChartScale:
        """A scale that includes all finite values, with a margin on both sides."""
        shown = [value for value in values if math.isfinite(value) and (value > 0 or not is_log)]
        low, high = (min(shown), max(shown)) if shown else (0.1 if is_log else 0.0, 1.0)
        if is_log:
            factor = (high / low) ** MARGIN if high > low else 2.0
            return cls(low / factor, high * factor, start, end, is_log=True)
        margin = (high - low) * MARGIN if high > low else abs(high) * 0.1 or 1.0
        return cls(low - margin, high + margin, start, end)

    @classmethod
    def for_axis(cls, axis: ChartAxis, values: list[float], start: float, end: float) -> ChartScale:
        """The scale of an axis, which may fix its ends."""
        automatic = cls.around(values, start, end, is_log=axis.is_log)
        low = automatic.low if axis.low is None else axis.low
        high = automatic.high if axis.high is None else axis.high
        return cls(low, high if high > low else low + 1.0, start, end, is_log=axis.is_log)

    def __call__(self, value: float) -> float:
        low, high = self.low, self.high
        if self.is_log:
            low, high, value = (math.log(max(end, 1e-300)) for end in (low, high, value))
        share = min(max((value - low) / (high - low), 0.0), 1.0)
        return self.start + share * (self.end - self.start)

    def ticks(self, n_ticks: int) -> list[float]:
        """About ``n_ticks`` round numbers, or fewer."""
        return self._log_ticks(n_ticks) if self.is_log else self._linear_ticks(n_ticks)

    def axis_ticks(self, axis: ChartAxis, n_ticks: int) -> list[float]:
        """The ticks that the axis asks for, thinned out to ``n_ticks``; else round numbers."""
        if axis.ticks is None:
            return self.ticks(n_ticks)
        return list(axis.ticks)[:: -(-len(axis.ticks) // n_ticks)]

    def _linear_ticks(self, n_ticks: int) -> list[float]:
        least_step = (self.high - self.low) / max(n_ticks, 1)
        power = 10.0 ** math.floor(math.log10(least_step))
        step = next(s * power for s in ROUND_STEPS if s * power >= least_step * (1 - 1e-9))
        first = math.ceil(self.low / step - 1e-9)
        last = math.floor(self.high / step + 1e-9)
        return [round(multiple * step, 12) for multiple in range(first, last + 1)]

    def _log_ticks(self, n_ticks: int) -> list[float]:
        powers = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
        for steps in LOG_STEPS:
            ticks = [step * 10.0**power for power in powers for step in steps]
            inside = [t for t in ticks if self.low * (1 - 1e-9) <= t <= self.high * (1 + 1e-9)]
            if len(inside) <= n_ticks:
                break
        if len(inside) < 2:
            return [self.low, self.high]
        return inside[:: math.ceil(len(inside) / n_ticks)]
