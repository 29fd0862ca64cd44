from __future__ import annotations

import re
import subprocess
import sys
import threading
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from unskew.data.factors import Factors
from unskew.errors import BadPredictionError, UniverseError, UsageError
from unskew.ranking.positions import Positions, compute_positions
from unskew.types import IntVector, Scores


@dataclass(frozen=True)
class Table:
    """A scorer that looks scores up."""

    scores: Scores

    def __call__(self, users: IntVector, /) -> Scores:
        return self.scores[users]


def codes(*values: int) -> IntVector:
    return np.array(values, np.int32)


def slow_positions(user: IntVector, item: IntVector, scores: Scores) -> Positions:
    """The twin: compare every logged cell with its user's whole row."""
    own = scores[user, item][:, None]
    return Positions((scores[user] > own).sum(axis=1), (scores[user] == own).sum(axis=1))


def random_log(seed: int, n_users: int, n_items: int, n_cells: int) -> tuple[IntVector, IntVector]:
    """Cells in no order; some users have many, some few, some none."""
    rng = np.random.default_rng(seed)
    user = (n_users * rng.random(n_cells) ** 3).astype(np.int32)
    return user, rng.integers(n_items, size=n_cells, dtype=np.int32)


def test_positions_by_hand() -> None:
    scores = np.array([[0.5, 2.0, 0.5], [9.0, 9.0, 9.0], [1.0, 2.0, 3.0]])

    found = compute_positions(codes(2, 0, 0, 2), codes(0, 2, 1, 2), 3, 3, Table(scores))

    assert found.above.tolist() == [2, 1, 0, 0]
    assert found.equal.tolist() == [1, 2, 1, 1]


@given(
    seed=st.integers(0, 2**32),
    n_users=st.integers(1, 30),
    n_items=st.integers(1, 200),
    n_cells=st.integers(0, 500),
    n_levels=st.integers(1, 300),
    dtype=st.sampled_from([np.float32, np.float64]),
    top=st.none() | st.integers(1, 250),
    block_cells=st.integers(1, 5_000),
    n_threads=st.integers(1, 3),
)
@settings(max_examples=200, deadline=None)
def test_equals_the_slow_twin(
    seed: int,
    n_users: int,
    n_items: int,
    n_cells: int,
    n_levels: int,
    dtype: type[np.floating],
    top: int | None,
    block_cells: int,
    n_threads: int,
) -> None:
    user, item = random_log(seed, n_users, n_items, n_cells)
    rng = np.random.default_rng(seed)
    scores = rng.choice(rng.standard_normal(n_levels), (n_users, n_items)).astype(dtype)

    found = compute_positions(
        user,
        item,
        n_users,
        n_items,
        Table(scores),
        top=top,
        block_cells=block_cells,
        n_threads=n_threads,
    )

    expected = slow_positions(user, item, scores)
    in_top = expected.above < (n_items if top is None else top)
    np.testing.assert_array_equal(found.above[in_top], expected.above[in_top])
    np.testing.assert_array_equal(found.equal[in_top], expected.equal[in_top])
    assert (found.above[~in_top] >= (top or 0)).all()


@pytest.mark.parametrize("top", [None, 5])
def test_factors_and_a_callable_with_the_same_scores_agree(top: int | None) -> None:
    rng = np.random.default_rng(0)
    user, item = random_log(0, 60, 90, 2_000)
    factors = Factors(
        rng.integers(-3, 4, (60, 3)).astype(np.float32),
        rng.integers(-3, 4, (90, 3)).astype(np.float32),
    )
    table = Table(factors(np.arange(60, dtype=np.int32)))

    by_factors = compute_positions(user, item, 60, 90, factors, top=top, block_cells=500)
    by_table = compute_positions(user, item, 60, 90, table, top=top, block_cells=500)

    np.testing.assert_array_equal(by_factors.above, by_table.above)
    np.testing.assert_array_equal(by_factors.equal, by_table.equal)


@pytest.mark.parametrize("top", [None, 5])
@pytest.mark.parametrize("n_threads", [2, 3, 8])
def test_the_number_of_threads_changes_nothing(top: int | None, n_threads: int) -> None:
    rng = np.random.default_rng(1)
    user, item = random_log(1, 200, 300, 5_000)
    factors = Factors(rng.standard_normal((200, 4)), rng.standard_normal((300, 4)))

    one = compute_positions(user, item, 200, 300, factors, top=top, block_cells=3_000, n_threads=1)
    many = compute_positions(
        user, item, 200, 300, factors, top=top, block_cells=3_000, n_threads=n_threads
    )

    np.testing.assert_array_equal(one.above, many.above)
    np.testing.assert_array_equal(one.equal, many.equal)


def test_a_callable_is_asked_from_one_thread_for_users_with_cells_in_small_blocks() -> None:
    asked, threads = [], set()

    def scorer(users: IntVector) -> Scores:
        asked.append(users.tolist())
        threads.add(threading.get_ident())
        return np.zeros((users.size, 10))

    compute_positions(codes(7, 2, 7, 4, 9), codes(0, 1, 2, 3, 4), 12, 10, scorer, block_cells=25)

    assert asked == [[2, 4], [7, 9]]
    assert threads == {threading.get_ident()}


