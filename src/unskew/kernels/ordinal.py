"""The likelihood of ordinal ratings that are logged with chances of their own, and its slopes, user by user.

A cell of user u and item i has the score s = v_u . w_i + a_u + b_i. Cut points k_1 < .. < k_{L-1} of the item part the L levels:

    P_r = S_r - S_{r-1},    S_k = sigma(x_k),    x_k = (cut_ik - s) / (noise_u noise_i),    S_0 = 0,  S_L = 1.

It is logged with the log odds eta_r = activity_u + popularity_i + e_u . f_i + effect_ur + effect_ir. A logged cell of level y
adds log P_y + log sigma(eta_y), and one that is not logged, its level summed out,

    b log m,    m = sum_r P_r t_r = t_L - sum_k S_k (t_{k+1} - t_k),    t_r = sigma(-eta_r).

Of the cells that are not logged a user may have every ``step``-th taken, from a place of its own, each for b = ``step`` of them;
at ``step`` = 1 that is all, and nothing is drawn.

Loops read no record: the arrays of one are taken out before, since each look into it inside would count references.
"""

from __future__ import annotations

import math

import numpy as np

from unskew.kernels.compiling import compiled
from unskew.kernels.ordinal_lines import Draws, Exponentials, Items, LevelLog, Users
from unskew.types import IntVector, Matrix, Vector


@compiled
def both_ways(x: float) -> tuple[float, float]:
    """sigma(x) and sigma(-x), each to its last digit."""
    small = math.exp(-abs(x))
    large = 1.0 / (1.0 + small)
    return (large, small * large) if x >= 0 else (small * large, large)


@compiled
def sigmoid(x: float) -> float:
    """1 / (1 + exp(-x))."""
    return 1.0 / (1.0 + math.exp(-x))


@compiled
def dot(left: Matrix, u: int, right: Matrix, i: int) -> float:
    """left[u] . right[i]."""
    total = 0.0
    for j in range(left.shape[1]):
        total += left[u, j] * right[i, j]
    return total


@compiled
def add_product_slopes(
    slope: float, left: Matrix, u: int, right: Matrix, i: int, by_left: Matrix, by_right: Matrix
) -> None:
    """Pass a slope by left[u] . right[i] on to the two."""
    for j in range(left.shape[1]):
        by_left[u, j] += slope * right[i, j]
        by_right[i, j] += slope * left[u, j]


@compiled
def interval(lower: float, upper: float) -> tuple[float, float, float]:
    """The logarithm of P between two cut points, and its slopes by them, P taken from above in the upper half for its digits."""
    up_to_lower, above_lower = both_ways(lower)
    up_to_upper, above_upper = both_ways(upper)
    chance = up_to_upper - up_to_lower if lower + upper <= 0 else above_lower - above_upper
    return math.log(chance), -up_to_lower * above_lower / chance, up_to_upper * above_upper / chance


@compiled
def add_ratings(
    u: int, log: LevelLog, users: Users, items: Items, known: Exponentials, by: tuple[Users, Items]
) -> float:
    """The sum of log P_y over a user's ratings."""
    starts, item, levels = log
    user_factors, item_factors, item_offset, cuts = (
        users.factors,
        items.factors,
        items.offset,
        items.cuts,
    )
    own_offset, own_precision, item_precision = (
        users.offset[u],
        known.user_precision[u],
        known.item_precision,
    )
    by_user_factors, by_item_factors, by_item_offset, by_item_noise = (
        by[0].factors,
        by[1].factors,
        by[1].offset,
        by[1].noise,
    )
    by_cuts, by_own_offset, by_own_noise, total = by[1].cuts, 0.0, 0.0, 0.0
    for cell in range(starts[u], starts[u + 1]):
        i, level = int(item[cell]), int(levels[cell])
        precision = own_precision * item_precision[i]
        score = dot(user_factors, u, item_factors, i) + own_offset + item_offset[i]
        lower = (cuts[i, level - 1] - score) * precision if level > 0 else -np.inf
        upper = (cuts[i, level] - score) * precision if level < cuts.shape[1] else np.inf
        value, by_lower, by_upper = interval(lower, upper)
        by_noise = 0.0
        if level > 0:
            by_cuts[i, level - 1] += by_lower * precision
            by_noise -= by_lower * lower
        if level < cuts.shape[1]:
            by_cuts[i, level] += by_upper * precision
            by_noise -= by_upper * upper
        by_score = -(by_lower + by_upper) * precision
        total += value
        by_own_offset += by_score
        by_own_noise += by_noise
        by_item_offset[i] += by_score
        by_item_noise[i] += by_noise
        add_product_slopes(
            by_score, user_factors, u, item_factors, i, by_user_factors, by_item_factors
        )
    by[0].offset[u] += by_own_offset
    by[0].noise[u] += by_own_noise
    return total


