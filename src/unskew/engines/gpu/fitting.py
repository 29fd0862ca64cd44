"""A fit on a device: the sweeps of alternating least squares, with tensors in place of arrays."""

from __future__ import annotations

import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, TypeAlias

import numpy as np
import torch

from unskew.engines.gpu import cuda_rows, torch_rows
from unskew.engines.gpu.cells import (
    DeviceBlock,
    DeviceCells,
    find_device,
    sort_both_ways,
    to_host,
)
from unskew.engines.gpu.sweeps import (
    DeviceFactors,
    DeviceSweepingSolver,
    factors_to_host,
    squared_norm,
)
from unskew.engines.gpu.torch_rows import DeviceRows, RowPenalty
from unskew.errors import UsageError
from unskew.factorization.als import best_constant
from unskew.factorization.engine import FitRequest, FitResult
from unskew.factorization.objective import NoUniqueSolutionError
from unskew.factorization.penalty import Penalty
from unskew.factorization.solution import Solution, minimize

SolveBlock: TypeAlias = Callable[
    [DeviceBlock, DeviceRows, float, RowPenalty], tuple[DeviceRows, torch.Tensor]
]
"""Solves all rows of a block, given the opposite rows: :func:`torch_rows.solve_block`."""
HOST_MEMORY = 1 << 33
"""Bytes that a fit may use on the CPU."""
SHARE_OF_FREE_MEMORY = 0.8
N_FACTOR_COPIES = 6
"""How many copies of all factors must fit on the device: those of the current and the previous
sweep, and the intermediate results of the solver."""


def fit_on_device(device_name: str | None, memory: int | None, request: FitRequest) -> FitResult:
    """Fit by the same sweeps as the local engine, from the same start to the same optimum."""
    if request.loss != "squared":
        raise UsageError(
            f"`engine='gpu'` fits squared loss, not {request.loss} loss.",
            parameter="loss",
            value=request.loss,
            remedy="Leave `engine` out, or use `loss='squared'`.",
        )
    device = find_device(device_name)
    like = torch.empty(0, dtype=getattr(torch, request.dtype), device=device)
    memory = _memory_for_log(device, request) if memory is None else memory
    by_user, by_item = sort_both_ways(request.log, request.weight, like=like, memory=memory)
    solver = DeviceSweeps(
        like,
        by_user,
        by_item,
        request.penalty,
        request.offsets != "none",
        choose_row_solver(like, request.n_factors),
    )
    total_weight, total_rating = by_user.totals  # waits until the log is sorted
    mean = total_rating / total_weight
    with ThreadPoolExecutor(1) as pool:
        items = pool.submit(_copy_during_fit, by_user.opposite)
        solution = minimize(
            solver,
            request.make_start(mean),
            max_iter=request.max_iter,
            tol=request.tol,
            checkpoint=request.checkpoint,
            report=request.report,
        )
    factors = factors_to_host(solution.parameters)
    on_host = Solution(factors, solution.history, solution.stop_reason)
    return FitResult(on_host, mean, (by_user.starts.numpy(), items.result()))


def _memory_for_log(device: torch.device, request: FitRequest) -> int:
    """Bytes that the log may use in addition to the factors; an error if the factors do not fit."""
    free = torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else HOST_MEMORY
    n_rows = request.log.n_users + request.log.n_items
    needed = N_FACTOR_COPIES * n_rows * (request.n_factors + 1) * np.dtype(request.dtype).itemsize
    if needed > free:
        raise UsageError(
            f"the factors need {needed / 1e9:.1f} GB on {device}, which has {free / 1e9:.1f} GB "
            "free.",
            parameter="n_factors",
            value=request.n_factors,
            remedy="Use fewer factors or `dtype='float32'`, or leave `engine` out.",
        )
    return int(SHARE_OF_FREE_MEMORY * (free - needed))


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

    All sweeps are exact.
    """

    by_user: DeviceCells
    by_item: DeviceCells
    penalty: Penalty
    has_offsets: bool
    solve_block: SolveBlock

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
        user_penalty += penalty.global_offset * c**2
        if self.has_offsets:
            c = best_constant(c, offset_sum, self.by_item.totals[0], penalty)
        swept = DeviceFactors(users.factors, items.factors, users.offset, items.offset, c)
        return swept, minimum + user_penalty

    def _solve_rows(
        self, cells: DeviceCells, opposite: DeviceRows, global_offset: float
    ) -> tuple[DeviceRows, torch.Tensor]:
        """The best rows of a side, block by block, and their minima."""
        offset_ridge = self.penalty.of_offset(cells.side) if self.has_offsets else None
        penalty = RowPenalty(self.penalty.factors, offset_ridge)
        rows, minima = zip(
            *(
                self.solve_block(block, opposite, global_offset, penalty)
                for block in cells.blocks()
            ),
            strict=True,
        )
        if len(rows) == 1:
            return rows[0], minima[0]
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


def _copy_during_fit(tensor: torch.Tensor) -> Any:
    """The tensor as an array, copied by another thread while the device computes."""
    if tensor.device.type != "cuda":
        return to_host(tensor).copy()  # frees the pinned memory
    with torch.cuda.stream(torch.cuda.Stream(tensor.device)):
        return to_host(tensor)
