"""What weights show: how uneven they are, whether they fit the universe, and dependence."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from scipy import special

from unskew.data.estimation import Unit
from unskew.errors import PropensityWarning
from unskew.estimators.observed import ObservedCells
from unskew.types import Vector

MIN_SAMPLE_SIZE, MIN_SAMPLE_SHARE = 100.0, 0.5
"""Intervals are less reliable below this effective sample size. If the log has fewer rows, or the
size is a larger share of them than this, the weights are not to blame."""
MAX_MASS_Z, MIN_MASS_ERROR = 3.0, 0.01
"""The sum of the weights is wrong if it is further from its expectation than this many standard
errors, and by more than this share, below which it does not matter."""
MAX_TOP_SHARE = 0.50
TOP_ROWS = 0.01


@dataclass(frozen=True, slots=True)
class WeightSummary:
    """Numbers that show how far weights w = 1/P can be trusted."""

    n_observed: int
    effective_sample_size: float
    """Kish: (sum w)^2 / sum w^2."""
    mass: float
    """Sum of w. With right propensities its expectation is U * I."""
    top_share: float | None
    """Share of the sum of w in the 1 % of rows with the largest w; None if not computed."""
    n_cells: int | None = None
    is_balanced: bool = False
    """Whether the propensities were chosen so that the sum of w is U * I, whatever the truth."""
    shared_variance: float = 0.0
    """What users and items that are selected as a whole add to the variance of the sum of w."""
    n_clipped: int = 0
    """Rows whose estimated propensity was raised or limited."""

    @classmethod
    def of(
        cls, weight: Vector, *, n_cells: int | None = None, is_balanced: bool = False
    ) -> WeightSummary:
        """The summary of an array of weights that are not all zero."""
        sum_of_weights = float(weight.sum())
        n_top = max(1, round(TOP_ROWS * weight.size))
        top = float(np.partition(weight, weight.size - n_top)[-n_top:].sum())
        largest = float(weight.max())
        effective = (sum_of_weights / largest) ** 2 / float(np.square(weight / largest).sum())
        return cls(
            weight.size, effective, sum_of_weights, top / sum_of_weights, n_cells, is_balanced
        )

    @property
    def sample_share(self) -> float:
        """Effective sample size divided by the number of rows: 1 if all weights are equal."""
        return self.effective_sample_size / self.n_observed

    @property
    def mass_ratio(self) -> float | None:
        """Sum of w divided by U * I: 1 in expectation; None if U * I is unknown."""
        return None if self.n_cells is None else self.mass / self.n_cells

    @property
    def mass_z(self) -> float | None:
        """(sum 1/P - U * I) / sqrt(sum (1 - P) / P^2 + shared variance): standard normal if the
        propensities are right. None if there is nothing to test.
        """
        if self.n_cells is None or self.is_balanced:
            return None
        variance = self.mass**2 / self.effective_sample_size - self.mass + self.shared_variance
        gap = self.mass - self.n_cells
        if variance <= 0:
            return 0.0 if abs(gap) < 0.5 else math.copysign(math.inf, gap)
        return gap / math.sqrt(variance)

    @property
    def fits_universe(self) -> bool:
        """Whether the sum of w can be U * I, by its standard error; True if it is not tested."""
        z, error = self.mass_z or 0.0, (self.mass_ratio or 1.0) - 1.0
        return abs(z) <= MAX_MASS_Z or abs(error) <= MIN_MASS_ERROR

    def warnings(self) -> Iterator[PropensityWarning]:
        """One warning for each sign that the weights are too uneven, or wrong."""
        is_small = self.effective_sample_size < MIN_SAMPLE_SIZE <= self.n_observed
        if is_small and self.sample_share < MIN_SAMPLE_SHARE:
            yield PropensityWarning(
                f"the effective sample size is {self.effective_sample_size:,.0f} of "
                f"{self.n_observed:,} rows ({self.sample_share:.1%}): "
                "a few large weights decide the estimate, and cells that matter may not have "
                "been seen.",
                remedy="Find out what the rows with the smallest propensities have in common. "
                "`weight_transform=Clip(...)` makes the estimate less noisy, but biased.",
            )
        if not self.fits_universe:
            z, error = self.mass_z or 0.0, (self.mass_ratio or 1.0) - 1.0
            yield PropensityWarning(
                f"the inverse propensities add up to {self.mass:,.0f}, but there are "
                f"{self.n_cells:,} cells ({error:+.1%}, {abs(z):,.1f} standard errors): "
                f"{self._explain_mass()}.",
                remedy="Check both. 'snips' helps only if all propensities are wrong by the same "
                "factor.",
            )
        is_long = self.n_observed >= 1 / TOP_ROWS
        if is_long and self.top_share is not None and self.top_share > MAX_TOP_SHARE:
            yield PropensityWarning(
                f"the {TOP_ROWS:.0%} of rows with the largest weights hold {self.top_share:.0%} "
                "of all weight: the estimate is an average over very few cells.",
                remedy="`weight_transform=Clip(...)` makes it less noisy, but biased.",
            )

    def _explain_mass(self) -> str:
        if self.n_clipped and self.mass < (self.n_cells or 0.0):
            share = self.n_clipped / self.n_observed
            return (
                f"the propensities of {share:.0%} of the rows were clipped, which makes weights "
                "too small; or the universe is wrong"
            )
        return "the propensities or the universe are wrong"

    def warning_texts(self) -> list[str]:
        return [str(warning) for warning in self.warnings()]


FALSE_ALARMS = 0.001
"""Nominal rate at which independent cells are taken for dependent ones."""
MIN_EXCESS = 0.1
"""Dependence that adds less than this share to the variance of a risk does not matter: a 95 %
interval that leaves it out covers 93.8 % or more."""


@dataclass(frozen=True, slots=True)
class Dispersion:
    """How much the total weights of users (or items) vary, and how much of it is explained.

    The weights of the observed cells of an item, M = sum 1/P, add up to the number of users in
    expectation. If cells are observed independently with probability P, the variance of M is
    estimated without bias by S = sum (1 - P) / P^2 over the same cells. So for n items

        d = (M - mean of M)^2 - (1 - 1/n) S

    adds up to 0 in expectation, whatever the propensities are. If the cells of an item share a
    shock, such as a trend, or if the popularity of items is not in the propensities, it adds up to
    more. To first order d is a sum over pairs of cells of one item, whose variance is estimated
    without bias by

        v = 2 (S^2 - sum ((1 - P) / P^2)^2) + S

    The sum of d is compared with a chi-squared distribution of the same mean, variance and skewness
    as a sum of independent squares with variances v. The spread of d itself would be no measure of
    its error: a few very popular items dominate it, and hide what they show. Items without a cell
    are left out, because the log does not say how rare they are. If there are such items, d adds up
    to less than 0 in expectation, and false alarms become rarer.
    """

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
