"""The two kernels against a plain count."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from unskew.kernels.positions import (
    FEW_CELLS,
    count_users,
    exact_positions,
    group_cells,
    top_positions,
)
from unskew.types import IntVector, Scores, row_type

UNTOUCHED = 10**6
DTYPES = [np.float32, np.float64]


def slow_positions(
    scores: Scores, rows: IntVector, items: IntVector
) -> tuple[IntVector, IntVector]:
    """Compare every logged cell with its whole row."""
    own = scores[rows, items][:, None]
    above, equal = (scores[rows] > own).sum(axis=1), (scores[rows] == own).sum(axis=1)
    return above.astype(np.int32), equal.astype(np.int32)


def run(
    scores: Scores, rows: IntVector, items: IntVector, top: int | None = None
) -> tuple[int, IntVector, IntVector]:
    """Run the kernel on cells in any order; the results have the same order."""
    cells = np.argsort(rows, kind="stable").astype(np.int32)
    starts = np.searchsorted(rows[cells], np.arange(len(scores) + 1))
    above, equal = np.full(rows.size, UNTOUCHED, np.int32), np.ones(rows.size, np.int32)
    if top is None:
        bad = exact_positions(scores, starts, cells, items[cells], above, equal)
    else:
        bad = top_positions(scores, starts, cells, items[cells], top, above, equal)
    return bad, above, equal


def everything(scores: Scores) -> tuple[IntVector, IntVector]:
    """All cells of a block as logged cells, in an order that differs from that of the rows."""
    n_rows, n_items = scores.shape
    shuffled = np.random.default_rng(0).permutation(n_rows * n_items)
    return (shuffled // n_items).astype(np.int32), (shuffled % n_items).astype(np.int32)


def assert_exact(scores: Scores, rows: IntVector, items: IntVector) -> None:
    bad, above, equal = run(scores, rows, items)
    expected_above, expected_equal = slow_positions(scores, rows, items)

    assert bad == -1
    np.testing.assert_array_equal(above, expected_above)
    np.testing.assert_array_equal(equal, expected_equal)


def assert_exact_in_top(scores: Scores, rows: IntVector, items: IntVector, top: int) -> None:
    bad, above, equal = run(scores, rows, items, top)
    expected_above, expected_equal = slow_positions(scores, rows, items)
    in_top = expected_above < top

    assert bad == -1
    np.testing.assert_array_equal(above[in_top], expected_above[in_top])
    np.testing.assert_array_equal(equal[in_top], expected_equal[in_top])
    assert (above[~in_top] >= top).all()


@st.composite
def blocks(draw: st.DrawFn) -> tuple[Scores, IntVector, IntVector]:
    """Scores with few or many levels, some infinite, and logged cells in random order.

    Some rows have no logged cells.
    """
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    n_rows, n_items = draw(st.integers(1, 5)), draw(st.integers(1, 300))
    level = rng.choice(
        [
            rng.standard_normal,
            rng.standard_cauchy,
            lambda size: rng.choice([-np.inf, np.inf, 1e300, -1e300, 0, 1e-310], size),
        ]
    )(draw(st.integers(1, 400)))
    with np.errstate(over="ignore", under="ignore"):
        scores = rng.choice(level, (n_rows, n_items)).astype(draw(st.sampled_from(DTYPES)))
    n_cells = draw(st.integers(0, n_rows * n_items))
    chosen = rng.permutation(n_rows * n_items)[:n_cells]
    return scores, (chosen // n_items).astype(np.int32), (chosen % n_items).astype(np.int32)


def test_positions_by_hand() -> None:
    scores = np.array([[0.5, 2.0, 0.5, -1.0], [1.0, 1.0, 1.0, 1.0]], np.float32)

    bad, above, equal = run(
        scores, np.array([1, 0, 0, 0], np.int32), np.array([3, 1, 2, 3], np.int32)
    )

    assert bad == -1
    assert above.tolist() == [0, 0, 1, 3]
    assert equal.tolist() == [4, 1, 2, 1]


def test_a_tie_at_the_last_position_is_counted_completely() -> None:
    scores = np.ones((1, 40))
    scores[0, [0, 11, 22, 23, 34]] = 9, 5, 5, 5, 5

    _, above, equal = run(scores, np.zeros(3, np.int32), np.array([0, 23, 39], np.int32), top=2)

    assert above.tolist() == [0, 1, UNTOUCHED]
    assert equal.tolist() == [1, 4, 1]


@pytest.mark.parametrize("n_items", [3, 40, 41, 43, 257])
@pytest.mark.parametrize("top", [1, 2, 10])
@pytest.mark.parametrize("level", [-np.inf, 0.0, np.inf])
def test_a_row_of_one_level_ties_everything_at_the_bound(
    n_items: int, top: int, level: float
) -> None:
    scores = np.full((2, n_items), level, np.float32)

    _, above, equal = run(scores, *everything(scores), top)

    assert set(above) == {0}
    assert set(equal) == {n_items}


@pytest.mark.parametrize("n_infinite", [1, 9, 10, 11, 100])
def test_infinite_scores_around_the_last_position(n_infinite: int) -> None:
    scores = np.random.default_rng(4).standard_normal((3, 403))
    scores[0, ::4][:n_infinite] = np.inf
    scores[1, ::4][:n_infinite] = -np.inf
    scores[2, n_infinite:] = -np.inf

    assert_exact(scores, *everything(scores))
    assert_exact_in_top(scores, *everything(scores), 10)


def test_users_are_counted_up_to_the_first_cell_outside_the_universe() -> None:
    user, item = np.array([1, 0, 1, 2, 1], np.int32), np.array([0, 4, 1, 0, 9], np.int32)
    counts = np.zeros(3, np.int64)

    assert count_users(user, item, 10, counts) == -1
    assert counts.tolist() == [1, 3, 1]
    assert count_users(user, item, 9, counts) == 4
    assert count_users(user, item, 10, np.zeros(2, np.int64)) == 3
    assert count_users(-user, item, 10, counts) == 0
    assert count_users(user, -item, 10, counts) == 1


@given(blocks())
@settings(max_examples=300, deadline=None)
def test_exact_positions_equal_the_plain_count(block: tuple[Scores, IntVector, IntVector]) -> None:
    assert_exact(*block)


@given(blocks(), st.integers(1, 320))
@settings(max_examples=300, deadline=None)
def test_top_positions_equal_the_plain_count_in_the_top(
    block: tuple[Scores, IntVector, IntVector], top: int
) -> None:
    assert_exact_in_top(*block, top)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n_items", [FEW_CELLS, FEW_CELLS + 1, 1_000, 70_000])
def test_few_many_and_very_many_items(n_items: int, dtype: npt.DTypeLike) -> None:
    rng = np.random.default_rng(1)
    scores = np.round(rng.standard_normal((3, n_items)), 3).astype(dtype)
    rows, items = (
        rng.integers(3, size=200, dtype=np.int32),
        rng.integers(n_items, size=200, dtype=np.int32),
    )

    assert_exact(scores, rows, items)
    assert_exact_in_top(scores, rows, items, 10)


@pytest.mark.parametrize("dtype", DTYPES)
def test_an_outlier_or_a_tiny_range_changes_no_position(dtype: npt.DTypeLike) -> None:
    scores = np.random.default_rng(2).standard_normal((3, 400)).astype(dtype)
    scores[0, 7] = np.finfo(scores.dtype).max
    scores[1, :2] = np.finfo(scores.dtype).min, np.finfo(scores.dtype).max
    scores[2] = np.finfo(scores.dtype).smallest_subnormal * np.arange(400)

    assert_exact(scores, *everything(scores))
    assert_exact_in_top(scores, *everything(scores), 20)


@pytest.mark.parametrize("top", [None, 1, 30])
@pytest.mark.parametrize("n_logged", [1, FEW_CELLS + 1, 200])
@pytest.mark.parametrize("column", [0, 49, 150, 199, 202])
def test_the_first_row_with_a_nan_is_returned(top: int | None, n_logged: int, column: int) -> None:
    scores = np.random.default_rng(3).standard_normal((4, 203))
    scores[2:, column] = np.nan
    rows, items = (part.ravel().astype(np.int32) for part in np.mgrid[:4, :n_logged])

    assert run(scores, rows, items, top)[0] == 2


@pytest.mark.parametrize("top", [None, 30])
def test_a_row_of_nan_is_returned(top: int | None) -> None:
    scores = np.full((1, 200), np.nan, np.float32)

    assert run(scores, *everything(scores), top)[0] == 0


def test_rows_from_2_to_the_31_on_keep_their_number() -> None:
    first_row = 2**31 - 2
    user, item = np.array([1, 0, 1, 0], np.int32), np.array([5, 6, 7, 8], np.int32)
    logged = np.empty((4, 2), row_type(first_row + 4))
    group_cells(user, item, first_row, np.array([0, 2]), logged)

    assert logged[:, 0].tolist() == [first_row + 1, first_row + 3, first_row, first_row + 2]
    assert logged[:, 1].tolist() == [6, 8, 5, 7]


@pytest.mark.parametrize("top", [None, 2])
def test_rows_of_64_bits_give_the_same_positions(top: int | None) -> None:
    scores = np.random.default_rng(0).integers(5, size=(6, 40)).astype(np.float32)
    starts, items = np.arange(0, 61, 10), np.tile(np.arange(0, 40, 4), 6)
    counts = []
    for kind in (np.int32, np.int64):
        above, equal = np.full(60, 2, np.int32), np.ones(60, np.int32)
        cells = np.arange(60, dtype=kind)
        if top is None:
            bad = exact_positions(scores, starts, cells, items.astype(kind), above, equal)
        else:
            bad = top_positions(scores, starts, cells, items.astype(kind), top, above, equal)
        counts.append((bad, above.tolist(), equal.tolist()))

    assert counts[0] == counts[1]
