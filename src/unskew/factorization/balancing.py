"""Propensities adjusted so that weighted sums over the log equal sums over all cells.

    logit P' = logit P - m . phi,    m such that  sum over the log of phi / P' = sum over all cells

For a loss that is linear in phi, IPS with P' has no error, whatever P was. The first feature is 1,
so sum 1 / P' = U I and IPS equals SNIPS. StableDR and IPS-V2 (Li et al. 2023) penalise the
difference of the two sums; here it is zero. The problem is convex, with one unknown per feature.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from unskew.data.factors import Factors
from unskew.data.propensities import Propensities, PropensityPredictor
from unskew.data.ratings import Ratings
from unskew.data.weights import WeightTransform
from unskew.errors import BadPropensityError, UsageError
from unskew.factorization.pseudo_outcome import sum_of_products
from unskew.types import IndexVector, IntVector, Matrix, Vector

BLOCK_ROWS = 256
MAX_STEPS = 200
MIN_STEP_LENGTH = 1e-12
TOLERANCE = 1e-10
"""The largest remaining difference per cell, in standard deviations of each feature."""
NEGLIGIBLE_LOSS = 1e-6
"""Imputed losses that vary by less than this share of the variance of the ratings are not balanced:
the imputation is the model itself, up to the precision of the fits."""


@dataclass(frozen=True, slots=True, eq=False)
class BalanceFeatures:
    """phi without its constant: values on the log, one column each, and sums over all cells."""

    on_log: Matrix
    totals: Vector
    n_cells: int
    smallest: float = 0.0
    """Features with a standard deviation of at most this are left out."""

    @classmethod
    def of_predictions(cls, log: Ratings, prediction: Factors) -> Self:
        """One feature, the predictions F: its values on the log, and its sum over all cells."""
        ones = np.ones((log.n_users, 1)), np.ones((log.n_items, 1))
        total = sum_of_products(*prediction.as_float64_rows(), *ones)
        on_log = prediction.predict(log.user, log.item)
        return cls(on_log[:, None], np.array([total]), log.n_cells)

    @classmethod
    def of_imputed_losses(cls, log: Ratings, prediction: Factors, imputed: Factors) -> Self:
        """One feature: the imputed losses (G - F)^2."""
        f, g = prediction.as_float64_rows(), imputed.as_float64_rows()
        total = sum_of_products(*f, *f) - 2 * sum_of_products(*f, *g) + sum_of_products(*g, *g)
        difference = imputed.predict(log.user, log.item) - prediction.predict(log.user, log.item)
        smallest = NEGLIGIBLE_LOSS * float(log.rating.var())
        return cls(np.square(difference)[:, None], np.array([total]), log.n_cells, smallest)

    @classmethod
    def of_kernels(cls, log: Ratings, kernels: KernelFunctions) -> Self:
        """One feature for each kernel function."""
        columns = kernels.evaluate(log.user, log.item)
        return cls(columns, kernels.totals, log.n_cells)

    def standardize(self) -> tuple[Matrix, Vector]:
        """1 and every feature that varies, in standard deviations, and the sums over all cells."""
        mean, deviation = self.on_log.mean(axis=0), self.on_log.std(axis=0)
        varies = deviation > np.maximum(TOLERANCE * (np.abs(mean) + 1), self.smallest)
        columns = (self.on_log[:, varies] - mean[varies]) / deviation[varies]
        totals = (self.totals[varies] - self.n_cells * mean[varies]) / deviation[varies]
        return np.column_stack([np.ones(len(columns)), columns]), np.append(self.n_cells, totals)


@dataclass(frozen=True, slots=True, eq=False)
class KernelFunctions:
    """Gaussian kernels of the distance to some cells: a function of the user times one of the item.

    So the sum over all cells is a product of two sums, and no cell outside the log is visited.
    """

    of_user: Matrix
    """Users x kernels."""
    of_item: Matrix

    @classmethod
    def around(cls, prediction: Factors, user: IntVector, item: IntVector) -> Self:
        """Around the cells of ``user`` and ``item``, with the factors and offsets as positions."""
        sides = (prediction.user_side, user), (prediction.item_side, item)
        return cls(*(_gaussian(np.column_stack(side), code) for side, code in sides))

    def evaluate(self, user: IntVector, item: IntVector) -> Matrix:
        """The value of each function, one column each, in these cells."""
        values: Matrix = self.of_user[user] * self.of_item[item]
        return values

    @property
    def totals(self) -> Vector:
        """The sum of each function over all cells."""
        sums: Vector = self.of_user.sum(axis=0) * self.of_item.sum(axis=0)
        return sums

    def take(self, chosen: IndexVector) -> KernelFunctions:
        """The functions with these numbers, in this order."""
        return KernelFunctions(self.of_user[:, chosen], self.of_item[:, chosen])


def choose_functions(columns: Matrix, error: Vector, weight: Vector, n_chosen: int) -> IndexVector:
    """The columns that explain most of ``error``, found one after the other, in ascending order.

    What a function explains is what an imbalance of it would add to the bias of the weighted loss.
    """
    columns = columns - (weight @ columns) / weight.sum()
    left = error - (weight @ error) / weight.sum()
    chosen: list[int] = []
    for _ in range(min(n_chosen, columns.shape[1])):
        norm = np.sqrt(weight @ np.square(columns))
        usable = norm > TOLERANCE * (norm.max() + TOLERANCE)
        usable[chosen] = False
        if not usable.any():
            break
        gain = np.where(usable, np.abs((weight * left) @ columns) / np.maximum(norm, 1e-300), 0)
        best = int(gain.argmax())
        chosen.append(best)
        direction = columns[:, best] / norm[best]
        left = left - ((weight * left) @ direction) * direction
        columns = columns - np.outer(direction, (weight * direction) @ columns)
    return np.array(sorted(chosen), dtype=np.intp)


def _gaussian(positions: Matrix, centers: IntVector) -> Matrix:
    """exp(-distance^2 / (2 mean distance^2)) of all rows from those of the centers."""
    rows = positions.astype(np.float64)
    difference = np.square(rows).sum(axis=1)[:, None] + np.square(rows[centers]).sum(axis=1)
    squared = np.maximum(difference - 2 * rows @ rows[centers].T, 0.0)
    scale = float(squared.mean())
    return np.exp(-squared / (2 * scale)) if scale > 0 else np.ones_like(squared)


def balance_propensities(
    propensity: Vector, features: BalanceFeatures, *, ridge: float = 0.0
) -> Vector:
    """P' of the log's cells.

    Newton's method on the convex function  sum of m . phi + (1 / P - 1) exp(m . phi) - m . totals,
    plus ``ridge`` ||m||^2 / 2 without its constant. With a ridge the sums agree only nearly, and
    every log can be balanced. A log of all cells is balanced by P' = 1.
    """
    if len(propensity) == features.n_cells:
        return np.ones(len(propensity))
    phi, totals = features.standardize()
    odds_against, unexplained = 1 / propensity - 1, totals - phi.sum(axis=0)
    ridges = np.full(totals.size, ridge)
    ridges[0] = 0.0

    def adjusted_odds(shift: Vector) -> Vector:
        with np.errstate(over="ignore", invalid="ignore"):
            odds: Vector = odds_against * np.exp(phi @ shift)
        return odds

    shift, odds = np.zeros(totals.size), odds_against
    for _ in range(MAX_STEPS):
        gradient = phi.T @ odds - unexplained + ridges * shift
        if not np.isfinite(gradient).all():
            break
        if np.abs(gradient).max() <= TOLERANCE * features.n_cells:
            return 1 / (1 + odds)
        hessian = (phi.T * odds) @ phi + np.diag(ridges)
        step = np.linalg.lstsq(hessian, gradient, rcond=None)[0]

        def derivative(length: float, start: Vector = shift, step: Vector = step) -> float:
            """Of the objective along the step, after ``length`` of it."""
            moved = start - length * step
            at_end = phi.T @ adjusted_odds(moved) - unexplained + ridges * moved
            return float(at_end @ step)

        shift = shift - _step_length(derivative, float(gradient @ step)) * step
        odds = adjusted_odds(shift)
    raise UsageError(
        "no propensities balance the log: the average feature of all cells lies outside the range "
        "of the logged cells.",
        remedy="Fit to a longer log, or use a model without balancing.",
    )


def find_balance_ridge(propensity: Vector, features: BalanceFeatures) -> float:
    """The ridge at which balancing removes imbalance and leaves noise; infinite if all is noise.

    A feature alone would shift log odds by about m = x / H, from its imbalance x and H, the sum of
    (1 / P - 1) phi^2. The sum of phi^2 (1 - P) / P^2 is the variance of x by chance. What is left
    of the mean of m^2 is the variance of the shifts, and the ridge is that of a posterior mean.
    """
    phi, totals = features.standardize()
    if phi.shape[1] == 1:
        return np.inf
    weight = (features.n_cells * propensity**-1) / float((1 / propensity).sum())
    squares = np.square(phi[:, 1:])
    imbalance = phi[:, 1:].T @ weight - totals[1:]
    noise = (weight * np.maximum(weight - 1, 0)) @ squares
    hessian = np.maximum(weight - 1, TOLERANCE) @ squares
    variance = float(np.mean((np.square(imbalance) - noise) / np.square(hessian)))
    return float(np.mean(noise / hessian)) / variance if variance > 0 else np.inf


def _step_length(derivative: Callable[[float], float], at_start: float) -> float:
    """Halve the step until the objective no longer rises steeply at its end."""
    length = 1.0
    while not derivative(length) >= -0.9 * at_start and length > MIN_STEP_LENGTH:
        length /= 2
    return length


def targeted_weight(
    weight: Vector, propensities: Any, log: Ratings, weight_transform: WeightTransform | None
) -> Vector:
    """1 + c (h - 1): the weights after the targeting step of TDR (H. Li et al., ICLR 2023).

    Imputed losses l become l + e (h - 1), with the e for which
    sum over the log of (h - 1) (delta - l - e (h - 1)) = 0. Then doubly robust estimation and
    error imputation agree. e is linear in the losses, and so is the estimate, with D all cells and
    O the log:

        sum_D l + sum_O (1 + c (h - 1)) (delta - l)
        c = (sum_D (h - 1) - sum_O (h - 1)) / sum_O (h - 1)^2

    If the propensities are right, c is near 1. If the sum over D were estimated from the log, c
    would be exactly 1 and targeting would change nothing. So it needs the propensities of all
    cells.
    """
    excess = weight - 1
    scale = float(excess @ excess)
    if not scale:
        return weight
    total = _sum_excess_weight(propensities, log, weight_transform)
    return 1 + (total - float(excess.sum())) / scale * excess


def _sum_excess_weight(
    propensities: Any, log: Ratings, weight_transform: WeightTransform | None
) -> float:
    """The sum of h - 1 over all cells."""
    shape = log.n_users, log.n_items
    is_model = isinstance(propensities, Propensities | PropensityPredictor)
    if is_model or np.shape(propensities) != shape:
        raise BadPropensityError(
            "`targeted=True` needs the propensities of all cells.",
            parameter="propensities",
            remedy=f"Pass a matrix of shape {shape}.",
        )
    matrix, total = np.asarray(propensities), 0.0
    for first in range(0, log.n_users, BLOCK_ROWS):
        weight = Propensities(matrix[first : first + BLOCK_ROWS].ravel()).inverse
        if weight_transform is not None:
            weight = weight_transform(weight)
        total += float((weight - 1).sum())
    return total
