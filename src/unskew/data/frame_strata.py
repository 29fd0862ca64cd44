"""Strata of cells with equal propensities, as the query of a data frame can group by them."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from unskew.data.estimation import Estimation, RandomSample, StratumKind
from unskew.types import Vector


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class FrameStrata:
    """P = n_g / N_g of the stratum g of each row, by a model that was fitted to a log.

    Strata by rating (or of all cells) are listed here. Strata by item or by user can be many; the
    frame has a column of their n_g.
    """

    estimation: Estimation
    """The model in words."""
    kind: StratumKind
    n_observed: int
    """Ratings in the log of the fit."""
    has_limit: bool = False
    """Whether propensities of 1 were limited to 1, and do not move with the counts."""
    levels: Vector = field(default_factory=lambda: np.zeros(1))
    """The rating of each stratum; 0 for the stratum of all cells."""
    propensity: Vector = field(default_factory=lambda: np.empty(0))
    """P of each stratum."""
    count: Vector = field(default_factory=lambda: np.empty(0))
    """n_g of each stratum."""
    sample: RandomSample | None = None
    """Where the sizes N_g come from, if they are estimated from an outside sample."""

    @property
    def is_listed(self) -> bool:
        """Whether the strata are listed here, not in a column of the frame."""
        return self.kind in ("rating", "all")
