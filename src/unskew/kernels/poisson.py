"""Poisson factorisation: expected counts of the observed cells, and moments of gamma factors.

With L_ui = sum_k s_uk t_ik of the geometric means s and t, an observed cell has the expected count
s_uk t_ik r_ui in factor k, where r = 1 / (1 - exp(-L)) if the cell stands for a count of at least
one, and r = 1 / L if it stands for a count of exactly one.
"""

from __future__ import annotations

import math

import numpy as np

from unskew.kernels.compiling import compiled
from unskew.kernels.vectors import add_scaled, dot
from unskew.types import Floats, IntVector, Matrix, RowStarts, Vector

MIN_ARGUMENT = 9.0
"""From here on the asymptotic series of log gamma and digamma have full precision."""
LARGE_LEVEL = 100.0
"""From here on log(e^L - 1) = L."""
LOWEST, HIGHEST = 1e-200, 1e200
"""Logarithms of products are taken before the products leave this range."""


@compiled
def log_gamma_and_digamma(x: float) -> tuple[float, float]:
    """log Gamma(x) and its derivative, for x > 0, by recurrence and asymptotic series."""
    product, reciprocals = 1.0, 0.0
    while x < MIN_ARGUMENT:
        product *= x
        reciprocals += 1.0 / x
        x += 1.0
    log_x, inverse = math.log(x), 1.0 / x
    square = inverse * inverse
    log_gamma = (x - 0.5) * log_x - x + 0.9189385332046727 - math.log(product)
    log_gamma += inverse * (
        1 / 12 - square * (1 / 360 - square * (1 / 1260 - square * (1 / 1680 - square / 1188)))
    )
    digamma = log_x - 0.5 * inverse - reciprocals
    digamma -= square * (
        1 / 12 - square * (1 / 120 - square * (1 / 252 - square * (1 / 240 - square * (1 / 132))))
    )
    return log_gamma, digamma


@compiled
def fill_geometric_means(
    rows: tuple[int, int],
    shapes: Matrix,
    rates: Vector,
    row_count: Vector,
    prior_shape: float,
    prior_rate: float,
    means: Floats,
) -> float:
    """exp(E log x) = exp(digamma(shape)) / rate of some rows, and their divergence from the prior.

    ``rates`` has one number for each column. The divergence of a row counts ``row_count`` times.
    """
    log_gamma_of_prior, _ = log_gamma_and_digamma(prior_shape)
    log_ratio = np.log(rates / prior_rate)
    total = 0.0
    for row in range(rows[0], rows[1]):
        divergence = 0.0
        for k in range(rates.size):
            shape = shapes[row, k]
            log_gamma, digamma = log_gamma_and_digamma(shape)
            means[row, k] = math.exp(digamma) / rates[k]
            divergence += (shape - prior_shape) * digamma - log_gamma + log_gamma_of_prior
            divergence += prior_shape * log_ratio[k] + shape * (prior_rate / rates[k] - 1.0)
        total += row_count[row] * divergence
    return total


@compiled
def add_expected_counts(
    rows: tuple[int, int],
    starts: RowStarts,
    item: IntVector,
    user_means: Floats,
    item_means: Floats,
    is_bernoulli: bool,
    by_user: Floats,
    by_item: Floats,
) -> float:
    """Add r t_i to ``by_user`` and r s_u to ``by_item`` for the cells of some users.

    Times s_u and t_i these are sums of expected counts. All rows are padded with zeros. Returns
    the log evidence of the cells: the sum of log(e^L - 1), or of log L. Logarithms are taken of
    products of many cells.
    """
    evidence, product = 0.0, 1.0
    for user in range(rows[0], rows[1]):
        for cell in range(starts[user], starts[user + 1]):
            i = np.int64(item[cell])
            level: float = dot(user_means, user, item_means, i)
            likelihood, ratio = level, 1.0 / level
            if is_bernoulli and level > LARGE_LEVEL:
                evidence += level
                likelihood = ratio = 1.0
            elif is_bernoulli:
                likelihood = math.expm1(level)
                ratio = (1.0 + likelihood) / likelihood
            product *= likelihood
            if not LOWEST < product < HIGHEST:
                evidence += math.log(product)
                product = 1.0
            add_scaled(item_means, i, ratio, by_user, user, 0)
            add_scaled(user_means, user, ratio, by_item, i, 0)
    return evidence + math.log(product)
