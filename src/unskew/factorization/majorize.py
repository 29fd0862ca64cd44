"""Losses that are no squares, by squares above them that touch them where the predictions are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from unskew.factorization.als import Alternating
from unskew.factorization.objective import Objective, Offsets, SortedCells
from unskew.factorization.parameters import Parameters
from unskew.factorization.reweighted import State
from unskew.models.imputation import values_at
from unskew.threads import Workers
from unskew.types import IntVector, Vector

SWEEPS_A_ROUND = 5


class Bounded(Protocol):
    """A loss of the predictions of some cells, of which one may occur more than once."""

    @property
    def user(self) -> IntVector:
        """Their users."""
        ...

    @property
    def item(self) -> IntVector:
        """Their items."""
        ...

    @property
    def shape(self) -> tuple[int, int]:
        """All users and items there are."""
        ...

    def loss(self, prediction: Vector, /) -> float:
        """The loss, summed."""
        ...

    def above(self, prediction: Vector, n_rounds: int, /) -> tuple[Vector, Vector]:
        """Targets and weights of squares whose sum is nowhere below the loss, a constant aside, and touches it here."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class Touching:
    """A solver by rounds: squares above the loss, a few sweeps of alternation on their sum, and again."""

    bounded: Bounded
    n_factors: int
    offsets: Offsets
    l2: float
    """The ridge itself, after scaling."""
    dtype: Any
    workers: Workers

    @property
    def n_steps(self) -> int:
        """Sweeps in a round."""
        return SWEEPS_A_ROUND

    def start(self, parameters: Parameters, /) -> State:
        """At ``parameters``."""
        return State(parameters, self._objective(parameters))

    def advance(self, state: State, /) -> State:
        """One round."""
        solver = Alternating(self._above(state.parameters, state.n_rounds))
        inner = solver.start(state.parameters)
        for _ in range(SWEEPS_A_ROUND):
            inner = solver.advance(inner)
        parameters = solver.parameters(inner)
        return State(parameters, self._objective(parameters), state.n_rounds + 1)

    def value(self, state: State, /) -> float:
        """The objective itself."""
        return state.value

    def has_stalled(self, state: State, /) -> bool:  # noqa: ARG002
        """It never does."""
        return False

    def parameters(self, state: State, /) -> Parameters:
        """As they stand."""
        return state.parameters

    def _above(self, at: Parameters, n_rounds: int) -> Objective:
        cells, (n_users, n_items) = self.bounded, self.bounded.shape
        target, weight = cells.above(values_at(at, cells.user, cells.item), n_rounds)
        kept = weight > 0
        user, item, target, chance = (
            cells.user[kept],
            cells.item[kept],
            target[kept],
            1 / weight[kept],
        )
        by_user = SortedCells.of(
            user, item, target, chance, shape=(n_users, n_items), dtype=self.dtype
        )
        by_item = SortedCells.of(
            item, user, target, chance, shape=(n_items, n_users), dtype=self.dtype
        )
        return Objective(by_user, by_item, self.n_factors, self.offsets, self.l2, self.workers)

    def _objective(self, parameters: Parameters) -> float:
        loss = self.bounded.loss(values_at(parameters, self.bounded.user, self.bounded.item))
        return loss + self.l2 * parameters.penalty(with_offsets=self.offsets == "regularized")
