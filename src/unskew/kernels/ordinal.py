"""The log likelihood of ordinal ratings and of which cells are observed, with its gradient.

A cell of user u and item i has the score s = v_u . w_i + a_u + b_i. The cut points of the item,
k_1 < .. < k_{L-1}, separate the L rating levels:

    P_r = S_r - S_{r-1},    S_k = sigma(x_k),    x_k = (cut_ik - s) / (noise_u noise_i),
    S_0 = 0,    S_L = 1.

The log odds that it is observed are

    eta_r = activity_u + popularity_i + e_u . f_i + effect_ur + effect_ir.

An observed cell of level y adds log P_y + log sigma(eta_y). An unobserved cell, whose level is
marginalized, adds

    b log m,    m = sum_r P_r t_r = t_L - sum_k S_k (t_{k+1} - t_k),    t_r = sigma(-eta_r).

b is 1 if all unobserved cells of the user are used. In a systematic sample of every b-th cell,
each stands for b cells.

A variable ``by_x`` holds the derivative of the log likelihood (or of m) by x. The arrays of a
record are read before a loop, because each access inside of it would count references.
"""

from __future__ import annotations

import math

import numpy as np

from unskew.kernels.compiling import compiled
from unskew.kernels.ordinal_rows import (
    ItemRows,
    LevelsByUser,
    RowExponentials,
    UnobservedSample,
    UserRows,
)
from unskew.types import IntVector, Matrix, Vector


@compiled
def sigmoid_of_both_signs(x: float) -> tuple[float, float]:
    """sigma(x) and sigma(-x), both with full relative precision."""
    small = math.exp(-abs(x))
    large = 1.0 / (1.0 + small)
    return (large, small * large) if x >= 0 else (small * large, large)


@compiled
def sigmoid(x: float) -> float:
    """sigma(x) = 1 / (1 + exp(-x))."""
    return 1.0 / (1.0 + math.exp(-x))


@compiled
def dot(left: Matrix, u: int, right: Matrix, i: int) -> float:
    """The inner product left[u] . right[i]."""
    total = 0.0
    for j in range(left.shape[1]):
        total += left[u, j] * right[i, j]
    return total


@compiled
def add_product_gradient(
    by_product: float,
    left: Matrix,
    u: int,
    right: Matrix,
    i: int,
    by_left: Matrix,
    by_right: Matrix,
) -> None:
    """Given the derivative by left[u] . right[i], add the derivatives by left[u] and right[i]."""
    for j in range(left.shape[1]):
        by_left[u, j] += by_product * right[i, j]
        by_right[i, j] += by_product * left[u, j]


@compiled
def log_interval_probability(lower: float, upper: float) -> tuple[float, float, float]:
    """log P with P = sigma(upper) - sigma(lower), and its derivatives by lower and upper.

    In the upper half P is computed as sigma(-lower) - sigma(-upper), which is more precise.
    """
    up_to_lower, above_lower = sigmoid_of_both_signs(lower)
    up_to_upper, above_upper = sigmoid_of_both_signs(upper)
    p = up_to_upper - up_to_lower if lower + upper <= 0 else above_lower - above_upper
    return math.log(p), -up_to_lower * above_lower / p, up_to_upper * above_upper / p


