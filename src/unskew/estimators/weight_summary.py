"""How uneven the weights are, and whether they fit the universe."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from unskew.errors import PropensityWarning
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
                remedy="Clip them with `weight_transform=Clip(...)`, or find out what the rows "
                "with the smallest propensities have in common.",
            )
        if not self.fits_universe:
            z, error = self.mass_z or 0.0, (self.mass_ratio or 1.0) - 1.0
            yield PropensityWarning(
                f"the inverse propensities add up to {self.mass:,.0f}, but there are "
                f"{self.n_cells:,} cells ({error:+.1%}, {abs(z):,.1f} standard errors): "
                "the propensities or the universe are wrong.",
                remedy="Check both. 'snips' helps only if all propensities are wrong by the same "
                "factor.",
            )
        is_long = self.n_observed >= 1 / TOP_ROWS
        if is_long and self.top_share is not None and self.top_share > MAX_TOP_SHARE:
            yield PropensityWarning(
                f"the {TOP_ROWS:.0%} of rows with the largest weights hold {self.top_share:.0%} "
                "of all weight: the estimate is an average over very few cells.",
                remedy="Clip the weights with `weight_transform=Clip(...)`.",
            )

    def warning_texts(self) -> list[str]:
        return [str(warning) for warning in self.warnings()]
