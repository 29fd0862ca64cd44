"""Sweeps of a mixture of users' clusters: two passes over the log, and one over items, levels and clusters.

A slot is an item and a rating level, ``item * n_levels + level``; tables of slots have one column a cluster. Users, and slots, do
not depend on one another, so that ranges of them may be worked on in any order.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from unskew.kernels.compiling import compiled
from unskew.types import IntVector, Matrix, Vector

Offsets: TypeAlias = npt.NDArray[np.int64]

MOST_STEPS = 100
"""Newton's method takes four or five; halving, where it would leave the bracket, some fifty."""
CLOSE = 1e-13
"""To which shares add up to 1; near the best ones the score is flat, so that this is far below its rounding."""


@compiled
def share_clusters(
    starts: Offsets,
    slot: Offsets,
    start: Vector,
    table: Matrix,
    first: int,
    last: int,
    shares: Matrix,
    evidence: Vector,
) -> None:
    """P(cluster | a user's ratings) and the log of their probability, from ``start`` and the ``table`` of the cells' slots."""
    n_clusters = start.size
    for user in range(first, last):
        score = shares[user]
        for k in range(n_clusters):
            score[k] = start[k]
        for cell in range(starts[user], starts[user + 1]):
            row = table[slot[cell]]
            for k in range(n_clusters):
                score[k] += row[k]
        top = score.max()
        total = 0.0
        for k in range(n_clusters):
            score[k] = np.exp(score[k] - top)
            total += score[k]
        for k in range(n_clusters):
            score[k] /= total
        evidence[user] = top + np.log(total)


@compiled
def count_clusters(
    starts: Offsets, user: IntVector, shares: Matrix, first: int, last: int, counts: Matrix
) -> None:
    """The shares of its raters, added up for each slot, in the order of the log."""
    n_clusters = shares.shape[1]
    for slot in range(first, last):
        total = counts[slot]
        for k in range(n_clusters):
            total[k] = 0.0
        for cell in range(starts[slot], starts[slot + 1]):
            row = shares[user[cell]]
            for k in range(n_clusters):
                total[k] += row[k]


@compiled
def solve_levels(
    counts: Matrix,
    sizes: Vector,
    unlogged: Matrix,
    smoothing: float,
    first: int,
    last: int,
    found: Matrix,
) -> None:
    """For items ``first`` to ``last`` and each cluster, the shares B of the rating levels that are best for

        sum_r (A_r + smoothing) log B_r + M log(sum_r unlogged_r B_r),    sum_r B_r = 1,

    A counted ratings of each level and M, what is left of the cluster's size, unlogged cells.
    """
    n_levels, n_clusters = unlogged.shape[1], sizes.size
    for item in range(first, last):
        slots = slice(item * n_levels, (item + 1) * n_levels)
        for k in range(n_clusters):
            solve_one(counts[slots, k], sizes[k], unlogged[item], smoothing, found[slots, k])


@compiled
def solve_one(
    counts: Vector, size: float, unlogged: Vector, smoothing: float, found: Vector
) -> None:
    """B_r = (A_r + smoothing) / (N + M (1 - (1 - x) c_r)), N = sum (A_r + smoothing), c_r = unlogged_r / their largest.

    The sum f(x) of these shares is 1 or less at x = 0 and rises as x falls; x is where it is 1. Newton's method runs on 1 / f,
    which is nearly straight. In x, unlike in 1 - x, nothing cancels where M is many times N.
    """
    known = smoothing * counts.size + counts.sum()
    missing = max(size - counts.sum(), 0.0)
    largest = unlogged.max()
    low, high, x = max(-known / missing, 1 - largest / unlogged.min()), 0.0, 0.0
    for _ in range(MOST_STEPS):
        total, slope, is_beyond = 0.0, 0.0, False
        for r in range(counts.size):
            share = unlogged[r] / largest
            below = known + missing * ((1 - share) + x * share)
            is_beyond |= below <= 0
            found[r] = (counts[r] + smoothing) / below
            total += found[r]
            slope += found[r] * missing * share / below
        if not is_beyond and abs(total - 1) <= CLOSE:
            break
        if is_beyond or total > 1:
            low = x
        else:
            high = x
        nearer = x - total * (1 - total) / slope
        if is_beyond or not low < nearer < high:
            nearer = (low + high) / 2
        if nearer == x:
            break
        x = nearer
    found /= found.sum()
