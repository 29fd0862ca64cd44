"""A log sorted by one side, laid out for a device: all of it there, or brought there in blocks of rows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import torch

from unskew.data.ratings import Ratings
from unskew.engines.gpu.devices import lent
from unskew.types import IntVector, Vector

PIECE = 1024
"""A longer row is added up in pieces of so many cells, in their order."""
CELLS_AT_ONCE = 1 << 24
"""Of which sums are taken in float64."""
BYTES_TO_SORT = 80
"""For each rating, while it is sorted on the device: both codes, rating, weight, the order, and what is made of them."""


@dataclass(frozen=True, eq=False)
class Block:
    """Some rows with all their cells on the device; cells are counted from the first of the block."""

    starts: torch.Tensor
    """Where each row's cells start, and where the last one's end."""
    opposite: torch.Tensor
    rating: torch.Tensor
    root_weight: torch.Tensor

    @property
    def n_rows(self) -> int:
        """Rows of the block."""
        return self.starts.numel() - 1

    @cached_property
    def pieces(self) -> Pieces:
        """Its rows cut into pieces."""
        return Pieces.of(self.starts)

    def totals(self) -> torch.Tensor:
        """The sums of weights and of weighted ratings, in float64."""
        sums = torch.zeros(2, dtype=torch.float64, device=self.starts.device)
        for root, rating in zip(
            self.root_weight.split(CELLS_AT_ONCE), self.rating.split(CELLS_AT_ONCE), strict=True
        ):  # type: ignore[no-untyped-call]
            weight = root.double().square()
            sums += torch.stack([weight.sum(), weight @ rating.double()])
        return sums


@dataclass(frozen=True, eq=False)
class Pieces:
    """Rows cut into pieces of at most ``PIECE`` cells, the longest piece first; rows of several pieces apart."""

    row: torch.Tensor
    first: torch.Tensor
    end: torch.Tensor
    slot: torch.Tensor
    """Where a piece of a long row leaves its sums; -1 for a row that is one piece."""
    long_row: torch.Tensor
    long_start: torch.Tensor
    """The slots of each long row start here, and the last one's end there."""

    @classmethod
    def of(cls, starts: torch.Tensor) -> Pieces:
        """Every row has at least one piece, if an empty one."""
        device, n_rows = starts.device, starts.numel() - 1
        n_pieces = ((starts.diff() + PIECE - 1) // PIECE).clamp(min=1)
        row = torch.repeat_interleave(torch.arange(n_rows, device=device), n_pieces)
        place = torch.arange(row.numel(), device=device) - (n_pieces.cumsum(0) - n_pieces)[row]
        first = starts[row] + place * PIECE
        end = torch.minimum(first + PIECE, starts[row + 1])
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
        """Pieces of long rows."""
        return int(self.long_start[-1])


@dataclass(frozen=True, eq=False)
class DeviceSide:
    """The log sorted by one side: all of it on the device, or in blocks that are copied there one after another."""

    n_rows: int
    starts: torch.Tensor
    """On the host."""
    opposite: torch.Tensor
    rating: torch.Tensor
    root_weight: torch.Tensor
    device: torch.device
    cells_a_block: int

    @classmethod
    def sorted_on_device(
        cls,
        row: torch.Tensor,
        opposite: torch.Tensor,
        rating: torch.Tensor,
        weight: torch.Tensor,
        n_rows: int,
    ) -> DeviceSide:
        """All arguments are on the device; within a row the order of the log stays."""
        order = torch.argsort(row, stable=True)
        starts = torch.zeros(n_rows + 1, dtype=torch.int64, device=row.device)
        torch.cumsum(torch.bincount(row, minlength=n_rows), 0, out=starts[1:])
        root_weight = weight[order].sqrt()
        return cls(
            n_rows,
            starts.cpu(),
            opposite[order],
            rating[order],
            root_weight,
            row.device,
            max(1, row.numel()),
        )

    @classmethod
    def sorted_on_host(
        cls,
        row: IntVector,
        opposite: IntVector,
        rating: Vector,
        weight: Vector,
        shape: tuple[int, int],
        *,
        like: torch.Tensor,
        cells_a_block: int,
    ) -> DeviceSide:
        """For a log that the device cannot hold: cells stay in memory that it can copy from. ``like`` has type and device."""
        from unskew.factorization.objective import SortedCells

        side = SortedCells.of(
            row,
            opposite,
            rating,
            weight,
            shape=shape,
            dtype=str(like.dtype).removeprefix("torch."),
        )
        columns = (
            torch.from_numpy(part.copy())
            for part in (side.opposite.astype("int32"), side.rating, side.root_weight)
        )
        opposite_rows, ratings, roots = (
            part.pin_memory() if like.device.type == "cuda" else part for part in columns
        )
        return cls(
            shape[0],
            torch.from_numpy(side.starts),
            opposite_rows,
            ratings,
            roots,
            like.device,
            cells_a_block,
        )

    @cached_property
    def _resident(self) -> Block | None:
        if self.opposite.numel() > self.cells_a_block:
            return None
        parts = (
            part.to(self.device)
            for part in (self.starts, self.opposite, self.rating, self.root_weight)
        )
        return Block(*parts)

    def blocks(self) -> Iterator[Block]:
        """All rows, in their order."""
        if self._resident is not None:
            yield self._resident
            return
        row = 0
        while row < self.n_rows:
            reach = int(self.starts[row]) + self.cells_a_block
            end = max(row + 1, int(torch.searchsorted(self.starts, reach, right=True)) - 1)
            cells = slice(int(self.starts[row]), int(self.starts[end]))
            columns = (
                part[cells].to(self.device, non_blocking=True)
                for part in (self.opposite, self.rating, self.root_weight)
            )
            yield Block((self.starts[row : end + 1] - self.starts[row]).to(self.device), *columns)
            row = end

    @cached_property
    def totals(self) -> tuple[float, float]:
        """The sums of all weights and of all weighted ratings."""
        weight, rating = sum(block.totals() for block in self.blocks()).tolist()  # type: ignore[union-attr]
        return weight, rating


def both_sides(
    log: Ratings, weight: Vector, *, like: torch.Tensor, memory: int
) -> tuple[DeviceSide, DeviceSide]:
    """The log by user and by item, sorted on the device where ``memory`` bytes are enough for that."""
    shape = log.n_users, log.n_items
    if len(log) * BYTES_TO_SORT > memory:
        cells = max(PIECE, memory // (4 * 3 * like.element_size()))
        return tuple(  # type: ignore[return-value]
            DeviceSide.sorted_on_host(*way, like=like, cells_a_block=cells)
            for way in (
                (log.user, log.item, log.rating, weight, shape),
                (log.item, log.user, log.rating, weight, shape[::-1]),
            )
        )
    user, item = (lent(code).to(like.device) for code in (log.user, log.item))
    rating, weights = (
        lent(part).to(like.device).to(like.dtype) for part in (log.rating, weight)
    )
    return (
        DeviceSide.sorted_on_device(user, item, rating, weights, log.n_users),
        DeviceSide.sorted_on_device(item, user, rating, weights, log.n_items),
    )
