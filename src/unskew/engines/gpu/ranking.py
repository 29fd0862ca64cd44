"""Items ranked on a device: blocks of users are scored by one matrix product, and sorted there."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import torch

from unskew.data.factors import Factors
from unskew.engines.gpu.cells import find_device, to_device, to_host
from unskew.errors import BadPredictionError
from unskew.ranking.positions import Positions
from unskew.types import IntVector, RowStarts, Scores

SCORES_ON_DEVICE, SCORES_ON_HOST = 1 << 27, 1 << 22
"""Scores of a block of users. Sorting takes about five times their memory."""


def compute_positions_on_device(
    device_name: str | None, factors: Factors, user: IntVector, item: IntVector
) -> Positions:
    """Exact positions of logged cells.

    The scores of each user are sorted once, and each cell is found among them by bisection.
    """
    device = find_device(device_name)
    user_rows, item_columns = _copy_factors(factors, device)
    codes, columns = to_device(user, device), to_device(item, device)
    order = torch.argsort(codes, stable=True)
    users, lengths = torch.unique_consecutive(codes[order], return_counts=True)
    starts = [0, *torch.cumsum(lengths, 0).tolist()]
    counts = torch.empty((2, user.size), dtype=torch.int32, device=device)
    for rows in _blocks(users.numel(), factors.n_items, device):
        cells = order[starts[rows.start] : starts[rows.stop]]
        scores = user_rows[users[rows]] @ item_columns
        row = torch.repeat_interleave(torch.arange(scores.shape[0], device=device), lengths[rows])
        score = scores[row, columns[cells]]
        ascending = scores.sort(dim=1).values
        _refuse_nan(ascending[:, -1].isnan(), users[rows])  # NaN is sorted to the end
        n_below = _count_below(ascending, row, score, with_equal=False)
        n_up_to = _count_below(ascending, row, score, with_equal=True)
        counts[0, cells] = (factors.n_items - n_up_to).int()
        counts[1, cells] = (n_up_to - n_below).int()
    above, equal = to_host(counts)
    return Positions(above, equal)


def best_items_on_device(
    device_name: str | None,
    factors: Factors,
    n_best: int,
    excluded_starts: RowStarts,
    excluded_items: IntVector,
) -> tuple[npt.NDArray[np.integer], Scores]:
    """The best items of every user and their scores, as ``ranking.positions.best_items``.

    ``excluded_items[excluded_starts[u]:excluded_starts[u + 1]]`` of user u come last.
    """
    device = find_device(device_name)
    user_rows, item_columns = _copy_factors(factors, device)
    items = np.empty((factors.n_users, n_best), np.int64)
    scores = np.empty((factors.n_users, n_best))
    for rows in _blocks(factors.n_users, factors.n_items, device):
        block = user_rows[rows] @ item_columns
        _refuse_nan(block.isnan().any(1), torch.arange(rows.start, rows.stop))
        block_starts = excluded_starts[rows.start : rows.stop + 1]
        row = np.repeat(np.arange(block_starts.size - 1), np.diff(block_starts))
        column = excluded_items[block_starts[0] : block_starts[-1]].astype(np.int64)
        block[to_device(row, device), to_device(column, device)] = -torch.inf
        best = _best_columns(block, n_best)
        items[rows], scores[rows] = to_host(best), to_host(block.gather(1, best))
    return items, scores


def _copy_factors(factors: Factors, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """Two matrices on the device whose product is the scores of all users and items."""
    user_rows, item_columns = factors.as_product()
    return to_device(user_rows, device), to_device(item_columns, device)


def _blocks(n_users: int, n_items: int, device: torch.device) -> Iterator[slice]:
    n_scores = SCORES_ON_HOST if device.type == "cpu" else SCORES_ON_DEVICE
    size = max(1, n_scores // max(1, n_items))
    return (slice(first, min(first + size, n_users)) for first in range(0, n_users, size))


def _refuse_nan(has_nan: torch.Tensor, users: torch.Tensor) -> None:
    """Raise an error that names the first user whose scores contain NaN."""
    rows = has_nan.nonzero()
    if rows.numel():
        code = int(users[int(rows[0])])
        raise BadPredictionError(
            f"a score of user code {code} is NaN, so it cannot be ranked.",
            where=f"user code {code}",
            remedy="Fit the model again with a stronger penalty.",
        )


def _count_below(
    ascending: torch.Tensor, row: torch.Tensor, value: torch.Tensor, *, with_equal: bool
) -> torch.Tensor:
    """How many numbers of its row are below each value, or equal to it: bisection, all at once."""
    n = ascending.shape[1]
    low, high = torch.zeros_like(row), torch.full_like(row, n)
    for _ in range(n.bit_length()):
        middle = (low + high) // 2
        number = ascending[row, middle.clamp(max=n - 1)]
        is_below = ((number <= value) if with_equal else (number < value)) & (low < high)
        low, high = torch.where(is_below, middle + 1, low), torch.where(is_below, high, middle)
    return low


def _best_columns(scores: torch.Tensor, n_best: int) -> torch.Tensor:
    """The columns of the largest scores of each row, best first, as the local engine has them.

    Equal scores are in the order of the columns.
    """
    smallest = scores.topk(n_best, dim=1).values[:, -1:]
    is_above, is_tied = scores > smallest, scores == smallest
    n_tied = n_best - is_above.sum(1, keepdim=True)
    is_best = is_above | (is_tied & (is_tied.cumsum(1, dtype=torch.int32) <= n_tied))
    columns = is_best.nonzero()[:, 1].reshape(-1, n_best)
    order = scores.gather(1, columns).argsort(dim=1, descending=True, stable=True)
    return columns.gather(1, order)
