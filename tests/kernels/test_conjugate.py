"""Conjugate gradient steps against a slow, readable version, and against the exact solution."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from unskew.kernels.conjugate import improve_rows, vector_width
from unskew.kernels.rows import CACHE_BYTES, entry_type, padded_width
from unskew.kernels.vectors import subtract_projection

CELLS_PER_ROW = (0, 1, 3, 95, 96, 97, 250, 2, 7, 40, 8)
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
N_OPPOSITE = 300


class RowProblem:
    """Rows of random cells, and a start for each."""

    def __init__(self, n_factors: int, dtype: str, *, has_offset: bool) -> None:
        rng, n_unknowns = np.random.default_rng(n_factors), n_factors + has_offset
        self.n_unknowns, self.has_offset, self.global_offset = n_unknowns, has_offset, 1.25
        self.opposite_rows = np.zeros((N_OPPOSITE, padded_width(n_unknowns + 1)), dtype)
        self.opposite_rows[:, :n_factors] = rng.normal(size=(N_OPPOSITE, n_factors)) * rng.uniform(
            0.1, 2, n_factors
        )
        if has_offset:
            self.opposite_rows[:, n_factors], self.opposite_rows[:, n_factors + 1] = (
                1,
                rng.normal(size=N_OPPOSITE),
            )
        self.starts = np.concatenate([[0], np.cumsum(CELLS_PER_ROW)]).astype(np.int64)
        n = self.starts[-1]
        self.entries = np.empty(n, entry_type(dtype, N_OPPOSITE))
        self.entries["opposite"] = rng.integers(0, N_OPPOSITE, n)
        self.entries["root_weight"], self.entries["rating"] = (
            rng.uniform(0.5, 3, n),
            rng.integers(1, 6, n),
        )
        self.ridge, self.penalty_scale = (
            rng.uniform(0.5, 2, n_unknowns).astype(dtype),
            rng.uniform(0.5, 2, len(CELLS_PER_ROW)).astype(dtype),
        )
        self.mean_squares = np.square(self.opposite_rows[:, :n_unknowns]).mean(axis=0)
        self.start = rng.normal(0, 0.1, (len(CELLS_PER_ROW), self.opposite_rows.shape[1])).astype(
            dtype
        )

    def improve(self, n_steps: int, max_cells: int = 10_000) -> tuple[np.ndarray, np.ndarray]:
        solutions, minima = self.start.copy(), np.full(len(CELLS_PER_ROW), -1.0)
        cells, number = (self.starts, self.entries), self.opposite_rows.dtype.type
        ridge = self.ridge, self.penalty_scale
        rows = 0, len(CELLS_PER_ROW)
        problem = (
            cells,
            number(self.global_offset),
            self.opposite_rows,
            self.mean_squares,
            *ridge,
            self.has_offset,
            n_steps,
            max_cells,
        )
        improve_rows(rows, *problem, solutions, minima)
        return solutions[:, : self.n_unknowns], minima

    def system(self, row: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, float]:
        """Normal matrix, right-hand side, weights and sum w t^2 of a row, in float64."""
        cells = self.entries[self.starts[row] : self.starts[row + 1]]
        vectors = self.opposite_rows[cells["opposite"]].astype(np.float64)
        x, weight = vectors[:, : self.n_unknowns], cells["root_weight"].astype(np.float64) ** 2
        t = (
            cells["rating"]
            - self.global_offset
            - (vectors[:, self.n_unknowns] if self.has_offset else 0)
        )
        penalty = np.diag(self.penalty_scale[row] * self.ridge.astype(np.float64))
        return (
            (x * weight[:, None]).T @ x + penalty,
            (x * weight[:, None]).T @ t,
            weight,
            float(weight @ t**2),
        )

    def improve_slowly(self, row: int, n_steps: int) -> tuple[np.ndarray, float]:
        """Textbook conjugate gradients with a diagonal scale; then the exact offset."""
        matrix, right, weight, squares = self.system(row)
        scale = 1 / (weight.sum() * self.mean_squares + self.penalty_scale[row] * self.ridge)
        z = self.start[row, : self.n_unknowns].astype(np.float64)
        residual = right - matrix @ z
        direction = scale * residual
        for _ in range(n_steps):
            product = residual @ (scale * residual)
            if product < 1e-25:
                break
            step = product / (direction @ matrix @ direction)
            z, residual = z + step * direction, residual - step * matrix @ direction
            direction = scale * residual + residual @ (scale * residual) / product * direction
        if self.has_offset:
            z[-1] += residual[-1] / matrix[-1, -1]
        return z, float(z @ matrix @ z - 2 * right @ z + squares)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("n_steps", [0, 1, 2, 3])
@pytest.mark.parametrize(("n_factors", "has_offset"), SIZES)
def test_steps_equal_textbook_conjugate_gradients(
    n_factors: int, has_offset: bool, n_steps: int, dtype: str
) -> None:
    problem = RowProblem(n_factors, dtype, has_offset=has_offset)

    solutions, sums = problem.improve(n_steps)

    tolerance = 3e-3 if dtype == "float32" else 1e-8
    for row in np.flatnonzero(CELLS_PER_ROW):
        z, minimum = problem.improve_slowly(row, n_steps)
        np.testing.assert_allclose(solutions[row], z, rtol=tolerance, atol=tolerance)
        assert sums[row] == pytest.approx(minimum, rel=tolerance)


NARROW = """
import sys
import unskew.kernels.vectors as vectors
vectors.MAX_VECTOR_BITS = 256
sys.path.insert(0, sys.argv[1])
import test_conjugate as tests
for size, dtype in ((size, dtype) for size in tests.SIZES for dtype in ("float32", "float64")):
    tests.test_steps_equal_textbook_conjugate_gradients(*size, 2, dtype)
