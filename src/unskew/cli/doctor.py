"""``unskew doctor``: what is installed, and how to add what is missing."""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import tempfile
from collections.abc import Iterator
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
FRAME_PACKAGES = {"polars": "evaluate_frame on polars", "pandas": "frames of pandas"}
"""Optional packages that no extra installs, and what they are for."""


@declare_command("doctor", "Check the installation: versions, extras, caches, data sets.", order=10)
@options.json_option
def doctor(as_json: bool) -> None:
    """Show versions, threads, the kernel cache, optional packages, Java and data sets.

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
    from unskew.datasets.location import describe_search, find_folder
    from unskew.threads import count_threads, describe_blas

    system = f"{platform.python_version()} on {platform.system()} {platform.machine()}"
    yield InstallationCheck("unskew", __version__)
    yield InstallationCheck("Python", system)
    for name in REQUIRED_PACKAGES:
        yield _check_package(name, name, f"pip install {name}", is_required=True)
    yield InstallationCheck("threads", str(count_threads(None)))
    yield InstallationCheck("BLAS", describe_blas())
    yield _check_kernel_cache()
    for name, extra in _list_extras():
        yield _check_package(f"{name} [{extra}]", name, f"pip install 'unskew[{extra}]'")
    for name, purpose in FRAME_PACKAGES.items():
        yield _check_package(name, name, f"pip install {name}, for {purpose}")
    yield _check_java()
    yield InstallationCheck("data sets in", describe_search())
    for name, declaration in DATASETS.items():
        folder = find_folder(name)
        tells_where = "" if declaration.traits["source"].archive else " tells where to get it"
        remedy = "" if folder else f"unskew data fetch {name}{tells_where}"
        yield InstallationCheck(f"  {name}", folder or "not found", remedy=remedy)


def _check_package(
    label: str, package: str, remedy: str, *, is_required: bool = False
) -> InstallationCheck:
    try:
        return InstallationCheck(label, version(package))
    except PackageNotFoundError:
        return InstallationCheck(label, "not installed", not is_required, remedy)


def _list_extras() -> Iterator[tuple[str, str]]:
    """Optional packages, each with the extra that installs it, as unskew's metadata declare."""
    for requirement in requires("unskew") or ():
        parts = re.fullmatch(r"([\w.-]+)[^;]*;\s*extra\s*==\s*['\"](\w+)['\"]", requirement)
        if parts is not None and parts[1] != "unskew" and parts[2] not in ("dev", "docs", "all"):
            yield parts[1], parts[2]


def _check_java() -> InstallationCheck:
    folder = os.environ.get("JAVA_HOME")
    path = shutil.which("java", path=str(Path(folder) / "bin")) if folder else None
    path = path or shutil.which("java")
    remedy = "" if path else "install a JDK, or set JAVA_HOME"
    return InstallationCheck("Java, for Spark", path or "not found", remedy=remedy)


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
    remedy = (
        "export NUMBA_CACHE_DIR=FOLDER with a writable folder; "
        "otherwise every process compiles the kernels again"
    )
    return InstallationCheck("kernel cache", f"{folder} is not writable", False, remedy)


def _can_write(folder: Path) -> bool:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return True
    except OSError:
        return False
