from __future__ import annotations

import gzip
import io
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from unskew import registry
from unskew.errors import BadFileError, ColumnError, MissingExtraError, UsageError
from unskew.io import files
from unskew.io.duckdb_files import choose_reader
from unskew.io.files import read_table, write_table
from unskew.io.sources import FORMATS, FileSource, choose_format
from unskew.io.table import INTEGER, FileTable, PythonColumn, parse_number
from unskew.io.text_files import read_delimited

COLUMNS = {"user": [1, 2, 3], "item": ["up", "heat", "jaws"], "rating": [1.5, 2.0, 5.0]}
FIELD = st.text("019.-+eEinfaNxé_ \t'/", max_size=6)


def written(folder: Path, content: bytes, name: str = "log.csv") -> FileSource:
    path = folder / name
    path.write_bytes(content)
    return FileSource.from_name(str(path))


def as_lists(table: FileTable) -> dict[str, list[Any]]:
    return {name: column.ids().tolist() for name, column in table.columns.items()}


# formats


@pytest.mark.parametrize(
    ("name", "form"),
    [
        ("a.csv", "csv"),
        ("a.CSV", "csv"),
        ("a.tsv.gz", "tsv"),
        ("a.ndjson", "jsonl"),
        ("a.pq", "parquet"),
        ("a.feather", "arrow"),
        ("-", "csv"),
    ],
)
def test_the_extension_tells_the_format(name: str, form: str) -> None:
    assert choose_format(name) == form
    assert choose_format(name, "jsonl") == "jsonl"


def test_an_unknown_extension_is_refused() -> None:
    with pytest.raises(
        UsageError,
        match=r"u\.data: the format is unknown for the extension '\.data'; .*Pass format=",
    ):
        choose_format("u.data")


@pytest.mark.parametrize("name", ["u.data", "log.csv", "log.txt", "log"])
@pytest.mark.parametrize("delimiter", ["\t", ",", ";"])
def test_the_first_lines_tell_the_delimiter(tmp_path: Path, name: str, delimiter: str) -> None:
    rows = [["user", "item", "note"], ["1", "2", '"a b"'], ["3", "4", "c"]]
    content = "\n".join(delimiter.join(row) for row in rows).encode()

    table = read_table(written(tmp_path, content, name))

    assert as_lists(table) == {"user": [1, 3], "item": [2, 4], "note": ["a b", "c"]}


def test_commas_inside_fields_do_not_hide_tabs(tmp_path: Path) -> None:
    table = read_table(written(tmp_path, b"user\titem\tstars\n1\t2\t4,5\n", "log.csv"))

    assert as_lists(table) == {"user": [1], "item": [2], "stars": ["4,5"]}


def test_a_csv_file_with_fewer_other_delimiters_has_commas(tmp_path: Path) -> None:
    assert written(tmp_path, b"a,b;c,d\n1,2;3,4\n").delimiter == ","
    assert written(tmp_path, b"a\n1\n").delimiter == ","


@pytest.mark.parametrize(
    ("name", "content"), [("log.csv", b"1\t2\t4,5\n"), ("u.data", b"a,b,c;d\n1,2,3;4\n")]
)
def test_two_possible_delimiters_are_refused(tmp_path: Path, name: str, content: bytes) -> None:
    with pytest.raises(
        UsageError, match=r"comma or (tab|semicolon) could separate the fields of .* format='tsv'"
    ):
        read_table(written(tmp_path, content, name))


@pytest.mark.parametrize(
    "content", [b'{"a": 1, "b": 2}\n', b"PAR1\0,\n\0,\n", b"\xff,1\n", b"a\n1\n", b""]
)
def test_other_content_needs_a_format(tmp_path: Path, content: bytes) -> None:
    with pytest.raises(UsageError, match=r"the format is unknown for the extension '\.data'"):
        read_table(written(tmp_path, content, "u.data"))


