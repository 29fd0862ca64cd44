"""The three vector operations that the row solver is made of, as intrinsics for numba.

LLVM does not block registers by itself, so that the inner loop of a Gram matrix written in plain numba reaches a tenth of what
these do. All work on rows of C-contiguous two-dimensional arrays whose width is a multiple of 8, in vectors of 256 bits: eight
float32 or four float64. Nothing is checked: callers keep to the bounds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

VECTOR_BITS = 256
BLOCK = 8
"""Widths of lines are multiples of it."""
SIDE_BY_SIDE = 8
"""Systems solved together: a line of a (lines, 8) array holds one number of each."""
I32, I64 = ir.IntType(32), ir.IntType(64)


class Rows:
    """A two-dimensional array inside generated code: pointers to rows, vectors at columns."""

    def __init__(self, context: Any, builder: Any, array_type: Any, value: Any) -> None:
        array = context.make_array(array_type)(context, builder, value)
        self.builder, self.data = builder, array.data
        self.width = cgutils.unpack_tuple(builder, array.shape, 2)[1]
        self.number = context.get_value_type(array_type.dtype)
        self.lanes = VECTOR_BITS // array_type.dtype.bitwidth
        self.vector = ir.VectorType(self.number, self.lanes)
        self.align = array_type.dtype.bitwidth // 8

    def row(self, index: Any) -> Any:
        """Pointer to the start of a row."""
        return self.builder.gep(self.data, [self.builder.mul(index, self.width)])

    def load(self, row: Any, column: Any) -> Any:
        """The vector at a column of a row."""
        loaded = self.builder.load(self._at(row, column))
        loaded.align = self.align
        return loaded

    def store(self, value: Any, row: Any, column: Any) -> None:
        """Write the vector at a column of a row."""
        self.builder.store(value, self._at(row, column)).align = self.align

    def spread(self, scalar: Any) -> Any:
        """A vector of one number."""
        nothing = ir.Constant(self.vector, ir.Undefined)
        first = self.builder.insert_element(nothing, scalar, I32(0))
        return self.builder.shuffle_vector(first, nothing, ir.Constant(ir.VectorType(I32, self.lanes), [0] * self.lanes))

    def multiply_add(self, left: Any, right: Any, addend: Any) -> Any:
        """Left * right + addend, rounded once."""
        kind = ir.FunctionType(self.vector, [self.vector] * 3)
        name = f"llvm.fma.v{self.lanes}f{VECTOR_BITS // self.lanes}"
        return self.builder.call(cgutils.get_or_insert_function(self.builder.module, kind, name), [left, right, addend])

    def lane_columns(self) -> list[Any]:
        """Where the vectors of a line of systems side by side start."""
        return [I64(column) for column in range(0, SIDE_BY_SIDE, self.lanes)]

    def _at(self, row: Any, column: Any) -> Any:
        return self.builder.bitcast(self.builder.gep(row, [column]), self.vector.as_pointer())


def gram_tile(n_rows: int, n_vectors: int) -> Callable[..., None]:
    """``tile(panel, n, top, left, gram)``: gram[top + r, left + c] += sum_k panel[k, top + r] * panel[k, left + c].

    ``n_rows`` x ``n_vectors`` accumulators stay in registers over the whole sum.
    """

    @intrinsic
    def tile(typing_context: Any, panel: Any, n: Any, top: Any, left: Any, gram: Any) -> Any:  # noqa: ARG001
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            source = Rows(context, builder, signature.args[0], arguments[0])
            target = Rows(context, builder, signature.args[4], arguments[4])
            n, top, left = arguments[1:4]
            columns = [builder.add(left, I64(v * source.lanes)) for v in range(n_vectors)]
            zero = ir.Constant(source.vector, [0.0] * source.lanes)
            sums = [[cgutils.alloca_once(builder, source.vector) for _ in columns] for _ in range(n_rows)]
            for place in (place for line in sums for place in line):
                builder.store(zero, place)
            with cgutils.for_range(builder, n, intp=I64) as loop:
                row = source.row(loop.index)
                vectors = [source.load(row, column) for column in columns]
                for r, line in enumerate(sums):
                    scalar = source.spread(builder.load(builder.gep(row, [builder.add(top, I64(r))])))
                    for place, vector in zip(line, vectors, strict=True):
                        builder.store(source.multiply_add(scalar, vector, builder.load(place)), place)
            for r, line in enumerate(sums):
                row = target.row(builder.add(top, I64(r)))
                for place, column in zip(line, columns, strict=True):
                    target.store(builder.fadd(target.load(row, column), builder.load(place)), row, column)
            return context.get_dummy_value()

        return types.void(panel, types.int64, types.int64, types.int64, gram), generate

    return tile  # type: ignore[no-any-return]


@intrinsic
def copy_scaled(typing_context: Any, source: Any, i: Any, factor: Any, target: Any, k: Any) -> Any:  # noqa: ARG001
    """``target[k] = factor * source[i]``."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        one = Rows(context, builder, signature.args[0], arguments[0])
        other = Rows(context, builder, signature.args[3], arguments[3])
        row, goal = one.row(arguments[1]), other.row(arguments[4])
        factors = one.spread(arguments[2])
        with _columns(builder, one, I64(0)) as column:
            other.store(builder.fmul(factors, one.load(row, column)), goal, column)
        return context.get_dummy_value()

    return types.void(source, types.int64, source.dtype, target, types.int64), generate


