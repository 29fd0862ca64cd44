"""Rankings among some of the items."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from unskew.data.factors import Factors
from unskew.data.ratings import Ratings
from unskew.errors import UnknownIdError, UsageError
from unskew.ranking.candidates import Candidates, keep_candidates, read_candidates
from unskew.ranking.positions import compute_positions
from unskew.types import BoolVector, IntVector, Matrix

USERS, ITEMS = np.array(["ann", "bob", "cat"]), np.array([10, 20, 30, 40, 50])
SEEN = Ratings.from_arrays(["ann", "ann", "bob", "dan"], [10, 30, 50, 10], [1.0, 1, 1, 1])
LISTS = pd.DataFrame({"user": ["ann", "ann", "cat"], "item": [20, 30, 50]})
masks = arrays(np.bool_, (4, 7))
scores_with_ties = arrays(
    np.float64, (4, 7), elements=st.sampled_from([-np.inf, 0.0, 1.0, 2.0, np.inf])
)


def from_mask(is_candidate: BoolVector, kind: str) -> Candidates:
    """The same candidates as a list for each user, or as what is hidden."""
    chosen = is_candidate if kind == "lists" else ~is_candidate
    starts = np.append(0, np.cumsum(chosen.sum(axis=1)))
    part = starts, np.nonzero(chosen)[1].astype(np.int32)
    return Candidates(4, 7, lists=part) if kind == "lists" else Candidates(4, 7, hidden=part)


def brute_force(
    scores: Matrix, is_candidate: BoolVector, user: IntVector, item: IntVector
) -> Matrix:
    score = scores[user, item][:, None]
    rows, keep = scores[user], is_candidate[user]
    return np.array([((rows > score) & keep).sum(axis=1), ((rows == score) & keep).sum(axis=1)])


@pytest.mark.parametrize("kind", ["lists", "hidden"])
@pytest.mark.parametrize("top", [None, 1])
@given(scores=scores_with_ties, is_candidate=masks)
def test_positions_are_counted_among_candidates(
    kind: str, top: int | None, scores: Matrix, is_candidate: BoolVector
) -> None:
    user, item = (codes.astype(np.int32) for codes in np.nonzero(is_candidate))
    before = scores.copy()

    positions = compute_positions(
        user, item, 4, 7, lambda users: scores[users[0] : users[-1] + 1], top=top,
        candidates=from_mask(is_candidate, kind), block_cells=7,
    )  # fmt: skip

    above, equal = brute_force(scores, is_candidate, user, item)
    is_exact = np.ones(user.size, bool) if top is None else above < top
    np.testing.assert_array_equal(positions.above[is_exact], above[is_exact])
    np.testing.assert_array_equal(positions.equal[is_exact], equal[is_exact])
    assert (positions.above[~is_exact] >= 1).all()
    np.testing.assert_array_equal(scores, before)


def test_factors_and_a_common_list_give_the_same_positions_as_the_scores() -> None:
    rng = np.random.default_rng(0)
    factors = Factors(rng.normal(size=(30, 3)), rng.normal(size=(200, 3)))
    is_listed = rng.random(200) < 0.5
    user = rng.integers(30, size=500).astype(np.int32)
    item = rng.choice(np.flatnonzero(is_listed), 500).astype(np.int32)
    chosen = Candidates(30, 200, is_listed=is_listed)

    for top in (None, 5):
        positions = compute_positions(user, item, 30, 200, factors, top=top, candidates=chosen)
        above, _ = brute_force(
            factors(np.arange(30, dtype=np.int32)), np.tile(is_listed, (30, 1)), user, item
        )
        is_exact = above < (top or 200)
        np.testing.assert_array_equal(positions.above[is_exact], above[is_exact])


def test_lists_and_excluded_items_are_read_by_id() -> None:
    excluded = read_candidates(USERS, ITEMS, None, SEEN)
    listed = read_candidates(USERS, ITEMS, [10, 20, 50], SEEN)
    own = read_candidates(USERS, ITEMS, LISTS, SEEN)
    assert excluded is not None
    assert listed is not None
    assert own is not None

    assert read_candidates(USERS, ITEMS, None, None) is None
    assert excluded.count.tolist() == [3, 4, 5]
    assert listed.count.tolist() == [2, 2, 3]
    assert own.count.tolist() == [1, 0, 1]
    user, item = np.array([0, 0, 1, 2], np.int32), np.array([0, 1, 4, 4], np.int32)
    assert excluded.contain(user, item).tolist() == [False, True, False, True]
    assert listed.contain(user, item).tolist() == [False, True, False, True]
    assert own.contain(user, item).tolist() == [False, True, False, True]
    assert own.take(np.array([2, 2, 0], np.int32)).count.tolist() == [1, 1, 1]


@pytest.mark.parametrize(
    ("candidates", "exclude", "error", "message"),
    [
        ([10, 99], None, UnknownIdError, "1 of 2 candidates are not items .* first is 99 at row 1"),
        (["10"], None, UnknownIdError, "text, where a number such as 10 is known"),
        ([], None, UsageError, "candidates.* is empty"),
        (
            None,
            [10],
            UsageError,
            "exclude.* must be a log of items .* got a list",
        ),
        (
            None,
            Ratings.from_arrays([1], [10], [1.0]),
            UnknownIdError,
            "no cell of .*exclude.*a number, where text such as 'ann' is known",
        ),
    ],
)
def test_bad_candidates(candidates: object, exclude: object, error: type, message: str) -> None:
    with pytest.raises(error, match=message):
        read_candidates(USERS, ITEMS, candidates, exclude)  # type: ignore[arg-type]


def test_a_log_without_a_candidate_is_refused() -> None:
    log = Ratings.from_arrays(["ann", "bob"], [10, 20], [1.0, 1.0])
    candidates = read_candidates(log.users, log.items, None, log)
    assert candidates is not None

    with pytest.raises(UsageError, match="none of the 2 logged cells is a candidate"):
        keep_candidates(log, candidates)
