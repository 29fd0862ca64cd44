"""Two operations that numba cannot say, as intrinsics. Nothing is checked: callers keep to the bounds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from unskew.types import IntVector, Scores

LANES = 16
"""Values compared at once."""

I8, I32 = ir.IntType(8), ir.IntType(32)


def _count_lanes(typing_context: Any, values: Any, at: Any, score: Any) -> Any:  # noqa: ARG001
    """#{v > score} and #{v = score} among ``values[at:at + LANES]``, a C-contiguous vector; NaN counts as neither.

    Written as a loop over lanes, LLVM would make scalar code of it and vectorise the loop around it, which hardly ever runs
    more than once.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array = context.make_array(signature.args[0])(context, builder, arguments[0])
        vector = ir.VectorType(context.get_value_type(score), LANES)
        lanes = builder.load(
            builder.bitcast(builder.gep(array.data, [arguments[1]]), vector.as_pointer())
        )
        lanes.align = score.bitwidth // 8
        first = builder.insert_element(ir.Constant(vector, ir.Undefined), arguments[2], I32(0))
        spread = builder.shuffle_vector(
            first, first, ir.Constant(ir.VectorType(I32, LANES), [0] * LANES)
        )
        masks = (builder.fcmp_ordered(comparison, lanes, spread) for comparison in (">", "=="))
        counts = [
            builder.zext(builder.ctpop(builder.bitcast(mask, ir.IntType(LANES))), I32)
            for mask in masks
        ]
        return context.make_tuple(builder, signature.return_type, counts)

    return types.UniTuple(types.int32, 2)(values, types.uint64, score), generate  # type: ignore[no-untyped-call]


def _fetch_row(typing_context: Any, rows: Any, at: Any) -> Any:  # noqa: ARG001
    """Asks for ``rows[at]``, of a C-contiguous matrix, to be in cache when it is written a little later; changes nothing."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array = context.make_array(signature.args[0])(context, builder, arguments[0])
        width = cgutils.unpack_tuple(builder, array.shape, 2)[1]  # type: ignore[no-untyped-call]
        prefetch(
            builder, builder.gep(array.data, [builder.mul(arguments[1], width)]), to_write=True
        )
        return context.get_dummy_value()

    return types.void(rows, types.int64), generate


def prefetch(builder: Any, place: Any, *, to_write: bool) -> None:
    """Code that asks for the line of the cache around ``place``."""
    pointer = builder.bitcast(place, I8.as_pointer())
    kind = ir.FunctionType(ir.VoidType(), [pointer.type, I32, I32, I32])
    function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")  # type: ignore[no-untyped-call]
    keep, data = I32(3), I32(1)
    builder.call(function, [pointer, I32(int(to_write)), keep, data])


count_lanes = cast(
    Callable[[Scores, np.uint64, np.floating[Any]], tuple[np.int32, np.int32]],
    intrinsic(_count_lanes),
)
fetch_row = cast(Callable[[IntVector, int], None], intrinsic(_fetch_row))
