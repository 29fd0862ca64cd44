from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from unskew.data.factors import Factors
from unskew.errors import BadPredictionError, UsageError

ALL = np.arange(2, dtype=np.int32)


def test_scores_by_hand() -> None:
    factors = Factors(
        user_factors=np.array([[1.0, 2.0], [0.0, 1.0]]),
        item_factors=np.array([[1.0, 0.0], [1.0, 1.0], [0.0, 3.0]]),
        user_offset=np.array([10.0, 20.0]),
        item_offset=np.array([0.1, 0.2, 0.3]),
        global_offset=100.0,
    )

    np.testing.assert_allclose(
        factors(np.array([1, 0], np.int32)), [[120.1, 121.2, 123.3], [111.1, 113.2, 116.3]]
    )
    assert (factors.n_users, factors.n_items) == (2, 3)


@given(
    seed=st.integers(0, 2**32),
    with_user=st.booleans(),
    with_item=st.booleans(),
    global_offset=st.sampled_from([0.0, 3.5]),
    dtype=st.sampled_from([np.float32, np.float64]),
)
def test_any_mixture_of_offsets_equals_the_plain_formula(
    seed: int, with_user: bool, with_item: bool, global_offset: float, dtype: type[np.floating]
) -> None:
    rng = np.random.default_rng(seed)
    v, w = rng.standard_normal((7, 3)).astype(dtype), rng.standard_normal((5, 3)).astype(dtype)
    a = rng.standard_normal(7) if with_user else None
    b = rng.standard_normal(5) if with_item else None
    users = rng.integers(7, size=4, dtype=np.int32)

    scores = Factors(v, w, a, b, global_offset)(users)

    plain = v.astype(np.float64) @ w.astype(np.float64).T + global_offset
    plain += (np.zeros(7) if a is None else a)[:, None] + (np.zeros(5) if b is None else b)
    assert scores.dtype == dtype
    np.testing.assert_allclose(
        scores, plain[users], rtol=0, atol=1e-5 if dtype is np.float32 else 1e-12
    )


def test_mixed_precision_is_the_wider_one() -> None:
    assert Factors(np.ones((2, 1), np.float32), np.ones((3, 1)))(ALL).dtype == np.float64


def test_different_numbers_of_factors_are_refused() -> None:
    with pytest.raises(
        UsageError, match=r"users have 2 factors, but items have 3\. User and item factors must"
    ):
        Factors(np.ones((2, 2)), np.ones((4, 3)))


def test_lists_and_whole_numbers_become_float64() -> None:
    factors = Factors([[1], [2]], np.array([[3], [5]]), user_offset=[1, 0])  # type: ignore[arg-type]

    assert factors(ALL).tolist() == [[4.0, 6.0], [6.0, 10.0]]
    assert factors.dtype == np.float64


@pytest.mark.parametrize("bad", [[1.0, 2.0], 5.0, np.ones((3, 2, 1))], ids=["1-d", "0-d", "3-d"])
def test_factors_that_are_no_matrix_are_refused(bad: Any) -> None:
    with pytest.raises(
        UsageError, match=re.escape(f"item_factors has shape {np.shape(bad)}; it must be a matrix")
    ):
        Factors(np.ones((2, 2)), bad)


@pytest.mark.parametrize(
    "bad", [[["a", "b"]], [[1.0], [1.0, 2.0]], [[1j, 1j]]], ids=["text", "ragged", "complex"]
)
def test_factors_that_are_no_numbers_are_refused(bad: Any) -> None:
    with pytest.raises(UsageError, match="item_factors must be numbers"):
        Factors(np.ones((2, 2)), bad)


@pytest.mark.parametrize(("name", "size"), [("user_offset", 2), ("item_offset", 4)])
def test_an_offset_of_another_length_is_refused(name: str, size: int) -> None:
    with pytest.raises(
        UsageError, match=re.escape(f"{name} has shape (9,); it must have shape ({size},)")
    ):
        Factors(np.ones((2, 3)), np.ones((4, 3)), **{name: np.ones(9)})


def test_a_user_without_factors_is_named() -> None:
    with pytest.raises(
        BadPredictionError,
        match=r"user code 2 has no factors; the last code is 1\. Fit the factors",
    ):
        Factors(np.ones((2, 1)), np.ones((4, 1)))(np.array([0, 2], np.int32))
    with pytest.raises(BadPredictionError, match="user code -1 has no factors"):
        Factors(np.ones((2, 1)), np.ones((4, 1)))(np.array([0, -1], np.int32))


def test_pairs_are_predicted_one_by_one() -> None:
    rng = np.random.default_rng(0)
    factors = Factors(
        rng.normal(size=(4, 3)),
        rng.normal(size=(5, 3)),
        rng.normal(size=4),
        rng.normal(size=5),
        2.5,
    )
    users, items = np.divmod(np.arange(20, dtype=np.int32), 5)

    matrix = factors(np.arange(4, dtype=np.int32))

    np.testing.assert_allclose(factors.predict(users, items), matrix.ravel(), rtol=1e-14)
    left, right = factors.as_product()
    np.testing.assert_allclose(left @ right, matrix, rtol=1e-14)
    left, right = factors.as_float64_rows()
    np.testing.assert_allclose(left @ right.T, matrix, rtol=1e-14)


def test_unknown_rows_are_zeros_and_the_fallback_replaces_the_global_offset() -> None:
    factors = Factors(np.ones((2, 1)), np.ones((2, 1)), [10.0, 20.0], [0.1, 0.2], 100.0)
    users, items = np.array([0, -1, 1, -1]), np.array([1, 1, -1, -1])

    np.testing.assert_allclose(factors.predict(users, items), [111.2, 100.2, 120.0, 100.0])
    np.testing.assert_allclose(factors.predict(users, items, fallback=3.0), [111.2, 3.2, 23.0, 3.0])
    taken = factors.take(np.array([1, -1]), np.array([-1, 0]))
    assert taken.user_factors.tolist() == [[1.0], [0.0]]
    assert taken.item_offset.tolist() == [0.0, 0.1]


def test_long_lists_of_pairs_are_predicted_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    factors = Factors(np.arange(6.0)[:, None], np.ones((1, 1)))
    users = np.array([0, 5, -1, 3, 2], np.int32)
    whole = factors.predict(users, np.zeros(5, np.int32))
    monkeypatch.setattr("unskew.data.factors.BLOCK_CELLS", 2)

    assert (
        factors.predict(users, np.zeros(5, np.int32)).tolist() == whole.tolist() == [0, 5, 0, 3, 2]
    )


def test_offsets_can_be_dropped_and_norms_leave_them_out() -> None:
    factors = Factors(np.full((1, 1), 2.0), np.full((1, 1), 3.0), [1.0], [1.0], 5.0)

    assert factors.without_offsets(1.5)(ALL[:1]).tolist() == [[7.5]]
    assert factors.squared_norm(with_offsets=False) == 13.0
    assert factors.squared_norm(with_offsets=True) == 40.0
