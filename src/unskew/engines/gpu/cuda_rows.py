"""The weighted ridge regressions of all rows on the tensor cores of an NVIDIA GPU: ``rows.cu``, compiled for the rank at hand."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple

import numpy as np
import torch

from unskew.engines.gpu.sides import Block
from unskew.engines.gpu.torch_rows import Penalty, Rows

TILE = 8
MOST_FACTORS = 64
"""A warp's registers hold no larger matrix."""
ROOM = 44_000
"""Bytes of shared memory of a block of threads."""


class Kernels(NamedTuple):
    """Compiled for a rank, with offsets or without."""

    pieces: Any
    long_rows: Any
    n_warps: int
    n_sums: int
    """Numbers that a piece of a long row leaves behind."""


def can_run(like: torch.Tensor) -> bool:
    """Whether this device has tensor cores for float32, and torch a compiler for it."""
    if (
        like.device.type != "cuda"
        or like.dtype != torch.float32
        or torch.version.hip
        or not hasattr(torch.cuda, "_compile_kernel")
    ):
        return False
    return torch.cuda.get_device_capability(like.device) >= (8, 0)


@cache
def kernels_for(n_factors: int, has_offset: bool, device: torch.device) -> Kernels:
    """Compiled at the first call: some seconds."""
    n_tiles = -(-n_factors // TILE)
    width, half = TILE * n_tiles, (n_tiles + 1) // 2
    n_warps = max(1, min(4, ROOM // (4 * width * (width + 13))))
    source = files(__package__).joinpath("rows.cu").read_text()
    sizes = {
        "N_FACTORS": n_factors,
        "N_TILES": n_tiles,
        "HAS_OFFSET": int(has_offset),
        "N_WARPS": n_warps,
    }
    options = [f"-D{name}={value}" for name, value in sizes.items()]
    with torch.cuda.device(device):
        pieces, long_rows = (
            torch.cuda._compile_kernel(source, name, nvcc_options=options)
            for name in ("solve_pieces", "solve_long_rows")
        )
    return Kernels(
        pieces, long_rows, n_warps, 32 * (4 * half * (n_tiles - half + 1) + 2 * n_tiles + 3)
    )


def solve_block(
    block: Block, opposite_rows: Rows, constant: float, penalty: Penalty
) -> tuple[Rows, torch.Tensor]:
    """As :func:`unskew.engines.gpu.torch_rows.solve_block` has it, in float32."""
    n_factors, pieces, device = opposite_rows.n_factors, block.pieces, opposite_rows.factors.device
    kernels = kernels_for(n_factors, penalty.offset is not None, device)
    lines = torch.nn.functional.pad(opposite_rows.factors, (0, -n_factors % TILE)).contiguous()
    factors, offset = lines.new_empty(block.n_rows, n_factors), lines.new_zeros(block.n_rows)
    minima, sums = (
        lines.new_empty(block.n_rows),
        lines.new_empty(max(1, pieces.n_slots) * kernels.n_sums),
    )
    found = sums, factors, offset, minima, _bits(penalty.factors), _bits(penalty.offset or 0.0)
    threads = (32 * kernels.n_warps, 1, 1)

    def grid(n: int) -> tuple[int, int, int]:
        return -(-n // kernels.n_warps), 1, 1

    with torch.cuda.device(device):
        cut = pieces.row, pieces.first, pieces.end, pieces.slot
        columns = block.opposite, block.root_weight, block.rating
        n = pieces.row.numel()
        kernels.pieces(
            grid(n),
            threads,
            [*cut, *columns, lines, opposite_rows.offset.contiguous(), _bits(constant), *found, n],
        )
        n = pieces.long_row.numel()
        if n:
            kernels.long_rows(grid(n), threads, [pieces.long_row, pieces.long_start, *found, n])
    return Rows(factors, offset), minima.double()


def _bits(value: float) -> int:
    """A float32 as an int: releases of torch have passed Python's floats in two widths."""
    return int(np.float32(value).view(np.int32))
