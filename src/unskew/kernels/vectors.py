"""The vector operations of the row solver, as numba intrinsics.

LLVM does not keep tiles of a matrix in registers by itself, so the inner loop of a Gram matrix in
plain numba has a tenth of this speed. All functions work on rows of C-contiguous two-dimensional
arrays whose width is a multiple of 8, in vectors of 256 bits: eight float32 or four float64
numbers. Tiles of Gram matrices and :func:`subtract_projection` use 512 bits if the processor has
them. No bounds are checked.
"""

# ruff: noqa: ARG001 - numba calls every intrinsic with a typing context and all arguments

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import accumulate
from typing import Any

from llvmlite import ir
from llvmlite.binding import get_host_cpu_features
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from unskew.kernels.intrinsics import prefetch

VECTOR_BITS = 256
CACHE_LINE = 64
"""Bytes of a cache line."""
BLOCK = 8
"""Widths of rows are multiples of this."""
RUN_COLUMNS = 24
"""Columns whose loads and stores are written out."""
N_SYSTEMS = 8
"""Systems that are solved together: each row of an (n, 8) array has one number of each."""
I32, I64 = ir.IntType(32), ir.IntType(64)


def has_wide_vectors() -> bool:
    """Whether this processor has vectors of 512 bits."""
    return bool(get_host_cpu_features().get("avx512f", False))


MAX_VECTOR_BITS = 512 if has_wide_vectors() else VECTOR_BITS
"""Bits of the widest vectors of this processor."""


class ArrayRows:
    """A two-dimensional array inside generated code."""

    def __init__(
        self, context: Any, builder: Any, array_type: Any, value: Any, bits: int = VECTOR_BITS
    ) -> None:
        array = context.make_array(array_type)(context, builder, value)
        self.builder, self.data = builder, array.data
        self.width = cgutils.unpack_tuple(builder, array.shape, 2)[1]
        self.number = context.get_value_type(array_type.dtype)
        self.lanes = bits // array_type.dtype.bitwidth
        self.vector = ir.VectorType(self.number, self.lanes)
        self.align = array_type.dtype.bitwidth // 8

    def row(self, index: Any) -> Any:
        """A pointer to the start of a row."""
        return self.builder.gep(self.data, [self.builder.mul(index, self.width)])

    def load(self, row: Any, column: Any) -> Any:
        """The vector at a column of a row."""
        loaded = self.builder.load(self._pointer(row, column))
        loaded.align = self.align
        return loaded

    def store(self, value: Any, row: Any, column: Any) -> None:
        """Write a vector to a column of a row."""
        self.builder.store(value, self._pointer(row, column)).align = self.align

    def broadcast(self, scalar: Any) -> Any:
        """A vector whose lanes are all ``scalar``."""
        undefined = ir.Constant(self.vector, ir.Undefined)
        first = self.builder.insert_element(undefined, scalar, I32(0))
        return self.builder.shuffle_vector(
            first, undefined, ir.Constant(ir.VectorType(I32, self.lanes), [0] * self.lanes)
        )

    def multiply_add(self, left: Any, right: Any, addend: Any) -> Any:
        """left * right + addend, rounded once."""
        function_type = ir.FunctionType(self.vector, [self.vector] * 3)
        name = f"llvm.fma.v{self.lanes}f{8 * self.align}"
        return self.builder.call(
            cgutils.get_or_insert_function(self.builder.module, function_type, name),
            [left, right, addend],
        )

    def lane_columns(self) -> list[Any]:
        """The columns at which the vectors of a row of systems start."""
        return [I64(column) for column in range(0, N_SYSTEMS, self.lanes)]

    def _pointer(self, row: Any, column: Any) -> Any:
        return self.builder.bitcast(self.builder.gep(row, [column]), self.vector.as_pointer())


def array_arguments(
    context: Any, builder: Any, signature: Any, values: Any, *indices: int, bits: int = VECTOR_BITS
) -> list[ArrayRows]:
    """The arrays among the arguments of an intrinsic, by their indices."""
    return [ArrayRows(context, builder, signature.args[k], values[k], bits) for k in indices]


def allocate_zeros(builder: Any, vector_type: Any) -> Any:
    """A variable for a vector, which holds zeros at first."""
    slot = cgutils.alloca_once(builder, vector_type)
    builder.store(ir.Constant(vector_type, [0.0] * vector_type.count), slot)
    return slot


