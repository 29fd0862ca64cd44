"""Tables in and out of files: CSV, TSV, JSON lines, Parquet and Arrow.

pyarrow reads CSV and TSV where its table is certain to be that of the exact reader in
``text_files``, and Parquet, Arrow and Feather files always.
"""

from __future__ import annotations

import gzip
import io
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from itertools import islice
from typing import Any

import numpy as np

from unskew.data.ids import Ids
from unskew.errors import BadFileError, DataError, UnskewError
from unskew.io.sources import DELIMITERS, STANDARD_STREAM, FileSource, Format, choose_format
from unskew.io.table import INTEGER, FileTable, PythonColumn, require_column_names
from unskew.io.text_files import (
    encode_delimited,
    encode_json_lines,
    read_delimited,
    read_json_lines,
)
from unskew.io.writing import warn_about_formulas, write_file
from unskew.registry import require_package
from unskew.types import Vector

ARROW_FORMATS: tuple[Format, ...] = ("parquet", "arrow")
ARROW_FILE_START = b"ARROW1"
FEATHER_1_START = b"FEA1"
MAX_CHUNK_BYTES = 1 << 30
SCANNED_BYTES = 1 << 20
"""A file is searched in blocks of so many bytes."""


def read_table(source: FileSource | str) -> FileTable:
    """The table in a file; an error if the file is damaged, which names the place."""
    file = FileSource.from_name(source) if isinstance(source, str) else source
    if file.path is not None and file.path.is_dir():
        raise BadFileError(f"{file.label} is a folder, not a file.", remedy="Name a file in it.")
    with refuse_truncation(file):
        return _read(file)


def iterate_tables(source: FileSource, n_rows: int) -> Iterator[FileTable]:
    """The table in a file: a Parquet file in parts of ``n_rows`` rows, others at once."""
    if source.format != "parquet":
        yield read_table(source)
        return
    require_package("pyarrow", extra="io", purpose=f"reading {source.label}")
    import pyarrow as pa
    from pyarrow import parquet

    n_before = 0
    with refuse_truncation(source), _refuse_damage(source):
        file = parquet.ParquetFile(_open_content(source))
        names = [str(name) for name in file.schema_arrow.names]
        require_column_names(source, names)
        for batch in file.iter_batches(n_rows):
            batch.validate(full=True)
            columns = {
                name: ArrowColumn.from_chunks(pa.chunked_array([column]), is_text=False)
                for name, column in zip(names, batch.columns, strict=True)
            }
            yield FileTable(source.label, columns, partial(_name_row, n_before))
            n_before += batch.num_rows


def _name_row(n_before: int, row: int) -> str:
    return f"row {n_before + row}"


def _read(source: FileSource) -> FileTable:
    if source.format in ARROW_FORMATS:
        require_package("pyarrow", extra="io", purpose=f"reading {source.label}")
        return _read_typed(source)
    if source.format == "jsonl":
        return read_json_lines(source)
    return read_delimited_fast(source) if find_spec("pyarrow") else read_delimited(source)


@contextmanager
def refuse_truncation(source: FileSource) -> Iterator[None]:
    """Raise an error if a file gets shorter in this block: what was read of it is not all."""
    n_before = source.n_bytes if source.is_regular else 0
    cause = None
    try:
        yield
    except DataError as error:  # damage that may be due to this
        cause = error
    if source.is_regular and source.n_bytes < n_before:
        raise BadFileError(
            f"{source.label} became shorter while it was read: {n_before:,} bytes, then "
            f"{source.n_bytes:,}.",
            where=source.label,
            remedy="Wait until the program that writes it is done, or read a copy.",
        ) from cause
    if cause is not None:
        raise cause


def write_table(columns: Mapping[str, Sequence[Any]], name: str) -> None:
    """Write columns of one length to a file, completely or not at all; ``-`` is standard output."""
    content = _encode(dict(columns), choose_format(name), name)
    if name != STANDARD_STREAM:
        is_gzipped = name.endswith(".gz")
        write_file(name, gzip.compress(content, mtime=0) if is_gzipped else content)
    elif hasattr(sys.stdout, "buffer"):
        sys.stdout.buffer.write(content)
    else:
        sys.stdout.write(content.decode())


