"""Growing files: only new rows, unfinished lines wait, changed files are refused."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from unskew.errors import BadFileError, UsageError
from unskew.io.files import write_table
from unskew.io.growing_files import read_new_rows
from unskew.io.sources import FileSource


def read(path: Path, position: object) -> tuple[list[float], dict[str, object], bool]:
    new = read_new_rows(FileSource.from_name(str(path)), position)  # type: ignore[arg-type]
    values = [] if new.table is None else new.table.columns["x"].numbers()[new.first :].tolist()
    return values, dict(new.position), new.has_unfinished_line


def test_only_new_complete_lines_of_a_text_file_are_read(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_text("x,")
    assert read(path, {}) == ([], {}, True)
    path.write_text("x,y\n1,a\n2,b\n3")
    values, position, is_unfinished = read(path, {})
    assert (values, is_unfinished) == ([1, 2], True)
    path.write_text('x,y\n1,a\n2,b\n33,c\n4,"two\nlines"\n5,"half\n')
    values, position, is_unfinished = read(path, position)
    assert (values, is_unfinished) == ([33, 4], True)
    path.write_text('x,y\n1,a\n2,b\n33,c\n4,"two\nlines"\n5,"half\nwhole"\n')
    values, position, is_unfinished = read(path, position)
    assert (values, is_unfinished) == ([5], False)
    assert read(path, position) == ([], position, False)
    assert position["n_rows"] == 5


@pytest.mark.parametrize("start", ['1,"', '1,a\n2,"', '"', '1,""\n2,"a"\n3,"'])
def test_the_time_for_an_open_quotation_mark_is_linear(start: str, tmp_path: Path) -> None:
    """Of 100,000 lines after it, none is complete; each once was a search through all."""
    path = tmp_path / "log.csv"
    path.write_text("x,y\n" + start + "a,b,c\n" * 100_000)
    n_complete = start.count("\n")

    begin = time.process_time()
    values, _, is_unfinished = read(path, {})

    assert time.process_time() - begin < 2
    assert (values, is_unfinished) == ([1, 2][:n_complete], True)


def test_errors_count_the_lines_of_the_whole_file(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_text("x,y\n1,a\n")
    _, position, _ = read(path, {})
    path.write_text("x,y\n1,a\n2\n")

    with pytest.raises(BadFileError, match=r"log\.csv, line 3: found 1 field"):
        read(path, position)


@pytest.mark.parametrize("extension", ["csv", "csv.gz", "jsonl", "parquet", "arrow"])
def test_every_format_can_grow_but_not_change(extension: str, tmp_path: Path) -> None:
    path = tmp_path / f"log.{extension}"
    write_table({"x": [1.0, 2.0], "y": ["a", "b"]}, str(path))
    values, position, _ = read(path, {})
    assert values == [1, 2]
    write_table({"x": [1.0, 2.0, 3.0], "y": ["a", "b", "c"]}, str(path))
    values, position, _ = read(path, position)
    assert values == [3]
    assert position["n_rows"] == 3
    for x in ([1.0, 2.0, 9.0, 4.0], [1.0]):
        write_table({"x": x, "y": ["a"] * len(x)}, str(path))
        with pytest.raises(BadFileError, match="is not the file that was counted before"):
            read(path, position)


def test_standard_input_is_refused() -> None:
    with pytest.raises(UsageError, match="standard input is a stream and cannot be read again"):
        read_new_rows(FileSource.from_name("-"), {})


def test_new_rows_have_the_delimiter_of_the_whole_file(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_text("user;item\n1;2\n")
    source = FileSource.from_name(str(path))
    position = read_new_rows(source, {}).position
    path.write_text("user;item\n1;2\n3;4\n")

    table = read_new_rows(FileSource.from_name(str(path)), position).table

    assert table is not None
    assert table.columns["item"].ids().tolist() == [4]


@pytest.mark.parametrize("extension", ["csv", "parquet"])
@pytest.mark.parametrize(
    "position",
    [{"n_bytes": -5}, {"n_bytes": 10**30}, {"n_bytes": "x"}, {"n_rows": None}, {"digest": 3}],
    ids=str,
)
def test_a_position_that_is_no_place_in_a_file_is_refused(
    position: dict[str, object], extension: str, tmp_path: Path
) -> None:
    path = tmp_path / f"log.{extension}"
    write_table({"x": [1.0, 2.0]}, str(path))

    with pytest.raises(
        BadFileError, match=r"was read up to \{.*\}, which is not a position in a file"
    ):
        read(path, position)
