"""Majorise-minimise: losses that are not quadratic, through quadratic upper bounds.

Each round replaces the loss by a weighted squared loss that is nowhere below it and equal to it at
the current predictions, up to a constant. Lowering the bound therefore lowers the loss.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol, Self

import numpy as np

from unskew.data.cells import all_or_sampled_cells, user_and_item
from unskew.data.factors import Factors
from unskew.data.ratings import Ratings
from unskew.factorization.als import AlternatingLeastSquares
from unskew.factorization.objective import EntriesOfSides, Objective, sort_both_ways
from unskew.factorization.penalty import Offsets, Penalty
from unskew.factorization.reduced import ReducedObjective
from unskew.factorization.solution import Solver
from unskew.threads import Workers
from unskew.types import IntVector, RandomState, Vector

SWEEPS_PER_ROUND = 5
STEPS_PER_ROUND = 10
MAX_CELLS = 1_000_000
MIN_ERROR = 1e-3
SWEEP_DECAY = 0.85
"""The factor by which the smallest error of a bound decreases from sweep to sweep."""


class BoundedLoss(Protocol):
    """A loss of the predictions of some cells; a cell may occur more than once."""

    @property
    def user(self) -> IntVector: ...

    @property
    def item(self) -> IntVector: ...

    @property
    def shape(self) -> tuple[int, int]:
        """The numbers of all users and of all items."""
        ...

    def loss(self, prediction: Vector, /) -> float:
        """The sum of the loss over the cells."""
        ...

    def quadratic_bound(self, prediction: Vector, n_rounds: int, /) -> tuple[Vector, Vector]:
        """Targets and weights of a squared loss above this one that is tight at ``prediction``."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class RoundState:
    """The factors after a round of majorise-minimise, and their objective."""

    parameters: Factors
    value: float
    n_rounds: int = 0


class RoundSolver(Solver[RoundState, Factors]):
    """Minimise a non-quadratic loss: a quadratic bound, a few steps on it, and again."""

    __slots__ = ()

    @abstractmethod
    def _objective(self, factors: Factors) -> float:
        """The loss and the penalty."""

    @abstractmethod
    def _bound(self, factors: Factors, n_rounds: int) -> tuple[Solver[Any, Factors], Any]:
        """A solver of a bound that is tight at ``factors``, and its state at ``factors``."""

    def start(self, factors: Factors, /) -> RoundState:
        return RoundState(factors, self._objective(factors))

    def advance(self, state: RoundState, /) -> RoundState:
        solver, inner = self._bound(state.parameters, state.n_rounds)
        for _ in range(self.steps_per_advance):
            inner = solver.advance(inner)
        factors = solver.parameters(inner)
        return RoundState(factors, self._objective(factors), state.n_rounds + 1)


@dataclass(frozen=True, slots=True, eq=False)
class MajorizeMinimize(RoundSolver):
    """Minimise a :class:`BoundedLoss` by sweeps of alternating least squares on its bounds."""

    loss: BoundedLoss
    n_factors: int
    offsets: Offsets
    penalty: Penalty
    dtype: Any
    workers: Workers

    steps_per_advance: ClassVar[int] = SWEEPS_PER_ROUND

    def _bound(self, factors: Factors, n_rounds: int) -> tuple[Solver[Any, Factors], Any]:
        cells, shape = self.loss, self.loss.shape
        prediction = factors.predict(cells.user, cells.item)
        target, weight = cells.quadratic_bound(prediction, n_rounds)
        kept = weight > 0
        user, item, target, weight = cells.user[kept], cells.item[kept], target[kept], weight[kept]
        sides = sort_both_ways(user, item, target, weight, shape=shape, dtype=self.dtype)
        solver = AlternatingLeastSquares(
            Objective(*sides, self.n_factors, self.offsets, self.penalty, self.workers)
        )
        return solver, solver.start(factors)

    def _objective(self, factors: Factors) -> float:
        loss = self.loss.loss(factors.predict(self.loss.user, self.loss.item))
        return loss + self.penalty.value(factors)


@dataclass(frozen=True, slots=True, eq=False)
class ReweightedLeastSquares(RoundSolver):
    """Minimise absolute loss by a sequence of weighted squared losses (IRLS).

    Each round bounds abs(e) by e^2 / (2 m) + m / 2, with m = max(abs(current error), smallest),
    and lowers the bound by a few steps on the reduced objective. The smallest m halves from round
    to round, down to ``MIN_ERROR``.
    """

    objective: Objective
    copies: EntriesOfSides = field(init=False)
    """The cells of the bounds, whose weights every round replaces."""
    steps_per_advance: ClassVar[int] = STEPS_PER_ROUND

    def __post_init__(self) -> None:
        object.__setattr__(self, "copies", self.objective.copy_entries())

    def _bound(self, factors: Factors, n_rounds: int) -> tuple[Solver[Any, Factors], Any]:
        smallest = max(MIN_ERROR, 0.5**n_rounds)
        bound = self.objective.reweight_for_absolute_loss(factors, smallest, self.copies)
        solver = ReducedObjective.of(bound)
        return solver, solver.start_without_sweeps(factors)

    def _objective(self, factors: Factors) -> float:
        return self.objective.absolute_loss(factors) + self.objective.penalty.value(factors)


