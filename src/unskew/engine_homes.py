"""Where engines lie: rooms below name one, and it is loaded when it is asked for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from unskew.errors import MissingExtraError, UnknownNameError


@dataclass(frozen=True, slots=True)
class Home:
    """Where an engine lies, and what it needs."""

    module: str
    name: str
    package: str
    extra: str


ENGINES: Mapping[str, Home] = {
    "gpu": Home("unskew.engines.gpu.engine", "GpuEngine", "torch", "gpu"),
    "spark": Home("unskew.engines.spark.engine", "SparkEngine", "pyspark", "spark"),
}


def engine_named(given: str | object) -> Any:
    """The engine with settings of its own if it was named, or as given; None is here."""
    if not isinstance(given, str):
        return given
    if given in ("auto", "local"):
        return None
    if given not in ENGINES:
        raise UnknownNameError("engine", given, ("auto", "local", *ENGINES))
    require_extra(given)
    home = ENGINES[given]
    return getattr(import_module(home.module), home.name)()


def require_extra(name: str) -> None:
    """Refuse an engine whose package is not installed."""
    home = ENGINES[name]
    if find_spec(home.package) is None:
        raise MissingExtraError(home.package, extra=home.extra, purpose=f"engine={name!r}")
