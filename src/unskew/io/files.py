"""Tables in and out of files: CSV, TSV, JSON lines, Parquet and Arrow."""

from __future__ import annotations

import csv
import gzip
import io
import json
import math
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from unskew.errors import BadFileError
from unskew.io.arrow_files import (
    encode_arrow,
    encode_parquet,
    has_arrow,
    read_arrow,
    read_delimited_fast,
    read_parquet,
    require_arrow,
)
from unskew.io.model_files import replace_file
from unskew.io.sources import STANDARD_STREAM, FileSource, Format, infer_format
from unskew.io.table import FileTable
from unskew.io.text_files import DELIMITERS, read_delimited, read_json_lines

ARROW_READERS: Mapping[Format, Callable[[FileSource], FileTable]] = {
    "parquet": read_parquet,
    "arrow": read_arrow,
}
ARROW_ENCODERS: Mapping[Format, Callable[[dict[str, Any]], bytes]] = {
    "parquet": encode_parquet,
    "arrow": encode_arrow,
}


def read_table(source: FileSource | str) -> FileTable:
    """The table in a file; an error if the file is damaged, which names the place."""
    file = FileSource.from_name(source) if isinstance(source, str) else source
    if file.path is not None and file.path.is_dir():
        raise BadFileError(f"{file.label} is a folder, not a file.", remedy="Name a file in it.")
    if file.format in ARROW_READERS:
        require_arrow(f"reading {file.label}")
        return ARROW_READERS[file.format](file)
    if file.format == "jsonl":
        return read_json_lines(file)
    return read_delimited_fast(file) if has_arrow() else read_delimited(file)


def write_table(
    columns: Mapping[str, Sequence[Any]],
    name: str,
    *,
    format: Format | None = None,  # noqa: A002
) -> None:
    """Write columns of one length to a file, completely or not at all; ``-`` is standard output."""
    content = _encode(dict(columns), infer_format(name, format), name)
    if name != STANDARD_STREAM:
        is_gzipped = name.endswith(".gz")
        replace_file(Path(name), gzip.compress(content, mtime=0) if is_gzipped else content)
    elif hasattr(sys.stdout, "buffer"):
        sys.stdout.buffer.write(content)
    else:
        sys.stdout.write(content.decode())


def _encode(columns: dict[str, Any], form: Format, name: str) -> bytes:
    if form in ARROW_ENCODERS:
        require_arrow(f"writing {name}")
        return ARROW_ENCODERS[form](columns)
    lists = [
        values.tolist() if isinstance(values, np.ndarray) else values for values in columns.values()
    ]
    rows = zip(*lists, strict=True)
    if form == "jsonl":
        return _encode_json_lines(columns, rows).encode()
    return _encode_delimited(columns, rows, DELIMITERS[form]).encode()


def _encode_delimited(names: Iterable[str], rows: Iterable[tuple[Any, ...]], delimiter: str) -> str:
    text = io.StringIO(newline="")
    writer = csv.writer(text, delimiter=delimiter, lineterminator="\n")
    writer.writerow(names)
    writer.writerows(rows)
    return text.getvalue()


def _encode_json_lines(names: Iterable[str], rows: Iterable[tuple[Any, ...]]) -> str:
    """One object a line; NaN and infinity, which JSON does not have, become null."""
    return "".join(
        json.dumps(dict(zip(names, map(_finite_or_none, row), strict=True)), default=str) + "\n"
        for row in rows
    )


def _finite_or_none(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value
