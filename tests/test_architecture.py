"""Imports point down only, and packages on one level never import one another.

Third-party packages are imported in a few places only. Imports inside functions also count.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import unskew

ROOT = Path(unskew.__file__).parent
LEVELS = {
    "_version": 1, "errors": 1, "settings": 1, "types": 1, "tables": 1,
    "lazy": 1, "memory": 1, "progress": 1, "threads": 1, "registry": 1, "kernels": 1,
    "optimization": 1,
    "data": 2,
    "io": 3, "simulation": 3,
    "datasets": 4, "metrics": 4, "estimators": 4, "ranking": 4, "propensity": 4, "theory": 4,
    "factorization": 5, "latent": 6,
    "models": 7, "diagnostics": 7, "evaluation": 7,
    "model_selection": 8, "loading": 8, "engines": 8, "policies": 8,
    "paper": 9, "report": 9, "workflows": 9,
    "cli": 10,
    "__main__": 11,
}  # fmt: skip
FENCES = {
    "pyspark": ("engines/spark",),
    "torch": ("engines/gpu/", "evaluation/adapters/torch_module.py"),
    "lenskit": ("evaluation/adapters/lenskit.py",),
    "triton": ("engines/gpu/fused_rows.py",),
    "matplotlib": ("report/",),
    "jinja2": ("report/",),
    "sklearn": ("propensity/", "diagnostics/fit.py", "settings.py"),
    "click": ("cli/",),
    "rich": ("cli/", "progress.py"),
    "numba": ("kernels/",),
    "threadpoolctl": ("threads.py",),
    "pooch": ("datasets/",),
    "pyarrow": ("io/files.py", "io/writing.py", "engines/spark"),
    "duckdb": ("io/duckdb_files.py", "io/duckdb_files.py"),
    "narwhals": ("data/frames.py", "evaluation/backends/narwhals/", "policies/frame"),
}
BANNED_NAMES = {"utils", "base", "common", "helpers"}
FILES = sorted(ROOT.rglob("*.py"))


def imports(path: Path) -> Iterator[str]:
    """Every module imported anywhere in a file, also inside functions and type-checking blocks."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def room(path: Path) -> str:
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_point_down(path: Path) -> None:
    if path == ROOT / "__init__.py":
        return
    for name in imports(path):
        assert name != "unskew", (
            f"{path.relative_to(ROOT)} imports the whole package; import from the room instead"
        )
        if name.startswith("unskew."):
            target = name.split(".")[1]
            assert (
                target == room(path)
                or LEVELS[target] < LEVELS[room(path)]
                or LEVELS[target] == LEVELS[room(path)] == 1
            ), (
                f"{path.relative_to(ROOT)} (level {LEVELS[room(path)]}) imports {name} "
                f"(level {LEVELS[target]})"
            )


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_third_parties_stay_behind_their_fences(path: Path) -> None:
    place = path.relative_to(ROOT).as_posix()
    for name in imports(path):
        allowed = FENCES.get(name.split(".")[0])
        assert allowed is None or place.startswith(allowed), (
            f"{place} imports {name}, which belongs in {' or '.join(allowed)}"
        )


def test_no_room_is_called_utils() -> None:
    assert not [path for path in ROOT.rglob("*") if path.stem in BANNED_NAMES]


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_public_function_takes_anything_goes_keywords(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text())):
        if (
            isinstance(node, ast.FunctionDef)
            and not node.name.startswith("_")
            and node.name not in ("set_params", "draw")  # draw passes on the options of plot()
        ):
            assert node.args.kwarg is None, (
                f"{path.relative_to(ROOT)}: {node.name} takes **{node.args.kwarg.arg}"
            )
