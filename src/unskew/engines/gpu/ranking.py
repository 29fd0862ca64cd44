"""Items ranked on a device: blocks of users are scored against all items by one product, and sorted or cut there."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import torch

from unskew.data.factors import Factors
from unskew.engines.gpu.devices import array_of, device_named, lent
from unskew.errors import BadPredictionError
from unskew.ranking.positions import Positions
from unskew.types import IntVector, Scores

SCORES_ON_DEVICE, SCORES_ON_HOST = 1 << 27, 1 << 22
"""Held at a time, some five times over while they are sorted."""


def positions_on(name: str | None, factors: Factors, user: IntVector, item: IntVector) -> Positions:
    """Exact positions of logged cells: every user's scores are sorted once, and each cell is looked up among them."""
    device = device_named(name)
    side = _sides(factors, device)
    codes, columns = lent(user).to(device), lent(item).to(device)
    order = torch.argsort(codes, stable=True)
    users, lengths = torch.unique_consecutive(codes[order], return_counts=True)
    starts = [0, *torch.cumsum(lengths, 0).tolist()]
    found = torch.empty((2, user.size), dtype=torch.int32, device=device)
    for rows in _blocks(users.numel(), factors.n_items, device):
        cells = order[starts[rows.start] : starts[rows.stop]]
        scores = side[0][users[rows]] @ side[1]
        row = torch.repeat_interleave(torch.arange(scores.shape[0], device=device), lengths[rows])
        own = scores[row, columns[cells]]
        rising = scores.sort(dim=1).values
        _refuse_nan(rising[:, -1].isnan(), users[rows])  # where a sort puts it
        below, up_to = (
            _count(rising, row, own, with_equal=with_equal) for with_equal in (False, True)
        )
        found[0, cells], found[1, cells] = (factors.n_items - up_to).int(), (up_to - below).int()
    above, equal = array_of(found)
    return Positions(above, equal)


def best_on(
    name: str | None,
    factors: Factors,
    n_best: int,
    starts: npt.NDArray[np.int64],
    hidden: IntVector,
) -> tuple[npt.NDArray[np.integer], Scores]:
    """The best items of every user that are not hidden, and their scores; equal ones in the order of the items."""
    device = device_named(name)
    side = _sides(factors, device)
    items, scores = (
        np.empty((factors.n_users, n_best), np.int64),
        np.empty((factors.n_users, n_best)),
    )
    for rows in _blocks(factors.n_users, factors.n_items, device):
        block = side[0][rows] @ side[1]
        _refuse_nan(block.isnan().any(1), torch.arange(rows.start, rows.stop))
        of_block = starts[rows.start : rows.stop + 1]
        row = np.repeat(np.arange(of_block.size - 1), np.diff(of_block))
        column = hidden[of_block[0] : of_block[-1]].astype(np.int64)
        block[lent(row).to(device), lent(column).to(device)] = -torch.inf
        best = _best_columns(block, n_best)
        items[rows], scores[rows] = array_of(best), array_of(block.gather(1, best))
    return items, scores


def _sides(factors: Factors, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """[v_u, a_u + c, 1] and [w_i, 1, b_i]' of all users and items, so that a block of scores is one product."""
    users, items = factors.sides()
    return lent(users).to(device), lent(items).to(device)


def _blocks(n_users: int, n_items: int, device: torch.device) -> Iterator[slice]:
    size = max(1, (SCORES_ON_HOST if device.type == "cpu" else SCORES_ON_DEVICE) // max(1, n_items))
    return (slice(first, min(first + size, n_users)) for first in range(0, n_users, size))


def _refuse_nan(has_nan: torch.Tensor, users: torch.Tensor) -> None:
    """Names the first user of a row that has one."""
    bad = has_nan.nonzero()
    if bad.numel():
        code = int(users[int(bad[0])])
        raise BadPredictionError(
            f"a score of user code {code} is NaN, which has no position. Fit factors that are finite."
        )


def _count(
    rising: torch.Tensor, row: torch.Tensor, value: torch.Tensor, *, with_equal: bool
) -> torch.Tensor:
    """How many numbers of its row lie below each value, or are equal to it: bisection, all at once."""
    n = rising.shape[1]
    low, high = torch.zeros_like(row), torch.full_like(row, n)
    for _ in range(n.bit_length()):
        middle = (low + high) // 2
        there = rising[row, middle.clamp(max=n - 1)]
        is_below = ((there <= value) if with_equal else (there < value)) & (low < high)
        low, high = torch.where(is_below, middle + 1, low), torch.where(is_below, high, middle)
    return low


def _best_columns(block: torch.Tensor, n_best: int) -> torch.Tensor:
    """As on the processors: those above the last of the best, and of its equals the first."""
    last = block.topk(n_best, dim=1).values[:, -1:]
    above, level = block > last, block == last
    room = n_best - above.sum(1, keepdim=True)
    some = (
        (above | (level & (level.cumsum(1, dtype=torch.int32) <= room)))
        .nonzero()[:, 1]
        .reshape(-1, n_best)
    )
    order = block.gather(1, some).argsort(dim=1, descending=True, stable=True)
    return some.gather(1, order)
