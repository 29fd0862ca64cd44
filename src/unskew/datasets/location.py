"""Where the files of a data set are: the caller's path, ``$UNSKEW_DATA``, or a checked download."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeAlias, TypeVar

from unskew.datasets.tables import File
from unskew.errors import DatasetFormatError, DatasetNotFoundError, MissingExtraError, UsageError

VARIABLE = "UNSKEW_DATA"

PathLike: TypeAlias = str | os.PathLike[str] | None
Files: TypeAlias = tuple[File, ...]


@dataclass(frozen=True, slots=True)
class Archive:
    """A zip file at its official address, and what proves that it is the published one."""

    url: str
    digest: str
    """SHA-256 of the parsed content: copies with other line ends pass, other content does not."""
    checksum: str | None = None
    """``algorithm:hex`` of the zip file's bytes, where its owner publishes one."""


@dataclass(frozen=True, slots=True)
class Source:
    """A published data set: its files, the folders they usually lie in, and how to get them."""

    name: str
    layouts: tuple[tuple[str, ...], ...]
    """Sets of files that make up the data set, each enough alone; the first that is there is read."""
    folders: tuple[str, ...]
    how_to_get: str
    archive: Archive | None = None


class Digestible(Protocol):
    """A parsed data set that can tell its checksum."""

    @property
    def digest(self) -> str:
        """SHA-256 of the parsed content."""
        ...


DataSet = TypeVar("DataSet", bound=Digestible)


def find(source: Source, path: PathLike) -> Files:
    """The files of ``source`` below ``path``, or below ``$UNSKEW_DATA`` where no path is given."""
    places = _places(source, path)
    found = _first_complete(source, places)
    if found is None:
        raise DatasetNotFoundError(_not_found(source, places))
    return found


def find_or_download(source: Source, path: PathLike, read: Callable[[Files], DataSet]) -> DataSet:
    """What ``read`` makes of the files; they are downloaded where no path is given and ``$UNSKEW_DATA`` lacks them."""
    places = _places(source, path)
    found = _first_complete(source, places)
    if found is not None:
        return read(found)
    if source.archive is None or path is not None:
        raise DatasetNotFoundError(_not_found(source, places))
    return _read_checked(source, source.archive, _download(source, source.archive, places), read)


def _places(source: Source, path: PathLike) -> list[Path]:
    """The root itself and its usual sub-folders; a path that is given is the only root."""
    root = path if path is not None else os.environ.get(VARIABLE)
    if root is None or root == "":
        return []
    folder = _folder(source, root)
    return [folder, *(folder / name for name in source.folders)]


def _folder(source: Source, root: object) -> Path:
    if not isinstance(root, (str, os.PathLike)):
        raise UsageError(
            f"path must be the folder that {source.name} lies in, as text or as a path; got {root!r}."
        )
    try:
        return Path(root).expanduser()
    except RuntimeError as error:
        raise DatasetNotFoundError(
            f"{source.name} was not found: no user has the home folder of {root}. {source.how_to_get}"
        ) from error


def _first_complete(source: Source, places: Sequence[File]) -> Files | None:
    candidates = (
        tuple(place.joinpath(name) for name in layout)
        for place in places
        for layout in source.layouts
    )
    return next((files for files in candidates if all(file.is_file() for file in files)), None)


def _not_found(source: Source, places: Sequence[Path]) -> str:
    looked = "".join(f"\n  {place}: {_lack(source, place)}" for place in places)
    where = f"Looked in:{looked}\n" if places else f"No path was given and ${VARIABLE} is not set. "
    return f"{source.name} was not found. {where}{source.how_to_get}"


def _lack(source: Source, place: Path) -> str:
    if not place.is_dir():
        return "no such folder"
    missing = [
        [name for name in layout if not (place / name).is_file()] for layout in source.layouts
    ]
    fewest = min(missing, key=len)
    return f"lacks {', '.join(fewest)}"


def _download(source: Source, archive: Archive, places: Sequence[Path]) -> Path:
    """The zip file in the cache folder of the operating system, fetched if it is not there yet."""
    pooch = _pooch(source, places)
    try:
        file = pooch.retrieve(
            archive.url,
            known_hash=archive.checksum,
            fname=archive.url.rpartition("/")[2],
            path=pooch.os_cache("unskew"),
        )
    except OSError as error:
        raise DatasetNotFoundError(
            f"{_not_found(source, places)} The download of {archive.url} failed: {error}"
        ) from error
    except ValueError as error:
        raise DatasetFormatError(
            f"{archive.url} does not have its published checksum {archive.checksum}: {error} {source.how_to_get}"
        ) from error
    return Path(file)


def _pooch(source: Source, places: Sequence[Path]) -> Any:
    try:
        import pooch
    except ImportError as error:
        purpose = f"{_not_found(source, places)} To download it from here"
        raise MissingExtraError("pooch", extra="data", purpose=purpose) from error
    return pooch


def _read_checked(
    source: Source, archive: Archive, file: Path, read: Callable[[Files], DataSet]
) -> DataSet:
    """Read the zip file in place, so that nothing is ever unpacked; a bad one does not stay in the cache."""
    try:
        data = _read_zip(source, file, read)
        if data.digest != archive.digest:
            raise DatasetFormatError(
                f"{file}: the content has SHA-256 {data.digest}, expected {archive.digest}."
            )
    except DatasetFormatError as error:
        file.unlink()
        raise DatasetFormatError(
            f"the download of {archive.url} is not {source.name} as published, and was removed: {error} {source.how_to_get}"
        ) from error
    return data


def _read_zip(source: Source, file: Path, read: Callable[[Files], DataSet]) -> DataSet:
    try:
        with zipfile.ZipFile(file) as content:
            root = zipfile.Path(content)
            found = _first_complete(
                source, [root, *(root.joinpath(name) for name in source.folders)]
            )
            if found is None:
                raise DatasetFormatError(f"{file} lacks some of {', '.join(source.layouts[0])}.")
            return read(found)
    except zipfile.BadZipFile as error:
        raise DatasetFormatError(f"{file} is not a zip file: {error}.") from error
