"""The fast row solver against a slow, readable version."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from unskew.kernels import rows as kernel

CELLS_PER_ROW = (0, 1, 3, 95, 96, 97, 250, 2, 7, 40, 5)
ROWS = (0, len(CELLS_PER_ROW))
SIZES = [
    (1, False),
    (0, True),
    (5, True),
    (7, False),
    (16, False),
    (20, True),
    (22, True),
    (64, False),
    (64, True),
]


def make_problem(
    n_factors: int, dtype: str, seed: int, *, has_offsets: bool
) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    n_opposite, n_unknowns = 300, n_factors + has_offsets
    opposite_rows = np.zeros((n_opposite, kernel.padded_width(n_unknowns + 1)), dtype)
    opposite_rows[:, :n_factors] = rng.normal(size=(n_opposite, n_factors))
    if has_offsets:
        opposite_rows[:, n_factors], opposite_rows[:, n_factors + 1] = (
            1,
            rng.normal(size=n_opposite),
        )
    starts = np.concatenate([[0], np.cumsum(CELLS_PER_ROW)])
    n = starts[-1]
    return {
        "starts": starts.astype(np.int64),
        "opposite": rng.integers(0, n_opposite, n).astype(np.int32),
        "root_weight": rng.uniform(0.5, 3, n).astype(dtype),
        "rating": rng.integers(1, 6, n).astype(dtype),
        "opposite_rows": opposite_rows,
        "shared": np.empty((0, 0), dtype),
        "ridge": rng.uniform(0.5, 2, n_unknowns).astype(dtype),
        "penalty_scale": np.ones(len(CELLS_PER_ROW), dtype),
    }


def cells_of(problem: dict[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Where rows start, and the records of their cells."""
    entries = np.empty(
        problem["opposite"].size,
        kernel.entry_type(problem["rating"].dtype, len(problem["opposite_rows"])),
    )
    for name in ("opposite", "root_weight", "rating"):
        entries[name] = problem[name]
    return problem["starts"], entries


