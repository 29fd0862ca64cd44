"""The exact reader of text files: CSV, TSV, JSON lines and the files of public data sets.

It uses the standard library alone, and its errors name the line. The faster reader of
``arrow_files`` gives the same tables, and leaves files that it cannot read to this one.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import zlib
from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any

from unskew.errors import BadFileError, ColumnError
from unskew.io.sources import FileSource
from unskew.io.table import NUMBER, FileTable, PythonColumn, shorten

BLOCK_ROWS = 64
"""Rows that are transposed at once; larger blocks are slower, due to garbage collection."""
DELIMITERS = {"csv": ",", "tsv": "\t"}
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
UTF_16_STARTS = (b"\xff\xfe", b"\xfe\xff")


@dataclass(frozen=True, slots=True)
class TextDialect:
    """How the fields of a text file are written."""

    delimiter: str | None = ","
    """None for any run of white space."""
    encoding: str = "utf-8"
    has_header: bool = True
    """Whether the first line has the names of the columns; names of the source replace it."""
    has_quotes: bool = True
    skips_blank_lines: bool = True
    """Whether blank lines are allowed anywhere, or only at the end."""


def read_delimited(source: FileSource, dialect: TextDialect | None = None) -> FileTable:
    """A table of fields; the default dialect is that of the source's format."""
    names, rows = _open_rows(source, dialect or TextDialect(DELIMITERS[source.format]))
    columns: list[list[str | None]] = [[] for _ in names]
    line_numbers = array("Q")
    while block := list(islice(rows, BLOCK_ROWS)):
        line_numbers.extend(line_number for line_number, _ in block)
        fields_by_column = zip(*(fields for _, fields in block), strict=True)
        for column, fields in zip(columns, fields_by_column, strict=True):
            column.extend(fields if all(fields) else [field or None for field in fields])
    return _make_table(source, dict(zip(names, columns, strict=True)), line_numbers, is_text=True)


def check_delimited(source: FileSource) -> None:
    """Raise the errors of :func:`read_delimited` without keeping the table in memory."""
    for _ in _open_rows(source, TextDialect(DELIMITERS[source.format]))[1]:
        pass


def read_json_lines(source: FileSource) -> FileTable:
    """A table from one JSON object a line; keys that an object lacks are missing values."""
    columns: dict[str, list[Any]] = {}
    line_numbers = array("Q")
    for line_number, line in enumerate(_read_lines(source, "utf-8"), start=1):
        if not line.strip():
            continue
        for name, value in _parse_json_object(source, line_number, line).items():
            columns.setdefault(name, [None] * len(line_numbers)).append(value)
        line_numbers.append(line_number)
        for values in columns.values():
            if len(values) < len(line_numbers):
                values.append(None)
    require_column_names(source, tuple(columns))
    return _make_table(source, columns, line_numbers, is_text=False)


def require_column_names(source: FileSource, names: Sequence[str]) -> None:
    """Raise an error unless there are names, each is unique, and one is not a number."""
    if not names:
        raise BadFileError(f"{source.label} is empty.", remedy="Check where it came from.")
    duplicate = next((name for name in names if names.count(name) > 1), None)
    if duplicate is not None and duplicate.strip():
        raise ColumnError(
            f"{source.label}: two columns are called {duplicate!r}.", remedy="Rename one."
        )
    if not all(name.strip() for name in names):
        number = [bool(name.strip()) for name in names].index(False) + 1
        raise ColumnError(f"{source.label}: column {number} has no name.", remedy="Name it.")
    if not source.columns and all(NUMBER.fullmatch(name.strip()) for name in names):
        raise ColumnError(
            f"{source.label}, line 1: found {shorten(repr(','.join(names)))}, "
            "expected the names of the columns.",
            where="line 1",
            remedy="If the file has no header line, pass `columns=[...]`.",
        )


def _make_table(
    source: FileSource, columns: Mapping[str, list[Any]], line_numbers: array[int], *, is_text: bool
) -> FileTable:
    return FileTable(
        source.label,
        {name: PythonColumn(values, is_text) for name, values in columns.items()},
        lambda row: f"line {line_numbers[row]}",
    )


