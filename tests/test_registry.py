"""Declarations: found by name, alias or plugin, and listed for help texts and documentation."""

from __future__ import annotations

import pytest

from unskew.errors import UnknownNameError, UsageError
from unskew.metrics import METRICS
from unskew.registry import Registry


def some_registry() -> Registry[object]:
    colors: Registry[object] = Registry("color", "unskew.theory")
    colors.add("red", 1, label="Red", summary="As tomatoes.", aliases=("crimson",))
    colors.add("blue", 2, label="Blue", summary="As the sky.")
    return colors


def test_names_and_aliases_find_a_declaration() -> None:
    colors = some_registry()

    assert colors.find("crimson") is colors.find("red") is colors["red"]
    assert list(colors) == ["blue", "red"]
    assert "crimson" in colors
    assert "green" not in colors


def test_an_unknown_name_lists_the_valid_ones() -> None:
    with pytest.raises(UnknownNameError, match="unknown color 'rad'; valid names are: blue, red"):
        some_registry().find("rad")


def test_a_name_is_declared_once() -> None:
    for name in ("red", "crimson"):
        with pytest.raises(UsageError, match=f"the color name '{name}' is declared twice"):
            some_registry().add(name, 3, label="", summary="")


def test_the_documentation_table_has_a_row_for_each() -> None:
    assert some_registry().to_markdown().splitlines() == [
        "| name | label | meaning |",
        "|---|---|---|",
        "| `blue` | Blue | As the sky. |",
        "| `red` | Red | As tomatoes. |",
    ]


def test_a_package_exports_what_is_declared_in_it() -> None:
    import unskew.metrics

    assert "SquaredError" in dir(unskew.metrics)
    assert unskew.metrics.SquaredError is METRICS.find("mse").target
    with pytest.raises(AttributeError, match="has no attribute 'Nothing'"):
        _ = unskew.metrics.Nothing