@compiled
def add_ratings(
    u: int,
    log: LevelsByUser,
    users: UserRows,
    items: ItemRows,
    exponentials: RowExponentials,
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
    by_cuts, by_user_offset, by_user_noise, total = gradient[1].cuts, 0.0, 0.0, 0.0
    for cell in range(starts[u], starts[u + 1]):
        i, level = int(item[cell]), int(levels[cell])
        precision = user_precision * item_precision[i]
        score = dot(user_factors, u, item_factors, i) + user_offset + item_offset[i]
        lower = (cuts[i, level - 1] - score) * precision if level > 0 else -np.inf
        upper = (cuts[i, level] - score) * precision if level < cuts.shape[1] else np.inf
        value, by_lower, by_upper = log_interval_probability(lower, upper)
        by_noise = 0.0
        if level > 0:
            by_cuts[i, level - 1] += by_lower * precision
            by_noise -= by_lower * lower
        if level < cuts.shape[1]:
            by_cuts[i, level] += by_upper * precision
            by_noise -= by_upper * upper
        by_score = -(by_lower + by_upper) * precision
        total += value
        by_user_offset += by_score
        by_user_noise += by_noise
        by_item_offset[i] += by_score
        by_item_noise[i] += by_noise
        add_product_gradient(
            by_score, user_factors, u, item_factors, i, by_user_factors, by_item_factors
        )
    gradient[0].offset[u] += by_user_offset
    gradient[0].noise[u] += by_user_noise
    return total


@compiled
def add_observed(
    u: int,
    log: LevelsByUser,
    users: UserRows,
    items: ItemRows,
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
    total = 0.0
    for cell in range(starts[u], starts[u + 1]):
        i, level = int(item[cell]), int(levels[cell])
        shared = activity + popularity[i] + dot(user_exposure, u, item_exposure, i)
        p_observed, by_eta = sigmoid_of_both_signs(
            shared + user_effect[u, level] + item_effect[i, level]
        )
        total += math.log(p_observed)
        by_activity += by_eta
        by_popularity[i] += by_eta
        by_user_effect[u, level] += by_eta
        by_item_effect[i, level] += by_eta
        add_product_gradient(
            by_eta, user_exposure, u, item_exposure, i, by_user_exposure, by_item_exposure
        )
    gradient[0].activity[u] += by_activity
    return total


@compiled
def marginalize_rating(
    u: int,
    i: int,
    score: float,
    precision: float,
    odds: float,
    cuts: Matrix,
    user_odds: Matrix,
    item_odds: Matrix,
    x: Vector,
    by_x: Vector,
    by_eta: Vector,
) -> float:
    """m of one unobserved cell. Fills ``x`` and the derivatives of m by x and by eta."""
    below, m = 0.0, 0.0
    p_unobserved = 1.0 / (1.0 + odds * user_odds[u, 0] * item_odds[i, 0])
    for k in range(x.size):
        x[k] = (cuts[i, k] - score) * precision
        up_to = sigmoid(x[k])
        joint = (up_to - below) * p_unobserved
        next_unobserved = 1.0 / (1.0 + odds * user_odds[u, k + 1] * item_odds[i, k + 1])
        by_x[k] = up_to * (1.0 - up_to) * (p_unobserved - next_unobserved)
        by_eta[k] = joint * (p_unobserved - 1.0)
        m += joint
        below, p_unobserved = up_to, next_unobserved
    joint = (1.0 - below) * p_unobserved
    by_eta[x.size] = joint * (p_unobserved - 1.0)
    return float(m + joint)


@compiled
def add_unobserved(
    u: int,
    log: LevelsByUser,
    sample: UnobservedSample,
    users: UserRows,
    items: ItemRows,
    exponentials: RowExponentials,
    gradient: tuple[UserRows, ItemRows],
) -> float:
    """The sum of b log m over the sampled unobserved cells of user u.

    Its gradient is added to ``gradient``.
    """
    starts, item, _ = log
    first, end, n_sampled, phase = starts[u], starts[u + 1], sample.size[u], sample.phase[u]
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
    by_user_offset, by_user_noise, by_activity, total = 0.0, 0.0, 0.0, 0.0
    n_cuts, n_unobserved, cell = cuts.shape[1], item_offset.size - (end - first), first
    x, by_x, by_eta = np.empty(n_cuts), np.empty(n_cuts), np.empty(n_cuts + 1)
    step = n_unobserved / n_sampled
    for k in range(n_sampled):
        nth = min(int((k + phase) * step), n_unobserved - 1)
        while cell < end and item[cell] - (cell - first) <= nth:
            cell += 1
        i = nth + cell - first
        precision = user_precision * item_precision[i]
        score = dot(user_factors, u, item_factors, i) + user_offset + item_offset[i]
        odds = math.exp(activity + popularity[i] + dot(user_exposure, u, item_exposure, i))
        m = marginalize_rating(
            u, i, score, precision, odds, cuts, user_odds, item_odds, x, by_x, by_eta
        )
        total += math.log(m)
        scale, by_score, by_noise, by_shared = step / m, 0.0, 0.0, 0.0
        for j in range(n_cuts):
            derivative = scale * by_x[j]
            by_noise -= derivative * x[j]
            by_score -= derivative * precision
            by_cuts[i, j] += derivative * precision
        for r in range(n_cuts + 1):
            derivative = scale * by_eta[r]
            by_shared += derivative
            by_user_effect[u, r] += derivative
            by_item_effect[i, r] += derivative
        by_user_offset += by_score
        by_user_noise += by_noise
        by_activity += by_shared
        by_item_offset[i] += by_score
        by_item_noise[i] += by_noise
        by_popularity[i] += by_shared
        add_product_gradient(
            by_score, user_factors, u, item_factors, i, by_user_factors, by_item_factors
        )
        add_product_gradient(
            by_shared, user_exposure, u, item_exposure, i, by_user_exposure, by_item_exposure
        )
    gradient[0].offset[u] += by_user_offset
    gradient[0].noise[u] += by_user_noise
    gradient[0].activity[u] += by_activity
    return float(step * total)


@compiled
def add_likelihood(
    rows: tuple[int, int],
    log: LevelsByUser,
    sample: UnobservedSample,
    users: UserRows,
    items: ItemRows,
    exponentials: RowExponentials,
    has_selection: bool,
    gradient: tuple[UserRows, ItemRows],
) -> float:
    """The log likelihood of users ``rows[0]`` to ``rows[1]``.

    Its gradient is added to ``gradient``. Without ``has_selection``, only ratings count.
    """
    total = 0.0
    for u in range(rows[0], rows[1]):
        total += add_ratings(u, log, users, items, exponentials, gradient)
        if has_selection:
            total += add_observed(u, log, users, items, gradient)
            if sample.size[u] > 0:
                total += add_unobserved(u, log, sample, users, items, exponentials, gradient)
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
        u, i = int(user[row]), int(item[row])
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
