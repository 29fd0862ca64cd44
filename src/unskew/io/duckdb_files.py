"""Files as DuckDB relations, for logs that are larger than memory."""

from __future__ import annotations

import os
from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any, Literal, TypeAlias

from unskew.errors import BadFileError, UsageError
from unskew.io.sources import DELIMITERS, FileSource, Format
from unskew.io.text_files import check_delimited
from unskew.registry import require_package

Reader: TypeAlias = Literal["auto", "memory", "duckdb"]
MEMORY_PER_BYTE = {"csv": 8, "tsv": 8, "jsonl": 8, "parquet": 32, "arrow": 8}
"""Memory that reading and evaluating a file takes, as a multiple of its size on disk."""
DUCKDB_FORMATS: tuple[Format, ...] = ("csv", "tsv", "jsonl", "parquet")
DEFAULT_MEMORY = 8 << 30


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


def open_relation(source: FileSource, number_columns: Sequence[str]) -> Any:
    """A relation of the file's rows; text in ``number_columns`` that is not a number is null."""
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
        relation = _read_relation(duckdb.connect(), source)
        if source.format in DELIMITERS:
            relation = relation.project(
                ", ".join(_select(name, name in number_columns) for name in relation.columns)
            )
    except duckdb.Error as error:
        if source.format in DELIMITERS:
            check_delimited(source)  # its errors name the line
        reason = " ".join(str(error).split())[:200]
        raise BadFileError(
            f"{source.label} cannot be read: {reason}.", remedy="Correct the file."
        ) from error
    return relation


def _can_read(source: FileSource) -> bool:
    return source.is_plain_file and source.format in DUCKDB_FORMATS


def _read_relation(connection: Any, source: FileSource) -> Any:
    pattern = _escape_pattern(str(source.path))
    if source.format == "parquet":
        return connection.read_parquet(pattern)
    if source.format == "jsonl":
        return connection.read_json(pattern, format="newline_delimited")
    header_options = (
        {"names": list(source.columns), "header": False} if source.columns else {"header": True}
    )
    return connection.read_csv(
        pattern,
        delimiter=source.delimiter,
        all_varchar=True,
        quotechar='"',
        escapechar='"',
        **header_options,
    )


def _escape_pattern(path: str) -> str:
    """The file with exactly this name: DuckDB takes ``*?[`` for patterns."""
    return "".join(f"[{letter}]" if letter in "*?[" else letter for letter in path)


def _select(name: str, is_number: bool) -> str:
    """SQL for one column. Without ``trim``, DuckDB replaces the cast by one that can fail."""
    quoted = '"' + name.replace('"', '""') + '"'
    return f"TRY_CAST(trim({quoted}) AS DOUBLE) AS {quoted}" if is_number else quoted


def _physical_memory() -> int:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):  # not available on this system
        return DEFAULT_MEMORY
