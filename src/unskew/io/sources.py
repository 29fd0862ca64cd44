"""Files of tables: their formats, and how their bytes are read, also from other places.

The standard library reads ``https://``; fsspec reads ``s3://`` and others.
"""

from __future__ import annotations

import csv
import gzip
import io
import re
import sys
import urllib.request
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import BinaryIO, Literal, TypeAlias, cast
from urllib.error import HTTPError
from urllib.parse import urlsplit

from unskew.errors import BadFileError, MissingExtraError, UsageError
from unskew.registry import require_package
from unskew.tables import is_unicode

WEB = ("http", "https")
TIMEOUT = 60.0
"""Seconds without an answer after which a web server is given up."""


SCHEMES = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+(::[A-Za-z][A-Za-z0-9+.-]*)*")
"""The schemes of an address; fsspec takes several."""


def is_remote(name: str) -> bool:
    """Whether a name is an address such as ``s3://bucket/log.csv``.

    >>> is_remote("s3://bucket/log.csv"), is_remote("log.csv"), is_remote("C://log.csv")
    (True, False, False)
    >>> is_remote("simplecache::s3://bucket/log.csv")
    True
    """
    scheme, separator, _ = name.partition("://")
    return bool(separator) and SCHEMES.fullmatch(scheme) is not None


@dataclass(frozen=True, slots=True)
class RemotePath:
    """The address of a file that is read as a whole."""

    address: str

    def __str__(self) -> str:
        return self.address

    @property
    def scheme(self) -> str:
        return urlsplit(self.address).scheme

    def is_dir(self) -> bool:
        """Folders are found out when they are read."""
        return False

    def open(self, mode: str = "rb") -> BinaryIO:
        """Its content; an error that names the address if it cannot be had."""
        try:
            return io.BytesIO(self._read())
        except ImportError as error:
            if isinstance(error, MissingExtraError):
                raise
            raise BadFileError(
                f"{self.address} cannot be read: {error}.",
                remedy="Install the package that fsspec names for this kind of address.",
            ) from error
        except MemoryError:
            raise
        except Exception as error:  # packages for addresses raise errors of any type
            raise BadFileError(
                f"{self.address} cannot be read: {error}.",
                remedy="Check the address and the rights to read it.",
            ) from error

    def _read(self) -> bytes:
        if self.scheme in WEB:
            try:
                with urllib.request.urlopen(self.address, timeout=TIMEOUT) as answer:
                    return cast(bytes, answer.read())
            except HTTPError as error:
                error.close()  # it is the open answer of the server
                raise
        require_package("fsspec", extra="remote", purpose=f"reading {self.address}")
        import fsspec

        with fsspec.open(self.address, "rb") as file:
            return cast(bytes, file.read())


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
DELIMITERS: Mapping[str, str] = {"csv": ",", "tsv": "\t"}
GUESSED_DELIMITERS = {",": "comma", "\t": "tab", ";": "semicolon"}
"""What may separate the fields of a text file whose extension does not tell."""
GUESSED_BYTES = 1 << 16
GUESSED_ROWS = 10
"""Delimiters are guessed from so many bytes and rows at the start of a file."""
STANDARD_STREAM = "-"
GZIP_START = b"\x1f\x8b"


def choose_format(name: str, format: Format | None = None) -> Format:  # noqa: A002
    """``format`` if it is given; else what the extension of ``name`` says, leaving out ``.gz``.

    Standard input and output (``-``) are CSV. An unknown extension is an error.
    """
    if format is not None:
        return format
    if name == STANDARD_STREAM:
        return "csv"
    extension = _find_extension(name)
    if extension not in EXTENSIONS:
        raise _unknown_format_error(name)
    return EXTENSIONS[extension]


def _find_extension(name: str) -> str:
    path = name.partition("?")[0] if is_remote(name) else name
    return Path(path.removesuffix(".gz")).suffix.lower()


def _unknown_format_error(name: str) -> UsageError:
    extension = _find_extension(name)
    return UsageError(
        f"{name}: the format is unknown for the extension {extension!r}; "
        f"known extensions are {', '.join(EXTENSIONS)}.",
        parameter="format",
        value=extension,
        remedy=f"Pass `format=...`, one of {', '.join(FORMATS)}.",
    )


