"""What an installation has, and what it lacks with the line that adds it."""

from __future__ import annotations

import os
import platform
import re
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path

from unskew._version import __version__
from unskew.datasets.registry import DATASETS, looked_in
from unskew.threads import blas_in_words, count_threads

CORE = ("numpy", "scipy", "numba", "scikit-learn", "narwhals", "click", "rich")
OUTSIDE_EXTRAS = {
    "pyspark": "evaluate_frame on Spark",
    "polars": "evaluate_frame on polars",
    "pandas": "frames of pandas",
}


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at."""

    what: str
    found: str
    is_fine: bool = True
    remedy: str = ""


def findings() -> Iterator[Finding]:
    """Everything, what is wrong with a remedy."""
    yield Finding("unskew", __version__)
    yield Finding(
        "Python", f"{platform.python_version()} on {platform.system()} {platform.machine()}"
    )
    yield from (_package(name) for name in CORE)
    yield Finding("threads", str(count_threads(None)))
    yield Finding("BLAS", blas_in_words())
    yield _numba_cache()
    yield from _extras()
    yield from _optional()
    yield _java()
    yield Finding("data sets in", looked_in())
    for name, known in DATASETS.items():
        folder = known.folder()
        remedy = (
            f"unskew data fetch {name}{'' if known.source.archive else ' says where to get it'}"
        )
        yield Finding(f"  {name}", folder or "not found", remedy="" if folder else remedy)


def _version_of(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _package(name: str) -> Finding:
    found = _version_of(name)
    return Finding(
        name, found or "not installed", found is not None, "" if found else f"pip install {name}"
    )


def _extras() -> Iterator[Finding]:
    """The optional packages, as the package itself declares them."""
    for requirement in requires("unskew") or ():
        declared = re.fullmatch(r"([\w.-]+)[^;]*;\s*extra\s*==\s*['\"](\w+)['\"]", requirement)
        if declared is None or declared[1] == "unskew" or declared[2] in ("dev", "all"):
            continue
        found = _version_of(declared[1])
        remedy = "" if found else f"pip install 'unskew[{declared[2]}]'"
        yield Finding(f"{declared[1]} [{declared[2]}]", found or "not installed", remedy=remedy)


def _optional() -> Iterator[Finding]:
    for name, purpose in OUTSIDE_EXTRAS.items():
        found = _version_of(name)
        yield Finding(
            name,
            found or "not installed",
            remedy="" if found else f"pip install {name}, for {purpose}",
        )


def _java() -> Finding:
    home = os.environ.get("JAVA_HOME")
    found = shutil.which("java", path=str(Path(home) / "bin")) if home else None
    found = found or shutil.which("java")
    return Finding(
        "Java, for Spark",
        found or "not found",
        remedy="" if found else "install a JDK, or set JAVA_HOME",
    )


def _numba_cache() -> Finding:
    """Compiled kernels are kept beside the package, in $NUMBA_CACHE_DIR, or in the user's own cache."""
    beside = Path(__file__).parent.parent / "kernels" / "__pycache__"
    named = os.environ.get("NUMBA_CACHE_DIR")
    folder = Path(named) if named else beside
    if _can_write(folder):
        n_kept = len(list(folder.rglob("*.nbi")))
        return Finding("kernel cache", f"{folder} ({n_kept} kernels compiled)")
    if not named and _can_write(Path.home() / ".cache"):
        return Finding(
            "kernel cache", f"{Path.home() / '.cache'}, since {beside} cannot be written to"
        )
    remedy = "export NUMBA_CACHE_DIR=FOLDER, one that can be written to; else kernels are compiled in every process"
    return Finding("kernel cache", f"{folder} cannot be written to", is_fine=False, remedy=remedy)


def _can_write(folder: Path) -> bool:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return True
    except OSError:
        return False