def test_a_callable_may_return_the_same_memory_every_time() -> None:
    scores = np.random.default_rng(4).standard_normal((300, 40))
    user, item = random_log(4, 300, 40, 3_000)
    memory = np.empty((300, 40))

    def scorer(users: IntVector) -> Scores:
        return np.take(scores, users, axis=0, out=memory[: users.size], mode="clip")

    found = compute_positions(user, item, 300, 40, scorer, block_cells=80, n_threads=3)

    np.testing.assert_array_equal(found.above, slow_positions(user, item, scores).above)


def test_an_empty_log_asks_nothing() -> None:
    found = compute_positions(codes(), codes(), 3, 3, Table(np.full((3, 3), np.nan)))

    assert found.above.size == found.equal.size == 0


def test_half_precision_and_rows_in_column_order_are_understood() -> None:
    scores = np.asfortranarray(np.random.default_rng(2).standard_normal((4, 50)).astype(np.float16))
    user, item = codes(3, 1), codes(20, 30)

    found = compute_positions(user, item, 4, 50, Table(scores))

    np.testing.assert_array_equal(found.above, slow_positions(user, item, scores).above)


def test_infinite_scores_come_first_and_last() -> None:
    scores = np.array([[-np.inf, 0.0, np.inf, 1.0, -np.inf]])

    found = compute_positions(codes(0, 0, 0), codes(2, 0, 3), 1, 5, Table(scores))

    assert found.above.tolist() == [0, 3, 1]
    assert found.equal.tolist() == [1, 2, 1]


def test_positions_of_a_column() -> None:
    found = Positions.from_column([3.0, 1.0])

    assert found.above.tolist() == [2, 0]
    assert found.equal.tolist() == [1, 1]
    assert found.above.dtype == found.equal.dtype == np.int32


@pytest.mark.parametrize("bad", [0.0, -1.0, 1.5, np.nan, np.inf])
def test_a_column_with_a_bad_position_is_named(bad: float) -> None:
    message = (
        f"positions are not whole numbers from 1 on; the first is {bad:g} at row 1. Number each"
    )
    with pytest.raises(BadPredictionError, match=re.escape(message)):
        Positions.from_column([1.0, bad, 2.0])


@pytest.mark.parametrize("top", [None, 2])
@pytest.mark.parametrize("scores_are", [Table, lambda scores: Factors(scores, np.eye(40))])
def test_a_nan_names_the_user_and_the_item(top: int | None, scores_are: type[Table]) -> None:
    scores = np.ones((6, 40))
    scores[4, 39] = np.nan
    item = 39 if scores_are is Table else 0  # a NaN factor spoils the user's whole row

    message = f"the score of user code 4 for item code {item} is NaN, which has no position. Return"
    with pytest.raises(BadPredictionError, match=re.escape(message)):
        compute_positions(codes(1, 4, 5), codes(0, 0, 0), 6, 40, scores_are(scores), top=top)


def test_a_wrong_shape_is_named() -> None:
    message = (
        "for 2 users, starting at user code 1, the scorer returned shape (2, 9). "
        "Return shape (2, 10): one row for each user and one column for each of all items."
    )
    with pytest.raises(BadPredictionError, match=re.escape(message)):
        compute_positions(codes(1, 4), codes(0, 0), 6, 10, Table(np.ones((6, 9))))


@pytest.mark.parametrize("dtype", [np.longdouble, np.complex64, object])
def test_a_type_without_exact_float_scores_is_named(dtype: type) -> None:
    message = rf"the scorer returned {np.dtype(dtype)} scores\. Return float32 or float64"
    with pytest.raises(BadPredictionError, match=message):
        compute_positions(codes(1), codes(0), 6, 10, Table(np.ones((6, 10), dtype)))


@pytest.mark.parametrize(
    ("user", "item", "named"),
    [(6, 0, "user code 6"), (-1, 0, "user code -1"), (0, 10, "item code 10")],
)
def test_a_code_outside_the_universe_is_named(user: int, item: int, named: str) -> None:
    with pytest.raises(
        UniverseError, match=f"{named} at row 1 lies outside 0 to .* Pass codes, not ids"
    ):
        compute_positions(codes(0, user), codes(0, item), 6, 10, Table(np.ones((6, 10))))


@pytest.mark.parametrize("n_threads", [1, 2, 3])
def test_the_first_code_outside_the_universe_is_named_whatever_the_threads(n_threads: int) -> None:
    user, item = np.zeros(100, np.int32), np.zeros(100, np.int32)
    item[40], user[70], item[90] = 10, -3, 11

    message = "item code 10 at row 40 lies outside 0 to 9. Pass codes, not ids, and the number of"
    with pytest.raises(UniverseError, match=re.escape(message)):
        compute_positions(user, item, 6, 10, Table(np.ones((6, 10))), n_threads=n_threads)


def test_logs_of_unequal_length_and_no_places_are_refused() -> None:
    with pytest.raises(UsageError, match=r"2 user codes and 1 item codes\. Pass one of each"):
        compute_positions(codes(0, 1), codes(0), 6, 10, Table(np.ones((6, 10))))
    with pytest.raises(
        UsageError, match=r"top must be at least 1; got 0\. Pass top=None for all positions"
    ):
        compute_positions(codes(0), codes(0), 6, 10, Table(np.ones((6, 10))), top=0)


def test_the_compiler_loads_only_when_positions_are_counted() -> None:
    code = "import sys, unskew.ranking.positions; assert 'numba' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
