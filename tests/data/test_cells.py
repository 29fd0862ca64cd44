from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from unskew.data.cells import (
    all_or_sampled_cells,
    cell_numbers,
    drop_observed,
    find_cells,
    group_rows,
    is_among,
    iterate_cells,
    observed_cells,
    row_starts,
    sample_unobserved_cells,
    split_groups,
    user_and_item,
)
from unskew.data.ratings import Ratings

N_USERS, N_ITEMS = 30, 20
codes = st.lists(st.integers(0, 4), max_size=12).map(lambda values: np.array(values, np.int32))


@pytest.fixture(scope="module")
def log() -> Ratings:
    cells = np.random.default_rng(0).choice(N_USERS * N_ITEMS, 100, replace=False)
    user, item = user_and_item(cells, N_ITEMS)
    return Ratings.from_codes(user, item, np.ones(100), shape=(N_USERS, N_ITEMS))


def test_cell_numbers_do_not_overflow_int32() -> None:
    user, item = np.array([2**31 - 1], np.int32), np.array([7], np.int32)

    assert cell_numbers(user, item, 1000).tolist() == [(2**31 - 1) * 1000 + 7]


def test_codes_come_back_from_cell_numbers(log: Ratings) -> None:
    user, item = user_and_item(cell_numbers(log.user, log.item, N_ITEMS), N_ITEMS)

    assert (user.tolist(), item.tolist()) == (log.user.tolist(), log.item.tolist())
    assert user.dtype == item.dtype == np.int32


@given(cells=st.lists(st.integers(0, 9)), others=st.sets(st.integers(0, 9)))
def test_cells_are_found_as_a_list_would_find_them(cells: list[int], others: set[int]) -> None:
    listed = sorted(others)
    found = find_cells(np.array(cells, np.int64), np.array(listed, np.int64))

    assert found.tolist() == [listed.index(cell) if cell in others else -1 for cell in cells]
    assert is_among(np.array(cells, np.int64), np.array(listed, np.int64)).tolist() == [
        cell in others for cell in cells
    ]


@given(codes=codes)
def test_grouped_rows_are_those_of_each_code_in_order(codes: np.ndarray) -> None:  # type: ignore[type-arg]
    starts, order = group_rows(codes, 5)

    assert starts.tolist() == row_starts(codes, 5).tolist()
    for code in range(5):
        rows = order[starts[code] : starts[code + 1]]
        assert rows.tolist() == np.flatnonzero(codes == code).tolist()


@given(codes=codes, n_parts=st.integers(1, 6))
def test_parts_cover_every_group_once(codes: np.ndarray, n_parts: int) -> None:  # type: ignore[type-arg]
    parts = split_groups(row_starts(codes, 5), n_parts)

    assert [group for first, last in parts for group in range(first, last)] == list(range(5))
    assert len(parts) <= n_parts


def test_observed_cells_are_dropped_and_the_order_kept(log: Ratings) -> None:
    cells = np.arange(N_USERS * N_ITEMS)[::-1].astype(np.int64)
    rest = drop_observed(cells, log)

    assert rest.tolist() == [cell for cell in cells.tolist() if cell not in observed_cells(log)]


def test_few_cells_are_listed_and_many_are_sampled() -> None:
    assert all_or_sampled_cells(6, 6, np.random.default_rng(0)).tolist() == list(range(6))
    sample = all_or_sampled_cells(10**9, 1000, np.random.default_rng(0))

    assert sample.size == 1000
    assert 0 <= sample.min() <= sample.max() < 10**9


@pytest.mark.parametrize(("n_users", "max_cells"), [(7, 10_000), (3000, 3_000_001), (3000, 10**7)])
def test_blocks_are_the_cells_at_once(n_users: int, max_cells: int) -> None:
    rngs = [np.random.default_rng(1) for _ in range(2)]
    blocks = list(iterate_cells(n_users, 2000, max_cells=max_cells, rng=rngs[0]))
    at_once = all_or_sampled_cells(n_users * 2000, max_cells, rngs[1])

    np.testing.assert_array_equal(np.concatenate(blocks), at_once)


@pytest.mark.parametrize("n_expected", [20, 50, 300])
def test_a_sample_of_unobserved_cells_is_distinct_and_unobserved(
    log: Ratings, n_expected: int
) -> None:
    sizes = []
    for seed in range(200):
        cells = sample_unobserved_cells(log, n_expected, np.random.default_rng(seed))
        assert (np.diff(cells) > 0).all()
        assert not is_among(cells, observed_cells(log)).any()
        sizes.append(cells.size)

    assert np.mean(sizes) == pytest.approx(n_expected, rel=0.1)


def test_all_unobserved_cells_are_returned_if_nearly_all_are_requested(log: Ratings) -> None:
    cells = sample_unobserved_cells(log, 460, np.random.default_rng(0))

    assert cells.size == N_USERS * N_ITEMS - len(log)
