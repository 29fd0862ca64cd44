"""The weighted ridge regressions of all rows in torch's own operations: what the fused kernel is checked against."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from unskew.engines.gpu.sides import PIECE, Block

NUMBERS_AT_ONCE = 1 << 26
"""In the padded panels of a batch."""


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """Factors and offset of one side; without offsets these are zeros that nobody fits."""

    factors: torch.Tensor
    offset: torch.Tensor

    @property
    def n_factors(self) -> int:
        """Rank."""
        return self.factors.shape[1]


@dataclass(frozen=True, slots=True)
class Penalty:
    """The ridge on factors and on the offset; None where there is no offset to fit."""

    factors: float
    offset: float | None


def solve_block(
    block: Block, opposite_rows: Rows, constant: float, penalty: Penalty
) -> tuple[Rows, torch.Tensor]:
    """The best factors and offset of every row, and its penalised minimum; a row without a cell gets zeros."""
    ridge = _ridge(opposite_rows, penalty)
    lines = _lines(opposite_rows, has_offset=penalty.offset is not None)
    solutions = lines.new_zeros(block.n_rows, ridge.numel())
    minima = torch.zeros(block.n_rows, dtype=torch.float64, device=lines.device)
    length = block.starts.diff()
    order = torch.argsort(length, descending=True, stable=True)
    order = order[length[order] > 0]
    for rows in torch.split(order, max(1, NUMBERS_AT_ONCE // (PIECE * lines.shape[1]))):  # type: ignore[no-untyped-call]
        solutions[rows], minima[rows] = _solve(_gram(block, rows, lines, constant), ridge)
    offset = lines.new_zeros(block.n_rows) if penalty.offset is None else solutions[:, -1]
    return Rows(solutions[:, : opposite_rows.n_factors], offset), minima


def _ridge(opposite_rows: Rows, penalty: Penalty) -> torch.Tensor:
    values = [penalty.factors] * opposite_rows.n_factors + (
        [] if penalty.offset is None else [penalty.offset]
    )
    return opposite_rows.factors.new_tensor(values)


def _lines(opposite_rows: Rows, *, has_offset: bool) -> torch.Tensor:
    """``[w, 1, b]``, or ``[w, b]`` without an offset to fit: the last entry becomes the target."""
    ones = opposite_rows.offset.new_ones(opposite_rows.offset.numel(), int(has_offset))
    return torch.cat([opposite_rows.factors, ones, opposite_rows.offset[:, None]], dim=1)


def _gram(block: Block, rows: torch.Tensor, lines: torch.Tensor, constant: float) -> torch.Tensor:
    """Sum of w [x, t]' [x, t] for each row, the longest first, a piece of all of them at a time."""
    width = lines.shape[1]
    first, length = block.starts[rows], block.starts[rows + 1] - block.starts[rows]
    gram = lines.new_zeros(rows.numel(), width, width)
    for begin in range(0, int(length[0]), PIECE):
        n = int((length > begin).sum())
        left = (length[:n] - begin).clamp(max=PIECE)
        place = torch.arange(int(left.max()), device=rows.device)
        inside = place < left[:, None]
        cell = torch.where(inside, first[:n, None] + begin + place, 0)
        panel = lines[block.opposite[cell].long()]
        panel[..., -1] = block.rating[cell] - constant - panel[..., -1]
        panel *= (block.root_weight[cell] * inside)[..., None]
        gram[:n] += panel.transpose(1, 2) @ panel
    return gram


def _solve(gram: torch.Tensor, ridge: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    n = ridge.numel()
    normal, right = gram[:, :n, :n] + torch.diag(ridge), gram[:, :n, n]
    factor, _ = torch.linalg.cholesky_ex(normal)
    solution = torch.cholesky_solve(right[..., None], factor)[..., 0]
    return solution, (gram[:, n, n] - (right * solution).sum(1)).double()
