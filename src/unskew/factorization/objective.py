"""The objective of Eq. (14) on one log, or on all cells at once, laid out for the row kernels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
from scipy import linalg

from unskew.errors import UsageError
from unskew.factorization.parameters import Floats, Parameters
from unskew.threads import Workers
from unskew.types import IntVector, Matrix, Vector

Offsets: TypeAlias = Literal["none", "free", "regularized"]

MOST_TASKS = 16
CELLS_A_TASK = 25_000
"""The log is worked through in pieces whose number depends on its size alone: sums over them are added in their order."""
BY_STEPS = 1 << 21
"""Bytes of a row's lines that it takes no longer to fetch at every step than to make a Gram matrix of once."""
WIDE = 48
"""Unknowns of a row from which on a few steps are cheaper than its solution."""
STEPS = 2
"""Of conjugate gradients: with one, a sweep does half as much; a third costs more than it gains."""
LINES_A_PIECE = 4096
"""Lines that a thread rotates at a time."""
LONGEST = 100_000
"""A row of more cells is added up in pieces of so many, by all threads."""


@dataclass(frozen=True, eq=False)
class SortedCells:
    """The log sorted by one side: row r's cells are ``starts[r]`` to ``starts[r + 1]``."""

    starts: npt.NDArray[np.int64]
    entries: npt.NDArray[Any]
    """Records of a cell's partner, root of its weight, and rating."""
    row_ridge: Floats
    """What each row's penalty is multiplied by."""
    tasks: tuple[tuple[int, int], ...]
    """Ranges of rows with about equal numbers of cells, those of long rows not counted."""

    @classmethod
    def of(
        cls,
        row: IntVector,
        partner: IntVector,
        rating: Vector,
        propensity: Vector,
        *,
        shape: tuple[int, int],
        dtype: npt.DTypeLike,
    ) -> SortedCells:
        """Sort cells by row; within a row the order of the log stays. ``shape`` has rows and partners. Penalties are alike."""
        from unskew.kernels.rows import entry_type, find_starts, sort_cells

        n_rows, n_partners = shape
        starts = np.zeros(n_rows + 1, np.int64)
        find_starts(row, starts)
        entries = np.empty(row.size, entry_type(dtype, n_partners))
        sort_cells(row, partner, rating, propensity, starts, entries)
        return cls(starts, entries, np.ones(n_rows, dtype), _even_ranges(starts))

    @property
    def n_rows(self) -> int:
        """Rows, those without a cell included."""
        return self.starts.size - 1

    @property
    def cells(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[Any]]:
        """As the kernels take them."""
        return self.starts, self.entries

    @property
    def dtype(self) -> np.dtype[Any]:
        """Of ratings, weights and what is solved for."""
        return self.row_ridge.dtype

    @property
    def partner(self) -> IntVector:
        """Of each cell: a view of the entries, as the next two are."""
        return self.entries["partner"]

    @property
    def rating(self) -> Floats:
        """Of each cell."""
        return self.entries["rating"]

    @property
    def root_weight(self) -> Floats:
        """Of each cell."""
        return self.entries["root_weight"]

    def weighing(self, root_weight: Floats) -> SortedCells:
        """The same with other weights."""
        entries = self.entries.copy()
        entries["root_weight"] = root_weight
        return replace(self, entries=entries)

    @property
    def long_rows(self) -> list[int]:
        """Rows that no one thread should solve alone."""
        return np.flatnonzero(np.diff(self.starts) > LONGEST).tolist()

    @cached_property
    def weight_of_rows(self) -> Vector:
        """The sum of each row's weights."""
        from unskew.kernels.rows import add_weights

        totals = np.empty(self.n_rows)
        add_weights(self.cells, totals)
        return totals


