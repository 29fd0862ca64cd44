from __future__ import annotations

import copy
import datetime as dt
import pickle
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import sparse

from frame_engines import columns_of, each_engine
from unskew.data.parts import Part
from unskew.data.ratings import Ratings
from unskew.data.universe import Universe
from unskew.errors import (
    BadRatingError,
    ColumnError,
    DataError,
    DuplicateCellError,
    EmptyLogError,
    MemoryLimitError,
    UniverseError,
    UnknownNameError,
    UsageError,
)

Make = Callable[..., Any]
Row = tuple[str, int, float]

USERS, ITEMS, RATINGS = ["bob", "ann", "ann"], [9, 9, 3], [5.0, 3.0, 1.0]
COLUMNS = {"user_id": USERS, "item_id": ITEMS, "rating": RATINGS}
rows = st.lists(
    st.tuples(st.sampled_from("abc"), st.integers(0, 2), st.integers(1, 5).map(float)), min_size=1
)


def build(log_rows: list[Row], **options: Any) -> Ratings:
    users, items, ratings = zip(*log_rows, strict=True)
    return Ratings.from_arrays(users, items, ratings, **options)


def rows_of(log: Ratings) -> list[Row]:
    return list(
        zip(
            log.users[log.user].tolist(),
            log.items[log.item].tolist(),
            log.rating.tolist(),
            strict=True,
        )
    )


def as_dense(log: Ratings) -> np.ndarray[Any, np.dtype[np.float64]]:
    dense = np.full((log.n_users, log.n_items), np.nan)
    dense[log.user, log.item] = log.rating
    return dense


# From data frames


@each_engine
def test_a_frame_becomes_codes_vocabularies_and_values(make: Make) -> None:
    log = Ratings.from_frame(make(COLUMNS))

    assert (log.users.tolist(), log.items.tolist()) == (["ann", "bob"], [3, 9])
    assert (log.user.tolist(), log.item.tolist(), log.rating.tolist()) == (
        [1, 0, 0],
        [1, 1, 0],
        RATINGS,
    )
    assert (log.n_users, log.n_items, log.n_cells, len(log), log.density) == (2, 2, 4, 3, 0.75)
    assert log.universe is None


@each_engine
def test_to_frame_gives_back_the_callers_library_names_and_values(make: Make) -> None:
    frame = make({"stars": RATINGS, "movieId": ITEMS, "reader": USERS, "when": [1, 2, 3]})

    back = Ratings.from_frame(frame, user="reader").to_frame()

    assert type(back) is type(frame)
    assert columns_of(back) == {"reader": USERS, "movieId": ITEMS, "stars": RATINGS}


@each_engine
@pytest.mark.parametrize(
    "ids",
    [
        [3, 1, 2],
        [-3, 2**62, 0],
        ["b", "a", "c"],
        [3.0, 1.0, 2.0],
        [True, False, True],
        [b"b", b"a", b"c"],
        [dt.datetime(2020, 1, 2), dt.datetime(2020, 1, 1, 12), dt.datetime(1969, 1, 1)],
        [dt.date(2020, 1, 2), dt.date(2020, 1, 1), dt.date(1969, 1, 1)],
        np.array([2**64 - 1, 2**64 - 3, 2**64 - 2], dtype=np.uint64),
        np.array([-100, 100, 99], dtype=np.int8),
    ],
    ids=lambda ids: str(getattr(ids, "dtype", type(ids[0]).__name__)),
)
def test_ids_of_every_type_come_back(make: Make, ids: Any) -> None:
    frame = make({"user_id": ids, "item_id": [1, 2, 3], "rating": RATINGS})

    assert columns_of(Ratings.from_frame(frame).to_frame()) == columns_of(frame)


def test_another_library_can_be_named_for_the_way_out() -> None:
    assert isinstance(Ratings.from_frame(pl.DataFrame(COLUMNS)).to_frame("pandas"), pd.DataFrame)


def test_a_pandas_index_of_any_kind_is_ignored() -> None:
    assert rows_of(Ratings.from_frame(pd.DataFrame(COLUMNS, index=[7, 7, 0]))) == list(
        zip(USERS, ITEMS, RATINGS, strict=True)
    )


