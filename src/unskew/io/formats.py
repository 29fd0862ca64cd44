"""The forms that a table's file may have, told by its name."""

from __future__ import annotations

import gzip
import io
import sys
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import BinaryIO, Literal, TypeAlias, cast

from unskew.errors import BadFileError, UsageError

Format: TypeAlias = Literal["csv", "tsv", "jsonl", "parquet", "arrow"]
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
GZIP = b"\x1f\x8b"


def format_of(name: str, given: Format | None = None) -> Format:
    """The format that is given, else that of the file's extension, ``.gz`` aside; standard input and output are CSV."""
    if given is not None:
        return given
    if name == STANDARD_STREAM:
        return "csv"
    extension = Path(name.removesuffix(".gz")).suffix.lower()
    if extension not in EXTENSIONS:
        raise UsageError(
            f"{name}: the extension {extension!r} does not tell the format; "
            f"known ones are {', '.join(EXTENSIONS)}. Pass format=..., one of {', '.join(FORMATS)}."
        )
    return EXTENSIONS[extension]


@dataclass(frozen=True)
class Source:
    """A file, or standard input, that can be opened again and again; what is gzipped is unpacked, whatever its name."""

    name: str
    format: Format
    columns: tuple[str, ...] = ()
    """Names of the columns, for a text file without a line of them."""

    @classmethod
    def of(
        cls, name: str, *, format: Format | None = None, columns: tuple[str, ...] = ()
    ) -> Source:  # noqa: A002
        """A file by its name; ``-`` is standard input."""
        found = format_of(name, format)
        if columns and found not in ("csv", "tsv"):
            raise UsageError(
                f"{name}: a {found} file names its columns itself; leave columns=[...] out."
            )
        return cls(name, found, columns)

    @property
    def shown(self) -> str:
        """How errors call it."""
        return "standard input" if self.name == STANDARD_STREAM else self.name

    @property
    def is_file(self) -> bool:
        """Whether others can open it by its name."""
        return self.name != STANDARD_STREAM and not self._is_gzipped

    @property
    def n_bytes(self) -> int:
        """Its size as it lies there."""
        return len(self._stream) if self.name == STANDARD_STREAM else Path(self.name).stat().st_size

    def open(self) -> BinaryIO:
        """Its content, from the start."""
        if self.name == STANDARD_STREAM:
            stream = io.BytesIO(self._stream)
            return cast(BinaryIO, gzip.GzipFile(fileobj=stream)) if self._is_gzipped else stream
        return (
            cast(BinaryIO, gzip.GzipFile(self.name))
            if self._is_gzipped
            else Path(self.name).open("rb")
        )

    def read(self) -> bytes:
        """All of its content."""
        try:
            with self.open() as file:
                return file.read()
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise self.broken_gzip(error) from error

    def broken_gzip(self, error: Exception) -> BadFileError:
        """That it cannot be unpacked."""
        return BadFileError(
            f"{self.shown} is not a whole gzip file: {error}. Take a fresh copy of the file."
        )

    @cached_property
    def _stream(self) -> bytes:
        return sys.stdin.buffer.read()

    @cached_property
    def _is_gzipped(self) -> bool:
        if self.name == STANDARD_STREAM:
            return self._stream.startswith(GZIP)
        with Path(self.name).open("rb") as file:
            return file.read(2) == GZIP