@dataclass(frozen=True, slots=True, eq=False)
class ReweightedState:
    """The factors after a sweep, those before it, and the objective."""

    parameters: Factors
    previous: Factors
    momentum: float
    """Nesterov's t, which starts at 1 and grows with every sweep until a restart."""
    value: float
    n_sweeps: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class ReweightedSweeps(Solver[ReweightedState, Factors]):
    """Minimise absolute loss by sweeps of alternating least squares, each with new weights.

    The bound of a sweep is that of :class:`ReweightedLeastSquares`, at factors that lie a little
    beyond the last ones, in the direction of the last change (Nesterov's momentum). If the
    objective rises, the sweep is repeated from the last factors. The smallest m decreases slowly:
    sharp bounds at once would hold the errors that happen to be small.
    """

    objective: Objective
    copies: EntriesOfSides = field(init=False)
    """The cells of the bounds, whose weights every sweep replaces."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "copies", self.objective.copy_entries())

    def start(self, factors: Factors, /) -> ReweightedState:
        return ReweightedState(factors, factors, 1.0, self._evaluate(factors))

    def advance(self, state: ReweightedState, /) -> ReweightedState:
        momentum, current = (1 + math.sqrt(1 + 4 * state.momentum**2)) / 2, state.parameters
        ahead = current.extrapolate(state.previous, (state.momentum - 1) / momentum)
        factors = self._sweep(ahead, state.n_sweeps)
        value = self._evaluate(factors)
        if value > state.value and state.momentum > 1:
            momentum, factors = 1.0, self._sweep(current, state.n_sweeps)
            value = self._evaluate(factors)
        return ReweightedState(factors, current, momentum, value, state.n_sweeps + 1)

    def _sweep(self, factors: Factors, n_sweeps: int) -> Factors:
        smallest = max(MIN_ERROR, SWEEP_DECAY**n_sweeps)
        bound = self.objective.reweight_for_absolute_loss(factors, smallest, self.copies)
        return AlternatingLeastSquares(bound).sweep(factors)

    def _evaluate(self, factors: Factors) -> float:
        return self.objective.absolute_loss(factors) + self.objective.penalty.value(factors)


@dataclass(frozen=True, slots=True, eq=False)
class DoublyRobustAbsoluteLoss:
    """A difference of sums of absolute errors.

        sum over all cells of abs(G - F)  +  sum over the log of h (abs(Y - F) - abs(G - F))

    An added abs() lies below a parabola, a subtracted one below its tangent. With
    m = max(abs(Y - F0), smallest) and s = sign(F0 - G),

        h (F - Y)^2 / (2 m) - h s F  =  h / (2 m) (F - (Y + m s))^2 + constant

    so the bound is a weighted squared loss. The cells are those of the log, followed by all cells
    or a sample of them.
    """

    user: IntVector
    item: IntVector
    shape: tuple[int, int]
    rating: Vector
    """Y on the log."""
    imputed: Vector
    """G on all cells listed."""
    weight: Vector
    """h on the log, followed by the number of cells that each sampled cell represents."""

    @classmethod
    def of(
        cls,
        log: Ratings,
        weight: Vector,
        imputed_on_log: Vector,
        imputed: Factors,
        *,
        random_state: RandomState,
    ) -> Self:
        """All cells if there are few, else a uniform sample of them."""
        rng = np.random.default_rng(random_state)
        cells = all_or_sampled_cells(log.n_cells, max(MAX_CELLS, len(log)), rng)
        user, item = user_and_item(cells, log.n_items)
        return cls(
            np.concatenate([log.user, user]),
            np.concatenate([log.item, item]),
            (log.n_users, log.n_items),
            log.rating,
            np.concatenate([imputed_on_log, imputed.predict(user, item)]),
            np.concatenate([weight, np.full(cells.size, log.n_cells / cells.size)]),
        )

    def loss(self, prediction: Vector, /) -> float:
        n, imputed_error = self.rating.size, np.abs(prediction - self.imputed)
        log_part = np.abs(prediction[:n] - self.rating) - imputed_error[:n]
        return float(self.weight[:n] @ log_part + self.weight[n:] @ imputed_error[n:])

    def quadratic_bound(self, prediction: Vector, n_rounds: int, /) -> tuple[Vector, Vector]:
        """Parabolas become narrower from round to round, down to ``MIN_ERROR``."""
        n, target = self.rating.size, self.imputed.copy()
        target[:n] = self.rating
        error = np.maximum(np.abs(prediction - target), max(MIN_ERROR, 0.5**n_rounds))
        target[:n] += error[:n] * np.sign(prediction[:n] - self.imputed[:n])
        return target, self.weight / (2 * error)


@dataclass(frozen=True, slots=True, eq=False)
class LogLoss:
    """The sum of w (log(1 + exp F) - Y F) over the cells of an objective; Y is 0 or 1."""

    user: IntVector
    item: IntVector
    shape: tuple[int, int]
    click: Vector
    weight: Vector

    @classmethod
    def of(cls, objective: Objective) -> Self:
        """The ratings of ``objective`` are the clicks."""
        cells = objective.by_user
        return cls(
            np.repeat(np.arange(cells.n_rows, dtype=np.int32), np.diff(cells.starts)),
            cells.opposite.astype(np.int32),
            (cells.n_rows, objective.by_item.n_rows),
            cells.rating.astype(np.float64),
            np.square(cells.root_weight.astype(np.float64)),
        )

    def loss(self, prediction: Vector, /) -> float:
        return float(self.weight @ (np.logaddexp(0, prediction) - self.click * prediction))

    def quadratic_bound(self, prediction: Vector, _: int, /) -> tuple[Vector, Vector]:
        """The bound of Jaakkola & Jordan (2000), tight at F0 = ``prediction``.

        log(1 + exp F) <= F / 2 + k F^2 + constant, with k = tanh(F0 / 2) / (4 F0).
        """
        size = np.maximum(np.abs(prediction), 1e-6)
        curvature = np.tanh(size / 2) / (4 * size)
        return (self.click - 0.5) / (2 * curvature), self.weight * curvature
