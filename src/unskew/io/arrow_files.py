"""Tables by pyarrow: Parquet and Arrow files, and delimited text many times faster than by the standard library."""

from __future__ import annotations

import mmap
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from unskew.data.ids import Ids
from unskew.errors import BadFileError, DataError, MissingExtraError
from unskew.io.formats import Source
from unskew.io.table import WHOLE, Table, Values, Words
from unskew.io.text_files import DELIMITERS, read_delimited, require_header
from unskew.types import Vector

ARROW_FILE = b"ARROW1"
FEATHER_1 = b"FEA1"


def has_arrow() -> bool:
    """Whether pyarrow is installed."""
    return find_spec("pyarrow") is not None


@dataclass(frozen=True, slots=True, eq=False)
class ArrowWords:
    """Text; what the fast way cannot read goes through :class:`Words`, which says the same of every word."""

    array: Any

    def __len__(self) -> int:
        return len(self.array)

    def ids(self) -> Ids:
        """Whole numbers where all of it is written so, else text."""
        import pyarrow as pa
        import pyarrow.compute as pc

        are_whole = pc.all(
            pc.match_substring_regex(self.array, f"^({WHOLE.pattern})$"), min_count=0
        ).as_py()
        if not are_whole or self.array.null_count or not len(self.array):
            return Words(self.array.to_pylist()).ids()
        return np.asarray(pc.cast(self.array, pa.int64()))

    def numbers(self) -> Vector:
        """Decimal numbers."""
        import pyarrow as pa
        import pyarrow.compute as pc

        try:
            return np.asarray(
                pc.cast(self.array, pa.float64()).to_numpy(zero_copy_only=False), dtype=np.float64
            )
        except pa.ArrowInvalid:
            return Words(self.array.to_pylist()).numbers()

    def at(self, row: int) -> Any:
        """The word."""
        return self.array[row].as_py()