def test_numbers_without_a_header_need_names(tmp_path: Path) -> None:
    with pytest.raises(ColumnError, match=r"no header line, pass columns="):
        read_table(written(tmp_path, b"196\t242\t3\n186\t302\t3\n", "u.data"))


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("ending", ["", ".gz"])
def test_every_format_comes_back_as_it_went(tmp_path: Path, form: str, ending: str) -> None:
    path = str(tmp_path / f"log.{form}{ending}")
    write_table(COLUMNS, path)
    table = read_table(path)

    assert table.names == ("user", "item", "rating")
    assert table.columns["user"].ids().tolist() == [1, 2, 3]
    assert table.columns["item"].ids().tolist() == ["up", "heat", "jaws"]
    assert table.columns["rating"].numbers().tolist() == [1.5, 2.0, 5.0]


def test_an_arrow_stream_is_read_too(tmp_path: Path) -> None:
    import pyarrow as pa

    table = pa.table(COLUMNS)
    with pa.ipc.new_stream(str(tmp_path / "log.arrow"), table.schema) as writer:
        writer.write_table(table)

    assert as_lists(read_table(str(tmp_path / "log.arrow")))["item"] == COLUMNS["item"]


def test_columns_that_no_typed_format_holds_are_written_as_text(tmp_path: Path) -> None:
    write_table(
        {"id": np.array([1, "a", None], dtype=object), "n": [1, 2.5, None]},
        str(tmp_path / "x.parquet"),
    )
    table = read_table(str(tmp_path / "x.parquet"))

    assert table.columns["id"].ids().tolist() == ["1", "a", None]
    assert np.isnan(table.columns["n"].numbers()[2])


def test_a_write_that_fails_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    write_table(COLUMNS, str(path))
    before = path.read_bytes()
    with pytest.raises(BadFileError, match="cannot be written"):
        write_table({"id": [object()]}, str(path))

    assert path.read_bytes() == before


def test_only_text_files_take_column_names() -> None:
    with pytest.raises(UsageError, match="a parquet file has column names of its own"):
        FileSource.from_name("log.parquet", columns=("user",))


# values


def test_ids_are_numbers_only_where_all_are_written_so() -> None:
    def ids(*words: str | None) -> list[Any]:
        return PythonColumn(words, is_text=True).ids().tolist()

    assert ids("1", "20", "-3") == [1, 20, -3]
    assert ids("1", "007") == ["1", "007"]
    assert ids("1", "a") == ["1", "a"]
    assert ids("1", None) == [1, None]
    assert ids("12345678901234567890") == ["12345678901234567890"]


PLAIN = st.text("0123456789+-.eE_ ", min_size=1, max_size=6)


@given(words=st.lists(st.none() | PLAIN | FIELD, max_size=4))
def test_texts_parsed_at_once_are_what_they_are_one_by_one(words: list[str | None]) -> None:
    are_whole = all(word is None or INTEGER.fullmatch(word) for word in words)
    expected = [None if word is None else int(word) for word in words] if are_whole else words
    column = PythonColumn(words, is_text=True)
    assert column.ids().tolist() == expected
    np.testing.assert_array_equal(column.numbers(), [parse_number(word) for word in words])


def test_a_column_of_plain_numbers_is_not_parsed_one_by_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("unskew.io.table.parse_number", None)
    monkeypatch.setattr("unskew.io.table.INTEGER", None)

    decimals, integers = ["1.5", "-2e3", ".5"], ["0", "-7", "12"]
    assert PythonColumn(decimals, is_text=True).numbers().tolist() == [1.5, -2000.0, 0.5]
    assert PythonColumn(integers, is_text=True).ids().tolist() == [0, -7, 12]


