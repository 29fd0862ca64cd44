"""Files of a release: the same version and dependencies wherever they are written."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

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
