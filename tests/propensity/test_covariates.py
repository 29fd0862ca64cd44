"""Reading covariates, their profiles and pairs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from frame_engines import each_engine
from unskew.data.ids import as_ids
from unskew.data.ratings import Ratings
from unskew.errors import DataError, PropensityWarning, UsageError
from unskew.propensity.covariates import CovariateProfiles, varying_products
from unskew.propensity.logistic import LogisticPropensity

IDS = np.array(["ann", "bob", "cy"])
pytestmark = pytest.mark.filterwarnings("ignore:.*has neither a column")


def test_an_array_becomes_distinct_profiles() -> None:
    found = CovariateProfiles.read([[1, 0.5], [0, 2], [1, 0.5]], IDS, "user")

    assert found.names == ("user:0", "user:1")
    assert found.values.tolist() == [[0, 2], [1, 0.5]]
    assert found.profile.tolist() == [1, 0, 1]


def test_nothing_is_one_profile_without_covariates() -> None:
    found = CovariateProfiles.read(None, IDS, "item")

    assert found.values.shape == (1, 0)
    assert found.profile.tolist() == [0, 0, 0]


@each_engine
def test_a_frame_has_numbers_and_categories(make: Any) -> None:
    found = CovariateProfiles.read(make({"age": [30, 40, 30], "sex": ["f", "m", "f"]}), IDS, "user")

    assert found.names == ("user:age", "user:sex=f", "user:sex=m")
    assert found.rows.tolist() == [[30, 1, 0], [40, 0, 1], [30, 1, 0]]


@each_engine
def test_a_column_of_ids_puts_rows_in_order(make: Any) -> None:
    found = CovariateProfiles.read(
        make({"age": [1, 2, 3, 4], "user_id": ["cy", "bob", "ann", "dan"]}), IDS, "user"
    )

    assert found.names == ("user:age",)
    assert found.rows[:, 0].tolist() == [3, 2, 1]


def test_text_in_an_array_is_a_category() -> None:
    found = CovariateProfiles.read(
        np.array([["red", 1], ["blue", 2], ["red", 2]], dtype=object), IDS, "item"
    )

    assert found.names == ("item:0=blue", "item:0=red", "item:1")
    assert found.rows.tolist() == [[0, 1, 1], [1, 0, 2], [0, 1, 2]]


def test_booleans_and_categoricals_of_pandas_are_read() -> None:
    frame = pd.DataFrame(
        {
            "new": [True, False, True],
            "kind": pd.Categorical(["a", "b", "a"], categories=["a", "b", "never"]),
        }
    )

    assert CovariateProfiles.read(frame, IDS, "item").rows.tolist() == [
        [1, 1, 0],
        [0, 0, 1],
        [1, 1, 0],
    ]


def test_standard_units_leave_marks_alone() -> None:
    center, scale = CovariateProfiles.read(
        [[1, 10], [0, 20], [0, 30]], IDS, "user"
    ).standard_units()

    assert center == pytest.approx([0, 20])
    assert scale == pytest.approx([1, np.sqrt(200 / 3)])


def test_two_levels_of_one_category_form_no_pair() -> None:
    first, second = varying_products(np.array([[1, 0, 1], [0, 1, 1], [1, 0, 0.0]]))

    assert list(zip(first, second, strict=True)) == [(0, 2), (1, 2)]


@given(arrays(np.int64, (6, 3), elements=st.integers(0, 2)))
def test_profiles_put_together_are_the_table(table: np.ndarray) -> None:
    table = np.vstack(
        [table, np.eye(3, dtype=int), 2 * np.eye(3, dtype=int)]
    )  # no column is constant

    found = CovariateProfiles.read(table, np.arange(len(table)), "user")

    assert found.rows.tolist() == table.tolist()
    assert found.n_profiles == len({tuple(row) for row in table.tolist()})


@pytest.mark.parametrize(
    ("table", "error", "match"),
    [
        ([[1], [2]], DataError, "user_features has 2 rows, but the log lists 3 users. Pass one"),
        (
            [[1], [np.nan], [2]],
            DataError,
            "user covariate 'user:0' has 1 values that are missing .*; the first is at row 1",
        ),
        (
            [[1, 5], [2, 5], [3, 5]],
            UsageError,
            "1 of 2 user covariates are the same for all 3 users; .* 'user:1'. Drop it",
        ),
        (np.ones((3, 1, 1)), UsageError, r"one row for each user; got shape \(3, 1, 1\)"),
        ([[1], [2, 3], [4]], UsageError, "table with one row for each user"),
        (
            pd.DataFrame({"user_id": ["ann", "bob"], "age": [1, 2]}),
            DataError,
            "lacks 1 of the log's 3 users; the first is 'cy'",
        ),
        (
            pd.DataFrame({"user_id": ["ann"] * 3, "age": [1, 2, 3]}),
            DataError,
            "column 'user_id' of user_features lists user 'ann' more than once",
        ),
        (
            pd.DataFrame({"sex": ["f", None, "m"]}),
            DataError,
            "'user:sex' has 1 values that are missing or not finite; .* at row 1",
        ),
    ],
)
def test_what_is_wrong_is_named(table: object, error: type[Exception], match: str) -> None:
    with pytest.raises(error, match=match):
        CovariateProfiles.read(table, IDS, "user")


def test_a_name_is_no_category() -> None:
    ids = np.arange(1001)

    with pytest.raises(
        UsageError,
        match=r"'item:0' has 1,001 levels, more than 1,000. Group them, or .*item_offsets=True",
    ):
        CovariateProfiles.read(np.array([f"title {place}" for place in ids]), ids, "item")


def test_an_index_of_ids_puts_rows_in_order() -> None:
    frame = pd.DataFrame({"age": [30.0, 10.0, 20.0]}, index=["c", "a", "b"])

    found = CovariateProfiles.read(frame, as_ids(["a", "b", "c"]), "user")

    assert found.rows.ravel().tolist() == [10.0, 20.0, 30.0]


def test_an_index_that_counts_rows_says_nothing() -> None:
    frame = pd.DataFrame({"age": [30.0, 10.0, 20.0]})

    with pytest.warns(
        PropensityWarning,
        match=r"rows are assumed to be in the order of log\.users, which is sorted",
    ):
        CovariateProfiles.read(frame, as_ids(["a", "b", "c"]), "user")
    assert CovariateProfiles.read(frame, as_ids(["a", "b", "c"]), "user").rows.ravel().tolist() == [
        30.0,
        10.0,
        20.0,
    ]


def test_an_index_that_lacks_ids_is_refused() -> None:
    frame = pd.DataFrame({"age": [30.0, 10.0, 20.0]}, index=[2, 3, 4])

    with pytest.raises(
        DataError,
        match=r"the index of user_features lacks 2 of the log's 3 users; the first is 0\.",
    ):
        CovariateProfiles.read(frame, as_ids([0, 1, 2]), "user")


def test_numbers_for_text_are_pointed_out() -> None:
    frame = pd.DataFrame({"user_id": ["0", "1"], "age": [30.0, 10.0]})

    with pytest.raises(
        DataError, match=r"the first is 0 \(a number, where text such as '0' is known\)"
    ):
        CovariateProfiles.read(frame, as_ids([0, 1]), "user")


def test_dates_are_refused() -> None:
    frame = pd.DataFrame({"joined": pd.to_datetime(["2020-01-01", "2021-01-01"])})

    with pytest.raises(UsageError, match="'joined' is a date or a time"):
        CovariateProfiles.read(frame, as_ids([0, 1]), "user")


def test_a_column_like_ids_draws_a_warning() -> None:
    frame = pd.DataFrame({"account": np.arange(100, 140), "age": np.arange(40) % 5})

    with pytest.warns(
        PropensityWarning,
        match="'user:account' is a different whole number for each of 40 users, like ids",
    ):
        CovariateProfiles.read(frame, as_ids(list(range(40))), "user")


def test_a_warning_about_a_table_points_to_the_caller_of_fit() -> None:
    log = Ratings.from_arrays(np.arange(40), np.arange(40) % 4, np.ones(40))
    frame = pd.DataFrame({"account": np.arange(100, 140)}, index=log.users)

    with pytest.warns(PropensityWarning, match="like ids") as caught:
        LogisticPropensity(user_features=frame).fit(log, universe="log")

    assert caught[0].filename == __file__


def test_constants_can_be_left_out() -> None:
    table = np.column_stack([np.ones(3), [1.0, 2.0, 4.0]])

    found = CovariateProfiles.read(table, as_ids([0, 1, 2]), "item", constants="drop")

    assert found.names == ("item:1",)


def test_text_with_a_value_for_nearly_every_row_looks_like_ids() -> None:
    ids = np.arange(30)
    names = [f"name {place}" for place in range(28)] + ["name 0", "name 1"]

    with pytest.warns(
        PropensityWarning,
        match=r"'user:nick' is text with 28 values for 30 users, like ids.* call it user_id",
    ):
        CovariateProfiles.read(pd.DataFrame({"user_id": ids, "nick": names}), ids, "user")
    CovariateProfiles.read(pd.DataFrame({"user_id": ids, "town": names[:15] * 2}), ids, "user")
