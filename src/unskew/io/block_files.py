"""Tables that are written block by block, in memory for one block."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from unskew.errors import UsageError
from unskew.io.formulas import warn_about_formulas
from unskew.io.writing import as_path, open_new
from unskew.registry import require_package


def write_blocks(blocks: Iterable[Mapping[str, Any]], path: str | Path) -> int:
    """Write blocks of columns to a Parquet or CSV file, and return the number of rows.

    All blocks have the same columns. An old file stays as it was until the new one is complete.
    """
    target = as_path(path)
    if target.suffix not in (".parquet", ".csv"):
        raise UsageError(
            f"{target.name} must end in .parquet or .csv.",
            parameter="path",
            value=str(path),
            remedy="Choose one of these formats: they can be written block by block.",
        )
    write = _write_parquet if target.suffix == ".parquet" else _write_csv
    if target.suffix == ".csv":
        blocks = _check_text(blocks, target.name)
    with open_new(target) as file:
        return write(blocks, file)


def _check_text(blocks: Iterable[Mapping[str, Any]], name: str) -> Iterator[Mapping[str, Any]]:
    for block in blocks:
        warn_about_formulas(block, name)
        yield block


def _write_parquet(blocks: Iterable[Mapping[str, Any]], file: BinaryIO) -> int:
    require_package("pyarrow", extra="io", purpose="writing Parquet files")
    import pyarrow as pa
    from pyarrow import parquet

    n_rows, writer = 0, None
    try:
        for block in blocks:
            table = pa.table({name: pa.array(values) for name, values in block.items()})
            writer = writer or parquet.ParquetWriter(file, table.schema)
            writer.write_table(table)
            n_rows += table.num_rows
    finally:
        if writer is not None:
            writer.close()
    return n_rows


def _write_csv(blocks: Iterable[Mapping[str, Any]], file: BinaryIO) -> int:
    import csv

    n_rows, has_header = 0, False
    text = io.TextIOWrapper(file, encoding="utf-8", newline="", write_through=True)
    writer = csv.writer(text)
    try:
        for block in blocks:
            if not has_header:
                writer.writerow(block)
                has_header = True
            columns = [np.asarray(values).tolist() for values in block.values()]
            writer.writerows(zip(*columns, strict=True))
            n_rows += len(columns[0])
    finally:
        text.detach()
    return n_rows
