"""How unequal the weights 1/P are."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from unskew.estimators.health import WeightSummary
from unskew.types import Vector

QUANTILES = (0.0, 0.5, 0.9, 0.99, 1.0)
CURVE_POINTS = 200


@dataclass(frozen=True, slots=True, eq=False)
class Weights:
    """The weights 1/P of the logged cells."""

    health: WeightSummary
    quantiles: tuple[float, float, float, float, float]
    """Least, median, 90 %, 99 % and largest weight."""
    largest_share: float
    """Share of the sum that the heaviest cell holds."""
    rows: Vector = field(repr=False)
    """Shares of rows, heaviest first, at which ``held`` is known."""
    held: Vector = field(repr=False)
    """The share of all weight that these rows hold."""

    @classmethod
    def of(cls, weight: Vector, *, n_cells: int | None) -> Weights:
        """Measure weights."""
        least, median, most, nearly_all, largest = (
            float(value) for value in np.quantile(weight, QUANTILES)
        )
        held = np.cumsum(np.sort(weight)[::-1])
        places = np.unique(np.geomspace(1, weight.size, CURVE_POINTS).round().astype(np.int64))
        return cls(
            WeightSummary.of(weight, n_cells=n_cells),
            (least, median, most, nearly_all, largest),
            largest / float(held[-1]),
            places / weight.size,
            held[places - 1] / held[-1],
        )

    def warning_texts(self) -> Iterator[str]:
        """What is wrong with the weights."""
        return self.health.warning_texts()
