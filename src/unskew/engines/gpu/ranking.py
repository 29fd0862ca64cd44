"""Items ranked on a device: blocks of users are scored by one matrix product, and sorted there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from unskew.data.factors import Factors
from unskew.engines.gpu.cells import find_devices, to_device, to_host
from unskew.errors import BadPredictionError
from unskew.ranking.candidates import Candidates
from unskew.ranking.positions import Positions
from unskew.types import IntVector, Scores, SeenItems

SCORES_ON_DEVICE, SCORES_ON_HOST = 1 << 27, 1 << 22
"""Scores of a block of users. Sorting takes about five times their memory."""


def compute_positions_on_device(
    device_name: str | Sequence[str] | None,
    factors: Factors,
    user: IntVector,
    item: IntVector,
    candidates: Candidates | None = None,
) -> Positions:
    """Exact positions of logged cells among the candidates of their users.

    The scores of each user are sorted once, and each cell is found among them by bisection.
    """
    device = find_devices(device_name)[0]
    user_rows, item_columns = _copy_factors(factors, device)
    codes, columns = to_device(user, device), to_device(item, device)
    order = torch.argsort(codes, stable=True)
    users, lengths = torch.unique_consecutive(codes[order], return_counts=True)
    starts = [0, *torch.cumsum(lengths, 0).tolist()]
    counts = torch.empty((2, user.size), dtype=torch.int32, device=device)
    n_hidden, on_device = None, None
    if candidates is not None:
        on_device = _DeviceCandidates.of(candidates, device)
        n_hidden = to_device(factors.n_items - candidates.count, device)
    for rows in _blocks(users.numel(), factors.n_items, device):
        cells = order[starts[rows.start] : starts[rows.stop]]
        scores = user_rows[users[rows]] @ item_columns
        if on_device is not None:
            scores = on_device.hide_others(scores, users[rows])
        row = torch.repeat_interleave(torch.arange(scores.shape[0], device=device), lengths[rows])
        score = scores[row, columns[cells]]
        ascending = scores.sort(dim=1).values
        _refuse_nan(ascending[:, -1].isnan(), users[rows])  # NaN is sorted to the end
        n_below = _count_below(ascending, row, score, with_equal=False)
        n_up_to = _count_below(ascending, row, score, with_equal=True)
        counts[0, cells] = (factors.n_items - n_up_to).int()
        counts[1, cells] = (n_up_to - n_below).int()
        if n_hidden is not None:
            hidden = n_hidden[users[rows]][row]
            counts[1, cells] -= torch.where(score.isneginf(), hidden, 0).int()
    above, equal = to_host(counts)
    return Positions(above, equal)


def best_items_on_device(
    device_name: str | Sequence[str] | None,
    factors: Factors,
    n_best: int,
    candidates: Candidates,
) -> tuple[npt.NDArray[np.integer], Scores]:
    """The best items of every user and their scores, as ``ranking.positions.best_items``."""
    device = find_devices(device_name)[0]
    user_rows, item_columns = _copy_factors(factors, device)
    on_device = _DeviceCandidates.of(candidates, device)
    items = np.empty((factors.n_users, n_best), np.int64)
    scores = np.empty((factors.n_users, n_best))
    for rows in _blocks(factors.n_users, factors.n_items, device):
        block = user_rows[rows] @ item_columns
        _refuse_nan(block.isnan().any(1), torch.arange(rows.start, rows.stop))
        block = on_device.hide_others(block, torch.arange(rows.start, rows.stop, device=device))
        best = _best_columns(block, n_best)
        items[rows], scores[rows] = to_host(best), to_host(block.gather(1, best))
    return items, scores


@dataclass(frozen=True, eq=False)
class _DeviceCandidates:
    """The fields of :class:`Candidates` as tensors of a device."""

    is_unlisted: torch.Tensor | None
    hidden: _ItemsByUser | None
    lists: _ItemsByUser | None

    @classmethod
    def of(cls, candidates: Candidates, device: torch.device) -> _DeviceCandidates:
        is_listed, hidden, lists = candidates.is_listed, candidates.hidden, candidates.lists
        return cls(
            None if is_listed is None else to_device(~is_listed, device),
            None if hidden is None else _ItemsByUser.of(hidden, device),
            None if lists is None else _ItemsByUser.of(lists, device),
        )

    def hide_others(self, scores: torch.Tensor, users: torch.Tensor) -> torch.Tensor:
        """The scores of these users, with -inf for items that are not candidates."""
        if self.lists is not None:
            cells = self.lists.cells_of(users)
            return torch.full_like(scores, -torch.inf).index_put_(cells, scores[cells])
        if self.is_unlisted is not None:
            scores[:, self.is_unlisted] = -torch.inf
        if self.hidden is not None:
            scores[self.hidden.cells_of(users)] = -torch.inf
        return scores


@dataclass(frozen=True, eq=False)
class _ItemsByUser:
    """User u has the items ``items[starts[u]]`` to ``items[starts[u + 1]]``."""

    starts: torch.Tensor
    items: torch.Tensor

    @classmethod
    def of(cls, items_by_user: SeenItems, device: torch.device) -> _ItemsByUser:
        starts, items = items_by_user
        return cls(to_device(starts, device), to_device(items, device))

    def cells_of(self, users: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Row and column of each of these items in a block of scores of ``users``."""
        first, lengths = self.starts[users], self.starts[users + 1] - self.starts[users]
        row = torch.repeat_interleave(torch.arange(users.numel(), device=users.device), lengths)
        number = torch.arange(row.numel(), device=users.device)
        column = self.items[number + (first - lengths.cumsum(0) + lengths)[row]]
        return row, column.long()


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
