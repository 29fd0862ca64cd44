"""Sweeps of alternating least squares on one device, or on several; rounds of them for log loss.

The rounds are those of :mod:`unskew.factorization.majorize`. Every round computes targets and
weights of the bound from the predictions, cell by cell, in the order in which the log is sorted.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from importlib.util import find_spec
from typing import Any, ClassVar, TypeAlias

import torch

from unskew.data.factors import Factors
from unskew.engines.gpu import cuda_rows, torch_rows
from unskew.engines.gpu.cells import CellBlocks, ChangedCells, DeviceBlock
from unskew.engines.gpu.sweeps import DeviceFactors, DeviceSweepingSolver, squared_norm
from unskew.engines.gpu.torch_rows import DeviceRows, RowPenalty
from unskew.factorization.als import best_constant
from unskew.factorization.majorize import SWEEPS_PER_ROUND, RoundSolver
from unskew.factorization.objective import NoUniqueSolutionError
from unskew.factorization.penalty import Penalty
from unskew.factorization.solution import Solver

SolveBlock: TypeAlias = Callable[
    [DeviceBlock, DeviceRows, float, RowPenalty], tuple[DeviceRows, torch.Tensor]
]
"""Solves all rows of a block, given the opposite rows: :func:`torch_rows.solve_block`."""


def choose_row_solver(like: torch.Tensor, n_factors: int) -> SolveBlock:
    """The fastest one for this dtype and device: tensor cores, Triton, or torch's operations."""
    if 0 < n_factors <= cuda_rows.MAX_FACTORS and cuda_rows.can_run(like):
        return cuda_rows.solve_block
    if like.device.type == "cuda" and like.dtype == torch.float32 and find_spec("triton"):
        from unskew.engines.gpu import fused_rows

        return fused_rows.solve_block
    return torch_rows.solve_block


@dataclass(frozen=True, eq=False)
class DeviceSweeps(DeviceSweepingSolver):
    """Alternating least squares whose parameters are :class:`DeviceFactors`.

    All sweeps are exact. With an unobserved weight w0 there are no offsets, and the objective has
    w0 times the sum over all cells of (v . w)^2.
    """

    by_user: CellBlocks
    by_item: CellBlocks
    penalty: Penalty
    has_offsets: bool
    solve_block: SolveBlock
    unobserved_weight: float = 0.0
    constant: float = 0.0

    def _sweep(self, start: Any, *, is_exact: bool) -> tuple[Any, float]:
        """Users, items, constant. The objective is that before the step of the constant."""
        penalty, c = self.penalty, start.global_offset
        items = DeviceRows(start.item_factors, start.item_offset)
        users, user_minima = self._solve_rows(self.by_user, items, c)
        items, item_minima = self._solve_rows(self.by_item, users, c)
        sums = (
            item_minima.sum(),
            squared_norm(users.factors),
            squared_norm(users.offset),
            items.offset.double().sum(),
        )
        # One copy, so that the processor waits for the device only once.
        minimum, factor_norm, offset_norm, offset_sum = torch.stack(sums).tolist()
        if not math.isfinite(minimum):
            raise self._no_solution_error(users.n_factors, user_minima, item_minima)
        user_penalty = penalty.factors * factor_norm + penalty.user_offset * offset_norm
        user_penalty += penalty.global_offset * c**2 + self.constant
        if self.has_offsets:
            c = best_constant(c, offset_sum, self.by_item.totals[0], penalty)
        swept = DeviceFactors(users.factors, items.factors, users.offset, items.offset, c)
        return swept, minimum + user_penalty

    def _solve_rows(
        self, cells: CellBlocks, opposite: DeviceRows, global_offset: float
    ) -> tuple[DeviceRows, torch.Tensor]:
        """The best rows of a side, and their minima."""
        if not self.unobserved_weight:
            offset_ridge = self.penalty.of_offset(cells.side) if self.has_offsets else None
            penalty = RowPenalty(self.penalty.factors, offset_ridge)
            rows, minima = self._solve_blocks(cells, opposite, global_offset, penalty)
            if penalty.factors == 0:
                n_unknowns = opposite.n_factors + (offset_ridge == 0)
                minima = minima.masked_fill(_has_too_few_cells(cells, n_unknowns, minima), math.nan)
            return rows, minima
        cholesky = self._shared_cholesky(cells, opposite.factors)
        axes = _divide(cholesky, opposite.factors, upper=False)
        rows, minima = self._solve_blocks(
            cells, DeviceRows(axes, opposite.offset), global_offset, RowPenalty(1.0, None)
        )
        return DeviceRows(_divide(cholesky.mT, rows.factors, upper=True), rows.offset), minima

    def _shared_cholesky(self, cells: CellBlocks, opposite: torch.Tensor) -> torch.Tensor:
        """L L' = w0 X'X + ridge, which all rows add to their normal matrix.

        In the coordinates L^-1 x the ridge of a row is 1, and L' times its factors are solved for;
        its minimum is the same.
        """
        exact = opposite.double()
        ridge = self.penalty.factors * torch.eye(exact.shape[1], device=exact.device)
        shared = self.unobserved_weight * (exact.mT @ exact) + ridge
        cholesky, failed = torch.linalg.cholesky_ex(shared)
        if int(failed):
            n_cells = int(cells.starts[1])
            raise NoUniqueSolutionError(cells.side, 0, n_cells=n_cells, n_factors=exact.shape[1])
        return cholesky

    def _solve_blocks(
        self,
        cells: CellBlocks,
        opposite: DeviceRows,
        global_offset: float,
        penalty: RowPenalty,
    ) -> tuple[DeviceRows, torch.Tensor]:
        """Solve block by block, each on its device; the rows are put together on the first one."""
        copies: dict[torch.device, DeviceRows] = {}
        solved = []
        for block in cells.blocks():
            if block.device not in copies:
                copies[block.device] = opposite.to(block.device)
            solved.append(self.solve_block(block, copies[block.device], global_offset, penalty))
        if len(solved) == 1:
            return solved[0]
        first = self.like.device
        rows, minima = (
            [part.to(first) for part, _ in solved],
            [part.to(first) for _, part in solved],
        )
        factors, offsets = [part.factors for part in rows], [part.offset for part in rows]
        return DeviceRows(torch.cat(factors), torch.cat(offsets)), torch.cat(minima)

    def _no_solution_error(
        self, n_factors: int, user_minima: torch.Tensor, item_minima: torch.Tensor
    ) -> NoUniqueSolutionError:
        """Names the first user without a finite minimum, or the first item."""
        cells, minima = self.by_user, user_minima
        if bool(minima.isfinite().all()):
            cells, minima = self.by_item, item_minima
        row = int((~minima.isfinite()).int().argmax())
        n_cells = int(cells.starts[row + 1] - cells.starts[row])
        return NoUniqueSolutionError(cells.side, row, n_cells=n_cells, n_factors=n_factors)


