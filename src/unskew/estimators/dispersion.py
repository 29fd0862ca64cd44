"""Do users, or items, share something that the propensities do not explain?

The weights of the observed cells of an item, M = sum 1/P, add up to the number of users in
expectation. If cells are observed independently with probability P, the variance of M is estimated
without bias by S = sum (1 - P) / P^2 over the same cells. So for n items

    d = (M - mean of M)^2 - (1 - 1/n) S

adds up to 0 in expectation, whatever the propensities are. If the cells of an item share a shock,
such as a trend, or if the popularity of items is not in the propensities, it adds up to more. To
first order d is a sum over pairs of cells of one item, whose variance is estimated without bias by

    v = 2 (S^2 - sum ((1 - P) / P^2)^2) + S

The sum of d is compared with a chi-squared distribution of the same mean, variance and skewness as
a sum of independent squares with variances v. The spread of d itself would be no measure of its
error: a few very popular items dominate it, and hide what they show. Items without a cell are
left out, because the log does not say how rare they are. If there are such items, d adds up to
less than 0 in expectation, and false alarms become rarer.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy import special

from unskew.data.estimation import Unit
from unskew.estimators.observed import ObservedCells
from unskew.types import Vector

FALSE_ALARMS = 0.001
"""Nominal rate at which independent cells are taken for dependent ones."""
MIN_EXCESS = 0.1
"""Dependence that adds less than this share to the variance of a risk does not matter: a 95 %
interval that leaves it out covers 93.8 % or more."""


@dataclass(frozen=True, slots=True)
class Dispersion:
    """How much the total weights of users (or items) vary, and how much of it is explained."""

    unit: Unit
    variance: float
    """Sum of (M - mean of M)^2."""
    explained: float
    """What independent cells with these propensities would give: (1 - 1/n) sum of S."""
    p_value: float
    """The probability of at least this excess if cells are independent."""

    @classmethod
    def of(cls, unit: Unit, cells: ObservedCells) -> Dispersion:
        """One pass over the cells; users (or items) without a cell are left out."""
        code, inverse = cells.clusters_of(unit).code, cells.inverse
        spread = inverse * (inverse - 1.0)
        has_cells = cells.count_cells(unit) > 0
        variance, squares = (
            np.bincount(code, weights=column)[has_cells] for column in (spread, np.square(spread))
        )
        observed = find_variance_of_totals(unit, cells)
        explained = (1.0 - 1.0 / variance.size) * float(variance.sum())
        error = 2.0 * np.maximum(np.square(variance) - squares, 0.0) + variance
        return cls(unit, observed, explained, _find_p_value(observed - explained, error))

    @property
    def excess(self) -> float:
        """The variance that the propensities do not explain."""
        return self.variance - self.explained

    @property
    def ratio(self) -> float:
        """The variance divided by what the propensities explain."""
        return self.variance / self.explained if self.explained > 0 else math.inf

    @property
    def is_significant(self) -> bool:
        return self.p_value < FALSE_ALARMS

    def describe(self) -> str:
        """How much more the totals vary than the propensities explain."""
        if math.isinf(self.ratio):
            return f"{self.unit} totals vary, and the propensities explain none of it"
        return (
            f"the variance of {self.unit} totals is {self.ratio:.2g} times what the propensities "
            "explain"
        )


def find_missing_dependence(cells: ObservedCells, cluster: Unit | None) -> Dispersion | None:
    """The dependence that these clusters leave out; None if it is not significant or not material.

    Clusters of items leave out users; others leave out items. It matters if it would add
    :data:`MIN_EXCESS` to the variance of IPS of a constant delta.
    """
    dispersion = Dispersion.of("user" if cluster == "item" else "item", cells)
    if not dispersion.is_significant:
        return None
    measured = dispersion.explained
    if cluster is not None:
        measured = find_variance_of_totals(cluster, cells)
    return dispersion if dispersion.excess > MIN_EXCESS * measured else None


def find_shared_variance(cells: ObservedCells) -> float:
    """Variance that the sum of 1/P gains because cells of one user, or of one item, are dependent.

    Only a significant excess over what the propensities explain counts; without one it is 0.
    """
    units: tuple[Unit, ...] = ("user", "item")
    dispersions = [Dispersion.of(unit, cells) for unit in units]
    return sum(max(each.excess, 0.0) for each in dispersions if each.is_significant)


def find_variance_of_totals(unit: Unit, cells: ObservedCells) -> float:
    """Sum of (M - mean of M)^2 over users (or items) with cells."""
    total = np.bincount(cells.clusters_of(unit).code, weights=cells.inverse)
    total = total[cells.count_cells(unit) > 0]
    return float(np.square(total - total.mean()).sum())


def _find_p_value(excess: float, variance: Vector) -> float:
    """P(sum > excess) for a sum of centred squares with these variances, by Satterthwaite."""
    total = float(variance.sum())
    if total == 0:
        return float(excess <= 0)
    degrees = total**2 / float(np.einsum("c,c->", variance, variance))
    quantile = degrees + excess * math.sqrt(2.0 * degrees / total)
    return float(special.chdtrc(degrees, max(quantile, 0.0)))
