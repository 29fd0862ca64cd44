"""Propensities against the true ones, where these are known."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from unskew.data.propensities import SMALLEST
from unskew.diagnostics.cells import Chances
from unskew.theory.bounds import bias_bound
from unskew.theory.cells import propensity_cells
from unskew.types import Vector


@dataclass(frozen=True, slots=True)
class Accuracy:
    """How wrong propensities are, and how much that can matter."""

    relative_error: float
    """Mean over all cells of |P-hat / P - 1|."""
    bias_bound: float
    """Second term of Eq. (16), Thm 5.2, for losses in [0, 1]: the most that IPS can be biased. Infinite if some P-hat is 0."""
    is_estimated: bool
    """Whether the mean over all cells is estimated, from a sample or from the logged cells weighted by 1/P."""

    @classmethod
    def over_cells(cls, assumed: Chances, true: Chances) -> Accuracy:
        """From both for all cells, or for a sample."""
        return cls._of(assumed.all, true.all, assumed.weight, assumed.is_sample)

    @classmethod
    def over_log(cls, assumed: Vector, true: Vector) -> Accuracy:
        """From logged cells, each standing for 1/P cells."""
        return cls._of(assumed, true, 1.0 / true, True)

    @classmethod
    def _of(cls, assumed: Vector, true: Vector, weight: Vector, is_estimated: bool) -> Accuracy:
        error = float(
            np.average(np.abs(assumed / propensity_cells("true", true) - 1.0), weights=weight)
        )
        bound = (
            math.inf
            if assumed.min() < SMALLEST
            else bias_bound(true=true, assumed=assumed, weight=weight)
        )
        return cls(error, bound, is_estimated)
