"""The page on other libraries: its recipes run, and none is missing."""

from __future__ import annotations

import pytest

from recipes import PAGE, SECTIONS, run_recipe
from unskew.evaluation import ADAPTERS


@pytest.mark.parametrize(
    "name", [name for name in SECTIONS if name not in ("Recipes", "Spark ALS")]
)
def test_a_recipe_gives_models_that_can_be_evaluated(name: str) -> None:
    run_recipe(name)


def test_every_library_has_a_recipe_and_a_row() -> None:
    labels = {declaration.label for declaration in ADAPTERS.values()}

    assert labels <= set(SECTIONS)
    assert {label for label in labels if f"| {label} |" not in PAGE} == set()
