"""Log loss on a device: sweeps of least squares on its quadratic bounds.

The rounds are those of :mod:`unskew.factorization.majorize`. Every round computes targets and
weights of the bound from the predictions, cell by cell, in the order in which the log is sorted.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch

from unskew.data.factors import Factors
from unskew.engines.gpu.cells import ChangedCells, DeviceBlock
from unskew.engines.gpu.solving import DeviceSweeps
from unskew.engines.gpu.torch_rows import DeviceRows
from unskew.factorization.majorize import SWEEPS_PER_ROUND, RoundSolver
from unskew.factorization.solution import Solver

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
