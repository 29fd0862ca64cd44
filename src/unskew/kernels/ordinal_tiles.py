"""The log likelihood of unobserved cells of a tile, users x items, in single precision.

The formula is that of :mod:`unskew.kernels.ordinal`: an unobserved cell adds log m. A cell of a
sample stands for b = 1 / share cells: gradients are multiplied by b here, and the sum of log m by
:mod:`unskew.latent.ordinal_tiles`. Scores and log odds of a tile come as matrices, so the loops run
over neighbouring items of one user, and the compiler turns them into vector code.

A sample of cells comes as such tiles. Its error is far above that of single precision, and every
sum of cells is in double precision or a matrix product. The probability of being observed is
computed as odds / (1 + odds), and m as 1 minus the mean of these where it is above a half. Both
then keep their relative precision where few cells are observed.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from unskew.kernels.compiling import compiled
from unskew.kernels.ordinal_rows import ItemRows, LevelsByUser, UserRows
from unskew.types import IntVector, Singles

CHUNK = 256
"""Items whose numbers stay in the cache while all users of a tile are computed."""
USERS_PER_LOG = 4
"""Users whose values of m are multiplied before their logarithm is taken."""
ZERO, HALF, ONE = np.float32(0), np.float32(0.5), np.float32(1)
LARGEST = np.float32(80.0)
"""exp(x) is computed as exp(-80) below -80 and as exp(80) above 80."""
SMALLEST = np.float32(1e-30)
"""m is at least this."""
SHIFT = np.float32(1.5 * 2.0**23)
PER_LOG_2 = np.float32(1.4426950408889634)
LOG_2_HIGH, LOG_2_LOW = np.float32(0.693359375), np.float32(-2.12194440e-4)
"""Their sum is log 2; the product of the first one and n is exact."""
EXPONENT_OF_ONE = np.int32(127)
MANTISSA_BITS = np.int32(23)
C3, C4, C5, C6 = np.float32(1 / 6), np.float32(1 / 24), np.float32(1 / 120), np.float32(1 / 720)


class TileItems(NamedTuple):
    """Numbers of the items of a tile; a gradient by ``cuts`` and ``odds`` has the same form."""

    precision: Singles
    """exp(-noise)."""
    cuts: Singles
    """(levels - 1) x items: cut points times ``precision``."""
    odds: Singles
    """Levels x items: exp(effect)."""


class TileUsers(NamedTuple):
    """Numbers of the users of a tile."""

    first: int
    """The number of the first user."""
    precision: Singles
    odds: Singles
    """Users x levels."""


class TileGradient(NamedTuple):
    """What the cells of a tile add to the gradient."""

    noise: Singles
    """Users x items: the derivative by the logarithm of the noise. Before, the weight b of every
    cell; :func:`weigh_tile` leaves out observed ones."""
    cuts: Singles
    odds: Singles
    """By the logarithm of the odds of each item and level."""
    user_odds: Singles


@compiled
def exponentiate(x: Singles, n: int, powers: Singles) -> None:
    """x[k] = exp(x[k]) for the first ``n`` numbers, as in :mod:`unskew.kernels.ordinal`."""
    bits = powers.view(np.int32)
    for k in range(n):
        value = min(max(x[k], -LARGEST), LARGEST)
        shifted = value * PER_LOG_2 + SHIFT
        powers[k] = shifted
        whole = shifted - SHIFT
        r = (value - whole * LOG_2_HIGH) - whole * LOG_2_LOW
        x[k] = ONE + r * (ONE + r * (HALF + r * (C3 + r * (C4 + r * (C5 + r * C6)))))
    for k in range(n):
        bits[k] = np.int32(np.int32(bits[k] + EXPONENT_OF_ONE) << MANTISSA_BITS)
    for k in range(n):
        x[k] *= powers[k]


@compiled
def exclude_observed(
    users: TileUsers, log: LevelsByUser, position: npt.NDArray[np.int32], weight: Singles
) -> None:
    """Set the weight of observed cells to 0; ``position`` is the column of an item, or -1."""
    starts, item, _ = log
    for row in range(weight.shape[0]):
        for cell in range(starts[users.first + row], starts[users.first + row + 1]):
            column = position[item[cell]]
            if column >= 0:
                weight[row, column] = ZERO


@compiled
def weigh_tile(
    score: Singles,
    log_odds: Singles,
    users: TileUsers,
    items: TileItems,
    has_effects: bool,
    gradient: TileGradient,
) -> float:
    """The sum of log m over the unobserved cells, not multiplied by b.

    ``score`` and ``log_odds`` (users x items, the latter without value effects) are replaced by the
    derivatives by them. The gradient by the odds is added up only with ``has_effects``.
    """
    n_users, n_items = score.shape
    n_cuts = items.cuts.shape[0]
    user_precision, user_odds = users.precision, users.odds
    item_precision, item_cuts, item_odds = items
    noise, by_cuts, by_odds, by_user_odds = gradient
    width = min(CHUNK, n_items)
    powers, odds = np.empty(width, np.float32), np.empty(width, np.float32)
    m, q, sums = (
        np.empty(width, np.float32),
        np.empty(width, np.float32),
        np.empty(width, np.float32),
    )
    x = np.empty((n_cuts, width), np.float32)
    up_to = np.empty((n_cuts + 2, width), np.float32)
    p_observed = np.empty((n_cuts + 1, width), np.float32)
    by_odds_of_cell = np.empty((n_cuts + 1, width), np.float32)
    product, total = np.ones(width), 0.0
    for first in range(0, n_items, width):
        n = min(width, n_items - first)
        for u in range(n_users):
            s, eta, b = score[u, first:], log_odds[u, first:], noise[u, first:]
            precision, precisions = user_precision[u], item_precision[first:]
            for j in range(n_cuts):
                x_j, s_j, cuts = x[j], up_to[j + 1], item_cuts[j, first:]
                for k in range(n):
                    x_j[k] = precision * (cuts[k] - s[k] * precisions[k])
                    s_j[k] = -x_j[k]
                exponentiate(s_j, n, powers)
                for k in range(n):
                    s_j[k] = ONE / (ONE + s_j[k])
            for k in range(n):
                odds[k] = eta[k]
                m[k] = ZERO
                q[k] = ZERO
                sums[k] = ZERO
                up_to[0, k] = ZERO
                up_to[n_cuts + 1, k] = ONE
            exponentiate(odds, n, powers)
            for r in range(n_cuts + 1):
                below, above, p, by_eta = up_to[r], up_to[r + 1], p_observed[r], by_odds_of_cell[r]
                of_user, of_item = user_odds[u, r], item_odds[r, first:]
                for k in range(n):
                    ratio = odds[k] * (of_user * of_item[k])
                    p_unobserved = ONE / (ONE + ratio)
                    p[k] = ratio * p_unobserved
                    p_r = above[k] - below[k]
                    m[k] += p_r * p_unobserved
                    q[k] += p_r * p[k]
                    by_eta[k] = p_r * p_unobserved * p[k]
                    sums[k] += by_eta[k]
            for k in range(n):
                m[k] = max(m[k], SMALLEST)
                unlikely = np.float64(m[k])
                value = 1.0 - np.float64(q[k]) if unlikely > 0.5 else unlikely
                product[k] *= value if b[k] > ZERO else 1.0
                m[k] = b[k] / m[k]
                eta[k] = -m[k] * sums[k]
                sums[k] = ZERO
                b[k] = ZERO
            if u % USERS_PER_LOG == USERS_PER_LOG - 1 or u == n_users - 1:
                for k in range(n):
                    total += math.log(product[k])
                    product[k] = 1.0
            for j in range(n_cuts):
                x_j, s_j, by_cut = x[j], up_to[j + 1], by_cuts[j, first:]
                p, next_p = p_observed[j], p_observed[j + 1]
                for k in range(n):
                    by_x = m[k] * (s_j[k] * (ONE - s_j[k]) * (next_p[k] - p[k]))
                    b[k] -= by_x * x_j[k]
                    sums[k] += by_x
                    by_cut[k] += precision * by_x
            for k in range(n):
                s[k] = -precision * precisions[k] * sums[k]
            if has_effects:
                for r in range(n_cuts + 1):
                    by_eta, of_item, of_user = by_odds_of_cell[r], by_odds[r, first:], 0.0
                    for k in range(n):
                        by_eta[k] *= -m[k]
                        of_item[k] += by_eta[k]
                    for k in range(n):
                        of_user += by_eta[k]
                    by_user_odds[u, r] += of_user
    return total


@compiled
def add_users(
    first: int,
    by_score: Singles,
    by_log_odds: Singles,
    by_noise: Singles,
    by_odds: Singles,
    by_user: UserRows,
) -> None:
    """Add the gradient of a tile to that of its users.

    The last but one column of both products belongs to the intercept.
    """
    factors, offset, noise, activity, exposure, effect = by_user
    n_factors, n_exposure = by_score.shape[1] - 2, by_log_odds.shape[1] - 2
    for row in range(by_score.shape[0]):
        u = first + row
        for f in range(n_factors):
            factors[u, f] += by_score[row, f]
        for f in range(n_exposure):
            exposure[u, f] += by_log_odds[row, f]
        for r in range(by_odds.shape[1]):
            effect[u, r] += by_odds[row, r]
        offset[u] += by_score[row, n_factors]
        activity[u] += by_log_odds[row, n_exposure]
        noise[u] += by_noise[row]


@compiled
def add_items(
    chosen: IntVector,
    by_score: Singles,
    by_log_odds: Singles,
    items: TileItems,
    tile: TileGradient,
    by_item: ItemRows,
) -> None:
    """Add the gradient of a tile to that of its items.

    The last column of both products belongs to the intercept.
    """
    factors, offset, noise, popularity, exposure, effect, cuts = by_item
    of_cells, of_cuts, of_odds, precision = tile.noise, tile.cuts, tile.odds, items.precision
    n_factors, n_exposure = by_score.shape[1] - 2, by_log_odds.shape[1] - 2
    by_noise = np.zeros(chosen.size)
    for row in range(of_cells.shape[0]):
        for k in range(chosen.size):
            by_noise[k] += of_cells[row, k]
    for k in range(chosen.size):
        i = np.int64(chosen[k])
        for f in range(n_factors):
            factors[i, f] += by_score[k, f]
        for f in range(n_exposure):
            exposure[i, f] += by_log_odds[k, f]
        for j in range(cuts.shape[1]):
            cuts[i, j] += of_cuts[j, k] * precision[k]
        for r in range(effect.shape[1]):
            effect[i, r] += of_odds[r, k]
        offset[i] += by_score[k, n_factors + 1]
        popularity[i] += by_log_odds[k, n_exposure + 1]
        noise[i] += by_noise[k]
