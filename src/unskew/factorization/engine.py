"""Where a factorisation is fitted: here, or by an engine that lies above and is loaded by its name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeAlias, runtime_checkable

import numpy.typing as npt

from unskew.data.ids import Ids
from unskew.data.ratings import Ratings
from unskew.data.universe import Universe
from unskew.factorization.objective import Offsets
from unskew.factorization.parameters import Parameters
from unskew.factorization.solution import Checkpoint, Solution
from unskew.factorization.weights import Normalization
from unskew.models.recommender import Seen
from unskew.types import Vector

Frame: TypeAlias = Any
"""A data frame of an engine's own kind."""


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
    begin: Callable[[float], Parameters]
    """Given the weighted mean rating."""
    max_iter: int
    tol: float
    checkpoint: Checkpoint | None
    report: Callable[[int, float], None]


@dataclass(frozen=True, slots=True, eq=False)
class Fitted:
    """What came of it."""

    outcome: Solution[Parameters]
    mean: float
    """The weighted mean rating."""
    seen: Seen
    """The log by user, which had to be sorted anyway."""


@dataclass(frozen=True, slots=True, eq=False)
class FrameFit:
    """All that an engine needs to know of a fit to a log that stays where it is, and whose size is not known yet."""

    frame: Frame
    propensity: str | None
    """The column, or None for the naive model."""
    n_factors: int
    offsets: Offsets
    ridge: Callable[[Universe], float]
    """The ridge itself, once users and items are counted."""
    normalize: Normalization
    threshold: float | None
    dtype: Literal["float64", "float32"]
    warm_start: Parameters | None
    random_state: int
    max_iter: int
    tol: float
    checkpoint: Callable[[Sequence[npt.NDArray[Any]]], Checkpoint | None]
    """Given what names the log."""
    report: Callable[[int, float], None]


@dataclass(frozen=True, slots=True, eq=False)
class FrameFitted:
    """What came of it."""

    outcome: Solution[Parameters]
    mean: float
    """The weighted mean rating."""
    users: Ids
    items: Ids
    seen: Seen
    user_factors: Frame
    """User, factors and offset of every user, where the log is."""


@runtime_checkable
class Engine(Protocol):
    """Brings the objective of Eq. (14) to its optimum, somewhere."""

    def run(self, fit: Fit, /) -> Fitted:
        """Fit, and bring the parameters back."""
        ...


@runtime_checkable
class FrameEngine(Protocol):
    """Does so for a log that it reads where it lies."""

    def fit_frame(self, fit: FrameFit, /) -> FrameFitted:
        """Count, fit, and bring back what belongs here."""
        ...
