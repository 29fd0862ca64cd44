"""The exact reader of text files: CSV, TSV, JSON lines and the files of public data sets.

It uses the standard library alone, and its errors name the line. The faster reader of ``files``
gives the same tables, and leaves files that it cannot read to this one.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import zlib
from array import array
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import Any, TypeAlias

from unskew.data.result import replace_non_finite
from unskew.errors import BadFileError
from unskew.io.sources import FileSource
from unskew.io.table import FileTable, PythonColumn, require_column_names, shorten

CR_LF = "\r\n"
BLOCK_ROWS = 64
"""Rows that are transposed at once; larger blocks are slower, due to garbage collection."""
LONGEST_FIELD = (1 << 31) - 1
"""The csv module refuses fields above 131,072 characters, which the other readers take."""
NUL = "\0"
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
UTF_16_STARTS = (b"\xff\xfe", b"\xfe\xff")

MAX_EMPTY_CELLS = 10_000_000
MAX_CELLS_PER_VALUE = 100
"""JSON objects with fewer common keys than this would fill a table of missing values."""

NumberedRows: TypeAlias = Iterator[tuple[int, list[str]]]
"""The number of each line, from 1 on, and its fields."""


def read_delimited(source: FileSource) -> FileTable:
    """The table in a CSV or TSV file, whose fields may be quoted; blank lines are skipped."""
    return _read_rows(source, *open_rows(source))


def open_rows(source: FileSource) -> tuple[tuple[str, ...], NumberedRows]:
    """Names of the columns of a CSV or TSV file, and its rows with one field for each."""
    rows = _split_quoted(source)
    names = source.columns or tuple(next((fields for _, fields in rows), ()))
    require_column_names(source, names)
    return names, _check_widths(source, names, rows)


def read_plain(source: FileSource, delimiter: str | None) -> FileTable:
    """The table in a Latin-1 file without a header line and without quoted fields.

    ``delimiter=None`` is any run of white space. Blank lines are allowed at the end only. Without
    names, columns are called 1, 2, 3, ...
    """
    rows = _split_plain(source, delimiter)
    first = next(rows, None)
    if first is None:
        raise BadFileError(f"{source.label} is empty.", remedy="Check the program that wrote it.")
    names = source.columns or tuple(str(number + 1) for number in range(len(first[1])))
    return _read_rows(source, names, _check_widths(source, names, chain([first], rows)))


def read_json_lines(source: FileSource) -> FileTable:
    """A table from one JSON object per line; keys that an object lacks are missing values."""
    columns: dict[str, list[Any]] = {}
    line_numbers = array("Q")
    n_values = 0
    for line_number, parsed in iterate_json_objects(source):
        n_rows = len(line_numbers)
        for name, value in parsed.items():
            values = columns.setdefault(name, [])
            if len(values) < n_rows:
                values.extend([None] * (n_rows - len(values)))
            values.append(value)
        n_values += len(parsed)
        line_numbers.append(line_number)
    require_json_columns(source, columns, len(line_numbers), n_values)
    for values in columns.values():
        values.extend([None] * (len(line_numbers) - len(values)))
    return _make_table(source, columns, line_numbers, is_text=False)


def iterate_json_objects(source: FileSource) -> Iterator[tuple[int, dict[str, Any]]]:
    """The number of each line that is not blank, and its object."""
    for line_number, line in enumerate(_read_lines(source, "utf-8"), start=1):
        if line.strip():
            yield line_number, _parse_json_object(source, line_number, line)


def require_json_columns(
    source: FileSource, names: Collection[str], n_rows: int, n_values: int
) -> None:
    """Raise an error unless the objects have keys in common that can be columns of a table."""
    if n_rows and not names:
        raise BadFileError(
            f"{source.label} has no columns.", remedy="Check the program that wrote it."
        )
    if len(names) * n_rows > MAX_EMPTY_CELLS + MAX_CELLS_PER_VALUE * n_values:
        raise BadFileError(
            f"{source.label} has {len(names):,} different keys, and an object has "
            f"{n_values / n_rows:.3g} of them on average.",
            where=source.label,
            remedy="Write the same keys, with the columns as keys, in each object.",
        )
    require_column_names(source, tuple(names))


def encode_delimited(
    names: Iterable[str], rows: Iterable[tuple[Any, ...]], delimiter: str
) -> bytes:
    """The content of a CSV or TSV file, with lines that end in a line feed."""
    lines = _Lines()
    writer = csv.writer(lines, delimiter=delimiter, lineterminator=CR_LF)
    writer.writerow(names)
    writer.writerows(rows)
    return "".join(lines.texts).encode()


class _Lines:
    """Collects lines that end in CR LF, and ends them in LF.

    Before Python 3.13, a writer of lines that end in LF alone leaves a CR without quotation marks.
    """

    def __init__(self) -> None:
        self.texts: list[str] = []

    def write(self, line: str) -> None:
        self.texts.append(f"{line.removesuffix(CR_LF)}\n")


def encode_json_lines(names: Iterable[str], rows: Iterable[tuple[Any, ...]]) -> bytes:
    """One object per line; NaN and infinity, which JSON does not have, become null."""
    return "".join(
        json.dumps(dict(zip(names, replace_non_finite(row), strict=True)), default=str) + "\n"
        for row in rows
    ).encode()


def _read_rows(source: FileSource, names: Sequence[str], rows: NumberedRows) -> FileTable:
    columns: list[list[str | None]] = [[] for _ in names]
    line_numbers = array("Q")
    while block := list(islice(rows, BLOCK_ROWS)):
        line_numbers.extend(line_number for line_number, _ in block)
        fields_by_column = zip(*(fields for _, fields in block), strict=True)
        for column, fields in zip(columns, fields_by_column, strict=True):
            column.extend(fields if all(fields) else [field or None for field in fields])
    return _make_table(source, dict(zip(names, columns, strict=True)), line_numbers, is_text=True)


def _make_table(
    source: FileSource, columns: Mapping[str, list[Any]], line_numbers: array[int], *, is_text: bool
) -> FileTable:
    return FileTable(
        source.label,
        {name: PythonColumn(values, is_text) for name, values in columns.items()},
        lambda row: source.name_line(line_numbers[row]),
    )


def _check_widths(source: FileSource, names: Sequence[str], rows: NumberedRows) -> NumberedRows:
    for line_number, fields in rows:
        if len(fields) != len(names):
            count = f"{len(fields)} field{'s' * (len(fields) != 1)}"
            shown_names = f": {', '.join(names)}" if len(names) <= 10 else ""
            raise BadFileError(
                f"{source.label}, {source.name_line(line_number)}: found {count} "
                f"in {shorten(repr(','.join(fields)))}, expected {len(names)}{shown_names}.",
                where=source.name_line(line_number),
                remedy="Correct the file.",
            )
        yield line_number, fields


def _split_quoted(source: FileSource) -> NumberedRows:
    """Number and fields of each line that is not blank; a quoted field may span lines."""
    lines = _read_lines(source, "utf-8")
    reader = csv.reader(lines, delimiter=source.delimiter, strict=True)
    while True:
        line_number = reader.line_num + 1
        try:
            fields = _next_row(reader)
        except csv.Error as error:
            raise BadFileError(
                f"{source.label}, {source.name_line(line_number)}: {error}.",
                where=source.name_line(line_number),
                remedy="Check this line for a missing quotation mark.",
            ) from error
        if fields is None:
            return
        if fields:
            yield line_number, fields


def _next_row(reader: Iterator[list[str]]) -> list[str] | None:
    """The next row, of any length; the limit of the csv module is that of the process."""
    limit = csv.field_size_limit(LONGEST_FIELD)
    try:
        return next(reader, None)
    finally:
        csv.field_size_limit(limit)


def _split_plain(source: FileSource, delimiter: str | None) -> NumberedRows:
    """Number and fields of each line; a blank line before another one has no fields."""
    blank_lines = []
    for line_number, line in enumerate(_read_lines(source, "latin-1"), start=1):
        if not line.strip():
            blank_lines.append(line_number)
            continue
        if blank_lines:
            yield blank_lines[0], []
        yield line_number, line.rstrip("\r\n").split(delimiter)


def _read_lines(source: FileSource, encoding: str) -> Iterator[str]:
    """Lines with their ends; a byte order mark is skipped."""
    try:
        with source.open() as raw:
            if raw.read(len(BYTE_ORDER_MARK)) != BYTE_ORDER_MARK:
                raw.seek(0)
            with io.TextIOWrapper(raw, encoding=encoding, newline="") as text:
                for number, line in enumerate(text, start=1):
                    if NUL in line:
                        raise _nul_error(source, number)
                    yield line
    except UnicodeDecodeError as error:
        raise _encoding_error(source) from error
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise source.gzip_error(error) from error


def _nul_error(source: FileSource, number: int) -> BadFileError:
    return BadFileError(
        f"{source.label}, {source.name_line(number)}: a NUL character, which text does not have.",
        where=source.name_line(number),
        remedy="Check whether the file is damaged, or is not text.",
    )


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
            f"{source.label}, {source.name_line(line_number)}: byte 0x{byte:02x} is not UTF-8.",
            where=source.name_line(line_number),
            remedy="Save the file as UTF-8, with iconv -f LATIN1 -t UTF-8, for example.",
        )
    return BadFileError(f"{source.label} changed while it was read.", remedy="Try again.")


def _parse_json_object(source: FileSource, line_number: int, line: str) -> dict[str, Any]:
    where = source.name_line(line_number)
    try:
        parsed = json.loads(line, object_pairs_hook=_refuse_repeated_keys)
        if "\\u" in line:  # half of a surrogate pair cannot be encoded
            json.dumps(parsed, ensure_ascii=False).encode()
    except json.JSONDecodeError as error:
        raise BadFileError(
            f"{source.label}, {where}, character {error.pos + 1}: not valid JSON: {error.msg}.",
            where=where,
            remedy="Write one JSON object on each line.",
        ) from error
    except (ValueError, RecursionError) as error:
        raise BadFileError(
            f"{source.label}, {where}: JSON that cannot be read: {error}.",
            where=where,
            remedy="Write one JSON object on each line.",
        ) from error
    if not isinstance(parsed, dict):
        raise BadFileError(
            f"{source.label}, {where}: found {shorten(repr(parsed))}, expected a JSON object.",
            where=where,
            remedy="Write one JSON object on each line, with the columns as keys.",
        )
    return parsed


def _refuse_repeated_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """The JSON object of these keys and values; an error if a key occurs twice."""
    united = dict(pairs)
    if len(united) < len(pairs):
        (twice, _), *_ = Counter(name for name, _ in pairs).most_common(1)
        raise ValueError(f"the key {shorten(repr(twice))} occurs twice")
    return united
