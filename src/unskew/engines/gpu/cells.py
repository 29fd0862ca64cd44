"""Devices by name, copies of arrays to them, and the cells of a log sorted by user or by item.

All cells are on the device, or they stay in the memory of the host and are copied to the device in
blocks of rows.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy.typing as npt
import torch

from unskew.data.ratings import Ratings
from unskew.errors import UsageError
from unskew.factorization.objective import SortedCells
from unskew.factorization.penalty import Side
from unskew.types import Vector

CELLS_PER_PIECE = 1024
"""A longer row is added up in pieces of this many cells, in order."""
CELLS_PER_SUM = 1 << 24
"""Cells that are converted to float64 at a time when they are added up."""
BYTES_TO_SORT = 80
"""Memory for each rating while it is sorted on the device: codes, rating, weight, the order, and
the sorted copies."""


def find_device(device_name: str | None) -> torch.device:
    """The device with this name; by default the current CUDA device."""
    try:
        device = torch.device("cuda" if device_name is None else device_name)
    except RuntimeError as error:
        raise UsageError(
            f"torch has no device {device_name!r}.",
            parameter="device",
            value=device_name,
            remedy="Use 'cpu', 'cuda' or 'cuda:1', for example.",
        ) from error
    if device.type == "cuda" and not (
        torch.cuda.is_available() and (device.index or 0) < torch.cuda.device_count()
    ):
        raise UsageError(
            f"`engine='gpu'` found no CUDA device"
            f"{'' if device_name is None else f' {device_name!r}'}.",
            parameter="engine",
            value=device_name,
            remedy="Leave `engine` out, or pass `engine=GpuEngine(device='cpu')` to run the same "
            "code on the CPU.",
        )
    return device


def to_device(array: npt.NDArray[Any], device: torch.device) -> torch.Tensor:
    """The array on the device. On the CPU it shares its memory, which is only read."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
        return torch.from_numpy(array).to(device)


def to_host(tensor: Any) -> Any:
    """The tensor as a NumPy array."""
    return tensor.cpu().numpy()


@dataclass(frozen=True, eq=False)
class DeviceBlock:
    """Consecutive rows with all their cells, on the device.

    Row r of the block has the cells ``starts[r]`` to ``starts[r + 1]``.
    """

    starts: torch.Tensor
    opposite: torch.Tensor
    rating: torch.Tensor
    root_weight: torch.Tensor

    @property
    def n_rows(self) -> int:
        return self.starts.numel() - 1

    @cached_property
    def pieces(self) -> RowPieces:
        return RowPieces.of(self.starts)

    def sum_weights(self) -> torch.Tensor:
        """The sums of the weights and of the weighted ratings, in float64."""
        sums = torch.zeros(2, dtype=torch.float64, device=self.starts.device)
        for root, rating in zip(
            self.root_weight.split(CELLS_PER_SUM), self.rating.split(CELLS_PER_SUM), strict=True
        ):
            weight = root.double().square()
            sums += torch.stack([weight.sum(), weight @ rating.double()])
        return sums


