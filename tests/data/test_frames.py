from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from frame_engines import ENGINES, columns_of, each_engine
from unskew.data import frames
from unskew.data.frames import id_column, is_frame, make_frame, number_column, open_frame
from unskew.data.ratings import Ratings
from unskew.errors import (
    BadRatingError,
    ColumnError,
    DataError,
    MissingExtraError,
    UnknownNameError,
    UsageError,
)
from unskew.propensity import NaiveBayesPropensity

Make = Callable[..., Any]


@each_engine
def test_every_engine_opens(make: Make) -> None:
    frame = make({"a": [1, 2]})

    assert is_frame(frame)
    assert open_frame(frame).columns == ["a"]


@pytest.mark.parametrize(
    "value",
    [[1, 2], np.ones(2), {"a": [1]}, pl.LazyFrame({"a": [1]}), pd.Series([1]), None],
    ids=lambda v: type(v).__name__,
)
def test_other_values_are_no_frames(value: Any) -> None:
    assert not is_frame(value)


def test_a_lazy_frame_is_refused_with_the_way_out() -> None:
    with pytest.raises(
        DataError,
        match=r"expected an eager data frame \(pandas, .*\), got polars.*LazyFrame\. Call "
        r"\.collect\(\) on it first",
    ):
        open_frame(pl.LazyFrame({"a": [1]}))


@pytest.mark.parametrize(
    ("value", "way_out"),
    [
        ({"a": [1]}, r" Pass columns to Ratings\.from_arrays\(user, item, rating\)"),
        (np.ones((2, 2)), r" Pass columns .*, or a users x items matrix to Ratings\.from_dense"),
        ([1, 2], r" Pass columns to Ratings\.from_arrays"),
        (
            "ratings.csv",
            r" Read the file into a frame first, with pandas\.read_csv\(path\), for example",
        ),
        (Path("ratings.csv"), r" Read the file into a frame first"),
        (None, r"$"),
    ],
    ids=["dict", "ndarray", "list", "str", "Path", "None"],
)
def test_what_is_no_frame_is_named_with_the_way_out(value: Any, way_out: str) -> None:
    with pytest.raises(
        DataError,
        match=rf"expected an eager data frame .*, got .*{type(value).__name__}\.{way_out}",
    ):
        open_frame(value)


def test_two_columns_of_one_name_are_refused() -> None:
    with pytest.raises(
        ColumnError, match=r"(?s)two columns of the frame have one name; rename one\..*'a' 2 times"
    ):
        open_frame(pd.DataFrame([[1, 2]], columns=["a", "a"]))


@each_engine
@pytest.mark.parametrize(
    "values",
    [[1, 2, 3], [1.5, 2.5, 3.0], [True, False, True], [Decimal("1.5"), Decimal("2"), Decimal("3")]],
    ids=["integers", "floats", "booleans", "decimals"],
)
def test_numbers_of_every_kind_become_float64(make: Make, values: list[Any]) -> None:
    numbers = number_column(open_frame(make({"rating": values})), "rating")

    assert numbers.dtype == np.float64
    assert numbers.tolist() == [float(value) for value in values]


@each_engine
@pytest.mark.parametrize(
    "values",
    [[1, None], [1.0, None], [1.0, float("nan")], [True, None], [Decimal("1"), None]],
    ids=repr,
)
def test_missing_numbers_become_nan(make: Make, values: list[Any]) -> None:
    numbers = number_column(open_frame(make({"rating": values})), "rating")

    assert numbers[0] == 1.0
    assert np.isnan(numbers[1])


@pytest.mark.parametrize(
    "column",
    [
        pd.array([1, None], dtype="Int64"),
        pd.array([1, None], dtype="Float32"),
        pd.array([True, None], dtype="boolean"),
        pd.array([1, None], dtype=pd.ArrowDtype(pa.int8())),
        pd.array([Decimal("1"), None], dtype=pd.ArrowDtype(pa.decimal128(3, 1))),
        pd.Series([1, pd.NA], dtype=object),
    ],
    ids=lambda column: str(column.dtype),
)
def test_pandas_nullable_numbers(column: Any) -> None:
    assert number_column(open_frame(pd.DataFrame({"rating": column})), "rating")[0] == 1.0
    assert np.isnan(number_column(open_frame(pd.DataFrame({"rating": column})), "rating")[1])


@each_engine
def test_a_column_of_nulls_alone_is_missing_throughout(make: Make) -> None:
    assert np.isnan(number_column(open_frame(make({"rating": [None, None]})), "rating")).all()


@each_engine
def test_text_is_no_number(make: Make) -> None:
    with pytest.raises(
        BadRatingError, match=r"column 'rating' holds String, not numbers\. Convert the column to"
    ):
        number_column(open_frame(make({"rating": ["5", "3"]})), "rating")


def test_objects_are_numbers_only_if_each_one_is() -> None:
    with pytest.raises(BadRatingError, match=r"column 'rating' holds Object, not numbers"):
        number_column(
            open_frame(pd.DataFrame({"rating": pd.Series([5, "3"], dtype=object)})), "rating"
        )


@pytest.mark.parametrize(
    "column",
    [pd.Series([1j, 2j]), pd.Series([1j, 2], dtype=object), pd.Series(np.array([1, 2], "M8[s]"))],
    ids=str,
)
def test_complex_numbers_and_dates_are_no_ratings(column: Any) -> None:
    with pytest.raises(BadRatingError, match=r"column 'rating' holds .*, not numbers"):
        number_column(open_frame(pd.DataFrame({"rating": column})), "rating")


