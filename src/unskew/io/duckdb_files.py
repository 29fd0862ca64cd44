"""Files as DuckDB relations, for logs that are larger than memory."""

from __future__ import annotations

import csv
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal, TypeAlias

from unskew.errors import BadFileError, DataError, UsageError
from unskew.io.files import SCANNED_BYTES, list_duration_columns, refuse_truncation
from unskew.io.sources import DELIMITERS, FileSource, Format
from unskew.io.table import NUMBER
from unskew.io.text_files import (
    iterate_json_objects,
    open_rows,
    require_json_columns,
)
from unskew.registry import require_package

Reader: TypeAlias = Literal["auto", "memory", "duckdb"]
MEMORY_PER_BYTE = {"csv": 8, "tsv": 8, "jsonl": 8, "parquet": 32, "arrow": 8}
"""Memory that reading and evaluating a file takes, as a multiple of its size on disk."""
DUCKDB_FORMATS: tuple[Format, ...] = ("csv", "tsv", "jsonl", "parquet")
DEFAULT_MEMORY = 8 << 30
MAX_LINE_BYTES = 1 << 24
MAX_OBJECT_BYTES = 1 << 30
QUOTE = "'"
NUMBER_TYPES = (
    *("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT"),
    *("UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT", "UHUGEINT"),
    *("FLOAT", "DOUBLE", "DECIMAL", "BOOLEAN"),
)
JSON_TYPES: Mapping[str, frozenset[type]] = {
    "VARCHAR": frozenset({str}),
    "BOOLEAN": frozenset({bool}),
    "HUGEINT": frozenset({int}),
    "DOUBLE": frozenset({int, float}),
}
"""The SQL type of a column of JSON lines, by the Python types of its values."""


def choose_reader(reader: Reader, source: FileSource, *, memory: int | None = None) -> Reader:
    """``reader``, or for ``auto`` DuckDB if the file would take more than half of the memory.

    ``memory`` is in bytes; the default is the memory of this machine.
    """
    if reader != "auto":
        return reader
    if not _can_read(source) or find_spec("duckdb") is None:
        return "memory"
    available = _physical_memory() if memory is None else memory
    needed = MEMORY_PER_BYTE[source.format] * source.n_bytes
    return "duckdb" if 2 * needed > available else "memory"


@dataclass(frozen=True, slots=True, eq=False)
class FileRelation:
    """The rows of a file, which DuckDB reads when they are used."""

    rows: Any

    @property
    def columns(self) -> list[str]:
        """The names of the columns, in the order of the file."""
        return list(self.rows.columns)

    def select(self, number_columns: Sequence[str]) -> Any:
        """All columns; what is not a number in ``number_columns`` is null."""
        columns = zip(self.columns, map(str, self.rows.types), strict=True)
        return self.rows.project(
            ", ".join(
                _select_number(name, kind) if name in number_columns else _select_id(name, kind)
                for name, kind in columns
            )
        )


def scale_shares(rows: Any, column: str, factor: float) -> Any:
    """The rows with a column of shares times a factor; values above 1 stay, to be refused."""
    name = _quote(column)
    scaled = f"CASE WHEN {name} > 1 THEN {name} ELSE {name} * {factor!r} END"
    return rows.project(f"* REPLACE ({scaled} AS {name})")


@contextmanager
def open_relation(source: FileSource) -> Iterator[FileRelation]:
    """The rows, ids and numbers that :func:`unskew.io.files.read_table` reads, as a relation.

    Use it inside the block: DuckDB reads the file when the relation is used. Errors of DuckDB
    become those of the reader in memory, which name the line.
    """
    purpose = f"reading {source.label} without holding it in memory"
    require_package("duckdb", extra="duckdb", purpose=purpose)
    if not _can_read(source):
        raise UsageError(
            f"DuckDB reads {', '.join(DUCKDB_FORMATS)} files that are not gzipped, "
            f"not {source.label} ({source.format}).",
            parameter="reader",
            value="duckdb",
            remedy="Use `reader='memory'`.",
        )
    import duckdb

    try:
        with (
            refuse_truncation(source),
            TemporaryDirectory(prefix="unskew-") as folder,
            duckdb.connect() as connection,
        ):
            yield FileRelation(READ[source.format](connection, source, Path(folder)))
    except (duckdb.Error, RuntimeError, DataError) as error:
        if isinstance(error, DataError) and not isinstance(error.__cause__, duckdb.Error):
            raise
        if source.format in DELIMITERS:
            for _ in open_rows(source)[1]:
                pass
        reason = " ".join(str(error).split())[:200]
        raise BadFileError(
            f"{source.label} cannot be read: {reason}.", remedy="Correct the file."
        ) from error


def _can_read(source: FileSource) -> bool:
    return source.is_plain_file and source.format in DUCKDB_FORMATS


def _read_parquet(connection: Any, source: FileSource, folder: Path) -> Any:  # noqa: ARG001
    relation = connection.read_parquet(_escape_pattern(str(source.path)))
    durations = list_duration_columns(source) if find_spec("pyarrow") else frozenset()
    columns = (
        f"to_microseconds({_quote(name)}) AS {_quote(name)}" if name in durations else _quote(name)
        for name in relation.columns
    )
    return relation.project(", ".join(columns))


