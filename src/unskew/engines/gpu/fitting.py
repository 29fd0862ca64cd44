"""A fit on a device, from its log to its parameters."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from typing import Any

import numpy as np
import torch

from unskew.data.factors import Factors
from unskew.engines.gpu import cuda_rows, torch_rows
from unskew.engines.gpu.devices import array_of, device_named
from unskew.engines.gpu.sides import both_sides
from unskew.engines.gpu.sweeps import DeviceFactors, DeviceSweeps, SolveBlock
from unskew.engines.gpu.torch_rows import Penalty
from unskew.errors import UsageError
from unskew.factorization.engine import FitRequest, FitResult
from unskew.factorization.solution import Solution, minimize

HOST_MEMORY = 1 << 33
"""Bytes that a device without memory of its own may take."""
SHARE_OF_FREE_MEMORY = 0.8


def fit_on(name: str | None, memory_given: int | None, fit: FitRequest) -> FitResult:
    """The same sweeps as the local engine, to the same optimum, on the device of that name."""
    if fit.loss != "squared":
        raise UsageError(
            f"engine='gpu' fits squared loss; leave engine=... out for {fit.loss} loss."
        )
    device = device_named(name)
    like = torch.empty(0, dtype=getattr(torch, fit.dtype), device=device)
    memory = _memory(device, fit) if memory_given is None else memory_given
    users, items = both_sides(fit.log, fit.weight, like=like, memory=memory)
    offset = {"none": None, "free": 0.0, "regularized": fit.ridge}[fit.offsets]
    penalty, solve = Penalty(fit.ridge, offset), row_solver(like, fit.n_factors)
    sweeps = DeviceSweeps(users, items, penalty, fit.offsets == "regularized", solve, like)
    weight, rating = users.totals  # which waits for the sorted log
    mean = rating / weight
    settings: dict[str, Any] = {
        "max_iter": fit.max_iter,
        "tol": fit.tol,
        "checkpoint": fit.checkpoint,
        "report": fit.report,
    }
    with ThreadPoolExecutor(1) as aside:
        opposite = aside.submit(_array_meanwhile, users.opposite)
        outcome = minimize(sweeps, fit.make_start(mean), **settings)
        found = Solution(_on_host(outcome.parameters), outcome.history, outcome.stop_reason)
    return FitResult(found, mean, (users.starts.numpy(), opposite.result()))


def _memory(device: torch.device, fit: FitRequest) -> int:
    """What the log may take, beside the parameters; too little for these is refused."""
    free = torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else HOST_MEMORY
    parameters = (
        6 * (fit.log.n_users + fit.log.n_items) * (fit.n_factors + 1) * np.dtype(fit.dtype).itemsize
    )
    if parameters > free:
        raise UsageError(
            f"the factors need {parameters / 1e9:.1f} GB on {device}, which has {free / 1e9:.1f} GB free. "
            "Take fewer factors, dtype='float32', or leave engine=... out."
        )
    return int(SHARE_OF_FREE_MEMORY * (free - parameters))


def row_solver(like: torch.Tensor, n_factors: int) -> SolveBlock:
    """The fastest that can run: on the tensor cores, by Triton, or by torch's own operations."""
    if n_factors and n_factors <= cuda_rows.MOST_FACTORS and cuda_rows.can_run(like):
        return cuda_rows.solve_block
    if like.device.type == "cuda" and like.dtype == torch.float32 and find_spec("triton"):
        from unskew.engines.gpu import fused_rows

        return fused_rows.solve_block
    return torch_rows.solve_block


def _on_host(found: DeviceFactors) -> Factors:
    return Factors(
        array_of(found.user_factors),
        array_of(found.item_factors),
        array_of(found.user_offset),
        array_of(found.item_offset),
        found.global_offset,
    )


def _array_meanwhile(tensor: torch.Tensor) -> Any:
    """For a thread of its own: copied beside what the device computes."""
    if tensor.device.type != "cuda":
        return array_of(tensor).copy()  # not the memory that is locked for the device
    with torch.cuda.stream(torch.cuda.Stream(tensor.device)):
        return array_of(tensor)