@compiled
def add_choices(
    u: int, log: LevelLog, users: Users, items: Items, by: tuple[Users, Items]
) -> float:
    """The sum of log sigma(eta_y) over a user's ratings."""
    starts, item, levels = log
    user_exposure, item_exposure, popularity = users.exposure, items.exposure, items.popularity
    user_effect, item_effect, activity = users.effect, items.effect, users.activity[u]
    by_user_exposure, by_item_exposure, by_popularity = (
        by[0].exposure,
        by[1].exposure,
        by[1].popularity,
    )
    by_user_effect, by_item_effect, by_activity, total = by[0].effect, by[1].effect, 0.0, 0.0
    for cell in range(starts[u], starts[u + 1]):
        i, level = int(item[cell]), int(levels[cell])
        shared = activity + popularity[i] + dot(user_exposure, u, item_exposure, i)
        chance, slope = both_ways(shared + user_effect[u, level] + item_effect[i, level])
        total += math.log(chance)
        by_activity += slope
        by_popularity[i] += slope
        by_user_effect[u, level] += slope
        by_item_effect[i, level] += slope
        add_product_slopes(
            slope, user_exposure, u, item_exposure, i, by_user_exposure, by_item_exposure
        )
    by[0].activity[u] += by_activity
    return total


@compiled
def sum_out(
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
    """One cell's m; ``x``, and the slopes of m by it and by eta, are filled."""
    below, m = 0.0, 0.0
    stays = 1.0 / (1.0 + odds * user_odds[u, 0] * item_odds[i, 0])
    for k in range(x.size):
        x[k] = (cuts[i, k] - score) * precision
        up_to = sigmoid(x[k])
        share = (up_to - below) * stays
        next_stays = 1.0 / (1.0 + odds * user_odds[u, k + 1] * item_odds[i, k + 1])
        by_x[k] = up_to * (1.0 - up_to) * (stays - next_stays)
        by_eta[k] = share * (stays - 1.0)
        m += share
        below, stays = up_to, next_stays
    share = (1.0 - below) * stays
    by_eta[x.size] = share * (stays - 1.0)
    return float(m + share)


@compiled
def add_unlogged(
    u: int,
    log: LevelLog,
    draws: Draws,
    users: Users,
    items: Items,
    known: Exponentials,
    by: tuple[Users, Items],
) -> float:
    """The sum of b log m over those of a user's unlogged cells that are taken."""
    starts, item, _ = log
    first, end, n_drawn, place = starts[u], starts[u + 1], draws.n_drawn[u], draws.place[u]
    user_factors, item_factors, item_offset, cuts = (
        users.factors,
        items.factors,
        items.offset,
        items.cuts,
    )
    user_exposure, item_exposure, popularity = users.exposure, items.exposure, items.popularity
    own_offset, own_precision, item_precision = (
        users.offset[u],
        known.user_precision[u],
        known.item_precision,
    )
    activity, user_odds, item_odds = users.activity[u], known.user_odds, known.item_odds
    by_user_factors, by_item_factors, by_item_offset, by_item_noise = (
        by[0].factors,
        by[1].factors,
        by[1].offset,
        by[1].noise,
    )
    by_user_exposure, by_item_exposure, by_popularity = (
        by[0].exposure,
        by[1].exposure,
        by[1].popularity,
    )
    by_user_effect, by_item_effect, by_cuts = by[0].effect, by[1].effect, by[1].cuts
    by_own_offset, by_own_noise, by_activity, total = 0.0, 0.0, 0.0, 0.0
    n_cuts, n_unlogged, cell = cuts.shape[1], item_offset.size - (end - first), first
    x, by_x, by_eta = np.empty(n_cuts), np.empty(n_cuts), np.empty(n_cuts + 1)
    step = n_unlogged / n_drawn
    for k in range(n_drawn):
        nth = min(int((k + place) * step), n_unlogged - 1)
        while cell < end and item[cell] - (cell - first) <= nth:
            cell += 1
        i = nth + cell - first
        precision = own_precision * item_precision[i]
        score = dot(user_factors, u, item_factors, i) + own_offset + item_offset[i]
        odds = math.exp(activity + popularity[i] + dot(user_exposure, u, item_exposure, i))
        m = sum_out(u, i, score, precision, odds, cuts, user_odds, item_odds, x, by_x, by_eta)
        total += math.log(m)
        scale, by_score, by_noise, shared = step / m, 0.0, 0.0, 0.0
        for j in range(n_cuts):
            slope = scale * by_x[j]
            by_noise -= slope * x[j]
            by_score -= slope * precision
            by_cuts[i, j] += slope * precision
        for r in range(n_cuts + 1):
            slope = scale * by_eta[r]
            shared += slope
            by_user_effect[u, r] += slope
            by_item_effect[i, r] += slope
        by_own_offset += by_score
        by_own_noise += by_noise
        by_activity += shared
        by_item_offset[i] += by_score
        by_item_noise[i] += by_noise
        by_popularity[i] += shared
        add_product_slopes(
            by_score, user_factors, u, item_factors, i, by_user_factors, by_item_factors
        )
        add_product_slopes(
            shared, user_exposure, u, item_exposure, i, by_user_exposure, by_item_exposure
        )
    by[0].offset[u] += by_own_offset
    by[0].noise[u] += by_own_noise
    by[0].activity[u] += by_activity
    return float(step * total)


@compiled
def add_likelihood(
    rows: tuple[int, int],
    log: LevelLog,
    draws: Draws,
    users: Users,
    items: Items,
    known: Exponentials,
    selects: bool,
    by: tuple[Users, Items],
) -> float:
    """The log likelihood of users ``rows[0]`` to ``rows[1]``, of ratings alone without ``selects``; slopes go to ``by``."""
    total = 0.0
    for u in range(rows[0], rows[1]):
        total += add_ratings(u, log, users, items, known, by)
        if selects:
            total += add_choices(u, log, users, items, by)
            if draws.n_drawn[u] > 0:
                total += add_unlogged(u, log, draws, users, items, known, by)
    return total


@compiled
def fill_distribution(
    user: IntVector,
    item: IntVector,
    users: Users,
    items: Items,
    known: Exponentials,
    selects: bool,
    shares: Matrix,
) -> None:
    """P_r of each pair; with ``selects`` P_r sigma(-eta_r) over its sum, as of a cell that is not logged."""
    user_factors, item_factors, user_offset, item_offset = (
        users.factors,
        items.factors,
        users.offset,
        items.offset,
    )
    user_exposure, item_exposure, activity, popularity = (
        users.exposure,
        items.exposure,
        users.activity,
        items.popularity,
    )
    user_precision, item_precision, user_odds, item_odds = known
    cuts, n_cuts = items.cuts, items.cuts.shape[1]
    for row in range(user.size):
        u, i = int(user[row]), int(item[row])
        precision = user_precision[u] * item_precision[i]
        score = dot(user_factors, u, item_factors, i) + user_offset[u] + item_offset[i]
        odds = (
            math.exp(activity[u] + popularity[i] + dot(user_exposure, u, item_exposure, i))
            if selects
            else 0.0
        )
        below, total = 0.0, 0.0
        for r in range(n_cuts + 1):
            up_to = sigmoid((cuts[i, r] - score) * precision) if r < n_cuts else 1.0
            shares[row, r] = (up_to - below) / (1.0 + odds * user_odds[u, r] * item_odds[i, r])
            total += shares[row, r]
            below = up_to
        for r in range(n_cuts + 1):
            shares[row, r] /= total
