"""``unskew doctor``: what is installed, and how to add what is missing."""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import astuple, dataclass
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path

import click

from unskew._version import __version__
from unskew.cli import options
from unskew.cli.printing import open_console, print_lines
from unskew.cli.program import declare_command
from unskew.datasets import DATASETS

REQUIRED_PACKAGES = ("numpy", "scipy", "numba", "scikit-learn", "narwhals", "click", "rich")
NOT_FOR_USERS = ("all", "dev", "docs", "oldest")
"""Extras that doctor leaves out: the sum of others, and tools of development."""


@declare_command("doctor", "Check the installation: versions, extras, caches, data sets.", order=10)
@options.json_option
def doctor(as_json: bool) -> None:
    """Show versions, threads, the kernel cache, extras and data sets, one line each.

    Something that is missing is shown with the command that installs it. The exit code is 1 if
    unskew cannot work without it.

    \b
    Example:
      unskew doctor
    """  # noqa: D301
    checks = list(check_installation())
    if as_json:
        keys = ("what", "found", "is_fine", "remedy")
        rows = [dict(zip(keys, astuple(check), strict=True)) for check in checks]
        click.echo(json.dumps(rows))
    else:
        width = max(len(check.what) for check in checks) + 2
        print_lines(
            open_console(),
            (
                f"{'  ' if check.is_fine else '! '}{check.what:<{width}}{check.status}"
                f"{f'   -> {check.remedy}' if check.remedy else ''}"
                for check in checks
            ),
        )
    click.get_current_context().exit(0 if all(check.is_fine for check in checks) else 1)


@dataclass(frozen=True, slots=True)
class InstallationCheck:
    """One thing that was checked."""

    what: str
    status: str
    """Its version or its place, or that it is missing."""
    is_fine: bool = True
    """False if unskew cannot work without it."""
    remedy: str = ""


def check_installation() -> Iterator[InstallationCheck]:
    """All checks, in the order in which they are shown."""
    from unskew.threads import count_threads, describe_blas

    system = f"{platform.python_version()} on {platform.system()} {platform.machine()}"
    yield InstallationCheck("unskew", __version__)
    yield InstallationCheck("Python", system)
    yield _check_required()
    yield InstallationCheck("threads", f"{count_threads(None)}; BLAS {describe_blas()}")
    yield _check_kernel_cache()
    for extra, packages in _list_extras().items():
        yield _check_extra(extra, packages)
    yield _check_datasets()


def _check_required() -> InstallationCheck:
    versions = {name: _find_version(name) for name in REQUIRED_PACKAGES}
    missing = [name for name, number in versions.items() if number is None]
    if missing:
        remedy = f"pip install {' '.join(missing)}"
        return InstallationCheck("packages", f"{_join(missing)} not installed", False, remedy)
    return InstallationCheck("packages", _join(f"{name} {versions[name]}" for name in versions))


def _check_extra(extra: str, packages: Sequence[str]) -> InstallationCheck:
    """Whether the packages of an extra are installed, and Java for Spark."""
    versions = {name: _find_version(name) for name in packages}
    missing = [name for name, number in versions.items() if number is None]
    what = f"extra {extra}"
    if missing:
        remedy = f"pip install 'unskew[{extra}]'"
        return InstallationCheck(what, f"{_join(missing)} not installed", remedy=remedy)
    installed = _join(f"{name} {versions[name]}" for name in versions)
    if "pyspark" in packages and not _has_java():
        remedy = "install a JDK, or set JAVA_HOME"
        return InstallationCheck(what, f"{installed}, but no Java", remedy=remedy)
    return InstallationCheck(what, installed)


def _check_datasets() -> InstallationCheck:
    from unskew.datasets.location import find_folder

    present = [name for name in DATASETS if find_folder(name)]
    if present:
        return InstallationCheck("data sets", _join(present))
    return InstallationCheck("data sets", "none found", remedy="unskew data list")


def _find_version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _join(names: Iterable[str]) -> str:
    return ", ".join(names)


def _list_extras() -> dict[str, list[str]]:
    """The packages of each extra that users choose, as unskew's metadata declare."""
    extras: dict[str, list[str]] = {}
    for requirement in requires("unskew") or ():
        parts = re.fullmatch(r"([\w.-]+)[^;]*;.*\bextra\s*==\s*(['\"])([\w.-]+)\2.*", requirement)
        if parts is not None and parts[1] != "unskew" and parts[3] not in NOT_FOR_USERS:
            extras.setdefault(parts[3], []).append(parts[1])
    return extras


def _has_java() -> bool:
    folder = os.environ.get("JAVA_HOME")
    in_folder = folder and shutil.which("java", path=str(Path(folder) / "bin"))
    return bool(in_folder or shutil.which("java"))


def _check_kernel_cache() -> InstallationCheck:
    """Numba keeps compiled kernels in $NUMBA_CACHE_DIR, in the package, or in ``~/.cache``."""
    in_package = Path(__file__).parent.parent / "kernels" / "__pycache__"
    variable = os.environ.get("NUMBA_CACHE_DIR")
    folder = Path(variable) if variable else in_package
    user_cache = Path.home() / ".cache"
    if _can_write(folder):
        n_kernels = len(list(folder.rglob("*.nbi")))
        return InstallationCheck("kernel cache", f"{folder} ({n_kernels} kernels compiled)")
    if not variable and _can_write(user_cache):
        text = f"{user_cache}, because {in_package} is not writable"
        return InstallationCheck("kernel cache", text)
    return InstallationCheck(
        "kernel cache",
        f"none: {folder} is not writable, so every process compiles the kernels again",
        remedy="export NUMBA_CACHE_DIR=FOLDER with a writable folder",
    )


def _can_write(folder: Path) -> bool:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return True
    except OSError:
        return False
