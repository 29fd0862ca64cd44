"""How well propensities foretell which cells are observed, over all cells."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from unskew.diagnostics.cells import Chances

MAX_MASS_ERROR = 0.20
MAX_SHARE_BELOW = 0.01


@dataclass(frozen=True, slots=True)
class Fit:
    """Scores of the propensities as forecasts, and their reach. Standard errors are None where every cell was looked at."""

    n_observed: int
    log_loss: float
    """Mean over all cells of -log P where observed and -log(1 - P) elsewhere; infinite if an unobserved cell has P = 1."""
    log_loss_error: float | None
    brier: float
    """Mean over all cells of (O - P)^2."""
    brier_error: float | None
    mass: float
    """Sum of P over all cells: how many should have been observed."""
    mass_error: float | None
    floor: float
    share_below: float
    """Share of all cells with P below the floor."""
    smallest: float
    """The least P of all cells that were looked at."""

    @classmethod
    def of(cls, chances: Chances, *, floor: float) -> Fit:
        """Measure over all cells."""
        seen, unseen = chances.observed, chances.unobserved
        with np.errstate(divide="ignore"):
            log_loss, log_loss_error = (
                chances.mean(-np.log(seen), -np.log1p(-unseen))
                if (unseen < 1).all()
                else (np.inf, None)
            )
        brier, brier_error = chances.mean(np.square(1 - seen), np.square(unseen))
        mean, mean_error = chances.mean(seen, unseen)
        below, _ = chances.mean(
            (seen < floor).astype(np.float64), (unseen < floor).astype(np.float64)
        )
        return cls(
            seen.size,
            log_loss,
            log_loss_error,
            brier,
            brier_error,
            mean * chances.n_cells,
            None if mean_error is None else mean_error * chances.n_cells,
            floor,
            below,
            float(min(seen.min(), unseen.min(initial=1.0))),
        )

    @property
    def mass_ratio(self) -> float:
        """Sum of P over the number of observed cells: 1 where propensities are right on average."""
        return self.mass / self.n_observed

    @property
    def mass_ratio_error(self) -> float | None:
        """Its standard error."""
        return None if self.mass_error is None else self.mass_error / self.n_observed

    def warning_texts(self) -> Iterator[str]:
        """What is wrong, with the number and what to do."""
        if abs(self.mass_ratio - 1) > MAX_MASS_ERROR:
            yield (
                f"the propensities of all cells add up to {self.mass:,.0f}, but {self.n_observed:,} cells were observed "
                f"({self.mass_ratio - 1:+.0%}): scale them to the density of the log."
            )
        if self.share_below > MAX_SHARE_BELOW:
            yield (
                f"{self.share_below:.1%} of all cells have a propensity below {self.floor:.3g}: what is hardly ever shown cannot "
                "be judged, and if shown once it outweighs the rest. Leave such cells out of the universe, or clip the weights."
            )
        if np.isinf(self.log_loss):
            yield "some unobserved cells have a propensity of 1, and so should have been observed: the log-loss is infinite."
