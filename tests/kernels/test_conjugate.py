"""Steps of conjugate gradients against a slow readable twin, and against the solution."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from unskew.kernels.conjugate import improve_rows, line_width
from unskew.kernels.rows import IN_CACHE, entry_type, padded_width
from unskew.kernels.vectors import leave

CELLS_A_ROW = (0, 1, 3, 95, 96, 97, 250, 2, 7, 40, 8)
SIZES = [
    (1, False),
    (0, True),
    (5, True),
    (7, False),
    (16, False),
    (20, True),
    (63, True),
    (64, False),
    (64, True),
    (130, True),
]
N_PARTNERS = 300


class Rows:
    """Rows of random cells, and where they stand."""

    def __init__(self, n_factors: int, dtype: str, *, has_offset: bool) -> None:
        rng, n_solved = np.random.default_rng(n_factors), n_factors + has_offset
        self.n_solved, self.has_offset, self.constant = n_solved, has_offset, 1.25
        self.partners = np.zeros((N_PARTNERS, padded_width(n_solved + 1)), dtype)
        self.partners[:, :n_factors] = rng.normal(size=(N_PARTNERS, n_factors)) * rng.uniform(
            0.1, 2, n_factors
        )
        if has_offset:
            self.partners[:, n_factors], self.partners[:, n_factors + 1] = (
                1,
                rng.normal(size=N_PARTNERS),
            )
        self.starts = np.concatenate([[0], np.cumsum(CELLS_A_ROW)]).astype(np.int64)
        n = self.starts[-1]
        self.entries = np.empty(n, entry_type(dtype, N_PARTNERS))
        self.entries["partner"] = rng.integers(0, N_PARTNERS, n)
        self.entries["root_weight"], self.entries["rating"] = (
            rng.uniform(0.5, 3, n),
            rng.integers(1, 6, n),
        )
        self.ridge, self.row_ridge = (
            rng.uniform(0.5, 2, n_solved).astype(dtype),
            rng.uniform(0.5, 2, len(CELLS_A_ROW)).astype(dtype),
        )
        self.spread = np.square(self.partners[:, :n_solved]).mean(axis=0)
        self.start = rng.normal(0, 0.1, (len(CELLS_A_ROW), self.partners.shape[1])).astype(dtype)

    def improved(self, n_steps: int, longest: int = 10_000) -> tuple[np.ndarray, np.ndarray]:
        solutions, minima = self.start.copy(), np.full(len(CELLS_A_ROW), -1.0)
        cells, number = (self.starts, self.entries), self.partners.dtype.type
        ridge = self.ridge, self.row_ridge
        rows = 0, len(CELLS_A_ROW)
        given = (
            cells,
            number(self.constant),
            self.partners,
            self.spread,
            *ridge,
            self.has_offset,
            n_steps,
            longest,
        )
        improve_rows(rows, *given, solutions, minima)
        return solutions[:, : self.n_solved], minima

    def system(self, row: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, float]:
        """Normal matrix, right-hand side, weights and sum w t^2 of a row, in float64."""
        cells = self.entries[self.starts[row] : self.starts[row + 1]]
        lines = self.partners[cells["partner"]].astype(np.float64)
        x, weight = lines[:, : self.n_solved], cells["root_weight"].astype(np.float64) ** 2
        t = cells["rating"] - self.constant - (lines[:, self.n_solved] if self.has_offset else 0)
        penalty = np.diag(self.row_ridge[row] * self.ridge.astype(np.float64))
        return (
            (x * weight[:, None]).T @ x + penalty,
            (x * weight[:, None]).T @ t,
            weight,
            float(weight @ t**2),
        )

    def improved_slowly(self, row: int, n_steps: int) -> tuple[np.ndarray, float]:
        """Textbook conjugate gradients, scaled unknown by unknown; the last unknown by its own equation."""
        matrix, right, weight, squares = self.system(row)
        scale = 1 / (weight.sum() * self.spread + self.row_ridge[row] * self.ridge)
        z = self.start[row, : self.n_solved].astype(np.float64)
        residual = right - matrix @ z
        direction = scale * residual
        for _ in range(n_steps):
            slope = residual @ (scale * residual)
            if slope < 1e-25:
                break
            step = slope / (direction @ matrix @ direction)
            z, residual = z + step * direction, residual - step * matrix @ direction
            direction = scale * residual + residual @ (scale * residual) / slope * direction
        if self.has_offset:
            z[-1] += residual[-1] / matrix[-1, -1]
        return z, float(z @ matrix @ z - 2 * right @ z + squares)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("n_steps", [0, 1, 2, 3])
@pytest.mark.parametrize(("n_factors", "has_offset"), SIZES)
def test_steps_are_those_of_the_textbook_and_the_sum_is_what_they_leave(
    n_factors: int, has_offset: bool, n_steps: int, dtype: str
) -> None:
    given = Rows(n_factors, dtype, has_offset=has_offset)

    solutions, sums = given.improved(n_steps)

    tolerance = 3e-3 if dtype == "float32" else 1e-8
    for row in np.flatnonzero(CELLS_A_ROW):
        z, left = given.improved_slowly(row, n_steps)
        np.testing.assert_allclose(solutions[row], z, rtol=tolerance, atol=tolerance)
        assert sums[row] == pytest.approx(left, rel=tolerance)


NARROW = """
import sys
import unskew.kernels.vectors as vectors
vectors.WIDEST = 256
sys.path.insert(0, sys.argv[1])
import test_conjugate as tests
for size, dtype in ((size, dtype) for size in tests.SIZES for dtype in ("float32", "float64")):
    tests.test_steps_are_those_of_the_textbook_and_the_sum_is_what_they_leave(*size, 2, dtype)
