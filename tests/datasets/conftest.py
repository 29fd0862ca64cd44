from __future__ import annotations

import os
import sys
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

import pytest

from unskew.errors import DatasetNotFoundError

Files = Mapping[str, str]
DataSet = TypeVar("DataSet")


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    """Writes Latin-1 files under a new folder, with the given line ends; returns the folder."""

    def write_files(files: Files, *, newline: str = "\n", folder: str = "given") -> Path:
        root = tmp_path / folder
        for name, text in files.items():
            file = root / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(text.replace("\n", newline).encode("latin-1"))
        return root

    return write_files


class FakePooch:
    """Returns a zip file with the given members instead of a download, and records the requests."""

    def __init__(self, cache: Path, members: dict[str, str]) -> None:
        self.cache, self.members = cache, members
        self.requests: list[tuple[str, str | None]] = []

    def os_cache(self, project: str) -> Path:
        return self.cache / project

    def retrieve(self, url: str, known_hash: str | None, fname: str, path: Path) -> str:
        self.requests.append((url, known_hash))
        path.mkdir(parents=True, exist_ok=True)
        with zipfile.ZipFile(path / fname, "w") as content:
            for name, text in self.members.items():
                content.writestr(name, text)
        return str(path / fname)


@pytest.fixture
def serve(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[dict[str, str]], FakePooch]:
    def install(members: dict[str, str]) -> FakePooch:
        fake = FakePooch(tmp_path / "cache", members)
        monkeypatch.setitem(sys.modules, "pooch", fake)
        return fake

    return install


@pytest.fixture(scope="session")
def real() -> Callable[[Callable[[str], DataSet]], DataSet]:
    """Loads a real data set from $UNSKEW_DATA alone, or skips the test."""

    def load_or_skip(load: Callable[[str], DataSet]) -> DataSet:
        folder = os.environ.get("UNSKEW_DATA")
        if not folder:
            pytest.skip("$UNSKEW_DATA is not set, so the real data are not there to check")
        try:
            return load(folder)
        except DatasetNotFoundError as error:
            pytest.skip(f"$UNSKEW_DATA does not hold the real data: {error}")

    return load_or_skip
