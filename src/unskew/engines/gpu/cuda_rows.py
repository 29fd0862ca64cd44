"""The ridge regressions of all rows on the tensor cores of an NVIDIA GPU.

The kernels are in ``rows.cu`` and are compiled for each number of factors.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple

import numpy as np
import torch

from unskew.engines.gpu.cells import DeviceBlock
from unskew.engines.gpu.torch_rows import DeviceRows, RowPenalty

TILE = 8
MAX_FACTORS = 64
"""The registers of a warp hold no larger matrix."""
SHARED_MEMORY = 44_000
"""Bytes of shared memory that a block of threads may use."""


class CudaKernels(NamedTuple):
    """The kernels compiled for one number of factors, with or without offsets."""

    solve_pieces: Any
    solve_long_rows: Any
    n_warps: int
    n_sums: int
    """Numbers in the slot of a piece of a long row."""


def can_run(like: torch.Tensor) -> bool:
    """Whether the device has tensor cores for float32, and torch can compile kernels for it."""
    if like.device.type != "cuda" or like.dtype != torch.float32 or torch.version.hip:
        return False
    has_compiler = hasattr(torch.cuda, "_compile_kernel")
    return has_compiler and torch.cuda.get_device_capability(like.device) >= (8, 0)


@cache
def compile_kernels(n_factors: int, has_offset: bool, device: torch.device) -> CudaKernels:
    """Compile ``rows.cu``. The first call takes some seconds."""
    n_tiles = -(-n_factors // TILE)
    width, half = TILE * n_tiles, (n_tiles + 1) // 2
    n_warps = max(1, min(4, SHARED_MEMORY // (4 * width * (width + 13))))
    n_sums = 32 * (4 * half * (n_tiles - half + 1) + 2 * n_tiles + 3)
    source = files(__package__).joinpath("rows.cu").read_text()
    constants = {
        "N_FACTORS": n_factors,
        "N_TILES": n_tiles,
        "HAS_OFFSET": int(has_offset),
        "N_WARPS": n_warps,
    }
    options = [f"-D{name}={value}" for name, value in constants.items()]
    with torch.cuda.device(device):
        pieces, long_rows = (
            torch.cuda._compile_kernel(source, name, nvcc_options=options)
            for name in ("solve_pieces", "solve_long_rows")
        )
    return CudaKernels(pieces, long_rows, n_warps, n_sums)


def solve_block(
    block: DeviceBlock, opposite: DeviceRows, global_offset: float, penalty: RowPenalty
) -> tuple[DeviceRows, torch.Tensor]:
    """The same as :func:`unskew.engines.gpu.torch_rows.solve_block`, in float32."""
    n_factors, pieces, device = opposite.n_factors, block.pieces, opposite.factors.device
    kernels = compile_kernels(n_factors, penalty.offset is not None, device)
    padded = torch.nn.functional.pad(opposite.factors, (0, -n_factors % TILE)).contiguous()
    factors, offset = padded.new_empty(block.n_rows, n_factors), padded.new_zeros(block.n_rows)
    minima = padded.new_empty(block.n_rows)
    sums = padded.new_empty(max(1, pieces.n_slots) * kernels.n_sums)
    ridges = _as_bits(penalty.factors), _as_bits(penalty.offset or 0.0)
    outputs = sums, factors, offset, minima, *ridges
    threads = 32 * kernels.n_warps, 1, 1

    def grid(n: int) -> tuple[int, int, int]:
        return -(-n // kernels.n_warps), 1, 1

    with torch.cuda.device(device):
        n_pieces, n_long_rows = pieces.row.numel(), pieces.long_row.numel()
        arguments = [
            *(pieces.row, pieces.first, pieces.end, pieces.slot),
            *(block.opposite, block.root_weight, block.rating),
            *(padded, opposite.offset.contiguous(), _as_bits(global_offset)),
            *outputs,
            n_pieces,
        ]
        kernels.solve_pieces(grid(n_pieces), threads, arguments)
        if n_long_rows:
            arguments = [pieces.long_row, pieces.long_start, *outputs, n_long_rows]
            kernels.solve_long_rows(grid(n_long_rows), threads, arguments)
    return DeviceRows(factors, offset), minima.double()


def _as_bits(value: float) -> int:
    """The bits of a float32 as an integer: versions of torch pass floats in different widths."""
    return int(np.float32(value).view(np.int32))
