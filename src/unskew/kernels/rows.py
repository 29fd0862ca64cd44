"""Weighted ridge regressions, one for each row of the log, and the gradient of their loss.

A row (say, a user) has the cells ``starts[row]`` to ``starts[row + 1]``. Each cell has the code of
the opposite side (an item), a rating, and the square root of its weight. Kernels read padded
factor rows in two layouts, see :mod:`unskew.factorization.objective`:

    opposite row  [w, 1, b]  with offsets     [w]  without
    solved row    [v, a, 1]  with offsets     [v]  without

Both are padded with zeros to a multiple of 8 columns, and their product is v . w + a + b. With x
the first ``n_unknowns`` numbers of the opposite row and t = rating - global_offset - b, a row is

    min over z of  sum w (t - x . z)^2  +  z' C z  +  s sum_j ridge_j z_j^2,

where C is shared by all rows and s is the penalty scale of the row (0 and 1 for a plain ridge).

A panel holds ``[x, t]`` times the square root of the weight, one row for each cell. Its Gram matrix
contains the normal matrix, the right-hand side and sum w t^2. After elimination its last corner is
the minimum itself. Eight rows are eliminated at the same time, one in each lane of a vector.
"""

from __future__ import annotations

from mmap import ACCESS_COPY, mmap
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from unskew.kernels.compiling import compiled
from unskew.kernels.vectors import (
    BLOCK,
    CACHE_LINE,
    N_SYSTEMS,
    add_scaled,
    copy_scaled,
    dot,
    eliminate_lanes,
    gram_tile,
    has_wide_vectors,
    interleave,
    invert_lanes,
    prefetch_for_read,
    solve_lanes,
)

Floats: TypeAlias = npt.NDArray[np.floating]
Offsets: TypeAlias = npt.NDArray[np.int64]
Codes: TypeAlias = npt.NDArray[np.int32]
Number: TypeAlias = float | np.floating[Any]
Entries: TypeAlias = npt.NDArray[Any]
"""Records of :func:`entry_type`."""
Cells: TypeAlias = tuple[Offsets, Entries]
"""Where rows start, and the records of their cells."""

MIN_MAPPED_BYTES = 1 << 20
"""Bytes from which on padded rows get memory pages of their own."""
PANEL_CELLS = 96
"""Cells of a panel: with 20 factors in float32 it stays in the first-level cache."""
CACHE_BYTES = 1 << 20
"""Bytes of opposite rows that stay in the second-level cache."""
PREFETCH_CELLS = 24
"""Cells between the prefetch of an opposite row and its use."""
PIECE_CELLS = 1024
"""Cells that are added up before their sum is added to the row, so that float32
loses little precision in long rows."""

TILE_4_3, TILE_4_2 = gram_tile(4, 256, 256, 256), gram_tile(4, 256, 256)
TILE_8_1, WIDE_2, WIDE_3 = gram_tile(8, 256), gram_tile(8, 512), gram_tile(8, 512, 256)
WIDE_4, WIDE_5 = gram_tile(8, 512, 512), gram_tile(8, 512, 512, 256)
WIDE_6 = gram_tile(8, 512, 512, 512)
EDGE_4, EDGE_1 = gram_tile(2, 256, 256, 256, 256), gram_tile(2, 256)
MAX_EDGE_COLUMNS = 2
"""Columns beyond the last whole block that are cheaper one by one than as a block."""
WIDE_FROM = 40 if has_wide_vectors() else 1 << 30
"""Columns from which on vectors of 512 bits are faster, if the processor has them."""
ONE_PIVOT, FOUR_PIVOTS = eliminate_lanes(1, 1), eliminate_lanes(4, 1)
TWO_ROWS = eliminate_lanes(4, 2)


def entry_type(dtype: npt.DTypeLike, n_opposite: int) -> np.dtype[np.void]:
    """A cell as one record: opposite code, square root of the weight, rating.

    Sorting cells then writes to one cache line for each cell instead of three.
    """
    code = np.uint16 if n_opposite <= 1 << 16 else np.int32
    return np.dtype([("opposite", code), ("root_weight", dtype), ("rating", dtype)])


