"""The uncertainty of an estimate at extreme weights, and of the propensities behind them.

At the extreme weights w the largest value R satisfies

    sum w (e - theta) + theta k = 0

with the residual e = delta - R base (IPS and DR: delta, and the sum is C R), the multiplier theta
of the fixed sum, and k the assumed weights, scaled to that sum. By the envelope theorem the
contribution of a cell to the error is w (e - theta) + theta k: what moves the threshold theta has
no effect of first order. It is the contribution of a cell whose delta is lower by
theta (1 - k / w), so that the estimator itself can compute the rest.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from unskew.data.estimation import Correction, Estimation, Half, Replicates
from unskew.data.propensities import Propensities
from unskew.estimators.observed import Deltas, ObservedCells
from unskew.estimators.odds import ExtremeWeights, WeightBox
from unskew.types import IntVector, Matrix, Vector


def move_to_extreme(
    deltas: Deltas, cells: ObservedCells, box: WeightBox, extreme: ExtremeWeights
) -> tuple[Deltas, ObservedCells]:
    """Deltas and cells whose estimate is the one at the extreme, with its uncertainty."""
    weight, kept_term = extreme.weight, 0.0 * extreme.weight
    if box.sums is not None and np.any(extreme.multiplier):
        scale = box.sums.add_up(weight) / np.maximum(box.sums.add_up(box.assumed), 1.0)
        kept_term = extreme.multiplier * box.sums.of_cells(scale) * box.assumed
        deltas = replace(deltas, value=deltas.value - extreme.multiplier + kept_term / weight)
    estimation = cells.estimation
    if estimation is not None:
        factor = _divide_odds(box.assumed, weight)
        estimation = _distort(estimation, cells, factor, weight, kept_term)
    return deltas, replace(cells, propensities=Propensities(1.0 / weight, estimation))


def _divide_odds(assumed: Vector, weight: Vector) -> Vector:
    """Assumed odds over extreme odds of each cell: (w - 1) / (assumed w - 1)."""
    return np.divide(weight - 1.0, assumed - 1.0, out=np.ones_like(weight), where=assumed > 1.0)


def _distort(
    estimation: Estimation, cells: ObservedCells, factor: Vector, weight: Vector, kept_term: Vector
) -> Estimation:
    if isinstance(estimation, Replicates):
        return _DistortedReplicates(
            model=estimation.model,
            refit=estimation.refit,
            n_pairs=estimation.n_pairs,
            assumed=estimation,
            factor=factor,
        )
    return _DistortedEstimation(
        model=estimation.model,
        assumed=estimation,
        weight=cells.weight,
        weight_derivative=cells.weight_derivative,
        derivative=cells.weight * factor,
        kept_term=kept_term * (1.0 - cells.weight * factor / weight),
    )


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class _DistortedEstimation(Estimation):
    """Estimated propensities whose odds are divided by a given factor in each cell.

    If the estimated odds move, the distorted odds move with them.
    """

    assumed: Estimation
    weight: Vector
    """1/P of the estimated propensities."""
    weight_derivative: Vector
    derivative: Vector
    """-dw / d log P of the distorted weight w by the estimated propensity P."""
    kept_term: Vector
    """What the sum of the estimated weights adds to -d(w e) / d log P."""

    def correct(self, residual: Matrix, weight: Vector, weight_derivative: Vector) -> Correction:
        total = residual * self.derivative + self.kept_term
        return self.assumed.correct(total / self.weight, self.weight, self.weight_derivative)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class _DistortedReplicates(Replicates):
    """The refits of the estimated propensities, each with its odds divided by the factor."""

    assumed: Replicates
    factor: Vector

    def fit_halves(self, cluster: IntVector | None, n_cells: int) -> list[tuple[Half, Half]]:
        halves = self.assumed.fit_halves(cluster, n_cells)
        return [(self._distort(first), self._distort(second)) for first, second in halves]

    def _distort(self, half: Half) -> Half:
        rows, values = half
        return rows, 1.0 / (1.0 + (1.0 / values - 1.0) * self.factor[rows])