def test_pandas_columns_named_by_numbers() -> None:
    frame = pd.DataFrame([[1, 2, 5.0]])

    assert rows_of(Ratings.from_frame(frame, user=0, item=1, rating=2)) == [(1, 2, 5.0)]  # type: ignore[arg-type]
    with pytest.raises(
        ColumnError, match=r"no column looks like the user .*; the columns are 0, 1, 2\."
    ):
        Ratings.from_frame(frame)


@each_engine
def test_universe_vocabulary_and_duplicates_reach_the_log(make: Make) -> None:
    log = Ratings.from_frame(
        make({"user_id": [1, 1], "item_id": [1, 1], "rating": [1, 3]}),
        users=[2, 1],
        items=[1],
        universe=(5, 5),
        duplicates="mean",
    )

    assert (rows_of(log), log.users.tolist(), log.universe) == (
        [(1, 1, 2.0)],
        [2, 1],
        Universe(5, 5),
    )


@each_engine
def test_a_frame_without_rows_is_an_empty_log(make: Make) -> None:
    with pytest.raises(
        EmptyLogError, match=r"the log has no ratings\. Check the filter or the file it came from"
    ):
        Ratings.from_frame(make({"user_id": [], "item_id": [], "rating": []}))


@each_engine
@pytest.mark.parametrize("bad", [None, float("nan"), float("inf"), -float("inf")])
def test_a_rating_that_is_no_number_is_named_with_its_cell(make: Make, bad: float | None) -> None:
    frame = make({"user_id": USERS, "item_id": ITEMS, "rating": [5.0, bad, bad]})

    with pytest.raises(
        BadRatingError,
        match=r"2 of 3 ratings are missing or not finite; the first is .* at row 1 \(user "
        r"'ann', item 9\)\. Drop those rows",
    ):
        Ratings.from_frame(frame)


@each_engine
def test_a_missing_id_is_named_with_its_column(make: Make) -> None:
    with pytest.raises(
        BadRatingError, match=r"column 'movie' has 1 missing id; the first is at row 2"
    ):
        Ratings.from_frame(make({"user_id": USERS, "movie": [1, 2, None], "rating": RATINGS}))


@each_engine
def test_text_for_ratings_is_refused(make: Make) -> None:
    with pytest.raises(BadRatingError, match=r"column 'rating' holds String, not numbers"):
        Ratings.from_frame(make(COLUMNS | {"rating": ["5", "3", "1"]}))


@each_engine
def test_a_number_is_the_rating_of_every_click(make: Make) -> None:
    log = Ratings.from_frame(make({"user_id": USERS, "item_id": ITEMS}), rating=1)

    assert log.rating.tolist() == [1.0, 1.0, 1.0]
    assert columns_of(log.to_frame())["rating"] == [1.0, 1.0, 1.0]


@each_engine
def test_column_errors_reach_the_caller(make: Make) -> None:
    with pytest.raises(
        ColumnError,
        match=r"there is no column 'reader' for user=; the columns are 'user_id', "
        r"'item_id', 'rating'",
    ):
        Ratings.from_frame(make(COLUMNS), user="reader")
    with pytest.raises(ColumnError, match=r"several columns could be the user: 'uid', 'userId'"):
        Ratings.from_frame(
            make({"uid": USERS, "userId": USERS, "item_id": ITEMS, "rating": RATINGS})
        )


# From columns


@given(log_rows=rows)
def test_rows_keep_their_order_and_values(log_rows: list[Row]) -> None:
    distinct = list(
        {(user, item): (user, item, rating) for user, item, rating in log_rows}.values()
    )

    assert rows_of(build(distinct)) == distinct


def test_tuples_and_mixed_ids_stay_whole() -> None:
    log = Ratings.from_arrays([(1, 2), (3, 4)], ["up", 7], [1, 2])

    assert rows_of(log) == [((1, 2), "up", 1.0), ((3, 4), 7, 2.0)]


def test_listed_ids_are_the_vocabulary_and_the_universe() -> None:
    log = Ratings.from_arrays(["b"], [1], [5], users=["c", "b", "a"], items=[0, 1])

    assert (log.users.tolist(), log.user.tolist(), log.universe) == (
        ["c", "b", "a"],
        [1],
        Universe(3, 2),
    )


