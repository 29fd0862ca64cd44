"""Cells sorted by user or by item, and their weights."""

from __future__ import annotations

import numpy as np
import pytest

from unskew.data.ratings import Ratings
from unskew.errors import UsageError
from unskew.factorization.objective import (
    NoUniqueSolutionError,
    SortedCells,
    name_unsolved_rows,
)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("n_opposite", [65_536, 65_537, 300_000])
def test_cells_are_sorted_by_row_and_keep_the_order_of_the_log(n_opposite: int, dtype: str) -> None:
    rng, n = np.random.default_rng(0), 500
    row, opposite = (
        rng.integers(0, 7, n).astype(np.int32),
        rng.integers(0, n_opposite, n).astype(np.int32),
    )
    opposite[-1], rating, propensity = n_opposite - 1, rng.normal(size=n), rng.uniform(0.1, 1, n)

    side = SortedCells.of(row, opposite, rating, 1 / propensity, shape=(9, n_opposite), dtype=dtype)

    order = np.argsort(row, kind="stable")
    assert np.array_equal(np.diff(side.starts), np.bincount(row, minlength=9))
    assert np.array_equal(side.opposite, opposite[order])
    assert np.array_equal(side.rating, rating[order].astype(dtype))
    assert np.array_equal(side.root_weight, np.sqrt(1 / propensity[order]).astype(dtype))
    np.testing.assert_allclose(
        side.row_weights, np.bincount(row, 1 / propensity, minlength=9), rtol=1e-6
    )


def test_a_cell_takes_ten_or_twelve_bytes_in_float32() -> None:
    one = np.zeros(1, np.int32), np.zeros(1, np.int32), np.ones(1), np.ones(1)

    assert SortedCells.of(*one, shape=(1, 65_536), dtype="float32").entries.itemsize == 10
    assert SortedCells.of(*one, shape=(1, 65_537), dtype="float32").entries.itemsize == 12


def test_new_weights_do_not_change_the_old_cells() -> None:
    cells = (
        np.array([1, 0, 1], np.int32),
        np.array([0, 1, 2], np.int32),
        np.array([3.0, 4.0, 5.0]),
        np.ones(3),
    )
    side = SortedCells.of(*cells, shape=(2, 3), dtype="float64")

    other = side.with_root_weights(np.array([1.0, 2.0, 3.0]))

    assert other.root_weight.tolist() == [1, 2, 3]
    assert other.rating.tolist() == [4, 3, 5]
    assert side.root_weight.tolist() == [1, 1, 1]


@pytest.mark.parametrize(("side", "name"), [("user", "'bob'"), ("item", "7")])
def test_an_error_names_the_user_or_item_without_a_unique_solution(side: str, name: str) -> None:
    log = Ratings.from_arrays(["ann", "bob", "bob"], [3, 3, 7], [1, 2, 3])

    with (
        pytest.raises(
            UsageError,
            match=rf"^the least-squares problem for the factors of {side} {name} \(2 ratings, "
            r"1 factor, l2=0\) has no unique solution\. Use a larger l2 or fewer factors\.$",
        ),
        name_unsolved_rows(log, 0.0),
    ):
        raise NoUniqueSolutionError(side, 1, n_cells=2, n_factors=1)  # type: ignore[arg-type]
