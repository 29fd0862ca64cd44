"""Do users, or items, share something that the propensities do not explain?

The weights of the observed cells of an item, M = sum 1/P, add up to the number of users in
expectation. If cells are observed independently with probability P, the variance of M is estimated
without bias by S = sum (1 - P) / P^2 over the same cells. So for n items

    d = (M - mean of M)^2 - (1 - 1/n) S

adds up to 0 in expectation, whatever the propensities are. If the cells of an item share a shock,
such as a trend, or if the popularity of items is not in the propensities, it adds up to more.
``sum d / sqrt(sum d^2)`` is the test statistic. It uses the spread between items itself, because
formulas for the variance of d fail for items with few cells and large weights. As d is skewed to
the right, false alarms are rarer than for a normal statistic, not more frequent.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from unskew.data.estimation import Unit
from unskew.estimators.sums import Cluster, Clusters, ObservedCells
from unskew.types import Vector

MIN_STATISTIC = 2.33
"""The 99 % quantile of the normal distribution: at most 1 % false alarms."""
MIN_EXCESS = 0.1
"""Dependence that adds less than this share to the variance of a risk does not matter: a 95 %
interval that leaves it out covers 93.8 % or more."""


@dataclass(frozen=True, slots=True)
class Dispersion:
    """How much the total weights of users (or items) vary, and how much of it is explained."""

    variance: float
    """Sum of (M - mean of M)^2."""
    explained: float
    """What independent cells with these propensities would give: (1 - 1/n) sum of S."""
    statistic: float
    """Sum of d, divided by the root of the sum of its squares."""

    @classmethod
    def of(cls, clusters: Clusters, inverse: Vector) -> Dispersion:
        """From 1/P of each cell; clusters without a cell count if ``clusters.n`` counts them."""
        total = np.bincount(clusters.code, weights=inverse, minlength=clusters.n)
        spread = np.bincount(clusters.code, weights=inverse * (inverse - 1.0), minlength=clusters.n)
        explained = (1.0 - 1.0 / total.size) * spread
        squared = np.square(total - total.mean())
        excess = squared - explained
        size = math.sqrt(float(np.einsum("c,c->", excess, excess)))
        statistic = float(excess.sum()) / size if size > 0 else 0.0
        return cls(float(squared.sum()), float(explained.sum()), statistic)

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
        return self.statistic > MIN_STATISTIC


@dataclass(frozen=True, slots=True)
class SelectionDependence:
    """Whether the selection of cells depends on users and items beyond the propensities."""

    user: Dispersion
    item: Dispersion

    @classmethod
    def of(cls, cells: ObservedCells) -> SelectionDependence:
        """Two passes over the cells, one by user and one by item."""
        return cls(*(Dispersion.of(each, cells.inverse) for each in (cells.users, cells.items)))

    def is_missing(self, unit: Unit, cluster: Cluster) -> bool:
        """Whether these clusters leave out a dependence within units that is real and matters.

        It matters if it would add :data:`MIN_EXCESS` to the variance of IPS of a constant delta.
        """
        if cluster in (unit, "both"):
            return False
        dispersion = self._of_unit(unit)
        other = self._of_unit("user" if unit == "item" else "item")
        base = dispersion.explained if cluster is None else other.variance
        return dispersion.is_significant and dispersion.excess > MIN_EXCESS * base

    def _of_unit(self, unit: Unit) -> Dispersion:
        return self.item if unit == "item" else self.user

    def describe(self, unit: Unit) -> str:
        """How much more the totals of a unit vary than the propensities explain."""
        dispersion = self._of_unit(unit)
        if math.isinf(dispersion.ratio):
            return f"{unit} totals vary, and the propensities explain none of it"
        return (
            f"the variance of {unit} totals is {dispersion.ratio:.2g} times what the propensities "
            "explain"
        )
