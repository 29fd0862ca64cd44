"""A fit on a device: the sweeps of alternating least squares, with tensors in place of arrays."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import torch

from unskew.engines.gpu.cells import CellBlocks, find_devices, sort_both_ways, to_host
from unskew.engines.gpu.solving import DeviceLogLoss, DeviceSweeps, choose_row_solver
from unskew.engines.gpu.sweeps import factors_to_host
from unskew.errors import UsageError
from unskew.factorization.engine import FitRequest, FitResult
from unskew.factorization.solution import Solution, Solver, minimize

HOST_MEMORY = 1 << 33
"""Bytes that a fit may use on the CPU."""
SHARE_OF_FREE_MEMORY = 0.8
N_FACTOR_COPIES = 6
"""How many copies of all factors must fit on the device: those of the current and the previous
sweep, and the intermediate results of the solver."""


def fit_on_devices(
    device: str | Sequence[str] | None, memory: int | None, request: FitRequest
) -> FitResult:
    """Fit by the same sweeps as the local engine, from the same start to the same optimum.

    The rows of each side are divided among the devices. The first one keeps all factors.
    """
    if request.loss == "absolute":
        raise UsageError(
            "`engine='gpu'` fits squared loss and log loss, not absolute loss.",
            parameter="loss",
            value=request.loss,
            remedy="Leave `engine` out, or use `loss='squared'`.",
        )
    devices = find_devices(device)
    like = torch.empty(0, dtype=getattr(torch, request.dtype), device=devices[0])
    memory = memory_for_log(devices[0], request) if memory is None else memory
    by_user, by_item = sort_both_ways(request.log, request.weight, like=like, memory=memory)
    sides: tuple[CellBlocks, CellBlocks] = by_user, by_item
    if len(devices) > 1:
        sides = by_user.split(devices), by_item.split(devices)
    sweeps = DeviceSweeps(
        like,
        *sides,
        request.penalty,
        request.offsets != "none",
        choose_row_solver(like, request.n_factors),
        request.unobserved_weight,
        request.constant,
    )
    solver: Solver[Any, Any] = DeviceLogLoss(sweeps) if request.loss == "log" else sweeps
    total_weight, total_rating = sides[0].totals  # waits until the log is sorted
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


def memory_for_log(device: torch.device, request: FitRequest) -> int:
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


def _copy_during_fit(tensor: torch.Tensor) -> Any:
    """The tensor as an array, copied by another thread while the device computes."""
    if tensor.device.type != "cuda":
        return to_host(tensor).copy()  # frees the pinned memory
    with torch.cuda.stream(torch.cuda.Stream(tensor.device)):
        return to_host(tensor)