@given(words=st.lists(FIELD, max_size=8))
def test_the_fast_columns_equal_the_exact_ones(words: list[str]) -> None:
    import pyarrow as pa

    texts = [word or None for word in words]
    fast = files.ArrowColumn(pa.array(texts, pa.string()), is_text=True)
    slow = PythonColumn(texts, is_text=True)
    assert fast.ids().tolist() == slow.ids().tolist()
    finite = np.isfinite(slow.numbers())
    assert np.isfinite(fast.numbers()).tolist() == finite.tolist()
    assert fast.numbers()[finite].tolist() == slow.numbers()[finite].tolist()


@given(
    rows=st.lists(st.lists(FIELD, min_size=2, max_size=3), max_size=5),
    end=st.sampled_from(["\n", "\r\n"]),
    last=st.booleans(),
)
def test_the_fast_reader_equals_the_exact_one(
    tmp_path_factory: pytest.TempPathFactory, rows: list[list[str]], end: str, last: bool
) -> None:
    text = end.join([",".join(row) for row in [["user", "item"], *rows]]) + end * last
    source = written(tmp_path_factory.mktemp("csv"), text.encode())

    def outcome(read: Any) -> Any:
        try:
            table = read(source)
        except BadFileError as error:
            return str(error)
        return as_lists(table), [table.locate(row) for row in range(len(table))]

    assert outcome(files.read_delimited_fast) == outcome(read_delimited)


# what is refused, and where


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty\\. Check the program that wrote it"),
        (b"\n\n", "is empty"),
        (b"a,b,c\n1,2,3\n4,5\n", "line 3: found 2 fields in '4,5', expected 3: a, b, c"),
        (b"a,b,c\n1,2,3\n4,5,6,7\n", "line 3: found 4 fields"),
        (b'a,b\n1,"x\n2,3\n', "line 2: unexpected end of data"),
        (b"a,b\n1,2\n\xe9,3\n", "line 3: byte 0xe9 is not UTF-8"),
        (b"\xe9,b\n1,2\n", "line 1: byte 0xe9 is not UTF-8"),
        ("a,b\n1,2\n".encode("utf-16"), "is UTF-16"),
        (b"1,2\n3,4\n", "line 1: found '1,2', expected the names of the columns"),
        (b"a,a\n1,2\n", "two columns are called 'a'"),
        (b"a,\n1,2\n", "column 2 has no name"),
    ],
)
def test_a_malformed_file_is_refused_with_its_place(
    tmp_path: Path, content: bytes, message: str
) -> None:
    with pytest.raises((BadFileError, ColumnError), match=message) as caught:
        read_table(written(tmp_path, content))

    assert str(tmp_path / "log.csv") in str(caught.value)


def test_a_byte_order_mark_is_no_part_of_a_name(tmp_path: Path) -> None:
    assert read_table(written(tmp_path, b"\xef\xbb\xbfuser,item\n1,2\n")).names == ("user", "item")


def test_blank_lines_count_as_lines_and_not_as_rows(tmp_path: Path) -> None:
    table = read_table(written(tmp_path, b"user,item\n1,2\n\n\n3,4\n"))

    assert (len(table), table.locate(1)) == (2, "line 5")


def test_names_for_a_file_without_any(tmp_path: Path) -> None:
    (tmp_path / "u.data").write_text("1\t2\t3\n4\t5\t6\n")
    table = read_table(
        FileSource.from_name(str(tmp_path / "u.data"), columns=("user", "item", "rating"))
    )

    assert as_lists(table) == {"user": [1, 4], "item": [2, 5], "rating": [3, 6]}
    assert table.locate(1) == "line 2"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'{"a": 1}\n{"a": }\n', "line 2, character 7: not valid JSON: Expecting value"),
        (b"[1]\n", "line 1: found .1., expected a JSON object"),
        (b'{"a": 1}\n{"a": 1', "line 2"),
        (b"[" * 100_000, "line 1: JSON that cannot be read"),
        (b'{"a": ' + b"1" * 5000 + b"}", "line 1: JSON that cannot be read"),
        (b"", "is empty\\. Check the program that wrote it"),
        (b"{}\n{}\n", "log.jsonl has no columns"),
    ],
)
def test_a_malformed_line_of_json_is_refused_with_its_place(
    tmp_path: Path, content: bytes, message: str
) -> None:
    with pytest.raises(BadFileError, match=message):
        read_table(written(tmp_path, content, "log.jsonl"))


