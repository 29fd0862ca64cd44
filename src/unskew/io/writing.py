"""Files that are written completely or not at all; devices and pipes are written as streams.

Tables can be written block by block, in memory for one block. Text that a spreadsheet would take
for a formula is written as it is, with a warning.
"""

from __future__ import annotations

import errno
import io
import os
import re
import secrets
import stat
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from unskew.errors import (
    BadFileError,
    FileWriteError,
    UnskewError,
    UnskewWarning,
    UsageError,
    warn_caller,
)
from unskew.io.sources import is_remote
from unskew.registry import require_package
from unskew.settings import describe
from unskew.tables import count_noun

DESCRIPTOR = re.compile(r"/dev/std(out|err)|/(?:dev|proc/self)/fd/([0-9]+)")
"""Names of open files of this process, which a shell passes for ``>(command)``, for example."""
STANDARD_DESCRIPTORS = {"out": 1, "err": 2}
TEMPORARY = ".unskew-"
"""How the names of files begin that are not complete yet; 16 hexadecimal digits follow."""


def as_path(path: object, parameter: str = "path") -> Path:
    """The path of a file; an error if ``path`` is not text or a path, or no file can have it."""
    target = _as_path(path, parameter)
    if not _can_be_name(target):
        raise _no_path_error(path, parameter)
    return target


def _as_path(path: object, parameter: str) -> Path:
    if isinstance(path, str | os.PathLike):
        text = os.fspath(path)
        if isinstance(text, str) and is_remote(_restore_address(path, text)):
            raise UsageError(
                f"`{parameter}` must be a file of this machine; got {describe(path)}.",
                parameter=parameter,
                value=path,
                remedy="Write or read a file here, and copy it with the tools of the other place.",
            )
        if isinstance(text, str) and text:
            return Path(text)
    raise _no_path_error(path, parameter)


def _no_path_error(path: object, parameter: str) -> UsageError:
    return UsageError(
        f"`{parameter}` must be the path of a file; got {describe(path)}.",
        parameter=parameter,
        value=path,
    )


def _restore_address(path: object, text: str) -> str:
    """The text of a path, with the second slash that ``Path("s3://bucket")`` loses."""
    return text if isinstance(path, str) else text.replace(":/", "://", 1)


def _can_be_name(path: Path) -> bool:
    """Whether a file could have this path; it may not exist."""
    try:
        path.lstat()
    except ValueError:  # a null byte, or half a surrogate pair
        return False
    except OSError as error:
        return error.errno != errno.ENAMETOOLONG
    return True


def write_file(path: Path | str, content: bytes) -> None:
    """Write ``content`` to ``path``, as :func:`open_new` does."""
    with open_new(path) as file:
        file.write(content)


@contextmanager
def open_new(path: Path | str) -> Iterator[BinaryIO]:
    """A file to write to; only at the end it becomes ``path``, in one step.

    If anything fails before, the old file stays as it was. A link is followed, and a file that is
    replaced keeps its permissions. What is not a regular file, such as ``/dev/null`` or a named
    pipe, is written to and never replaced.
    """
    with _name_failures(path):
        target = _as_path(path, "path")
        descriptor = _find_descriptor(target)
        if descriptor is not None:
            opened = _open_stream(os.dup(descriptor))
        elif target.exists() and not target.is_file():
            opened = _open_stream(os.open(target, os.O_WRONLY))
        else:
            opened = _replace(target.resolve())
        with opened as file:
            yield file


