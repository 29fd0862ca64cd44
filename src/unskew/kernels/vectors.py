"""The vector operations that the row solver is made of, as intrinsics for numba.

LLVM does not block registers by itself, so that the inner loop of a Gram matrix written in plain numba reaches a tenth of what
these do. All work on rows of C-contiguous two-dimensional arrays whose width is a multiple of 8, in vectors of 256 bits: eight
float32 or four float64; tiles of Gram matrices, and :func:`leave`, in 512 bits, too, where there are such. Nothing is checked:
callers keep to the bounds.
"""

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
"""Bytes."""
BLOCK = 8
"""Widths of lines are multiples of it."""
RUN = 24
"""Columns whose loads and stores are written out."""
SIDE_BY_SIDE = 8
"""Systems solved together: a line of a (lines, 8) array holds one number of each."""
I32, I64 = ir.IntType(32), ir.IntType(64)


def has_wide_vectors() -> bool:
    """Whether this processor works on 512 bits at once."""
    return bool(get_host_cpu_features().get("avx512f", False))


WIDEST = 512 if has_wide_vectors() else VECTOR_BITS
"""Bits of the widest vectors there are."""


class Rows:
    """A two-dimensional array inside generated code: pointers to rows, vectors at columns."""

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
        return self.builder.shuffle_vector(
            first, nothing, ir.Constant(ir.VectorType(I32, self.lanes), [0] * self.lanes)
        )

    def multiply_add(self, left: Any, right: Any, addend: Any) -> Any:
        """Left * right + addend, rounded once."""
        kind = ir.FunctionType(self.vector, [self.vector] * 3)
        name = f"llvm.fma.v{self.lanes}f{8 * self.align}"
        return self.builder.call(
            cgutils.get_or_insert_function(self.builder.module, kind, name), [left, right, addend]
        )

    def lane_columns(self) -> list[Any]:
        """Where the vectors of a line of systems side by side start."""
        return [I64(column) for column in range(0, SIDE_BY_SIDE, self.lanes)]

    def _at(self, row: Any, column: Any) -> Any:
        return self.builder.bitcast(self.builder.gep(row, [column]), self.vector.as_pointer())


def gram_tile(n_rows: int, *vectors: int) -> Callable[..., None]:
    """``tile(panel, n, top, left, gram)``: gram[top + r, left + c] += sum_k panel[k, top + r] * panel[k, left + c].

    ``vectors`` are the widths in bits of the columns' vectors, side by side. ``n_rows`` times as many accumulators stay in
    registers over the whole sum, so that there may be 16 of 256 bits or 32 of 512.
    """

    @intrinsic
    def tile(typing_context: Any, panel: Any, n: Any, top: Any, left: Any, gram: Any) -> Any:  # noqa: ARG001
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            sources = [
                Rows(context, builder, signature.args[0], arguments[0], bits) for bits in vectors
            ]
            targets = [
                Rows(context, builder, signature.args[4], arguments[4], bits) for bits in vectors
            ]
            n, top, left = arguments[1:4]
            shifts = accumulate((source.lanes for source in sources[:-1]), initial=0)
            columns = [builder.add(left, I64(shift)) for shift in shifts]
            sums = [
                [cgutils.alloca_once(builder, source.vector) for source in sources]
                for _ in range(n_rows)
            ]
            for place, source in (
                (place, source)
                for line in sums
                for place, source in zip(line, sources, strict=True)
            ):
                builder.store(ir.Constant(source.vector, [0.0] * source.lanes), place)
            with cgutils.for_range(builder, n, intp=I64) as loop:
                row = sources[0].row(loop.index)
                values = [
                    source.load(row, column)
                    for source, column in zip(sources, columns, strict=True)
                ]
                for r, line in enumerate(sums):
                    scalar = builder.load(builder.gep(row, [builder.add(top, I64(r))]))
                    for place, source, value in zip(line, sources, values, strict=True):
                        builder.store(
                            source.multiply_add(source.spread(scalar), value, builder.load(place)),
                            place,
                        )
            for r, line in enumerate(sums):
                row = targets[0].row(builder.add(top, I64(r)))
                for place, target, column in zip(line, targets, columns, strict=True):
                    target.store(
                        builder.fadd(target.load(row, column), builder.load(place)), row, column
                    )
            return context.get_dummy_value()

        return types.void(panel, types.int64, types.int64, types.int64, gram), generate

    return tile  # type: ignore[no-any-return]


