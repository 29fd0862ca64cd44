"""What a model asks of an engine: to fit a weighted factorisation, here, on a GPU or on Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeAlias, runtime_checkable

import numpy.typing as npt

from unskew.data.factors import Factors
from unskew.data.ids import Ids
from unskew.data.ratings import Ratings
from unskew.data.universe import Universe
from unskew.data.weights import Normalization
from unskew.factorization.checkpoints import Checkpoint
from unskew.factorization.penalty import Offsets, Penalty
from unskew.factorization.solution import Dtype, Report, Solution
from unskew.types import RandomState, SeenItems, Vector

Frame: TypeAlias = Any
"""A data frame of the engine's own library."""


@dataclass(frozen=True, slots=True, eq=False)
class FitRequest:
    """A log with weights, and the factorisation to fit to it.

    An engine refuses a loss, or an unobserved weight, that it does not fit.
    """

    log: Ratings
    weight: Vector
    """One for each rating, above 0."""
    n_factors: int
    offsets: Offsets
    penalty: Penalty
    loss: Literal["squared", "absolute", "log"]
    dtype: Dtype
    make_start: Callable[[float], Factors]
    """The factors to start at, given the weighted mean rating."""
    max_iter: int
    tol: float
    checkpoint: Checkpoint | None
    report: Report | None
    unobserved_weight: float = 0.0
    """Adds this times the sum over all cells of (v . w)^2, for models without offsets."""
    constant: float = 0.0
    """A part of the objective that no factor changes."""


@dataclass(frozen=True, slots=True, eq=False)
class FitResult:
    """The answer of an engine to a :class:`FitRequest`."""

    solution: Solution[Factors]
    mean: float
    """The weighted mean rating."""
    seen: SeenItems
    """The items of each user; a fit sorts the log by user anyway."""


@dataclass(frozen=True, slots=True, eq=False)
class PseudoOutcomeRequest:
    """A factorisation to fit to T = G + S in all cells: the prediction of a doubly robust learner.

    The objective is that of :mod:`unskew.factorization.pseudo_outcome`.
    """

    log: Ratings
    """The cells of S; the ratings are not read."""
    correction: Vector
    """S for each cell of the log."""
    imputed: Factors | None
    """G; None if it is 0."""
    n_factors: int
    offsets: Offsets
    penalty: Penalty
    dtype: Dtype
    start: Factors
    max_iter: int
    tol: float
    checkpoint: Checkpoint | None
    report: Report | None


@dataclass(frozen=True, slots=True, eq=False)
class FrameFitRequest:
    """A log in a data frame of the engine, of unknown size, and the factorisation to fit to it."""

    frame: Frame
    propensity: str | None
    """The column of propensities; None for the naive model."""
    n_factors: int
    offsets: Offsets
    penalty: Callable[[Universe], Penalty]
    """The penalty, given the number of users and items."""
    normalize: Normalization
    relevance_threshold: float | None
    dtype: Dtype
    solver: str
    """``"als"``, ``"reduced"``, or ``"auto"`` for what the engine prefers."""
    initial_factors: Factors | None
    random_state: RandomState
    max_iter: int
    tol: float
    make_checkpoint: Callable[[Sequence[npt.NDArray[Any]]], Checkpoint | None]
    """The checkpoint, given arrays that identify the log."""
    report: Report | None


@dataclass(frozen=True, slots=True, eq=False)
class FrameFitResult:
    """The answer of an engine to a :class:`FrameFitRequest`."""

    solution: Solution[Factors]
    mean: float
    """The weighted mean rating."""
    users: Ids
    items: Ids
    seen: SeenItems
    user_factors: Frame
    """The factors and the offset of every user, as a data frame of the engine."""
    universe: Universe
    n_ratings: int
    rating_range: tuple[float, float]
    """The smallest and the largest rating."""


@dataclass(frozen=True, slots=True, eq=False)
class DoublyRobustFrameRequest:
    """A log in a data frame of the engine, and one round of doubly robust learning on it."""

    prediction: FrameFitRequest
    """F, or its correction F - G."""
    imputation: FrameFitRequest
    """G, fitted to the same frame."""
    weighting: str
    """The name of a(P), the weights by which G is fitted."""
    penalizes_correction: bool
    """Whether the penalty is that of F - G; otherwise it is that of F."""
    needs_propensities: bool


@dataclass(frozen=True, slots=True, eq=False)
class DoublyRobustFrameResult:
    """The answer of an engine to a :class:`DoublyRobustFrameRequest`."""

    prediction: FrameFitResult
    """Its solution is F."""
    imputed: Factors
    risk: float
    """The doubly robust estimate of the mean squared error over all cells."""


@runtime_checkable
class Engine(Protocol):
    """Fits the factorisation of Eq. (14) to a log in memory."""

    def run(self, request: FitRequest, /) -> FitResult:
        """Fit, and return the factors as NumPy arrays."""
        ...


@runtime_checkable
class AllCellsEngine(Protocol):
    """Fits a factorisation to all cells: doubly robust learning, and weighted clicks."""

    def run(self, request: FitRequest, /) -> FitResult:
        """Fit to the log alone; this makes the imputation."""
        ...

    def run_pseudo_outcome(self, request: PseudoOutcomeRequest, /) -> Solution[Factors]:
        """Fit to all cells, and return the factors as NumPy arrays."""
        ...


@runtime_checkable
class BatchEngine(Protocol):
    """Fits many logs in memory at once, for cross-validation."""

    def run(self, request: FitRequest, /) -> FitResult:
        """Fit a single log, and return the factors as NumPy arrays."""
        ...

    def run_many(self, requests: Sequence[FitRequest], /) -> Iterator[FitResult]:
        """The results of :meth:`run` for each of them, in the same order.

        A fit that fails raises its error when its turn comes.
        """
        ...


@runtime_checkable
class FrameEngine(Protocol):
    """Fits the factorisation of Eq. (14) to a data frame that it reads itself."""

    def fit_frame(self, request: FrameFitRequest, /) -> FrameFitResult:
        """Count users and items, fit, and return the factors."""
        ...


@runtime_checkable
class DoublyRobustFrameEngine(Protocol):
    """Fits doubly robust learning to a data frame that it reads itself."""

    def fit_doubly_robust(self, request: DoublyRobustFrameRequest, /) -> DoublyRobustFrameResult:
        """Count users and items, fit imputation and prediction, and return the factors."""
        ...


@runtime_checkable
class FrameReader(Protocol):
    """Reads a data frame into the memory of this process."""

    def read_log(self, frame: Frame, propensity: Any, /) -> tuple[Ratings, Any]:
        """The log, and its propensities from a column or a fitted model."""
        ...
