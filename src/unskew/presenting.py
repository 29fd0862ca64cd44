"""How results draw themselves, although the drawing code lies above them: it is named, and loaded when a picture is asked for."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any


def drawing(name: str) -> Callable[..., Any]:
    """``draw(result, ax, ...)`` of the module ``unskew.report.<name>``, which gives a matplotlib figure."""
    draw: Callable[..., Any] = import_module(f"unskew.report.{name}").draw
    return draw
