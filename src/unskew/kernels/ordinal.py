"""The log likelihood of ordinal ratings and of which cells are observed, with its gradient.

A cell of user u and item i has the score s = v_u . w_i + a_u + b_i. The cut points of the item,
k_1 < .. < k_{L-1}, separate the L rating levels:

    P_r = S_r - S_{r-1},    S_k = sigma(x_k),    x_k = (cut_ik - s) / (noise_u noise_i),
    S_0 = 0,    S_L = 1.

The log odds that it is observed are

    eta_r = activity_u + popularity_i + e_u . f_i + effect_ur + effect_ir.

An observed cell of level y adds log P_y + log sigma(eta_y). An unobserved cell, whose level is
marginalized, adds

    log m,    m = sum_r P_r t_r = t_L - sum_k S_k (t_{k+1} - t_k),    t_r = sigma(-eta_r).

Here all unobserved cells are used; :mod:`unskew.kernels.ordinal_tiles` computes a sample of them.

Cells are computed in blocks, with loops over a block that the compiler turns into vector code. Rows
of factors are padded, see :mod:`unskew.kernels.ordinal_rows`.

A variable ``by_x`` holds the derivative of the log likelihood (or of m) by x. The arrays of a
record are read before a loop, because each access inside of it would count references.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from unskew.kernels.compiling import compiled
from unskew.kernels.ordinal_rows import (
    ItemRows,
    LevelsByUser,
    RowExponentials,
    UserRows,
)
from unskew.kernels.vectors import add_scaled, dot
from unskew.types import IntVector, Matrix, Vector

LARGEST = 708.0
"""exp(x) is computed as exp(-708) below -708 and as exp(708) above 708."""
SHIFT = 1.5 * 2.0**52
PER_LOG_2 = 1.4426950408889634
LOG_2_HIGH, LOG_2_LOW = 6.93147180369123816490e-01, 1.90821492927058770002e-10
"""Their sum is log 2; the product of the first one and n is exact."""
EXPONENT_OF_ONE = 1023
MANTISSA_BITS = 52


@compiled
def exponentiate(x: Vector, n: int, powers: Vector) -> None:
    """x[k] = exp(x[k]) for the first ``n`` numbers; ``powers`` has room for as many numbers.

    With n the integer next to x / log 2, exp(x) = 2^n exp(r) and abs(r) = abs(x - n log 2) < 0.35.
    A polynomial gives exp(r). Adding ``SHIFT`` to x / log 2 leaves n in the last bits of the sum,
    and moving these to the exponent of a number gives 2^n. The compiler turns the loops into vector
    code.
    """
    bits = powers.view(np.int64)
    for k in range(n):
        value = x[k]
        value = -LARGEST if value < -LARGEST else value
        value = LARGEST if value > LARGEST else value
        shifted = value * PER_LOG_2 + SHIFT
        powers[k] = shifted
        whole = shifted - SHIFT
        r = (value - whole * LOG_2_HIGH) - whole * LOG_2_LOW
        high = 1 / 40320 + r * (1 / 362880 + r * (1 / 3628800 + r * (1 / 39916800 + r / 479001600)))
        low = 1 / 24 + r * (1 / 120 + r * (1 / 720 + r * (1 / 5040 + r * high)))
        x[k] = 1.0 + r * (1.0 + r * (1 / 2 + r * (1 / 6 + r * low)))
    for k in range(n):
        bits[k] = (bits[k] + EXPONENT_OF_ONE) << MANTISSA_BITS
    for k in range(n):
        x[k] *= powers[k]


BLOCK_CELLS = 64
SMALL = 1e-100
"""Products of probabilities stay above its square."""


class Workspace(NamedTuple):
    """Numbers of a block of cells, one column for each cell."""

    chosen: npt.NDArray[np.int64]
    """Items."""
    odds: Vector
    m: Vector
    powers: Vector
    x: Matrix
    bounds: Matrix
    """S_0 to S_L."""
    p: Matrix
    by_x: Matrix
    by_eta: Matrix


@compiled
def sigmoid(x: float) -> float:
    """sigma(x) = 1 / (1 + exp(-x))."""
    return 1.0 / (1.0 + math.exp(-x))


@compiled
def log_of_product(product: float, factor: float) -> tuple[float, float]:
    """A sum of logarithms as the logarithm of a product, which a factor is added to.

    Returns what has to be added to the sum now, and the product of the rest.
    """
    if factor < SMALL:
        return math.log(factor), product
    product *= factor
    return (math.log(product), 1.0) if product < SMALL else (0.0, product)


@compiled
def both_sigmoids(x: float, exponential: float) -> tuple[float, float]:
    """sigma(x) and sigma(-x), both with full relative precision, from exp(-abs(x))."""
    large = 1.0 / (1.0 + exponential)
    return (large, exponential * large) if x >= 0 else (exponential * large, large)


@compiled
def interval_probability(
    lower: float, upper: float, exp_lower: float, exp_upper: float
) -> tuple[float, float, float]:
    """P = sigma(upper) - sigma(lower), and the derivatives of log P by lower and upper.

    ``exp_lower`` is exp(-abs(lower)), and so on. In the upper half P is computed as
    sigma(-lower) - sigma(-upper), which is more precise.
    """
    up_to_lower, above_lower = both_sigmoids(lower, exp_lower)
    up_to_upper, above_upper = both_sigmoids(upper, exp_upper)
    p = up_to_upper - up_to_lower if lower + upper <= 0 else above_lower - above_upper
    return p, -up_to_lower * above_lower / p, up_to_upper * above_upper / p


@compiled
def add_ratings(
    u: int,
    log: LevelsByUser,
    users: UserRows,
    items: ItemRows,
    exponentials: RowExponentials,
    work: Workspace,
    gradient: tuple[UserRows, ItemRows],
) -> float:
    """The sum of log P_y over the ratings of user u; its gradient is added to ``gradient``."""
    starts, item, levels = log
    user_factors, item_factors, item_offset = users.factors, items.factors, items.offset
    cuts = items.cuts
    user_offset, user_precision = users.offset[u], exponentials.user_precision[u]
    item_precision = exponentials.item_precision
    by_user_factors, by_item_factors = gradient[0].factors, gradient[1].factors
    by_item_offset, by_item_noise = gradient[1].offset, gradient[1].noise
    by_cuts, by_user_offset, by_user_noise = gradient[1].cuts, 0.0, 0.0
    lower, upper, exp_lower, exp_upper, powers = (
        work.x[0], work.x[1], work.bounds[0], work.bounds[1], work.powers
    )  # fmt: skip
    total, product = 0.0, 1.0
    for first in range(starts[u], starts[u + 1], BLOCK_CELLS):
        n = min(BLOCK_CELLS, starts[u + 1] - first)
        for k in range(n):
            i, level = np.int64(item[first + k]), np.int64(levels[first + k])
            precision = user_precision * item_precision[i]
            score = dot(user_factors, u, item_factors, i) + user_offset + item_offset[i]
            lower[k] = (cuts[i, level - 1] - score) * precision if level > 0 else -np.inf
            upper[k] = (cuts[i, level] - score) * precision if level < cuts.shape[1] else np.inf
            exp_lower[k], exp_upper[k] = -abs(lower[k]), -abs(upper[k])
        exponentiate(exp_lower, n, powers)
        exponentiate(exp_upper, n, powers)
        for k in range(n):
            i, level = np.int64(item[first + k]), np.int64(levels[first + k])
            precision = user_precision * item_precision[i]
            p, by_lower, by_upper = interval_probability(
                lower[k], upper[k], exp_lower[k], exp_upper[k]
            )
            log_p, product = log_of_product(product, p)
            by_noise = 0.0
            if level > 0:
                by_cuts[i, level - 1] += by_lower * precision
                by_noise -= by_lower * lower[k]
            if level < cuts.shape[1]:
                by_cuts[i, level] += by_upper * precision
                by_noise -= by_upper * upper[k]
            by_score = -(by_lower + by_upper) * precision
            total += log_p
            by_user_offset += by_score
            by_user_noise += by_noise
            by_item_offset[i] += by_score
            by_item_noise[i] += by_noise
            add_scaled(item_factors, i, by_score, by_user_factors, u, 0)
            add_scaled(user_factors, u, by_score, by_item_factors, i, 0)
    gradient[0].offset[u] += by_user_offset
    gradient[0].noise[u] += by_user_noise
    return total + math.log(product)


@compiled
def add_observed(
    u: int,
    log: LevelsByUser,
    users: UserRows,
    items: ItemRows,
    work: Workspace,
    gradient: tuple[UserRows, ItemRows],
) -> float:
    """The sum of log sigma(eta_y), the log probability of being observed, over u's ratings.

    Its gradient is added to ``gradient``.
    """
    starts, item, levels = log
    user_exposure, item_exposure, popularity = users.exposure, items.exposure, items.popularity
    user_effect, item_effect, activity = users.effect, items.effect, users.activity[u]
    by_user_exposure, by_item_exposure = gradient[0].exposure, gradient[1].exposure
    by_popularity = gradient[1].popularity
    by_user_effect, by_item_effect, by_activity = gradient[0].effect, gradient[1].effect, 0.0
    eta, exponential, powers = work.odds, work.m, work.powers
    total, product = 0.0, 1.0
    for first in range(starts[u], starts[u + 1], BLOCK_CELLS):
        n = min(BLOCK_CELLS, starts[u + 1] - first)
        for k in range(n):
            i, level = np.int64(item[first + k]), np.int64(levels[first + k])
            eta[k] = activity + popularity[i] + dot(user_exposure, u, item_exposure, i)
            eta[k] += user_effect[u, level] + item_effect[i, level]
            exponential[k] = -abs(eta[k])
        exponentiate(exponential, n, powers)
        for k in range(n):
            i, level = np.int64(item[first + k]), np.int64(levels[first + k])
            p_observed, by_eta = both_sigmoids(eta[k], exponential[k])
            log_p, product = log_of_product(product, p_observed)
            total += log_p
            by_activity += by_eta
            by_popularity[i] += by_eta
            by_user_effect[u, level] += by_eta
            by_item_effect[i, level] += by_eta
            add_scaled(item_exposure, i, by_eta, by_user_exposure, u, 0)
            add_scaled(user_exposure, u, by_eta, by_item_exposure, i, 0)
    gradient[0].activity[u] += by_activity
    return total + math.log(product)


@compiled
def marginalize_ratings(n: int, n_cuts: int, work: Workspace) -> None:
    """m of ``n`` unobserved cells, and its derivatives.

    Reads ``x``, the odds without value effects (``odds``) and those of the effects (``p``). Fills
    ``m``, ``by_x`` and ``by_eta``, and replaces ``p`` by the probabilities of being unobserved.
    """
    odds, m, powers = work.odds, work.m, work.powers
    for r in range(n_cuts + 1):
        p = work.p[r]
        for k in range(n):
            p[k] = 1.0 / (1.0 + odds[k] * p[k])
    for j in range(n_cuts):
        x, up_to = work.x[j], work.bounds[j + 1]
        for k in range(n):
            up_to[k] = -x[k]
        exponentiate(up_to, n, powers)
        for k in range(n):
            up_to[k] = 1.0 / (1.0 + up_to[k])
    work.bounds[0, :n] = 0.0
    work.bounds[n_cuts + 1, :n] = 1.0
    m[:n] = 0.0
    for r in range(n_cuts + 1):
        below, up_to, p, by_eta = work.bounds[r], work.bounds[r + 1], work.p[r], work.by_eta[r]
        for k in range(n):
            by_eta[k] = (up_to[k] - below[k]) * p[k]
        for k in range(n):
            m[k] += by_eta[k]
        for k in range(n):
            by_eta[k] *= p[k] - 1.0
    for j in range(n_cuts):
        up_to, p, next_p, by_x = work.bounds[j + 1], work.p[j], work.p[j + 1], work.by_x[j]
        for k in range(n):
            by_x[k] = up_to[k] * (1.0 - up_to[k]) * (p[k] - next_p[k])


@compiled
def add_unobserved(
    u: int,
    log: LevelsByUser,
    users: UserRows,
    items: ItemRows,
    exponentials: RowExponentials,
    work: Workspace,
    gradient: tuple[UserRows, ItemRows],
) -> float:
    """The sum of log m over the unobserved cells of user u.

    Its gradient is added to ``gradient``.
    """
    starts, item, _ = log
    first, end = starts[u], starts[u + 1]
    user_factors, item_factors, item_offset = users.factors, items.factors, items.offset
    cuts = items.cuts
    user_exposure, item_exposure, popularity = users.exposure, items.exposure, items.popularity
    user_offset, user_precision = users.offset[u], exponentials.user_precision[u]
    item_precision = exponentials.item_precision
    activity, user_odds = users.activity[u], exponentials.user_odds
    item_odds = exponentials.item_odds
    by_user_factors, by_item_factors = gradient[0].factors, gradient[1].factors
    by_item_offset, by_item_noise = gradient[1].offset, gradient[1].noise
    by_user_exposure, by_item_exposure = gradient[0].exposure, gradient[1].exposure
    by_popularity = gradient[1].popularity
    by_user_effect, by_item_effect = gradient[0].effect, gradient[1].effect
    by_cuts = gradient[1].cuts
    chosen, x, odds, p, m, by_x, by_eta = (
        work.chosen, work.x, work.odds, work.p, work.m, work.by_x, work.by_eta
    )  # fmt: skip
    by_user_offset, by_user_noise, by_activity, total, product = 0.0, 0.0, 0.0, 0.0, 1.0
    n_cuts, n_unobserved, cell = cuts.shape[1], item_offset.size - (end - first), first
    for block in range(0, n_unobserved, BLOCK_CELLS):
        n = min(BLOCK_CELLS, n_unobserved - block)
        for k in range(n):
            nth = block + k
            while cell < end and item[cell] - (cell - first) <= nth:
                cell += 1
            i = nth + cell - first
            chosen[k] = i
            precision = user_precision * item_precision[i]
            score = dot(user_factors, u, item_factors, i) + user_offset + item_offset[i]
            odds[k] = activity + popularity[i] + dot(user_exposure, u, item_exposure, i)
            for j in range(n_cuts):
                x[j, k] = (cuts[i, j] - score) * precision
            for r in range(n_cuts + 1):
                p[r, k] = user_odds[u, r] * item_odds[i, r]
        exponentiate(odds, n, work.powers)
        marginalize_ratings(n, n_cuts, work)
        for k in range(n):
            i = chosen[k]
            log_m, product = log_of_product(product, m[k])
            total += log_m
            precision = user_precision * item_precision[i]
            scale, by_score, by_noise, by_shared = 1.0 / m[k], 0.0, 0.0, 0.0
            for j in range(n_cuts):
                derivative = scale * by_x[j, k]
                by_noise -= derivative * x[j, k]
                by_score -= derivative * precision
                by_cuts[i, j] += derivative * precision
            for r in range(n_cuts + 1):
                derivative = scale * by_eta[r, k]
                by_shared += derivative
                by_user_effect[u, r] += derivative
                by_item_effect[i, r] += derivative
            by_user_offset += by_score
            by_user_noise += by_noise
            by_activity += by_shared
            by_item_offset[i] += by_score
            by_item_noise[i] += by_noise
            by_popularity[i] += by_shared
            add_scaled(item_factors, i, by_score, by_user_factors, u, 0)
            add_scaled(user_factors, u, by_score, by_item_factors, i, 0)
            add_scaled(item_exposure, i, by_shared, by_user_exposure, u, 0)
            add_scaled(user_exposure, u, by_shared, by_item_exposure, i, 0)
    gradient[0].offset[u] += by_user_offset
    gradient[0].noise[u] += by_user_noise
    gradient[0].activity[u] += by_activity
    return total + math.log(product)


@compiled
def add_likelihood(
    rows: tuple[int, int],
    log: LevelsByUser,
    users: UserRows,
    items: ItemRows,
    exponentials: RowExponentials,
    has_selection: bool,
    has_unobserved: bool,
    gradient: tuple[UserRows, ItemRows],
) -> float:
    """The log likelihood of users ``rows[0]`` to ``rows[1]``.

    Its gradient is added to ``gradient``. Without ``has_selection``, only ratings count, and
    without ``has_unobserved`` only observed cells.
    """
    n_levels, total = items.cuts.shape[1] + 1, 0.0
    work = Workspace(
        np.empty(BLOCK_CELLS, np.int64),
        np.empty(BLOCK_CELLS),
        np.empty(BLOCK_CELLS),
        np.empty(BLOCK_CELLS),
        np.empty((n_levels + 1, BLOCK_CELLS)),
        np.empty((n_levels + 1, BLOCK_CELLS)),
        np.empty((n_levels, BLOCK_CELLS)),
        np.empty((n_levels, BLOCK_CELLS)),
        np.empty((n_levels, BLOCK_CELLS)),
    )
    for u in range(rows[0], rows[1]):
        total += add_ratings(u, log, users, items, exponentials, work, gradient)
        if has_selection:
            total += add_observed(u, log, users, items, work, gradient)
        if has_unobserved:
            total += add_unobserved(u, log, users, items, exponentials, work, gradient)
    return total


@compiled
def fill_distribution(
    user: IntVector,
    item: IntVector,
    users: UserRows,
    items: ItemRows,
    exponentials: RowExponentials,
    has_selection: bool,
    probabilities: Matrix,
) -> None:
    """Write P_r of each pair of a user and an item to ``probabilities``, pairs x levels.

    With ``has_selection`` it is that of an unobserved cell: P_r sigma(-eta_r) over its sum.
    """
    user_factors, item_factors, user_offset = users.factors, items.factors, users.offset
    item_offset = items.offset
    user_exposure, item_exposure, activity = users.exposure, items.exposure, users.activity
    popularity = items.popularity
    user_precision, item_precision, user_odds, item_odds = exponentials
    cuts, n_cuts = items.cuts, items.cuts.shape[1]
    for row in range(user.size):
        u, i = np.int64(user[row]), np.int64(item[row])
        precision = user_precision[u] * item_precision[i]
        score = dot(user_factors, u, item_factors, i) + user_offset[u] + item_offset[i]
        odds = (
            math.exp(activity[u] + popularity[i] + dot(user_exposure, u, item_exposure, i))
            if has_selection
            else 0.0
        )
        below, total = 0.0, 0.0
        for r in range(n_cuts + 1):
            up_to = sigmoid((cuts[i, r] - score) * precision) if r < n_cuts else 1.0
            probabilities[row, r] = (up_to - below) / (
                1.0 + odds * user_odds[u, r] * item_odds[i, r]
            )
            total += probabilities[row, r]
            below = up_to
        for r in range(n_cuts + 1):
            probabilities[row, r] /= total
