"""The recipes of docs/guides/other-libraries.md, run as printed."""

from __future__ import annotations

import re
import warnings
from pathlib import Path
from typing import Any

import pytest

import unskew

PAGE = (Path(__file__).parents[1] / "docs" / "guides" / "other-libraries.md").read_text()
SECTIONS = {
    part.splitlines()[0]: re.findall(r"```python\n(.*?)```", part, flags=re.DOTALL)
    for part in re.split(r"^###? ", PAGE, flags=re.MULTILINE)[1:]
}


def run_recipe(name: str) -> None:
    """Run the code of a section and evaluate its models; skip if its library is missing."""
    namespace: dict[str, Any] = {}
    exec(SECTIONS["Recipes"][0], namespace)
    (recipe,) = SECTIONS[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # those of the other library
        try:
            exec(recipe, namespace)
        except ImportError as error:
            pytest.skip(str(error))
    result = unskew.evaluate(
        namespace["test"],
        namespace["models"],
        metrics=["recall@10"],
        relevance_threshold=4,
        estimators=["naive"],
        universe="log",
    )
    assert result.models == tuple(namespace["models"])
