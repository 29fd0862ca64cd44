"""Weighted ridge regressions, one for each row of a log, and the gradient of what they leave.

A row (a user, say) has cells ``starts[row]`` to ``starts[row + 1]``; each has a partner (an item), a rating, and the square root
of its weight. Two layouts of a line of numbers, of a width that is a multiple of 8, zeros at the end:

    a partner   [w, 1, b]   with offsets     [w]   without
    a solution  [v, a, 1]   with offsets     [v]   without

so that the product of the two is v . w + a + b, and one is the other's gradient direction. Per row, with x the first ``n_solved``
entries of the partner's line and t = rating - constant - b,

    min_z  sum w (t - x . z)^2 + z' C z + s sum_j ridge_j z_j^2,

with a matrix C that all rows share and an s of each row's own (0 and 1 for a plain ridge).

``[x, t]`` scaled by the root of the weight fills a panel; the panel's Gram matrix holds normal matrix, right-hand side and
sum w t^2 at once, and after elimination its last corner is the minimum itself. Eight rows are eliminated side by side.
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
    SIDE_BY_SIDE,
    add_scaled,
    copy_scaled,
    dot,
    eliminate_lanes,
    fetch,
    gram_tile,
    has_wide_vectors,
    interleave,
    invert_lanes,
    solve_lanes,
)

Floats: TypeAlias = npt.NDArray[np.floating]
Offsets: TypeAlias = npt.NDArray[np.int64]
Codes: TypeAlias = npt.NDArray[np.int32]
Number: TypeAlias = float | np.floating[Any]
Entries: TypeAlias = npt.NDArray[Any]
"""Records of :func:`entry_type`."""
Cells: TypeAlias = tuple[Offsets, Entries]
"""Where rows start, and the entries of their cells."""

LARGE = 1 << 20
"""Bytes from which on lines are pages of their own."""
PANEL = 96
"""Cells in a panel: at 20 factors in float32 it stays in the first-level cache."""
IN_CACHE = 1 << 20
"""Bytes of lines that stay in the second-level cache."""
AHEAD = 24
"""Cells between asking for a line and reading it."""
PIECE = 1024
"""Cells whose lines are added up before their sum joins that of the row, so that float32 loses little in long rows."""

TILE_4_3, TILE_4_2, TILE_8_1 = (
    gram_tile(4, 256, 256, 256),
    gram_tile(4, 256, 256),
    gram_tile(8, 256),
)
WIDE_6, WIDE_5, WIDE_4 = (
    gram_tile(8, 512, 512, 512),
    gram_tile(8, 512, 512, 256),
    gram_tile(8, 512, 512),
)
WIDE_3, WIDE_2 = gram_tile(8, 512, 256), gram_tile(8, 512)
EDGE_4, EDGE_1 = gram_tile(2, 256, 256, 256, 256), gram_tile(2, 256)
EDGE = 2
"""Columns beyond the last whole block that are cheaper line by line than as a block of their own."""
WIDE_FROM = 40 if has_wide_vectors() else 1 << 30
"""Columns from which on vectors of 512 bits are faster, where there are any."""
ONE_PIVOT, FOUR_PIVOTS, TWO_ROWS = (
    eliminate_lanes(1, 1),
    eliminate_lanes(4, 1),
    eliminate_lanes(4, 2),
)


def entry_type(dtype: npt.DTypeLike, n_partners: int) -> np.dtype[np.void]:
    """A cell's partner, root of its weight, and rating, side by side: a sort that scatters them touches one line, not three."""
    partner = np.uint16 if n_partners <= 1 << 16 else np.int32
    return np.dtype([("partner", partner), ("root_weight", dtype), ("rating", dtype)])


