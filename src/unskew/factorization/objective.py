"""The weighted factorisation objective of Eq. (14), and its row solves.

    sum over observed cells of w (y - F)^2  +  p (||V||^2 + ||W||^2)  [+ penalty of offsets]

F = v . w + a + b + c. Given one side, each row of the other side is a small ridge regression.

Kernels read *padded factor rows*: one row of numbers for each user or item, padded with zeros to a
multiple of 8 columns. A row has one of two layouts, whose product is F - c:

    solved row    [v, a, 1]    of the side that is solved for     ([v] without offsets)
    opposite row  [w, 1, b]    of the other, fixed side           ([w] without offsets)
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from scipy import linalg

from unskew.data.factors import Factors
from unskew.data.ids import format_id
from unskew.data.ratings import Ratings
from unskew.data.universe import Universe
from unskew.errors import UsageError
from unskew.factorization.penalty import Offsets, Penalty, Side
from unskew.tables import count_noun
from unskew.threads import Workers, interruptible_ranges
from unskew.types import Floats, IntVector, Matrix, RowStarts, Vector

EntriesOfSides: TypeAlias = tuple[npt.NDArray[Any], npt.NDArray[Any]]
"""The entries of the cells sorted by user, and of the same cells sorted by item."""
MAX_TASKS = 16
CELLS_PER_TASK = 25_000
"""The number of tasks depends on the size of the log alone, and their sums are added in order:
so the result does not depend on the number of threads."""
MAX_CELLS = 100_000
"""The Gram matrix of a longer row is added up in pieces of this size, by all threads."""
CELLS_AT_ONCE = 1 << 17
"""About the cells that compiled code works on before it can be interrupted."""
VECTOR_BYTES = 32
"""Kernels work on vectors of 256 bits: ``lanes`` is how many numbers such a vector has."""


@dataclass(frozen=True, eq=False)
class SortedCells:
    """The observed cells sorted by user, or sorted by item.

    Row r has the cells ``starts[r]`` to ``starts[r + 1]``.
    """

    starts: RowStarts
    entries: npt.NDArray[Any]
    """Records of the opposite code, the square root of the weight, and the rating."""
    penalty_scale: Floats
    """The factor by which the penalty of each row is multiplied; 1 by default."""
    tasks: tuple[tuple[int, int], ...]
    """Ranges of rows with about equal numbers of cells; cells of long rows do not count."""
    side: Side = "user"
    """Whether rows are users or items."""

    @classmethod
    def of(
        cls,
        row: IntVector,
        opposite: IntVector,
        rating: Vector,
        weight: Vector,
        *,
        shape: tuple[int, int],
        dtype: npt.DTypeLike,
        side: Side = "user",
    ) -> SortedCells:
        """Sort cells by row; the cells of a row keep their order.

        ``shape`` is the number of rows and of opposite rows.
        """
        from unskew.kernels.rows import entry_type, find_starts, sort_cells

        n_rows, n_opposite = shape
        starts = np.zeros(n_rows + 1, np.int64)
        find_starts(row, starts)
        entries = np.empty(row.size, entry_type(dtype, n_opposite))
        free = starts[:-1].copy()
        for cells in interruptible_ranges(0, row.size, CELLS_AT_ONCE):
            sort_cells(cells, row, opposite, rating, weight, free, entries)
        return cls(starts, entries, np.ones(n_rows, dtype), even_ranges(starts), side)

    @property
    def n_rows(self) -> int:
        return self.starts.size - 1

    @property
    def cells(self) -> tuple[RowStarts, npt.NDArray[Any]]:
        """The arguments by which kernels read the cells."""
        return self.starts, self.entries

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.penalty_scale.dtype

    @property
    def opposite(self) -> IntVector:
        """The opposite code of each cell, as a view."""
        return self.entries["opposite"]

    @property
    def rating(self) -> Floats:
        """The rating of each cell, as a view."""
        return self.entries["rating"]

    @property
    def root_weight(self) -> Floats:
        """The square root of the weight of each cell, as a view."""
        return self.entries["root_weight"]

    def with_root_weights(self, root_weight: Floats) -> SortedCells:
        """A copy with other weights."""
        entries = self.entries.copy()
        entries["root_weight"] = root_weight
        return replace(self, entries=entries)

    @property
    def long_rows(self) -> list[int]:
        """Rows with so many cells that all threads share the work of each."""
        return np.flatnonzero(np.diff(self.starts) > MAX_CELLS).tolist()

    def cut(self, rows: tuple[int, int]) -> Iterator[tuple[int, int]]:
        """Ranges of rows with about :data:`CELLS_AT_ONCE` cells; work can stop between them.

        Kernels that solve several rows at once find them in the same groups as without cuts.
        """
        from unskew.kernels.vectors import N_SYSTEMS

        first, end = rows
        n_parts = max(1, int(self.starts[end] - self.starts[first]) // CELLS_AT_ONCE)
        groups = -(-(end - first) // (n_parts * N_SYSTEMS))
        return interruptible_ranges(first, end, max(groups, 1) * N_SYSTEMS)

    def release(self, rows: tuple[int, int]) -> None:
        """Say that these rows are not read again soon; cells in files give their memory back."""

    @cached_property
    def row_weights(self) -> Vector:
        """The sum of the weights of each row."""
        from unskew.kernels.rows import add_weights

        totals = np.empty(self.n_rows)
        add_weights(self.cells, totals)
        return totals


def sort_both_ways(
    user: IntVector,
    item: IntVector,
    rating: Vector,
    weight: Vector,
    *,
    shape: tuple[int, int],
    dtype: npt.DTypeLike,
    workers: Workers | None = None,
) -> tuple[SortedCells, SortedCells]:
    """The cells sorted by user, and sorted by item; ``shape`` is the numbers of users and items."""

    def sort_by(side: Side) -> SortedCells:
        codes, sizes = ((user, item), shape) if side == "user" else ((item, user), shape[::-1])
        return SortedCells.of(*codes, rating, weight, shape=sizes, dtype=dtype, side=side)

    sides: tuple[Side, Side] = ("user", "item")
    by_user, by_item = (workers or Workers(1)).map(sort_by, sides)
    return by_user, by_item


def even_ranges(starts: RowStarts) -> tuple[tuple[int, int], ...]:
    """Ranges of rows with about equal numbers of cells; cells of long rows do not count."""
    lengths = np.diff(starts)
    n_tasks = int(np.clip(starts[-1] // CELLS_PER_TASK, 1, MAX_TASKS))
    work = np.concatenate([[0], np.cumsum(np.where(lengths > MAX_CELLS, 0, lengths))])
    cuts = np.searchsorted(work, np.linspace(0, work[-1], n_tasks + 1)[1:-1])
    return tuple(pairwise(np.unique(np.concatenate([[0], cuts, [lengths.size]])).tolist()))


def scaled_ridge(
    l2: float, log: Ratings | Universe, *, n_factors: int, penalizes_offsets: bool
) -> float:
    """The ridge that ``l2`` stands for: ``l2 * U I / (U + I)`` over the penalised numbers of a row.

    This is the scale of the authors' code, so their grid 0.008 ... 125 has the same meaning here.
    On Coat (290 users, 300 items), ``l2=25`` with 40 factors and penalised offsets is a ridge of
    ``25 * 147.46 / 41 = 89.9``.
    """
    n_penalized = max(1, n_factors + penalizes_offsets)
    return float(l2) * log.n_cells / (log.n_users + log.n_items) / n_penalized


UNSOLVED_REMEDY = "Use a larger `l2` or fewer factors."


def describe_unsolved(name: str) -> str:
    """The error text for a user or an item whose normal matrix is singular."""
    return f"the least-squares problem for the factors of {name} has no unique solution."


class NoUniqueSolutionError(UsageError):
    """The ridge regression of a user or an item has no unique solution."""

    def __init__(self, side: Side, row: int, *, n_cells: int, n_factors: int) -> None:
        super().__init__(
            describe_unsolved(f"{side} code {row} ({_describe_size(n_cells, n_factors)})"),
            remedy=UNSOLVED_REMEDY,
        )
        self.side, self.row, self.n_cells, self.n_factors = side, row, n_cells, n_factors


def _describe_size(n_cells: int, n_factors: int) -> str:
    return f"{count_noun(n_cells, 'rating')}, {count_noun(n_factors, 'factor')}"


@contextmanager
def name_unsolved_rows(log: Ratings, l2: float) -> Iterator[None]:
    """Make a :class:`NoUniqueSolutionError` name the id of its user or item, and ``l2``."""
    try:
        yield
    except NoUniqueSolutionError as error:
        ids = log.users if error.side == "user" else log.items
        name = f"{error.side} {format_id(ids[error.row])}"
        size = _describe_size(error.n_cells, error.n_factors)
        raise UsageError(
            describe_unsolved(f"{name} ({size}, `l2={l2:g}`)"),
            parameter="l2",
            value=l2,
            where=name,
            remedy=error.remedy,
        ) from None


@dataclass(frozen=True, slots=True, eq=False)
class Objective:
    """The objective of one log, and its minimum over one side while the other side is fixed.

    ``unobserved_weight`` w0 adds w0 times the sum over all U I cells of (v . w)^2, for models
    without offsets.
    """

    by_user: SortedCells
    by_item: SortedCells
    n_factors: int
    offsets: Offsets
    penalty: Penalty
    workers: Workers
    unobserved_weight: float = 0.0
    constant: float = 0.0
    """A part of the objective that no factor changes."""

    @property
    def has_offsets(self) -> bool:
        return self.offsets != "none"

    def opposite_cells(self, cells: SortedCells) -> SortedCells:
        """The cells sorted by the other side."""
        return self.by_item if cells is self.by_user else self.by_user

    @property
    def n_unknowns(self) -> int:
        """Unknowns of a row: its factors, and its offset if there are offsets."""
        return self.n_factors + self.has_offsets

    def unknown_ridges(self, cells: SortedCells) -> Floats:
        """The ridge of each unknown of a row."""
        ridges = self.penalty.of_row(cells.side, self.n_unknowns, self.n_factors)
        return ridges.astype(cells.dtype)

    def side_penalty(self, cells: SortedCells, factors: Floats, offset: Floats) -> float:
        """The penalty of the rows of one side."""
        squares = self.penalty.factors * np.einsum("kd,kd->k", factors, factors)
        offset_ridge = self.penalty.of_offset(cells.side)
        if offset_ridge:
            squares = squares + offset_ridge * np.square(offset)
        return float(cells.penalty_scale.astype(np.float64) @ squares)

    def padded_zeros(self, n_rows: int) -> Floats:
        from unskew.kernels.rows import padded_zeros

        return padded_zeros(n_rows, self.n_unknowns + 1, self.by_user.dtype)

    def as_opposite_rows(self, factors: Floats, offset: Floats) -> Floats:
        """Padded rows ``[w, 1, b]`` of the fixed side."""
        return self._pad_rows(factors, 1.0, offset)

    def as_solved_rows(self, factors: Floats, offset: Floats) -> Floats:
        """Padded rows ``[v, a, 1]`` of the side that is solved for."""
        return self._pad_rows(factors, offset, 1.0)

    def _pad_rows(self, factors: Floats, first: Floats | float, second: Floats | float) -> Floats:
        rows = self.padded_zeros(len(factors))
        rows[:, : self.n_factors] = factors
        if self.has_offsets:
            rows[:, self.n_factors], rows[:, self.n_factors + 1] = first, second
        return rows

    def split_solved_rows(self, solved: Floats) -> tuple[Floats, Floats]:
        """The factors, as a view of the rows, and the offset, as a copy."""
        if not self.has_offsets:
            return solved[:, : self.n_factors], np.zeros(len(solved), solved.dtype)
        return solved[:, : self.n_factors], solved[:, self.n_factors].copy()

    def to_opposite_rows(self, solved: Floats) -> Floats:
        """Change the layout of solved rows to that of opposite rows, in place."""
        if self.has_offsets:
            solved[:, self.n_factors + 1] = solved[:, self.n_factors]
            solved[:, self.n_factors] = 1
        return solved

    def solve_rows(
        self, cells: SortedCells, opposite: Floats, global_offset: float
    ) -> tuple[Floats, float]:
        """The minimum over all rows of one side: the solved rows, and the sum of row minima.

        A row minimum is the loss of the row plus its penalty.
        """
        from unskew.kernels.rows import solve_rows

        solved, minima = self.padded_zeros(cells.n_rows), np.zeros(cells.n_rows)
        if self.has_offsets:
            solved[:, self.n_factors + 1] = 1
        shared_gram = self._shared_gram(opposite)
        arguments = (
            cells.cells,
            opposite.dtype.type(global_offset),
            opposite,
            shared_gram,
            self.unknown_ridges(cells),
            cells.penalty_scale,
            VECTOR_BYTES // opposite.itemsize,
            (0, MAX_CELLS),
        )

        def solve(rows: tuple[int, int]) -> int:
            unsolved = max(solve_rows(part, *arguments, solved, minima) for part in cells.cut(rows))
            cells.release(rows)
            return unsolved

        self.require_solutions(cells, self.workers.map(solve, cells.tasks))
        self.solve_long_rows(cells, opposite, global_offset, shared_gram, solved, minima)
        return solved, float(minima.sum())

    def loss_and_gradient(
        self,
        cells: SortedCells,
        opposite: Floats,
        solved: Floats,
        global_offset: float,
        *,
        is_absolute: bool = False,
    ) -> tuple[float, Floats]:
        """The loss, sum of w e^2 or w abs(e), and its gradient by the opposite rows.

        The gradient has the layout of opposite rows: the column of b holds the gradient by b, and
        the column of 1 nothing of use.
        """
        from unskew.kernels.rows import add_gradient

        float_type = opposite.dtype.type

        def add(rows: tuple[int, int]) -> tuple[float, Floats]:
            gradient = np.zeros_like(opposite)
            loss = add_gradient(
                rows,
                cells.cells,
                float_type(global_offset),
                opposite,
                solved,
                is_absolute,
                gradient,
            )
            return loss, gradient

        losses, gradients = zip(*self.workers.map(add, cells.tasks), strict=True)
        return sum(losses), np.sum(gradients, axis=0, dtype=np.float64)

    def absolute_loss(self, factors: Factors) -> float:
        """The sum of w abs(Y - F) over the cells."""
        from unskew.kernels.rows import add_absolute_loss

        cells, opposite = self.by_user, self.as_opposite_rows(*factors.item_side)
        solved, offset = self.as_solved_rows(*factors.user_side), factors.global_offset
        arguments = cells.cells, opposite.dtype.type(offset), opposite, solved
        losses = self.workers.map(lambda rows: add_absolute_loss(rows, *arguments), cells.tasks)
        return float(sum(losses))

    def copy_entries(self) -> EntriesOfSides:
        """The entries of the cells by user and by item, for other weights."""
        return self.by_user.entries.copy(), self.by_item.entries.copy()

    def reweight_for_absolute_loss(
        self, factors: Factors, min_error: float, copies: EntriesOfSides
    ) -> Objective:
        """The squared objective that bounds this one's absolute loss from above at ``factors``.

        abs(e) <= e^2 / (2 m) + m / 2 with m = max(abs(error of factors), ``min_error``). Its cells
        are ``copies``, made by :meth:`copy_entries`, whose weights are replaced.
        """
        user, item = factors.user_side, factors.item_side

        def reweight(
            cells: SortedCells,
            solved: tuple[Floats, Floats],
            opposite: tuple[Floats, Floats],
            reweighted: npt.NDArray[Any],
        ) -> SortedCells:
            """The cells with weights w / (2 max(abs(e), min_error)), e being the current errors."""
            from unskew.kernels.rows import reweight_absolute

            rows = self.as_opposite_rows(*opposite), self.as_solved_rows(*solved)
            float_type = rows[0].dtype.type
            offset = float_type(factors.global_offset)
            arguments = cells.cells, offset, *rows, float_type(min_error)
            self.workers.map(
                lambda task: reweight_absolute(task, *arguments, reweighted), cells.tasks
            )
            return replace(cells, entries=reweighted)

        return replace(
            self,
            by_user=reweight(self.by_user, user, item, copies[0]),
            by_item=reweight(self.by_item, item, user, copies[1]),
        )

    def _shared_gram(self, opposite: Floats) -> Floats:
        """The upper triangle that ``unobserved_weight`` adds to the normal matrix of every row."""
        if not self.unobserved_weight:
            return np.empty((0, 0), opposite.dtype)
        rows = opposite.astype(np.float64, copy=False)
        return np.triu(self.unobserved_weight * (rows.T @ rows)).astype(opposite.dtype)

    def require_solutions(self, cells: SortedCells, unsolved: Sequence[int]) -> None:
        """Raise if a task found a row without a unique solution; -1 means that it found none."""
        if max(unsolved) >= 0:
            raise self._no_solution_error(cells, max(unsolved))

    def _no_solution_error(self, cells: SortedCells, row: int) -> NoUniqueSolutionError:
        n_cells = int(cells.starts[row + 1] - cells.starts[row])
        return NoUniqueSolutionError(cells.side, row, n_cells=n_cells, n_factors=self.n_factors)

    def solve_long_rows(
        self,
        cells: SortedCells,
        opposite: Floats,
        global_offset: float,
        shared_gram: Floats,
        solved: Floats,
        minima: Vector,
    ) -> None:
        """Solve the rows with very many cells, which other solves skip, one after the other."""
        for row in cells.long_rows:
            solved[row, : self.n_unknowns], minima[row] = self._solve_long_row(
                cells, row, opposite, global_offset, shared_gram
            )
            cells.release((row, row + 1))

    def _solve_long_row(
        self,
        cells: SortedCells,
        row: int,
        opposite: Floats,
        global_offset: float,
        shared_gram: Floats,
    ) -> tuple[Vector, float]:
        """The exact solution of one row, and its minimum: the loss of the row plus its penalty.

        All threads add up its Gram matrix in pieces. ``shared_gram`` is what all rows add to
        theirs; it may be empty.
        """
        from unskew.kernels.rows import compute_gram

        n_unknowns, lanes = self.n_unknowns, VECTOR_BYTES // opposite.itemsize
        offset = opposite.dtype.type(global_offset)
        first, end = int(cells.starts[row]), int(cells.starts[row + 1])

        def compute_piece(start: int) -> Matrix:
            arguments = cells.cells, offset, opposite, n_unknowns, lanes
            return compute_gram(start, min(start + MAX_CELLS, end), *arguments).astype(np.float64)

        pieces = self.workers.map(compute_piece, range(first, end, MAX_CELLS))
        gram = np.add.reduce([shared_gram, *pieces] if shared_gram.size else pieces)
        upper = np.triu(gram[:n_unknowns, :n_unknowns])
        ridges = cells.penalty_scale[row] * self.unknown_ridges(cells)
        normal = upper + np.triu(upper, 1).T + np.diag(ridges)
        right = gram[:n_unknowns, n_unknowns]
        try:
            solution = linalg.cho_solve(linalg.cho_factor(normal), right)
        except linalg.LinAlgError as error:
            raise self._no_solution_error(cells, row) from error
        return solution, float(gram[n_unknowns, n_unknowns] - right @ solution)