@dataclass(frozen=True, slots=True, eq=False)
class ArrowValues:
    """Values of a column that has a type."""

    array: Any

    def __len__(self) -> int:
        return len(self.array)

    def ids(self) -> Ids:
        """As they are."""
        import pyarrow as pa

        kind = self.array.type
        if pa.types.is_string(kind) or pa.types.is_large_string(kind):
            return np.asarray(self.array.to_numpy(zero_copy_only=False), dtype=object)
        if self.array.null_count == 0 and (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
            return np.asarray(self.array.to_numpy(zero_copy_only=False))
        return Values(self.array.to_pylist()).ids()

    def numbers(self) -> Vector:
        """Numbers; nothing else becomes one."""
        import pyarrow as pa
        import pyarrow.compute as pc

        kind = self.array.type
        if (
            pa.types.is_integer(kind)
            or pa.types.is_floating(kind)
            or pa.types.is_decimal(kind)
            or pa.types.is_boolean(kind)
        ):
            numbers = pc.cast(self.array, pa.float64(), safe=False)
            return np.asarray(numbers.to_numpy(zero_copy_only=False), dtype=np.float64)
        if pa.types.is_string(kind) or pa.types.is_large_string(kind):
            return ArrowWords(self.array).numbers()
        return np.full(len(self), np.nan)

    def at(self, row: int) -> Any:
        """The value."""
        return self.array[row].as_py()


def read_delimited_fast(source: Source) -> Table:
    """The same as :func:`read_delimited`, which still reads what pyarrow refuses, or would read more kindly than it should.

    A quotation mark that is never closed, as in a file that was cut off, is no error to pyarrow: so it reads no quotation marks.
    """
    if not source.is_file or _holds_quotes(Path(source.name)):
        return read_delimited(source)
    import pyarrow as pa
    from pyarrow import csv

    with source.open() as file:
        names = source.columns or tuple(
            _first_line(file.readline()).split(DELIMITERS[source.format])
        )
    try:
        require_header(source, names)
        table = csv.read_csv(
            _whole_content(source),
            read_options=csv.ReadOptions(column_names=list(source.columns) or None),
            parse_options=csv.ParseOptions(delimiter=DELIMITERS[source.format], quote_char=False),
            convert_options=csv.ConvertOptions(
                column_types={name: pa.string() for name in names},
                null_values=[""],
                strings_can_be_null=True,
            ),
        )
        is_sound = tuple(table.column_names) == names
    except (pa.ArrowInvalid, UnicodeDecodeError, DataError):
        is_sound = False
    if not is_sound:  # which the other way says exactly
        return read_delimited(source)
    columns = {name: ArrowWords(_whole(table.column(name))) for name in names}
    return Table(source.shown, columns, lambda row: f"line {_line_of(source, row)}")


def read_parquet(source: Source) -> Table:
    """A Parquet file."""
    _require_arrow(source)
    from pyarrow import parquet

    return _typed(source, lambda: parquet.ParquetFile(_whole_content(source)).read())


def read_arrow(source: Source) -> Table:
    """An Arrow file, a stream of Arrow batches, or a Feather file of either version."""
    _require_arrow(source)
    import pyarrow as pa
    from pyarrow import feather

    def read() -> Any:
        content = _whole_content(source)
        with source.open() as file:
            start = file.read(len(ARROW_FILE))
        if start.startswith((ARROW_FILE, FEATHER_1)):
            return feather.read_table(content, memory_map=False)
        return pa.ipc.open_stream(content).read_all()

    return _typed(source, read)


def to_arrow(columns: dict[str, Any]) -> Any:
    """A pyarrow table of columns."""
    import pyarrow as pa

    try:
        return pa.table({name: pa.array(_plain(values)) for name, values in columns.items()})
    except (pa.ArrowException, TypeError, OverflowError) as error:
        raise BadFileError(
            f"these columns cannot be written: {error}. Write CSV instead."
        ) from error


def parquet_bytes(columns: dict[str, Any], name: str) -> bytes:
    """The content of a Parquet file."""
    _require_arrow_to(f"writing {name}")
    import pyarrow as pa
    from pyarrow import parquet

    sink = pa.BufferOutputStream()
    parquet.write_table(to_arrow(columns), sink)
    return bytes(sink.getvalue())


def arrow_bytes(columns: dict[str, Any], name: str) -> bytes:
    """The content of an Arrow (Feather) file."""
    _require_arrow_to(f"writing {name}")
    import pyarrow as pa

    table, sink = to_arrow(columns), pa.BufferOutputStream()
    with pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def _plain(values: Any) -> Any:
    """Ids of several kinds as text, since a typed column holds one kind."""
    kept = (
        values.tolist() if isinstance(values, np.ndarray) and values.dtype.kind == "O" else values
    )
    if isinstance(kept, list) and len({type(value) for value in kept if value is not None}) > 1:
        if all(isinstance(value, (int, float)) for value in kept if value is not None):
            return [None if value is None else float(value) for value in kept]
        return [None if value is None else str(value) for value in kept]
    return kept


def _typed(source: Source, read: Callable[[], Any]) -> Table:
    """What ``read`` makes of the file, once it is known to be sound."""
    import pyarrow as pa

    try:
        table = read()
        table.validate(full=True)
        names = [str(name) for name in table.column_names]
    except (
        pa.ArrowException,
        OSError,
        ValueError,
        TypeError,
        KeyError,
        IndexError,
        MemoryError,
        RuntimeError,
    ) as error:
        said = " ".join(str(error).split()).rstrip(".")
        raise BadFileError(
            f"{source.shown} is not a whole {source.format} file: {said[:200]}. Take a fresh copy."
        ) from error
    require_header(source, names)
    columns = {
        name: ArrowValues(_whole(_decoded(table.column(place)))) for place, name in enumerate(names)
    }
    return Table(source.shown, columns, lambda row: f"row {row}")


def _whole_content(source: Source) -> Any:
    """The content as pyarrow reads it: mapped where it is a file, else from memory."""
    import pyarrow as pa

    return (
        pa.memory_map(source.name)
        if source.is_file and source.n_bytes
        else pa.BufferReader(source.read())
    )


def _decoded(column: Any) -> Any:
    import pyarrow as pa

    return column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column


def _whole(column: Any) -> Any:
    """One array of a column in chunks, where it is not too long for that."""
    return column.combine_chunks() if column.nbytes < 1 << 30 else column


def _holds_quotes(path: Path) -> bool:
    with path.open("rb") as file:
        if not path.stat().st_size:
            return False
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            return content.find(b'"') >= 0


def _first_line(line: bytes) -> str:
    return line.decode("utf-8-sig", errors="replace").rstrip("\r\n")


def _line_of(source: Source, row: int) -> int:
    """The number of the line that holds a row: blank lines and the line of names are none."""
    wanted = row + (not source.columns)
    with source.open() as file:
        filled = (number for number, line in enumerate(file, start=1) if line.strip(b"\r\n"))
        return next(number for place, number in enumerate(filled) if place == wanted)


def _require_arrow(source: Source) -> None:
    _require_arrow_to(f"reading {source.shown}")


def _require_arrow_to(purpose: str) -> None:
    if not has_arrow():
        raise MissingExtraError("pyarrow", extra="io", purpose=purpose)
