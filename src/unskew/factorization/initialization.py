"""Where the search begins."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from unskew.data.ratings import Ratings
from unskew.factorization.parameters import Parameters


def small_random(
    shape: tuple[int, int],
    mean: float,
    *,
    n_factors: int,
    has_offsets: bool,
    random_state: int,
    dtype: npt.DTypeLike = np.float64,
    with_users: bool = True,
) -> Parameters:
    """Factors of sd 0.1 / sqrt(d) (all zero is a saddle), offsets 0, constant the weighted mean rating.

    Items are drawn first: they are the same for a solver that solves users first and needs none of theirs. Its users are one zero
    that looks like many.
    """
    rng, (n_users, n_items) = np.random.default_rng(random_state), shape
    scale, has_mean = 0.1 / np.sqrt(max(n_factors, 1)), bool(mean and not has_offsets and n_factors)
    item = rng.normal(0.0, scale, (n_items, n_factors)).astype(dtype, copy=False)
    user = np.broadcast_to(np.zeros((), dtype), (n_users, n_factors))
    if with_users:
        user = rng.normal(0.0, scale, (n_users, n_factors)).astype(dtype, copy=False)
    if has_mean:
        item[:, 0] = np.sign(mean) * np.sqrt(abs(mean))
    if has_mean and with_users:
        user[:, 0] = np.sqrt(abs(mean))
    return Parameters(
        user, item, np.zeros(n_users, dtype), np.zeros(n_items, dtype), mean if has_offsets else 0.0
    )


def filled_svd(log: Ratings, *, n_factors: int, has_offsets: bool, random_state: int) -> Parameters:
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
    user[:, :rank], item[:, :rank] = (
        left[:, largest_first],
        (right[largest_first] * values[largest_first, None]).T,
    )
    return Parameters(
        user, item, np.zeros(log.n_users), np.zeros(log.n_items), mean if has_offsets else 0.0
    )
