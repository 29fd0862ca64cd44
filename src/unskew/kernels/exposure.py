"""Probabilities of exposure of a block of cells, and what ExpoMF needs of them.

A cell without a click and with the scaled score s = sqrt(precision / 2) v . w has

    P(A = 1) = 1 / (1 + exp(s^2 - l)),
    log p(no click) = log(exp(x - s^2) + exp(n)) = max(x - s^2, n) + log(1 + exp(-abs(s^2 - l))).

Here x is the log probability of exposure with the density of y = 0 at s = 0, n that of no exposure,
and l = x - n. A clicked cell has P(A = 1) = 1 and the log density x - (c - s)^2, with c the scaled
1.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from unskew.kernels.compiling import compiled
from unskew.kernels.ordinal import exponentiate
from unskew.types import Floats, RowStarts, Vector

LEAST = 1e-307
"""Smaller exponentials count as 0: ``exponentiate`` does not go below them."""


@compiled
def multiply_by_exposure(
    score: Floats,
    levels: tuple[Vector, Vector, Vector, Vector],
    clicks: tuple[RowStarts, RowStarts, npt.NDArray[Any]],
    first_opposite: int,
    scaled_one: float,
    sums: Vector,
) -> None:
    """Replace each score s by P(A = 1) (s - c), with c = 0 without a click.

    ``score`` has all rows of a block, and the opposite rows from ``first_opposite`` on. ``levels``
    has two vectors whose sum is l, by row and by opposite row, and x and n by opposite row.
    ``clicks`` has for each row where its next click is and where its clicks end, and the cells,
    sorted by opposite row; the first of these moves past the clicks of this block. ``sums`` gets
    the log likelihood of each row, or without x and n the sum of its P(A = 1).
    """
    n_rows, n = score.shape
    row_log_odds, opposite_log_odds, log_exposed, log_unexposed = levels
    next_click, end, cells = clicks
    has_likelihood = log_exposed.size > 0
    work = np.empty((4, n))
    odds, p, value, powers = work[0], work[1], work[2], work[3]
    for r in range(n_rows):
        s, shift = score[r], row_log_odds[r]
        for k in range(n):
            odds[k] = -abs(np.float64(s[k]) * s[k] - (shift + opposite_log_odds[k]))
        exponentiate(odds, n, powers)
        for k in range(n):
            is_unlikely = np.float64(s[k]) * s[k] > shift + opposite_log_odds[k]
            small = odds[k] if odds[k] > LEAST else 0.0
            odds[k] = 1.0 + small
            p[k] = (small if is_unlikely else 1.0) / odds[k]
        if has_likelihood:
            for k in range(n):
                square = np.float64(s[k]) * s[k]
                is_unlikely = square > shift + opposite_log_odds[k]
                value[k] = log_unexposed[k] if is_unlikely else log_exposed[k] - square
        else:
            for k in range(n):
                value[k] = p[k]
        while next_click[r] < end[r]:
            column = np.int64(cells[next_click[r]].opposite) - first_opposite
            if column >= n:
                break
            next_click[r] += 1
            s[column] -= scaled_one
            odds[column], p[column], value[column] = 1.0, 1.0, 1.0
            if has_likelihood:
                value[column] = log_exposed[column] - np.float64(s[column]) * s[column]
        for k in range(n):
            s[k] *= p[k]
        add_halves(value, n)
        sums[r] += value[0]
        if has_likelihood:
            multiply_halves(odds, n)
            sums[r] += math.log(odds[0])


@compiled
def add_halves(x: Vector, n: int) -> None:
    """x[0] = the sum of the first ``n`` numbers; the others change. Loops become vector code."""
    while n > 1:
        half = n // 2
        for k in range(half):
            x[k] += x[n - half + k]
        n -= half


@compiled
def multiply_halves(x: Vector, n: int) -> None:
    """x[0] = the product of the first ``n`` numbers, like ``add_halves``."""
    while n > 1:
        half = n // 2
        for k in range(half):
            x[k] *= x[n - half + k]
        n -= half
