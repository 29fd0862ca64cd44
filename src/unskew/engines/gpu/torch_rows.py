"""The ridge regressions of all rows by torch's operations: the reference for the GPU kernels."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from unskew.engines.gpu.cells import CELLS_PER_PIECE, DeviceBlock

NUMBERS_PER_BATCH = 1 << 26
"""Numbers in the padded arrays of cells that are added up at a time."""


@dataclass(frozen=True, slots=True, eq=False)
class DeviceRows:
    """The factors and the offset of one side; zeros in place of offsets if there are none."""

    factors: torch.Tensor
    offset: torch.Tensor

    @property
    def n_factors(self) -> int:
        return self.factors.shape[1]

    def to(self, device: torch.device) -> DeviceRows:
        return DeviceRows(self.factors.to(device), self.offset.to(device))


@dataclass(frozen=True, slots=True)
class RowPenalty:
    """The ridge on the factors and on the offset of a row; None if there are no offsets."""

    factors: float
    offset: float | None


def solve_block(
    block: DeviceBlock, opposite: DeviceRows, global_offset: float, penalty: RowPenalty
) -> tuple[DeviceRows, torch.Tensor]:
    """The best factors and offset of every row, and its minimum: loss plus penalty.

    A row without cells gets zeros. The minimum of a row without a unique solution is not finite.
    """
    ridges = _make_ridges(opposite, penalty)
    opposite_rows = _make_opposite_rows(opposite, has_offset=penalty.offset is not None)
    solutions = opposite_rows.new_zeros(block.n_rows, ridges.numel())
    minima = torch.zeros(block.n_rows, dtype=torch.float64, device=opposite_rows.device)
    length = block.starts.diff()
    order = torch.argsort(length, descending=True, stable=True)
    order = order[length[order] > 0]
    rows_per_batch = max(1, NUMBERS_PER_BATCH // (CELLS_PER_PIECE * opposite_rows.shape[1]))
    for rows in torch.split(order, rows_per_batch):
        gram = _compute_gram(block, rows, opposite_rows, global_offset)
        solutions[rows], minima[rows] = _solve(gram, ridges)
    has_offset = penalty.offset is not None
    offset = solutions[:, -1] if has_offset else opposite_rows.new_zeros(block.n_rows)
    return DeviceRows(solutions[:, : opposite.n_factors], offset), minima


def _make_ridges(opposite: DeviceRows, penalty: RowPenalty) -> torch.Tensor:
    """The ridge of each unknown of a row."""
    ridges = [penalty.factors] * opposite.n_factors
    if penalty.offset is not None:
        ridges.append(penalty.offset)
    return opposite.factors.new_tensor(ridges)


def _make_opposite_rows(opposite: DeviceRows, *, has_offset: bool) -> torch.Tensor:
    """``[w, 1, b]``, or ``[w, b]`` without offsets; the last column becomes the residual."""
    ones = opposite.offset.new_ones(opposite.offset.numel(), int(has_offset))
    return torch.cat([opposite.factors, ones, opposite.offset[:, None]], dim=1)


def _compute_gram(
    block: DeviceBlock, rows: torch.Tensor, opposite_rows: torch.Tensor, global_offset: float
) -> torch.Tensor:
    """Sum of w [x, t]' [x, t] over the cells of each row, with t = rating - b - c.

    ``rows`` are in order of decreasing length. One piece of every row is added at a time.
    """
    width = opposite_rows.shape[1]
    first, length = block.starts[rows], block.starts[rows + 1] - block.starts[rows]
    gram = opposite_rows.new_zeros(rows.numel(), width, width)
    for begin in range(0, int(length[0]), CELLS_PER_PIECE):
        n_rows = int((length > begin).sum())
        n_cells = (length[:n_rows] - begin).clamp(max=CELLS_PER_PIECE)
        number = torch.arange(int(n_cells.max()), device=rows.device)
        is_inside = number < n_cells[:, None]
        cell = torch.where(is_inside, first[:n_rows, None] + begin + number, 0)
        padded = opposite_rows[block.opposite[cell].long()]
        padded[..., -1] = block.rating[cell] - global_offset - padded[..., -1]
        padded *= (block.root_weight[cell] * is_inside)[..., None]
        gram[:n_rows] += padded.transpose(1, 2) @ padded
    return gram


def _solve(gram: torch.Tensor, ridges: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    n = ridges.numel()
    normal, right = gram[:, :n, :n] + torch.diag(ridges), gram[:, :n, n]
    factor, failed = torch.linalg.cholesky_ex(normal)
    solution = torch.cholesky_solve(right[..., None], factor)[..., 0]
    minima = (gram[:, n, n] - (right * solution).sum(1)).double()
    return solution, minima.masked_fill(failed > 0, torch.nan)
