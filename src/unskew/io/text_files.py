"""CSV, TSV and JSON lines by the standard library alone: careful, and exact about where something is wrong."""

from __future__ import annotations

import csv
import gzip
import io
import json
import zlib
from array import array
from collections.abc import Iterator, Sequence
from typing import Any

from unskew.errors import BadFileError, ColumnError
from unskew.io.formats import Source
from unskew.io.table import NUMBER, Table, Values, Words, shortened

DELIMITERS = {"csv": ",", "tsv": "\t"}


def read_delimited(source: Source) -> Table:
    """A file of fields with a line of names, or without one where the source has names. Blank lines are left out."""
    names, lines = _named_lines(source)
    columns: list[list[str | None]] = [[] for _ in names]
    numbers = array("Q")
    for number, fields in lines:
        for column, field in zip(columns, fields, strict=True):
            column.append(field or None)
        numbers.append(number)
    return Table(
        source.shown,
        {name: Words(column) for name, column in zip(names, columns, strict=True)},
        lambda row: f"line {numbers[row]}",
    )


def require_whole(source: Source) -> None:
    """Refuse a file of fields that :func:`read_delimited` would refuse, without holding it."""
    for _ in _named_lines(source)[1]:
        pass


def _named_lines(source: Source) -> tuple[tuple[str, ...], Iterator[tuple[int, list[str]]]]:
    """The names of the columns, and lines that have a field for each, by their numbers."""
    lines = _delimited_lines(source)
    names = source.columns or tuple(next((fields for _, fields in lines), ()))
    require_header(source, names)
    return names, (_of_width(source, names, *line) for line in lines)


def _of_width(
    source: Source, names: Sequence[str], number: int, fields: list[str]
) -> tuple[int, list[str]]:
    if len(fields) != len(names):
        found = f"found {len(fields)} field{'s' * (len(fields) != 1)} in {shortened(repr(','.join(fields)))}"
        raise BadFileError(
            f"{source.shown}, line {number}: {found}, expected {len(names)}: {', '.join(names)}."
        )
    return number, fields


def read_json_lines(source: Source) -> Table:
    """A file with a JSON object a line; what an object does not have is missing."""
    columns: dict[str, list[Any]] = {}
    numbers = array("Q")
    for number, line in enumerate(_text_lines(source), start=1):
        if not line.strip():
            continue
        for name, value in _json_object(source, number, line).items():
            columns.setdefault(name, [None] * len(numbers)).append(value)
        numbers.append(number)
        for values in columns.values():
            if len(values) < len(numbers):
                values.append(None)
    require_header(source, tuple(columns))
    return Table(
        source.shown,
        {name: Values(values) for name, values in columns.items()},
        lambda row: f"line {numbers[row]}",
    )


def require_header(source: Source, names: Sequence[str]) -> None:
    """Refuse a file without names of columns, and names that are there twice."""
    if not names:
        raise BadFileError(f"{source.shown} is empty. Check where it came from.")
    repeated = next((name for name in names if names.count(name) > 1), None)
    if repeated is not None and repeated.strip():
        raise ColumnError(f"{source.shown}: two columns are called {repeated!r}; rename one.")
    if not all(name.strip() for name in names):
        raise ColumnError(
            f"{source.shown}: column {[not name.strip() for name in names].index(True) + 1} has no name."
        )
    if all(NUMBER.fullmatch(name.strip()) for name in names):
        raise ColumnError(
            f"{source.shown}, line 1: found {shortened(repr(','.join(names)))}, expected the names of the columns. "
            "Pass columns=[...] where the file has no line of names."
        )


def _delimited_lines(source: Source) -> Iterator[tuple[int, list[str]]]:
    """The lines that are not blank, by their numbers."""
    reader = csv.reader(_text_lines(source), delimiter=DELIMITERS[source.format], strict=True)
    while True:
        began = reader.line_num + 1
        try:
            fields = next(reader, None)
        except csv.Error as error:
            raise BadFileError(
                f"{source.shown}, line {began}: {error}. Is a quotation mark missing?"
            ) from error
        if fields is None:
            return
        if fields:
            yield began, fields


def _text_lines(source: Source) -> Iterator[str]:
    """Lines with their ends, as UTF-8."""
    try:
        with source.open() as raw, io.TextIOWrapper(raw, encoding="utf-8-sig", newline="") as text:
            yield from text
    except UnicodeDecodeError as error:
        raise _wrong_encoding(source) from error
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise source.broken_gzip(error) from error


def _wrong_encoding(source: Source) -> BadFileError:
    content = source.read()
    if content[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return BadFileError(
            f"{source.shown} is UTF-16. Save it as UTF-8, with iconv -f UTF-16 -t UTF-8, for example."
        )
    try:
        content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line, byte = content.count(b"\n", 0, error.start) + 1, content[error.start]
        return BadFileError(
            f"{source.shown}, line {line}: byte 0x{byte:02x} is not UTF-8. "
            "Save the file as UTF-8, with iconv -f LATIN1 -t UTF-8, for example."
        )
    return BadFileError(f"{source.shown} changed while it was read. Try again.")


def _json_object(source: Source, number: int, line: str) -> dict[str, Any]:
    try:
        found = json.loads(line)
    except json.JSONDecodeError as error:
        raise BadFileError(
            f"{source.shown}, line {number}, character {error.pos + 1}: no JSON: {error.msg}."
        ) from error
    except (ValueError, RecursionError) as error:
        raise BadFileError(
            f"{source.shown}, line {number}: no JSON that can be read: {error}."
        ) from error
    if not isinstance(found, dict):
        raise BadFileError(
            f"{source.shown}, line {number}: found {shortened(repr(found))}, expected a JSON object."
        )
    return found