"""


def test_vectors_of_256_bits_do_the_same(tmp_path: Path) -> None:
    """Some processors have no wider vectors."""
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
    problem = RowProblem(n_factors, "float64", has_offset=has_offset)

    solutions, minima = problem.improve(3 * (n_factors + 1))

    for row in np.flatnonzero(CELLS_PER_ROW):
        matrix, right, _, squares = problem.system(row)
        z = np.linalg.solve(matrix, right)
        np.testing.assert_allclose(solutions[row], z, atol=1e-7)
        assert minima[row] == pytest.approx(squares - right @ z, rel=1e-8, abs=1e-8)


def test_errors_of_a_row_add_up_to_the_penalty_of_its_offset() -> None:
    problem = RowProblem(20, "float64", has_offset=True)

    solutions, _ = problem.improve(2)

    for row in np.flatnonzero(CELLS_PER_ROW):
        matrix, right, _, _ = problem.system(row)
        assert (right - matrix @ solutions[row])[-1] == pytest.approx(0, abs=1e-8)


def test_rows_without_cells_become_zeros_and_long_rows_stay_as_they_are() -> None:
    problem = RowProblem(20, "float64", has_offset=True)

    solutions, sums = problem.improve(2, max_cells=96)

    for row, n in enumerate(CELLS_PER_ROW):
        if n == 0:
            assert not solutions[row].any()
        if n > 96:
            assert np.array_equal(solutions[row], problem.start[row, :21])
            assert sums[row] == -1


def test_prefetching_changes_nothing() -> None:
    """Opposite rows are prefetched if they exceed one megabyte."""
    near = RowProblem(64, "float64", has_offset=True).improve(2)
    problem = RowProblem(64, "float64", has_offset=True)
    problem.opposite_rows = np.concatenate(
        [problem.opposite_rows, np.zeros((2000, problem.opposite_rows.shape[1]))]
    )

    far = problem.improve(2)

    assert problem.opposite_rows.nbytes > CACHE_BYTES
    assert np.array_equal(near[0], far[0])
    assert np.array_equal(near[1], far[1])


def test_a_row_that_starts_at_its_solution_stays_there() -> None:
    problem = RowProblem(5, "float64", has_offset=False)
    problem.entries["rating"], problem.start[:] = problem.global_offset, 0

    solutions, sums = problem.improve(3)

    assert not solutions.any()
    assert not sums[np.flatnonzero(CELLS_PER_ROW)].any()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("n_vectors", [1, 2, 5])
def test_subtract_projection_equals_dense_algebra(n_vectors: int, dtype: Any) -> None:
    from unskew.kernels.compiling import compiled

    subtract = compiled(
        lambda panel, targets, vectors: subtract_projection(panel, 8, 24, targets, vectors, 0, 1)
    )
    rng, width = np.random.default_rng(0), n_vectors * vector_width(1, np.dtype(dtype).itemsize)
    panel, targets, vectors = (
        rng.normal(size=size).astype(dtype) for size in ((32, width), 32, (3, width))
    )
    error = targets[8:24] - panel[8:24].astype(np.float64) @ vectors[0]
    expected = vectors.astype(np.float64)
    expected[1] += error @ panel[8:24]

    squares = subtract(panel, targets, vectors)

    tolerance = 1e-4 if dtype == "float32" else 1e-12
    assert squares == pytest.approx(error @ error, rel=tolerance)
    np.testing.assert_allclose(vectors, expected, rtol=tolerance, atol=tolerance)
