"""How far an estimate can be off when each propensity is known only up to a factor in its odds.

The true odds of every observed cell lie within [odds / Gamma, odds * Gamma], odds = P / (1 - P), each cell by itself. Since
1/P = 1 + 1/odds, its weight w = 1/P lies within

    [1 + (w - 1) / Gamma, 1 + (w - 1) * Gamma]

and the estimate, linear in the weights or a ratio of two such sums, is most extreme at a corner of that box.
"""

from __future__ import annotations

import numpy as np

from unskew.estimators.sums import Clusters
from unskew.types import BoolVector, Vector


def weight_range(weight: Vector, odds_error: float) -> tuple[Vector, Vector]:
    """The least and the largest weight of each cell whose odds may be off by the factor ``odds_error`` >= 1."""
    return 1.0 + (weight - 1.0) / odds_error, 1.0 + (weight - 1.0) * odds_error


def largest_sum(delta: Vector, low: Vector, high: Vector) -> Vector:
    """The weights within [low, high] that make sum w delta largest: each term goes to its own end."""
    return np.where(delta > 0, high, low)


def largest_ratio(
    delta: Vector,
    low: Vector,
    high: Vector,
    *,
    base: Vector | None = None,
    groups: Clusters | None = None,
) -> Vector:
    """The weights within [low, high] that make sum w delta / sum w base largest; with groups, the ratio of each group.

    At the largest ratio R they are ``high`` where delta > R * base and ``low`` elsewhere. R is the root of the convex function
    g(R) = max over w of sum w (delta - R base), to which Newton's steps R <- ratio at the weights of R climb, and which they
    reach after finitely many: exact, without a sort.
    """
    weight = low
    ratio = _ratios(delta, weight, base, groups)
    while True:
        weight = np.where(delta > ratio * (1.0 if base is None else base), high, low)
        better = _ratios(delta, weight, base, groups)
        if not (better > ratio).any():
            return weight
        ratio = np.maximum(ratio, better)


def _ratios(delta: Vector, weight: Vector, base: Vector | None, groups: Clusters | None) -> Vector:
    """Sum w delta / sum w base over the group of each cell; 0 where the group has no base."""
    above, below = weight * delta, weight if base is None else weight * base
    if groups is None:
        return _divide(np.array([above.sum()]), np.array([below.sum()]))
    sums = groups.add_up(np.stack([above, below]))
    return _divide(sums[:, 0], sums[:, 1])[groups.code]


def _divide(above: Vector, below: Vector) -> Vector:
    filled: BoolVector = below > 0
    return np.divide(above, below, out=np.zeros_like(above), where=filled)
