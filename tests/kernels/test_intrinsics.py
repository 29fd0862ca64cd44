from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numba import njit

from unskew.kernels.intrinsics import LANES, count_lanes, prefetch_for_write
from unskew.types import IntVector, Scores

LEVELS = [-np.inf, -1.5, 0.0, -0.0, 2.0, np.inf, np.nan]


@njit
def counted(values, index, score):  # type: ignore[no-untyped-def]
    return count_lanes(values, np.uint64(index), score)


@njit
def fetched(rows, index):  # type: ignore[no-untyped-def]
    prefetch_for_write(rows, index)


def slow_counts(values: Scores, score: float) -> tuple[int, int]:
    """The same count, one comparison after the other."""
    return sum(bool(v > score) for v in values), sum(bool(v == score) for v in values)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@given(
    values=st.lists(st.sampled_from(LEVELS), min_size=LANES, max_size=3 * LANES),
    score=st.sampled_from(LEVELS),
    data=st.data(),
)
def test_counts_equal_plain_comparisons_wherever_the_lanes_start(
    dtype: type[np.floating], values: list[float], score: float, data: st.DataObject
) -> None:
    index = data.draw(st.integers(0, len(values) - LANES))
    array = np.array(values, dtype)

    assert counted(array, index, dtype(score)) == slow_counts(array[index : index + LANES], score)


@pytest.mark.parametrize("index", [0, 3, 99])
def test_prefetching_a_row_changes_nothing(index: int) -> None:
    rows: IntVector = np.arange(200, dtype=np.int32).reshape(100, 2)

    fetched(rows, index)

    np.testing.assert_array_equal(rows.ravel(), np.arange(200))
