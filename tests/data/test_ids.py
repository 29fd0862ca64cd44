from __future__ import annotations

import datetime as dt
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from unskew.data.ids import (
    Ids,
    as_ids,
    as_listed_ids,
    check_id_list,
    encode,
    encode_with,
    find_codes,
    format_id,
    missing_ids,
)
from unskew.errors import BadRatingError, DuplicateCellError, UsageError

DTYPES = ["i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8"]
ID_KINDS: dict[str, st.SearchStrategy[Any]] = {
    "small integers": st.integers(-50, 50),
    "negative integers": st.integers(-(10**9), -1),
    "integers": st.integers(-(2**63), 2**63 - 1),
    "big integers": st.integers(-(2**80), 2**80) | st.integers(2**63, 2**64 - 1),
    "strings": st.text(max_size=4),
    "bytes": st.binary(max_size=3),
    "tuples": st.tuples(st.integers(0, 3), st.text(max_size=1)),
    "booleans": st.booleans(),
    "floats": st.floats(allow_nan=False),
    "dates": st.dates(),
    "datetimes": st.datetimes(),
    "mixed": st.integers() | st.text(max_size=2) | st.tuples(st.integers(0, 3)) | st.dates(),
}
integer_arrays = st.sampled_from(DTYPES).flatmap(lambda dtype: arrays(dtype, st.integers(1, 30)))


def check_round_trip(ids: Ids, original: list[Any]) -> None:
    codes, vocabulary = encode(ids)

    assert codes.dtype == np.int32
    assert vocabulary[codes].tolist() == original
    assert sorted(set(codes.tolist())) == list(range(len(vocabulary)))


@pytest.mark.parametrize("kind", ID_KINDS)
@given(data=st.data())
def test_ids_survive_the_way_to_codes_and_back(kind: str, data: st.DataObject) -> None:
    ids = data.draw(st.lists(ID_KINDS[kind], min_size=1, max_size=20))

    check_round_trip(as_ids(ids), ids)


@given(ids=integer_arrays)
@example(ids=np.array([-100, 99, 100], dtype=np.int8))
@example(ids=np.array([2**64 - 1, 2**64 - 2], dtype=np.uint64))
@example(ids=np.array([-(2**63), 2**63 - 1]))
def test_integers_of_every_width_survive_and_keep_their_type(ids: Ids) -> None:
    check_round_trip(ids, ids.tolist())
    assert encode(ids)[1].dtype == ids.dtype


@given(
    ids=arrays(
        "M8[ns]",
        st.integers(1, 20),
        elements=st.integers(-(2**40), 2**40).map(lambda n: np.datetime64(n, "ns")),
    )
)
def test_numpy_datetimes_survive(ids: Ids) -> None:
    check_round_trip(ids, ids.tolist())


@given(ids=st.lists(st.text(max_size=3) | st.just("ann"), min_size=1))
def test_the_vocabulary_is_sorted_where_ids_compare(ids: list[str]) -> None:
    assert encode(as_ids(ids))[1].tolist() == sorted(set(ids))


def test_ids_that_do_not_compare_stay_in_order_of_appearance() -> None:
    assert encode(as_ids(["b", 2, "a", 1, 2]))[1].tolist() == ["b", 2, "a", 1]


def test_integers_that_a_float_would_merge_stay_apart() -> None:
    assert len(encode(as_ids([-1, 2**63, 2**63 + 1]))[1]) == 3
    assert [type(value) for value in as_ids([-1, 2**63]).tolist()] == [int, int]


def test_a_final_nul_tells_two_strings_apart() -> None:
    assert len(encode(as_ids(["ann", "ann\0"]))[1]) == 2


@pytest.mark.parametrize(
    "column",
    [
        pd.Series([3, 1]),
        pd.Series([3, 1], index=[7, 7], dtype="Int64"),
        pd.Series([3, 1], dtype="category"),
        pd.Index([3, 1]),
        pl.Series([3, 1]),
        pa.chunked_array([[3], [1]]),
        pa.array([3, 1]),
        range(3, 0, -2),
        {3: "a", 1: "b"}.keys(),
    ],
    ids=lambda column: f"{type(column).__module__}.{type(column).__name__}",
)
def test_columns_of_other_libraries_are_ids(column: Any) -> None:
    assert as_ids(column).tolist() == [3, 1]


def test_the_callers_array_is_taken_as_it_is() -> None:
    mine = np.array([3, 1])

    assert as_ids(mine) is mine


def slow_codes(ids: list[Any], vocabulary: list[Any]) -> list[int]:
    return [vocabulary.index(value) if value in vocabulary else -1 for value in ids]