def _encode(columns: dict[str, Any], form: Format, name: str) -> bytes:
    if form in ARROW_FORMATS:
        require_package("pyarrow", extra="io", purpose=f"writing {name}")
        return _encode_typed(columns, form)
    lists = [
        values.tolist() if isinstance(values, np.ndarray) else values for values in columns.values()
    ]
    rows = zip(*lists, strict=True)
    if form == "jsonl":
        return encode_json_lines(columns, rows)
    warn_about_formulas(columns, name)
    return encode_delimited(columns, rows, DELIMITERS[form])


# CSV and TSV


def read_delimited_fast(source: FileSource) -> FileTable:
    """The table of :func:`read_delimited`, read by pyarrow where that is certain to be the same.

    Files with quotation marks are left to the exact reader, because pyarrow does not notice a
    missing one. So are files that pyarrow refuses, because the exact reader names the line.
    """
    if not source.is_plain_file or _needs_exact_reader(source):
        return read_delimited(source)
    import pyarrow as pa
    from pyarrow import csv

    with source.open() as file:
        header = file.readline().decode("utf-8-sig", errors="replace").rstrip("\r\n")
    names = source.columns or tuple(header.split(source.delimiter))
    try:
        require_column_names(source, names)
        table = csv.read_csv(
            _open_content(source),
            read_options=csv.ReadOptions(column_names=list(source.columns) or None),
            parse_options=csv.ParseOptions(delimiter=source.delimiter, quote_char=False),
            convert_options=csv.ConvertOptions(
                column_types={name: pa.string() for name in names},
                null_values=[""],
                strings_can_be_null=True,
            ),
        )
        is_same = tuple(table.column_names) == names
    except (pa.ArrowInvalid, UnicodeDecodeError, DataError):
        is_same = False
    if not is_same:
        return read_delimited(source)
    columns = {
        name: ArrowColumn.from_chunks(column, is_text=True)
        for name, column in zip(names, table.columns, strict=True)
    }
    return FileTable(source.label, columns, lambda row: f"line {_find_line(source, row)}")


def _needs_exact_reader(source: FileSource) -> bool:
    """Whether there is a quotation mark or a NUL character in the file.

    It is read in blocks: if another process cuts a file that is mapped to memory, this one dies.
    """
    with source.open() as file:
        blocks = iter(lambda: file.read(SCANNED_BYTES), b"")
        return any(b'"' in block or b"\0" in block for block in blocks)


def _find_line(source: FileSource, row: int) -> int:
    """The line number of a row: blank lines and the header line are not rows."""
    index = row + (not source.columns)
    with source.open() as raw, io.TextIOWrapper(raw, encoding="latin-1", newline="") as file:
        numbers = (number for number, line in enumerate(file, start=1) if line.strip("\r\n"))
        return next(islice(numbers, index, None), 0)


# Parquet, Arrow and Feather


def _read_typed(source: FileSource) -> FileTable:
    """The table in a file whose columns have types, after a full check of the file."""
    with _refuse_damage(source):
        table = _read_arrow_table(source)
        table.validate(full=True)
        names = [str(name) for name in table.column_names]
    require_column_names(source, names)
    columns = {
        name: ArrowColumn.from_chunks(column, is_text=False)
        for name, column in zip(names, table.columns, strict=True)
    }
    return FileTable(source.label, columns, lambda row: f"row {row}")


@contextmanager
def _refuse_damage(source: FileSource) -> Iterator[None]:
    """Turn what pyarrow raises for a damaged file into one error that names the file."""
    import pyarrow as pa

    try:
        yield
    except UnskewError:
        raise
    except (
        *(pa.ArrowException, OSError, ValueError, TypeError),
        *(ArithmeticError, LookupError, MemoryError, RuntimeError),
    ) as error:
        raise _incomplete_error(source, error) from error


def _incomplete_error(source: FileSource, error: Exception) -> BadFileError:
    reason = " ".join(str(error).split()).rstrip(".")[:200]
    return BadFileError(
        f"{source.label} is not a complete {source.format} file: {reason}.",
        remedy="Copy the file again; this copy is incomplete.",
    )


def _read_arrow_table(source: FileSource) -> Any:
    """A Parquet file, an Arrow or Feather file, or a stream of Arrow batches."""
    import pyarrow as pa
    from pyarrow import feather, parquet

    content = _open_content(source)
    if source.format == "parquet":
        return parquet.ParquetFile(content).read()
    start = content.read(len(ARROW_FILE_START))
    content.seek(0)
    if start.startswith((ARROW_FILE_START, FEATHER_1_START)):
        return feather.read_table(content, memory_map=False)
    return pa.ipc.open_stream(content).read_all()


