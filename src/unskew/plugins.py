"""What other packages add: entry points of installed distributions, loaded when first needed.

Group              What an entry point names
-----------------  -------------------------------------------------------------------------
``unskew.plugins``  a module; importing it declares metrics, estimators, models, commands, ...
``unskew.engines``  a class that runs a fit or a ranking somewhere else, by the engine's name
``unskew.report``   the functions that draw and write results: ``draw`` and ``write_page``

The lower packages look upwards through these groups only, never through module names.
"""

from __future__ import annotations

import warnings
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from typing import Any

from unskew.errors import MissingExtraError, UnknownNameError, UnskewError, UnskewWarning

LOCAL_ENGINES = ("auto", "local")
"""Names of the engine that computes in this process."""


@cache
def load_plugins() -> None:
    """Import every module that another package lists under ``unskew.plugins``, once."""
    for point in entry_points(group="unskew.plugins"):
        try:
            point.load()
        except Exception as error:
            warnings.warn(
                UnskewWarning(
                    f"the plugin {point.name!r} ({point.value}) could not be loaded: {error!r}.",
                    remedy="Update or uninstall the package that provides it.",
                ),
                stacklevel=2,
            )


def load_report_function(name: str) -> Any:
    """The function of that name in the group ``unskew.report``."""
    return _find_entry_point("unskew.report", name).load()


def engine_names() -> tuple[str, ...]:
    """The names that the argument ``engine`` accepts."""
    return (*LOCAL_ENGINES, *sorted({point.name for point in entry_points(group="unskew.engines")}))


def find_engine(engine: str | object) -> Any:
    """The engine with that name and default settings; an engine object as it is; None if local."""
    if not isinstance(engine, str):
        return engine
    if engine in LOCAL_ENGINES:
        return None
    if engine not in engine_names():
        raise UnknownNameError("engine", engine, engine_names())
    return _find_entry_point("unskew.engines", engine).load()()


def _find_entry_point(group: str, name: str) -> EntryPoint:
    points = list(entry_points(group=group, name=name))
    if not points:
        raise UnskewError(
            f"no installed package provides {name!r} in the entry point group {group!r}.",
            remedy="Install unskew with pip; its source alone has no entry points.",
        )
    return points[0]


def require_package(package: str, *, extra: str, purpose: str) -> None:
    """Raise an error that names the extra to install if ``package`` is missing."""
    if find_spec(package) is None:
        raise MissingExtraError(package, extra=extra, purpose=purpose)
