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
    arrow_bytes,
    has_arrow,
    parquet_bytes,
    read_arrow,
    read_delimited_fast,
    read_parquet,
)
from unskew.io.formats import STANDARD_STREAM, Format, Source, format_of
from unskew.io.model_files import replace_file
from unskew.io.table import Table
from unskew.io.text_files import DELIMITERS, read_delimited, read_json_lines

READERS: Mapping[Format, Callable[[Source], Table]] = {
    "csv": lambda source: read_delimited_fast(source) if has_arrow() else read_delimited(source),
    "tsv": lambda source: read_delimited_fast(source) if has_arrow() else read_delimited(source),
    "jsonl": read_json_lines,
    "parquet": read_parquet,
    "arrow": read_arrow,
}


def read_table(source: Source | str) -> Table:
    """The table in a file, which is refused where it is not whole; the error says where."""
    file = Source.of(source) if isinstance(source, str) else source
    if file.name != STANDARD_STREAM and Path(file.name).is_dir():
        raise BadFileError(f"{file.name} is a folder, not a file. Name a file in it.")
    return READERS[file.format](file)


def write_table(
    columns: Mapping[str, Sequence[Any]], name: str, *, format: Format | None = None
) -> None:  # noqa: A002
    """Write columns of one length to a file, all of it or nothing; ``-`` is standard output."""
    content = _content(dict(columns), format_of(name, format), name)
    if name == STANDARD_STREAM:
        sys.stdout.buffer.write(content) if hasattr(sys.stdout, "buffer") else sys.stdout.write(
            content.decode()
        )
        return
    replace_file(Path(name), gzip.compress(content, mtime=0) if name.endswith(".gz") else content)


def _content(columns: dict[str, Any], form: Format, name: str) -> bytes:
    if form == "parquet":
        return parquet_bytes(columns, name)
    if form == "arrow":
        return arrow_bytes(columns, name)
    rows = zip(*(_listed(values) for values in columns.values()), strict=True)
    return (
        _json_lines(columns, rows)
        if form == "jsonl"
        else _delimited(columns, rows, DELIMITERS[form])
    ).encode()


def _listed(values: Any) -> Iterable[Any]:
    listed: Iterable[Any] = values.tolist() if isinstance(values, np.ndarray) else values
    return listed


def _delimited(names: Iterable[str], rows: Iterable[tuple[Any, ...]], delimiter: str) -> str:
    text = io.StringIO(newline="")
    writer = csv.writer(text, delimiter=delimiter, lineterminator="\n")
    writer.writerow(names)
    writer.writerows(rows)
    return text.getvalue()


def _json_lines(names: Iterable[str], rows: Iterable[tuple[Any, ...]]) -> str:
    return "".join(
        json.dumps(dict(zip(names, map(_json_value, row), strict=True)), default=str) + "\n"
        for row in rows
    )


def _json_value(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value
