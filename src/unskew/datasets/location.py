"""Where the files of a data set are: the caller's path, ``$UNSKEW_DATA``, or a download."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeAlias, TypeVar

from unskew.datasets import DATASETS
from unskew.errors import DatasetFormatError, DatasetNotFoundError, MissingExtraError, UsageError
from unskew.io.sources import FilePath
from unskew.tables import count_noun

VARIABLE = "UNSKEW_DATA"

PathLike: TypeAlias = str | os.PathLike[str] | None
Files: TypeAlias = tuple[FilePath, ...]


@dataclass(frozen=True, slots=True)
class Archive:
    """A zip file at its official address, and checksums of the published content."""

    url: str
    digest: str
    """SHA-256 of the parsed content: other line ends do not change it, other content does."""
    checksum: str | None = None
    """``algorithm:hex`` of the zip file's bytes, if its owner publishes one."""


@dataclass(frozen=True, slots=True)
class DatasetSource:
    """The files of a published data set, their usual folders, and how to get them."""

    name: str
    """What users type, such as ``coat``."""
    title: str
    layouts: tuple[tuple[str, ...], ...]
    """Sets of files, each of which is enough; the first complete one is read."""
    folders: tuple[str, ...]
    how_to_get: str
    archive: Archive | None = None


class HasDigest(Protocol):
    """A parsed data set with a checksum."""

    @property
    def digest(self) -> str:
        """SHA-256 of the parsed content."""
        ...


DataSet = TypeVar("DataSet", bound=HasDigest)


def find_files(source: DatasetSource, path: PathLike) -> Files:
    """The files of ``source`` in ``path``, or in ``$UNSKEW_DATA`` if ``path`` is None."""
    folders = _search_folders(source, path)
    files = _find_complete(source, folders)
    if files is None:
        raise _not_found_error(source, folders)
    return files


def find_or_download(
    source: DatasetSource, path: PathLike, read: Callable[[Files], DataSet]
) -> DataSet:
    """``read(files)``; the files are downloaded if ``path`` is None and they are not found."""
    folders = _search_folders(source, path)
    files = _find_complete(source, folders)
    if files is not None:
        return read(files)
    if source.archive is None or path is not None:
        raise _not_found_error(source, folders)
    archive_file = _download(source, source.archive, folders)
    return _read_download(source, source.archive, archive_file, read)


def find_folder(name: str, path: PathLike = None) -> str | None:
    """The folder with the files of a data set; None if they are not found."""
    try:
        files = find_files(DATASETS.find(name).traits["source"], path)
    except DatasetNotFoundError:
        return None
    # os.path also handles files inside a zip file
    return os.path.commonpath([os.path.dirname(str(file)) for file in files])  # noqa: PTH120


def check_dataset(name: str, path: PathLike = None) -> str:
    """Read a data set, compare it with the published digest, and describe it in one line."""
    declaration = DATASETS.find(name)
    source: DatasetSource = declaration.traits["source"]
    find_files(source, path)
    data = declaration.target(path)
    sizes = _describe_sizes(data)
    if source.archive is None:
        return f"readable: {sizes}; there is no published digest to compare with"
    if data.digest != source.archive.digest:
        raise DatasetFormatError(
            f"{source.title} in {find_folder(name, path)} is not what was published: "
            f"the content has SHA-256 {data.digest}, expected {source.archive.digest}.",
            value=data.digest,
            remedy=source.how_to_get,
        )
    return f"as published: {sizes}; SHA-256 {data.digest[:16]}..."


def _describe_sizes(data: Any) -> str:
    if hasattr(data, "log"):
        log, row = data.log, "impression"
    else:
        log, row = data.train if hasattr(data, "train") else data.ratings, "rating"
    return (
        f"{count_noun(len(log), row)} by {count_noun(log.n_users, 'user')} "
        f"on {count_noun(log.n_items, 'item')}"
    )


def describe_search(path: PathLike = None) -> str:
    """Where data sets are searched, as a phrase."""
    if path is not None:
        return str(path)
    folder = os.environ.get(VARIABLE)
    if folder:
        return f"{folder} (${VARIABLE})"
    return f"no folder: ${VARIABLE} is not set, and no folder was named"


