"""The log sorted by one side."""

from __future__ import annotations

import numpy as np
import pytest

from unskew.factorization.objective import SortedCells


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


def test_the_log_takes_twenty_bytes_a_rating_or_fewer_where_partners_are_few() -> None:
    one = np.zeros(1, np.int32), np.zeros(1, np.int32), np.ones(1), np.ones(1)

    assert SortedCells.of(*one, shape=(1, 65_536), dtype="float32").entries.itemsize == 10
    assert SortedCells.of(*one, shape=(1, 65_537), dtype="float32").entries.itemsize == 12


def test_other_weights_leave_the_side_as_it_was() -> None:
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