@dataclass(frozen=True)
class FileSource:
    """A file, or standard input, that can be read several times; gzip files are unpacked.

    What is not a regular file, such as a named pipe or a file at another place, is read once and
    kept in memory.
    """

    path: FilePath | RemotePath | None
    """None for standard input."""
    format: Format = "csv"
    columns: tuple[str, ...] = ()
    """Names of the columns, for a text file without a header line."""
    is_guessed: bool = False
    """Whether the first lines of a ``csv`` tell the delimiter; if not, it is a comma."""

    @classmethod
    def from_name(
        cls,
        name: str,
        *,
        format: Format | None = None,  # noqa: A002
        columns: tuple[str, ...] = (),
    ) -> FileSource:
        """The file with this name or address; ``-`` is standard input.

        If neither ``format`` nor the extension tells, its first lines tell what separates fields.
        """
        is_unknown = name != STANDARD_STREAM and _find_extension(name) not in EXTENSIONS
        inferred = "csv" if format is None and is_unknown else choose_format(name, format)
        if columns and inferred not in ("csv", "tsv"):
            raise UsageError(
                f"{name}: a {inferred} file has column names of its own.",
                parameter="columns",
                remedy="Leave `columns` out.",
            )
        for column in columns:
            if not is_unicode(column):
                raise UsageError(
                    f"the column name {column!r} has bytes that are not UTF-8.",
                    parameter="columns",
                    value=column,
                    remedy="Write names of columns in UTF-8.",
                )
        is_guessed = format is None and inferred == "csv"
        path = RemotePath(name) if is_remote(name) else Path(name)
        return cls(None if name == STANDARD_STREAM else path, inferred, columns, is_guessed)

    @property
    def label(self) -> str:
        """The name of the file in errors."""
        return "standard input" if self.path is None else str(self.path)

    def name_line(self, number: int) -> str:
        """How errors refer to the line with this number, from 1 on."""
        return f"line {number}"

    @cached_property
    def delimiter(self) -> str:
        """What separates the fields of a CSV or TSV file."""
        if not self.is_guessed:
            return DELIMITERS[self.format]
        is_known = self.path is None or _find_extension(self.label) in EXTENSIONS
        widths = _find_widths(self._read_start())
        if not widths and not is_known:
            raise _unknown_format_error(self.label)
        widest = [each for each, width in widths.items() if width == max(widths.values())]
        if len(widths) > 1 and (not is_known or "," not in widest):
            names = [GUESSED_DELIMITERS[each] for each in widths]
            raise UsageError(
                f"{self.label}: {' or '.join(names)} could separate the fields of the first lines.",
                parameter="format",
                remedy="Pass `format='csv'` for commas or `format='tsv'` for tabs.",
            )
        return "," if "," in widths or not widths else next(iter(widths))

    @property
    def is_plain_file(self) -> bool:
        """Whether other libraries can open it by its path."""
        return self.is_regular and not self._is_gzipped

    @cached_property
    def is_regular(self) -> bool:
        """Whether it has a path and a size, and can be read several times: not if it is a pipe."""
        return isinstance(self.path, Path) and (self.path.is_file() or not self.path.exists())

    @property
    def n_bytes(self) -> int:
        """Its size on disk, or the number of bytes that were read from a stream."""
        if self.is_regular:
            return cast(Path, self.path).stat().st_size
        return len(self._stream)

    def open(self) -> BinaryIO:
        """Its unpacked content, from the start."""
        if not self._is_gzipped:
            return self._open_raw()
        if self.is_regular:
            return cast(BinaryIO, gzip.GzipFile(cast(Path, self.path)))
        return cast(BinaryIO, gzip.GzipFile(fileobj=self._open_raw()))

    def read(self) -> bytes:
        """All of its unpacked content."""
        try:
            with self.open() as file:
                return file.read()
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise self.gzip_error(error) from error

    def _read_start(self) -> str:
        """The first complete lines; empty if they are not text."""
        try:
            with self.open() as file:
                start = file.read(GUESSED_BYTES)
            end = start.rfind(b"\n") + 1 if len(start) == GUESSED_BYTES else len(start)
            return start[:end].decode("utf-8-sig")
        except (UnicodeDecodeError, EOFError, zlib.error, gzip.BadGzipFile):
            return ""

    def gzip_error(self, error: Exception) -> BadFileError:
        """The error for a damaged gzip file."""
        return BadFileError(
            f"{self.label} is not a complete gzip file: {error}.",
            remedy="Copy the file again; this copy is incomplete.",
        )

    def _open_raw(self) -> BinaryIO:
        if self.path is not None and (self.is_regular or isinstance(self.path, zipfile.Path)):
            return cast(BinaryIO, self.path.open("rb"))
        return io.BytesIO(self._stream)

    @cached_property
    def _stream(self) -> bytes:
        if self.path is None:
            return sys.stdin.buffer.read()
        with self.path.open("rb") as file:
            return file.read()

    @cached_property
    def _is_gzipped(self) -> bool:
        with self._open_raw() as file:
            return file.read(len(GZIP_START)) == GZIP_START


def _find_widths(text: str) -> dict[str, int]:
    r"""For each delimiter that gives all first rows the same two or more fields, their number.

    >>> _find_widths("user;item;stars\n1;2;4,5\n")
    {';': 3}
    """
    if text.lstrip().startswith("{") or "\0" in text:  # JSON, or not a text at all
        return {}
    widths = {}
    for delimiter in GUESSED_DELIMITERS:
        rows = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
        try:
            counts = {len(row) for row in islice(filter(None, rows), GUESSED_ROWS)}
        except csv.Error:
            continue
        if len(counts) == 1 and (width := counts.pop()) > 1:
            widths[delimiter] = width
    return widths
