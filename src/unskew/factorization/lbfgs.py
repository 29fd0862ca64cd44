"""L-BFGS as a solver, and over all parameters of a factorization at once."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar, TypeVar

import numpy as np

from unskew.data.factors import Factors
from unskew.factorization.objective import Objective
from unskew.factorization.solution import Solver, StopReason
from unskew.optimization import LbfgsState, Precondition, identity, start_at, take_step
from unskew.types import Vector

P = TypeVar("P")


class LbfgsSolver(Solver[LbfgsState, P]):
    """A solver by L-BFGS over a vector that stands for the parameters."""

    __slots__ = ()
    memory: ClassVar[int] = 10
    first_length: ClassVar[float | None] = None

    @abstractmethod
    def evaluate(self, point: Vector) -> tuple[float, Vector]:
        """The objective and its gradient."""

    def precondition(self, state: LbfgsState) -> Precondition:
        """An approximate inverse Hessian at a state; by default the identity."""
        return identity

    def advance(self, state: LbfgsState, /) -> LbfgsState:
        return take_step(
            self.evaluate,
            state,
            memory=self.memory,
            first_length=self.first_length,
            precondition=self.precondition(state),
        )

    def stop_reason(self, state: LbfgsState, /) -> StopReason | None:
        return "stalled" if state.has_stalled else None


@dataclass(frozen=True, slots=True, eq=False)
class JointLbfgs(LbfgsSolver[Factors]):
    """L-BFGS over all parameters (V, W, a, b, c) at once, as in the paper.

    With ``is_absolute`` the loss is absolute and its subgradient the sign of the error.
    """

    objective: Objective
    is_absolute: bool = False
    memory: ClassVar[int] = 50  # as in the authors' runs

    def start(self, factors: Factors, /) -> LbfgsState:
        return start_at(self.evaluate, self._pack(factors))

    def parameters(self, state: LbfgsState, /) -> Factors:
        return self._unpack(state.point)

    def evaluate(self, point: Vector) -> tuple[float, Vector]:
        """One pass over the log for the gradient of each side."""
        objective, factors = self.objective, self._unpack(point)
        user, item = factors.user_side, factors.item_side
        c, is_absolute = factors.global_offset, self.is_absolute
        loss, by_item = objective.loss_and_gradient(
            objective.by_user,
            objective.as_opposite_rows(*item),
            objective.as_solved_rows(*user),
            c,
            is_absolute=is_absolute,
        )
        _, by_user = objective.loss_and_gradient(
            objective.by_item,
            objective.as_opposite_rows(*user),
            objective.as_solved_rows(*item),
            c,
            is_absolute=is_absolute,
        )
        d, offset_column = objective.n_factors, objective.n_factors + 1
        has_offsets, penalty = objective.has_offsets, objective.penalty
        by_user[:, :d] += 2 * penalty.factors * factors.user_factors
        by_item[:, :d] += 2 * penalty.factors * factors.item_factors
        user_offset, item_offset, global_offset = factors.user_offset, factors.item_offset, 0.0
        if has_offsets:
            global_offset = float(by_item[:, offset_column].sum()) + 2 * penalty.global_offset * c
            user_offset = by_user[:, offset_column] + 2 * penalty.user_offset * user_offset
            item_offset = by_item[:, offset_column] + 2 * penalty.item_offset * item_offset
        gradient = Factors(by_user[:, :d], by_item[:, :d], user_offset, item_offset, global_offset)
        return loss + penalty.value(factors), self._pack(gradient)

    def _pack(self, factors: Factors) -> Vector:
        parts = [factors.user_factors.ravel(), factors.item_factors.ravel()]
        if self.objective.has_offsets:
            parts += [
                factors.user_offset,
                factors.item_offset,
                np.array([factors.global_offset]),
            ]
        return np.concatenate(parts).astype(np.float64)

    def _unpack(self, point: Vector) -> Factors:
        """The inverse of ``_pack``; offsets are 0 if the vector has none."""
        n_users, n_items = self.objective.by_user.n_rows, self.objective.by_item.n_rows
        d = self.objective.n_factors
        user, item, rest = np.split(point, [n_users * d, (n_users + n_items) * d])
        if not rest.size:
            rest = np.zeros(n_users + n_items + 1)
        return Factors(
            user.reshape(n_users, d),
            item.reshape(n_items, d),
            rest[:n_users],
            rest[n_users:-1],
            float(rest[-1]),
        )
