"""Normal equations of items that are added up in parts and solved later, against dense sums."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from unskew.factorization.objective import SortedCells
from unskew.kernels.rows import add_normal_equations, padded_zeros, solve_normal_equations

RNG = np.random.default_rng(0)
N_ITEMS, N_USERS, N_UNKNOWNS = 11, 40, 3
OBSERVED = RNG.random((N_ITEMS, N_USERS)) < 0.5
ITEM, USER = np.nonzero(OBSERVED)
RATING, WEIGHT = RNG.normal(3, 1, ITEM.size), RNG.uniform(1, 5, ITEM.size)
RIDGES, C = np.array([0.5, 0.5, 0.1]), 0.25


def sum_up(cells: SortedCells, max_cells: int, dtype: Any) -> Any:
    """Opposite rows [v, 1, a] with two factors."""
    opposite = padded_zeros(N_USERS, N_UNKNOWNS + 1, dtype)
    opposite[:, : N_UNKNOWNS + 1] = VECTORS
    packed = np.zeros((N_ITEMS, 10))
    lanes = 32 // opposite.itemsize
    offset = opposite.dtype.type(C)
    add_normal_equations(cells.cells, offset, opposite, N_UNKNOWNS, lanes, max_cells, packed)
    return packed


VECTORS = np.column_stack(
    [RNG.normal(size=(N_USERS, 2)), np.ones(N_USERS), RNG.normal(size=N_USERS)]
)


@pytest.mark.parametrize(("dtype", "tolerance"), [("float64", 1e-12), ("float32", 1e-4)])
@pytest.mark.parametrize("max_cells", [3, 1000])
def test_sums_over_parts_of_the_log_give_the_ridge_regression_of_each_item(
    dtype: Any, tolerance: float, max_cells: int
) -> None:
    is_first = USER < 15
    packed = np.zeros((N_ITEMS, 10))
    for part in (is_first, ~is_first):
        cells = SortedCells.of(
            ITEM[part].astype(np.int32),
            USER[part].astype(np.int32),
            RATING[part],
            WEIGHT[part],
            shape=(N_ITEMS, N_USERS),
            dtype=dtype,
            side="item",
        )
        packed += sum_up(cells, max_cells, dtype)
    rows, minima = np.empty((N_ITEMS, N_UNKNOWNS)), np.empty(N_ITEMS)
    solve_normal_equations(packed, RIDGES, rows, minima)

    for item in range(N_ITEMS):
        is_own = item == ITEM
        x, t = VECTORS[USER[is_own], :3], RATING[is_own] - C - VECTORS[USER[is_own], 3]
        weight = WEIGHT[is_own]
        normal = (x * weight[:, None]).T @ x + np.diag(RIDGES)
        expected = np.linalg.solve(normal, (x * weight[:, None]).T @ t)
        loss = float(weight @ (t - x @ expected) ** 2 + RIDGES @ expected**2)
        np.testing.assert_allclose(rows[item], expected, rtol=tolerance, atol=tolerance)
        assert minima[item] == pytest.approx(loss, rel=tolerance * 10)


def test_an_item_without_a_unique_solution_has_no_minimum() -> None:
    packed = np.zeros((2, 10))
    packed[1, [0, 4, 7, 9]] = 1.0
    rows, minima = np.empty((2, 3)), np.empty(2)
    solve_normal_equations(packed, np.zeros(3), rows, minima)

    assert np.isnan(minima[0])
    assert minima[1] == 1.0
