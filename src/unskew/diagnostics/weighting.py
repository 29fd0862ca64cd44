"""What weighting by 1/P does: how unequal the weights are, and how well covariates balance."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from unskew.data.ratings import Ratings
from unskew.errors import PropensityWarning
from unskew.estimators.weight_checks import TOP_ROWS, WeightSummary
from unskew.propensity.covariates import CovariateProfiles
from unskew.types import IntVector, Vector

Counts: TypeAlias = npt.NDArray[np.int64]
QUANTILES = (0.0, 0.5, 0.9, 0.99, 1.0)
CURVE_POINTS = 200
TOLERATED_MEAN, MAX_MEAN, MAX_WORST = 0.05, 0.10, 0.25
"""Standardised differences after weighting. A mean above MAX_MEAN or a single one above MAX_WORST
causes a warning; a mean up to TOLERATED_MEAN may be larger than before weighting."""
ROUNDING = 1e-12


class WeightQuantiles(NamedTuple):
    """The :data:`QUANTILES` of the weights."""

    smallest: float
    median: float
    q90: float
    q99: float
    largest: float


@dataclass(frozen=True, slots=True, eq=False)
class CountedWeights:
    """Distinct weights, the largest first, and how many cells have each."""

    weight: Vector
    count: Counts
    n_up_to: Counts
    """Cells with this weight or a larger one."""
    sum_up_to: Vector
    """The sum of their weights."""

    @classmethod
    def of(cls, weight: Vector, count: Counts) -> CountedWeights:
        """From distinct weights in any order."""
        order = np.argsort(-weight)
        weight, count = weight[order], count[order]
        return cls(weight, count, np.cumsum(count), np.cumsum(weight * count))

    @property
    def n_cells(self) -> int:
        return int(self.n_up_to[-1])

    def summarize(self, *, n_cells: int | None, is_balanced: bool) -> WeightSummary:
        """The summary, up to rounding that of an array with the weight of each cell."""
        total, largest = float(self.sum_up_to[-1]), float(self.weight[0])
        squares = float(self.count @ np.square(self.weight / largest))
        n_top = np.array([max(1, round(TOP_ROWS * self.n_cells))])
        return WeightSummary(
            self.n_cells,
            (total / largest) ** 2 / squares,
            total,
            float(self.add_heaviest(n_top)[0]) / total,
            n_cells,
            is_balanced,
        )

    def add_heaviest(self, n_rows: Counts) -> Vector:
        """The sum of the largest weights of so many cells."""
        index = np.searchsorted(self.n_up_to, n_rows)
        n_missing = self.n_up_to[index] - n_rows
        sums: Vector = self.sum_up_to[index] - n_missing * self.weight[index]
        return sums

    def find_quantile(self, share: float) -> float:
        """The quantile of the weights, interpolated linearly as by ``np.quantile``."""
        n_below = share * (self.n_cells - 1)
        low, high = (self._weight_at(index) for index in (math.floor(n_below), math.ceil(n_below)))
        return low + (high - low) * (n_below - math.floor(n_below))

    def _weight_at(self, n_below: int) -> float:
        """The weight at index ``n_below`` of the weights in ascending order."""
        n_rows = self.n_cells - n_below
        return float(self.weight[np.searchsorted(self.n_up_to, n_rows)])


@dataclass(frozen=True, slots=True, eq=False)
class WeightDistribution:
    """The weights 1/P of the logged cells."""

    summary: WeightSummary
    quantiles: WeightQuantiles
    largest_share: float
    """Share of the sum of weights that belongs to the heaviest cell."""
    row_share: Vector = field(repr=False)
    """Shares of rows, heaviest first, at which ``weight_share`` is listed."""
    weight_share: Vector = field(repr=False)
    """The share of the sum of weights that belongs to these rows."""

    @classmethod
    def of(
        cls, weight: Vector, *, n_cells: int | None, is_balanced: bool = False
    ) -> WeightDistribution:
        """From one weight for each cell."""
        return cls._of(
            CountedWeights.of(*np.unique(weight, return_counts=True)),
            WeightSummary.of(weight, n_cells=n_cells, is_balanced=is_balanced),
        )

    @classmethod
    def of_counts(
        cls, weight: Vector, count: Counts, *, n_cells: int | None, is_balanced: bool = False
    ) -> WeightDistribution:
        """From the distinct weights, and how many cells have each."""
        cells = CountedWeights.of(weight, count)
        return cls._of(cells, cells.summarize(n_cells=n_cells, is_balanced=is_balanced))

    @classmethod
    def _of(cls, cells: CountedWeights, summary: WeightSummary) -> WeightDistribution:
        """Quantiles, and the curve of cumulative shares at about 200 points."""
        n_observed, total = cells.n_cells, float(cells.sum_up_to[-1])
        n_rows = np.unique(np.geomspace(1, n_observed, CURVE_POINTS).round().astype(np.int64))
        quantiles = WeightQuantiles(*(cells.find_quantile(share) for share in QUANTILES))
        return cls(
            summary,
            quantiles,
            quantiles.largest / total,
            n_rows / n_observed,
            cells.add_heaviest(n_rows) / total,
        )

    def warnings(self) -> Iterator[PropensityWarning]:
        """One warning for each sign that the weights are too uneven."""
        return self.summary.warnings()


@dataclass(frozen=True, slots=True, eq=False)
class CovariateBalance:
    """Standardised mean differences between the log and all cells, by covariate."""

    names: tuple[str, ...] = field(repr=False)
    before: Vector = field(repr=False)
    """(mean over the log - mean over all cells) / standard deviation over all cells."""
    after: Vector = field(repr=False)
    """The same with the log weighted by 1/P."""

    @classmethod
    def of(
        cls, log: Ratings, covariates: Sequence[CovariateProfiles], weight: Vector
    ) -> CovariateBalance:
        """Compare the covariates of users and of items."""
        codes = {"user": log.user, "item": log.item}
        before, after = (
            np.concatenate(
                [standardized_differences(part, codes[part.kind], weights) for part in covariates]
            )
            for weights in (np.ones(len(log)), weight)
        )
        return cls(tuple(name for part in covariates for name in part.names), before, after)

    def to_columns(self) -> dict[str, list[Any]]:
        """The differences as a table with one row per covariate."""
        before, after = self.before.tolist(), self.after.tolist()
        return {"covariate": list(self.names), "before": before, "after": after}

    @property
    def asam_before(self) -> float:
        """Average standardised absolute mean difference of the unweighted log."""
        return float(np.abs(self.before).mean())

    @property
    def asam(self) -> float:
        """Average standardised absolute mean difference after weighting."""
        return float(np.abs(self.after).mean())

    @property
    def worst_covariate(self) -> str:
        """The covariate with the largest absolute difference after weighting."""
        return self.names[int(np.abs(self.after).argmax())]

    @property
    def worst_difference(self) -> float:
        """The signed difference of the worst covariate after weighting."""
        return float(self.after[int(np.abs(self.after).argmax())])

    def warnings(self) -> Iterator[PropensityWarning]:
        """One warning if the covariates are not balanced."""
        got_worse = self.asam > max(self.asam_before, TOLERATED_MEAN)
        if abs(self.worst_difference) > MAX_WORST or self.asam > MAX_MEAN or got_worse:
            yield PropensityWarning(
                "after weighting, the mean covariates of the log differ from those of all cells "
                f"by {self.asam:.3f} standard deviations on average "
                f"(before: {self.asam_before:.3f}), and {self.worst_covariate!r} by "
                f"{self.worst_difference:+.3f}.",
                remedy="Use a propensity model that includes this covariate.",
            )


def standardized_differences(
    covariates: CovariateProfiles, code: IntVector, weight: Vector
) -> Vector:
    """(sum w x / sum w - mean of x) / sd of x, for each covariate x.

    The sums are over logged cells, ``code`` being their users or items. Mean and standard
    deviation are over all cells, and equal those over users (items), since every user (item) has
    the same number of cells.
    """
    profile, n_profiles = covariates.profile, covariates.n_profiles
    logged_weight = np.bincount(profile[code], weights=weight, minlength=n_profiles)
    share_of_all = np.bincount(profile, minlength=n_profiles) / profile.size
    mean = share_of_all @ covariates.values
    deviation = np.sqrt(share_of_all @ np.square(covariates.values - mean))
    logged_mean = logged_weight @ covariates.values / logged_weight.sum()
    difference: Vector = (logged_mean - mean) / deviation
    return np.where(np.abs(difference) > ROUNDING, difference, 0.0)