@given(
    ids=integer_arrays | arrays("f8", st.integers(1, 10), elements=st.integers(-5, 5)),
    known=integer_arrays,
)
@example(ids=np.array([2**60 + 1]), known=np.array([2**60, 2**60 + 1], dtype=np.uint64))
@example(ids=np.array([2.0**53]), known=np.array([2**53 + 1, 2**53]))
@example(ids=np.array([1, 2]), known=np.array([], dtype=np.int64))
def test_codes_in_a_given_vocabulary_are_those_of_a_linear_search(ids: Ids, known: Ids) -> None:
    vocabulary = np.unique(known)[::-1]

    assert find_codes(ids, vocabulary).tolist() == slow_codes(ids.tolist(), vocabulary.tolist())


@given(ids=st.lists(st.text(max_size=2)), known=st.lists(st.text(max_size=2), unique=True))
def test_codes_of_strings_are_those_of_a_linear_search(ids: list[str], known: list[str]) -> None:
    assert find_codes(as_ids(ids), as_ids(known)).tolist() == slow_codes(ids, known)


def test_datetimes_meet_whatever_their_unit() -> None:
    days = np.array(["2020-01-02", "2020-01-01"], dtype="M8[D]")

    assert find_codes(days.astype("M8[ns]"), days).tolist() == [0, 1]


@pytest.mark.parametrize(
    ("ids", "missing"),
    [
        (np.array([1, 2]), [False, False]),
        (np.array([1.0, np.nan]), [False, True]),
        (np.array(["NaT", "2020-01-01"], dtype="M8[D]"), [True, False]),
        (
            np.array(["a", None, float("nan"), pd.NA, pd.NaT, (1, 2)], dtype=object),
            [False, True, True, True, True, False],
        ),
    ],
    ids=["integers", "floats", "dates", "objects"],
)
def test_every_library_s_null_is_missing(ids: Ids, missing: list[bool]) -> None:
    assert missing_ids(ids).tolist() == missing


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (np.int64(3), "3"),
        (np.str_("ann"), "'ann'"),
        (np.datetime64("2020-01-01", "ns"), "2020-01-01T00:00:00.000000000"),
        ((1, "a"), "(1, 'a')"),
    ],
)
def test_errors_print_an_id_without_its_numpy_type(value: Any, text: str) -> None:
    assert format_id(value) == text


def test_a_listed_vocabulary_is_our_own_copy() -> None:
    mine = np.array(["ann", "bob"])
    listed = check_id_list(mine, kind="user")

    mine[0] = "eve"

    assert listed.tolist() == ["ann", "bob"]


def test_an_unknown_id_is_named_with_its_row() -> None:
    with pytest.raises(
        BadRatingError,
        match=r"2 of 3 rows have a user that is not in users=\.\.\.; the first is 'eve' at "
        r"row 1\. Add it",
    ):
        encode_with(as_ids(["ann", "eve", "eve"]), as_ids(["ann"]), kind="user")


def test_an_unknown_number_is_named_as_a_plain_number() -> None:
    with pytest.raises(
        BadRatingError,
        match=r"1 of 2 rows have a item that is not in items=\.\.\.; the first is 7 at row 1",
    ):
        encode_with(np.array([1, 7]), np.array([1]), kind="item")


def test_a_repeated_id_in_a_listed_vocabulary_is_refused() -> None:
    with pytest.raises(
        DuplicateCellError, match=r"users=\.\.\. lists 1 user more than once; the first is 'ann'"
    ):
        check_id_list(["bob", "ann", "eve", "ann", "ann"], kind="user")


def test_a_missing_id_in_a_listed_vocabulary_is_refused() -> None:
    with pytest.raises(
        BadRatingError, match=r"items=\.\.\. lists a missing id at position 1\. Leave it out"
    ):
        check_id_list(["up", None], kind="item")


def test_ids_must_form_one_column() -> None:
    with pytest.raises(
        BadRatingError,
        match=r"must be a one-dimensional array of ids; got an array of shape \(2, 1\)",
    ):
        as_ids(np.ones((2, 1)))


@pytest.mark.parametrize("single", ["SKU1", 7, np.str_("SKU1"), np.array("SKU1"), b"SKU1"])
def test_a_single_id_is_not_a_list_of_ids(single: Any) -> None:
    with pytest.raises(
        UsageError, match=r"users must be a list of ids; got the single id"
    ) as found:
        as_listed_ids(single, "users")

    assert found.value.parameter == "users"
    shown = single.tolist() if isinstance(single, (np.generic, np.ndarray)) else single
    assert str(found.value).endswith(f"Pass a list: users=[{shown!r}].")


def test_dates_of_one_type_come_back_as_dates() -> None:
    days = [dt.date(2020, 1, 2), dt.date(2020, 1, 1)]

    assert encode(as_ids(days))[1].tolist() == sorted(days)


def test_one_long_text_does_not_give_its_room_to_all() -> None:
    ids = ["x" * 10_000, *(str(number) for number in range(1000))]

    assert as_ids(ids).dtype == object
    assert as_ids(ids).tolist() == ids
    assert as_ids(["ann", "bob", "x" * 200]).dtype.kind == "U"
    codes, vocabulary = encode(as_ids(ids))
    assert vocabulary[codes].tolist() == ids
