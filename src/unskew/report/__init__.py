"""Figures and pages of results.

Lower packages reach this one through the entry points of the group ``unskew.report``.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any


def write_page(text: str, path: str | Path, *, command: str | None = None) -> Path:
    """Write the page of a result, given its JSON; either the whole file or nothing."""
    from unskew.report.page import write

    return write(text, path, command=command)


def draw(kind: str, result: Any, ax: Any, **options: Any) -> Any:
    """Draw a result with matplotlib."""
    return import_module(f"unskew.report.{kind}").draw(result, ax, **options)
