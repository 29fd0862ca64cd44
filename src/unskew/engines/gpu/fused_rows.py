"""The ridge regressions of all rows in one Triton kernel.

A program gathers the cells of a row, adds them up and solves for the row. Factors and offset are
solved separately. With A = sum w x x' + ridge and s = sum w x over the row, the systems
A z1 = sum w x t and A z2 = s give the offset

    a = (sum w t - s . z1) / (sum w + ridge_a - s . z2)

and the factors z1 - a z2. So a tile has the width of the factors alone, and 64 factors need no
padding for the offset.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

from unskew.engines.gpu.cells import DeviceBlock
from unskew.engines.gpu.torch_rows import DeviceRows, RowPenalty

WIDE = 32
"""Up to this many columns a tile is the work of one warp, on 32 cells at a time; a wider tile is
that of two warps, on 16 cells. Measured on an H200."""


@triton.jit
def _solve(
    A, st, sx, s1, sy, syy, row, out, out_offset, minima, ridge, ridge_offset,
    d: tl.constexpr, D: tl.constexpr, OFFSET: tl.constexpr,
):  # fmt: skip
    """Solve A z = st and A z2 = sx by Gauss-Jordan elimination; a row without weight gets zeros.

    The multipliers replace the column of the pivot (the sweep operator). So a column equals its
    row of the tile up to the sign and the pivots already used, and only rows have to be read from
    the tile.
    """
    c = tl.arange(0, D)
    on_diagonal = c[:, None] == c[None, :]
    A += tl.where(on_diagonal, tl.where(c < d, ridge, 1.0)[:, None], 0.0)
    b1, b2 = st, sx
    pivots = tl.zeros((D,), tl.float32) + 1.0
    for j in range(d):
        tile_row = tl.sum(tl.where(c[:, None] == j, A, 0.0), 0)
        pivot = tl.sum(tl.where(c == j, tile_row, 0.0), 0)
        pivot = tl.where(pivot == 0, 1.0, pivot)  # a row without cells and without penalty
        factor = tl.where(c == j, 0.0, tl.where(c < j, -tile_row * pivots, tile_row) / pivot)
        A -= factor[:, None] * tl.where(c == j, 0.0, tile_row)[None, :]
        A = tl.where(c[None, :] == j, -factor[:, None], A)
        pivots = tl.where(c == j, pivot, pivots)
        b1 -= factor * tl.sum(tl.where(c == j, b1, 0.0), 0)
        if OFFSET:
            b2 -= factor * tl.sum(tl.where(c == j, b2, 0.0), 0)
    z = b1 / pivots
    minimum = syy - tl.sum(st * z, 0)
    if OFFSET:
        z2 = b2 / pivots
        left = s1 + ridge_offset - tl.sum(sx * z2, 0)
        right = sy - tl.sum(sx * z, 0)
        a = tl.where(s1 > 0, right / left, 0.0)
        z -= a * z2
        minimum -= right * a
        tl.store(out_offset + row, a)
    tl.store(out + row * d + c, z, mask=c < d)
    tl.store(minima + row, minimum)


@triton.jit
def _solve_pieces(
    piece_row, piece_first, piece_end, piece_slot, opposite, root_weight, rating, factors, offset,
    constant, sums, out, out_offset, minima, ridge, ridge_offset,
    d: tl.constexpr, D: tl.constexpr, K: tl.constexpr, OFFSET: tl.constexpr,
):  # fmt: skip
    """One program adds up one piece, and solves for its row if the row has no other piece."""
    piece = tl.program_id(0)
    row, slot = tl.load(piece_row + piece), tl.load(piece_slot + piece)
    first, end = tl.load(piece_first + piece), tl.load(piece_end + piece)
    c, k = tl.arange(0, D), tl.arange(0, K)
    A = tl.zeros((D, D), tl.float32)
    st, sx = tl.zeros((D,), tl.float32), tl.zeros((D,), tl.float32)
    s1, sy, syy = 0.0, 0.0, 0.0
    for start in range(first, end, K):
        cell = start + k
        is_inside = cell < end
        i = tl.load(opposite + cell, mask=is_inside, other=0).to(tl.int64)
        w = tl.load(root_weight + cell, mask=is_inside, other=0.0)
        t = tl.load(rating + cell, mask=is_inside, other=0.0) - constant
        if OFFSET:
            t -= tl.load(offset + i, mask=is_inside, other=0.0)
        x = tl.load(
            factors + i[:, None] * d + c[None, :],
            mask=is_inside[:, None] & (c < d)[None, :],
            other=0.0,
        )
        x *= w[:, None]
        t *= w
        A = tl.dot(tl.trans(x), x, A, input_precision="ieee")
        st += tl.sum(x * t[:, None], 0)
        syy += tl.sum(t * t, 0)
        if OFFSET:
            sx += tl.sum(x * w[:, None], 0)
            s1 += tl.sum(w * w, 0)
            sy += tl.sum(t * w, 0)
    if slot < 0:
        _solve(
            A, st, sx, s1, sy, syy, row, out, out_offset, minima, ridge, ridge_offset, d, D, OFFSET
        )
    else:
        piece_sums = sums + slot * (D * D + 2 * D + 3)
        tl.store(piece_sums + c[:, None] * D + c[None, :], A)
        tl.store(piece_sums + D * D + c, st)
        tl.store(piece_sums + D * D + D + c, sx)
        tl.store(piece_sums + D * D + 2 * D, s1)
        tl.store(piece_sums + D * D + 2 * D + 1, sy)
        tl.store(piece_sums + D * D + 2 * D + 2, syy)


@triton.jit
def _solve_long_rows(
    long_row, long_start, sums, out, out_offset, minima, ridge, ridge_offset,
    d: tl.constexpr, D: tl.constexpr, OFFSET: tl.constexpr,
):  # fmt: skip
    """One program adds the sums of the pieces of a long row, in order, and solves for the row."""
    index = tl.program_id(0)
    row = tl.load(long_row + index)
    c = tl.arange(0, D)
    A = tl.zeros((D, D), tl.float32)
    st, sx = tl.zeros((D,), tl.float32), tl.zeros((D,), tl.float32)
    s1, sy, syy = 0.0, 0.0, 0.0
    for slot in range(tl.load(long_start + index), tl.load(long_start + index + 1)):
        piece_sums = sums + slot.to(tl.int64) * (D * D + 2 * D + 3)
        A += tl.load(piece_sums + c[:, None] * D + c[None, :])
        st += tl.load(piece_sums + D * D + c)
        sx += tl.load(piece_sums + D * D + D + c)
        s1 += tl.load(piece_sums + D * D + 2 * D)
        sy += tl.load(piece_sums + D * D + 2 * D + 1)
        syy += tl.load(piece_sums + D * D + 2 * D + 2)
    _solve(A, st, sx, s1, sy, syy, row, out, out_offset, minima, ridge, ridge_offset, d, D, OFFSET)


def solve_block(
    block: DeviceBlock, opposite: DeviceRows, global_offset: float, penalty: RowPenalty
) -> tuple[DeviceRows, torch.Tensor]:
    """The same as :func:`unskew.engines.gpu.torch_rows.solve_block`, in float32."""
    n_factors, pieces = opposite.n_factors, block.pieces
    tile = max(16, triton.next_power_of_2(n_factors))
    factors = opposite.factors.new_empty(block.n_rows, n_factors)
    offset = opposite.offset.new_zeros(block.n_rows)
    minima = opposite.offset.new_empty(block.n_rows)
    sums = opposite.offset.new_empty(max(1, pieces.n_slots) * (tile * tile + 2 * tile + 3))
    outputs = factors, offset, minima, penalty.factors, penalty.offset or 0.0
    options: dict[str, Any] = {
        "d": n_factors,
        "D": tile,
        "OFFSET": penalty.offset is not None,
        "num_warps": 1 if tile <= WIDE else 2,
    }
    with torch.cuda.device(block.device):  # Triton launches on the current device
        _solve_pieces[(pieces.row.numel(),)](
            pieces.row,
            pieces.first,
            pieces.end,
            pieces.slot,
            block.opposite,
            block.root_weight,
            block.rating,
            opposite.factors.contiguous(),
            opposite.offset.contiguous(),
            global_offset,
            sums,
            *outputs,
            K=32 if tile <= WIDE else 16,
            **options,
        )
        if pieces.n_slots:
            _solve_long_rows[(pieces.long_row.numel(),)](
                pieces.long_row, pieces.long_start, sums, *outputs, **options
            )
    return DeviceRows(factors, offset), minima.double()
