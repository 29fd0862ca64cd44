"""Joint L-BFGS over all parameters, as the paper ran it. For absolute loss with the sign as subgradient."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unskew.factorization import lbfgs
from unskew.factorization.objective import Objective
from unskew.factorization.parameters import Parameters
from unskew.types import Vector

MEMORY = 50
"""As the authors' runs."""


@dataclass(frozen=True, slots=True, eq=False)
class Joint:
    """A solver of squared or absolute loss; the vector is (V, W, a, b, c)."""

    problem: Objective
    is_absolute: bool = False

    @property
    def n_steps(self) -> int:
        """Each is one."""
        return 1

    def start(self, parameters: Parameters, /) -> lbfgs.State:
        """At all of ``parameters``."""
        return lbfgs.start(self.evaluate, self._pack(parameters))

    def advance(self, state: lbfgs.State, /) -> lbfgs.State:
        """One L-BFGS iteration."""
        return lbfgs.advance(self.evaluate, state, memory=MEMORY)

    def value(self, state: lbfgs.State, /) -> float:
        """The objective."""
        return state.value

    def has_stalled(self, state: lbfgs.State, /) -> bool:
        """No step length gives a decrease any more."""
        return state.has_stalled

    def parameters(self, state: lbfgs.State, /) -> Parameters:
        """The vector, taken apart."""
        return self._unpack(state.point)

    def evaluate(self, point: Vector) -> tuple[float, Vector]:
        """The objective and its gradient: a pass over the log for each side's."""
        problem, at = self.problem, self._unpack(point)
        users = (
            problem.as_partners(at.user_factors, at.user_offset),
            problem.as_solutions(at.user_factors, at.user_offset),
        )
        items = (
            problem.as_partners(at.item_factors, at.item_offset),
            problem.as_solutions(at.item_factors, at.item_offset),
        )
        loss, by_item = problem.slope(
            problem.by_user, items[0], users[1], at.constant, is_absolute=self.is_absolute
        )
        _, by_user = problem.slope(
            problem.by_item, users[0], items[1], at.constant, is_absolute=self.is_absolute
        )
        d, last = problem.n_factors, problem.n_factors + 1
        has, twice = problem.has_offsets, 2 * problem.l2
        gradient = Parameters(
            by_user[:, :d] + twice * at.user_factors,
            by_item[:, :d] + twice * at.item_factors,
            by_user[:, last] if has else at.user_offset,
            by_item[:, last] if has else at.item_offset,
            float(by_item[:, last].sum()) if has else 0.0,
        )
        slope = self._pack(gradient)
        if problem.penalizes_offsets:
            n_factor_entries = at.user_factors.size + at.item_factors.size
            slope[n_factor_entries:] += twice * point[n_factor_entries:]
        return loss + problem.l2 * at.penalty(with_offsets=problem.penalizes_offsets), slope

    def _pack(self, parts: Parameters) -> Vector:
        factors = [parts.user_factors.ravel(), parts.item_factors.ravel()]
        offsets = (
            [parts.user_offset, parts.item_offset, [parts.constant]]
            if self.problem.has_offsets
            else []
        )
        return np.concatenate([*factors, *offsets]).astype(np.float64)

    def _unpack(self, point: Vector) -> Parameters:
        n_users, n_items, d = (
            self.problem.by_user.n_rows,
            self.problem.by_item.n_rows,
            self.problem.n_factors,
        )
        user, item, rest = np.split(point, [n_users * d, (n_users + n_items) * d])
        user_offset, item_offset = (
            (rest[:n_users], rest[n_users:-1])
            if rest.size
            else (np.zeros(n_users), np.zeros(n_items))
        )
        return Parameters(
            user.reshape(n_users, d),
            item.reshape(n_items, d),
            user_offset,
            item_offset,
            float(rest[-1]) if rest.size else 0.0,
        )