"""


def test_vectors_of_256_bits_do_the_same(tmp_path: Path) -> None:
    """As on processors that have no wider ones."""
    command = [sys.executable, "-c", NARROW, str(Path(__file__).parent)]
    done = subprocess.run(
        command,
        env={**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(("n_factors", "has_offset"), SIZES)
def test_many_steps_reach_the_solution(n_factors: int, has_offset: bool) -> None:
    given = Rows(n_factors, "float64", has_offset=has_offset)

    solutions, minima = given.improved(3 * (n_factors + 1))

    for row in np.flatnonzero(CELLS_A_ROW):
        matrix, right, _, squares = given.system(row)
        z = np.linalg.solve(matrix, right)
        np.testing.assert_allclose(solutions[row], z, atol=1e-7)
        assert minima[row] == pytest.approx(squares - right @ z, rel=1e-8, abs=1e-8)


def test_errors_of_a_row_add_up_to_the_penalty_of_its_offset() -> None:
    given = Rows(20, "float64", has_offset=True)

    solutions, _ = given.improved(2)

    for row in np.flatnonzero(CELLS_A_ROW):
        matrix, right, _, _ = given.system(row)
        assert (right - matrix @ solutions[row])[-1] == pytest.approx(0, abs=1e-8)


def test_rows_without_a_cell_get_zeros_and_long_ones_are_left_alone() -> None:
    given = Rows(20, "float64", has_offset=True)

    solutions, sums = given.improved(2, longest=96)

    for row, n in enumerate(CELLS_A_ROW):
        if n == 0:
            assert not solutions[row].any()
        if n > 96:
            assert np.array_equal(solutions[row], given.start[row, :21])
            assert sums[row] == -1


def test_lines_that_lie_far_away_are_the_same_lines() -> None:
    """More than a megabyte of them is fetched ahead."""
    near = Rows(64, "float64", has_offset=True).improved(2)
    given = Rows(64, "float64", has_offset=True)
    given.partners = np.concatenate([given.partners, np.zeros((2000, given.partners.shape[1]))])

    far = given.improved(2)

    assert given.partners.nbytes > IN_CACHE
    assert np.array_equal(near[0], far[0])
    assert np.array_equal(near[1], far[1])


def test_a_row_that_stands_at_its_solution_stays_there() -> None:
    given = Rows(5, "float64", has_offset=False)
    given.entries["rating"], given.start[:] = given.constant, 0

    solutions, sums = given.improved(3)

    assert not solutions.any()
    assert not sums[np.flatnonzero(CELLS_A_ROW)].any()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("n_vectors", [1, 2, 5])
def test_what_a_direction_leaves(n_vectors: int, dtype: Any) -> None:
    from unskew.kernels.compiling import compiled

    left = compiled(lambda panel, targets, lines: leave(panel, 8, 24, targets, lines, 0, 1))
    rng, width = np.random.default_rng(0), n_vectors * line_width(1, np.dtype(dtype).itemsize)
    panel, targets, lines = (
        rng.normal(size=size).astype(dtype) for size in ((32, width), 32, (3, width))
    )
    error = targets[8:24] - panel[8:24].astype(np.float64) @ lines[0]
    expected = lines.astype(np.float64)
    expected[1] += error @ panel[8:24]

    squares = left(panel, targets, lines)

    tolerance = 1e-4 if dtype == "float32" else 1e-12
    assert squares == pytest.approx(error @ error, rel=tolerance)
    np.testing.assert_allclose(lines, expected, rtol=tolerance, atol=tolerance)