@each_engine
@pytest.mark.parametrize(
    "ids", [[7, None], ["ann", None], [1.0, None], [1.0, float("nan")]], ids=repr
)
def test_a_missing_id_is_named(make: Make, ids: list[Any]) -> None:
    with pytest.raises(
        BadRatingError,
        match=r"column 'user_id' has 1 missing id; the first is at row 1\. Drop those rows first",
    ):
        id_column(open_frame(make({"user_id": ids})), "user_id")


@pytest.mark.parametrize(
    ("frame", "ids"),
    [
        (pd.DataFrame({"u": pd.Categorical(["b", "a"])}), ["b", "a"]),
        (pd.DataFrame({"u": pd.Categorical([2, 1])}), [2, 1]),
        (pd.DataFrame({"u": pd.array([2, 1], dtype="Int64")}), [2, 1]),
        (pd.DataFrame({"u": pd.array(["b", "a"], dtype=pd.ArrowDtype(pa.string()))}), ["b", "a"]),
        (pd.DataFrame({"u": pd.array(["b", "a"], dtype="string[pyarrow]")}), ["b", "a"]),
        (pd.DataFrame({"u": pd.Series([(1, 2), "a"], dtype=object)}), [(1, 2), "a"]),
        (pl.DataFrame({"u": ["b", "a"]}, schema={"u": pl.Categorical}), ["b", "a"]),
        (pl.DataFrame({"u": ["b", "a"]}, schema={"u": pl.Enum(["b", "a"])}), ["b", "a"]),
        (pl.DataFrame({"u": [2**64 - 1, 0]}, schema={"u": pl.UInt64}), [2**64 - 1, 0]),
        (pa.table({"u": pa.array(["b", "a"]).dictionary_encode()}), ["b", "a"]),
    ],
    ids=[
        "pandas categorical",
        "pandas categorical of integers",
        "Int64",
        "arrow string",
        "string",
        "objects",
        "Categorical",
        "Enum",
        "UInt64",
        "dictionary",
    ],
)
def test_ids_of_awkward_types_come_out_plain(frame: Any, ids: list[Any]) -> None:
    assert id_column(open_frame(frame), "u").tolist() == ids


@pytest.mark.parametrize("backend", ENGINES)
def test_a_frame_is_made_in_the_named_library(backend: str) -> None:
    frame = make_frame(
        {"user_id": np.array(["ann", "bob"]), "rating": np.array([1.0, 2.0])}, backend
    )

    assert type(frame) is type(ENGINES[backend]({"a": [1]}))
    assert columns_of(frame) == {"user_id": ["ann", "bob"], "rating": [1.0, 2.0]}


def test_without_a_name_the_first_installed_library_is_taken() -> None:
    assert isinstance(make_frame({"a": [1]}), pl.DataFrame)


def test_without_any_library_the_error_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(frames, "find_spec", lambda name: None)

    with pytest.raises(
        MissingExtraError,
        match=r"to_frame\(\) needs a data frame library, .*pip install 'unskew\[io\]'",
    ):
        make_frame({"a": [1]})


def test_an_unknown_library_lists_the_valid_ones() -> None:
    with pytest.raises(
        UnknownNameError,
        match=r"unknown data frame library 'panda'; valid names are: polars, pandas, .*mean "
        r"'pandas'\?",
    ):
        make_frame({"a": [1]}, "panda")


def test_a_library_that_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frames, "find_spec", lambda name: None)

    with pytest.raises(
        UsageError,
        match=r"cudf is not installed\. Install it, or name another library: polars, pandas",
    ):
        make_frame({"a": [1]}, "cudf")


def test_columns_that_a_library_cannot_hold_are_refused_with_the_way_out() -> None:
    mixed = np.array(["up", 7], dtype=object)

    with pytest.raises(
        DataError, match=r"(?s)pyarrow cannot hold these columns: .* such as to_frame\('pandas'\)"
    ):
        make_frame({"item_id": mixed}, "pyarrow")
    assert make_frame({"item_id": mixed}, "pandas")["item_id"].tolist() == ["up", 7]


LARGE_IDS = [10**30, 10**30 + 1, 10**30]


@pytest.mark.parametrize("kind", ["frame", "arrays"])
def test_whole_numbers_of_128_bits_are_read(kind: str) -> None:
    """NumPy has no such type, and polars raised an error of its own."""
    rating = pl.Series([1, 2, 3], dtype=pl.Int128)
    frame = pl.DataFrame({"user_id": LARGE_IDS, "item_id": [1, 1, 2], "rating": rating})
    if kind == "frame":
        log = Ratings.from_frame(frame)
    else:
        if tuple(map(int, pl.__version__.split(".")[:2])) < (1, 39):
            pytest.skip("this polars ends the call of `np.asarray` by a panic")
        log = Ratings.from_arrays(frame["user_id"], frame["item_id"], frame["rating"])

    assert log.users.tolist() == LARGE_IDS[:2]
    assert log.user.tolist() == [0, 1, 0]
    assert log.rating.tolist() == [1, 2, 3]


def test_values_that_a_library_cannot_group_are_named() -> None:
    frame = pd.DataFrame({"user_id": [1, 2], "item_id": [1, 2]})
    frame["rating"] = np.array([1, 2], "f2")

    with pytest.raises(ColumnError, match=r"cannot be grouped by 'rating' \(Float16\)"):
        NaiveBayesPropensity().fit_frame(frame, universe=(9, 9), mcar=[1, 2])