def add_shared_gram(problem: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The same problem with 0.3 X'X added to every row, and penalty scales that differ by row."""
    rng, n_unknowns, dtype = np.random.default_rng(9), problem["ridge"].size, problem["ridge"].dtype
    shared = np.zeros((problem["opposite_rows"].shape[1],) * 2, dtype)
    x = problem["opposite_rows"][:, :n_unknowns].astype(np.float64)
    shared[:n_unknowns, :n_unknowns] = 0.3 * np.triu(x.T @ x)
    return {
        **problem,
        "shared": shared,
        "penalty_scale": rng.uniform(0.1, 5, len(CELLS_PER_ROW)).astype(dtype),
    }


def solve_slowly(
    problem: dict[str, np.ndarray], global_offset: float, row: int
) -> tuple[np.ndarray, float]:
    """min_z sum w (t - x . z)^2 + z' C z + s sum ridge z^2 by the normal equations, in float64."""
    cells = slice(problem["starts"][row], problem["starts"][row + 1])
    rows = problem["opposite_rows"][problem["opposite"][cells]].astype(np.float64)
    n_unknowns = problem["ridge"].size
    x, t = rows[:, :n_unknowns], problem["rating"][cells] - global_offset - rows[:, n_unknowns]
    weight = problem["root_weight"][cells].astype(np.float64) ** 2
    upper = np.zeros((n_unknowns, n_unknowns))
    if problem["shared"].size:
        upper += problem["shared"][:n_unknowns, :n_unknowns]
    penalty = (
        upper
        + np.triu(upper, 1).T
        + np.diag(problem["penalty_scale"][row] * problem["ridge"].astype(np.float64))
    )
    z = np.linalg.solve((x * weight[:, None]).T @ x + penalty, (x * weight[:, None]).T @ t)
    return z, float((weight * (t - x @ z) ** 2).sum() + z @ penalty @ z)


def solve(
    problem: dict[str, np.ndarray], global_offset: float, max_cells: int = 1000
) -> tuple[np.ndarray, np.ndarray, int]:
    solved_rows, minima = (
        np.zeros(
            (len(CELLS_PER_ROW), problem["opposite_rows"].shape[1]), problem["opposite_rows"].dtype
        ),
        np.zeros(len(CELLS_PER_ROW)),
    )
    cells = cells_of(problem)
    number, lanes = problem["opposite_rows"].dtype.type, 32 // problem["opposite_rows"].itemsize
    parts = (problem[name] for name in ("opposite_rows", "shared", "ridge", "penalty_scale"))
    unsolved = kernel.solve_rows(
        ROWS, cells, number(global_offset), *parts, lanes, (0, max_cells), solved_rows, minima
    )
    return solved_rows, minima, unsolved


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("is_shared", [False, True])
@pytest.mark.parametrize(("n_factors", "has_offsets"), SIZES)
def test_rows_are_solved_as_by_the_normal_equations(
    n_factors: int, has_offsets: bool, is_shared: bool, dtype: str
) -> None:
    problem = make_problem(n_factors, dtype, seed=n_factors, has_offsets=has_offsets)
    if is_shared:
        problem = add_shared_gram(problem)

    solved_rows, minima, unsolved = solve(problem, 1.25)

    tolerance = 2e-3 if dtype == "float32" else 1e-9
    assert unsolved == -1
    for row in range(len(CELLS_PER_ROW)):
        z, minimum = solve_slowly(problem, 1.25, row)
        np.testing.assert_allclose(solved_rows[row, : z.size], z, rtol=tolerance, atol=tolerance)
        assert minima[row] == pytest.approx(minimum, rel=tolerance, abs=tolerance)


def test_rows_with_fewer_or_more_cells_stay_as_they_are() -> None:
    problem = make_problem(7, "float64", seed=0, has_offsets=True)
    solved_rows, minima = (
        np.full((len(CELLS_PER_ROW), problem["opposite_rows"].shape[1]), 9.0),
        np.full(len(CELLS_PER_ROW), 9.0),
    )
    parts = (problem[name] for name in ("opposite_rows", "shared", "ridge", "penalty_scale"))

    unsolved = kernel.solve_rows(
        ROWS, cells_of(problem), 1.25, *parts, 4, (90, 100), solved_rows, minima
    )

    assert unsolved == -1
    for row, n in enumerate(CELLS_PER_ROW):
        if 90 <= n <= 100:
            z, minimum = solve_slowly(problem, 1.25, row)
            np.testing.assert_allclose(solved_rows[row, :8], z, rtol=1e-9)
            assert minima[row] == pytest.approx(minimum)
        else:
            assert (solved_rows[row] == 9).all()
            assert minima[row] == 9


@pytest.mark.parametrize("n", [3, 40_000])
def test_padded_zeros_are_aligned_with_cache_lines(n: int) -> None:
    rows = kernel.padded_zeros(n, 21, "float32")

    assert (n == 40_000) == (rows.nbytes >= kernel.MIN_MAPPED_BYTES)
    assert rows.shape == (n, 24)
    assert not rows.any()
    assert rows.flags.writeable
    assert rows.ctypes.data % kernel.CACHE_LINE == 0


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("width", range(8, 136, 8))
@pytest.mark.parametrize("is_wide", [False, True])
def test_tiles_of_any_width_make_the_gram_matrix(is_wide: bool, width: int, dtype: str) -> None:
    """LLVM splits vectors of 512 bits if the processor has none, so both kinds run anywhere."""
    panel = np.random.default_rng(width).normal(size=(kernel.PANEL_CELLS, width)).astype(dtype)
    gram, add = (
        np.zeros((width, width), dtype),
        kernel.add_wide_tiles if is_wide else kernel.add_tiles,
    )

    for top in range(0, width, 8):
        add(panel, 50, 32 // panel.itemsize, top, width, gram)

    expected = panel[:50].astype(np.float64).T @ panel[:50]
    upper = np.triu_indices(width)
    np.testing.assert_allclose(
        gram[upper], expected[upper], rtol=1e-3 if dtype == "float32" else 1e-9, atol=1e-4
    )


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("n_columns", range(1, 83))
def test_columns_beyond_the_last_block_belong_to_the_gram_matrix(
    n_columns: int, dtype: str
) -> None:
    width, rng = kernel.padded_width(n_columns), np.random.default_rng(n_columns)
    panel, gram = np.zeros((kernel.PANEL_CELLS, width), dtype), np.zeros((width, width), dtype)
    panel[:, :n_columns] = rng.normal(size=(kernel.PANEL_CELLS, n_columns))
    tiled = kernel.tiled_width(n_columns)

    for _ in range(2):
        kernel.add_gram(panel, 50, 32 // panel.itemsize, tiled, gram)
        kernel.fold_edge(tiled, n_columns, gram)

    expected = 2 * panel[:50].astype(np.float64).T @ panel[:50]
    upper = np.triu_indices(n_columns)
    np.testing.assert_allclose(
        gram[upper], expected[upper], rtol=1e-3 if dtype == "float32" else 1e-9, atol=1e-4
    )
    assert tiled in (width, width - 8)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_long_rows_are_not_solved(dtype: str) -> None:
    problem = make_problem(5, dtype, 3, has_offsets=True)
    expected, _, _ = solve(problem, 0.5)

    solved_rows, minima, unsolved = solve(problem, 0.5, max_cells=96)

    is_long = np.array(CELLS_PER_ROW) > 96
    assert unsolved == -1
    assert not solved_rows[is_long].any()
    assert not minima[is_long].any()
    assert np.array_equal(solved_rows[~is_long], expected[~is_long])


def test_pieces_of_a_row_add_up_to_its_gram_matrix() -> None:
    problem = make_problem(5, "float64", 4, has_offsets=True)
    cells = cells_of(problem)

    def gram(first: int, end: int) -> np.ndarray:
        return np.triu(kernel.compute_gram(first, end, cells, 0.5, problem["opposite_rows"], 6, 4))

    np.testing.assert_allclose(gram(10, 130) + gram(130, 400), gram(10, 400), rtol=1e-12)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_padded_zeros_of_few_rows_are_aligned_too(dtype: str) -> None:
    for n in range(1, 9):
        rows = kernel.padded_zeros(n, 22, dtype)
        assert rows.shape == (n, 24)
        assert rows.dtype == dtype
        assert rows.ctypes.data % 64 == 0
        assert not rows.any()


def test_a_row_without_cells_is_zero() -> None:
    solved_rows, minima, _ = solve(make_problem(5, "float64", 0, has_offsets=True), 0.0)

    assert not solved_rows[0].any()
    assert minima[0] == 0


def test_a_row_without_a_unique_solution_is_returned() -> None:
    problem = make_problem(5, "float64", 0, has_offsets=True)
    problem["ridge"][:] = 0

    assert solve(problem, 0.0)[2] == 1


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_multiply_rows_is_a_sparse_product(dtype: str) -> None:
    problem = make_problem(20, dtype, 5, has_offsets=False)
    cells = cells_of(problem)
    products = kernel.padded_zeros(len(CELLS_PER_ROW), 20, dtype)

    kernel.multiply_rows(ROWS, cells, problem["opposite_rows"], products)

    row = np.repeat(np.arange(len(CELLS_PER_ROW)), CELLS_PER_ROW)
    expected = np.zeros(products.shape)
    np.add.at(
        expected,
        row,
        problem["rating"][:, None].astype(np.float64)
        * problem["opposite_rows"][problem["opposite"]],
    )
    np.testing.assert_allclose(
        products, expected, rtol=1e-3 if dtype == "float32" else 1e-12, atol=1e-4
    )


def test_a_long_row_of_float32_keeps_its_digits() -> None:
    """A million times 0.1 is 100,958 in one sum, and right to four digits in pieces."""
    n = 10**6
    entries = np.array([(0, 1, 0.1)], kernel.entry_type("float32", 1)).repeat(n)
    cells = np.array([0, n]), entries
    rows, products = np.ones((1, 8), np.float32), np.zeros((1, 8), np.float32)

    kernel.multiply_rows((0, 1), cells, rows, products)

    np.testing.assert_allclose(products, 1e5, rtol=1e-4)


@settings(max_examples=20)
@given(seed=st.integers(0, 10**6), is_absolute=st.booleans())
def test_gradient_and_loss_are_those_of_the_definition(seed: int, is_absolute: bool) -> None:
    problem, rng = make_problem(6, "float64", seed, has_offsets=True), np.random.default_rng(seed)
    solved_rows = np.zeros((len(CELLS_PER_ROW), problem["opposite_rows"].shape[1]))
    solved_rows[:, :7], solved_rows[:, 7] = rng.normal(size=(len(CELLS_PER_ROW), 7)), 1
    gradient = np.zeros_like(problem["opposite_rows"])
    cells = cells_of(problem)

    loss = kernel.add_gradient(
        ROWS, cells, 0.5, problem["opposite_rows"], solved_rows, is_absolute, gradient
    )

    row = np.repeat(np.arange(len(CELLS_PER_ROW)), CELLS_PER_ROW)
    weight = problem["root_weight"] ** 2
    error = (
        problem["rating"]
        - 0.5
        - (solved_rows[row] * problem["opposite_rows"][problem["opposite"]]).sum(axis=1)
    )
    derivative = weight * (np.sign(error) if is_absolute else 2 * error)
    expected = np.zeros_like(gradient)
    np.add.at(expected, problem["opposite"], -derivative[:, None] * solved_rows[row])
    assert loss == pytest.approx((weight * (np.abs(error) if is_absolute else error**2)).sum())
    np.testing.assert_allclose(gradient, expected, atol=1e-9)


def test_reweighted_squares_are_tight_at_the_absolute_error() -> None:
    problem = make_problem(6, "float64", 3, has_offsets=True)
    solved_rows = np.zeros((len(CELLS_PER_ROW), problem["opposite_rows"].shape[1]))
    solved_rows[:, 7] = 1
    cells = cells_of(problem)
    new = cells[1].copy()

    kernel.reweight_absolute(ROWS, cells, 0.0, problem["opposite_rows"], solved_rows, 0.5, new)

    error = np.abs(problem["rating"] - problem["opposite_rows"][problem["opposite"], 7])
    np.testing.assert_allclose(
        new["root_weight"] ** 2, problem["root_weight"] ** 2 / (2 * np.maximum(error, 0.5))
    )
