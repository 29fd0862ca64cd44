"""The extreme weights if each propensity is known only up to a factor in its odds.

The true odds of each observed cell, P / (1 - P), lie within [odds / Gamma, odds * Gamma]. Since
1/P = 1 + 1/odds, the weight w = 1/P lies within

    [1 + (w - 1) / Gamma, 1 + (w - 1) * Gamma]

An estimate is linear in the weights or a ratio of two linear functions, so it is largest at a
corner of this box. True weights also add up to the number of cells. With a given sum of weights,
the largest sum of ``w e`` is a fractional knapsack: start with the least weights, and raise those
of the largest ``e`` first until the sum is reached. The ``e`` of the last raised cell is the
multiplier: what one more unit of weight would add.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from unskew.data.estimation import Correction, Estimation, Half, Replicates, TakenAsKnown
from unskew.data.propensities import Propensities
from unskew.estimators.observed import Clusters, Deltas, ObservedCells
from unskew.types import BoolVector, IntVector, Matrix, Vector

Positions: TypeAlias = npt.NDArray[np.integer]

Constraint: TypeAlias = Literal["mass", "item", "user"]
"""Which sums of weights are held fixed: of all cells, of each item's or of each user's cells."""
MAX_STEPS = 100
"""Newton's method for a ratio takes a handful of steps; rounding errors must not prolong it."""


@dataclass(frozen=True, slots=True, eq=False)
class FixedSums:
    """Groups of cells in each of which the sum of the weights is held fixed."""

    code: Positions
    """The group of each cell; every group has one."""
    size: Positions
    """The number of cells of each group."""
    orders: list[Positions] = field(default_factory=list)
    """The last two orders of the cells, which are the same for every odds error."""

    @classmethod
    def of_all(cls, n_observed: int) -> FixedSums:
        """All cells are one group."""
        return cls(np.zeros(n_observed, dtype=np.intp), np.array([n_observed]))

    @classmethod
    def of_clusters(cls, clusters: Clusters) -> FixedSums:
        """Each cluster with several cells is a group; clusters of one cell form one group.

        The weight of a single cell says too little about the sum of its cluster.
        """
        is_singleton = np.bincount(clusters.code)[clusters.code] == 1
        merged = np.where(is_singleton, clusters.n, clusters.code)
        _, code, size = np.unique(merged, return_inverse=True, return_counts=True)
        return cls(code, size)

    @property
    def is_one_group(self) -> bool:
        """Whether all cells are one group, whose true weights add up to the number of all cells."""
        return self.size.size == 1

    def add_up(self, column: Vector) -> Vector:
        """The sum of each group."""
        if self.is_one_group:
            return np.array([column.sum()])
        return np.bincount(self.code, weights=column).astype(np.float64, copy=False)

    def of_cells(self, by_group: Vector) -> Vector:
        """The value of each cell's group; one value if there is one group."""
        return by_group if self.is_one_group else by_group[self.code]

    def sort(self, residual: Vector) -> Positions:
        """The cells group by group, each from the largest residual to the smallest."""
        for order in self.orders:
            is_sorted = np.diff(residual[order]) <= 0
            if not self.is_one_group:
                is_sorted[np.cumsum(self.size)[:-1] - 1] = True
            if is_sorted.all():
                return order
        order = np.argsort(-residual) if self.is_one_group else np.lexsort((-residual, self.code))
        self.orders[:] = [order, *self.orders[:1]]
        return order


@dataclass(frozen=True, slots=True, eq=False)
class WeightBox:
    """The weights that are possible: each within its range, and with given sums if any."""

    low: Vector
    assumed: Vector
    high: Vector
    sums: FixedSums | None = None
    """None: any weights within their ranges."""

    @classmethod
    def around(cls, weight: Vector, odds_error: float, sums: FixedSums | None = None) -> WeightBox:
        """The box if odds are off by up to ``odds_error`` >= 1."""
        low, high = 1.0 + (weight - 1.0) / odds_error, 1.0 + (weight - 1.0) * odds_error
        return cls(low, weight, high, sums)


@dataclass(frozen=True, slots=True, eq=False)
class ExtremeWeights:
    """The weights at which an estimate is largest."""

    weight: Vector
    multiplier: Vector | float = 0.0
    """Of the sum to which each cell belongs; 0 where no sum limits the weights."""
    optimism: float = 0.0
    """How much too small the largest value is on average, because the multipliers of small groups
    were found from the same cells; at least this is added to a confidence limit."""


def largest_sum(residual: Vector, box: WeightBox, *, n_cells: int | None = None) -> ExtremeWeights:
    """The weights in the box at which sum w e is largest.

    With ``n_cells`` the value is the sum over ``n_cells``, the number of all cells, to which the
    true weights add up on average. The sum of all weights may then lie anywhere
    between the sum of the assumed weights and ``n_cells``.
    """
    if box.sums is None:
        return ExtremeWeights(np.where(residual > 0, box.high, box.low))
    target = box.sums.add_up(box.assumed)
    if n_cells is not None and box.sums.is_one_group:
        free = np.where(residual > 0, box.high, box.low)
        ends = np.array([min(target[0], n_cells), max(target[0], n_cells)])
        target = np.clip(free.sum(keepdims=True), *ends)
        if target[0] == free.sum():
            return ExtremeWeights(free)
    extreme = _fill_knapsack(residual, box, box.sums, target)
    return replace(extreme, optimism=extreme.optimism / (1 if n_cells is None else n_cells))


