"""Whether a propensity of 5 % means that 5 % of such cells are observed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
from scipy import special

from unskew.diagnostics.cells import Chances
from unskew.estimators.sums import Clusters
from unskew.types import IntVector, Matrix, Vector

N_BINS = 10
SLOPES = (0.5, 2.0)
MAX_STEPS = 100
CONVERGED = 1e-9
ROUNDING = 1e-12


@dataclass(frozen=True, slots=True, eq=False)
class Calibration:
    """Propensities against observed shares, over all cells."""

    slope: float | None
    """b of logit P(O = 1) = a + b logit P-hat. 1 is right; below, P-hat is too extreme, above, too much alike. None where P-hat
    takes one value only, or tells observed cells from others without a fault. A logistic model without penalty has 1 by
    construction on the log that it was fitted to."""
    intercept: float | None
    """a; 0 is right."""
    error: float
    """Expected calibration error: mean over all cells of |mean P-hat - observed share| of their bin."""
    predicted: Vector = field(repr=False)
    """Mean P-hat of each bin, rising. Bins hold equally many cells, save that equal propensities stay together."""
    observed: Vector = field(repr=False)
    """The observed share of each bin."""
    count: Vector = field(repr=False)
    """Cells in each bin; estimated where cells were sampled."""

    @classmethod
    def of(cls, chances: Chances) -> Calibration:
        """Measure over all cells."""
        p, seen, weight = chances.all, chances.is_observed, chances.weight
        intercept, slope = logistic_line(p, seen, weight) or (None, None)
        bins = equal_count_bins(p, weight)
        count, predicted, observed = (
            Clusters(bins, int(bins.max()) + 1)
            .add_up(weight * np.stack([np.ones_like(p), p, seen]))
            .T
        )
        gap = np.abs(predicted - observed).sum() / count.sum()
        return cls(
            slope,
            intercept,
            float(gap) if gap > ROUNDING else 0.0,
            predicted / count,
            observed / count,
            count,
        )

    def warning_texts(self) -> Iterator[str]:
        """What is wrong, with the number and what to do."""
        if self.slope is not None and not SLOPES[0] <= self.slope <= SLOPES[1]:
            fault = (
                "too extreme. Cross-fit the model, or calibrate it"
                if self.slope < 1
                else "too much alike. Loosen the model's penalty, or calibrate it if it judges cells that it was not fitted to"
            )
            yield f"the calibration slope is {self.slope:.2f} where 1 is right: the propensities are {fault}."


def equal_count_bins(values: Vector, weight: Vector, n_bins: int = N_BINS) -> IntVector:
    """The bin of each value: as equal in weight as equal values, which stay together, allow. Empty bins are left out."""
    order = np.argsort(values)
    reached = np.cumsum(weight[order])
    places = np.searchsorted(reached, reached[-1] * np.arange(1, n_bins) / n_bins)
    edges = np.unique(values[order[places]])
    bins = np.searchsorted(edges, values, side="left")  # a bin ends with its edge
    return np.unique(bins, return_inverse=True)[1].astype(np.int32)


def logistic_line(p: Vector, seen: Vector, weight: Vector) -> tuple[float, float] | None:
    """Intercept and slope of the weighted logistic regression of O on logit P, by Newton's method.

    Cells with P of exactly 0 or 1 have no logit and are left out: a right one fits any line. None where no finite line is best.
    """
    inside = (p > 0) & (p < 1)
    p, seen, weight = p[inside], seen[inside], weight[inside]
    if p.size == 0 or p.min() == p.max():
        return None
    x = np.log(p) - np.log1p(-p)
    line = np.array([0.0, 1.0])
    for _ in range(MAX_STEPS):
        gradient, curvature = _slopes(line, x, seen, weight)
        if not np.linalg.det(curvature) > 0:
            return None
        step = np.linalg.solve(curvature, gradient)
        line = line + step / max(
            1.0, float(np.abs(step).max())
        )  # at most one unit a step: far from the optimum Newton overshoots
        if np.abs(step).max() < CONVERGED:
            return float(line[0]) if abs(line[0]) > CONVERGED else 0.0, float(line[1])
    return None


def _slopes(line: Vector, x: Vector, seen: Vector, weight: Vector) -> tuple[Vector, Matrix]:
    """Gradient and negative Hessian of the log-likelihood in (intercept, slope)."""
    p = special.expit(line[0] + line[1] * x)
    miss, spread = weight * (seen - p), weight * p * (1 - p)
    cross = float((spread * x).sum())
    gradient = np.array([miss.sum(), (miss * x).sum()])
    return gradient, np.array(
        [[float(spread.sum()), cross], [cross, float((spread * x * x).sum())]]
    )