@dataclass(frozen=True, eq=False)
class RowPieces:
    """Rows divided into pieces of at most ``CELLS_PER_PIECE`` cells, the longest piece first.

    A kernel solves a row of one piece at once. For a long row, a row of several pieces, it first
    writes the sums of each piece to a slot.
    """

    row: torch.Tensor
    first: torch.Tensor
    """The first cell of each piece."""
    end: torch.Tensor
    slot: torch.Tensor
    """The slot of each piece of a long row; -1 for a row of one piece."""
    long_row: torch.Tensor
    long_start: torch.Tensor
    """Long row k has the slots ``long_start[k]`` to ``long_start[k + 1]``."""

    @classmethod
    def of(cls, starts: torch.Tensor) -> RowPieces:
        """Every row has at least one piece; that of an empty row is empty."""
        device, n_rows = starts.device, starts.numel() - 1
        n_pieces = ((starts.diff() + CELLS_PER_PIECE - 1) // CELLS_PER_PIECE).clamp(min=1)
        row = torch.repeat_interleave(torch.arange(n_rows, device=device), n_pieces)
        number = torch.arange(row.numel(), device=device) - (n_pieces.cumsum(0) - n_pieces)[row]
        first = starts[row] + number * CELLS_PER_PIECE
        end = torch.minimum(first + CELLS_PER_PIECE, starts[row + 1])
        is_long = n_pieces > 1
        slot = torch.where(is_long[row], is_long[row].cumsum(0) - 1, -1)
        order = torch.argsort(end - first, descending=True, stable=True)
        long_row = is_long.nonzero().ravel()
        long_start = torch.cat(
            [torch.zeros(1, dtype=torch.int64, device=device), n_pieces[long_row].cumsum(0)]
        )
        return cls(row[order], first[order], end[order], slot[order], long_row, long_start)

    @cached_property
    def n_slots(self) -> int:
        return int(self.long_start[-1])


@dataclass(frozen=True, eq=False)
class DeviceCells:
    """The observed cells sorted by user, or sorted by item, as blocks on the device."""

    side: Side
    """Whether rows are users or items."""
    starts: torch.Tensor
    """In the memory of the host."""
    opposite: torch.Tensor
    rating: torch.Tensor
    root_weight: torch.Tensor
    device: torch.device
    cells_per_block: int

    @classmethod
    def sort_on_device(
        cls,
        row: torch.Tensor,
        opposite: torch.Tensor,
        rating: torch.Tensor,
        weight: torch.Tensor,
        n_rows: int,
        *,
        side: Side = "user",
    ) -> DeviceCells:
        """Sort cells that are on the device by row; the cells of a row keep their order."""
        order = torch.argsort(row, stable=True)
        starts = torch.zeros(n_rows + 1, dtype=torch.int64, device=row.device)
        torch.cumsum(torch.bincount(row, minlength=n_rows), 0, out=starts[1:])
        columns = opposite[order], rating[order], weight[order].sqrt()
        return cls(side, starts.cpu(), *columns, row.device, max(1, row.numel()))

    @classmethod
    def sort_on_host(
        cls, log: Ratings, weight: Vector, *, like: torch.Tensor, cells_per_block: int, side: Side
    ) -> DeviceCells:
        """Sort a log that the device cannot hold. The device copies from pinned memory."""
        codes, shape = (log.user, log.item), (log.n_users, log.n_items)
        if side == "item":
            codes, shape = codes[::-1], shape[::-1]
        dtype = str(like.dtype).removeprefix("torch.")
        cells = SortedCells.of(*codes, log.rating, weight, shape=shape, dtype=dtype, side=side)
        columns = [
            torch.from_numpy(column.copy())
            for column in (cells.opposite.astype("int32"), cells.rating, cells.root_weight)
        ]
        if like.device.type == "cuda":
            columns = [column.pin_memory() for column in columns]
        opposite, rating, root_weight = columns
        starts = torch.from_numpy(cells.starts)
        return cls(side, starts, opposite, rating, root_weight, like.device, cells_per_block)

    @property
    def n_rows(self) -> int:
        return self.starts.numel() - 1

    @cached_property
    def _resident_block(self) -> DeviceBlock | None:
        """All rows as one block that stays on the device; None if they do not fit."""
        if self.opposite.numel() > self.cells_per_block:
            return None
        columns = self.starts, self.opposite, self.rating, self.root_weight
        return DeviceBlock(*(column.to(self.device) for column in columns))

    def blocks(self) -> Iterator[DeviceBlock]:
        """All rows, in order, as blocks on the device."""
        if self._resident_block is not None:
            yield self._resident_block
            return
        row = 0
        while row < self.n_rows:
            last_cell = int(self.starts[row]) + self.cells_per_block
            end = max(row + 1, int(torch.searchsorted(self.starts, last_cell, right=True)) - 1)
            cells = slice(int(self.starts[row]), int(self.starts[end]))
            columns = (
                column[cells].to(self.device, non_blocking=True)
                for column in (self.opposite, self.rating, self.root_weight)
            )
            starts = (self.starts[row : end + 1] - self.starts[row]).to(self.device)
            yield DeviceBlock(starts, *columns)
            row = end

    @cached_property
    def totals(self) -> tuple[float, float]:
        """The sum of all weights, and the sum of all weighted ratings."""
        sums = torch.stack([block.sum_weights() for block in self.blocks()]).sum(0)
        weight, rating = sums.tolist()
        return weight, rating


def sort_both_ways(
    log: Ratings, weight: Vector, *, like: torch.Tensor, memory: int
) -> tuple[DeviceCells, DeviceCells]:
    """The log by user and by item, sorted on the device if ``memory`` bytes are enough for that.

    ``like`` is a tensor with the dtype and the device of the result.
    """
    if len(log) * BYTES_TO_SORT > memory:
        n_cells = max(CELLS_PER_PIECE, memory // (4 * 3 * like.element_size()))
        by_user, by_item = (
            DeviceCells.sort_on_host(log, weight, like=like, cells_per_block=n_cells, side=side)
            for side in ("user", "item")
        )
        return by_user, by_item
    user, item = (to_device(codes, like.device) for codes in (log.user, log.item))
    rating, weights = (
        to_device(values, like.device).to(like.dtype) for values in (log.rating, weight)
    )
    return (
        DeviceCells.sort_on_device(user, item, rating, weights, log.n_users, side="user"),
        DeviceCells.sort_on_device(item, user, rating, weights, log.n_items, side="item"),
    )