def _read_json_lines(connection: Any, source: FileSource, folder: Path) -> Any:  # noqa: ARG001
    """The rows of JSON lines, after a check of each by the exact reader."""
    kinds: dict[str, set[type]] = {}
    n_rows = n_values = 0
    for _, parsed in iterate_json_objects(source):
        n_rows, n_values = n_rows + 1, n_values + len(parsed)
        for name, value in parsed.items():
            kinds.setdefault(name, set()).add(type(value))
    require_json_columns(source, kinds, n_rows, n_values)
    types = {name: _choose_type(source, name, python_types) for name, python_types in kinds.items()}
    return connection.sql(
        f"SELECT {', '.join(map(_convert_json, types, types.values()))} "
        f"FROM read_json(?, format='newline_delimited', columns={_list_columns(types, 'JSON')}, "
        f"maximum_object_size={MAX_OBJECT_BYTES})",
        params=[_escape_pattern(str(source.path))],
    )


def _choose_type(source: FileSource, name: str, python_types: set[type]) -> str:
    """The SQL type of a column of JSON values; an error if it has both text and numbers."""
    python_types = python_types - {type(None)}
    sql_type = next((sql for sql, kinds in JSON_TYPES.items() if python_types <= kinds), None)
    if sql_type is not None:
        return sql_type
    if python_types & {dict, list}:
        return "JSON"
    raise BadFileError(
        f"{source.label}: DuckDB cannot read both numbers and text in the column {name!r}.",
        parameter=name,
        remedy="Use `reader='memory'`, or write values of one type.",
    )


def _convert_json(name: str, sql_type: str) -> str:
    if sql_type == "JSON":  # objects and lists are neither ids nor numbers
        return f"NULL::VARCHAR AS {_quote(name)}"
    return f"({_quote(name)} ->> '$')::{sql_type} AS {_quote(name)}"


def _read_delimited(connection: Any, source: FileSource, folder: Path) -> Any:
    """The rows of a CSV or TSV file, as text.

    DuckDB does not read quotation marks, blank lines and empty last fields as the exact reader
    does. A file that has some is written anew first, with each field between quotation marks.
    """
    names, rows = open_rows(source)
    path, has_header = str(source.path), not source.columns
    if _may_parse_differently(source):
        path, has_header = str(folder / "rows.csv"), False
        with Path(path).open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(
                file, delimiter=source.delimiter, quoting=csv.QUOTE_ALL, lineterminator="\n"
            )
            writer.writerows(fields for _, fields in rows)
    return connection.sql(
        "SELECT * FROM read_csv(?, auto_detect=false, "
        f"columns={_list_columns(names, 'VARCHAR')}, header={has_header}, "
        f"delim='{source.delimiter}', quote='\"', escape='\"', comment='', skip=0, nullstr='', "
        "allow_quoted_nulls=true, null_padding=false, ignore_errors=false, strict_mode=true, "
        f"max_line_size={MAX_LINE_BYTES})",
        params=[_escape_pattern(path)],
    )


def _may_parse_differently(source: FileSource) -> bool:
    """Whether DuckDB may split a delimited file into other rows or fields than our own reader.

    It may at quotation marks, null bytes, blank lines and empty last fields, and if lines do not
    all end in the same way.
    """
    delimiter = source.delimiter.encode()
    patterns = (b'"', b"\0", b"\n\n", delimiter + b"\n")
    previous, n_cr, n_crlf, n_lf = b"\n", 0, 0, 0
    with source.open() as file:
        while block := file.read(SCANNED_BYTES):
            n_cr, n_lf = n_cr + block.count(b"\r"), n_lf + block.count(b"\n")
            n_crlf += (previous[-1:] + block).count(b"\r\n")
            block = (previous[-2:] + block).replace(b"\r\n", b"\n")
            if any(pattern in block for pattern in patterns):
                return True
            previous = block
    has_mixed_line_ends = n_cr > 0 and not n_cr == n_crlf == n_lf
    return has_mixed_line_ends or previous.endswith(delimiter)


def _list_columns(names: Iterable[str], sql_type: str) -> str:
    """Names and types as a DuckDB struct."""
    quoted = (f"'{name.replace(QUOTE, QUOTE * 2)}': '{sql_type}'" for name in names)
    return f"{{{', '.join(quoted)}}}"


def _escape_pattern(path: str) -> str:
    """The file with exactly this name: DuckDB takes ``*?[`` for patterns."""
    return "".join(f"[{letter}]" if letter in "*?[" else letter for letter in path)


def _quote(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _select_number(name: str, sql_type: str) -> str:
    """SQL for a column of numbers: text becomes a number as in :func:`parse_number`."""
    quoted = _quote(name)
    if sql_type != "VARCHAR":
        is_number = sql_type.partition("(")[0] in NUMBER_TYPES
        return f"{quoted if is_number else 'NULL'}::DOUBLE AS {quoted}"
    text = f"trim({quoted}, ' ' || chr(9) || chr(10) || chr(11) || chr(12) || chr(13))"
    return (
        f"CASE WHEN regexp_full_match({text}, '{NUMBER.pattern}') "
        f"THEN TRY_CAST({text} AS DOUBLE) END AS {quoted}"
    )


def _select_id(name: str, sql_type: str) -> str:
    """SQL for another column, where NaN is missing."""
    quoted = _quote(name)
    if sql_type in ("DOUBLE", "FLOAT"):
        return f"CASE WHEN NOT isnan({quoted}) THEN {quoted} END AS {quoted}"
    return quoted


READ: Mapping[str, Callable[[Any, FileSource, Path], Any]] = {
    "csv": _read_delimited,
    "tsv": _read_delimited,
    "jsonl": _read_json_lines,
    "parquet": _read_parquet,
}


def _physical_memory() -> int:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):  # not available on this system
        return DEFAULT_MEMORY