def gram_tile(n_rows: int, *vectors: int) -> Callable[..., None]:
    """``tile(panel, n, top, left, gram)`` adds a tile of panel' panel to gram:

        gram[top + r, left + c] += sum over k < n of panel[k, top + r] * panel[k, left + c].

    ``vectors`` are the widths in bits of the vectors that make up the columns of the tile.
    ``n_rows`` times as many accumulators stay in registers, so there may be 16 of 256 bits or 32 of
    512 bits.
    """

    @intrinsic
    def tile(typing_context: Any, panel: Any, n: Any, top: Any, left: Any, gram: Any) -> Any:
        def emit_llvm(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            arrays = [
                array_arguments(context, builder, signature, arguments, 0, 4, bits=bits)
                for bits in vectors
            ]
            sources, targets = zip(*arrays, strict=True)
            n, top, left = arguments[1:4]
            shifts = accumulate((source.lanes for source in sources[:-1]), initial=0)
            columns = [builder.add(left, I64(shift)) for shift in shifts]
            sums = [
                [allocate_zeros(builder, source.vector) for source in sources]
                for _ in range(n_rows)
            ]
            with cgutils.for_range(builder, n, intp=I64) as loop:
                row = sources[0].row(loop.index)
                values = [
                    source.load(row, column)
                    for source, column in zip(sources, columns, strict=True)
                ]
                for r, row_slots in enumerate(sums):
                    scalar = builder.load(builder.gep(row, [builder.add(top, I64(r))]))
                    for slot, source, value in zip(row_slots, sources, values, strict=True):
                        builder.store(
                            source.multiply_add(
                                source.broadcast(scalar), value, builder.load(slot)
                            ),
                            slot,
                        )
            for r, row_slots in enumerate(sums):
                row = targets[0].row(builder.add(top, I64(r)))
                for slot, target, column in zip(row_slots, targets, columns, strict=True):
                    target.store(
                        builder.fadd(target.load(row, column), builder.load(slot)), row, column
                    )
            return context.get_dummy_value()

        return types.void(panel, types.int64, types.int64, types.int64, gram), emit_llvm

    return tile  # type: ignore[no-any-return]


@intrinsic
def copy_scaled(typing_context: Any, source: Any, i: Any, factor: Any, target: Any, k: Any) -> Any:
    """``target[k] = factor * source[i]``, in as many columns as both have."""

    def emit_llvm(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        one, other = array_arguments(context, builder, signature, arguments, 0, 3)
        row, target_row = one.row(arguments[1]), other.row(arguments[4])
        factors = one.broadcast(arguments[2])
        is_narrower = builder.icmp_signed("<", one.width, other.width)
        width = builder.select(is_narrower, one.width, other.width)
        for columns in _runs(builder, one, I64(0), width):
            scaled = [builder.fmul(factors, one.load(row, column)) for column in columns]
            for column, value in zip(columns, scaled, strict=True):
                other.store(value, target_row, column)
        return context.get_dummy_value()

    return types.void(source, types.int64, source.dtype, target, types.int64), emit_llvm


@intrinsic
def prefetch_for_read(typing_context: Any, source: Any, i: Any, n: Any) -> Any:
    """Load ``source[i, :n]`` into the cache before it is read."""

    def emit_llvm(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        (rows,) = array_arguments(context, builder, signature, arguments, 0)
        row, line_numbers = rows.row(arguments[1]), I64(CACHE_LINE // rows.align)
        with cgutils.for_range_slice(builder, I64(0), arguments[2], line_numbers, intp=I64) as (
            column,
            _,
        ):
            prefetch(builder, builder.gep(row, [column]), to_write=False)
        return context.get_dummy_value()

    return types.void(source, types.int64, types.int64), emit_llvm


@intrinsic
def add_scaled(
    typing_context: Any, source: Any, i: Any, factor: Any, target: Any, k: Any, left: Any
) -> Any:
    """``target[k, left:] += factor * source[i, left:]``; ``left`` is a multiple of 8."""

    def emit_llvm(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        one, other = array_arguments(context, builder, signature, arguments, 0, 3)
        row, target_row = one.row(arguments[1]), other.row(arguments[4])
        factors = one.broadcast(arguments[2])
        for columns in _runs(builder, one, arguments[5], one.width):
            sums = [
                one.multiply_add(factors, one.load(row, column), other.load(target_row, column))
                for column in columns
            ]
            for column, value in zip(columns, sums, strict=True):
                other.store(value, target_row, column)
        return context.get_dummy_value()

    return types.void(
        source, types.int64, source.dtype, target, types.int64, types.int64
    ), emit_llvm


@intrinsic
def dot(typing_context: Any, source: Any, i: Any, target: Any, k: Any) -> Any:
    """The sum over all columns of source[i] * target[k]; lanes are added last."""

    def emit_llvm(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        one, other = array_arguments(context, builder, signature, arguments, 0, 2)
        row, target_row = one.row(arguments[1]), other.row(arguments[3])
        slot = allocate_zeros(builder, one.vector)
        for columns in _runs(builder, one, I64(0), one.width):
            total = builder.load(slot)
            for column in columns:
                total = one.multiply_add(
                    one.load(row, column), other.load(target_row, column), total
                )
            builder.store(total, slot)
        return _add_lanes(builder, builder.load(slot))

    return source.dtype(source, types.int64, target, types.int64), emit_llvm


@intrinsic
def subtract_projection(
    typing_context: Any, panel: Any, start: Any, end: Any, target: Any, vectors: Any, i: Any, j: Any
) -> Any:
    """Residuals of a linear map: ``vectors[j] += sum over k of e[k] panel[k]``, where
    ``e[k] = target[k] - panel[k] . vectors[i]``.

    k runs from ``start`` to ``end``; returns ``sum e[k]^2``. Eight rows of the panel are handled at
    a time, so their number is a multiple of 8. Panel and vectors are a multiple of the widest
    vectors wide.
    """

    def emit_llvm(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        rows, columns = array_arguments(
            context, builder, signature, arguments, 0, 4, bits=MAX_VECTOR_BITS
        )
        _, start, end, target_array, _, i, j = arguments
        width, step = rows.width, I64(rows.lanes)
        direction, result = columns.row(i), columns.row(j)
        zeros = ir.Constant(rows.vector, [0.0] * rows.lanes)
        eight = ir.VectorType(rows.number, BLOCK)
        target_data = context.make_array(signature.args[3])(context, builder, target_array).data
        squares = allocate_zeros(builder, eight)
        sums = [cgutils.alloca_once(builder, rows.vector) for _ in range(BLOCK)]
        with cgutils.for_range_slice(builder, start, end, I64(BLOCK), intp=I64) as (first, _):
            panel_rows = [rows.row(builder.add(first, I64(k))) for k in range(BLOCK)]
            for slot in sums:
                builder.store(zeros, slot)
            with cgutils.for_range_slice(builder, I64(0), width, step, intp=I64) as (column, _):
                part = columns.load(direction, column)
                for row, slot in zip(panel_rows, sums, strict=True):
                    builder.store(
                        rows.multiply_add(rows.load(row, column), part, builder.load(slot)),
                        slot,
                    )
            targets = builder.load(
                builder.bitcast(builder.gep(target_data, [first]), eight.as_pointer())
            )
            targets.align = rows.align
            products = _add_lanes_of_each(builder, [builder.load(slot) for slot in sums])
            error = builder.fsub(targets, products)
            builder.store(builder.fadd(builder.load(squares), builder.fmul(error, error)), squares)
            errors = [rows.broadcast(builder.extract_element(error, I32(k))) for k in range(BLOCK)]
            with cgutils.for_range_slice(builder, I64(0), width, step, intp=I64) as (column, _):
                value = columns.load(result, column)
                for row, factor in zip(panel_rows, errors, strict=True):
                    value = rows.multiply_add(factor, rows.load(row, column), value)
                columns.store(value, result, column)
        return _add_lanes(builder, builder.load(squares))

    return panel.dtype(
        panel, types.int64, types.int64, target, vectors, types.int64, types.int64
    ), emit_llvm


def _add_lanes(builder: Any, vector: Any) -> Any:
    """The sum of the lanes of a vector."""
    lanes = [builder.extract_element(vector, I32(lane)) for lane in range(vector.type.count)]
    while len(lanes) > 1:
        lanes = [builder.fadd(lanes[j], lanes[j + len(lanes) // 2]) for j in range(len(lanes) // 2)]
    return lanes[0]


def _add_lanes_of_each(builder: Any, vectors: list[Any]) -> Any:
    """The sums of eight vectors of 4, 8 or 16 lanes each, as the lanes of one vector.

    Neighbours in pairs of vectors are added until eight numbers are left.
    """

    def shuffle(one: Any, other: Any, lanes: range) -> Any:
        return builder.shuffle_vector(
            one, other, ir.Constant(ir.VectorType(I32, len(lanes)), list(lanes))
        )

    n = vectors[0].type.count
    while len(vectors) > 1:
        pairs = list(zip(vectors[::2], vectors[1::2], strict=True))
        if n * len(vectors) > BLOCK:
            halves = [[shuffle(*pair, range(side, 2 * n, 2)) for side in (0, 1)] for pair in pairs]
            vectors = [builder.fadd(*half) for half in halves]
        else:
            vectors = [shuffle(*pair, range(2 * n)) for pair in pairs]
    if n > BLOCK:
        return builder.fadd(
            *(shuffle(vectors[0], vectors[0], range(side, n, 2)) for side in (0, 1))
        )
    return vectors[0]


@intrinsic
def interleave(
    typing_context: Any,
    sources: Any,
    first: Any,
    stride: Any,
    column: Any,
    packed: Any,
    target_row: Any,
) -> Any:
    """``packed[target_row + c, lane] = sources[first + lane * stride, column + c]`` for c < 8."""

    def emit_llvm(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        source, target = array_arguments(context, builder, signature, arguments, 0, 4)
        _, first, stride, column, _, target_row = arguments
        rows = [
            source.row(builder.add(first, builder.mul(I64(lane), stride)))
            for lane in range(N_SYSTEMS)
        ]
        for lane in range(0, N_SYSTEMS, source.lanes):
            for shift in range(0, BLOCK, source.lanes):
                index = builder.add(column, I64(shift))
                values = _transpose(
                    builder, [source.load(row, index) for row in rows[lane : lane + source.lanes]]
                )
                for c, value in enumerate(values):
                    target.store(
                        value, target.row(builder.add(target_row, I64(shift + c))), I64(lane)
                    )
        return context.get_dummy_value()

    return types.void(
        sources, types.int64, types.int64, types.int64, packed, types.int64
    ), emit_llvm


def _transpose(builder: Any, vectors: list[Any]) -> list[Any]:
    """Transpose a square of numbers whose rows are vectors, by perfect shuffles.

    Each shuffle halves the distance between the neighbours of a column.
    """
    n = len(vectors)
    low = [slot for pair in zip(range(n // 2), range(n, n + n // 2), strict=True) for slot in pair]
    for _ in range(n.bit_length() - 1):
        pairs = list(zip(vectors[: n // 2], vectors[n // 2 :], strict=True))
        vectors = [
            builder.shuffle_vector(
                one, other, ir.Constant(ir.VectorType(I32, n), [slot + shift for slot in low])
            )
            for one, other in pairs
            for shift in (0, n // 2)
        ]
    return vectors


@intrinsic
def invert_lanes(typing_context: Any, packed: Any, a: Any, inverses: Any, i: Any) -> Any:
    """``inverses[i] = 1 / packed[a]``, lane by lane."""

    def emit_llvm(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        source, target = array_arguments(context, builder, signature, arguments, 0, 2)
        one = source.broadcast(ir.Constant(source.number, 1.0))
        for column in source.lane_columns():
            inverse = builder.fdiv(one, source.load(source.row(arguments[1]), column))
            target.store(inverse, target.row(arguments[3]), column)
        return context.get_dummy_value()

    return types.void(packed, types.int64, inverses, types.int64), emit_llvm


def eliminate_lanes(n_pivots: int, n_targets: int) -> Callable[..., None]:
    """``eliminate(packed, target_rows, sources, n, inverses, i)`` subtracts pivots, lane by lane:

        packed[target_rows[g] + k - g]
            -= (packed[sources[j] + g] * inverses[i + j]) * packed[sources[j] + k]

    for targets g, g <= k < n, and pivots j. Targets are consecutive rows of a packed triangle, so
    each starts one column later. Several pivots at once read and write a target once, and several
    targets read a source once.
    """

    @intrinsic
    def eliminate(
        typing_context: Any,
        packed: Any,
        target_rows: Any,
        sources: Any,
        n: Any,
        inverses: Any,
        i: Any,
    ) -> Any:
        def emit_llvm(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            rows, scales = array_arguments(context, builder, signature, arguments, 0, 4)
            n, i = arguments[3], arguments[5]
            target_rows = cgutils.unpack_tuple(builder, arguments[1], n_targets)
            sources = cgutils.unpack_tuple(builder, arguments[2], n_pivots)
            columns = rows.lane_columns()

            def factor(target_row: int, pivot: int, column: Any) -> Any:
                source = rows.row(builder.add(sources[pivot], I64(target_row)))
                scale = scales.row(builder.add(i, I64(pivot)))
                return builder.fneg(
                    builder.fmul(rows.load(source, column), scales.load(scale, column))
                )

            factors = [
                [
                    [factor(target_row, pivot, column) for column in columns]
                    for pivot in range(n_pivots)
                ]
                for target_row in range(n_targets)
            ]

            def eliminate_column(k: Any, n_rows: int) -> None:
                """Subtract all pivots from column ``k`` of the first ``n_rows`` targets."""
                source_rows = [rows.row(builder.add(source, k)) for source in sources]
                for slot, column in enumerate(columns):
                    values = [rows.load(row, column) for row in source_rows]
                    for target_row in range(n_rows):
                        destination = rows.row(
                            builder.add(target_rows[target_row], builder.sub(k, I64(target_row)))
                        )
                        value = rows.load(destination, column)
                        for pivot in range(n_pivots):
                            value = rows.multiply_add(
                                factors[target_row][pivot][slot], values[pivot], value
                            )
                        rows.store(value, destination, column)

            for k in range(n_targets - 1):
                eliminate_column(I64(k), k + 1)
            with cgutils.for_range_slice(builder, I64(n_targets - 1), n, I64(1), intp=I64) as (
                k,
                _,
            ):
                eliminate_column(k, n_targets)
            return context.get_dummy_value()

        tuples = types.UniTuple(types.int64, n_targets), types.UniTuple(types.int64, n_pivots)
        return types.void(packed, *tuples, types.int64, inverses, types.int64), emit_llvm

    return eliminate  # type: ignore[no-any-return]


@intrinsic
def solve_lanes(
    typing_context: Any,
    packed: Any,
    right: Any,
    first: Any,
    n: Any,
    inverses: Any,
    solution: Any,
    i: Any,
) -> Any:
    """One step of back substitution, lane by lane.

    solution[i] = inverses[i] * (
        packed[right] - sum over k < n of packed[first + k] * solution[i + 1 + k]
    )
    """

    def emit_llvm(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        rows, scales, solved = array_arguments(context, builder, signature, arguments, 0, 4, 5)
        _, right, first, n, _, _, i = arguments
        columns = rows.lane_columns()
        sums = [cgutils.alloca_once(builder, rows.vector) for _ in columns]
        for slot, column in zip(sums, columns, strict=True):
            builder.store(rows.load(rows.row(right), column), slot)
        with cgutils.for_range(builder, n, intp=I64) as loop:
            packed_row = rows.row(builder.add(first, loop.index))
            solved_row = solved.row(builder.add(builder.add(i, I64(1)), loop.index))
            for slot, column in zip(sums, columns, strict=True):
                negative = builder.fneg(rows.load(packed_row, column))
                builder.store(
                    rows.multiply_add(
                        negative, solved.load(solved_row, column), builder.load(slot)
                    ),
                    slot,
                )
        for slot, column in zip(sums, columns, strict=True):
            value = builder.fmul(builder.load(slot), scales.load(scales.row(i), column))
            solved.store(value, solved.row(i), column)
        return context.get_dummy_value()

    return types.void(
        packed, types.int64, types.int64, types.int64, inverses, solution, types.int64
    ), emit_llvm


def _runs(builder: Any, rows: ArrayRows, left: Any, width: Any) -> Iterator[list[Any]]:
    """Code for the columns ``left`` to ``width``: a loop over runs of 24 columns, then steps of 8.

    Written-out loads and stores overlap; a loop vector by vector took three times as long.
    """
    in_runs = builder.sub(width, builder.urem(builder.sub(width, left), I64(RUN_COLUMNS)))
    for first, end, step in ((left, in_runs, RUN_COLUMNS), (in_runs, width, BLOCK)):
        with cgutils.for_range_slice(builder, first, end, I64(step), intp=I64) as (column, _):
            yield [builder.add(column, I64(shift)) for shift in range(0, step, rows.lanes)]
