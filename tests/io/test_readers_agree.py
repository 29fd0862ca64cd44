"""Every reader accepts and refuses the same files, with the same rows."""

from __future__ import annotations

import csv
import gzip
import os
import subprocess
import sys
import threading
import time
import tracemalloc
from collections.abc import Callable
from contextlib import suppress
from decimal import Decimal
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from unskew.data.columns import find_column
from unskew.errors import BadFileError, ColumnError, DataError, UsageError
from unskew.io import duckdb_files
from unskew.io.duckdb_files import open_relation
from unskew.io.files import iterate_tables, read_delimited_fast, read_table, write_table
from unskew.io.log_files import ColumnNames, extract_log
from unskew.io.sources import FileSource
from unskew.io.table import FileTable, require_column_names
from unskew.io.text_files import read_delimited, read_json_lines

Rows: TypeAlias = list[tuple[str | None, str | None, float | None]]
"""The user, the item and the rating of each row; None where one is missing or not a number."""
NAMES = ("user", "item", "rating")


def list_rows(table: FileTable) -> Rows:
    for name in NAMES:
        table.find_column(name, name)
    user, item = (table.columns[name].ids().tolist() for name in NAMES[:2])
    rating = table.columns["rating"].numbers()
    return [
        (as_text(u), as_text(i), float(r) if np.isfinite(r) else None)
        for u, i, r in zip(user, item, rating, strict=True)
    ]


def as_text(value: object) -> str | None:
    is_missing = value is None or value != value
    return None if is_missing else str(int(value) if isinstance(value, float) else value)


def read_exactly(source: FileSource) -> Rows:
    return list_rows(
        read_json_lines(source) if source.format == "jsonl" else read_delimited(source)
    )


def read_with_pyarrow(source: FileSource) -> Rows:
    fast = source.format != "jsonl"
    return list_rows(read_delimited_fast(source) if fast else read_table(source))


def read_with_duckdb(source: FileSource) -> Rows:
    with open_relation(source) as file:
        for name in NAMES:
            find_column(name, name, file.columns)
        rows = file.select(("rating",)).project(", ".join(NAMES)).fetchall()
    return [
        (as_text(u), as_text(i), None if r is None or not np.isfinite(r) else r) for u, i, r in rows
    ]


def read_in_batches(source: FileSource) -> Rows:
    return [row for table in iterate_tables(source, 2) for row in list_rows(table)]


def read_from_pipe(source: FileSource) -> Rows:
    path = Path(f"{source.path}.pipe")
    os.mkfifo(path)
    content = Path(str(source.path)).read_bytes()

    def write() -> None:
        with suppress(BrokenPipeError), path.open("wb") as file:
            file.write(content)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        return list_rows(read_table(FileSource(path, source.format, source.columns)))
    finally:
        writer.join()
        path.unlink()


def read_gzipped(source: FileSource) -> Rows:
    path = Path(f"{source.path}.gz")
    path.write_bytes(gzip.compress(Path(str(source.path)).read_bytes()))
    return list_rows(read_table(FileSource(path, source.format, source.columns)))


READERS: dict[str, Callable[[FileSource], Rows]] = {
    "pyarrow": read_with_pyarrow,
    "duckdb": read_with_duckdb,
    "pipe": read_from_pipe,
    "gzip": read_gzipped,
}


def outcome(read: Callable[[FileSource], Rows], source: FileSource) -> Rows | str:
    """The rows, or that the file is refused; any other error fails the test."""
    try:
        rows = read(source)
    except (DataError, UsageError):
        return "refused"
    return rows


def write_source(folder: Path, content: bytes, form: str, columns: tuple[str, ...]) -> FileSource:
    path = folder / f"log.{form}"
    path.write_bytes(content)
    return FileSource(path, form, columns)  # type: ignore[arg-type]


