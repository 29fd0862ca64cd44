"""A fit on a device, from its log to its parameters."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import numpy as np
import torch

from unskew.engines.gpu import torch_rows
from unskew.engines.gpu.sides import both_sides
from unskew.engines.gpu.sweeps import DeviceSweeps, SolveBlock
from unskew.engines.gpu.torch_rows import Penalty
from unskew.errors import UsageError
from unskew.models.engine import Fit, Fitted
from unskew.models.parameters import Parameters
from unskew.models.run import Outcome, run

HOST_MEMORY = 1 << 33
"""Bytes that a device without memory of its own may take."""
SHARE_OF_FREE_MEMORY = 0.8


def fit_on(name: str | None, memory_given: int | None, fit: Fit) -> Fitted:
    """The same sweeps as the local engine, to the same optimum, on the device of that name."""
    if fit.loss != "squared":
        raise UsageError(f"engine='gpu' fits squared loss; leave engine=... out for {fit.loss} loss.")
    device = _device(name)
    like = torch.empty(0, dtype=getattr(torch, fit.dtype), device=device)
    memory = _memory(device, fit) if memory_given is None else memory_given
    users, items = both_sides(fit.log, fit.propensity, like=like, memory=memory)
    offset = {"none": None, "free": 0.0, "regularized": fit.l2}[fit.offsets]
    penalty, solve = Penalty(fit.l2, offset), row_solver(like)
    sweeps = DeviceSweeps(users, items, penalty, fit.offsets == "regularized", solve, like)
    outcome = run(sweeps, fit.begin, max_iter=fit.max_iter, tol=fit.tol, checkpoint=fit.checkpoint, report=fit.report)
    found = Outcome(_on_host(outcome.parameters), outcome.history, outcome.has_converged)
    return Fitted(found, (users.starts.numpy(), users.partner.cpu().numpy()))


def _device(name: str | None) -> torch.device:
    if name is not None:
        return torch.device(name)
    if not torch.cuda.is_available():
        raise UsageError(
            "engine='gpu' finds no CUDA device. Leave engine=... out to fit on the processors, "
            "or take GpuEngine(device='cpu') for the same code on them."
        )
    return torch.device("cuda")


def _memory(device: torch.device, fit: Fit) -> int:
    """What the log may take, beside the parameters; too little for these is refused."""
    free = torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else HOST_MEMORY
    parameters = 6 * (fit.log.n_users + fit.log.n_items) * (fit.n_factors + 1) * np.dtype(fit.dtype).itemsize
    if parameters > free:
        raise UsageError(
            f"the factors need {parameters / 1e9:.1f} GB on {device}, which has {free / 1e9:.1f} GB free. "
            "Take fewer factors, dtype='float32', or leave engine=... out."
        )
    return int(SHARE_OF_FREE_MEMORY * (free - parameters))


def row_solver(like: torch.Tensor) -> SolveBlock:
    """The fused kernel where it can run: on CUDA, in float32, with Triton."""
    if like.device.type == "cuda" and like.dtype == torch.float32 and find_spec("triton"):
        from unskew.engines.gpu import fused_rows

        return fused_rows.solve_block
    return torch_rows.solve_block


def _on_host(found: Parameters) -> Parameters:
    return Parameters(
        _array(found.user_factors),
        _array(found.item_factors),
        _array(found.user_offset),
        _array(found.item_offset),
        found.constant,
    )


def _array(tensor: Any) -> Any:
    return tensor.cpu().numpy()
