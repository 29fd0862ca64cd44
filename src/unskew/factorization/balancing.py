"""Propensities made to agree with what is known of all cells.

    logit P' = logit P - m . phi        with m such that        sum over the log of phi / P' = sum over all cells of phi

For a loss that is a linear function of phi, IPS with P' has no error at all, whatever P was; and sum 1 / P' = U I, 1 being the
first of phi, so that IPS and SNIPS are one. Penalties on the same difference (Li et al. 2023, StableDR and IPS-V2) come near to
this; here the condition holds exactly, at the cost of a convex problem with as many unknowns as phi has columns.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Self

import numpy as np

from unskew.data.ratings import Ratings
from unskew.errors import UsageError
from unskew.factorization.parameters import Parameters
from unskew.factorization.pseudo_outcome import lines_of, sum_of_products
from unskew.models.imputation import values_on
from unskew.types import Matrix, Vector

MOST_STEPS = 200
SHORTEST = 1e-12
EXACT = 1e-10
"""The largest difference that is left, a cell, in units of each feature's spread."""


@dataclass(frozen=True, slots=True, eq=False)
class Features:
    """phi beside its constant 1: values on the log, a column each, and the sum of each over all cells."""

    on_log: Matrix
    totals: Vector
    n_cells: int

    @classmethod
    def of_predictions(cls, log: Ratings, prediction: Parameters) -> Self:
        """The predictions F."""
        lines, ones = lines_of(prediction), (np.ones((log.n_users, 1)), np.ones((log.n_items, 1)))
        return cls(
            values_on(prediction, log)[:, None],
            np.array([sum_of_products(*lines, *ones)]),
            log.n_cells,
        )

    @classmethod
    def of_errors(cls, log: Ratings, prediction: Parameters, imputed: Parameters) -> Self:
        """The imputed errors (G - F)^2."""
        f, g = lines_of(prediction), lines_of(imputed)
        total = sum_of_products(*f, *f) - 2 * sum_of_products(*f, *g) + sum_of_products(*g, *g)
        error = np.square(values_on(imputed, log) - values_on(prediction, log))
        return cls(error[:, None], np.array([total]), log.n_cells)

    def standardized(self) -> tuple[Matrix, Vector]:
        """1 and every feature that varies, in units of its spread on the log; and the sums over all cells."""
        mean, spread = self.on_log.mean(axis=0), self.on_log.std(axis=0)
        varies = spread > EXACT * (np.abs(mean) + 1)
        columns = (self.on_log[:, varies] - mean[varies]) / spread[varies]
        totals = (self.totals[varies] - self.n_cells * mean[varies]) / spread[varies]
        return np.column_stack([np.ones(len(columns)), columns]), np.append(self.n_cells, totals)


def balanced(propensity: Vector, features: Features) -> Vector:
    """P' of the log's cells, by Newton's method on the convex  sum of m . phi + (1 / P - 1) exp(m . phi)  -  m . totals."""
    phi, totals = features.standardized()
    odds_against, missing = 1 / propensity - 1, totals - phi.sum(axis=0)

    def tilted(shift: Vector) -> Vector:
        with np.errstate(over="ignore"):
            odds: Vector = odds_against * np.exp(phi @ shift)
        return odds

    def slope_along(length: float, at: Vector, step: Vector) -> float:
        return float((phi.T @ tilted(at - length * step) - missing) @ step)

    shift, odds = np.zeros(totals.size), odds_against
    for _ in range(MOST_STEPS):
        slope = phi.T @ odds - missing
        if not np.isfinite(slope).all():
            break
        if np.abs(slope).max() <= EXACT * features.n_cells:
            return 1 / (1 + odds)
        step = np.linalg.lstsq((phi.T * odds) @ phi, slope, rcond=None)[0]
        shift = shift - _length(partial(slope_along, at=shift, step=step)) * step
        odds = tilted(shift)
    raise UsageError(
        "no propensities agree with the whole matrix: what is known of the cells outside the log lies beyond all that the log "
        "holds. Balance fewer features, or fit to a longer log."
    )


def _length(slope_along: Callable[[float], float]) -> float:
    """How far to go: halved while a convex function would rise at the end nearly as fast as it falls at the start."""
    length, fell = 1.0, slope_along(0.0)
    while not slope_along(length) >= -0.9 * fell and length > SHORTEST:
        length /= 2
    return length
