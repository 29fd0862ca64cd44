from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from unskew.datasets.tables import Table, read_lines
from unskew.errors import DatasetFormatError

Write = Callable[..., Path]


def table(write: Write, text: str, **options: object) -> Table:
    return Table.read(write({"f.txt": text}) / "f.txt", **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
@pytest.mark.parametrize("end", ["", "\n", "\n\n", "\n \n"])
def test_lines_are_the_same_with_any_line_end_and_any_file_end(
    write: Write, newline: str, end: str
) -> None:
    assert read_lines(write({"f.txt": f"1 2\n3 4{end}"}, newline=newline) / "f.txt") == [
        "1 2",
        "3 4",
    ]


def test_latin_1_control_characters_do_not_end_a_line(write: Write) -> None:
    assert read_lines(write({"f.txt": "a\x85b\x1cc\nd"}) / "f.txt") == ["a\x85b\x1cc", "d"]


def test_the_byte_order_mark_of_a_spreadsheet_is_dropped(tmp_path: Path) -> None:
    file = tmp_path / "f.csv"
    file.write_text("1,2\n", encoding="utf-8-sig")

    assert Table.read(file, delimiter=",").numbers().tolist() == [[1, 2]]


@given(
    values=arrays(
        np.float64,
        array_shapes(min_dims=2, max_dims=2),
        elements=st.floats(allow_nan=False, allow_infinity=False),
    ),
    delimiter=st.sampled_from([" ", "\t", ",", "|"]),
)
def test_numbers_come_back_as_python_reads_them(
    values: npt.NDArray[np.float64], delimiter: str
) -> None:
    lines = [delimiter.join(map(repr, row)) for row in values.tolist()]

    np.testing.assert_array_equal(
        Table(Path("f.txt"), lines, delimiter, values.shape[1]).numbers(), values
    )


def test_numbers_may_be_spaced_and_signed_and_have_exponents(write: Write) -> None:
    numbers = table(write, " 1  -2.5 \n+3\t4e-2\n").numbers()

    np.testing.assert_array_equal(numbers, [[1, -2.5], [3, 0.04]])


def test_a_table_of_one_line_keeps_two_dimensions(write: Write) -> None:
    assert table(write, "1|2|3", delimiter="|").numbers().shape == (1, 3)


@pytest.mark.parametrize("text", ["", "\n", " \n\n"])
def test_an_empty_file_is_named(write: Write, text: str) -> None:
    with pytest.raises(DatasetFormatError, match=r"f\.txt is empty"):
        table(write, text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1 2\n3\n", r"f\.txt, line 2: found 1 fields in '3', expected 2\."),
        ("1 2\n\n3 4\n", r"f\.txt, line 2: found 0 fields in '', expected 2\."),
        ("1 2\n3 4\n5 6 7\n", r"f\.txt, line 3: found 3 fields in '5 6 7', expected 2\."),
        ("1 2\n3 x\n", r"f\.txt, line 2, field 2: found 'x', expected a number\."),
        ("1 2\n0x1 2\n", r"f\.txt, line 2, field 1: found '0x1', expected a number\."),
        ("1 2\n3 nan\n", r"f\.txt, line 2, field 2: found 'nan', expected a finite number\."),
        ("1 -inf\n3 4\n", r"f\.txt, line 1, field 2: found '-inf', expected a finite number\."),
    ],
)
def test_what_is_not_a_table_of_numbers_is_located(write: Write, text: str, message: str) -> None:
    with pytest.raises(DatasetFormatError, match=message):
        table(write, text).numbers()


def test_a_long_line_is_shortened_in_the_message(write: Write) -> None:
    with pytest.raises(DatasetFormatError, match=r"found 1 fields in '1{57}\.\.\.', expected 2"):
        table(write, "1" * 100, n_fields=2)


def test_a_wrong_number_of_lines_is_an_error(write: Write) -> None:
    with pytest.raises(DatasetFormatError, match=r"f\.txt: found 2 lines, expected 3"):
        table(write, "1\n2\n", n_lines=3)


@pytest.mark.parametrize(("word", "found"), [("2.5", "2.5"), ("1e17", "1e17"), ("two", "two")])
def test_integers_must_be_whole_and_exact(write: Write, word: str, found: str) -> None:
    with pytest.raises(
        DatasetFormatError, match=rf"line 2, field 2: found '{found}', expected a whole number"
    ):
        table(write, f"a|1\nb|{word}\n", delimiter="|").integer_words(1)


def test_integers_may_be_written_with_a_point(write: Write) -> None:
    words = table(write, "a|1\nb|2.0\n", delimiter="|").integer_words(1)

    assert words.dtype == np.int64
    assert words.tolist() == [1, 2]
