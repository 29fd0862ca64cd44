"""Metrics of one user's ranking as functions of the weights of the user's relevant cells.

The relevant cells of a user are in the order of their positions. A cell shares the places
``above + 1`` to ``above + equal`` with all candidates that have the same score, and every formula
is the expectation over random orders of ties. With weight w = h for an observed relevant cell and
0 for any other cell, which is 1 and 0 if everything is observed:

    none_p  = E prod over the first p places of (1 - w): 1 if none of them is relevant
    hit     = 1 - none_k
    rr      = sum over places p <= k of (none_{p-1} - none_p) / p
    ap      = (1/N) sum over c with place p <= k of w_c (1 + sum of w before c) / p,  N = sum w
    ndcg    = sum w g d(place) / best sum, which fills the first N places by decreasing gain g
    auc     = (sum w (n - place) - pairs) / (N (n - 1) - 2 pairs), pairs = sum over c < c' of w w'

``none``, the numerator of ``ap``, and both parts of ``auc`` are multilinear in the weights: with
h = 1/P they are unbiased if cells are observed independently. Ratios of them are biased.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from unskew.kernels.compiling import compiled
from unskew.types import IntVector, Matrix, Vector

Offsets: TypeAlias = npt.NDArray[np.int64]

UserData: TypeAlias = tuple[IntVector, IntVector, Vector, Vector, IntVector]
"""``above``, ``equal``, ``gain``, ``worth`` and ``by_gain`` of the cells of one user."""

HIT, RECIPROCAL_RANK, AVERAGE_PRECISION, NDCG, AUC, AUC_PAIRS = 0, 1, 2, 3, 4, 5
LINEAR_IN_EACH = (HIT, RECIPROCAL_RANK, AUC_PAIRS)
LARGEST_PRODUCT = 1e60
"""Products of weights end here: beyond it they say nothing, and their fourth powers overflow."""
STEP = 1e-4
"""Relative step of numerical derivatives; multilinear functions need no small one."""


@compiled
def measure_users(
    kind: int,
    weight: Vector,
    p_unobserved: Vector,
    starts: Offsets,
    above: IntVector,
    equal: IntVector,
    gain: Vector,
    worth: Vector,
    by_gain: IntVector,
    n_candidates: IntVector,
    sums: Vector,
    top: int,
) -> Matrix:
    """Users x 2: numerator and base. A base of 0 means that the metric is not defined.

    ``worth`` is the discount of each cell, and ``sums[p]`` of the first p places. ``by_gain`` has
    the cells of each user by decreasing gain. Of both numbers f of a user, the sum over cells of
    ``p_unobserved`` (f without the cell - f + w f') is subtracted, or nothing if it is empty.
    """
    results = np.zeros((starts.size - 1, 2))
    for user in range(starts.size - 1):
        rows = slice(starts[user], starts[user + 1])
        data = (above[rows], equal[rows], gain[rows], worth[rows], by_gain[rows] - starts[user])
        moved = weight[rows].copy()
        value, base = _measure_user(kind, moved, data, n_candidates[user], sums, top)
        results[user, 0], results[user, 1] = value, base
        for cell in range(moved.size if p_unobserved.size else 0):
            if moved[cell] == 0.0:
                continue
            before, factor = moved[cell], p_unobserved[starts[user] + cell]
            slopes = _differentiate_cell(kind, moved, cell, data, n_candidates[user], sums, top)
            moved[cell] = 0.0
            without = _measure_user(kind, moved, data, n_candidates[user], sums, top)
            moved[cell] = before
            results[user, 0] -= factor * (without[0] - value + before * slopes[0])
            results[user, 1] -= factor * (without[1] - base + before * slopes[1])
    return results


@compiled
def differentiate_users(
    kind: int,
    weight: Vector,
    starts: Offsets,
    above: IntVector,
    equal: IntVector,
    gain: Vector,
    worth: Vector,
    by_gain: IntVector,
    n_candidates: IntVector,
    sums: Vector,
    top: int,
) -> Matrix:
    """Cells x 2: derivatives of the user's numerator and base by the weight of each cell."""
    results = np.zeros((weight.size, 2))
    for user in range(starts.size - 1):
        rows = slice(starts[user], starts[user + 1])
        data = (above[rows], equal[rows], gain[rows], worth[rows], by_gain[rows] - starts[user])
        moved = weight[rows].copy()
        for cell in range(moved.size):
            slopes = _differentiate_cell(kind, moved, cell, data, n_candidates[user], sums, top)
            results[starts[user] + cell, 0] = slopes[0]
            results[starts[user] + cell, 1] = slopes[1]
    return results


@compiled
def _differentiate_cell(
    kind: int, weight: Vector, cell: int, data: UserData, n_candidates: int, sums: Vector, top: int
) -> tuple[float, float]:
    """Central differences of numerator and base; ``weight`` is changed and set back."""
    before = weight[cell]
    step = STEP * max(before, 1.0)
    weight[cell] = before + step
    value, base = _measure_user(kind, weight, data, n_candidates, sums, top)
    weight[cell] = before - step
    lower_value, lower_base = _measure_user(kind, weight, data, n_candidates, sums, top)
    weight[cell] = before
    return (value - lower_value) / (2 * step), (base - lower_base) / (2 * step)


@compiled
def _measure_user(
    kind: int, weight: Vector, data: UserData, n_candidates: int, sums: Vector, top: int
) -> tuple[float, float]:
    above, equal, gain, worth, by_gain = data
    total = weight.sum()
    if total <= 0:
        return 0.0, 0.0
    if kind in (HIT, RECIPROCAL_RANK):
        return _first_relevant(kind, weight, above, equal, top), 1.0
    if kind == AVERAGE_PRECISION:
        return _sum_precisions(weight, above, equal, top) / total, 1.0
    if kind == NDCG:
        best, gained = _best_gain(weight, gain, by_gain, sums), 0.0
        for cell in range(weight.size):
            gained += weight[cell] * gain[cell] * worth[cell]
        return (gained / best, 1.0) if best > 0 else (0.0, 0.0)
    scale, squares, ordered = 1.0, 0.0, 0.0
    if kind == AUC and total > n_candidates - 1:
        if (weight > 0).sum() == n_candidates:
            return 0.0, 0.0  # all candidates are relevant
        scale = (n_candidates - 1) / total
    for cell in range(weight.size):
        scaled = scale * weight[cell]
        squares += scaled * scaled
        ordered += scaled * (n_candidates - above[cell] - (equal[cell] + 1) / 2)
    pairs = (scale * total * scale * total - squares) / 2
    n_pairs = scale * total * (n_candidates - 1) - 2 * pairs
    if kind == AUC_PAIRS:
        return ordered - pairs, n_pairs
    return ((ordered - pairs) / n_pairs, 1.0) if n_pairs > 0 else (0.0, 0.0)


@compiled
def _first_relevant(
    kind: int, weight: Vector, above: IntVector, equal: IntVector, top: int
) -> float:
    """1 - none_k, or the sum over places of (none_{p-1} - none_p) / p."""
    none, rank_sum, first = 1.0, 0.0, 0
    while first < weight.size and above[first] < top:
        last = _end_of_tie(above, first)
        tied, size = weight[first:last], equal[first]
        n_within = min(size, top - above[first])
        if kind == RECIPROCAL_RANK:
            before = none
            for offset in range(1, n_within + 1):
                after = _limit(none * _none_among(tied, size, offset))
                rank_sum += (before - after) / (above[first] + offset)
                before = after
        none = _limit(none * _none_among(tied, size, n_within))
        first = last
    return rank_sum if kind == RECIPROCAL_RANK else 1.0 - none


@compiled
def _none_among(weight: Vector, size: int, n_drawn: int) -> float:
    """E prod (1 - w) over ``n_drawn`` of ``size`` items, drawn without replacement.

    Items without a weight have w = 0. ``expected[t]`` is the sum over draws with t of the weighted
    items so far of their probability times their product.
    """
    expected = np.zeros(min(weight.size, n_drawn) + 1)
    expected[0] = 1.0
    for index in range(weight.size):
        left = size - index
        for t in range(min(index, expected.size - 1), -1, -1):
            if expected[t] != 0.0:
                drawn = expected[t] * (n_drawn - t) / left
                expected[t] -= drawn
                if t + 1 < expected.size:
                    expected[t + 1] = _limit(expected[t + 1] + drawn * (1.0 - weight[index]))
    return _limit(float(expected.sum()))


@compiled
def _limit(product: float) -> float:
    return min(max(product, -LARGEST_PRODUCT), LARGEST_PRODUCT)


@compiled
def _sum_precisions(weight: Vector, above: IntVector, equal: IntVector, top: int) -> float:
    """Sum of w_c (1 + w before c) / place. Of two tied cells, either may be before the other."""
    total, before, first = 0.0, 0.0, 0
    while first < weight.size and above[first] < top:
        last = _end_of_tie(above, first)
        size = equal[first]
        place_factor, pair_factor = 0.0, 0.0
        for offset in range(min(size, top - above[first])):
            place_factor += 1.0 / (above[first] + offset + 1)
            pair_factor += offset / (above[first] + offset + 1.0)
        tied = weight[first:last]
        both = tied.sum()
        total += both * (1.0 + before) * place_factor / size
        if size > 1:
            total += (both * both - (tied * tied).sum()) * pair_factor / size / (size - 1)
        before += both
        first = last
    return total


@compiled
def _best_gain(weight: Vector, gain: Vector, by_gain: IntVector, sums: Vector) -> float:
    """The weighted ideal DCG: by decreasing gain, each cell fills as many places as its weight.

    ``sums`` are the cumulative discounts of the places, from 0 on.
    """
    best, filled, before = 0.0, 0.0, 0.0
    for index in range(by_gain.size):
        cell = by_gain[index]
        filled += weight[cell]
        after = _interpolate(sums, filled)
        best += gain[cell] * (after - before)
        if filled >= sums.size - 1:
            break  # no place is left
        before = after
    return best


@compiled
def _interpolate(sums: Vector, n_filled: float) -> float:
    """``sums`` at a number of places that need not be whole."""
    last = sums.size - 1
    if n_filled >= last:
        return float(sums[last])
    whole = int(n_filled)
    return float(sums[whole] + (n_filled - whole) * (sums[whole + 1] - sums[whole]))


@compiled
def _end_of_tie(above: IntVector, first: int) -> int:
    """The end of the cells that share their places with cell ``first``."""
    last = first + 1
    while last < above.size and above[last] == above[first]:
        last += 1
    return last
