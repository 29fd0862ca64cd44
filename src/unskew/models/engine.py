"""Where a factorisation is fitted: here, or by an engine that lies above and is loaded by its name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import Literal, Protocol

from unskew.data.ratings import Ratings
from unskew.errors import MissingExtraError, UnknownNameError
from unskew.models.estimator import Seen
from unskew.models.parameters import Parameters
from unskew.models.problem import Offsets
from unskew.models.run import Checkpoint, Outcome
from unskew.types import Vector


@dataclass(frozen=True, slots=True, eq=False)
class Fit:
    """All that an engine needs to know of a fit."""

    log: Ratings
    propensity: Vector
    n_factors: int
    offsets: Offsets
    l2: float
    """The ridge itself, after scaling."""
    loss: Literal["squared", "absolute"]
    dtype: Literal["float64", "float32"]
    begin: Callable[[], Parameters]
    max_iter: int
    tol: float
    checkpoint: Checkpoint | None
    report: Callable[[int, float], None]


@dataclass(frozen=True, slots=True, eq=False)
class Fitted:
    """What came of it."""

    outcome: Outcome[Parameters]
    seen: Seen
    """The log by user, which had to be sorted anyway."""


class Engine(Protocol):
    """Brings the objective of Eq. (14) to its optimum, somewhere."""

    def run(self, fit: Fit, /) -> Fitted:
        """Fit, and bring the parameters back."""
        ...


@dataclass(frozen=True, slots=True)
class _Home:
    """Where an engine lies, and what it needs."""

    module: str
    name: str
    package: str
    extra: str


ENGINES: Mapping[str, _Home] = {"gpu": _Home("unskew.engines.gpu.engine", "GpuEngine", "torch", "gpu")}


def engine_of(given: str | Engine) -> Engine | None:
    """The engine, loaded if it was named; None is here."""
    if not isinstance(given, str):
        return given
    if given in ("auto", "local"):
        return None
    if given not in ENGINES:
        raise UnknownNameError("engine", given, ("auto", "local", *ENGINES))
    home = ENGINES[given]
    if find_spec(home.package) is None:
        raise MissingExtraError(home.package, extra=home.extra, purpose=f"engine={given!r}")
    engine: Engine = getattr(import_module(home.module), home.name)()
    return engine