def _has_too_few_cells(cells: CellBlocks, n_unknowns: int, like: torch.Tensor) -> torch.Tensor:
    """Rows with fewer cells than unknowns without a ridge, which rounding can make look solvable.

    A row without cells gets zeros.
    """
    n_cells = cells.starts.diff().to(like.device)
    return (n_cells > 0) & (n_cells < n_unknowns)


def _divide(triangle: torch.Tensor, rows: torch.Tensor, *, upper: bool) -> torch.Tensor:
    """The inverse of a triangular matrix times each row."""
    solved = torch.linalg.solve_triangular(triangle, rows.double().mT, upper=upper)
    return solved.mT.to(rows.dtype).contiguous()


NUMBERS_AT_A_TIME = 1 << 27
"""Factors that are gathered at a time to predict cells."""
SMALLEST_LOGIT = 1e-6


@dataclass(frozen=True, eq=False)
class DeviceLogLoss(RoundSolver):
    """Minimise the sum of w (log(1 + exp F) - Y F) plus the penalty."""

    sweeps: DeviceSweeps
    """Of the log, whose ratings are 0 and 1."""
    steps_per_advance: ClassVar[int] = SWEEPS_PER_ROUND

    def _bound(self, factors: Any, n_rounds: int) -> tuple[Solver[Any, Factors], Any]:
        """The bound of Jaakkola & Jordan (2000), as ``LogLoss.quadratic_bound`` has it."""
        on_device = self.sweeps.to_device(factors)
        users, items = on_device.sides

        def bound_users(block: DeviceBlock) -> DeviceBlock:
            return _bound(block, users, items, on_device.global_offset)

        def bound_items(block: DeviceBlock) -> DeviceBlock:
            return _bound(block, items, users, on_device.global_offset)

        solver = replace(
            self.sweeps,
            by_user=ChangedCells(self.sweeps.by_user, bound_users),
            by_item=ChangedCells(self.sweeps.by_item, bound_items),
        )
        start: Any = on_device
        return solver, solver.start(start)

    def _objective(self, factors: Any) -> float:
        on_device = self.sweeps.to_device(factors)
        users, items = on_device.sides
        loss = 0.0
        for block in self.sweeps.by_user.blocks():
            total = torch.zeros((), dtype=torch.float64, device=block.device)
            for part, logit in _predict(block, users, items, on_device.global_offset):
                weight = block.root_weight[part].double().square()
                logit = logit.double()
                softplus = torch.logaddexp(logit, torch.zeros_like(logit))
                total += weight @ (softplus - block.rating[part] * logit)
            loss += float(total)
        return loss + on_device.penalty_value(self.sweeps.penalty)


def _bound(
    block: DeviceBlock, rows: DeviceRows, opposite: DeviceRows, global_offset: float
) -> DeviceBlock:
    """Targets and weights of the squared loss that is tight at the current predictions."""
    rating, root_weight = torch.empty_like(block.rating), torch.empty_like(block.root_weight)
    for part, logit in _predict(block, rows, opposite, global_offset):
        size = logit.abs().clamp(min=SMALLEST_LOGIT)
        curvature = torch.tanh(size / 2) / (4 * size)
        rating[part] = (block.rating[part] - 0.5) / (2 * curvature)
        root_weight[part] = block.root_weight[part] * curvature.sqrt()
    return block.with_targets(rating, root_weight)


def _predict(
    block: DeviceBlock, rows: DeviceRows, opposite: DeviceRows, global_offset: float
) -> Iterator[tuple[slice, torch.Tensor]]:
    """F of the cells of a block, some at a time; ``rows`` are all rows of its side."""
    rows, opposite = rows.to(block.device), opposite.to(block.device)
    size = max(1, NUMBERS_AT_A_TIME // (rows.n_factors + 1))
    for first in range(0, block.opposite.numel(), size):
        part = slice(first, min(first + size, block.opposite.numel()))
        cell = torch.arange(part.start, part.stop, device=block.device)
        row = torch.searchsorted(block.starts, cell, right=True) - 1 + block.first_row
        other = block.opposite[part].long()
        logit = (rows.factors[row] * opposite.factors[other]).sum(1)
        yield part, logit + rows.offset[row] + opposite.offset[other] + global_offset
