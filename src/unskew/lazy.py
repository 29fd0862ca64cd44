"""Public names of a package that are imported when they are first used.

The names are listed once, in the ``__init__.pyi`` next to the package's ``__init__.py``: type
checkers read the list, and the package itself loads from it.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable
from importlib import import_module
from pathlib import Path
from typing import Any


def lazy_names(
    package: str, file: str
) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """``__getattr__``, ``__dir__`` and ``__all__`` of a package, from its list of names.

    ``package`` is its ``__name__`` and ``file`` its ``__file__``.
    """
    listing = ast.parse(Path(file).with_suffix(".pyi").read_text(encoding="utf-8"))
    origins = {
        alias.name: statement.module or ""
        for statement in listing.body
        if isinstance(statement, ast.ImportFrom)
        for alias in statement.names
    }
    names = sorted(origins)
    modules = [name for name in names if origins[name] == package]

    def get_attribute(name: str) -> Any:
        """Import the object of this name, at its first use."""
        if name not in origins:
            hint = "" if name.startswith("_") else _find_below(package, modules, name)
            raise AttributeError(f"module {package!r} has no attribute {name!r}{hint}")
        if origins[name] == package:
            return import_module(f"{package}.{name}")
        value = getattr(import_module(origins[name]), name)
        setattr(import_module(package), name, value)  # from now on Python finds the name itself
        return value

    return get_attribute, lambda: names, names


def _find_below(package: str, modules: Iterable[str], name: str) -> str:
    """Where a module of the package has the name, as many names of 0.1.0 are now."""
    for module in modules:
        value = getattr(import_module(f"{package}.{module}"), name, None)
        if getattr(value, "__module__", "").startswith(package):
            return f". It is {package}.{module}.{name}"
    return ""
