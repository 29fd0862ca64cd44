"""How results draw themselves and write their pages, although that code lies above them: it is loaded by name when asked for."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

from unskew._version import __version__


def drawing(name: str) -> Callable[..., Any]:
    """``draw(result, ax, ...)`` of the module ``unskew.report.<name>``, which gives a matplotlib figure."""
    draw: Callable[..., Any] = import_module(f"unskew.report.{name}").draw
    return draw


def signed(kind: str) -> dict[str, str]:
    """What every result's JSON says of itself: its kind, by which its page is found, and the version that wrote it."""
    return {"kind": kind, "version": __version__}


def write_page(text: str, path: str | Path) -> Path:
    """Write the page of a result, given its JSON, as one HTML file; the path of it."""
    written: Path = import_module("unskew.report.page").write(text, path)
    return written
