"""From numbers to places on the page, and the round numbers to mark there."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

ROUND = (1.0, 2.0, 2.5, 5.0, 10.0)
DECADE = (1.0, 2.0, 5.0)


@dataclass(frozen=True, slots=True)
class Scale:
    """Numbers from ``low`` to ``high`` laid out from ``start`` to ``end``; beyond them they are cut off."""

    low: float
    high: float
    start: float
    end: float
    is_log: bool = False

    @classmethod
    def around(
        cls,
        values: Iterable[float],
        start: float,
        end: float,
        *,
        is_log: bool = False,
        room: float = 0.06,
    ) -> Scale:
        """As far as the finite values reach, with a little room on both sides."""
        found = [value for value in values if math.isfinite(value) and (value > 0 or not is_log)]
        low, high = (min(found), max(found)) if found else (0.1 if is_log else 0.0, 1.0)
        if is_log:
            reach = (high / low) ** room if high > low else 2.0
            return cls(low / reach, high * reach, start, end, is_log=True)
        reach = (high - low) * room if high > low else abs(high) * 0.1 or 1.0
        return cls(low - reach, high + reach, start, end)

    def __call__(self, value: float) -> float:
        """The place of a value."""
        low, high, at = (
            (math.log(max(each, 1e-300)) for each in (self.low, self.high, value))
            if self.is_log
            else (
                self.low,
                self.high,
                value,
            )
        )
        share = min(max((at - low) / (high - low), 0.0), 1.0)
        return self.start + share * (self.end - self.start)

    def ticks(self, most: int) -> list[float]:
        """At most about so many round numbers."""
        return self._log_ticks(most) if self.is_log else self._linear_ticks(most)

    def _linear_ticks(self, most: int) -> list[float]:
        rough = (self.high - self.low) / max(most, 1)
        power = 10.0 ** math.floor(math.log10(rough))
        step = next(each * power for each in ROUND if each * power >= rough * (1 - 1e-9))
        first = math.ceil(self.low / step - 1e-9)
        last = math.floor(self.high / step + 1e-9)
        return [round(place * step, 12) for place in range(first, last + 1)]

    def _log_ticks(self, most: int) -> list[float]:
        first, last = math.floor(math.log10(self.low)), math.ceil(math.log10(self.high))
        for steps in (DECADE, (1.0, 3.0), (1.0,)):
            found = [step * 10.0**power for power in range(first, last + 1) for step in steps]
            inside = [
                value for value in found if self.low * (1 - 1e-9) <= value <= self.high * (1 + 1e-9)
            ]
            if len(inside) <= most:
                break
        every = math.ceil(len(inside) / most)
        return inside[::every] if len(inside) > 1 else [self.low, self.high]