HEADER = b"user,item,rating\n"
MANY = b"".join(b"%d,%d,3\n" % (number, number) for number in range(3000))
CSV: dict[str, tuple[bytes, tuple[str, ...]]] = {
    "ids that look like comments": (HEADER + b"#5,1,1\n#6,2,2\n7,3,3\n", ()),
    "a first id that looks like a comment": (b"#5,1,1\n#6,2,2\n7,3,3\n", NAMES),
    "a header that looks like a comment": (b"#user,item,rating\n5,1,1\n", ()),
    "a repeated header": (b"user,item,rating,rating\n5,1,1,2\n", ()),
    "the header again": (HEADER + b"5,1,1\nuser,item,rating\n", ()),
    "a junk first line": (b"my log\n" + HEADER + b"5,1,1\n", ()),
    "a junk first line of three fields": (b"a,b,c\n" + HEADER + b"5,1,1\n", ()),
    "a title and a blank line": (b"my log\n\n" + HEADER + b"5,1,1\n", ()),
    "underscores in numbers": (HEADER + b"5,1,1_0\n6,1,1e5_0\n", ()),
    "signs and points": (HEADER + b"5,1,+1\n6,1,.5\n7,1,1.\n8,1,-.5e+1\n", ()),
    "names of numbers": (HEADER + b"5,1,nan\n6,1,inf\n7,1,1e999\n8,1,0x10\n9,1,1d5\n", ()),
    "spaces around numbers": (HEADER + b"5,1, 1 \n6,1,\t2\n7,1,3\x0b\n", ()),
    "other spaces around numbers": (HEADER + "5,1,\u00a01\n6,1,2\u2003\n".encode(), ()),
    "other digits": (HEADER + "5,1,\u0661\n".encode(), ()),
    "missing values": (HEADER + b"5,,1\n,1,2\n6,1,\n", ()),
    "quoted missing values": (HEADER + b'5,"",1\n"",1,2\n6,1,""\n', ()),
    "words for missing values": (HEADER + b"NULL,NA,1\nnull,None,2\nnan,N/A,3\n", ()),
    "quotes": (HEADER + b'"a,b","c""d",1\n"e\nf",g,2\n', ()),
    "a quote that is not closed": (HEADER + b'5,1,1\n"6,1,2\n', ()),
    "a quote in a field": (HEADER + b'5"6,1,1\n7,8,2\n', ()),
    "text after a quote": (HEADER + b'"5"6,1,1\n', ()),
    "single quotes": (HEADER + b"'5',1,1\n'6,1,2\n", ()),
    "backslashes": (HEADER + b"5\\,1,1\n6\\n,1,2\n", ()),
    "too few fields": (HEADER + b"5,1,1\n6,1\n", ()),
    "too many fields": (HEADER + b"5,1,1\n6,1,2,3\n", ()),
    "a field too many at the end of each line": (HEADER + b"5,1,1,\n6,1,2,\n", ()),
    "too few fields, late": (HEADER + MANY + b"6,1\n", ()),
    "too many fields, late": (HEADER + MANY + b"6,1,2,3\n", ()),
    "another type, late": (HEADER + MANY + b"six,1,two\n", ()),
    "blank lines": (b"\n\n" + HEADER + b"\n5,1,1\n\n\n6,1,2\n\n", ()),
    "lines of spaces": (HEADER + b"5,1,1\n  \n6,1,2\n", ()),
    "no line end at the end": (HEADER + b"5,1,1\n6,1,2", ()),
    "line ends of Windows": (HEADER.replace(b"\n", b"\r\n") + b"5,1,1\r\n6,1,2\r\n", ()),
    "line ends of old Macs": (HEADER.replace(b"\n", b"\r") + b"5,1,1\r6,1,2\r", ()),
    "line ends of old Macs, no header, a bad value": (b"1,1,3\r2,2,x\r", NAMES),
    "mixed line ends": (HEADER + b"5,1,1\r\n6,1,2\n7,1,3\r8,1,4\n", ()),
    "a byte order mark": (b"\xef\xbb\xbf" + HEADER + b"5,1,1\n", ()),
    "a byte order mark, no header": (b"\xef\xbb\xbf5,1,1\n6,1,2\n", NAMES),
    "UTF-16": ((HEADER + b"5,1,1\n").decode().encode("utf-16"), ()),
    "Latin-1": (HEADER + b"caf\xe9,1,1\n", ()),
    "Latin-1, late": (HEADER + MANY + b"caf\xe9,1,1\n", ()),
    "NUL": (HEADER + b"5\0,1,1\n6,\0,2\n", ()),
    "zeros before ids": (HEADER + b"007,1,1\n7,1,2\n", ()),
    "large ids": (HEADER + b"99999999999999999999,1,1\n1,1,2\n", ()),
    "dates as ids": (HEADER + b"2020-01-01,1,1\n2020-1-1,1,2\n", ()),
    "true and false": (HEADER + b"true,1,1\nTrue,1,2\n5,1,true\n", ()),
    "no rows": (HEADER, ()),
    "nothing": (b"", ()),
    "a long field": (HEADER + b"x" * 100_000 + b",1,1\n", ()),
    "a field above the limit of the csv module": (HEADER + b"x" * 200_000 + b",1,1\n", ()),
    "a field above the blocks of pyarrow": (HEADER + b"x" * 3_000_000 + b",1,1\n", ()),
    "a quoted long field": (HEADER + b'"' + b"x," * 100_000 + b'",1,1\n', ()),
    "a quote that is not closed, in a long file": (HEADER + b'"6,1,2\n' + MANY * 8, ()),
    "many rows": (HEADER + MANY, ()),
    "many rows, no header": (MANY, NAMES),
}
JSON_LINES: dict[str, bytes] = {
    "numbers": b'{"user": 5, "item": 1, "rating": 1}\n{"user": 6, "item": 1, "rating": 2.5}\n',
    "text": b'{"user": "5", "item": "#1", "rating": "1"}\n',
    "text that is no number": b'{"user": "5", "item": "1", "rating": "1_0"}\n',
    "text and numbers in ratings": b'{"user": 5, "item": 1, "rating": 1}\n'
    b'{"user": 6, "item": 1, "rating": 2}\n{"user": 7, "item": 1, "rating": null}\n',
    "missing keys": b'{"user": 5, "item": 1, "rating": 1}\n{"user": 6, "rating": 2}\n',
    "a key twice": b'{"user": 5, "item": 1, "rating": 1, "rating": 2}\n',
    "dates as ids": b'{"user": "2020-01-01", "item": "2020-1-1", "rating": 1}\n',
    "lists": b'{"user": [5], "item": 1, "rating": 1}\n',
    "a broken line": b'{"user": 5, "item": 1, "rating": 1}\n{"user": 6,\n',
    "no object": b'{"user": 5, "item": 1, "rating": 1}\n[1, 2, 3]\n',
    "two objects on a line": b'{"user": 5, "item": 1, "rating": 1} {"user": 6}\n',
    "blank lines": b'\n{"user": 5, "item": 1, "rating": 1}\n\n{"user": 6, "item": 1, "rating": 2}',
    "half a surrogate pair": b'{"user": "\\ud800", "item": 1, "rating": 1}\n',
    "true and false": b'{"user": true, "item": 1, "rating": true}\n',
    "another type, late": b'{"user": 5, "item": 1, "rating": 1}\n' * 3000
    + b'{"user": 6, "item": 1, "rating": "two"}\n',
    "a key, late": b'{"user": 5, "item": 1}\n' * 30_000 + b'{"user": 6, "item": 1, "rating": 2}\n',
}


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("name", CSV)
def test_readers_of_csv_files_agree(tmp_path: Path, name: str, reader: str) -> None:
    content, columns = CSV[name]
    source = write_source(tmp_path, content, "csv", columns)

    assert outcome(READERS[reader], source) == outcome(read_exactly, source)


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("name", JSON_LINES)
def test_readers_of_json_lines_agree(tmp_path: Path, name: str, reader: str) -> None:
    source = write_source(tmp_path, JSON_LINES[name], "jsonl", ())
    expected = outcome(read_exactly, source)
    if reader == "duckdb" and name == "lists":  # lists are no ids in memory either
        expected = [(None, "1", 1.0)]
    if reader == "duckdb" and name == "another type, late":
        with pytest.raises(DataError, match=r"both numbers and text .*Use reader='memory'"):
            read_with_duckdb(source)
        return

    assert outcome(READERS[reader], source) == expected