def _fill_knapsack(
    residual: Vector, box: WeightBox, sums: FixedSums, target: Vector
) -> ExtremeWeights:
    """The weights at which sum w e is largest if the weights of each group add up to ``target``.

    From the least weights on, those of the cells with the largest e are raised to their limits
    until the sum of the group is reached: a fractional knapsack.
    """
    order = sums.sort(residual)
    start = np.cumsum(sums.size) - sums.size
    span = (box.high - box.low)[order]
    before = np.cumsum(span) - span
    # Where the sum of each cell's group reaches its target, on the scale of ``before``: the spans
    # of all earlier groups, plus what may be added to the least weights of this group.
    cumulative_target = np.repeat(before[start] + target - sums.add_up(box.low), sums.size)
    weight = box.low.copy()
    weight[order] += np.clip(cumulative_target - before, 0.0, span)
    n_raised = np.add.reduceat(before < cumulative_target, start, dtype=np.intp)
    last = np.maximum(start + n_raised - 1, 0)
    multiplier = sums.of_cells(np.where(n_raised > 0, residual[order[last]], 0.0))
    optimism = 0.0
    if not sums.is_one_group:
        is_raised = weight > box.assumed
        without_cell = np.empty_like(residual)
        without_cell[order] = _multipliers_without_cell(
            residual, box, sums, order, cumulative_target, is_raised[order]
        )
        # A cell's own residual moved the multiplier of its group, by their difference. This made
        # the largest value too small, by that times the change of the cell's weight.
        change = np.where(is_raised, box.high - box.assumed, box.assumed - box.low)
        optimism = float(np.abs(without_cell - multiplier) @ change)
    return ExtremeWeights(weight, multiplier, optimism)


def _multipliers_without_cell(
    residual: Vector,
    box: WeightBox,
    sums: FixedSums,
    order: Positions,
    cumulative_target: Vector,
    is_raised: BoolVector,
) -> Vector:
    """For each cell in sorted order, the multiplier of its group if the cell was not there.

    Without a cell whose weight was raised above the assumed one, the others have more to add, and
    the last raised cell comes later; without another cell it comes earlier.
    """
    span = (box.high - box.low)[order]
    moved_target = (
        cumulative_target - (box.assumed - box.low)[order] + np.where(is_raised, span, 0.0)
    )
    end = np.cumsum(sums.size)
    first, last = np.repeat(end - sums.size, sums.size), np.repeat(end - 1, sums.size)
    last_raised = np.clip(np.searchsorted(np.cumsum(span), moved_target), first, last)
    return residual[order[last_raised]]


def largest_ratio(
    delta: Vector, box: WeightBox, *, base: Vector | None = None, groups: Clusters | None = None
) -> ExtremeWeights:
    """The weights in the box at which sum w delta / sum w base is largest.

    With ``groups``, the ratio of each group is, and the box has no sums. A common factor of all
    weights cancels, so a fixed sum is that of the assumed weights, not the number of all cells.

    The largest ratio R is the root of the convex function g(R) = max over w of
    sum w (delta - R base). Newton's method for g sets R to the ratio at the weights of the last R.
    It increases, and reaches R exactly after finitely many steps.
    """
    if base is None and box.sums is not None:  # the denominator is given
        extreme = largest_sum(delta, box)
        ratio = _ratios(delta, extreme.weight, None, None)
        optimism = extreme.optimism / float(extreme.weight.sum())
        return ExtremeWeights(extreme.weight, extreme.multiplier - ratio, optimism)
    ratio = _ratios(delta, box.assumed, base, groups)
    for _ in range(MAX_STEPS):
        extreme = largest_sum(delta - ratio * (1.0 if base is None else base), box)
        larger = _ratios(delta, extreme.weight, base, groups)
        if not (larger > ratio).any():
            break
        ratio = np.maximum(ratio, larger)
    total = float((extreme.weight if base is None else extreme.weight * base).sum())
    return replace(extreme, optimism=extreme.optimism / total if total > 0 else 0.0)


def _ratios(delta: Vector, weight: Vector, base: Vector | None, groups: Clusters | None) -> Vector:
    """Sum w delta / sum w base over the group of each cell; 0 if the group has no base."""
    numerator, denominator = weight * delta, weight if base is None else weight * base
    if groups is None:
        return _divide(np.array([numerator.sum()]), np.array([denominator.sum()]))
    sums = groups.add_up(np.stack([numerator, denominator]))
    return _divide(sums[:, 0], sums[:, 1])[groups.code]


def _divide(numerator: Vector, denominator: Vector) -> Vector:
    is_positive: BoolVector = denominator > 0
    return np.divide(numerator, denominator, out=np.zeros_like(numerator), where=is_positive)


def move_to_extreme(
    deltas: Deltas, cells: ObservedCells, box: WeightBox, extreme: ExtremeWeights
) -> tuple[Deltas, ObservedCells]:
    """Deltas and cells whose estimate is the one at the extreme, with its uncertainty.

    At the extreme weights w the largest value R satisfies

        sum w (e - theta) + theta k = 0

    with the residual e = delta - R base (IPS and DR: delta, and the sum is C R), the multiplier
    theta of the fixed sum, and k the assumed weights, scaled to that sum. By the envelope theorem
    the contribution of a cell to the error is w (e - theta) + theta k: what moves the threshold
    theta has no effect of first order. It is the contribution of a cell whose delta is lower by
    theta (1 - k / w), so that the estimator itself can compute the rest.
    """
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
    if isinstance(estimation, TakenAsKnown):
        return estimation
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
