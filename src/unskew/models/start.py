"""Where the search begins."""

from __future__ import annotations

import numpy as np

from unskew.data.ratings import Ratings
from unskew.models.parameters import Parameters
from unskew.models.weights import weighted_mean
from unskew.types import Vector


def small_random(log: Ratings, propensity: Vector, *, n_factors: int, has_offsets: bool, random_state: int) -> Parameters:
    """Factors of sd 0.1 / sqrt(d) (all zero is a saddle), offsets 0, constant the weighted mean rating."""
    rng = np.random.default_rng(random_state)
    scale = 0.1 / np.sqrt(max(n_factors, 1))
    user, item = (rng.normal(0.0, scale, (size, n_factors)) for size in (log.n_users, log.n_items))
    mean = weighted_mean(log.rating, propensity)
    if not has_offsets and n_factors:
        user[:, 0] = item[:, 0] = np.sqrt(abs(mean))
        item[:, 0] *= np.sign(mean)
    return Parameters(user, item, np.zeros(log.n_users), np.zeros(log.n_items), mean if has_offsets else 0.0)


def filled_svd(log: Ratings, propensity: Vector, *, n_factors: int, has_offsets: bool, random_state: int) -> Parameters:  # noqa: ARG001
    """As in the paper's runs: singular vectors of the matrix with missing cells filled by the mean rating, by a sparse operator.

    The filled matrix is a sparse part plus a constant, which is never built. Users get singular vectors, items
    vectors times values.
    """
    from scipy import sparse
    from scipy.sparse.linalg import LinearOperator, svds

    mean = float(log.rating.mean())
    shape = (log.n_users, log.n_items)
    above = sparse.csr_array((log.rating - mean, (log.user, log.item)), shape=shape)
    rank = min(n_factors, min(shape) - 1)
    filled = LinearOperator(
        shape,
        matvec=lambda x: above @ x + mean * x.sum(),
        rmatvec=lambda x: above.T @ x + mean * x.sum(),
        dtype=np.float64,
    )
    start = np.random.default_rng(random_state).standard_normal(min(shape))
    left, values, right = svds(filled, k=max(rank, 1), v0=start)
    largest_first = np.argsort(values)[::-1][:rank]
    user, item = np.zeros((log.n_users, n_factors)), np.zeros((log.n_items, n_factors))
    user[:, :rank], item[:, :rank] = left[:, largest_first], (right[largest_first] * values[largest_first, None]).T
    return Parameters(user, item, np.zeros(log.n_users), np.zeros(log.n_items), mean if has_offsets else 0.0)
