from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from unskew.data.ratings import Ratings
from unskew.datasets.reading import DatasetTable, find_overlap, read_dataset_table, sha256_of
from unskew.errors import DatasetFormatError

Write = Callable[..., Path]


def table(write: Write, text: str, *columns: str, **options: object) -> DatasetTable:
    return read_dataset_table(write({"f.txt": text}) / "f.txt", columns, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
@pytest.mark.parametrize("end", ["", "\n", "\n\n", "\n \n"])
def test_rows_are_the_same_with_any_line_end_and_any_file_end(
    write: Write, newline: str, end: str
) -> None:
    file = write({"f.txt": f"1 2\n3 4{end}"}, newline=newline) / "f.txt"

    assert read_dataset_table(file).matrix().tolist() == [[1, 2], [3, 4]]


def test_latin_1_control_characters_do_not_end_a_line(write: Write) -> None:
    text = table(write, "a\x85b\x1cc\nd", "text", delimiter="|").text("text")

    assert text.tolist() == ["a\x85b\x1cc", "d"]


def test_the_byte_order_mark_of_a_spreadsheet_is_dropped(tmp_path: Path) -> None:
    file = tmp_path / "f.csv"
    file.write_text("1,2\n", encoding="utf-8-sig")

    assert read_dataset_table(file, delimiter=",").matrix().tolist() == [[1, 2]]


@given(
    values=arrays(
        np.float64,
        array_shapes(min_dims=2, max_dims=2),
        elements=st.floats(allow_nan=False, allow_infinity=False),
    ),
    delimiter=st.sampled_from([" ", "\t", ",", "|"]),
)
def test_numbers_come_back_as_python_reads_them(
    tmp_path_factory: pytest.TempPathFactory, values: npt.NDArray[np.float64], delimiter: str
) -> None:
    file = tmp_path_factory.mktemp("numbers") / "f.txt"
    file.write_text("\n".join(delimiter.join(map(repr, row)) for row in values.tolist()))

    read = read_dataset_table(file, delimiter=delimiter).matrix()

    np.testing.assert_array_equal(read, values)


def test_numbers_may_be_spaced_and_signed_and_have_exponents(write: Write) -> None:
    numbers = table(write, " 1  -2.5 \n+3\t4e-2\n").matrix()

    np.testing.assert_array_equal(numbers, [[1, -2.5], [3, 0.04]])


def test_quotation_marks_are_part_of_the_text(write: Write) -> None:
    titles = table(write, '1|"Up" and "Down\n', "item", "title", delimiter="|").text("title")

    assert titles.tolist() == ['"Up" and "Down']


def test_a_table_of_one_line_keeps_two_dimensions(write: Write) -> None:
    assert table(write, "1|2|3", delimiter="|").matrix().shape == (1, 3)


@pytest.mark.parametrize("text", ["", "\n", " \n\n"])
def test_an_empty_file_is_named(write: Write, text: str) -> None:
    with pytest.raises(DatasetFormatError, match=r"f\.txt is empty\. Download the file again"):
        table(write, text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1 2\n3\n", r"f\.txt, line 2: found 1 field in '3', expected 2"),
        ("1 2\n\n3 4\n", r"f\.txt, line 2: found 0 fields in '', expected 2"),
        ("1 2\n3 4\n5 6 7\n", r"f\.txt, line 3: found 3 fields in '5,6,7', expected 2"),
        ("1 2\n3 x\n", r"f\.txt, line 2, column '2': found 'x', expected a number\."),
        ("1 2\n0x1 2\n", r"f\.txt, line 2, column '1': found '0x1', expected a number\."),
        ("1 2\n3 nan\n", r"f\.txt, line 2, column '2': found 'nan', expected a number\."),
        ("1 -inf\n3 4\n", r"f\.txt, line 1, column '2': found '-inf', expected a number\."),
    ],
)
def test_the_place_of_a_bad_number_is_named(write: Write, text: str, message: str) -> None:
    with pytest.raises(DatasetFormatError, match=f"{message}.* Download the file again"):
        table(write, text).matrix()


def test_a_long_line_is_shortened_in_the_message(write: Write) -> None:
    with pytest.raises(DatasetFormatError, match=r"found 1 field in '1{56}\.\.\., expected 2"):
        table(write, "1" * 100, "a", "b")


def test_a_wrong_number_of_lines_is_an_error(write: Write) -> None:
    with pytest.raises(DatasetFormatError, match=r"f\.txt: found 2 lines, expected 3"):
        table(write, "1\n2\n", n_rows=3)


@pytest.mark.parametrize("text", ["2.5", "1e17", "two", ""])
def test_integers_must_be_whole_and_exact(write: Write, text: str) -> None:
    found = repr(text) if text else "nothing"
    with pytest.raises(
        DatasetFormatError, match=f"line 2, column 'n': found {found}, expected a whole number"
    ):
        table(write, f"a|1\nb|{text}\n", "name", "n", delimiter="|").integers("n")


def test_integers_may_be_written_with_a_point(write: Write) -> None:
    integers = table(write, "a|1\nb|2.0\n", "name", "n", delimiter="|").integers("n")

    assert integers.dtype == np.int64
    assert integers.tolist() == [1, 2]


def test_the_overlap_of_two_logs() -> None:
    log = Ratings.from_dense([[1, 0, 2], [3, 4, 0]])
    other = Ratings.from_dense([[0, 1, 2], [0, 4, 0]])

    assert find_overlap(log, other).tolist() == [False, True, False, True]


# Digests


def test_the_digest_does_not_depend_on_how_numbers_are_stored() -> None:
    as_integers = sha256_of(np.array([[1, 0], [0, 1]]))

    assert as_integers == sha256_of(np.array([[1.0, 0.0], [0.0, 1.0]], order="F"))
    assert as_integers == sha256_of(np.array([[True, False], [False, True]]))
    assert as_integers == sha256_of(np.array([[1, 0], [0, 1]], dtype=">i2"))


def test_the_digest_sees_values_shapes_words_and_where_they_end() -> None:
    parts: list[tuple[npt.NDArray[np.float64] | tuple[str, ...], ...]] = [
        (np.array([1.0, 2.0]),),
        (np.array([1.0, 2.5]),),
        (np.array([[1.0, 2.0]]),),
        (np.array([1.0]), np.array([2.0])),
        (("a", "bc"),),
        (("ab", "c"),),
    ]

    assert len({sha256_of(*part) for part in parts}) == len(parts)


def test_the_digest_of_a_log_is_of_its_ids_and_ratings() -> None:
    log = Ratings.from_arrays([3, 1], [7, 7], [5, 2])
    wider = Ratings.from_arrays([3, 1], [7, 7], [5, 2], users=[1, 2, 3], items=[7, 8])
    other = Ratings.from_arrays([3, 2], [7, 7], [5, 2])

    assert sha256_of(log) == sha256_of(wider)
    assert sha256_of(log) != sha256_of(other)