def _even_ranges(starts: npt.NDArray[np.int64]) -> tuple[tuple[int, int], ...]:
    lengths = np.diff(starts)
    n_tasks = int(np.clip(starts[-1] // CELLS_A_TASK, 1, MOST_TASKS))
    work = np.concatenate([[0], np.cumsum(np.where(lengths > LONGEST, 0, lengths))])
    cuts = np.searchsorted(work, np.linspace(0, work[-1], n_tasks + 1)[1:-1])
    return tuple(pairwise(np.unique(np.concatenate([[0], cuts, [lengths.size]])).tolist()))


@dataclass(frozen=True, slots=True, eq=False)
class Objective:
    """sum over cells of w (y - v.w - a - b - c)^2 + l2 (||V||^2 + ||W||^2 [+ ||a||^2 + ||b||^2 + c^2]).

    ``everywhere`` adds ``everywhere * sum over all U I cells of (v . w)^2``, for models without offsets. Penalties that differ by
    row, and this, are for alternation alone.
    """

    by_user: SortedCells
    by_item: SortedCells
    n_factors: int
    offsets: Offsets
    l2: float
    """The ridge itself, after scaling."""
    workers: Workers
    everywhere: float = 0.0
    fixed: float = 0.0
    """Part of the objective that no parameter changes."""

    @property
    def has_offsets(self) -> bool:
        """Whether a, b and c are there at all."""
        return self.offsets != "none"

    @property
    def penalizes_offsets(self) -> bool:
        """Whether a, b and c are penalised like the factors."""
        return self.offsets == "regularized"

    @property
    def n_solved(self) -> int:
        """Unknowns of a row: its factors, and its offset."""
        return self.n_factors + self.has_offsets

    @property
    def is_wide(self) -> bool:
        """Whether a few steps for a row are cheaper than its solution, and there is one."""
        return self.n_solved >= WIDE and self.l2 > 0 and not self.everywhere

    @property
    def ridge(self) -> Floats:
        """The penalty on each unknown of a row."""
        ridge = np.full(self.n_solved, self.l2, self.by_user.dtype)
        if self.offsets == "free":
            ridge[-1] = 0
        return ridge

    def penalty(self, side: SortedCells, factors: Floats, offset: Floats) -> float:
        """What one side's rows add to the objective."""
        of_row = np.einsum("kd,kd->k", factors, factors)
        if self.penalizes_offsets:
            of_row = of_row + np.square(offset)
        return self.l2 * float(side.row_ridge.astype(np.float64) @ of_row)

    def lines(self, n: int) -> Floats:
        """Lines of zeros for ``n`` rows."""
        from unskew.kernels.rows import lines_of_zeros

        return lines_of_zeros(n, self.n_solved + 1, self.by_user.dtype)

    def as_partners(self, factors: Floats, offset: Floats) -> Floats:
        """``[w, 1, b]``."""
        lines = self.lines(len(factors))
        lines[:, : self.n_factors] = factors
        if self.has_offsets:
            lines[:, self.n_factors], lines[:, self.n_factors + 1] = 1, offset
        return lines

    def as_solutions(self, factors: Floats, offset: Floats) -> Floats:
        """``[v, a, 1]``."""
        lines = self.lines(len(factors))
        lines[:, : self.n_factors] = factors
        if self.has_offsets:
            lines[:, self.n_factors], lines[:, self.n_factors + 1] = offset, 1
        return lines

    def from_solutions(self, solutions: Floats) -> tuple[Floats, Floats]:
        """Factors, which are a part of the lines, and offset, which is not."""
        offset = (
            solutions[:, self.n_factors].copy()
            if self.has_offsets
            else np.zeros(len(solutions), solutions.dtype)
        )
        return solutions[:, : self.n_factors], offset

    def turned_to_partners(self, solutions: Floats) -> Floats:
        """The same lines as partners, in their place."""
        if self.has_offsets:
            solutions[:, self.n_factors + 1] = solutions[:, self.n_factors]
            solutions[:, self.n_factors] = 1
        return solutions

    def reweighed(self, at: Parameters, smallest: float) -> Objective:
        """The squared problem that touches this one's absolute loss from above at the errors of ``at``."""
        users = (
            self.as_solutions(at.user_factors, at.user_offset),
            self.as_partners(at.user_factors, at.user_offset),
        )
        items = (
            self.as_solutions(at.item_factors, at.item_offset),
            self.as_partners(at.item_factors, at.item_offset),
        )
        return replace(
            self,
            by_user=self._reweighed(self.by_user, items[1], users[0], at.constant, smallest),
            by_item=self._reweighed(self.by_item, users[1], items[0], at.constant, smallest),
        )

    def _reweighed(
        self,
        side: SortedCells,
        partners: Floats,
        solutions: Floats,
        constant: float,
        smallest: float,
    ) -> SortedCells:
        from unskew.kernels.rows import reweigh

        number, reweighed = partners.dtype.type, side.entries.copy()

        def work(rows: tuple[int, int]) -> None:
            reweigh(
                rows, side.cells, number(constant), partners, solutions, number(smallest), reweighed
            )

        self.workers.map(work, side.tasks)
        return replace(side, entries=reweighed)

    def solve(self, side: SortedCells, partners: Floats, constant: float) -> tuple[Floats, float]:
        """The best line of every row of ``side``, as solutions, and the sum of the penalised minima."""
        from unskew.kernels.rows import solve_rows

        solutions, minima = self.lines(side.n_rows), np.zeros(side.n_rows)
        if self.has_offsets:
            solutions[:, self.n_factors + 1] = 1
        number, lanes, shared = partners.dtype.type, 32 // partners.itemsize, self._shared(partners)
        given = (
            side.cells,
            number(constant),
            partners,
            shared,
            self.ridge,
            side.row_ridge,
            lanes,
            (0, LONGEST),
        )

        def work(rows: tuple[int, int]) -> int:
            return solve_rows(rows, *given, solutions, minima)

        self._require_solutions(self.workers.map(work, side.tasks))
        for row in side.long_rows:
            solutions[row, : self.n_solved], minima[row] = self._solve_long(
                side, row, partners, constant, shared
            )
        return solutions, float(minima.sum())

    def _require_solutions(self, without: Sequence[int]) -> None:
        """Refuse rows without a unique solution; -1 is none."""
        if max(without) >= 0:
            raise self._no_solution(max(without))

    def _no_solution(self, row: int) -> UsageError:
        return UsageError(f"row {row} has no unique solution at l2 = {self.l2:g}. Raise l2.")

    def improve(
        self,
        side: SortedCells,
        partners: Floats,
        constant: float,
        *,
        begin: tuple[Floats, Floats],
        other: SortedCells,
    ) -> tuple[Floats, float]:
        """A better line of every row than its factors and offset in ``begin``, and what the penalised sums come to.

        Rows of not too many cells take a few steps of conjugate gradients, longer ones are solved. Both happen along the axes of
        the partners' factors, where a row's normal matrix is nearly diagonal; ``partners``, the rows of ``other``, are
        rotated there and back.
        """
        from unskew.kernels.conjugate import improve_rows
        from unskew.kernels.rows import solve_rows

        axes, spread = self._axes(partners, other.weight_of_rows)
        solutions, minima, shared = (
            self.as_solutions(*begin),
            np.zeros(side.n_rows),
            np.empty((0, 0), partners.dtype),
        )
        self._rotate(axes, partners, solutions)
        number, lanes, fits = (
            partners.dtype.type,
            32 // partners.itemsize,
            BY_STEPS // (partners.shape[1] * partners.itemsize),
        )
        given, ridge = (side.cells, number(constant), partners), (self.ridge, side.row_ridge)

        def work(rows: tuple[int, int]) -> int:
            improve_rows(
                rows, *given, spread, *ridge, self.has_offsets, STEPS, fits, solutions, minima
            )
            return solve_rows(
                rows, *given, shared, *ridge, lanes, (fits + 1, LONGEST), solutions, minima
            )

        self._require_solutions(self.workers.map(work, side.tasks))
        for row in side.long_rows:
            solutions[row, : self.n_solved], minima[row] = self._solve_long(
                side, row, partners, constant, shared
            )
        self._rotate(axes.T, partners, solutions)
        return solutions, float(minima.sum())

    def _axes(self, partners: Floats, weight: Vector) -> tuple[Floats, Floats]:
        """The principal axes of the partners' factors, and the mean square along each, and of the ones of an offset."""
        share = (weight / weight.sum()).astype(partners.dtype)

        def work(first: int) -> Matrix:
            factors = partners[first : first + LINES_A_PIECE, : self.n_factors]
            moments: Matrix = (share[first : first + LINES_A_PIECE, None] * factors).T @ factors
            return moments.astype(np.float64)

        moments = np.add.reduce(self.workers.map(work, range(0, len(partners), LINES_A_PIECE)))
        if not np.isfinite(moments).all():
            raise UsageError(
                f"ratings or weights are too large for {partners.dtype}. Rescale them, or take dtype='float64'."
            )
        squares, axes = linalg.eigh(moments)
        squares = np.maximum(
            squares, np.finfo(partners.dtype).eps * squares[-1]
        )  # rounding may leave less than nothing
        return axes.astype(partners.dtype), np.append(squares, [1.0] * self.has_offsets).astype(
            partners.dtype
        )

    def _rotate(self, axes: Floats, *arrays: Floats) -> None:
        """Factors of lines along other axes, in their place."""
        pieces = [
            (lines, first) for lines in arrays for first in range(0, len(lines), LINES_A_PIECE)
        ]

        def work(piece: tuple[Floats, int]) -> None:
            factors = piece[0][piece[1] : piece[1] + LINES_A_PIECE, : self.n_factors]
            factors[:] = factors @ axes

        self.workers.map(work, pieces)

    def _shared(self, partners: Floats) -> Floats:
        """The upper triangle of what ``everywhere`` adds to the normal matrix of every row, if anything."""
        if not self.everywhere:
            return np.empty((0, 0), partners.dtype)
        lines = partners.astype(np.float64, copy=False)
        return np.triu(self.everywhere * (lines.T @ lines)).astype(partners.dtype)

    def _solve_long(
        self, side: SortedCells, row: int, partners: Floats, constant: float, shared: Floats
    ) -> tuple[Vector, float]:
        """One row's solution and minimum, its cells added up in pieces by all threads, and the pieces in their order."""
        from unskew.kernels.rows import gram_of

        number, lanes, n_solved = partners.dtype.type, 32 // partners.itemsize, self.n_solved
        first, end = int(side.starts[row]), int(side.starts[row + 1])

        def work(piece: int) -> Matrix:
            gram = gram_of(
                piece,
                min(piece + LONGEST, end),
                side.cells,
                number(constant),
                partners,
                n_solved,
                lanes,
            )
            return gram.astype(np.float64)

        pieces = self.workers.map(work, range(first, end, LONGEST))
        gram = np.add.reduce([shared, *pieces] if shared.size else pieces)
        upper, ridge = np.triu(gram[:n_solved, :n_solved]), side.row_ridge[row] * self.ridge
        normal = upper + np.triu(upper, 1).T + np.diag(ridge)
        right = gram[:n_solved, n_solved]
        try:
            solution = linalg.cho_solve(linalg.cho_factor(normal), right)
        except linalg.LinAlgError as error:
            raise self._no_solution(row) from error
        return solution, float(gram[n_solved, n_solved] - right @ solution)

    def slope(
        self,
        side: SortedCells,
        partners: Floats,
        solutions: Floats,
        constant: float,
        *,
        is_absolute: bool = False,
    ) -> tuple[float, Floats]:
        """The loss and its gradient by the partners' lines, in their layout, added over tasks in their order."""
        from unskew.kernels.rows import add_gradient

        number = partners.dtype.type

        def work(rows: tuple[int, int]) -> tuple[float, Floats]:
            part = np.zeros_like(partners)
            loss = add_gradient(
                rows, side.cells, number(constant), partners, solutions, is_absolute, part
            )
            return loss, part

        losses, parts = zip(*self.workers.map(work, side.tasks), strict=True)
        return sum(losses), np.sum(parts, axis=0, dtype=np.float64)
