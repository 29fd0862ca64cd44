"""Devices by name, copies of arrays to them, and the cells of a log sorted by user or by item.

All cells are on the device, or they stay in the memory of the host and are copied to the device in
blocks of rows.
"""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
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


def find_devices(device: str | Sequence[str] | None) -> list[torch.device]:
    """The devices with these names; by default the current CUDA device."""
    if device is None or isinstance(device, str):
        return [find_device(device)]
    if not device:
        raise UsageError(
            "`device` is an empty list.",
            parameter="device",
            remedy="Name at least one device, such as ['cuda:0', 'cuda:1'].",
        )
    return [find_device(name) for name in device]


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
            remedy="Leave `engine` out to use the processors of this machine.",
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

    first_row: int
    """The number of row 0 of the block among all rows."""
    starts: torch.Tensor
    opposite: torch.Tensor
    rating: torch.Tensor
    root_weight: torch.Tensor

    @property
    def n_rows(self) -> int:
        return self.starts.numel() - 1

    @property
    def device(self) -> torch.device:
        return self.starts.device

    @cached_property
    def pieces(self) -> RowPieces:
        return RowPieces.of(self.starts)

    def with_targets(self, rating: torch.Tensor, root_weight: torch.Tensor) -> DeviceBlock:
        """The same cells with other ratings and weights."""
        block = DeviceBlock(self.first_row, self.starts, self.opposite, rating, root_weight)
        block.__dict__["pieces"] = self.pieces  # they depend on the rows alone
        return block

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


class CellBlocks(ABC):
    """The observed cells sorted by user, or sorted by item, as blocks on one or several devices."""

    side: Side
    """Whether rows are users or items."""
    starts: torch.Tensor
    """In the memory of the host."""

    @property
    def n_rows(self) -> int:
        return self.starts.numel() - 1

    @property
    @abstractmethod
    def is_resident(self) -> bool:
        """Whether all blocks stay on their devices."""

    @abstractmethod
    def blocks(self) -> Iterator[DeviceBlock]:
        """Blocks of consecutive rows that together hold all rows in order."""

    @cached_property
    def totals(self) -> tuple[float, float]:
        """The sum of all weights, and the sum of all weighted ratings."""
        sums = torch.stack([block.sum_weights().cpu() for block in self.blocks()])
        weight, rating = sums.sum(dim=0).tolist()
        return weight, rating


@dataclass(frozen=True, eq=False)
class ChangedCells(CellBlocks):
    """Cells whose ratings and weights are computed from those of other cells."""

    cells: CellBlocks
    change: Callable[[DeviceBlock], DeviceBlock]

    @property
    def side(self) -> Side:  # type: ignore[override]
        return self.cells.side

    @property
    def starts(self) -> torch.Tensor:  # type: ignore[override]
        return self.cells.starts

    @property
    def is_resident(self) -> bool:
        return self.cells.is_resident

    @cached_property
    def _changed(self) -> list[DeviceBlock]:
        return [self.change(block) for block in self.cells.blocks()]

    def blocks(self) -> Iterator[DeviceBlock]:
        """Cells that every sweep copies to the device are also changed in every sweep."""
        yield from self._changed if self.is_resident else map(self.change, self.cells.blocks())


@dataclass(frozen=True, eq=False)
class SplitCells(CellBlocks):
    """Rows divided among several devices."""

    side: Side
    starts: torch.Tensor
    parts: Sequence[DeviceCells]

    @property
    def is_resident(self) -> bool:
        return all(part.is_resident for part in self.parts)

    def blocks(self) -> Iterator[DeviceBlock]:
        for part in self.parts:
            yield from part.blocks()


@dataclass(frozen=True, eq=False)
class DeviceCells(CellBlocks):
    """Cells sorted by row for one device, which holds them or gets copies block by block."""

    side: Side
    starts: torch.Tensor
    opposite: torch.Tensor
    rating: torch.Tensor
    root_weight: torch.Tensor
    device: torch.device
    cells_per_block: int
    first_row: int = 0

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

    def split(self, devices: Sequence[torch.device]) -> SplitCells:
        """Divide the rows into one part for each device, with about equal numbers of cells."""
        shares = torch.arange(1, len(devices)) * self.opposite.numel() // len(devices)
        cuts = [0, *torch.searchsorted(self.starts, shares).tolist(), self.n_rows]
        parts = [
            self._take_rows(first, max(first, end), device)
            for (first, end), device in zip(pairwise(cuts), devices, strict=True)
        ]
        return SplitCells(self.side, self.starts, parts)

    def _take_rows(self, first: int, end: int, device: torch.device) -> DeviceCells:
        """Some of the rows for ``device``; cells in the memory of the host stay there."""
        starts = self.starts[first : end + 1]
        cells = slice(int(starts[0]), int(starts[-1]))
        target = device if self.opposite.device == self.device else self.opposite.device
        opposite, rating, root_weight = (
            column[cells].to(target) for column in (self.opposite, self.rating, self.root_weight)
        )
        return DeviceCells(
            self.side,
            starts - starts[0],
            opposite,
            rating,
            root_weight,
            device,
            self.cells_per_block,
            first,
        )

    @property
    def is_resident(self) -> bool:
        return self.opposite.numel() <= self.cells_per_block

    @cached_property
    def _resident_block(self) -> DeviceBlock:
        columns = self.starts, self.opposite, self.rating, self.root_weight
        return DeviceBlock(self.first_row, *(column.to(self.device) for column in columns))

    def blocks(self) -> Iterator[DeviceBlock]:
        if self.is_resident:
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
            yield DeviceBlock(self.first_row + row, starts, *columns)
            row = end


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
