"""Files that grow at their end: only the rows that were not counted yet.

Of an uncompressed text file (CSV, TSV, JSON lines) only the new bytes are read. A last line without
a line end may still be written, so it is left for the next time. Other files are read as a whole,
and the rows that were counted are skipped.
"""

from __future__ import annotations

import hashlib
import io
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias, cast

from unskew.errors import BadFileError, UsageError
from unskew.io.files import read_table
from unskew.io.sources import FileSource
from unskew.io.table import FileTable

TEXT_FORMATS = ("csv", "tsv", "jsonl")
NEW_LINE = b"\n"
CHECKED_BYTES = 1 << 16
"""So many bytes before the new ones must be as they were."""

ReadPosition: TypeAlias = Mapping[str, Any]
"""Where reading stopped, as JSON: rows, bytes, and a digest of what was read last."""


@dataclass(frozen=True, slots=True, eq=False)
class NewRows:
    """The rows of a table from ``first`` on, and where reading stopped."""

    table: FileTable | None
    """None if there is no new row."""
    first: int
    position: ReadPosition
    has_unfinished_line: bool = False


@dataclass(frozen=True)
class FilePart(FileSource):
    """The new part of a text file, under the header of the whole file."""

    whole: FileSource = field(kw_only=True)
    content: bytes = field(default=b"", repr=False)
    header: bytes = b""
    start: int = 0
    """The byte of the whole file at which the new part begins."""

    @cached_property
    def delimiter(self) -> str:
        """What separates the fields of the whole file."""
        return self.whole.delimiter

    def name_line(self, number: int) -> str:
        """The line of the whole file."""
        before = Path(str(self.path)).read_bytes()[len(self.header) : self.start]
        return f"line {number + before.count(NEW_LINE)}"

    @property
    def is_plain_file(self) -> bool:
        """Whether other libraries can open it by its path: they cannot."""
        return False

    def _open_raw(self) -> BinaryIO:
        return cast(BinaryIO, io.BytesIO(self.content))


def read_new_rows(source: FileSource, position: ReadPosition) -> NewRows:
    """The rows that were not counted yet; ``position`` is empty at the first time."""
    if not isinstance(source.path, Path) or not source.is_regular:
        raise UsageError(
            f"{source.label} is a stream and cannot be read again, which a growing log needs.",
            parameter="log",
            remedy="Pass the path of a file.",
        )
    _require_position(source, position)
    if source.is_plain_file and source.format in TEXT_FORMATS:
        return _read_text(source, source.path, position)
    return _read_all(source, position)


def _require_position(source: FileSource, position: ReadPosition) -> None:
    """Raise an error unless a position from a file is one that this module wrote."""
    digest = position.get("digest", "")
    numbers = [position.get(name, 0) for name in ("n_rows", "n_bytes")]
    is_right = all(type(each) is int and 0 <= each <= sys.maxsize for each in numbers)
    if not (is_right and isinstance(digest, str)):
        raise BadFileError(
            f"the state says that {source.label} was read up to {dict(position)!r}, which is not "
            "a position in a file: the state file is damaged.",
            where=source.label,
            remedy="Delete the state file, and count the log from its start.",
        )


def _read_text(source: FileSource, path: Path, position: ReadPosition) -> NewRows:
    has_header = source.format != "jsonl" and not source.columns
    with path.open("rb") as file:
        header = file.readline() if has_header else b""
        start = int(position.get("n_bytes", len(header)))
        checked = max(start - CHECKED_BYTES, 0)
        file.seek(checked)
        content = file.read()
    before, new = content[: start - checked], content[start - checked :]
    digest = position.get("digest")
    if digest is not None and digest != _digest(header, before):
        raise _changed_error(source)
    if has_header and header and not header.endswith(b"\n"):
        return NewRows(None, 0, position, has_unfinished_line=True)
    complete = _cut_unfinished(new, has_quotes=source.format != "jsonl")
    has_unfinished_line = bool(new[len(complete) :].strip())
    n_before = int(position.get("n_rows", 0))
    table = None
    if complete.strip():
        part = FilePart(
            path,
            source.format,
            source.columns,
            whole=source,
            content=header + complete,
            header=header,
            start=start,
        )
        table = read_table(part)
    return NewRows(
        table,
        0,
        {
            "n_rows": n_before + (0 if table is None else len(table)),
            "n_bytes": start + len(complete),
            "digest": _digest(header, (before + complete)[-CHECKED_BYTES:]),
        },
        has_unfinished_line,
    )


def _cut_unfinished(content: bytes, *, has_quotes: bool) -> bytes:
    """All complete lines; a line end between quotation marks is part of a field.

    From the last quotation mark to the first, so that the time is linear in the content.
    """
    n_quotes, end = content.count(b'"') if has_quotes else 0, len(content)
    while end >= 0:
        quote = content.rfind(b'"', 0, end) if n_quotes else -1
        line_end = -1 if n_quotes % 2 else content.rfind(b"\n", quote + 1, end)
        if line_end >= 0:
            return content[: line_end + 1]
        n_quotes, end = n_quotes - 1, quote
    return b""


def _read_all(source: FileSource, position: ReadPosition) -> NewRows:
    table = read_table(source)
    n_before, n_rows = int(position.get("n_rows", 0)), len(table)
    if n_rows < n_before or position.get("digest", "") != _digest_row(table, n_before):
        raise _changed_error(source)
    new = {"n_rows": n_rows, "digest": _digest_row(table, n_rows)}
    return NewRows(table if n_rows > n_before else None, n_before, new)


def _digest_row(table: FileTable, n_rows: int) -> str:
    """A digest of the last of the first ``n_rows`` rows; empty if there is none."""
    if n_rows == 0:
        return ""
    values = [repr(column.value(n_rows - 1)) for column in table.columns.values()]
    return _digest("\n".join(values).encode())


def _digest(*parts: bytes) -> str:
    return hashlib.sha256(b"\0".join(parts)).hexdigest()


def _changed_error(source: FileSource) -> BadFileError:
    """The error for a file whose counted rows are not there any more."""
    return BadFileError(
        f"{source.label} is not the file that was counted before: rows that were counted have "
        "changed or are missing. A growing log may only get longer.",
        where=source.label,
        remedy="Use another `state` file to count this log from its start.",
    )
