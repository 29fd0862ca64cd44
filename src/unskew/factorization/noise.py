"""How much of a log is noise: the penalties of offsets and factors that follow from its moments."""

from __future__ import annotations

import numpy as np

from unskew.data.ratings import Ratings
from unskew.data.weights import weighted_mean
from unskew.types import IntVector, RandomState, Vector

MIN_SHARE = 1e-4
"""The smallest variance of offsets, as a share of that of the noise. It leaves no offsets."""
MIN_NOISE = 0.05
"""The smallest variance of the noise, as a share of the variance of the ratings."""
OFFSET_SWEEPS = 10


def find_offset_ridges(log: Ratings, weight: Vector) -> tuple[float, float]:
    """The ridges p_a and p_b with the least expected error of user and item offsets.

        p_a = (1 / t) sum(w^2 r^2) / sum(w)

    t is the variance of the user offsets, and r the residuals that offsets leave: those of a first
    fit, for which r^2 is its mean. With equal weights an offset from k ratings is multiplied by
    k / (k + var(r) / t). Weights stay with their residuals: 1 / P often depends on the rating.
    """
    residual = log.rating - weighted_mean(log.rating, weight)
    total = weighted_mean(np.square(residual), weight)
    if not total > 0:
        return 1.0, 1.0
    shared = [
        min(max(shared_variance(code, size, residual, weight), 0.0), total)
        for code, size in ((log.user, log.n_users), (log.item, log.n_items))
    ]
    rest = max(total - sum(shared), MIN_NOISE * total)
    variances = [max(variance, MIN_SHARE * rest) for variance in shared]
    first = [rest * float(weight @ weight / weight.sum()) / variance for variance in variances]
    left = log.rating - fit_offsets(log, weight, *first)
    noise = float(np.square(weight * left).sum() / weight.sum())
    noise = max(noise, MIN_SHARE * total)
    return noise / variances[0], noise / variances[1]


def shared_variance(code: IntVector, n_codes: int, residual: Vector, weight: Vector) -> float:
    """The variance of what ratings with the same code share, by products of pairs of them.

        t = sum over codes of k [(sum w r)^2 - sum w^2 r^2]  /  sum of k [(sum w)^2 - sum w^2]

    Two ratings of one user share nothing but the user, so r r' has the mean t for any weights. With
    k = (sum w)^(-1/2), users with many ratings count more, but do not decide alone.
    """
    total = _add_by(code, weight, n_codes)
    products = np.square(_add_by(code, weight * residual, n_codes))
    products -= _add_by(code, np.square(weight * residual), n_codes)
    pairs = np.square(total) - _add_by(code, np.square(weight), n_codes)
    scale = np.sqrt(np.where(total > 0, total, 1.0))
    n_pairs = float((pairs / scale).sum())
    return float((products / scale).sum()) / n_pairs if n_pairs > 0 else 0.0


def fit_offsets(
    log: Ratings,
    weight: Vector,
    user_ridge: float,
    item_ridge: float,
    *,
    predicts: Ratings | None = None,
) -> Vector:
    """a_u + b_i + c for each rating of ``predicts``, or of the log, after a few exact sweeps."""
    user_total = _add_by(log.user, weight, log.n_users) + user_ridge
    item_total = _add_by(log.item, weight, log.n_items) + item_ridge
    mean, by_user = weighted_mean(log.rating, weight), np.zeros(log.n_users)
    by_item = np.zeros(log.n_items)
    for _ in range(OFFSET_SWEEPS):
        rest = weight * (log.rating - mean - by_user[log.user])
        by_item = _add_by(log.item, rest, log.n_items) / item_total
        rest = weight * (log.rating - mean - by_item[log.item])
        by_user = _add_by(log.user, rest, log.n_users) / user_total
        mean = weighted_mean(log.rating - by_user[log.user] - by_item[log.item], weight)
    cells = predicts or log
    return mean + by_user[cells.user] + by_item[cells.item]


def find_noise_edge(log: Ratings, weighted_gradient: Vector, *, random_state: RandomState) -> float:
    """The largest singular value of the users x items matrix of w (Y - F), with random signs.

    With this ridge the factors of such noise are zero: V = W = 0 is the minimum exactly if the
    ridge is at least the largest singular value.
    """
    from scipy import sparse
    from scipy.sparse.linalg import svds

    rng = np.random.default_rng(random_state)
    with_signs = weighted_gradient * rng.choice([-1.0, 1.0], weighted_gradient.size)
    shape = log.n_users, log.n_items
    matrix = sparse.csr_array((with_signs, (log.user, log.item)), shape=shape)
    if min(shape) < 3 or not with_signs.any():
        return float(np.linalg.norm(matrix.toarray(), 2)) if min(shape) < 3 else 0.0
    start = rng.standard_normal(min(shape))
    values = svds(matrix, k=1, tol=1e-2, v0=start, return_singular_vectors=False)
    return float(values[0])


def _add_by(code: IntVector, values: Vector, n_codes: int) -> Vector:
    return np.bincount(code, weights=values, minlength=n_codes).astype(np.float64)
