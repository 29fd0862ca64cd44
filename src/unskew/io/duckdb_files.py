"""Files as DuckDB relations, of which nothing is held in memory; and when that is called for."""

from __future__ import annotations

import os
from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any, Literal, TypeAlias

from unskew.errors import BadFileError, MissingExtraError, UsageError
from unskew.io.formats import Format, Source
from unskew.io.text_files import DELIMITERS, require_whole

Engine: TypeAlias = Literal["auto", "memory", "duckdb"]
ENGINES: tuple[Engine, ...] = ("auto", "memory", "duckdb")
GROWTH = {"csv": 8, "tsv": 8, "jsonl": 8, "parquet": 32, "arrow": 8}
"""How many times its size on disk a file takes while it is read and judged in memory."""
READABLE: tuple[Format, ...] = ("csv", "tsv", "jsonl", "parquet")


def choose_engine(asked: Engine, source: Source, *, memory: int | None = None) -> Engine:
    """``auto`` reads into memory what fits into half of it; ``memory`` is its size in bytes, that of the machine by default."""
    if asked != "auto":
        return asked
    if not source.is_file or source.format not in READABLE or find_spec("duckdb") is None:
        return "memory"
    room = _physical_memory() if memory is None else memory
    return "duckdb" if 2 * GROWTH[source.format] * source.n_bytes > room else "memory"


def open_relation(source: Source, numbers: Sequence[str]) -> Any:
    """A relation of the file's rows. The columns in ``numbers`` are numbers, null where a text is none."""
    if find_spec("duckdb") is None:
        raise MissingExtraError(
            "duckdb", extra="duckdb", purpose=f"reading {source.shown} without holding it in memory"
        )
    if not source.is_file or source.format not in READABLE:
        raise UsageError(
            f"DuckDB reads {', '.join(READABLE)} files that are not gzipped, not {source.shown} ({source.format})."
        )
    import duckdb

    try:
        relation = _read(duckdb.connect(), source)
        if source.format in DELIMITERS:
            relation = relation.project(
                ", ".join(_column(name, name in numbers) for name in relation.columns)
            )
    except duckdb.Error as error:
        if source.format in DELIMITERS:
            require_whole(source)  # which says where
        said = " ".join(str(error).split())
        raise BadFileError(
            f"{source.shown} cannot be read: {said[:200]}. Correct the file."
        ) from error
    return relation


def _read(connection: Any, source: Source) -> Any:
    if source.format == "parquet":
        return connection.read_parquet(_literal(source.name))
    if source.format == "jsonl":
        return connection.read_json(_literal(source.name), format="newline_delimited")
    names = {"names": list(source.columns), "header": False} if source.columns else {"header": True}
    return connection.read_csv(
        _literal(source.name),
        delimiter=DELIMITERS[source.format],
        all_varchar=True,
        quotechar='"',
        escapechar='"',
        **names,
    )


def _literal(path: str) -> str:
    """The file of that name: DuckDB takes ``*?[`` for patterns."""
    return "".join(f"[{letter}]" if letter in "*?[" else letter for letter in path)


def _column(name: str, is_number: bool) -> str:
    quoted = '"' + name.replace('"', '""') + '"'
    return (
        f"TRY_CAST(trim({quoted}) AS DOUBLE) AS {quoted}" if is_number else quoted
    )  # without trim the cast is no longer tried


def _physical_memory() -> int:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):  # not told by this system
        return 8 << 30
