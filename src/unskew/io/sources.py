"""Files of tables: their formats, and how their bytes are read."""

from __future__ import annotations

import gzip
import io
import sys
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import BinaryIO, Literal, TypeAlias, cast

from unskew.errors import BadFileError, UsageError

Format: TypeAlias = Literal["csv", "tsv", "jsonl", "parquet", "arrow"]
FilePath: TypeAlias = Path | zipfile.Path
EXTENSIONS: Mapping[str, Format] = {
    ".csv": "csv",
    ".tsv": "tsv",
    ".tab": "tsv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".arrow": "arrow",
    ".feather": "arrow",
    ".ipc": "arrow",
}
FORMATS: tuple[Format, ...] = ("csv", "tsv", "jsonl", "parquet", "arrow")
STANDARD_STREAM = "-"
GZIP_START = b"\x1f\x8b"


def infer_format(name: str, format: Format | None = None) -> Format:  # noqa: A002
    """``format`` if it is given, else the format of the file's extension, without ``.gz``.

    Standard input and output (``-``) are CSV.
    """
    if format is not None:
        return format
    if name == STANDARD_STREAM:
        return "csv"
    extension = Path(name.removesuffix(".gz")).suffix.lower()
    if extension not in EXTENSIONS:
        raise UsageError(
            f"{name}: the format is unknown for the extension {extension!r}; "
            f"known extensions are {', '.join(EXTENSIONS)}.",
            parameter="format",
            value=extension,
            remedy=f"Pass `format=...`, one of {', '.join(FORMATS)}.",
        )
    return EXTENSIONS[extension]


@dataclass(frozen=True)
class FileSource:
    """A file, or standard input, that can be read several times; gzip files are unpacked."""

    path: FilePath | None
    """None for standard input."""
    format: Format = "csv"
    columns: tuple[str, ...] = ()
    """Names of the columns, for a text file without a header line."""

    @classmethod
    def from_name(
        cls,
        name: str,
        *,
        format: Format | None = None,  # noqa: A002
        columns: tuple[str, ...] = (),
    ) -> FileSource:
        """The file with this name; ``-`` is standard input."""
        inferred = infer_format(name, format)
        if columns and inferred not in ("csv", "tsv"):
            raise UsageError(
                f"{name}: a {inferred} file has column names of its own.",
                parameter="columns",
                remedy="Leave `columns` out.",
            )
        return cls(None if name == STANDARD_STREAM else Path(name), inferred, columns)

    @property
    def label(self) -> str:
        """The name of the file in errors."""
        return "standard input" if self.path is None else str(self.path)

    def name_line(self, number: int) -> str:
        """How errors refer to the line with this number, from 1 on."""
        return f"line {number}"

    @property
    def is_plain_file(self) -> bool:
        """Whether other libraries can open it by its path."""
        return isinstance(self.path, Path) and not self._is_gzipped

    @property
    def n_bytes(self) -> int:
        """Its size on disk, or the size of standard input."""
        return self.path.stat().st_size if isinstance(self.path, Path) else len(self._stream)

    def open(self) -> BinaryIO:
        """Its unpacked content, from the start."""
        if not self._is_gzipped:
            return self._open_raw()
        if isinstance(self.path, Path):
            return cast(BinaryIO, gzip.GzipFile(self.path))
        return cast(BinaryIO, gzip.GzipFile(fileobj=self._open_raw()))

    def read(self) -> bytes:
        """All of its unpacked content."""
        try:
            with self.open() as file:
                return file.read()
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise self.gzip_error(error) from error

    def gzip_error(self, error: Exception) -> BadFileError:
        """The error for a damaged gzip file."""
        return BadFileError(
            f"{self.label} is not a complete gzip file: {error}.",
            remedy="Copy the file again; this copy is incomplete.",
        )

    def _open_raw(self) -> BinaryIO:
        if self.path is None:
            return io.BytesIO(self._stream)
        return cast(BinaryIO, self.path.open("rb"))

    @cached_property
    def _stream(self) -> bytes:
        return sys.stdin.buffer.read()

    @cached_property
    def _is_gzipped(self) -> bool:
        with self._open_raw() as file:
            return file.read(len(GZIP_START)) == GZIP_START