def test_one_listed_side_alone_does_not_settle_the_universe() -> None:
    assert Ratings.from_arrays(["b"], [1], [5], users=["a", "b"]).universe is None


def test_a_named_universe_must_hold_the_listed_ids() -> None:
    with pytest.raises(
        UniverseError,
        match=r"the universe has 1 user x 9 items, but the log alone has 2 users and 1 item",
    ):
        Ratings.from_arrays(["b"], [1], [5], users=["a", "b"], universe=(1, 9))


def test_the_callers_arrays_are_neither_frozen_nor_shared() -> None:
    user, item, rating = np.array([0, 1]), np.array([0, 1]), np.array([5.0, 3.0])
    log = Ratings.from_arrays(user, item, rating, users=user, items=item)

    user[0], item[0], rating[0] = 8, 9, 1.0

    assert rows_of(log) == [(0, 0, 5.0), (1, 1, 3.0)]


def test_arrays_handed_to_the_constructor_stay_writeable() -> None:
    codes, rating, ids = np.array([0], dtype=np.int32), np.array([5.0]), np.array(["ann"])

    Ratings(codes, codes, rating, ids, ids)

    assert codes.flags.writeable
    assert rating.flags.writeable
    assert ids.flags.writeable


@pytest.mark.parametrize("name", ["user", "item", "rating", "users", "items"])
@pytest.mark.parametrize(
    "log",
    [Ratings.from_arrays([0], [0], [5.0], users=[0], items=[0]), Ratings.from_dense([[5.0]])],
    ids=["arrays", "dense"],
)
def test_the_arrays_of_a_log_are_read_only(log: Ratings, name: str) -> None:
    with pytest.raises(ValueError, match="read-only"):
        getattr(log, name)[0] = 1