def _open_rows(
    source: FileSource, dialect: TextDialect
) -> tuple[tuple[str, ...], Iterator[tuple[int, list[str]]]]:
    """Names of the columns, and for each line its number and one field for each column."""
    rows = _split_quoted(source, dialect) if dialect.has_quotes else _split_plain(source, dialect)
    names = source.columns
    if dialect.has_header:
        names = names or tuple(next((fields for _, fields in rows), ()))
        require_column_names(source, names)
        return names, _check_widths(source, names, rows)
    first = next(rows, None)
    if first is None:
        raise BadFileError(f"{source.label} is empty.", remedy="Check where it came from.")
    names = names or tuple(str(number + 1) for number in range(len(first[1])))
    return names, _check_widths(source, names, chain([first], rows))


def _check_widths(
    source: FileSource, names: Sequence[str], rows: Iterator[tuple[int, list[str]]]
) -> Iterator[tuple[int, list[str]]]:
    for line_number, fields in rows:
        if len(fields) != len(names):
            count = f"{len(fields)} field{'s' * (len(fields) != 1)}"
            shown_names = f": {', '.join(names)}" if len(names) <= 10 else ""
            raise BadFileError(
                f"{source.label}, line {line_number}: found {count} "
                f"in {shorten(repr(','.join(fields)))}, expected {len(names)}{shown_names}.",
                where=f"line {line_number}",
                remedy="Correct the file.",
            )
        yield line_number, fields


def _split_quoted(source: FileSource, dialect: TextDialect) -> Iterator[tuple[int, list[str]]]:
    """Number and fields of each line that is not blank; a quoted field may span lines."""
    lines = _read_lines(source, dialect.encoding)
    reader = csv.reader(lines, delimiter=dialect.delimiter or " ", strict=True)
    while True:
        line_number = reader.line_num + 1
        try:
            fields = next(reader, None)
        except csv.Error as error:
            raise BadFileError(
                f"{source.label}, line {line_number}: {error}.",
                where=f"line {line_number}",
                remedy="Is a quotation mark missing?",
            ) from error
        if fields is None:
            return
        if fields:
            yield line_number, fields


def _split_plain(source: FileSource, dialect: TextDialect) -> Iterator[tuple[int, list[str]]]:
    """Number and fields of each line; quotation marks are part of the fields."""
    blank_lines = []
    for line_number, line in enumerate(_read_lines(source, dialect.encoding), start=1):
        if not line.strip():
            blank_lines.append(line_number)
            continue
        if blank_lines and not dialect.skips_blank_lines:
            yield blank_lines[0], []
        yield line_number, line.rstrip("\r\n").split(dialect.delimiter)


def _read_lines(source: FileSource, encoding: str) -> Iterator[str]:
    """Lines with their ends; a byte order mark is skipped."""
    try:
        with source.open() as raw:
            if raw.read(len(BYTE_ORDER_MARK)) != BYTE_ORDER_MARK:
                raw.seek(0)
            with io.TextIOWrapper(raw, encoding=encoding, newline="") as text:
                yield from text
    except UnicodeDecodeError as error:
        raise _encoding_error(source) from error
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise source.gzip_error(error) from error


def _encoding_error(source: FileSource) -> BadFileError:
    content = source.read()
    if content.startswith(UTF_16_STARTS):
        return BadFileError(
            f"{source.label} is UTF-16.",
            remedy="Save it as UTF-8, with iconv -f UTF-16 -t UTF-8, for example.",
        )
    try:
        content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line_number, byte = content.count(b"\n", 0, error.start) + 1, content[error.start]
        return BadFileError(
            f"{source.label}, line {line_number}: byte 0x{byte:02x} is not UTF-8.",
            where=f"line {line_number}",
            remedy="Save the file as UTF-8, with iconv -f LATIN1 -t UTF-8, for example.",
        )
    return BadFileError(f"{source.label} changed while it was read.", remedy="Try again.")


def _parse_json_object(source: FileSource, line_number: int, line: str) -> dict[str, Any]:
    where = f"line {line_number}"
    try:
        parsed = json.loads(line)
    except json.JSONDecodeError as error:
        raise BadFileError(
            f"{source.label}, {where}, character {error.pos + 1}: not valid JSON: {error.msg}.",
            where=where,
        ) from error
    except (ValueError, RecursionError) as error:
        raise BadFileError(
            f"{source.label}, {where}: JSON that cannot be read: {error}.", where=where
        ) from error
    if not isinstance(parsed, dict):
        raise BadFileError(
            f"{source.label}, {where}: found {shorten(repr(parsed))}, expected a JSON object.",
            where=where,
        )
    return parsed
