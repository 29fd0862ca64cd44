"""The extreme weights if each propensity is known only up to a factor in its odds.

The true odds of each observed cell, P / (1 - P), lie within [odds / Gamma, odds * Gamma]. Since
1/P = 1 + 1/odds, the weight w = 1/P lies within

    [1 + (w - 1) / Gamma, 1 + (w - 1) * Gamma]

An estimate is linear in the weights or a ratio of two linear functions, so it is largest at a
corner of this box.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np

from unskew.estimators.sums import Clusters
from unskew.types import BoolVector, Vector

Bounds: TypeAlias = tuple[Vector, Vector]
"""The least and the largest weight of each cell."""


def weight_range(weight: Vector, odds_error: float) -> Bounds:
    """The least and the largest weight of each cell if odds are off by ``odds_error`` >= 1."""
    return 1.0 + (weight - 1.0) / odds_error, 1.0 + (weight - 1.0) * odds_error


def largest_sum(delta: Vector, low: Vector, high: Vector) -> Vector:
    """The weights within [low, high] at which sum w delta is largest."""
    return np.where(delta > 0, high, low)


def largest_ratio(
    delta: Vector,
    low: Vector,
    high: Vector,
    *,
    base: Vector | None = None,
    groups: Clusters | None = None,
) -> Vector:
    """The weights within [low, high] at which sum w delta / sum w base is largest.

    With ``groups``, the ratio of each group is. At the largest ratio R the weights are ``high`` for
    cells with delta > R * base, and ``low`` for others. R is the root of the convex function
    g(R) = max over w of sum w (delta - R base). Newton's method for g sets R to the ratio at the
    weights of the last R. It increases, and reaches R exactly after finitely many steps.
    """
    weight = low
    ratio = _ratios(delta, weight, base, groups)
    while True:
        weight = np.where(delta > ratio * (1.0 if base is None else base), high, low)
        larger = _ratios(delta, weight, base, groups)
        if not (larger > ratio).any():
            return weight
        ratio = np.maximum(ratio, larger)


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
