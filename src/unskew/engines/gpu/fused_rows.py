"""The weighted ridge regressions of all rows in one Triton kernel: cells are gathered, added up and solved for in place.

Factors and the offset are solved apart: with A and s the sums over a row of w x x' and w x, and ridge in A, the two systems
A z1 = sum w x t and A z2 = s give the offset a = (sum w t - s . z1) / (sum w + ridge_a - s . z2) and the factors z1 - a z2. So a
tile has the width of the factors alone, and 64 of them need no padding for the offset's sake.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

from unskew.engines.gpu.sides import Block
from unskew.engines.gpu.torch_rows import Penalty, Rows

WIDE = 32
"""Tiles of so many columns are one warp's work, on 32 cells at a time; wider ones that of two, on 16. Measured on an H200."""


@triton.jit
def _solve(
    A,
    st,
    sx,
    s1,
    sy,
    syy,
    row,
    out,
    out_offset,
    minima,
    ridge,
    ridge_offset,
    d: tl.constexpr,
    D: tl.constexpr,
    OFFSET: tl.constexpr,
):
    """Gauss-Jordan elimination of a tile with two right-hand sides; a row without a weight gets zeros.

    What is eliminated is kept in the pivot's column (the sweep operator), so that a column is the same as its line up to the sign
    and the pivots already used, and only lines have to be picked out of the tile.
    """
    c = tl.arange(0, D)
    on_diagonal = c[:, None] == c[None, :]
    A += tl.where(on_diagonal, tl.where(c < d, ridge, 1.0)[:, None], 0.0)
    b1, b2 = st, sx
    pivots = tl.zeros((D,), tl.float32) + 1.0
    for j in range(d):
        line = tl.sum(tl.where(c[:, None] == j, A, 0.0), 0)
        pivot = tl.sum(tl.where(c == j, line, 0.0), 0)
        pivot = tl.where(pivot == 0, 1.0, pivot)  # of a row without cells or penalty
        factor = tl.where(c == j, 0.0, tl.where(c < j, -line * pivots, line) / pivot)
        A -= factor[:, None] * tl.where(c == j, 0.0, line)[None, :]
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
    piece_row,
    piece_first,
    piece_end,
    piece_slot,
    opposite,
    root_weight,
    rating,
    factors,
    offset,
    constant,
    sums,
    out,
    out_offset,
    minima,
    ridge,
    ridge_offset,
    d: tl.constexpr,
    D: tl.constexpr,
    K: tl.constexpr,
    OFFSET: tl.constexpr,
):
    """One piece a program: its sums, and the row's solution where the piece is all of the row."""
    piece = tl.program_id(0)
    row, slot = tl.load(piece_row + piece), tl.load(piece_slot + piece)
    first, end = tl.load(piece_first + piece), tl.load(piece_end + piece)
    c, k = tl.arange(0, D), tl.arange(0, K)
    A = tl.zeros((D, D), tl.float32)
    st, sx = tl.zeros((D,), tl.float32), tl.zeros((D,), tl.float32)
    s1, sy, syy = 0.0, 0.0, 0.0
    for start in range(first, end, K):
        cell = start + k
        inside = cell < end
        i = tl.load(opposite + cell, mask=inside, other=0).to(tl.int64)
        w = tl.load(root_weight + cell, mask=inside, other=0.0)
        t = tl.load(rating + cell, mask=inside, other=0.0) - constant
        if OFFSET:
            t -= tl.load(offset + i, mask=inside, other=0.0)
        x = tl.load(
            factors + i[:, None] * d + c[None, :],
            mask=inside[:, None] & (c < d)[None, :],
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
        place = sums + slot * (D * D + 2 * D + 3)
        tl.store(place + c[:, None] * D + c[None, :], A)
        tl.store(place + D * D + c, st)
        tl.store(place + D * D + D + c, sx)
        tl.store(place + D * D + 2 * D, s1)
        tl.store(place + D * D + 2 * D + 1, sy)
        tl.store(place + D * D + 2 * D + 2, syy)


@triton.jit
def _solve_long_rows(
    long_row,
    long_start,
    sums,
    out,
    out_offset,
    minima,
    ridge,
    ridge_offset,
    d: tl.constexpr,
    D: tl.constexpr,
    OFFSET: tl.constexpr,
):
    """The sums of a long row's pieces, added in their order, and its solution."""
    at = tl.program_id(0)
    row = tl.load(long_row + at)
    c = tl.arange(0, D)
    A = tl.zeros((D, D), tl.float32)
    st, sx = tl.zeros((D,), tl.float32), tl.zeros((D,), tl.float32)
    s1, sy, syy = 0.0, 0.0, 0.0
    for slot in range(tl.load(long_start + at), tl.load(long_start + at + 1)):
        place = sums + slot.to(tl.int64) * (D * D + 2 * D + 3)
        A += tl.load(place + c[:, None] * D + c[None, :])
        st += tl.load(place + D * D + c)
        sx += tl.load(place + D * D + D + c)
        s1 += tl.load(place + D * D + 2 * D)
        sy += tl.load(place + D * D + 2 * D + 1)
        syy += tl.load(place + D * D + 2 * D + 2)
    _solve(A, st, sx, s1, sy, syy, row, out, out_offset, minima, ridge, ridge_offset, d, D, OFFSET)


def solve_block(
    block: Block, opposite_rows: Rows, constant: float, penalty: Penalty
) -> tuple[Rows, torch.Tensor]:
    """As :func:`unskew.engines.gpu.torch_rows.solve_block` has it, in float32."""
    n_factors, has_offset, pieces = opposite_rows.n_factors, penalty.offset is not None, block.pieces
    tile = max(16, triton.next_power_of_2(n_factors))
    factors, offset = (
        opposite_rows.factors.new_empty(block.n_rows, n_factors),
        opposite_rows.offset.new_zeros(block.n_rows),
    )
    minima = opposite_rows.offset.new_empty(block.n_rows)
    sums = opposite_rows.offset.new_empty(max(1, pieces.n_slots) * (tile * tile + 2 * tile + 3))
    given = opposite_rows.factors.contiguous(), opposite_rows.offset.contiguous()
    found = factors, offset, minima, penalty.factors, penalty.offset or 0.0
    shape: dict[str, Any] = {
        "d": n_factors,
        "D": tile,
        "OFFSET": has_offset,
        "num_warps": 1 if tile <= WIDE else 2,
    }
    cut = pieces.row, pieces.first, pieces.end, pieces.slot
    columns = block.opposite, block.root_weight, block.rating
    _solve_pieces[(pieces.row.numel(),)](
        *cut, *columns, *given, constant, sums, *found, K=32 if tile <= WIDE else 16, **shape
    )
    if pieces.n_slots:
        _solve_long_rows[(pieces.long_row.numel(),)](
            pieces.long_row, pieces.long_start, sums, *found, **shape
        )
    return Rows(factors, offset), minima.double()
