"""Files of a release: the same version and dependencies wherever they are written."""

from __future__ import annotations

import os
import re
import subprocess
import tomllib
from pathlib import Path

import pytest

import unskew

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
RECIPE = (ROOT / "conda" / "recipe.yaml").read_text()


def test_the_version_is_the_same_in_every_file() -> None:
    citation = (ROOT / "CITATION.cff").read_text()

    assert re.search(r"^version: (.*)$", citation, re.MULTILINE)[1] == unskew.__version__  # type: ignore[index]
    assert re.search(r'^  version: "(.*)"$', RECIPE, re.MULTILINE)[1] == unskew.__version__  # type: ignore[index]


def test_the_recipe_has_the_dependencies_of_the_project() -> None:
    run = RECIPE.split("  run:\n")[1].split("tests:")[0]
    listed = {line.strip("- ").replace(" ", "") for line in run.strip().splitlines()}

    assert listed == {*PROJECT["dependencies"], f"python{PROJECT['requires-python']}"}


def test_the_names_that_a_user_is_told_to_take_exist() -> None:
    """In rows of the table such as ``| `unskew.Clip`, `Switch` | `unskew.estimators.*` |``."""
    changelog = (ROOT / "CHANGELOG.md").read_text()
    rows = re.findall(r"^\| (.*) \| `unskew\.(\w+)\.\*` \|$", changelog, re.MULTILINE)
    moved = [
        (package, name)
        for before, package in rows
        for name in re.findall(r"`(?:unskew\.)?(\w+)`", before.split("except")[0])
    ]

    assert len(moved) > 20
    assert [each for each in moved if not hasattr(getattr(unskew, each[0]), each[1])] == []
    assert [name for _, name in moved if name in unskew.__all__] == []


def test_the_page_on_installing_names_every_extra() -> None:
    listed = re.findall(r"^\| `(\w+)` \|", (ROOT / "docs" / "install.md").read_text(), re.MULTILINE)

    assert {*listed} == {*PROJECT["optional-dependencies"]} - {"dev", "docs", "oldest"}


def test_a_release_names_the_repository_that_it_was_built_from(tmp_path: Path) -> None:
    yaml = pytest.importorskip("yaml", reason="reads the release workflow")
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "release.yml").read_text())
    (command,) = [
        step["run"]
        for step in workflow["jobs"]["build"]["steps"]
        if "$GITHUB_REPOSITORY" in step.get("run", "")
    ]
    for name in ("pyproject.toml", "README.md"):
        (tmp_path / name).write_bytes((ROOT / name).read_bytes())
    names = {
        "GITHUB_SERVER_URL": "https://forge.example",
        "GITHUB_REPOSITORY": "some/name",
        "GITHUB_REF_NAME": "v1.2.3",
    }

    subprocess.run(["bash", "-ec", command], cwd=tmp_path, env={**os.environ, **names}, check=True)

    urls = tomllib.loads((tmp_path / "pyproject.toml").read_text())["project"]["urls"]
    assert urls == PROJECT["urls"] | {
        "Source": "https://forge.example/some/name",
        "Issues": "https://forge.example/some/name/issues",
        "Changelog": "https://forge.example/some/name/blob/main/CHANGELOG.md",
    }

    page = (tmp_path / "README.md").read_text()
    addresses = re.findall(r'\]\(([^)]*)\)|src="([^"]*)"', page)
    assert all("".join(each).startswith("https://") for each in addresses)
    assert "](https://forge.example/some/name/blob/v1.2.3/CHANGELOG.md)" in page
    assert 'src="https://forge.example/some/name/raw/v1.2.3/docs/_static/report.png"' in page
    assert page.count("forge.example") < len(addresses)  # the paper stays where it is
