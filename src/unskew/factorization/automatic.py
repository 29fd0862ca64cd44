"""Penalties chosen from the log: what ``l2="auto"`` stands for."""

from __future__ import annotations

import numpy as np

from unskew.data.ratings import Ratings
from unskew.data.weights import weighted_mean
from unskew.types import IntVector, RandomState, Vector

MAX_NOISE_RATIO = 1e4
"""The largest noise variance, as a multiple of the variance of offsets. It leaves no offsets."""


def choose_offset_ridges(log: Ratings, weight: Vector) -> tuple[float, float]:
    """The ridges p_a and p_b with the least expected error of user and item offsets.

        p_a = (s / t) sum(w^2) / sum(w)

    t is the variance of the user offsets and s that of everything else. An offset estimated from
    k ratings of equal weight is then multiplied by k / (k + s / t).
    """
    residual = log.rating - weighted_mean(log.rating, weight)
    total = weighted_mean(np.square(residual), weight)
    by_user = shared_variance(log.user, log.n_users, residual, weight)
    by_item = shared_variance(log.item, log.n_items, residual, weight)
    rest = max(total - max(by_user, 0.0) - max(by_item, 0.0), total / MAX_NOISE_RATIO)
    scale = float(np.square(weight).sum() / weight.sum())
    user_ridge, item_ridge = (
        scale * rest / max(shared, rest / MAX_NOISE_RATIO) if rest > 0 else scale
        for shared in (by_user, by_item)
    )
    return user_ridge, item_ridge


def shared_variance(code: IntVector, n_codes: int, residual: Vector, weight: Vector) -> float:
    """The variance of what ratings with the same code share, by products of pairs of them.

        t = sum over codes of [(sum w r)^2 - sum w^2 r^2] / sum w,  over the same with r = 1

    Two ratings of one user share nothing but the user, so r r' has the mean t for any weights.
    """
    def add(values: Vector) -> Vector:
        return np.bincount(code, weights=values, minlength=n_codes).astype(np.float64)

    total = add(weight)
    products = np.square(add(weight * residual)) - add(np.square(weight * residual))
    pairs = np.square(total) - add(np.square(weight))
    is_used = total > 0
    n_pairs = float((pairs[is_used] / total[is_used]).sum())
    if n_pairs <= 0:
        return 0.0
    return float((products[is_used] / total[is_used]).sum()) / n_pairs


def find_noise_edge(log: Ratings, weighted_residual: Vector, *, random_state: RandomState) -> float:
    """The largest singular value of the users x items matrix of w (Y - F), with random signs.

    With this ridge the factors of such noise are zero: V = W = 0 is the minimum exactly if the
    ridge is at least the largest singular value.
    """
    from scipy import sparse
    from scipy.sparse.linalg import svds

    rng = np.random.default_rng(random_state)
    signed = weighted_residual * rng.choice([-1.0, 1.0], weighted_residual.size)
    shape = log.n_users, log.n_items
    matrix = sparse.csr_array((signed, (log.user, log.item)), shape=shape)
    if min(shape) < 3:
        return float(np.linalg.norm(matrix.toarray(), 2))
    start = rng.standard_normal(min(shape))
    values = svds(matrix, k=1, tol=1e-2, v0=start, return_singular_vectors=False)
    return float(values[0])
