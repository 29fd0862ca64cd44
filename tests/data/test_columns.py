from __future__ import annotations

import pytest

from unskew.data.columns import COMMON_NAMES, DEFAULTS, find_column
from unskew.errors import ColumnError


def test_a_named_column_is_taken_even_where_the_default_is_there() -> None:
    assert find_column("user", "reader", ["user_id", "reader"]) == "reader"


@pytest.mark.parametrize(("role", "default"), DEFAULTS.items())
def test_the_default_comes_before_other_spellings(role: str, default: str) -> None:
    assert find_column(role, None, [next(iter(COMMON_NAMES[role])).upper(), default]) == default


@pytest.mark.parametrize(
    ("role", "name"),
    [
        ("user", "userId"),
        ("user", "User ID"),
        ("user", "reviewerID"),
        ("item", "movieId"),
        ("item", "parent_asin"),
        ("rating", "Stars"),
    ],
)
def test_common_names_are_found_whatever_their_case_and_punctuation(role: str, name: str) -> None:
    assert find_column(role, None, ["timestamp", name]) == name


def test_no_common_name_has_two_roles() -> None:
    listed = [name for names in COMMON_NAMES.values() for name in names]

    assert len(listed) == len(set(listed))


def test_a_named_column_that_is_not_there_is_an_error_that_lists_the_columns() -> None:
    with pytest.raises(
        ColumnError, match=r"there is no column 'reader' for user=; the columns are 'a', 'b'\."
    ):
        find_column("user", "reader", ["a", "b"])


def test_several_candidates_are_listed() -> None:
    with pytest.raises(
        ColumnError,
        match=r"several columns could be the item: 'movieId', 'asin'\. Choose one, for "
        r"example item='movieId'",
    ):
        find_column("item", None, ["movieId", "asin"])


def test_no_candidate_is_an_error_that_names_the_default() -> None:
    with pytest.raises(
        ColumnError,
        match=r"no column looks like the rating \(default 'rating'\); the columns are 'a'\. "
        r"Pass rating=\.\.\. to name one of them\. If every row is a click, pass rating=1\.",
    ):
        find_column("rating", None, ["a"], takes_number=True)


def test_a_log_of_shown_items_is_sent_to_impressions() -> None:
    with pytest.raises(ColumnError, match=r"clicks, use unskew\.Impressions\.from_frame") as info:
        find_column("rating", None, ["user", "item", "pos", "clicked"], takes_number=True)

    assert "`unskew policy`" in info.value.render(for_shell=True)


def test_a_frame_without_columns_says_so() -> None:
    with pytest.raises(ColumnError, match=r"the columns are \(none\)\."):
        find_column("rating", None, [])