@intrinsic
def copy_scaled(typing_context: Any, source: Any, i: Any, factor: Any, target: Any, k: Any) -> Any:  # noqa: ARG001
    """``target[k] = factor * source[i]``, in as many columns as both have."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        one = Rows(context, builder, signature.args[0], arguments[0])
        other = Rows(context, builder, signature.args[3], arguments[3])
        row, goal = one.row(arguments[1]), other.row(arguments[4])
        factors, is_narrower = (
            one.spread(arguments[2]),
            builder.icmp_signed("<", one.width, other.width),
        )
        width = builder.select(is_narrower, one.width, other.width)
        for columns in _runs(builder, one, I64(0), width):
            scaled = [builder.fmul(factors, one.load(row, column)) for column in columns]
            for column, value in zip(columns, scaled, strict=True):
                other.store(value, goal, column)
        return context.get_dummy_value()

    return types.void(source, types.int64, source.dtype, target, types.int64), generate


@intrinsic
def fetch(typing_context: Any, source: Any, i: Any, n: Any) -> Any:  # noqa: ARG001
    """Asks for ``source[i, :n]`` to be in cache when it is read a little later; changes nothing."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        rows = Rows(context, builder, signature.args[0], arguments[0])
        row, a_line = rows.row(arguments[1]), I64(CACHE_LINE // rows.align)
        with cgutils.for_range_slice(builder, I64(0), arguments[2], a_line, intp=I64) as (
            column,
            _,
        ):
            prefetch(builder, builder.gep(row, [column]), to_write=False)
        return context.get_dummy_value()

    return types.void(source, types.int64, types.int64), generate


@intrinsic
def add_scaled(
    typing_context: Any, source: Any, i: Any, factor: Any, target: Any, k: Any, left: Any
) -> Any:  # noqa: ARG001
    """``target[k, left:] += factor * source[i, left:]``; ``left`` is a multiple of 8."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        one = Rows(context, builder, signature.args[0], arguments[0])
        other = Rows(context, builder, signature.args[3], arguments[3])
        row, goal = one.row(arguments[1]), other.row(arguments[4])
        factors = one.spread(arguments[2])
        for columns in _runs(builder, one, arguments[5], one.width):
            sums = [
                one.multiply_add(factors, one.load(row, column), other.load(goal, column))
                for column in columns
            ]
            for column, value in zip(columns, sums, strict=True):
                other.store(value, goal, column)
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
        for columns in _runs(builder, one, I64(0), one.width):
            total = builder.load(place)
            for column in columns:
                total = one.multiply_add(one.load(row, column), other.load(goal, column), total)
            builder.store(total, place)
        return _sum(builder, builder.load(place))

    return source.dtype(source, types.int64, target, types.int64), generate


@intrinsic
def leave(
    typing_context: Any, panel: Any, start: Any, end: Any, target: Any, lines: Any, i: Any, j: Any
) -> Any:  # noqa: ARG001
    """``lines[j] += sum e[k] panel[k]`` with ``e[k] = target[k] - panel[k] . lines[i]``, start <= k < end.

    Returns ``sum e[k]^2``. Eight rows of the panel at a time, so that there is a multiple of 8 of them, and in the widest vectors
    there are, so that panel and lines are as wide as a few of these.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        rows, by = (
            Rows(context, builder, signature.args[at], arguments[at], WIDEST) for at in (0, 4)
        )
        _, start, end, targets, _, i, j = arguments
        width, step = rows.width, I64(rows.lanes)
        direction, goal = by.row(i), by.row(j)
        nothing = ir.Constant(rows.vector, [0.0] * rows.lanes)
        eight = ir.VectorType(rows.number, BLOCK)
        given = context.make_array(signature.args[3])(context, builder, targets).data
        squares, sums = (
            cgutils.alloca_once(builder, eight),
            [cgutils.alloca_once(builder, rows.vector) for _ in range(BLOCK)],
        )
        builder.store(ir.Constant(eight, [0.0] * BLOCK), squares)
        with cgutils.for_range_slice(builder, start, end, I64(BLOCK), intp=I64) as (first, _):
            lines = [rows.row(builder.add(first, I64(k))) for k in range(BLOCK)]
            for place in sums:
                builder.store(nothing, place)
            with cgutils.for_range_slice(builder, I64(0), width, step, intp=I64) as (column, _):
                along = by.load(direction, column)
                for line, place in zip(lines, sums, strict=True):
                    builder.store(
                        rows.multiply_add(rows.load(line, column), along, builder.load(place)),
                        place,
                    )
            wanted = builder.load(builder.bitcast(builder.gep(given, [first]), eight.as_pointer()))
            wanted.align = rows.align
            error = builder.fsub(wanted, _sums(builder, [builder.load(place) for place in sums]))
            builder.store(builder.fadd(builder.load(squares), builder.fmul(error, error)), squares)
            errors = [rows.spread(builder.extract_element(error, I32(k))) for k in range(BLOCK)]
            with cgutils.for_range_slice(builder, I64(0), width, step, intp=I64) as (column, _):
                value = by.load(goal, column)
                for line, factor in zip(lines, errors, strict=True):
                    value = rows.multiply_add(factor, rows.load(line, column), value)
                by.store(value, goal, column)
        return _sum(builder, builder.load(squares))

    return panel.dtype(
        panel, types.int64, types.int64, target, lines, types.int64, types.int64
    ), generate


def _sum(builder: Any, vector: Any) -> Any:
    """Of its lanes."""
    lanes = [builder.extract_element(vector, I32(lane)) for lane in range(vector.type.count)]
    while len(lanes) > 1:
        lanes = [builder.fadd(lanes[j], lanes[j + len(lanes) // 2]) for j in range(len(lanes) // 2)]
    return lanes[0]


def _sums(builder: Any, vectors: list[Any]) -> Any:
    """The sums of eight vectors, as the lanes of one: neighbours in pairs of vectors are added until there are eight numbers."""

    def picked(one: Any, other: Any, lanes: range) -> Any:
        return builder.shuffle_vector(
            one, other, ir.Constant(ir.VectorType(I32, len(lanes)), list(lanes))
        )

    n = vectors[0].type.count
    while len(vectors) > 1:
        pairs = list(zip(vectors[::2], vectors[1::2], strict=True))
        if n * len(vectors) > BLOCK:
            halves = [[picked(*pair, range(side, 2 * n, 2)) for side in (0, 1)] for pair in pairs]
            vectors = [builder.fadd(*half) for half in halves]
        else:
            vectors = [picked(*pair, range(2 * n)) for pair in pairs]
    if n > BLOCK:
        return builder.fadd(*(picked(vectors[0], vectors[0], range(side, n, 2)) for side in (0, 1)))
    return vectors[0]


@intrinsic
def interleave(
    typing_context: Any, sources: Any, first: Any, stride: Any, column: Any, lines: Any, goal: Any
) -> Any:  # noqa: ARG001
    """``lines[goal + c, lane] = sources[first + lane * stride, column + c]`` for c < 8: rows become the lanes of lines."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        source, target = (
            Rows(context, builder, signature.args[at], arguments[at]) for at in (0, 4)
        )
        _, first, stride, column, _, goal = arguments
        rows = [
            source.row(builder.add(first, builder.mul(I64(lane), stride)))
            for lane in range(SIDE_BY_SIDE)
        ]
        for lane in range(0, SIDE_BY_SIDE, source.lanes):
            for shift in range(0, BLOCK, source.lanes):
                at = builder.add(column, I64(shift))
                values = _transposed(
                    builder, [source.load(row, at) for row in rows[lane : lane + source.lanes]]
                )
                for c, value in enumerate(values):
                    target.store(value, target.row(builder.add(goal, I64(shift + c))), I64(lane))
        return context.get_dummy_value()

    return types.void(sources, types.int64, types.int64, types.int64, lines, types.int64), generate


def _transposed(builder: Any, vectors: list[Any]) -> list[Any]:
    """A square of numbers, its rows as vectors, by perfect shuffles: each halves the distance between neighbours of a column."""
    n = len(vectors)
    low = [
        place for pair in zip(range(n // 2), range(n, n + n // 2), strict=True) for place in pair
    ]
    for _ in range(n.bit_length() - 1):
        pairs = list(zip(vectors[: n // 2], vectors[n // 2 :], strict=True))
        vectors = [
            builder.shuffle_vector(
                one, other, ir.Constant(ir.VectorType(I32, n), [place + shift for place in low])
            )
            for one, other in pairs
            for shift in (0, n // 2)
        ]
    return vectors


@intrinsic
def invert_lanes(typing_context: Any, lines: Any, a: Any, inverses: Any, i: Any) -> Any:  # noqa: ARG001
    """``inverses[i] = 1 / lines[a]``, lane by lane."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        source, target = (
            Rows(context, builder, signature.args[at], arguments[at]) for at in (0, 2)
        )
        one = source.spread(ir.Constant(source.number, 1.0))
        for column in source.lane_columns():
            inverse = builder.fdiv(one, source.load(source.row(arguments[1]), column))
            target.store(inverse, target.row(arguments[3]), column)
        return context.get_dummy_value()

    return types.void(lines, types.int64, inverses, types.int64), generate


def eliminate_lanes(n_pivots: int, n_goals: int) -> Callable[..., None]:
    """``eliminate(lines, goals, sources, n, inverses, i)``: for goals g, g <= k < n, pivot after pivot and lane by lane,

        lines[goals[g] + k - g] -= (lines[sources[j] + g] * inverses[i + j]) * lines[sources[j] + k].

    Goals are rows of a packed triangle, one below the other, so that each begins a column later. Several pivots at once read and
    write a goal once, and several goals read a source once.
    """

    @intrinsic
    def eliminate(
        typing_context: Any, lines: Any, goals: Any, sources: Any, n: Any, inverses: Any, i: Any
    ) -> Any:  # noqa: ARG001
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            rows, scales = (
                Rows(context, builder, signature.args[at], arguments[at]) for at in (0, 4)
            )
            n, i = arguments[3], arguments[5]
            goals = cgutils.unpack_tuple(builder, arguments[1], n_goals)
            sources = cgutils.unpack_tuple(builder, arguments[2], n_pivots)
            columns = rows.lane_columns()

            def factor(goal: int, pivot: int, column: Any) -> Any:
                source, scale = (
                    rows.row(builder.add(sources[pivot], I64(goal))),
                    scales.row(builder.add(i, I64(pivot))),
                )
                return builder.fneg(
                    builder.fmul(rows.load(source, column), scales.load(scale, column))
                )

            factors = [
                [[factor(goal, pivot, column) for column in columns] for pivot in range(n_pivots)]
                for goal in range(n_goals)
            ]

            def eliminate_column(k: Any, first_goals: int) -> None:
                by = [rows.row(builder.add(source, k)) for source in sources]
                for place, column in enumerate(columns):
                    known = [rows.load(row, column) for row in by]
                    for goal in range(first_goals):
                        to = rows.row(builder.add(goals[goal], builder.sub(k, I64(goal))))
                        value = rows.load(to, column)
                        for pivot in range(n_pivots):
                            value = rows.multiply_add(
                                factors[goal][pivot][place], known[pivot], value
                            )
                        rows.store(value, to, column)

            for k in range(n_goals - 1):
                eliminate_column(I64(k), k + 1)
            with cgutils.for_range_slice(builder, I64(n_goals - 1), n, I64(1), intp=I64) as (k, _):
                eliminate_column(k, n_goals)
            return context.get_dummy_value()

        tuples = types.UniTuple(types.int64, n_goals), types.UniTuple(types.int64, n_pivots)
        return types.void(lines, *tuples, types.int64, inverses, types.int64), generate

    return eliminate  # type: ignore[no-any-return]


@intrinsic
def solve_lanes(
    typing_context: Any,
    lines: Any,
    right: Any,
    first: Any,
    n: Any,
    inverses: Any,
    solution: Any,
    i: Any,
) -> Any:  # noqa: ARG001
    """``solution[i] = inverses[i] * (lines[right] - sum over k < n of lines[first + k] * solution[i + 1 + k])``, lane by lane."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        rows, scales, solved = (
            Rows(context, builder, signature.args[at], arguments[at]) for at in (0, 4, 5)
        )
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
                builder.store(
                    rows.multiply_add(negative, solved.load(known, column), builder.load(place)),
                    place,
                )
        for place, column in zip(sums, columns, strict=True):
            value = builder.fmul(builder.load(place), scales.load(scales.row(i), column))
            solved.store(value, solved.row(i), column)
        return context.get_dummy_value()

    return types.void(
        lines, types.int64, types.int64, types.int64, inverses, solution, types.int64
    ), generate


def _runs(builder: Any, rows: Rows, left: Any, width: Any) -> Iterator[list[Any]]:
    """Code for columns from ``left`` to ``width``: a loop over runs of 24, written out, then one over what is left in steps of 8.

    Written-out loads and stores overlap; a loop vector by vector took three times as long.
    """
    in_runs = builder.sub(width, builder.urem(builder.sub(width, left), I64(RUN)))
    for first, end, step in ((left, in_runs, RUN), (in_runs, width, BLOCK)):
        with cgutils.for_range_slice(builder, first, end, I64(step), intp=I64) as (column, _):
            yield [builder.add(column, I64(shift)) for shift in range(0, step, rows.lanes)]