def test_take_keeps_vocabulary_universe_and_names() -> None:
    log = Ratings.from_frame(
        pd.DataFrame({"uid": USERS, "item_id": ITEMS, "rating": RATINGS}), universe=(10, 10)
    )

    part = log.take(np.array([2, 0]))

    assert rows_of(part) == [("ann", 3, 1.0), ("bob", 9, 5.0)]
    assert (part.users.tolist(), part.universe, part.columns["user"]) == (
        ["ann", "bob"],
        Universe(10, 10),
        "uid",
    )
    assert rows_of(log.take(log.rating > 2)) == [("bob", 9, 5.0), ("ann", 9, 3.0)]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (
            np.array([True, False]),
            r"the mask has shape \(2,\), but there are 3 rows\. Give True or False for each row",
        ),
        ([0, 3], "there is no row 3: rows are 0 to 2"),
        ([-4], "there is no row -4"),
        ([0.0, 1.0], r"rows must be a list of row numbers or a mask; got float64 of shape \(2,\)"),
        (1, r"rows must be a list of row numbers or a mask; got int64 of shape \(\)"),
        (None, "rows must be a list of row numbers or a mask; got object"),
        ([[0], [0, 1]], "rows must be a list of row numbers or a mask: "),
    ],
    ids=str,
)
def test_rows_to_take_must_be_there(rows: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Ratings.from_arrays(USERS, ITEMS, RATINGS).take(rows)


@pytest.mark.parametrize("rows", [[0, 2, 2], [0, -1, 2]], ids=str)
def test_a_row_is_taken_once(rows: list[int]) -> None:
    with pytest.raises(
        DuplicateCellError,
        match=r"row 2 is taken 2 times, but a log holds each cell once\. .* pass bootstrap=",
    ):
        Ratings.from_arrays(USERS, ITEMS, RATINGS).take(np.array(rows))


def test_density_is_that_of_the_universe_where_it_is_known() -> None:
    assert Ratings.from_arrays([1], [1], [5]).density == 1.0
    assert Ratings.from_arrays([1], [1], [5], universe=(2, 10)).density == 0.05
    assert "density 0.05" in repr(Ratings.from_arrays([1], [1], [5], universe=(2, 10)))


def test_taking_no_row_is_an_empty_log() -> None:
    with pytest.raises(EmptyLogError, match="the log has no ratings"):
        Ratings.from_dense([[5.0]]).take(np.array([], dtype=np.intp))


def test_repr_tells_size_range_and_columns_that_were_recognised() -> None:
    log = Ratings.from_frame(pd.DataFrame({"userId": USERS, "item_id": ITEMS, "rating": RATINGS}))

    assert (
        repr(log)
        == "Ratings(3 ratings by 2 users on 2 items, 1 to 5, mean 3; density 0.75; columns "
        "user='userId')"
    )


def test_cells_are_named_by_the_callers_ids() -> None:
    log = Ratings.from_arrays(np.array(["2020-01-01"], dtype="M8[ns]"), np.array([7]), [5])

    assert log.name_cell(0) == "row 0 (user 2020-01-01T00:00:00.000000000, item 7)"


@pytest.mark.parametrize(
    "users",
    [[None, "a"], [np.nan, 1.0], np.array([np.nan, 1.0]), pd.Series([None, 1], dtype="Int64")],
    ids=str,
)
def test_a_missing_id_in_a_column_is_refused(users: Any) -> None:
    with pytest.raises(
        BadRatingError,
        match=r"1 of 2 user ids are missing; the first is at row 0\. Drop those rows first",
    ):
        Ratings.from_arrays(users, [1, 2], [5, 3])


def test_a_missing_timedelta_is_refused_too() -> None:
    with pytest.raises(BadRatingError, match=r"1 of 2 user ids are missing; the first is at row 1"):
        Ratings.from_arrays(np.array([1, "NaT"], dtype="m8[s]"), [1, 2], [5, 3])


def test_an_id_that_cannot_be_hashed_is_named() -> None:
    for options in ({}, {"users": ["a", (1, 2)]}):
        with pytest.raises(
            BadRatingError,
            match=r"an id of type list cannot be looked up; the first is \[1\] at row 1\. Use",
        ):
            Ratings.from_arrays(["a", [1]], [1, 2], [5, 3], **options)  # type: ignore[arg-type]
    with pytest.raises(
        BadRatingError,
        match=r"an id of type tuple cannot be looked up; the first is \(1, \[2\]\) at row 0",
    ):
        Ratings.from_arrays(["a"], [1], [5], users=[(1, [2])])  # type: ignore[list-item]


@pytest.mark.parametrize("ids", [None, 5, "ann", b"ann"], ids=repr)
def test_ids_that_are_no_column_are_refused(ids: Any) -> None:
    with pytest.raises(
        BadRatingError, match=rf"user must be a list or one-dimensional array of ids; got {ids!r}"
    ):
        Ratings.from_arrays(ids, [1], [5])


def test_columns_must_have_one_length() -> None:
    with pytest.raises(
        BadRatingError, match=r"must be columns of one length; got \(2,\), \(2,\) and \(3,\)"
    ):
        Ratings.from_arrays([1, 2], [1, 2], [5, 3, 1])


@pytest.mark.parametrize(
    ("ratings", "message"),
    [
        (["good"], r"ratings must be numbers[:;] got text\. Convert them to numbers"),
        (["5"], "ratings must be numbers[:;] got text"),
        (pd.Series(["5"]), "ratings must be numbers[:;] got text"),
        (np.array([1j]), "ratings must be numbers; got complex128"),
        (np.array(["2020-01-01"], "M8[D]"), r"ratings must be numbers; got datetime64\[D\]"),
        ([[1], [1, 2]], "ratings must be numbers: "),
        ([{}], "ratings must be numbers: "),
        ([10**400], "ratings must be numbers: int too large"),
    ],
    ids=lambda each: str(each)[:20],
)
def test_ratings_must_be_numbers(ratings: Any, message: str) -> None:
    with pytest.raises(BadRatingError, match=message):
        Ratings.from_arrays([1], [1], ratings)
    with pytest.raises(BadRatingError, match=message):
        Ratings.from_codes([0], [0], ratings, shape=(1, 1))


def test_no_rows_are_an_empty_log() -> None:
    with pytest.raises(EmptyLogError, match="the log has no ratings"):
        Ratings.from_arrays([], [], [])


def test_an_id_that_is_not_listed_is_named() -> None:
    with pytest.raises(
        BadRatingError,
        match=r"1 of 2 rows have a user that is not in users=\.\.\.; the first is 'eve' at row 1",
    ):
        Ratings.from_arrays(["ann", "eve"], [1, 2], [5, 3], users=["ann"])


def test_an_id_that_is_listed_twice_is_refused() -> None:
    with pytest.raises(DuplicateCellError, match=r"items=\.\.\. lists 1 item more than once"):
        Ratings.from_arrays(["ann"], [1], [5], items=[1, 1])


# Duplicates


@given(log_rows=rows)
def test_last_is_what_a_dictionary_keeps(log_rows: list[Row]) -> None:
    twin: dict[tuple[str, int], float] = {}
    for user, item, rating in log_rows:
        twin.pop((user, item), None)
        twin[user, item] = rating

    assert rows_of(build(log_rows, duplicates="last")) == [
        (*cell, rating) for cell, rating in twin.items()
    ]


@given(log_rows=rows)
def test_mean_is_the_mean_of_each_cell_where_it_first_stood(log_rows: list[Row]) -> None:
    twin: dict[tuple[str, int], list[float]] = {}
    for user, item, rating in log_rows:
        twin.setdefault((user, item), []).append(rating)

    found = rows_of(build(log_rows, duplicates="mean"))

    assert [row[:2] for row in found] == list(twin)
    assert [row[2] for row in found] == pytest.approx(
        [np.mean(ratings) for ratings in twin.values()]
    )


@given(log_rows=rows)
def test_raise_raises_exactly_when_a_cell_repeats(log_rows: list[Row]) -> None:
    n_repeats = len(log_rows) - len({row[:2] for row in log_rows})
    if n_repeats:
        with pytest.raises(DuplicateCellError, match=f"^{n_repeats} rows? repeat"):
            build(log_rows)
    else:
        assert len(build(log_rows)) == len(log_rows)


def test_a_repeated_cell_is_named_with_both_rows() -> None:
    with pytest.raises(
        DuplicateCellError,
        match=r"1 row repeats a \(user, item\) .* the first is row 2 \(user 'a', item 1\), "
        r"which is also at row 0",
    ):
        build([("a", 1, 5.0), ("b", 1, 5.0), ("a", 1, 3.0)])


def test_an_unknown_rule_is_refused_even_without_duplicates() -> None:
    with pytest.raises(
        UnknownNameError,
        match="unknown duplicates rule 'first'; valid names are: raise, mean, last",
    ):
        build([("a", 1, 5.0)], duplicates="first")


# From matrices

matrices = arrays(
    np.float64,
    st.tuples(st.integers(1, 4), st.integers(1, 4)),
    elements=st.integers(0, 5).map(float),
)


@given(matrix=matrices.filter(lambda matrix: bool(matrix.any())))
def test_dense_sparse_and_nan_matrices_say_the_same(
    matrix: np.ndarray[Any, np.dtype[np.float64]],
) -> None:
    with_nan = np.where(matrix == 0, np.nan, matrix)

    logs = [
        Ratings.from_dense(matrix),
        Ratings.from_dense(with_nan, missing=np.nan),
        Ratings.from_sparse(sparse.csr_array(matrix)),
        Ratings.from_sparse(sparse.coo_matrix(matrix)),
    ]

    for log in logs:
        assert np.array_equal(as_dense(log), with_nan, equal_nan=True)
        assert log.universe == Universe(*matrix.shape)


def test_with_nan_for_missing_a_zero_is_a_rating() -> None:
    assert Ratings.from_dense([[0.0, np.nan]], missing=np.nan).rating.tolist() == [0.0]


def test_any_value_can_mark_the_unobserved_cells() -> None:
    assert rows_of(Ratings.from_dense([[99, 1], [0, 99]], missing=99, users=["a", "b"])) == [
        ("a", 1, 1.0),
        ("b", 0, 0.0),
    ]


def test_the_callers_matrix_is_left_alone() -> None:
    matrix = np.array([[5.0]])
    log = Ratings.from_dense(matrix)

    matrix[0, 0] = 1.0

    assert log.rating.tolist() == [5.0]


def test_an_explicit_zero_in_a_sparse_matrix_is_a_rating() -> None:
    stored = sparse.coo_array(([0.0, 4.0], ([0, 1], [1, 0])), shape=(2, 3))

    assert rows_of(Ratings.from_sparse(stored)) == [(0, 1, 0.0), (1, 0, 4.0)]


def test_duplicates_in_a_sparse_matrix_follow_the_rule_and_are_never_summed() -> None:
    stored = sparse.coo_array(([1.0, 5.0], ([0, 0], [1, 1])), shape=(2, 3))

    assert rows_of(Ratings.from_sparse(stored, duplicates="mean")) == [(0, 1, 3.0)]
    assert rows_of(Ratings.from_sparse(stored, duplicates="last")) == [(0, 1, 5.0)]
    with pytest.raises(
        DuplicateCellError,
        match=r"1 row repeats .* row 1 \(user 0, item 1\), which is also at row 0",
    ):
        Ratings.from_sparse(stored)


@pytest.mark.parametrize("matrix", [[1.0, 2.0], np.ones((1, 1, 1)), 5.0], ids=["1-d", "3-d", "0-d"])
def test_a_matrix_has_two_dimensions(matrix: Any) -> None:
    with pytest.raises(
        BadRatingError, match=r"a rating matrix has two dimensions, users and items; got shape \("
    ):
        Ratings.from_dense(matrix)


def test_nan_in_a_matrix_asks_what_marks_missing_cells() -> None:
    with pytest.raises(
        BadRatingError,
        match=r"1 of 2 cells of the matrix are NaN\. If that marks unobserved cells, pass "
        r"missing=np\.nan",
    ):
        Ratings.from_dense([[np.nan, 1.0]])


@pytest.mark.parametrize(
    "matrix", [[["5", "3"]], [[1.0], [1.0, 2.0]], [[1j]]], ids=["text", "ragged", "complex"]
)
def test_a_matrix_holds_numbers(matrix: Any) -> None:
    with pytest.raises(BadRatingError, match="the ratings of a matrix must be numbers"):
        Ratings.from_dense(matrix)


@pytest.mark.parametrize("missing", [None, "0", [0]], ids=repr)
def test_what_marks_missing_cells_is_a_number(missing: Any) -> None:
    with pytest.raises(
        UsageError,
        match=r"missing must be the number that marks unobserved cells, such as 0 or np.nan; got",
    ):
        Ratings.from_dense([[1.0]], missing=missing)


def test_what_is_not_sparse_is_sent_to_from_dense() -> None:
    with pytest.raises(
        DataError,
        match=r"expected a scipy sparse matrix, got numpy.ndarray\. .* goes to Ratings\.from_dense",
    ):
        Ratings.from_sparse(np.ones((2, 2)))  # type: ignore[arg-type]


def test_a_sparse_array_has_two_dimensions() -> None:
    line = sparse.coo_array(np.ones(3))
    if line.ndim == 2:
        pytest.skip("SciPy before 1.13 has no sparse array of one dimension")

    with pytest.raises(
        BadRatingError,
        match=r"a rating matrix has two dimensions, users and items; got shape \(3,\)",
    ):
        Ratings.from_sparse(line)


# From codes


def test_codes_may_be_whole_floats() -> None:
    assert rows_of(Ratings.from_codes([1.0, 0.0], [0, 1], [5, 3], shape=(2, 2))) == [
        (1, 0, 5.0),
        (0, 1, 3.0),
    ]


@pytest.mark.parametrize(
    ("codes", "named"),
    [
        ([0, 2], "2 at row 1"),
        ([-1, 0], "-1 at row 0"),
        ([0, 0.5], "0.5 at row 1"),
        ([0, np.nan], "nan at row 1"),
    ],
)
def test_a_code_outside_the_matrix_is_named_with_its_row(codes: list[float], named: str) -> None:
    with pytest.raises(
        UniverseError,
        match=f"user {named} is outside the matrix, whose users are the whole numbers 0 to 1. "
        "Codes count from 0",
    ):
        Ratings.from_codes(codes, [0, 1], [5, 3], shape=(2, 2))
    with pytest.raises(
        UniverseError,
        match=f"item {named} is outside the matrix, whose items are the whole numbers 0 to 1",
    ):
        Ratings.from_codes([0, 1], codes, [5, 3], shape=(2, 2))


def test_codes_are_lists_of_one_length() -> None:
    codes: Any = [[0], [0, 1]]
    with pytest.raises(BadRatingError, match=r"user codes must be .*; got lists of different"):
        Ratings.from_codes(codes, [0, 1], [5, 3], shape=(2, 2))


@pytest.mark.parametrize("codes", [["a", "b"], [[0, 1]], 0, [True, False]], ids=str)
def test_codes_are_one_column_of_whole_numbers(codes: Any) -> None:
    with pytest.raises(
        BadRatingError,
        match=r"item codes must be a one-dimensional array of .*; got .* use Ratings\.from_arrays",
    ):
        Ratings.from_codes([0, 1], codes, [5, 3], shape=(2, 2))


@pytest.mark.parametrize("rating", [[5.0], [[5.0, 3.0]], 5.0], ids=str)
def test_codes_and_ratings_have_one_length(rating: Any) -> None:
    with pytest.raises(
        BadRatingError, match=r"must be columns of one length; got \(2,\), \(2,\) and \("
    ):
        Ratings.from_codes([0, 1], [0, 1], rating, shape=(2, 2))


def test_codes_may_not_repeat_a_cell() -> None:
    with pytest.raises(
        DuplicateCellError,
        match=r"1 row repeats .* row 2 \(user 0, item 1\), which is also at row 0",
    ):
        Ratings.from_codes([0, 1, 0], [1, 1, 1], [5, 3, 1], shape=(2, 2))


@pytest.mark.parametrize("shape", [(2,), (2, 2, 2), 5], ids=str)
def test_codes_need_a_shape_of_two(shape: Any) -> None:
    with pytest.raises(BadRatingError, match=r"two dimensions, users and items; got shape"):
        Ratings.from_codes([0], [0], [5], shape=shape)


def test_a_matrix_without_ratings_is_an_empty_log() -> None:
    with pytest.raises(EmptyLogError, match="the log has no ratings"):
        Ratings.from_dense(np.zeros((2, 2)))


def test_the_ids_of_a_matrix_must_be_as_many_as_its_rows() -> None:
    with pytest.raises(
        BadRatingError, match=r"the matrix has 2 users, but users=\.\.\. lists 1\. List"
    ):
        Ratings.from_dense(np.ones((2, 2)), users=["ann"])


def test_the_ids_of_a_matrix_must_differ() -> None:
    with pytest.raises(DuplicateCellError, match=r"users=\.\.\. lists 1 user more than once"):
        Ratings.from_sparse(sparse.coo_array(np.eye(2)), users=["ann", "ann"])


# Ratings are checked once


class CountingFinite:
    """Counts the calls of ``numpy.isfinite`` on arrays of ratings."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.n_calls = 0
        is_finite = np.isfinite

        def counted(values: Any) -> Any:
            self.n_calls += 1
            return is_finite(values)

        monkeypatch.setattr("unskew.data.ratings.np.isfinite", counted)


def test_ratings_are_checked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    counter = CountingFinite(monkeypatch)
    log = Ratings.from_frame(pl.DataFrame(COLUMNS), universe=(5, 5))
    assert counter.n_calls == 1

    log.take([0, 2]).with_universe("log")
    assert counter.n_calls == 1

    Ratings(log.user, log.item, log.rating, log.users, log.items)
    assert counter.n_calls == 2


def test_a_log_made_without_checks_is_read_only_too() -> None:
    taken = Ratings.from_frame(pl.DataFrame(COLUMNS)).take([0, 2]).with_universe((9, 9))

    assert taken.universe == Universe(9, 9)
    for array in (taken.user, taken.item, taken.rating, taken.users, taken.items):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 0


def test_no_rows_can_be_taken_from_a_log() -> None:
    with pytest.raises(EmptyLogError, match="the log has no ratings"):
        Ratings.from_frame(pl.DataFrame(COLUMNS)).take(np.array([], dtype=np.intp))


# The constructor, dataclasses.replace and pickle: arrays that compiled code reads unchecked


def make_log(**changes: Any) -> Ratings:
    fields = {
        "user": np.array([0, 1], np.int32),
        "item": np.array([0, 1], np.int32),
        "rating": np.ones(2),
        "users": np.arange(2),
        "items": np.arange(2),
    }
    return Ratings(**(fields | changes))


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"user": np.array([0, 5_000_000], np.int32)}, UniverseError, "user 5000000 at row 1 is"),
        ({"user": np.array([0, -1], np.int32)}, UniverseError, "user -1 at row 1 is outside"),
        ({"item": np.array([0, 2])}, UniverseError, "item 2 at row 1 is outside"),
        ({"item": np.array([0, 0.5])}, UniverseError, r"item 0\.5 at row 1 is outside"),
        ({"item": np.array([0, np.nan])}, UniverseError, "item nan at row 1 is outside"),
        ({"user": np.array(["0", "1"])}, BadRatingError, "user codes must be a one-dimensional"),
        ({"user": np.array([[0, 1]])}, BadRatingError, r"got int64 of shape \(1, 2\)"),
        ({"user": np.array([0], np.int32)}, BadRatingError, "columns of one length"),
        ({"users": np.arange(1)}, UniverseError, "user 1 at row 1 is outside"),
        (
            {"users": np.arange(4).reshape(2, 2)},
            BadRatingError,
            "users must be a one-dimensional array of ids",
        ),
        ({"rating": np.ones(1)}, BadRatingError, "columns of one length"),
        ({"examination": 3.0}, DataError, r"one number for each row; got shape \(\)"),
        ({"rating": np.array(["1", "2"])}, BadRatingError, "ratings must be numbers"),
        ({"rating": np.array([1, np.nan])}, BadRatingError, "1 of 2 ratings are missing"),
        ({"timestamp": np.arange(3)}, DataError, "there are 2 ratings, but timestamp"),
        ({"universe": (1, 5)}, UniverseError, "the universe has 1 user x 5 items, but the log"),
        ({"universe": "all"}, UniverseError, "universe must be"),
        ({"row_labels": np.arange(3)}, DataError, "row_labels has 3 rows, but the log has 2"),
        ({"part": Part(np.arange(3), 9, 0.5, "random")}, DataError, "part has 3 rows, but the"),
        ({"part": "half"}, DataError, "part must be a Part, .*; got 'half'. Leave it out"),
        (
            {"examination": np.array([2.0, 0.0])},
            DataError,
            r"examination must be positive and finite; it is 0 at row 1\. Pass how often each cell",
        ),
        ({"examination": np.array([np.inf, 1.0])}, DataError, "finite; it is inf at row 0"),
        ({"examination": np.array([np.nan, 1.0])}, DataError, "finite; it is nan at row 0"),
    ],
)
def test_the_constructor_and_replace_check_everything(
    changes: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        make_log(**changes)
    with pytest.raises(error, match=message):
        replace(make_log(), **changes)


def test_the_constructor_copies_its_arrays() -> None:
    user = np.array([0, 1], np.int32)
    log = make_log(user=user)
    user[1] = 5_000_000

    assert log.user.tolist() == [0, 1]
    assert log.user.dtype == np.int32
    assert make_log(user=np.array([0.0, 1.0])).user.dtype == np.int32


def test_a_log_from_pickle_is_checked_and_read_only() -> None:
    log = Ratings.from_arrays(["a", "b"], [1, 2], [3, 4], timestamp=[5, 6], universe=(9, 9))
    restored = pickle.loads(pickle.dumps(log))

    assert restored.users.tolist() == ["a", "b"]
    assert restored.universe == log.universe
    assert not restored.user.flags.writeable
    object.__setattr__(log, "user", np.array([0, 5_000_000], np.int32))
    with pytest.raises(UniverseError, match="user 5000000 at row 1"):
        pickle.loads(pickle.dumps(log))
    with pytest.raises(UniverseError, match="user 5000000 at row 1"):
        copy.deepcopy(log)


def test_a_matrix_has_no_more_rows_than_memory() -> None:
    with pytest.raises(MemoryLimitError, match=r"users x 5 items would need about .*universe"):
        Ratings.from_codes([0], [0], [1.0], shape=(2**63, 5))


def test_row_labels_are_copied_and_read_only() -> None:
    labels = np.array([3, 4])
    log = make_log(row_labels=labels)
    labels[0] = 9

    assert log.row_labels is not None
    assert list(log.row_labels) == [3, 4]
    assert not log.row_labels.flags.writeable
    of_list = make_log(row_labels=[3, 4]).take(np.array([1])).row_labels
    assert of_list is not None
    assert list(of_list) == [4]