@compiled
def padded_width(n_columns: int) -> int:
    """The next multiple of 8."""
    return -(-n_columns // BLOCK) * BLOCK


def padded_zeros(n: int, n_columns: int, dtype: npt.DTypeLike) -> Floats:
    """``n`` rows of zeros, padded to a multiple of 8 columns and aligned with cache lines.

    Large arrays get memory pages of their own, which return to the system when they are freed. On
    the heap, smaller arrays would fragment that memory before the next sweep needs it again.
    """
    width, number_type = padded_width(n_columns), np.dtype(dtype)
    size = n * width * number_type.itemsize
    if size >= MIN_MAPPED_BYTES:
        return np.frombuffer(mmap(-1, size, access=ACCESS_COPY), number_type).reshape(n, width)
    buffer = np.zeros(size + CACHE_LINE, np.uint8)
    start = -buffer.ctypes.data % CACHE_LINE
    return buffer[start : start + size].view(number_type).reshape(n, width)


@compiled
def find_starts(row: Codes, starts: Offsets) -> None:
    """Where the cells of each row start once they are sorted.

    ``starts`` has one number more than there are rows, and contains zeros at first.
    """
    for cell in range(row.size):
        starts[row[cell] + 1] += 1
    for k in range(1, starts.size):
        starts[k] += starts[k - 1]


@compiled
def sort_cells(
    cells: tuple[int, int],
    row: Codes,
    opposite: Codes,
    rating: Floats,
    weight: Floats,
    free: Offsets,
    entries: Entries,
) -> None:
    """Sort the cells ``cells[0]`` to ``cells[1]`` by row; the cells of a row keep their order.

    It is a part of a counting sort: ``free`` is the next free place of each row, and moves on.
    """
    for cell in range(cells[0], cells[1]):
        position = free[row[cell]]
        free[row[cell]] = position + 1
        entries[position].opposite = opposite[cell]
        entries[position].root_weight = np.sqrt(weight[cell])
        entries[position].rating = rating[cell]


@compiled
def add_weights(cells: Cells, totals: Floats) -> None:
    """Write the sum of each row's weights to ``totals``, added up in float64."""
    starts, entries = cells
    for row in range(totals.size):
        total = 0.0
        for cell in range(starts[row], starts[row + 1]):
            total += np.float64(entries[cell].root_weight) * np.float64(entries[cell].root_weight)
        totals[row] = total


@compiled
def tiled_width(n_columns: int) -> int:
    """Columns that are covered by tiles.

    These are all columns, padded to whole blocks; or without the one or two columns beyond the last
    whole block.
    """
    n_beyond = n_columns % BLOCK
    return (
        n_columns - n_beyond
        if 0 < n_beyond <= MAX_EDGE_COLUMNS < n_columns
        else padded_width(n_columns)
    )


@compiled
def add_gram(panel: Floats, n: int, lanes: int, width: int, gram: Floats) -> None:
    """gram += panel' panel over the first ``n`` rows of the panel, in tiles that stay in registers.

    This fills the upper triangle of the first ``width`` columns, and whole rows of the columns
    beyond, which :func:`fold_edge` moves to the upper triangle.
    """
    for top in range(0, width, BLOCK):
        if width >= WIDE_FROM:
            add_wide_tiles(panel, n, lanes, top, width, gram)
        else:
            add_tiles(panel, n, lanes, top, width, gram)
    if width < panel.shape[1]:
        left = 0
        while panel.shape[1] - left >= 4 * lanes:
            EDGE_4(panel, n, width, left, gram)
            left += 4 * lanes
        while left < panel.shape[1]:
            EDGE_1(panel, n, width, left, gram)
            left += lanes


@compiled
def fold_edge(width: int, n_columns: int, gram: Floats) -> None:
    """Move the entries of rows beyond ``width`` that lie below the diagonal above it."""
    for row in range(width, n_columns):
        for column in range(width):
            gram[column, row] += gram[row, column]
            gram[row, column] = 0


@compiled
def add_tiles(panel: Floats, n: int, lanes: int, top: int, width: int, gram: Floats) -> None:
    """Eight rows of the Gram matrix from the diagonal on; ``lanes`` numbers are 256 bits."""
    left = top
    while width - left >= 3 * lanes:
        TILE_4_3(panel, n, top, left, gram)
        TILE_4_3(panel, n, top + 4, left, gram)
        left += 3 * lanes
    if width - left == 2 * lanes:
        TILE_4_2(panel, n, top, left, gram)
        TILE_4_2(panel, n, top + 4, left, gram)
    elif width - left == lanes:
        TILE_8_1(panel, n, top, left, gram)


@compiled
def add_wide_tiles(panel: Floats, n: int, lanes: int, top: int, width: int, gram: Floats) -> None:
    """The same in vectors of 512 bits, with one of 256 bits at the end if needed."""
    left = top
    while width - left >= 6 * lanes:
        WIDE_6(panel, n, top, left, gram)
        left += 6 * lanes
    rest = (width - left) // lanes
    if rest == 5:
        WIDE_5(panel, n, top, left, gram)
    elif rest == 4:
        WIDE_4(panel, n, top, left, gram)
    elif rest == 3:
        WIDE_3(panel, n, top, left, gram)
    elif rest == 2:
        WIDE_2(panel, n, top, left, gram)
    elif rest == 1:
        TILE_8_1(panel, n, top, left, gram)


@compiled
def last_prefetch(entries: Entries, opposite_rows: Floats) -> int:
    """The cell up to which a prefetch of the row ``PREFETCH_CELLS`` cells later pays.

    This is 0 if all opposite rows fit into the cache.
    """
    return entries.size - PREFETCH_CELLS if opposite_rows.nbytes > CACHE_BYTES else 0


@compiled
def fill_panel(
    first: int,
    n: int,
    cells: Cells,
    global_offset: Number,
    opposite_rows: Floats,
    n_unknowns: int,
    panel: Floats,
) -> None:
    """panel[k] = root_weight * [x, t, ...] for the ``n`` cells from ``first`` on."""
    _, entries = cells
    end = last_prefetch(entries, opposite_rows)
    for k in range(n):
        if first + k < end:
            prefetch_for_read(
                opposite_rows,
                np.int64(entries[first + k + PREFETCH_CELLS].opposite),
                n_unknowns + 1,
            )
        scale = entries[first + k].root_weight
        copy_scaled(opposite_rows, np.int64(entries[first + k].opposite), scale, panel, k)
        panel[k, n_unknowns] = (
            scale * (entries[first + k].rating - global_offset) - panel[k, n_unknowns]
        )


@compiled
def add_cells(
    first: int,
    end: int,
    cells: Cells,
    global_offset: Number,
    opposite_rows: Floats,
    n_unknowns: int,
    lanes: int,
    panel: Floats,
    gram: Floats,
) -> None:
    """The upper triangle of gram += sum w [x, t]' [x, t] over the cells ``first`` to ``end``."""
    width = tiled_width(n_unknowns + 1)
    for start in range(first, end, PANEL_CELLS):
        n = min(PANEL_CELLS, end - start)
        fill_panel(start, n, cells, global_offset, opposite_rows, n_unknowns, panel)
        add_gram(panel, n, lanes, width, gram)
    fold_edge(width, n_unknowns + 1, gram)


@compiled
def compute_gram(
    first: int,
    end: int,
    cells: Cells,
    global_offset: Number,
    opposite_rows: Floats,
    n_unknowns: int,
    lanes: int,
) -> Floats:
    """The upper triangle of the Gram matrix of the cells ``first`` to ``end`` of a row."""
    width = opposite_rows.shape[1]
    panel, gram = (
        np.zeros((PANEL_CELLS, width), opposite_rows.dtype),
        np.zeros((width, width), opposite_rows.dtype),
    )
    add_cells(first, end, cells, global_offset, opposite_rows, n_unknowns, lanes, panel, gram)
    return gram


@compiled
def start_gram(shared_gram: Floats, gram: Floats) -> None:
    """Copy the shared upper triangle to ``gram``, or zeros if there is none."""
    for row in range(gram.shape[0]):
        first = row - row % BLOCK
        gram[row, first:] = 0
        if shared_gram.size:
            for column in range(first, gram.shape[1]):
                gram[row, column] = shared_gram[row, column]


@compiled
def interleave_grams(grams: Floats, n_unknowns: int, systems: Floats) -> None:
    """Copy the upper triangles of eight Gram matrices into the lanes of packed rows.

    ``grams`` has the matrices below one another. Each copy moves eight columns. Numbers beyond the
    end of a row are overwritten by the next row, and there is room for them after the last one.
    """
    for row in range(n_unknowns + 1):
        for column in range(row, n_unknowns + 1, BLOCK):
            interleave(
                grams, row, grams.shape[1], column, systems, packed_index(row, column, n_unknowns)
            )


@compiled
def packed_index(row: int, column: int, n_unknowns: int) -> int:
    """The packed row that holds an entry of the upper triangle."""
    return row * (n_unknowns + 1) - row * (row - 1) // 2 + column - row


@compiled
def eliminate(systems: Floats, n_unknowns: int, inverses: Floats) -> None:
    """Gaussian elimination in all lanes at once.

    Four pivots are handled at a time while there are as many, and two rows at a time.
    """
    for first in range(0, n_unknowns, 4):
        end = min(first + 4, n_unknowns)
        last = end if end == first + 4 else n_unknowns + 1
        for pivot in range(first, end):
            invert_lanes(systems, packed_index(pivot, pivot, n_unknowns), inverses, pivot)
            for row in range(pivot + 1, last):
                source = packed_index(pivot, row, n_unknowns)
                ONE_PIVOT(
                    systems,
                    (packed_index(row, row, n_unknowns),),
                    (source,),
                    n_unknowns + 1 - row,
                    inverses,
                    pivot,
                )
        for row in range(last, n_unknowns + 1, 2):
            sources = (
                packed_index(first, row, n_unknowns),
                packed_index(first + 1, row, n_unknowns),
                packed_index(first + 2, row, n_unknowns),
                packed_index(first + 3, row, n_unknowns),
            )
            goal, n = packed_index(row, row, n_unknowns), n_unknowns + 1 - row
            if n > 1:
                TWO_ROWS(systems, (goal, goal + n), sources, n, inverses, first)
            else:
                FOUR_PIVOTS(systems, (goal,), sources, n, inverses, first)


@compiled
def solve_systems(systems: Floats, n_unknowns: int, inverses: Floats, solution: Floats) -> None:
    """Gaussian elimination and back substitution in all lanes at once.

    ``systems`` holds packed upper triangles: one row for each entry, one lane for each system.
    """
    eliminate(systems, n_unknowns, inverses)
    for row in range(n_unknowns - 1, -1, -1):
        right, first = (
            packed_index(row, n_unknowns, n_unknowns),
            packed_index(row, row + 1, n_unknowns),
        )
        solve_lanes(systems, right, first, n_unknowns - 1 - row, inverses, solution, row)


@compiled
def solve_rows(
    rows: tuple[int, int],
    cells: Cells,
    global_offset: Number,
    opposite_rows: Floats,
    shared_gram: Floats,
    ridges: Floats,
    penalty_scale: Floats,
    lanes: int,
    cell_limits: tuple[int, int],
    solved_rows: Floats,
    minima: Floats,
) -> int:
    """Solve the rows ``rows[0]`` to ``rows[1]``; ``minima`` receives their penalised minima.

    ``shared_gram`` is the upper triangle of C, padded with zeros to the width of a padded row, or
    empty if C is 0. Rows with fewer cells than ``cell_limits[0]`` or more than ``cell_limits[1]``
    stay as they are; rows without cells become zeros. Returns a row without a unique solution, or
    -1.
    """
    starts, (min_cells, max_cells) = cells[0], cell_limits
    n_unknowns, width, dtype = ridges.size, opposite_rows.shape[1], opposite_rows.dtype
    n_packed = (n_unknowns + 1) * (n_unknowns + 2) // 2
    panel, grams = (
        np.zeros((PANEL_CELLS, width), dtype),
        np.zeros((N_SYSTEMS * width + 1, width), dtype),
    )
    systems = np.empty((n_packed + BLOCK, N_SYSTEMS), dtype)
    inverses, solution = (
        np.ones((n_unknowns, N_SYSTEMS), dtype),
        np.zeros((n_unknowns, N_SYSTEMS), dtype),
    )
    for batch in range(rows[0], rows[1], N_SYSTEMS):
        n_rows, n_filled = min(N_SYSTEMS, rows[1] - batch), 0
        for lane in range(n_rows):
            first, end = starts[batch + lane], starts[batch + lane + 1]
            if max(1, min_cells) <= end - first <= max_cells:
                n_filled += 1
                gram = grams[lane * width : (lane + 1) * width]
                start_gram(shared_gram, gram)
                add_cells(
                    first, end, cells, global_offset, opposite_rows, n_unknowns, lanes, panel, gram
                )
                for j in range(n_unknowns):
                    gram[j, j] += penalty_scale[batch + lane] * ridges[j]
        if n_filled:
            interleave_grams(grams, n_unknowns, systems)
            solve_systems(systems, n_unknowns, inverses, solution)
        for lane in range(n_rows):
            row = batch + lane
            n_cells = starts[row + 1] - starts[row]
            if not min_cells <= n_cells <= max_cells:
                continue
            for j in range(n_unknowns):
                if not (n_cells == 0 or inverses[j, lane] > 0):
                    return row
                solved_rows[row, j] = 0 if n_cells == 0 else solution[j, lane]
            minima[row] = 0 if n_cells == 0 else systems[n_packed - 1, lane]
    return -1


@compiled
def add_normal_equations(
    cells: Cells,
    global_offset: Number,
    opposite_rows: Floats,
    n_unknowns: int,
    lanes: int,
    max_cells: int,
    packed: Floats,
) -> None:
    """packed[row] += the Gram matrix of ``[x, t]`` over the cells of the row, without ridges.

    ``packed`` has the upper triangle of each row in the order of :func:`packed_index`. At most
    ``max_cells`` cells are added up in the precision of the factors.
    """
    starts, width = cells[0], opposite_rows.shape[1]
    panel, gram = (
        np.zeros((PANEL_CELLS, width), opposite_rows.dtype),
        np.zeros((width, width), opposite_rows.dtype),
    )
    for row in range(packed.shape[0]):
        end = starts[row + 1]
        for first in range(starts[row], end, max_cells):
            gram[:] = 0
            last = min(first + max_cells, end)
            add_cells(
                first, last, cells, global_offset, opposite_rows, n_unknowns, lanes, panel, gram
            )
            entry = 0
            for i in range(n_unknowns + 1):
                for j in range(i, n_unknowns + 1):
                    packed[row, entry] += gram[i, j]
                    entry += 1


@compiled
def solve_normal_equations(
    packed: Floats, ridges: Floats, solution_rows: Floats, minima: Floats
) -> None:
    """Solve the rows of :func:`add_normal_equations`; ``minima`` receives penalised minima.

    The minimum of a row without a unique solution is NaN.
    """
    n_unknowns, n_packed = ridges.size, packed.shape[1]
    systems = np.empty((n_packed + BLOCK, N_SYSTEMS), packed.dtype)
    inverses, solution = (
        np.ones((n_unknowns, N_SYSTEMS), packed.dtype),
        np.zeros((n_unknowns, N_SYSTEMS), packed.dtype),
    )
    for batch in range(0, packed.shape[0], N_SYSTEMS):
        for lane in range(N_SYSTEMS):
            row = min(batch + lane, packed.shape[0] - 1)
            for entry in range(n_packed):
                systems[entry, lane] = packed[row, entry]
            for j in range(n_unknowns):
                systems[packed_index(j, j, n_unknowns), lane] += ridges[j]
        solve_systems(systems, n_unknowns, inverses, solution)
        for lane in range(min(N_SYSTEMS, packed.shape[0] - batch)):
            minima[batch + lane] = systems[n_packed - 1, lane]
            for j in range(n_unknowns):
                solution_rows[batch + lane, j] = solution[j, lane]
                if not inverses[j, lane] > 0:
                    minima[batch + lane] = np.nan


@compiled
def multiply_rows(
    rows: tuple[int, int], cells: Cells, opposite_rows: Floats, products: Floats
) -> None:
    """products[row] += sum over its cells of rating * opposite row: sparse times dense."""
    starts, entries = cells
    width = opposite_rows.shape[1]
    piece = np.zeros((1, width), opposite_rows.dtype)
    for row in range(rows[0], rows[1]):
        for first in range(starts[row], starts[row + 1], PIECE_CELLS):
            piece[0] = 0
            for cell in range(first, min(first + PIECE_CELLS, starts[row + 1])):
                add_scaled(
                    opposite_rows,
                    np.int64(entries[cell].opposite),
                    entries[cell].rating,
                    piece,
                    0,
                    0,
                )
            for j in range(width):
                products[row, j] += piece[0, j]


@compiled
def add_gradient(
    rows: tuple[int, int],
    cells: Cells,
    global_offset: Number,
    opposite_rows: Floats,
    solved_rows: Floats,
    is_absolute: bool,
    gradient: Floats,
) -> float:
    """gradient[opposite] += dl/de * -solved row, in the layout of opposite rows.

    Returns the loss, sum w e^2 or sum w abs(e). The column of b receives the sum of -dl/de; the
    column of 1 receives nothing of use. The subgradient of abs(e) at 0 is 0.
    """
    starts, entries = cells
    loss = 0.0
    for row in range(rows[0], rows[1]):
        for cell in range(starts[row], starts[row + 1]):
            i = np.int64(entries[cell].opposite)
            weight = entries[cell].root_weight * entries[cell].root_weight
            error = entries[cell].rating - global_offset - dot(solved_rows, row, opposite_rows, i)
            derivative = weight * np.sign(error) if is_absolute else 2 * weight * error
            loss += weight * (abs(error) if is_absolute else error * error)
            add_scaled(solved_rows, row, -derivative, gradient, i, 0)
    return loss


@compiled
def add_absolute_loss(
    rows: tuple[int, int],
    cells: Cells,
    global_offset: Number,
    opposite_rows: Floats,
    solved_rows: Floats,
) -> float:
    """The sum of w abs(e) over the cells of some rows."""
    starts, entries = cells
    loss = 0.0
    for row in range(rows[0], rows[1]):
        for cell in range(starts[row], starts[row + 1]):
            i, root_weight = np.int64(entries[cell].opposite), entries[cell].root_weight
            error = entries[cell].rating - global_offset - dot(solved_rows, row, opposite_rows, i)
            loss += root_weight * root_weight * abs(error)
    return loss


@compiled
def reweight_absolute(
    rows: tuple[int, int],
    cells: Cells,
    global_offset: Number,
    opposite_rows: Floats,
    solved_rows: Floats,
    smallest: Number,
    reweighted: Entries,
) -> None:
    """New weights w / (2 max(abs(e), smallest)).

    The weighted square is then an upper bound of w abs(e) that is tight at the current error.
    """
    starts, entries = cells
    for row in range(rows[0], rows[1]):
        for cell in range(starts[row], starts[row + 1]):
            error = abs(
                entries[cell].rating
                - global_offset
                - dot(solved_rows, row, opposite_rows, np.int64(entries[cell].opposite))
            )
            reweighted[cell].root_weight = entries[cell].root_weight / np.sqrt(
                2 * max(error, smallest)
            )