def _search_folders(source: DatasetSource, path: PathLike) -> list[Path]:
    """``path``, or else ``$UNSKEW_DATA``, and the usual folders in it."""
    root = path if path is not None else os.environ.get(VARIABLE)
    if root is None or (isinstance(root, str) and not root):
        return []
    if not isinstance(root, (str, os.PathLike)):
        raise UsageError(
            f"`path` must be the folder of {source.title}, as text or as a path; got {root!r}.",
            parameter="path",
            value=root,
        )
    try:
        folder = Path(root).expanduser()
    except RuntimeError as error:
        raise DatasetNotFoundError(
            f"{source.title} was not found in {root}: there is no user with the home folder "
            f"{Path(root).parts[0]}.",
            dataset=source.name,
            remedy="Pass the whole path of the folder, without ~.",
        ) from error
    return [folder, *(folder / name for name in source.folders)]


def _find_complete(source: DatasetSource, folders: Sequence[FilePath]) -> Files | None:
    candidates = (
        tuple(folder.joinpath(name) for name in layout)
        for folder in folders
        for layout in source.layouts
    )
    return next((files for files in candidates if all(file.is_file() for file in files)), None)


def _not_found_error(
    source: DatasetSource, folders: Sequence[Path], reason: str = ""
) -> DatasetNotFoundError:
    return DatasetNotFoundError(
        _describe_missing(source, folders),
        dataset=source.name,
        remedy=f"{source.how_to_get}{reason and ' '}{reason}",
    )


def _describe_missing(source: DatasetSource, folders: Sequence[Path]) -> str:
    if not folders:
        where = f"No path was given and ${VARIABLE} is not set."
    else:
        tried = "".join(f"\n  {folder}: {_describe_lack(source, folder)}" for folder in folders)
        where = f"Searched in:{tried}\n"
    return f"{source.title} was not found. {where}"


def _describe_lack(source: DatasetSource, folder: Path) -> str:
    if not folder.is_dir():
        return "no such folder"
    missing = (
        [name for name in layout if not (folder / name).is_file()] for layout in source.layouts
    )
    fewest: list[str] = min(missing, key=len)
    return f"lacks {', '.join(fewest)}"


def _download(source: DatasetSource, archive: Archive, folders: Sequence[Path]) -> Path:
    """The zip file in the cache folder of the operating system, downloaded if it is not there."""
    pooch = _import_pooch(source, folders)
    try:
        file = pooch.retrieve(
            archive.url,
            known_hash=archive.checksum,
            fname=archive.url.rpartition("/")[2],
            path=pooch.os_cache("unskew"),
        )
    except OSError as error:
        reason = f"The download of {archive.url} failed: {error}"
        raise _not_found_error(source, folders, reason) from error
    except ValueError as error:
        raise DatasetFormatError(
            f"{archive.url} does not have its published checksum {archive.checksum}: {error}",
            value=archive.url,
            remedy=source.how_to_get,
        ) from error
    return Path(file)


def _import_pooch(source: DatasetSource, folders: Sequence[Path]) -> Any:
    try:
        import pooch
    except ImportError as error:
        missing = _describe_missing(source, folders)
        raise MissingExtraError(
            "pooch",
            extra="data",
            purpose=f"{missing} To download it, unskew",
            alternative=source.how_to_get,
        ) from error
    return pooch


def _read_download(
    source: DatasetSource, archive: Archive, file: Path, read: Callable[[Files], DataSet]
) -> DataSet:
    """Read the files inside the zip file; a wrong zip file is removed from the cache."""
    try:
        data = _read_zip(source, file, read)
        if data.digest != archive.digest:
            raise DatasetFormatError(
                f"{file}: the content has SHA-256 {data.digest}, expected {archive.digest}.",
                value=data.digest,
            )
    except DatasetFormatError as error:
        file.unlink()
        raise DatasetFormatError(
            f"the download of {archive.url} is not {source.title} as published, and was removed: "
            f"{error.problem}",
            value=archive.url,
            remedy=source.how_to_get,
        ) from error
    return data


def _read_zip(source: DatasetSource, file: Path, read: Callable[[Files], DataSet]) -> DataSet:
    try:
        with zipfile.ZipFile(file) as content:
            root = zipfile.Path(content)
            folders = [root, *(root.joinpath(name) for name in source.folders)]
            files = _find_complete(source, folders)
            if files is None:
                raise DatasetFormatError(f"{file} lacks some of {', '.join(source.layouts[0])}.")
            return read(files)
    except zipfile.BadZipFile as error:
        raise DatasetFormatError(
            f"{file} is not a zip file, or not a whole one.", remedy="Download it again."
        ) from error
