"""The uncertainty of risks from sums alone, where the contributions of cells are not at hand.

It is that of :mod:`unskew.estimators.variance`, with residuals that are linear in the columns x of
:class:`unskew.estimators.sums.Sums`: ``e = J x``. So sums of x and x x' suffice. Intervals are
Student's t, without the correction for skewness, which needs higher moments.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from unskew.data.estimation import RandomSample
from unskew.estimators.estimate import Estimate, OutsideError
from unskew.estimators.observed import SumSpec
from unskew.estimators.sums import Sums
from unskew.types import BoolVector, Matrix, Vector


@dataclass(frozen=True, slots=True, eq=False)
class SecondMoments:
    """Second moments of the contributions of cells, or of one or two kinds of units."""

    cells: Matrix
    """Sum over cells; with independent cells each counts 1 - P times."""
    units: tuple[Sums, ...] = ()
    """Over users or items; over both for two-way clusters; none if cells are independent."""

    def covariance(self, influence: Matrix) -> Matrix:
        """By cells, by units, or by users plus items minus cells.

        If the difference is not a covariance, the part of the cells is not subtracted.
        """
        by_cells: Matrix = influence @ self.cells @ influence.T
        if not self.units:
            return by_cells
        covariance = sum(
            (unit.covariance(influence) for unit in self.units), np.zeros_like(by_cells)
        )
        reduced: Matrix = covariance - by_cells
        is_covariance = len(self.units) > 1 and np.linalg.eigvalsh(reduced)[0] > 0
        return reduced if is_covariance else covariance


@dataclass(frozen=True, slots=True, eq=False)
class StrataSums:
    """What propensities that were counted by stratum change in the errors of risks."""

    moments: SecondMoments
    """Of h x minus its mean in the stratum."""
    pooled: Matrix
    """Variance of cells that are alone in their stratum, from the spread within larger strata."""
    addition: Matrix
    """What the counts of the log of the fit add to the variance: positive if they come from
    another log, negative if the rows are a part of that log, 0 if they are all of it."""
    gradient: Matrix
    """Columns (or, for means of ratios, models) x strata: the sum of -dh/dlog P times x."""
    sample: RandomSample | None = None

    def correct(
        self, estimate: Estimate, influence: Matrix, known_covariance: Matrix, spec: SumSpec
    ) -> Estimate:
        """The estimate with the error of the propensities."""
        covariance, gradient = estimate.covariance, self.gradient
        if not spec.of_ratios:
            covariance = self.moments.covariance(influence)
            covariance = covariance + influence @ (self.pooled + self.addition) @ influence.T
            gradient = influence @ self.gradient
        outside = None
        if self.sample is not None:
            outside = OutsideError.of_columns(
                gradient, self.gradient, self.sample, is_ratio=spec.is_ratio
            )
            covariance = covariance + outside.covariance
        return replace(
            estimate, covariance=covariance, outside=outside, known_covariance=known_covariance
        )


@dataclass(frozen=True, slots=True, eq=False)
class LevelSums:
    """Sums by stratum, for strata that are few."""

    count: Vector
    """Cells of each stratum."""
    total: Matrix
    """Strata x columns: sum of x."""
    moment: Matrix
    """Strata x columns x columns: sum of x x'."""
    weight: Vector
    """h of the cells of each stratum."""
    weight_derivative: Vector
    """-dh / d log P."""
    uncertainty: Vector
    """1 - P."""

    @property
    def is_singleton(self) -> BoolVector:
        is_singleton: BoolVector = self.count == 1
        return is_singleton

    @property
    def bessel_factor(self) -> Vector:
        """n / (n - 1), the correction for the estimated mean; 1 for a stratum of one cell."""
        factor: Vector = np.where(self.count > 1, self.count / np.maximum(self.count - 1, 1), 1.0)
        return factor

    @property
    def square_of_total(self) -> Matrix:
        """Strata x columns x columns: (sum of x) (sum of x)' / n."""
        n = np.maximum(self.count, 1)[:, None, None]
        return self.total[:, :, None] * self.total[:, None, :] / n

    def within(self, uncertainty: Vector | float) -> Matrix:
        """Sum over cells of (h x - B)(h x - B)', where B is the mean of -dh/dlog P x."""
        h, d = self.weight, self.weight_derivative
        spread = (h * h)[:, None, None] * self.moment
        spread = spread - (2 * h * d - d * d)[:, None, None] * self.square_of_total
        within: Matrix = np.einsum("g,gij->ij", self.bessel_factor * uncertainty, spread)
        return within

    def pooled(self) -> Matrix:
        """Squared weights of cells that are alone, times the spread within larger strata."""
        return pool_variance(
            (self.moment - self.square_of_total).sum(axis=0),
            self.moment.sum(axis=0),
            n_free=float(np.maximum(self.count - 1, 0).sum()),
            n_cells=float(self.count.sum()),
            squared_weight=float(np.square(self.weight[self.is_singleton]).sum()),
        )

    def count_variance(self, fitted_count: Vector, propensity: Vector) -> Matrix:
        """Sum over strata of (1 - P) (sum of -dh/dlog P x)^2 / n_g of the log of the fit."""
        gradient = self.gradient()
        return (gradient * (1.0 - propensity) / np.maximum(fitted_count, 1.0)) @ gradient.T

    def gradient(self) -> Matrix:
        """Columns x strata: sum of -dh/dlog P x."""
        return (self.weight_derivative[:, None] * self.total).T


def pool_variance(
    within: Matrix, moment: Matrix, *, n_free: float, n_cells: float, squared_weight: float
) -> Matrix:
    """The variance of cells that are alone in their stratum.

    ``within`` is the sum of squares within strata. If all cells are alone, their mean squares
    (``moment``) are used.
    """
    if squared_weight == 0:
        return np.zeros_like(within)
    spread = within / n_free if n_free > 0 else moment / n_cells
    return squared_weight * spread
