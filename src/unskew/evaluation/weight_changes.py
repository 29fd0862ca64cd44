"""Estimates under other weights, recomputed from what an evaluation has kept."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from unskew.data.propensities import Propensities
from unskew.estimators.estimate import Interval
from unskew.estimators.odds import weight_range
from unskew.estimators.point import Estimator
from unskew.estimators.sums import Deltas, ObservedCells
from unskew.estimators.transforms import Clip
from unskew.types import Vector

CLIP = "clip"
ODDS_ERROR = "odds_error"
LARGEST_ODDS_ERROR = 1e6
"""An order of two models that holds up to this odds error is reported to hold at any."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class EvaluationInputs:
    """What an evaluation was computed from: references to arrays, not copies."""

    deltas: Mapping[str, Deltas]
    """By metric."""
    cells: ObservedCells
    estimators: Mapping[str, Estimator]
    """By name."""
    rating: Vector | None = None

    def contrast(
        self, name: str, contrast: Vector, *, metric: str, estimator: str, level: float
    ) -> VariedEstimate:
        """A contrast of the models' risks: one model, or the difference of two."""
        return VariedEstimate(
            (name, metric, estimator),
            self.deltas[metric].combine(contrast),
            self.cells,
            self.estimators[estimator],
            level,
        )


@dataclass(frozen=True, slots=True)
class Shift:
    """One estimate under changed weights."""

    model: str
    metric: str
    estimator: str
    change: str
    """``clip`` or ``odds_error``."""
    amount: float
    """The largest weight allowed, or the factor by which odds may be wrong."""
    low: float
    """The least estimate; equal to ``high`` under clipping."""
    high: float
    ci_low: float
    ci_high: float
    share_clipped: float | None = None
    """Share of rows whose weight was clipped."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class VariedEstimate:
    """One number (a risk, or a difference of two) as a function of the weights."""

    name: tuple[str, str, str]
    """Model, metric and estimator."""
    deltas: Deltas
    """One row."""
    cells: ObservedCells
    estimator: Estimator
    level: float

    @property
    def has_worst_case(self) -> bool:
        """Whether the extremes under an odds error are known."""
        return self.estimator.is_weighted and self.estimator.has_worst_case

    def clip(self, max_weight: float) -> Shift:
        """The estimate with weights min(w, max_weight)."""
        cells = replace(self.cells, weight_transform=Clip(max_weight))
        interval = self.estimator.estimate(self.deltas, cells).of(0, level=self.level)
        limits = interval.value, interval.value, interval.low, interval.high
        share_clipped = float((self.cells.weight > max_weight).mean())
        return Shift(*self.name, CLIP, max_weight, *limits, share_clipped)

    def distort_odds(self, odds_error: float) -> Shift:
        """The range of the estimate if odds are wrong by up to a factor."""
        least, largest = (
            self.extreme(odds_error, is_largest=is_largest) for is_largest in (False, True)
        )
        limits = least.value, largest.value, least.low, largest.high
        return Shift(*self.name, ODDS_ERROR, odds_error, *limits)

    def extreme(self, odds_error: float, *, is_largest: bool) -> Interval:
        """The least or the largest estimate within the odds error, with its interval there.

        The interval takes the extreme propensities as the true ones.
        """
        sign = np.array([1.0 if is_largest else -1.0])
        bounds = weight_range(self.cells.weight, odds_error)
        weight = self.estimator.largest_weights(self.deltas.combine(sign), self.cells, bounds)
        cells = replace(self.cells, propensities=Propensities(1.0 / weight))
        return self.estimator.estimate(self.deltas, cells).of(0, level=self.level)

    def find_odds_error(self, margin: Callable[[Interval], float], *, is_positive: bool) -> float:
        """The smallest odds error at which ``margin`` of the extreme nearer to zero is zero.

        ``is_positive`` is the sign of the estimate. Infinite if the margin stays positive; 1 if it
        is not positive at the assumed propensities.
        """
        from scipy.optimize import brentq

        def margin_at(log_factor: float) -> float:
            return margin(self.extreme(math.exp(log_factor), is_largest=not is_positive))

        if margin_at(0.0) <= 0:
            return 1.0
        limit = math.log(LARGEST_ODDS_ERROR)
        if margin_at(limit) > 0:
            return math.inf
        return math.exp(brentq(margin_at, 0.0, limit, xtol=1e-9))