def test_json_objects_may_lack_keys(tmp_path: Path) -> None:
    table = read_table(
        written(tmp_path, b'{"a": 1}\n\n{"b": "x", "a": "2"}\n{"b": null}\n', "log.jsonl")
    )

    assert as_lists(table) == {"a": [1, "2", None], "b": [None, "x", None]}
    assert table.locate(1) == "line 3"
    assert table.columns["a"].numbers()[:2].tolist() == [1.0, 2.0]


@pytest.mark.parametrize("form", ["parquet", "arrow"])
@pytest.mark.parametrize("keep", [0, 3, 60, -10])
def test_a_truncated_typed_file_is_refused(tmp_path: Path, form: str, keep: int) -> None:
    path = tmp_path / f"log.{form}"
    write_table(COLUMNS, str(path))
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(BadFileError, match=f"is not a complete {form} file"):
        read_table(str(path))


def test_a_truncated_gzip_file_is_refused(tmp_path: Path) -> None:
    content = gzip.compress(
        b"user,item\n" + "".join(f"{n},{n * 7919 % 1000}\n" for n in range(1000)).encode()
    )
    for cut in (content[:500], content[:500] + b"\x00" * 20, content[:2]):
        for form in ("csv", "parquet", "arrow"):
            with pytest.raises(BadFileError, match="is not a complete gzip file"):
                read_table(written(tmp_path, cut, f"log.{form}.gz"))


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    (tmp_path / "log.csv").mkdir()
    with pytest.raises(BadFileError, match="is a folder"):
        read_table(str(tmp_path / "log.csv"))


def test_standard_input_is_read_once_and_may_be_gzipped(monkeypatch: pytest.MonkeyPatch) -> None:
    for content in (b"user,item\n1,2\n", gzip.compress(b"user,item\n1,2\n")):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))
        source = FileSource.from_name("-")

        assert (
            as_lists(read_table(source))
            == as_lists(read_table(source))
            == {"user": [1], "item": [2]}
        )
        assert source.label == "standard input"


# without pyarrow


def test_without_pyarrow_text_is_still_read_and_parquet_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (files, registry):
        monkeypatch.setattr(module, "find_spec", lambda _: None)

    assert as_lists(read_table(written(tmp_path, b"user,item\n1,x\n"))) == {
        "user": [1],
        "item": ["x"],
    }
    assert as_lists(read_table(written(tmp_path, b'{"user": 1}', "log.jsonl"))) == {"user": [1]}
    for name in ("log.parquet", "log.arrow"):
        with pytest.raises(MissingExtraError, match=r"pip install 'unskew\[io\]'"):
            read_table(written(tmp_path, b"PAR1", name))
        with pytest.raises(MissingExtraError, match=r"pip install 'unskew\[io\]'"):
            write_table(COLUMNS, str(tmp_path / name))


# readers


def test_duckdb_is_chosen_for_files_that_memory_cannot_hold(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = written(tmp_path, b"user,item,rating\n" + b"1,2,3\n" * 1000)

    assert choose_reader("auto", source) == "memory"
    assert choose_reader("auto", source, memory=10_000) == "duckdb"
    assert choose_reader("memory", source, memory=10_000) == "memory"
    monkeypatch.setenv("UNSKEW_MEMORY_LIMIT", "10KB")
    assert choose_reader("auto", source) == "duckdb"
    monkeypatch.setenv("UNSKEW_MEMORY_LIMIT", "none")
    assert choose_reader("auto", source) == "memory"
    assert choose_reader("duckdb", source) == "duckdb"
    zipped = written(tmp_path, gzip.compress(b"user,item\n"), "log.csv.gz")
    assert choose_reader("auto", zipped, memory=1) == "memory"
