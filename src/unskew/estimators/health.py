"""Whether the weights let the data answer at all."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from unskew.types import Vector

MIN_SAMPLE_SHARE = 0.05
MAX_MASS_ERROR = 0.20
MAX_TOP_SHARE = 0.50
TOP_ROWS = 0.01


@dataclass(frozen=True, slots=True)
class WeightSummary:
    """Numbers that tell how far weights 1/P can be trusted."""

    n_observed: int
    effective_sample_size: float
    """Kish: (sum w)^2 / sum w^2."""
    mass: float
    """Sum of w. With right propensities its expectation is U * I."""
    top_share: float | None
    """Share of the sum of w that the heaviest 1 % of rows hold; None where nobody looked, which takes a sort of the rows."""
    n_cells: int | None = None

    @classmethod
    def of(cls, weight: Vector, *, n_cells: int | None = None) -> WeightSummary:
        """Measure weights."""
        mass = float(weight.sum())
        n_top = max(1, round(TOP_ROWS * weight.size))
        top = float(np.partition(weight, weight.size - n_top)[-n_top:].sum())
        largest = float(weight.max())
        effective = (mass / largest) ** 2 / float(np.square(weight / largest).sum())
        return cls(weight.size, effective, mass, top / mass, n_cells)

    @property
    def sample_share(self) -> float:
        """Effective sample size over rows: 1 where all weights are equal."""
        return self.effective_sample_size / self.n_observed

    @property
    def mass_ratio(self) -> float | None:
        """Sum of w over U * I: 1 in expectation; None where U * I is unknown."""
        return None if self.n_cells is None else self.mass / self.n_cells

    def warning_texts(self) -> Iterator[str]:
        """What is wrong, with the number and what to do; nothing where all is well."""
        if self.sample_share < MIN_SAMPLE_SHARE:
            yield (
                f"the effective sample size is {self.effective_sample_size:,.0f} of {self.n_observed:,} rows "
                f"({self.sample_share:.1%}): a few large weights decide. "
                "Clip them (transform=Clip(...)), or find what the smallest propensities have in common."
            )
        if self.mass_ratio is not None and abs(self.mass_ratio - 1) > MAX_MASS_ERROR:
            yield (
                f"the inverse propensities add up to {self.mass:,.0f}, but there are {self.n_cells:,} cells "
                f"({self.mass_ratio - 1:+.0%}): the propensities or the universe are off. 'snips' rescales."
            )
        if (
            self.n_observed >= 1 / TOP_ROWS
            and self.top_share is not None
            and self.top_share > MAX_TOP_SHARE
        ):
            yield (
                f"the heaviest {TOP_ROWS:.0%} of rows hold {self.top_share:.0%} of all weight: "
                "the estimate is an average over very few cells. Clip the weights, or read the interval with care."
            )
