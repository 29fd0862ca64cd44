"""Every example runs, stays short, and is a page of the gallery."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = sorted((Path(__file__).parent.parent / "examples").glob("*.py"))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_example_runs(path: Path) -> None:
    run = subprocess.run(
        [sys.executable, "-W", "error", str(path)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert run.returncode == 0, run.stderr
    assert run.stdout


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_example_is_short(path: Path) -> None:
    assert len(path.read_text().splitlines()) < 60


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_example_is_a_page_of_the_gallery(path: Path) -> None:
    source = path.read_text()
    title, underline, gap = (ast.get_docstring(ast.parse(source)) or "").splitlines()[:3]

    assert underline == "=" * len(title)
    assert not gap
    assert "\n# %%\n" in source


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_example_needs_no_data_from_elsewhere(path: Path) -> None:
    names = {
        node.attr
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute)
    }

    assert not {name for name in names if name.startswith("load_")}
