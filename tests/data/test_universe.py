from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from unskew.data.ratings import Ratings
from unskew.data.universe import Universe, resolve_universe
from unskew.errors import UniverseError


@pytest.fixture
def log() -> Ratings:
    return Ratings.from_arrays([1, 2, 3], [1, 1, 2], [5, 3, 1])


def test_cells_are_users_times_items() -> None:
    assert Universe(3, 4).n_cells == 12
    assert str(Universe(1200, 4)) == "1,200 users x 4 items"


def test_one_is_a_user_and_an_item() -> None:
    assert str(Universe(1, 1)) == "1 user x 1 item"
    assert repr(Ratings.from_arrays([1], [1], [5])).startswith(
        "Ratings(1 rating by 1 user on 1 item, "
    )


def test_a_universe_is_never_guessed(log: Ratings) -> None:
    assert resolve_universe(log, None) is None


@pytest.mark.parametrize(
    "given",
    [(5, 4), [5, 4], Universe(5, 4), (np.int64(5), np.int32(4)), np.array([5, 4])],
    ids=repr,
)
def test_the_named_universe_is_taken(log: Ratings, given: Any) -> None:
    assert resolve_universe(log, given) == Universe(5, 4)


def test_the_word_log_means_the_log_s_own_ids(log: Ratings) -> None:
    assert resolve_universe(log, "log") == Universe(3, 2)


def test_the_universe_the_log_was_built_with_stands_unless_another_is_named() -> None:
    log = Ratings.from_dense(np.eye(3))

    assert resolve_universe(log, None) == Universe(3, 3)
    assert resolve_universe(log, (9, 9)) == Universe(9, 9)


@pytest.mark.parametrize("size", [0, -1, 2.0, 2.5, True, "2", None, np.bool_(True)], ids=repr)
def test_sizes_are_whole_numbers_of_at_least_one(log: Ratings, size: Any) -> None:
    with pytest.raises(
        UniverseError, match=r"the universe needs a whole number of users, at least 1; got "
    ):
        resolve_universe(log, (size, 2))
    with pytest.raises(
        UniverseError, match=r"the universe needs a whole number of items, at least 1; got "
    ):
        resolve_universe(log, (3, size))


@pytest.mark.parametrize(
    "given", [5, "3x2", (3,), (3, 2, 1), {3, 2}, np.array([3, 2, 1])], ids=repr
)
def test_anything_else_is_refused(log: Ratings, given: Any) -> None:
    with pytest.raises(
        UniverseError, match=r"universe must be a pair \(n_users, n_items\), .*, or 'log' .*; got "
    ):
        resolve_universe(log, given)


@pytest.mark.parametrize("given", [(2, 2), (3, 1)])
def test_a_universe_smaller_than_the_log_is_refused(log: Ratings, given: tuple[int, int]) -> None:
    with pytest.raises(
        UniverseError,
        match=r"the universe has . users x . items?, but the log alone has 3 users and 2 "
        r"items\. Count every",
    ):
        resolve_universe(log, given)
