"""Two operations that numba cannot express, as intrinsics. No bounds are checked."""

# ruff: noqa: ARG001 - numba calls every intrinsic with a typing context and all arguments

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from unskew.types import IndexVector, Scores

LANES = 16
"""Values that are compared at once."""

I8, I32 = ir.IntType(8), ir.IntType(32)


def _count_lanes(typing_context: Any, values: Any, index: Any, score: Any) -> Any:
    """#{v > score} and #{v = score} among ``values[index:index + LANES]``; NaN counts as neither.

    ``values`` is a C-contiguous vector. LLVM makes scalar code of a loop over the lanes, and
    vectorises the loop around it, which rarely runs more than once.
    """

    def emit_llvm(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array = context.make_array(signature.args[0])(context, builder, arguments[0])
        vector = ir.VectorType(context.get_value_type(score), LANES)
        lanes = builder.load(
            builder.bitcast(builder.gep(array.data, [arguments[1]]), vector.as_pointer())
        )
        lanes.align = score.bitwidth // 8
        score_vector = builder.insert_element(
            ir.Constant(vector, ir.Undefined), arguments[2], I32(0)
        )
        broadcast = builder.shuffle_vector(
            score_vector, score_vector, ir.Constant(ir.VectorType(I32, LANES), [0] * LANES)
        )
        masks = (builder.fcmp_ordered(comparison, lanes, broadcast) for comparison in (">", "=="))
        counts = [
            builder.zext(builder.ctpop(builder.bitcast(mask, ir.IntType(LANES))), I32)
            for mask in masks
        ]
        return context.make_tuple(builder, signature.return_type, counts)

    counts = types.UniTuple(types.int32, 2)  # type: ignore[no-untyped-call]
    return counts(values, types.uint64, score), emit_llvm


def _prefetch_for_write(typing_context: Any, rows: Any, index: Any) -> Any:
    """Load ``rows[index]`` of a C-contiguous matrix into the cache before it is written."""

    def emit_llvm(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array = context.make_array(signature.args[0])(context, builder, arguments[0])
        width = cgutils.unpack_tuple(builder, array.shape, 2)[1]  # type: ignore[no-untyped-call]
        prefetch(
            builder, builder.gep(array.data, [builder.mul(arguments[1], width)]), to_write=True
        )
        return context.get_dummy_value()

    return types.void(rows, types.int64), emit_llvm


def prefetch(builder: Any, address: Any, *, to_write: bool) -> None:
    """Code that loads the cache line around ``address``."""
    pointer = builder.bitcast(address, I8.as_pointer())
    function_type = ir.FunctionType(ir.VoidType(), [pointer.type, I32, I32, I32])
    function = cgutils.get_or_insert_function(  # type: ignore[no-untyped-call]
        builder.module, function_type, "llvm.prefetch.p0"
    )
    keep, data = I32(3), I32(1)
    builder.call(function, [pointer, I32(int(to_write)), keep, data])


count_lanes = cast(
    Callable[[Scores, np.uint64, np.floating[Any]], tuple[np.int32, np.int32]],
    intrinsic(_count_lanes),
)
prefetch_for_write = cast(Callable[[IndexVector, int], None], intrinsic(_prefetch_for_write))
