"""Files as DuckDB relations, and logs that DuckDB sorts, for logs that are larger than memory.

DuckDB sorts what does not fit into ``memory`` in files of ``folder``. Only the distinct ids of
users and items are held in memory.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal, TypeAlias

import numpy as np

from unskew.data.checks import BAD_VALUES, refuse_bad_values
from unskew.data.columns import find_column
from unskew.data.ids import Ids, as_ids, encode, find_codes
from unskew.data.propensities import SMALLEST
from unskew.data.universe import Universe
from unskew.errors import (
    BadFileError,
    DataError,
    EmptyLogError,
    UsageError,
)
from unskew.io.files import SCANNED_BYTES, list_duration_columns, refuse_truncation
from unskew.io.sources import DELIMITERS, FileSource, Format
from unskew.io.table import FLAGS, NUMBER
from unskew.io.text_files import (
    iterate_json_objects,
    open_rows,
    require_json_columns,
)
from unskew.memory import VARIABLE, find_limit
from unskew.registry import require_package
from unskew.types import IntVector, Vector

Reader: TypeAlias = Literal["auto", "memory", "duckdb"]
MEMORY_PER_BYTE = {"csv": 8, "tsv": 8, "jsonl": 8, "parquet": 32, "arrow": 8}
"""Memory that reading and evaluating a file takes, as a multiple of its size on disk."""
DUCKDB_FORMATS: tuple[Format, ...] = ("csv", "tsv", "jsonl", "parquet")
DEFAULT_MEMORY = 8 << 30
MAX_LINE_BYTES = 1 << 24
MAX_OBJECT_BYTES = 1 << 30
MAX_COLUMNS = 10_000
"""The time that DuckDB takes grows with the square of the number of columns."""
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

    ``memory`` is in bytes; the default is :func:`unskew.memory.find_limit`.
    """
    if reader != "auto":
        return reader
    if not _can_read(source) or find_spec("duckdb") is None:
        return "memory"
    available = _find_memory() if memory is None else memory
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

    def select(self, number_columns: Sequence[str], *, flags: Sequence[str] = ()) -> Any:
        """All columns; what is not a number in ``number_columns`` is null.

        In those of ``flags``, texts such as ``True`` and ``false`` are 1 and 0.
        """
        columns = zip(self.columns, map(str, self.rows.types), strict=True)
        return self.rows.project(
            ", ".join(
                _select_number(name, kind, is_flag=name in flags)
                if name in number_columns
                else _select_id(name, kind)
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
            f"{source.label} cannot be read: {reason}.",
            remedy=f"Check that it is a complete {source.format} file, or write it again.",
        ) from error


def _can_read(source: FileSource) -> bool:
    return source.is_plain_file and source.format in DUCKDB_FORMATS


def _read_parquet(connection: Any, source: FileSource, folder: Path) -> Any:  # noqa: ARG001
    relation = connection.read_parquet(_escape_pattern(str(source.path)), hive_partitioning=False)
    _require_few_columns(source, len(relation.columns))
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
    _require_few_columns(source, len(kinds))
    types = {name: _choose_type(source, name, python_types) for name, python_types in kinds.items()}
    return connection.sql(
        f"SELECT {', '.join(map(_convert_json, types, types.values()))} "
        f"FROM read_json(?, format='newline_delimited', columns={_list_columns(types, 'JSON')}, "
        f"maximum_object_size={MAX_OBJECT_BYTES}, hive_partitioning=false)",
        params=[_escape_pattern(str(source.path))],
    )


def _require_few_columns(source: FileSource, n_columns: int) -> None:
    if n_columns > MAX_COLUMNS:
        raise BadFileError(
            f"{source.label} has {n_columns:,} columns; DuckDB reads up to {MAX_COLUMNS:,}.",
            remedy="Use `reader='memory'`.",
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
    _require_few_columns(source, len(names))
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
        f"max_line_size={MAX_LINE_BYTES}, hive_partitioning=false)",
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


def _select_number(name: str, sql_type: str, *, is_flag: bool = False) -> str:
    """SQL for a column of numbers: text becomes a number as in :func:`parse_number`."""
    quoted = _quote(name)
    if sql_type != "VARCHAR":
        is_number = sql_type.partition("(")[0] in NUMBER_TYPES
        return f"{quoted if is_number else 'NULL'}::DOUBLE AS {quoted}"
    text = f"trim({quoted}, ' ' || chr(9) || chr(10) || chr(11) || chr(12) || chr(13))"
    flags = "".join(
        f"WHEN lower({text}) = '{flag}' THEN {number} " for flag, number in FLAGS.items() if is_flag
    )
    return (
        f"CASE WHEN regexp_full_match({text}, '{NUMBER.pattern}') "
        f"THEN TRY_CAST({text} AS DOUBLE) {flags}END AS {quoted}"
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


def _find_memory() -> float:
    limit, source = find_limit()
    if limit is None:  # there is none, or this system does not say
        return math.inf if source == f"${VARIABLE}" else DEFAULT_MEMORY
    return limit


Side: TypeAlias = Literal["user", "item"]
BATCH_ROWS = 1 << 20


@dataclass(frozen=True, slots=True, eq=False)
class CellBatch:
    """Some consecutive cells of a sorted log, as codes."""

    user: IntVector
    item: IntVector
    rating: Vector
    weight: Vector


@dataclass(frozen=True, slots=True, eq=False)
class ParquetLog:
    """The columns ``user``, ``item``, ``rating`` and ``weight`` = 1 / P of Parquet files."""

    connection: Any
    users: Ids
    items: Ids
    n_ratings: int
    total_weight: float
    rating_range: tuple[float, float]

    @classmethod
    def open(
        cls,
        path: str,
        *,
        folder: Path,
        memory: int,
        names: Mapping[str, str | None],
        propensity: str | None,
        relevance_threshold: float | None = None,
    ) -> ParquetLog:
        """Find the columns, check all values and collect the ids, in three passes.

        ``names`` has the columns of user, item and rating; None looks for common names.
        """
        require_package("duckdb", extra="duckdb", purpose="engine='disk'")
        import duckdb

        connection = duckdb.connect(
            config={"memory_limit": f"{memory}B", "temp_directory": str(folder / "sort")}
        )
        connection.execute("SET preserve_insertion_order = false")
        try:
            relation = connection.read_parquet(path, hive_partitioning=False)
        except duckdb.Error as error:
            reason = " ".join(str(error).split())[:200]
            raise BadFileError(
                f"{path} cannot be read as Parquet: {reason}.",
                remedy="Pass the path of a Parquet file, or of several as 'folder/*.parquet'.",
            ) from error
        roles = dict(names) | ({} if propensity is None else {"propensity": propensity})
        columns = {role: find_column(role, name, relation.columns) for role, name in roles.items()}
        relation.project(_select_columns(columns, relevance_threshold)).create_view("cells")
        return cls._summarize(connection)

    @classmethod
    def _summarize(cls, connection: Any) -> ParquetLog:
        bad = ", ".join(f"count_if({name} IS NULL)" for name in BAD_VALUES)
        totals = "sum(weight), min(rating), max(rating)"
        row = connection.sql(f"SELECT count(*), {totals}, {bad} FROM cells").fetchall()[0]
        n_ratings, total_weight, low, high, *n_bad = row
        if not n_ratings:
            raise EmptyLogError(
                "the log has no ratings.", remedy="Check the filter or the file it came from."
            )
        for name, count in zip(BAD_VALUES, n_bad, strict=True):
            refuse_bad_values(name, count, n_ratings)
        users, items = (_read_ids(connection, name) for name in ("user", "item"))
        size = int(n_ratings), float(total_weight)
        return cls(connection, users, items, *size, (float(low), float(high)))

    def scale_weights(self, how: str, universe: Universe) -> None:
        """Multiply weights so that they add up to U I, to I for each user or to U for each item."""
        if how == "self":
            factor = universe.n_cells / self.total_weight
            select, join = f"weight * {factor!r}", ""
        else:
            goal = universe.n_items if how == "user" else universe.n_users
            select = f"weight * {goal} / total"
            sums = f'SELECT "{how}", sum(weight) AS total FROM cells GROUP BY 1'
            join = f'JOIN ({sums}) USING ("{how}")'
        self.connection.execute(
            f'CREATE VIEW scaled AS SELECT "user", item, rating, {select} AS weight '
            f"FROM cells {join}"
        )

    def read_sorted(self, side: Side, *, is_scaled: bool) -> Iterator[CellBatch]:
        """The cells in batches, sorted by ``side`` and then by the other side."""
        table, keys = "scaled" if is_scaled else "cells", '"user", item'
        order = keys if side == "user" else 'item, "user"'
        rows = self.connection.sql(
            f'SELECT "user", item, rating, weight FROM {table} ORDER BY {order}'
        )
        is_recent = hasattr(rows, "to_arrow_reader")  # the other name is deprecated since
        reader = rows.to_arrow_reader if is_recent else rows.fetch_arrow_reader
        for batch in reader(BATCH_ROWS):
            user, item = (as_ids(_to_numpy(batch[name])) for name in ("user", "item"))
            yield CellBatch(
                find_codes(user, self.users),
                find_codes(item, self.items),
                batch["rating"].to_numpy(zero_copy_only=False),
                batch["weight"].to_numpy(zero_copy_only=False),
            )

    def close(self) -> None:
        """Close the connection, and so delete DuckDB's files."""
        self.connection.close()


def _select_columns(columns: Mapping[str, str], relevance_threshold: float | None) -> str:
    """SQL of the four columns, where values that cannot be used are null."""
    quoted = {role: '"' + name.replace('"', '""') + '"' for role, name in columns.items()}
    rating = f"{quoted['rating']}::DOUBLE"
    value = rating
    if relevance_threshold is not None:
        value = f"({rating} >= {relevance_threshold})::DOUBLE"
    weight = "1.0::DOUBLE"
    if "propensity" in quoted:
        p = f"{quoted['propensity']}::DOUBLE"
        weight = f"CASE WHEN {p} BETWEEN {SMALLEST!r} AND 1 THEN 1 / {p} END"
    return (
        f'{quoted["user"]} AS "user", {quoted["item"]} AS item, '
        f"CASE WHEN isfinite({rating}) THEN {value} END AS rating, {weight} AS weight"
    )


def _read_ids(connection: Any, name: str) -> Ids:
    rows = connection.sql(f'SELECT DISTINCT "{name}" FROM cells ORDER BY 1').to_arrow_table()
    ids = as_ids(_to_numpy(rows.column(0)))
    if ids.dtype.kind == "f":
        raise UsageError(
            f"the {name} must be text or integers; the file has decimal numbers.",
            parameter=name,
            remedy="Cast the column first.",
        )
    return encode(ids)[1]


def _to_numpy(column: Any) -> Any:
    """The values of an Arrow array, or of a chunked one."""
    chunks = getattr(column, "chunks", [column])
    if not chunks:
        return np.empty(0)
    return np.concatenate([np.asarray(chunk.to_numpy(zero_copy_only=False)) for chunk in chunks])