def list_duration_columns(source: FileSource) -> frozenset[str]:
    """The columns of a Parquet file that hold durations, which it stores as whole numbers."""
    import pyarrow as pa
    from pyarrow import parquet

    with _refuse_damage(source):
        schema = parquet.read_schema(str(source.path))
        names = schema.names
    require_column_names(source, names)
    return frozenset(
        name for name, kind in zip(names, schema.types, strict=True) if pa.types.is_duration(kind)
    )


def _encode_typed(columns: dict[str, Any], form: Format) -> bytes:
    """The content of a Parquet or Arrow (Feather) file."""
    import pyarrow as pa
    from pyarrow import parquet

    try:
        table = pa.table({name: pa.array(_unify_types(values)) for name, values in columns.items()})
    except (pa.ArrowException, TypeError, OverflowError) as error:
        raise BadFileError(
            f"these columns cannot be written: {error}.", remedy="Write CSV instead."
        ) from error
    sink = pa.BufferOutputStream()
    if form == "parquet":
        parquet.write_table(table, sink)
    else:
        with pa.ipc.new_file(sink, table.schema) as writer:
            writer.write_table(table)
    return bytes(sink.getvalue())


def _unify_types(values: Any) -> Any:
    """Values of several types as floats if all are numbers, else as text."""
    if isinstance(values, np.ndarray) and values.dtype.kind == "O":
        values = values.tolist()
    if not isinstance(values, list):
        return values
    present = [value for value in values if value is not None]
    if len({type(value) for value in present}) <= 1:
        return values
    convert = float if all(isinstance(value, (int, float)) for value in present) else str
    return [None if value is None else convert(value) for value in values]


# Arrays of pyarrow


@dataclass(frozen=True, slots=True, eq=False)
class ArrowColumn:
    """A pyarrow array; what pyarrow cannot convert goes through :class:`PythonColumn`."""

    array: Any
    is_text: bool
    """Whether it comes from a text file, where numbers are not told from text."""

    @classmethod
    def from_chunks(cls, column: Any, *, is_text: bool) -> ArrowColumn:
        """A column of a pyarrow table, as one array if it is not too long for one."""
        import pyarrow as pa

        if pa.types.is_dictionary(column.type):
            column = column.cast(column.type.value_type)
        is_short = column.nbytes < MAX_CHUNK_BYTES
        return cls(column.combine_chunks() if is_short else column, is_text)

    def __len__(self) -> int:
        return len(self.array)

    def ids(self) -> Ids:
        import pyarrow as pa
        import pyarrow.compute as pc

        if self.is_text:
            if self._has_only_integers():
                return np.asarray(pc.cast(self.array, pa.int64()))
        elif self._is_string():
            return np.asarray(self.array.to_numpy(zero_copy_only=False), dtype=object)
        elif self.array.null_count == 0 and self._has_type("is_integer", "is_floating"):
            return np.asarray(self.array.to_numpy(zero_copy_only=False))
        return self._as_python().ids()

    def numbers(self) -> Vector:
        import pyarrow as pa
        import pyarrow.compute as pc

        is_number = self._has_type("is_integer", "is_floating", "is_decimal", "is_boolean")
        if not (is_number or self._is_string()):
            return np.full(len(self), np.nan)
        try:
            numbers = pc.cast(self.array, pa.float64(), safe=not is_number)
        except pa.ArrowInvalid:
            return self._as_python().numbers()
        return np.asarray(numbers.to_numpy(zero_copy_only=False), dtype=np.float64)

    def value(self, row: int) -> Any:
        return self.array[row].as_py()

    def _as_python(self) -> PythonColumn:
        return PythonColumn(self.array.to_pylist(), self.is_text)

    def _has_type(self, *checks: str) -> bool:
        """Whether one of the checks of ``pyarrow.types`` accepts the type of the array."""
        import pyarrow as pa

        return any(getattr(pa.types, check)(self.array.type) for check in checks)

    def _is_string(self) -> bool:
        return self._has_type("is_string", "is_large_string")

    def _has_only_integers(self) -> bool:
        import pyarrow.compute as pc

        if self.array.null_count or not len(self.array):
            return False
        matches = pc.match_substring_regex(self.array, f"^({INTEGER.pattern})$")
        return bool(pc.all(matches, min_count=0).as_py())


def _open_content(source: FileSource) -> Any:
    """The content for pyarrow: a plain file, else all of it in memory."""
    import pyarrow as pa

    if source.is_plain_file and source.n_bytes:
        return pa.OSFile(str(source.path))
    return pa.BufferReader(source.read())