SPECIAL = st.sampled_from(
    [b",", b"\n", b"\r\n", b"\r", b'"', b"#", b" ", b"5", b"1_0", b"\\", b"'", b"x", b";", b"\t"]
)


@pytest.mark.parametrize("reader", ["pyarrow", "duckdb", "gzip"])
@given(tail=st.lists(SPECIAL, max_size=12).map(b"".join))
@example(tail=b'5,"5,x"\n')
@settings(
    max_examples=80,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
def test_readers_agree_on_random_text(tmp_path: Path, reader: str, tail: bytes) -> None:
    source = write_source(tmp_path, HEADER + b"1,2,3\n" + tail, "csv", ())

    assert outcome(READERS[reader], source) == outcome(read_exactly, source)


# Parquet

PARQUET: dict[str, dict[str, Any]] = {
    "numbers": {"rating": pa.array([1, 2])},
    "text that is a number": {"rating": pa.array(["1", " 2.5 "])},
    "text that is no number": {"rating": pa.array(["1_0", "x"])},
    "decimals": {"rating": pa.array([Decimal("1.5"), None])},
    "booleans": {"rating": pa.array([True, False])},
    "missing numbers": {"rating": pa.array([1.0, None])},
    "durations": {"rating": pa.array([1, 2], pa.duration("ns"))},
    "dates": {"rating": pa.array([1, 2], pa.date32())},
    "times": {"rating": pa.array([1, 2], pa.timestamp("us"))},
    "bytes": {"rating": pa.array([b"1", b"2"])},
    "lists": {"rating": pa.array([[1], [2]])},
    "missing ids": {"user": pa.array([None, "a"])},
    "NaN as an id": {"user": pa.array([float("nan"), 1.0])},
    "empty ids": {"user": pa.array(["", "a"])},
    "categories": {"user": pa.array(["b", "a"]).dictionary_encode()},
}


@pytest.mark.parametrize("name", PARQUET)
def test_duckdb_reads_parquet_files_as_pyarrow_does(tmp_path: Path, name: str) -> None:
    columns = {"user": pa.array([1, 2]), "item": pa.array([1, 2]), "rating": pa.array([1, 2])}
    path = tmp_path / "log.parquet"
    parquet.write_table(pa.table(columns | PARQUET[name]), path)
    source = FileSource(path, "parquet")

    assert outcome(read_with_duckdb, source) == list_rows(read_table(source))


NAMES_WITH_A_MEANING = (
    "rating=5/log",
    "user=7/log",
    "timestamp=1/item=2/log",
    "log[12]",
    "log*",
    "log?",
    "'; DROP TABLE x; --",
)
"""Names in which DuckDB may see columns of a data set in folders, patterns or SQL."""


@pytest.mark.parametrize("form", ["csv", "tsv", "jsonl", "parquet"])
@pytest.mark.parametrize("name", NAMES_WITH_A_MEANING)
def test_the_name_of_a_file_changes_nothing(tmp_path: Path, name: str, form: str) -> None:
    """A folder that was named rating=5 once made every rating 5."""
    columns = {"user": [1, 2], "item": [3, 4], "rating": [1.0, 2.0]}
    write_table({key: [9, 9] for key in columns}, str(tmp_path / f"log1.{form}"))  # no match
    path = tmp_path / f"{name}.{form}"
    path.parent.mkdir(parents=True, exist_ok=True)
    write_table({key: np.array(column) for key, column in columns.items()}, str(path))
    source = FileSource.from_name(str(path))

    with open_relation(source) as file:
        assert file.columns == list(columns)
    assert read_with_duckdb(source) == list_rows(read_table(source))
    assert read_with_duckdb(source) == [("1", "3", 1.0), ("2", "4", 2.0)]


def test_two_columns_of_one_name_are_refused_in_parquet_files(tmp_path: Path) -> None:
    path = tmp_path / "log.parquet"
    arrays = [pa.array([1])] * 4
    parquet.write_table(pa.table(arrays, ["user", "item", "rating", "rating"]), path)
    source = FileSource(path, "parquet")

    for read in (read_with_duckdb, read_table):
        with pytest.raises(ColumnError, match="two columns are called 'rating'"):
            read(source)


@pytest.mark.parametrize("read", [read_table, read_with_duckdb])
def test_a_parquet_file_that_is_cut_is_refused(
    tmp_path: Path, read: Callable[[FileSource], Any]
) -> None:
    path = tmp_path / "log.parquet"
    parquet.write_table(pa.table({name: list(range(1000)) for name in NAMES}), path)
    path.write_bytes(path.read_bytes()[:-100])

    with pytest.raises(BadFileError, match=r"log\.parquet"):
        read(FileSource(path, "parquet"))


@pytest.mark.parametrize("read", [read_table, read_with_duckdb, read_in_batches])
@pytest.mark.parametrize("damaged", [b"\xf0zzz", b"z\xffzz"])
def test_a_column_name_that_is_not_utf8_is_refused(
    tmp_path: Path, read: Callable[[FileSource], Any], damaged: bytes
) -> None:
    path = tmp_path / "log.parquet"
    parquet.write_table(pa.table({name: [1, 2] for name in (*NAMES, "zzzz")}), path)
    path.write_bytes(path.read_bytes().replace(b"zzzz", damaged))

    with pytest.raises(BadFileError, match=r"log\.parquet"):
        read(FileSource(path, "parquet"))


# Size and time


def test_the_time_for_a_header_is_linear_in_the_columns() -> None:
    names = [f"c{number}" for number in range(100_000)]
    started = time.perf_counter()
    require_column_names(FileSource(None), names)

    assert time.perf_counter() - started < 10  # a quadratic check took more than 100 s


def test_a_wide_file_is_read(tmp_path: Path) -> None:
    columns = [f"c{number}" for number in range(5000)]
    content = ",".join(columns) + "\n" + ",".join("1" for _ in columns) + "\n"
    source = write_source(tmp_path, content.encode(), "csv", ())

    assert read_delimited(source).names == read_delimited_fast(source).names == tuple(columns)


@pytest.mark.parametrize("form", ["csv", "jsonl", "parquet"])
def test_duckdb_refuses_more_columns_than_it_can_read_in_time(
    tmp_path: Path, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(duckdb_files, "MAX_COLUMNS", 50)
    write_table({f"c{number}": [1] for number in range(51)}, str(tmp_path / f"log.{form}"))

    with pytest.raises(BadFileError, match=r"51 columns; .* up to 50.* Use reader='memory'"):
        read_with_duckdb(FileSource.from_name(str(tmp_path / f"log.{form}")))


@pytest.mark.parametrize("form", ["csv", "jsonl"])
def test_the_name_of_standard_input_is_read_once(tmp_path: Path, form: str) -> None:
    line = '{"user": 5, "item": 1, "rating": 1}\n' if form == "jsonl" else "5,1,1\n"
    source = f"FileSource(Path('/dev/stdin'), {form!r}, {() if form == 'jsonl' else NAMES})"
    program = (
        "from pathlib import Path; from unskew.io.files import read_table\n"
        "from unskew.io.sources import FileSource\n"
        f"print(len(read_table({source})))"
    )
    said = subprocess.run(
        [sys.executable, "-c", program], input=line * 4200, capture_output=True, text=True
    )

    assert said.stdout == "4200\n", said.stderr


def test_json_objects_without_common_keys_are_refused(tmp_path: Path) -> None:
    lines = "".join(f'{{"k{number}": 1}}\n' for number in range(8000))
    source = write_source(tmp_path, lines.encode(), "jsonl", ())

    for read in (read_exactly, read_with_duckdb):
        with pytest.raises(BadFileError, match="8,000 different keys, and an object has 1 of them"):
            read(source)


def test_the_limit_of_the_csv_module_stays_that_of_the_process(tmp_path: Path) -> None:
    limit = csv.field_size_limit()

    read_exactly(write_source(tmp_path, HEADER + b"x" * 200_000 + b",1,1\n", "csv", ()))

    assert csv.field_size_limit() == limit


@pytest.mark.parametrize("form", ["csv", "jsonl", "parquet"])
def test_one_long_id_takes_the_room_of_one(tmp_path: Path, form: str) -> None:
    """Each id once had the room of the longest: 24 kilobytes took 4 gigabytes."""
    users = ["x" * 100_000, *(f"u{number}" for number in range(999))]
    columns = {"user_id": users, "item_id": ["a", "b"] * 500, "rating": [1.0, 2.0] * 500}
    path = tmp_path / f"log.{form}"
    write_table(columns, str(path))
    tracemalloc.start()

    log = extract_log(read_table(str(path)), ColumnNames()).ratings

    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 50e6 < 4 * 100_000 * 1000
    assert set(log.users.tolist()) == set(users)
    assert log.users[log.user].tolist() == users


def test_a_nul_character_is_refused(tmp_path: Path) -> None:
    source = write_source(tmp_path, HEADER + b"5,1,1\n6,\0,2\n", "csv", ())

    with pytest.raises(BadFileError, match=r"log\.csv, line 3: a NUL character"):
        read_table(source)


def test_a_key_that_occurs_twice_is_named(tmp_path: Path) -> None:
    source = write_source(tmp_path, JSON_LINES["a key twice"], "jsonl", ())

    with pytest.raises(BadFileError, match=r"line 1: .*the key 'rating' occurs twice"):
        read_exactly(source)


# Files that become shorter while they are read


@pytest.mark.parametrize("read", [read_table, read_with_duckdb])
@pytest.mark.parametrize("form", ["csv", "jsonl"])
def test_a_file_that_becomes_shorter_is_refused(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    read: Callable[[FileSource], Any],
    form: str,
) -> None:
    line = {"csv": b"5,1,1\n", "jsonl": b'{"user": 5, "item": 1, "rating": 1}\n'}[form]
    source = write_source(tmp_path, (HEADER if form == "csv" else b"") + line * 1000, form, ())
    whole = FileSource.open

    def cut_and_open(self: FileSource) -> Any:
        os.truncate(str(self.path), 17 + 10 * len(line) if form == "csv" else 10 * len(line))
        return whole(self)

    monkeypatch.setattr(FileSource, "open", cut_and_open)
    with pytest.raises(BadFileError, match=r"became shorter while it was read: [\d,]+ bytes, then"):
        read(source)


def test_no_process_dies_if_a_file_is_cut(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_bytes(HEADER + MANY * 300)
    size = path.stat().st_size
    program = f"from unskew.io.files import read_table\nread_table({str(path)!r})"
    for delay in (0.3, 0.5, 0.7):
        os.truncate(path, size)
        reader = subprocess.Popen(
            [sys.executable, "-c", program], stderr=subprocess.PIPE, text=True
        )
        time.sleep(delay)
        os.truncate(path, 100)
        said = reader.communicate(timeout=60)[1]

        assert reader.returncode in (0, 1), said
        assert reader.returncode == 0 or "unskew.errors" in said
