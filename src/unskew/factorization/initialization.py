"""The factors at which a solver starts."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from unskew.data.factors import Factors
from unskew.data.ratings import Ratings
from unskew.errors import UsageError
from unskew.memory import require_memory
from unskew.types import RandomState

FACTOR_COPIES = 2
"""A sweep has the old and the new factors of a side."""


def small_random(
    shape: tuple[int, int],
    mean: float = 0.0,
    *,
    n_factors: int,
    has_offsets: bool = True,
    random_state: RandomState,
    dtype: npt.DTypeLike = np.float64,
    with_users: bool = True,
) -> Factors:
    """Random factors of standard deviation 0.1 / sqrt(d), because zero is a saddle point.

    Offsets are 0 and c is ``mean``. Without offsets the first factor of both sides starts at
    sqrt(mean), so that the products start at ``mean``. A solver that solves the users first needs
    no users: then ``with_users=False`` gives zeros that take no memory. Items are drawn first, so
    they are the same either way.
    """
    rng, (n_users, n_items) = np.random.default_rng(random_state), shape
    require_memory(
        FACTOR_COPIES * sum(shape) * n_factors * np.dtype(dtype).itemsize,
        f"a fit of {n_users:,} users and {n_items:,} items with {n_factors:,} factors",
        parameter="n_factors",
        remedy="Use fewer factors, or dtype='float32'.",
    )
    scale = 0.1 / np.sqrt(max(n_factors, 1))
    starts_at_mean = bool(mean and not has_offsets and n_factors)
    item = rng.normal(0.0, scale, (n_items, n_factors)).astype(dtype, copy=False)
    user = np.broadcast_to(np.zeros((), dtype), (n_users, n_factors))
    if with_users:
        user = rng.normal(0.0, scale, (n_users, n_factors)).astype(dtype, copy=False)
    if starts_at_mean:
        item[:, 0] = np.sign(mean) * np.sqrt(abs(mean))
    if starts_at_mean and with_users:
        user[:, 0] = np.sqrt(abs(mean))
    return Factors(
        user, item, np.zeros(n_users, dtype), np.zeros(n_items, dtype), mean if has_offsets else 0.0
    )


def filled_svd(
    log: Ratings, *, n_factors: int, has_offsets: bool, random_state: RandomState
) -> Factors:
    """Singular vectors of the matrix whose missing cells hold the mean rating, as in the paper.

    That matrix is a sparse matrix plus a constant, and is never built. Users get the singular
    vectors; items get the vectors times the singular values.
    """
    from scipy import sparse
    from scipy.sparse.linalg import LinearOperator, svds

    mean = float(log.rating.mean())
    global_offset = mean if has_offsets else 0.0
    shape = (log.n_users, log.n_items)
    deviation = sparse.csr_array((log.rating - mean, (log.user, log.item)), shape=shape)
    if min(shape) == 1:
        user, item = np.zeros((shape[0], n_factors)), np.zeros((shape[1], n_factors))
        left, values, right = np.linalg.svd(deviation.toarray() + mean, full_matrices=False)
        user[:, :1], item[:, :1] = left, (right * values[:, None]).T
        return Factors(user, item, global_offset=global_offset)
    rank = min(n_factors, min(shape) - 1)
    filled = LinearOperator(
        shape,
        matvec=lambda x: deviation @ x + mean * x.sum(),
        rmatvec=lambda x: deviation.T @ x + mean * x.sum(),
        dtype=np.float64,
    )
    start = np.random.default_rng(random_state).standard_normal(min(shape))
    left, values, right = svds(filled, k=rank, v0=start)
    largest_first = np.argsort(values)[::-1][:rank]
    user, item = np.zeros((log.n_users, n_factors)), np.zeros((log.n_items, n_factors))
    user[:, :rank] = left[:, largest_first]
    item[:, :rank] = (right[largest_first] * values[largest_first, None]).T
    return Factors(user, item, global_offset=global_offset)


def check_initial_factors(initial_factors: object, shape: tuple[int, int, int]) -> None:
    """Raise an error unless the start is None, or ``Factors`` of this shape (users, items, d)."""
    if initial_factors is None:
        return
    if not isinstance(initial_factors, Factors):
        is_model = hasattr(initial_factors, "factors_")
        raise UsageError(
            f"`initial_factors` must be Factors; got {type(initial_factors).__name__}.",
            parameter="initial_factors",
            value=initial_factors,
            remedy="Pass `initial_factors=model.factors_`."
            if is_model
            else "Pass the factors_ of a fitted factorisation.",
        )
    start_shape = initial_factors.n_users, initial_factors.n_items, initial_factors.n_factors
    if start_shape != shape:
        raise UsageError(
            f"`initial_factors` has (users, items, factors) {start_shape}, but the fit has "
            f"{shape}.",
            parameter="initial_factors",
            value=start_shape,
            remedy="Start from a model of the same users, items and number of factors.",
        )
    if not all(np.isfinite(array).all() for array in initial_factors.arrays):
        raise UsageError(
            "`initial_factors` has numbers that are not finite.",
            parameter="initial_factors",
            remedy="Start from the factors of a fit that converged.",
        )