@contextmanager
def _name_failures(path: Path | str) -> Iterator[None]:
    try:
        yield
    except (BrokenPipeError, MemoryError, UnskewError):
        raise
    except (OSError, ValueError, RuntimeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        is_full = getattr(error, "errno", None) in (errno.ENOSPC, errno.EDQUOT)
        raise FileWriteError(
            f"{str(path)!r} cannot be written: {reason}.",
            value=path,
            remedy="Free some space, or choose a file on another disk."
            if is_full
            else "Choose another file, or make its folder writeable.",
        ) from error


def _find_descriptor(path: Path) -> int | None:
    """The number of the open file that a path such as ``/dev/stdout`` stands for."""
    match = DESCRIPTOR.fullmatch(str(path))
    if match is None:
        return None
    return STANDARD_DESCRIPTORS[match[1]] if match[1] else int(match[2])


@contextmanager
def _open_stream(descriptor: int) -> Iterator[BinaryIO]:
    """An open file, to write to after what was printed before; it is closed at the end."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(AttributeError, ValueError):  # there is none, or it is closed
            stream.flush()
    with os.fdopen(descriptor, "wb") as file:
        yield file


@contextmanager
def _replace(path: Path) -> Iterator[BinaryIO]:
    """A new file beside the old one, which is renamed over the old one at the end."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f"{TEMPORARY}{secrets.token_hex(8)}")
    try:
        descriptor, is_named = _open_temporary(temporary)
        _lock(descriptor)
        if not is_named:
            _remove_abandoned(path.parent)
        with os.fdopen(descriptor, "wb") as file:
            yield file
            file.flush()
            if path.exists() and hasattr(os, "fchmod"):
                os.fchmod(descriptor, stat.S_IMODE(path.stat().st_mode))
            os.fsync(descriptor)
            if not is_named:  # the directory makes os.link follow the link to the open file
                os.link(f"/proc/self/fd/{descriptor}", temporary, src_dir_fd=descriptor)
                temporary.replace(path)
        if is_named:
            temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    _sync_folder(path.parent)


def _lock(descriptor: int) -> bool:
    """Lock an open file until it is closed or its process ends; False if another has it locked."""
    try:
        import fcntl

        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (ImportError, OSError):
        return False
    return True


def _remove_abandoned(folder: Path) -> None:
    """Remove temporary files whose process was killed between naming and renaming them.

    A process holds the lock of its file before the file has a name, so a free lock says that the
    process has ended. Links, pipes and files with other names stay.
    """
    for path in folder.glob(TEMPORARY + "[0-9a-f]" * 16):
        with suppress(OSError):
            descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
            try:
                if stat.S_ISREG(os.fstat(descriptor).st_mode) and _lock(descriptor):
                    path.unlink()
            finally:
                os.close(descriptor)


def _open_temporary(path: Path) -> tuple[int, bool]:
    """A new file in the folder of ``path``, and whether it has that name already.

    Where the system can, it has no name yet: if this process is killed, nothing stays behind.
    """
    if hasattr(os, "O_TMPFILE") and Path("/proc/self/fd").exists():
        with suppress(OSError):
            return os.open(path.parent, os.O_TMPFILE | os.O_WRONLY, 0o666), False
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
    return os.open(path, flags, 0o666), True


def _sync_folder(folder: Path) -> None:
    """Make the new name survive a loss of power, where the system can."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


FORMULA = re.compile(r"[\t\r]|([^;\t]*[;\t])*[=+\-@]")
"""A spreadsheet may also split a CSV file at semicolons or tabs, so a cell may start after one."""
NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")


def warn_about_formulas(columns: Mapping[str, Iterable[Any]], file: str) -> None:
    """Warn if the text of a CSV or TSV file starts like a formula.

    It is written as it is: only then the same ids are read again.
    """
    formulas = list(_find_formulas(columns))
    if formulas:
        name, value = formulas[0]
        warn_caller(
            UnskewWarning(
                f"{count_noun(len(formulas), 'text')} of {file} could be taken for a formula; the "
                f"first is {str(value)!r} in column {name!r}.",
                value=value,
                remedy="A spreadsheet may run them: import the columns as text, or write Parquet.",
            )
        )


def _find_formulas(columns: Mapping[str, Iterable[Any]]) -> Iterator[tuple[str, str]]:
    for name, values in columns.items():
        if getattr(getattr(values, "dtype", None), "kind", "O") not in "OUT":
            continue
        for value in (name, *values):
            is_text = isinstance(value, str) and FORMULA.match(value)
            if is_text and not NUMBER.fullmatch(value):
                yield name, value


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
            try:
                table = pa.table({name: pa.array(values) for name, values in block.items()})
                writer = writer or parquet.ParquetWriter(file, table.schema)
                writer.write_table(table)
            except (ValueError, TypeError, OverflowError) as error:
                reason = " ".join(str(error).split())
                raise BadFileError(
                    f"these columns cannot be written as Parquet: {reason}.",
                    remedy="Write CSV instead.",
                ) from error
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
