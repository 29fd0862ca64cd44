from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from unskew.data.ratings import Ratings
from unskew.errors import BadPredictionError
from unskew.ranking import candidates, positions
from unskew.ranking.candidates import Candidates, select_users
from unskew.ranking.positions import best_columns, best_items, items_by_user
from unskew.types import Matrix

tied_scores = arrays(np.float64, (4, 6), elements=st.integers(0, 3).map(float))


@given(scores=tied_scores, n_best=st.integers(1, 6))
def test_the_best_columns_are_the_first_of_a_stable_sort(scores: Matrix, n_best: int) -> None:
    expected = np.argsort(-scores, axis=1, kind="stable")[:, :n_best]

    np.testing.assert_array_equal(best_columns(scores, n_best), expected)


@given(scores=tied_scores)
def test_excluded_items_come_last_with_a_score_of_minus_infinity(scores: Matrix) -> None:
    starts, excluded = np.array([0, 2, 2, 3, 8]), np.array([1, 4, 0, 0, 1, 2, 3, 4], np.int32)

    items, best_scores = best_items(
        scores.__getitem__, 3, 4, 6, Candidates(4, 6, hidden=(starts, excluded))
    )

    for user in range(4):
        hidden = set(excluded[starts[user] : starts[user + 1]].tolist())
        left = [item for item in range(6) if item not in hidden]
        expected = sorted(left, key=lambda item: (-scores[user, item], item))[:3]
        assert items[user, : len(expected)].tolist() == expected
        assert best_scores[user, : len(expected)].tolist() == scores[user, expected].tolist()
        assert np.isneginf(best_scores[user, len(expected) :]).all()


def test_blocks_of_users_do_not_change_the_result(monkeypatch: pytest.MonkeyPatch) -> None:
    scores = np.random.default_rng(0).normal(size=(4, 6))
    whole = best_items(scores.__getitem__, 2, 4, 6, None)
    monkeypatch.setattr(positions, "TOP_CELLS", 7)

    np.testing.assert_array_equal(best_items(scores.__getitem__, 2, 4, 6, None)[0], whole[0])


def test_a_nan_names_the_user_and_the_item() -> None:
    scores = np.zeros((4, 6))
    scores[2, 5] = np.nan

    with pytest.raises(BadPredictionError, match="the score of user code 2 for item code 5 is NaN"):
        best_items(scores.__getitem__, 2, 4, 6, None)


def test_the_seen_items_of_some_users_in_their_order(monkeypatch: pytest.MonkeyPatch) -> None:
    log = Ratings.from_codes([2, 0, 2, 3], [1, 4, 0, 2], [1, 1, 1, 1], shape=(5, 5))
    seen = items_by_user(log)

    monkeypatch.setattr(candidates, "USERS_AT_ONCE", 2)
    starts, items = select_users(seen, np.array([2, -1, 1, 0, 2], np.int32))

    by_user = [items[start:end].tolist() for start, end in pairwise(starts)]
    assert by_user == [[1, 0], [], [], [4], [1, 0]]


@pytest.mark.parametrize("users", [[0, 1, 2, 3, 4], [1, 2, 3], [4], []])
def test_the_seen_items_of_consecutive_users_are_not_copied(users: list[int]) -> None:
    seen = items_by_user(Ratings.from_codes([2, 0, 2, 3], [1, 4, 0, 2], [1] * 4, shape=(5, 5)))

    starts, items = select_users(seen, np.array(users, np.int32))

    expected = [seen[1][seen[0][user] : seen[0][user + 1]].tolist() for user in users]
    assert [items[start:end].tolist() for start, end in pairwise(starts)] == expected
    assert items.size == 0 or np.shares_memory(items, seen[1])