@intrinsic
def add_scaled(typing_context: Any, source: Any, i: Any, factor: Any, target: Any, k: Any, left: Any) -> Any:  # noqa: ARG001
    """``target[k, left:] += factor * source[i, left:]``; ``left`` is a multiple of 8."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        one = Rows(context, builder, signature.args[0], arguments[0])
        other = Rows(context, builder, signature.args[3], arguments[3])
        row, goal = one.row(arguments[1]), other.row(arguments[4])
        factors = one.spread(arguments[2])
        with _columns(builder, one, arguments[5]) as column:
            other.store(one.multiply_add(factors, one.load(row, column), other.load(goal, column)), goal, column)
        return context.get_dummy_value()

    return types.void(source, types.int64, source.dtype, target, types.int64, types.int64), generate


@intrinsic
def dot(typing_context: Any, source: Any, i: Any, target: Any, k: Any) -> Any:  # noqa: ARG001
    """Sum over all columns of source[i] * target[k], lanes added last."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        one = Rows(context, builder, signature.args[0], arguments[0])
        other = Rows(context, builder, signature.args[2], arguments[2])
        row, goal = one.row(arguments[1]), other.row(arguments[3])
        place = cgutils.alloca_once(builder, one.vector)
        builder.store(ir.Constant(one.vector, [0.0] * one.lanes), place)
        with _columns(builder, one, I64(0)) as column:
            builder.store(one.multiply_add(one.load(row, column), other.load(goal, column), builder.load(place)), place)
        total = builder.load(place)
        lanes = [builder.extract_element(total, I32(lane)) for lane in range(one.lanes)]
        while len(lanes) > 1:
            lanes = [builder.fadd(lanes[j], lanes[j + len(lanes) // 2]) for j in range(len(lanes) // 2)]
        return lanes[0]

    return source.dtype(source, types.int64, target, types.int64), generate


@intrinsic
def invert_lanes(typing_context: Any, lines: Any, a: Any, inverses: Any, i: Any) -> Any:  # noqa: ARG001
    """``inverses[i] = 1 / lines[a]``, lane by lane."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        source, target = (Rows(context, builder, signature.args[at], arguments[at]) for at in (0, 2))
        one = source.spread(ir.Constant(source.number, 1.0))
        for column in source.lane_columns():
            inverse = builder.fdiv(one, source.load(source.row(arguments[1]), column))
            target.store(inverse, target.row(arguments[3]), column)
        return context.get_dummy_value()

    return types.void(lines, types.int64, inverses, types.int64), generate


@intrinsic
def eliminate_lanes(typing_context: Any, lines: Any, goal: Any, source: Any, n: Any, inverses: Any, i: Any) -> Any:  # noqa: ARG001
    """``lines[goal + k] -= (lines[source] * inverses[i]) * lines[source + k]`` for k < n, lane by lane."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        rows, scales = (Rows(context, builder, signature.args[at], arguments[at]) for at in (0, 4))
        _, goal, source, n, _, i = arguments
        columns = rows.lane_columns()
        head = rows.row(source)
        factors = [builder.fneg(builder.fmul(rows.load(head, at), scales.load(scales.row(i), at))) for at in columns]
        with cgutils.for_range(builder, n, intp=I64) as loop:
            to, by = rows.row(builder.add(goal, loop.index)), rows.row(builder.add(source, loop.index))
            for column, factor in zip(columns, factors, strict=True):
                rows.store(rows.multiply_add(factor, rows.load(by, column), rows.load(to, column)), to, column)
        return context.get_dummy_value()

    return types.void(lines, types.int64, types.int64, types.int64, inverses, types.int64), generate


@intrinsic
def solve_lanes(typing_context: Any, lines: Any, right: Any, first: Any, n: Any, inverses: Any, solution: Any, i: Any) -> Any:  # noqa: ARG001
    """``solution[i] = inverses[i] * (lines[right] - sum over k < n of lines[first + k] * solution[i + 1 + k])``, lane by lane."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        rows, scales, solved = (Rows(context, builder, signature.args[at], arguments[at]) for at in (0, 4, 5))
        _, right, first, n, _, _, i = arguments
        columns = rows.lane_columns()
        sums = [cgutils.alloca_once(builder, rows.vector) for _ in columns]
        for place, column in zip(sums, columns, strict=True):
            builder.store(rows.load(rows.row(right), column), place)
        with cgutils.for_range(builder, n, intp=I64) as loop:
            by = rows.row(builder.add(first, loop.index))
            known = solved.row(builder.add(builder.add(i, I64(1)), loop.index))
            for place, column in zip(sums, columns, strict=True):
                negative = builder.fneg(rows.load(by, column))
                builder.store(rows.multiply_add(negative, solved.load(known, column), builder.load(place)), place)
        for place, column in zip(sums, columns, strict=True):
            value = builder.fmul(builder.load(place), scales.load(scales.row(i), column))
            solved.store(value, solved.row(i), column)
        return context.get_dummy_value()

    return types.void(lines, types.int64, types.int64, types.int64, inverses, solution, types.int64), generate


@contextmanager
def _columns(builder: Any, rows: Rows, left: Any) -> Iterator[Any]:
    """A loop over the columns from ``left`` on at which vectors start."""
    with cgutils.for_range_slice(builder, left, rows.width, I64(rows.lanes), intp=I64) as (column, _):
        yield column