@compiled
def padded_width(n_columns: int) -> int:
    """The next multiple of 8."""
    return -(-n_columns // BLOCK) * BLOCK


def lines_of_zeros(n: int, n_columns: int, dtype: npt.DTypeLike) -> Floats:
    """``n`` lines of the next multiple of 8 columns, at an address that keeps every vector inside one line of the cache.

    Large ones are pages of their own, which go back to the system when they are dropped: parts of the heap would be cut up by
    smaller arrays before the next sweep asks for as much again.
    """
    width, kind = padded_width(n_columns), np.dtype(dtype)
    size = n * width * kind.itemsize
    if size >= LARGE:
        return np.frombuffer(mmap(-1, size, access=ACCESS_COPY), kind).reshape(n, width)
    raw = np.zeros(size + CACHE_LINE, np.uint8)
    start = -raw.ctypes.data % CACHE_LINE
    return raw[start : start + size].view(kind).reshape(n, width)


@compiled
def find_starts(row: Codes, starts: Offsets) -> None:
    """Where each row's cells start once they are sorted: ``starts`` has a place more than there are rows, and begins as zeros."""
    for cell in range(row.size):
        starts[row[cell] + 1] += 1
    for k in range(1, starts.size):
        starts[k] += starts[k - 1]


@compiled
def sort_cells(
    row: Codes,
    partner: Codes,
    rating: Floats,
    propensity: Floats,
    starts: Offsets,
    entries: Entries,
) -> None:
    """Cells by row, in the order of the log within one: each goes to the next free place of its row."""
    free = starts[:-1].copy()
    for cell in range(row.size):
        place = free[row[cell]]
        free[row[cell]] = place + 1
        entries[place].partner = partner[cell]
        entries[place].root_weight = np.sqrt(1 / propensity[cell])
        entries[place].rating = rating[cell]


@compiled
def add_weights(cells: Cells, totals: Floats) -> None:
    """The sum of each row's weights, in float64."""
    starts, entries = cells
    for row in range(totals.size):
        total = 0.0
        for cell in range(starts[row], starts[row + 1]):
            total += np.float64(entries[cell].root_weight) * np.float64(entries[cell].root_weight)
        totals[row] = total


@compiled
def tiled_width(n_columns: int) -> int:
    """Columns that tiles are made of: all, padded, or without one or two beyond the last whole block."""
    beyond = n_columns % BLOCK
    return n_columns - beyond if 0 < beyond <= EDGE < n_columns else padded_width(n_columns)


@compiled
def add_gram(panel: Floats, n: int, lanes: int, width: int, gram: Floats) -> None:
    """Add panel' panel over the first ``n`` lines, in tiles that stay in registers.

    The upper triangle of the first ``width`` columns, and whole rows of those beyond, which :func:`fold_edge` puts in place.
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
    """What rows beyond ``width`` hold left of it goes above the diagonal."""
    for row in range(width, n_columns):
        for column in range(width):
            gram[column, row] += gram[row, column]
            gram[row, column] = 0


@compiled
def add_tiles(panel: Floats, n: int, lanes: int, top: int, width: int, gram: Floats) -> None:
    """Eight rows of the Gram matrix, from the diagonal on; ``lanes`` numbers have 256 bits."""
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
    """The same in vectors of 512 bits, with one of 256 at the end where the columns call for it."""
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
def end_of_fetching(entries: Entries, partners: Floats) -> int:
    """Up to this cell it pays to ask for the line of the partner ``AHEAD`` cells later: to none, where all lines stay near."""
    return entries.size - AHEAD if partners.nbytes > IN_CACHE else 0


@compiled
def fill_panel(
    first: int,
    n: int,
    cells: Cells,
    constant: Number,
    partners: Floats,
    n_solved: int,
    panel: Floats,
) -> None:
    """panel[k] = root_weight * [x, t, ...] for the ``n`` cells from ``first`` on."""
    _, entries = cells
    end = end_of_fetching(entries, partners)
    for k in range(n):
        if first + k < end:
            fetch(partners, np.int64(entries[first + k + AHEAD].partner), n_solved + 1)
        scale = entries[first + k].root_weight
        copy_scaled(partners, np.int64(entries[first + k].partner), scale, panel, k)
        panel[k, n_solved] = scale * (entries[first + k].rating - constant) - panel[k, n_solved]


@compiled
def add_cells(
    first: int,
    end: int,
    cells: Cells,
    constant: Number,
    partners: Floats,
    n_solved: int,
    lanes: int,
    panel: Floats,
    gram: Floats,
) -> None:
    """The upper triangle of gram += sum w [x, t]' [x, t] over the cells from ``first`` to ``end``."""
    width = tiled_width(n_solved + 1)
    for start in range(first, end, PANEL):
        n = min(PANEL, end - start)
        fill_panel(start, n, cells, constant, partners, n_solved, panel)
        add_gram(panel, n, lanes, width, gram)
    fold_edge(width, n_solved + 1, gram)


@compiled
def gram_of(
    first: int,
    end: int,
    cells: Cells,
    constant: Number,
    partners: Floats,
    n_solved: int,
    lanes: int,
) -> Floats:
    """The Gram matrix of a piece of a row, its upper triangle filled."""
    width = partners.shape[1]
    panel, gram = np.zeros((PANEL, width), partners.dtype), np.zeros((width, width), partners.dtype)
    add_cells(first, end, cells, constant, partners, n_solved, lanes, panel, gram)
    return gram


@compiled
def begin_gram(shared: Floats, gram: Floats) -> None:
    """The upper triangle of what all rows share, or zeros."""
    for row in range(gram.shape[0]):
        first = row - row % BLOCK
        gram[row, first:] = 0
        if shared.size:
            for column in range(first, gram.shape[1]):
                gram[row, column] = shared[row, column]


@compiled
def put_side_by_side(grams: Floats, n_solved: int, systems: Floats) -> None:
    """The upper triangles of eight matrices, one under the other, into the lanes of packed lines.

    Rows come eight columns at a time; what is too much of one is overwritten by the next, and at the end there is room for it.
    """
    for row in range(n_solved + 1):
        for column in range(row, n_solved + 1, BLOCK):
            interleave(grams, row, grams.shape[1], column, systems, line_of(row, column, n_solved))


@compiled
def line_of(row: int, column: int, n_solved: int) -> int:
    """The line that holds an entry of the packed upper triangle."""
    return row * (n_solved + 1) - row * (row - 1) // 2 + column - row


@compiled
def eliminate(systems: Floats, n_solved: int, inverses: Floats) -> None:
    """Gaussian elimination in all lanes at once, four pivots at a time where as many are left, and of two rows."""
    for first in range(0, n_solved, 4):
        end = min(first + 4, n_solved)
        last = end if end == first + 4 else n_solved + 1
        for pivot in range(first, end):
            invert_lanes(systems, line_of(pivot, pivot, n_solved), inverses, pivot)
            for row in range(pivot + 1, last):
                source = line_of(pivot, row, n_solved)
                ONE_PIVOT(
                    systems,
                    (line_of(row, row, n_solved),),
                    (source,),
                    n_solved + 1 - row,
                    inverses,
                    pivot,
                )
        for row in range(last, n_solved + 1, 2):
            sources = (
                line_of(first, row, n_solved),
                line_of(first + 1, row, n_solved),
                line_of(first + 2, row, n_solved),
                line_of(first + 3, row, n_solved),
            )
            goal, n = line_of(row, row, n_solved), n_solved + 1 - row
            if n > 1:
                TWO_ROWS(systems, (goal, goal + n), sources, n, inverses, first)
            else:
                FOUR_PIVOTS(systems, (goal,), sources, n, inverses, first)


@compiled
def solve_side_by_side(systems: Floats, n_solved: int, inverses: Floats, solution: Floats) -> None:
    """Gaussian elimination and back substitution in all lanes at once; lines are the rows of upper triangles, packed."""
    eliminate(systems, n_solved, inverses)
    for row in range(n_solved - 1, -1, -1):
        right, first = line_of(row, n_solved, n_solved), line_of(row, row + 1, n_solved)
        solve_lanes(systems, right, first, n_solved - 1 - row, inverses, solution, row)


@compiled
def solve_rows(
    rows: tuple[int, int],
    cells: Cells,
    constant: Number,
    partners: Floats,
    shared: Floats,
    ridge: Floats,
    row_ridge: Floats,
    lanes: int,
    sizes: tuple[int, int],
    solutions: Floats,
    minima: Floats,
) -> int:
    """Solve rows ``rows[0]`` to ``rows[1]``; ``minima`` gets each penalised minimum. Returns a row without a solution, or -1.

    ``shared`` is the upper triangle of C, zeros around it, and as wide as a line, or empty where C is 0; ``row_ridge`` has each
    row's s. Rows of fewer cells than ``sizes[0]`` or more than ``sizes[1]`` are left alone; those without a cell get zeros.
    """
    starts, (least, most) = cells[0], sizes
    n_solved, width, dtype = ridge.size, partners.shape[1], partners.dtype
    n_lines = (n_solved + 1) * (n_solved + 2) // 2
    panel, grams = (
        np.zeros((PANEL, width), dtype),
        np.zeros((SIDE_BY_SIDE * width + 1, width), dtype),
    )
    systems = np.empty((n_lines + BLOCK, SIDE_BY_SIDE), dtype)
    inverses, solution = (
        np.ones((n_solved, SIDE_BY_SIDE), dtype),
        np.zeros((n_solved, SIDE_BY_SIDE), dtype),
    )
    for batch in range(rows[0], rows[1], SIDE_BY_SIDE):
        n_rows, n_filled = min(SIDE_BY_SIDE, rows[1] - batch), 0
        for lane in range(n_rows):
            first, end = starts[batch + lane], starts[batch + lane + 1]
            if max(1, least) <= end - first <= most:
                n_filled += 1
                gram = grams[lane * width : (lane + 1) * width]
                begin_gram(shared, gram)
                add_cells(first, end, cells, constant, partners, n_solved, lanes, panel, gram)
                for j in range(n_solved):
                    gram[j, j] += row_ridge[batch + lane] * ridge[j]
        if n_filled:
            put_side_by_side(grams, n_solved, systems)
            solve_side_by_side(systems, n_solved, inverses, solution)
        for lane in range(n_rows):
            row = batch + lane
            n_cells = starts[row + 1] - starts[row]
            if not least <= n_cells <= most:
                continue
            for j in range(n_solved):
                if not (n_cells == 0 or inverses[j, lane] > 0):
                    return row
                solutions[row, j] = 0 if n_cells == 0 else solution[j, lane]
            minima[row] = 0 if n_cells == 0 else systems[n_lines - 1, lane]
    return -1


@compiled
def multiply_rows(rows: tuple[int, int], cells: Cells, partners: Floats, products: Floats) -> None:
    """products[row] += sum over its cells of rating * the partner's line: a sparse matrix times a dense one."""
    starts, entries = cells
    width = partners.shape[1]
    piece = np.zeros((1, width), partners.dtype)
    for row in range(rows[0], rows[1]):
        for first in range(starts[row], starts[row + 1], PIECE):
            piece[0] = 0
            for cell in range(first, min(first + PIECE, starts[row + 1])):
                add_scaled(
                    partners, np.int64(entries[cell].partner), entries[cell].rating, piece, 0, 0
                )
            for j in range(width):
                products[row, j] += piece[0, j]


@compiled
def add_gradient(
    rows: tuple[int, int],
    cells: Cells,
    constant: Number,
    partners: Floats,
    solutions: Floats,
    is_absolute: bool,
    gradient: Floats,
) -> float:
    """gradient[partner] += dl/de * -solution, in the layout of a partner. Returns the loss, sum w e^2 or sum w abs(e).

    A partner's ``b`` gets the plain sum of -dl/de; the place of its 1 gets nothing of use. The subgradient of abs(e) at 0 is 0.
    """
    starts, entries = cells
    loss = 0.0
    for row in range(rows[0], rows[1]):
        for cell in range(starts[row], starts[row + 1]):
            i = np.int64(entries[cell].partner)
            weight = entries[cell].root_weight * entries[cell].root_weight
            error = entries[cell].rating - constant - dot(solutions, row, partners, i)
            slope = weight * np.sign(error) if is_absolute else 2 * weight * error
            loss += weight * (abs(error) if is_absolute else error * error)
            add_scaled(solutions, row, -slope, gradient, i, 0)
    return loss


@compiled
def reweigh(
    rows: tuple[int, int],
    cells: Cells,
    constant: Number,
    partners: Floats,
    solutions: Floats,
    smallest: Number,
    reweighed: Entries,
) -> None:
    """New weights w / (2 max(abs(e), smallest)): the parabola above w abs(e) that touches it at the present error."""
    starts, entries = cells
    for row in range(rows[0], rows[1]):
        for cell in range(starts[row], starts[row + 1]):
            error = abs(
                entries[cell].rating
                - constant
                - dot(solutions, row, partners, np.int64(entries[cell].partner))
            )
            reweighed[cell].root_weight = entries[cell].root_weight / np.sqrt(
                2 * max(error, smallest)
            )
