"""Alternating least squares with momentum.

One sweep of plain alternation is

    users = best rows given the items
    items = best rows given the users
    c     = best constant given both

and ``minimize`` of ``factorization/solution.py`` repeats it until it has converged. A sweep needs
only the items of its start, because it solves the users first. With momentum it starts a little
beyond the last items, in the direction of the last change: Nesterov's step, with restarts as in
O'Donoghue & Candes (2015). This at least halves the number of sweeps. If the objective would rise,
the sweep is repeated from the last items, so the objective never rises.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass, replace

from unskew.data.factors import Factors
from unskew.factorization.conjugate import improve_rows
from unskew.factorization.objective import Objective, SortedCells
from unskew.factorization.solution import Solver
from unskew.types import Floats

MANY_UNKNOWNS = 48
"""Unknowns of a row from which on conjugate gradient steps are faster than the exact solution."""
MIN_ROUGH_GAIN = 1e-4
"""Share of the objective that a rough sweep must gain; otherwise all later sweeps are exact."""


@dataclass(frozen=True, slots=True, eq=False)
class ItemSide:
    """The part of the factors that a sweep starts from."""

    factors: Floats
    offset: Floats
    global_offset: float

    @classmethod
    def of(cls, factors: Factors) -> ItemSide:
        return cls(factors.item_factors, factors.item_offset, factors.global_offset)


@dataclass(frozen=True, slots=True, eq=False)
class SweepState:
    """The factors after a sweep, the items before it, and the objective."""

    parameters: Factors
    previous: ItemSide
    momentum: float
    """Nesterov's t, which starts at 1 and grows with every sweep until a restart."""
    value: float
    needs_exact_sweeps: bool = False


class SweepingSolver(Solver[SweepState, Factors]):
    """A solver that alternates between users and items, with momentum."""

    __slots__ = ()

    @abstractmethod
    def _sweep(self, start: Factors, *, is_exact: bool) -> tuple[Factors, float]:
        """Better factors, from the items and c of ``start`` alone, and their objective.

        A sweep that is not exact may save time while there is much to gain.
        """

    def start(self, factors: Factors, /) -> SweepState:
        """The objective is inf: it is known only after the first sweep."""
        return SweepState(factors, ItemSide.of(factors), 1.0, math.inf)

    def advance(self, state: SweepState, /) -> SweepState:
        is_exact = state.needs_exact_sweeps
        momentum = (1 + math.sqrt(1 + 4 * state.momentum**2)) / 2
        ahead = _extrapolate(state.previous, state.parameters, (state.momentum - 1) / momentum)
        factors, value = self._sweep(ahead, is_exact=is_exact)
        if value > state.value:
            momentum = 1.0
            factors, value = self._sweep(state.parameters, is_exact=is_exact)
        gain = state.value - value
        needs_exact_sweeps = is_exact or gain < MIN_ROUGH_GAIN * abs(value)
        previous = ItemSide.of(state.parameters)
        return SweepState(factors, previous, momentum, value, needs_exact_sweeps)


def _extrapolate(previous: ItemSide, current: Factors, share: float) -> Factors:
    """The items beyond ``current`` by ``share`` of the change since ``previous``."""
    item_factors, item_offset = current.item_factors, current.item_offset
    global_offset = current.global_offset
    return replace(
        current,
        item_factors=item_factors + share * (item_factors - previous.factors),
        item_offset=item_offset + share * (item_offset - previous.offset),
        global_offset=global_offset + share * (global_offset - previous.global_offset),
    )


@dataclass(frozen=True, slots=True, eq=False)
class AlternatingLeastSquares(SweepingSolver):
    """Minimise the squared loss of an :class:`Objective`."""

    objective: Objective

    def _sweep(self, start: Factors, *, is_exact: bool) -> tuple[Factors, float]:
        """Users, items, constant. The objective is that before the step of the constant."""
        objective, c = self.objective, start.global_offset
        by_user, by_item = objective.by_user, objective.by_item
        takes_steps = not is_exact and self._prefers_steps

        def solve(
            cells: SortedCells, opposite: Floats, rows: tuple[Floats, Floats]
        ) -> tuple[Floats, float]:
            if takes_steps:
                return improve_rows(objective, cells, opposite, c, start=rows)
            return objective.solve_rows(cells, opposite, c)

        users, items = start.user_side, start.item_side
        solved, _ = solve(by_user, objective.as_opposite_rows(*items), users)
        users = objective.split_solved_rows(solved)
        solved, minimum = solve(by_item, objective.to_opposite_rows(solved), items)
        items = objective.split_solved_rows(solved)
        penalty = objective.side_penalty(by_user, *users)
        new_c = c
        if objective.penalizes_offsets:
            penalty += objective.ridge * c**2
            total_weight = float(by_item.row_weights.sum())
            new_c = best_constant(c, float(items[1].sum()), total_weight, objective.ridge)
        factors = Factors(users[0], items[0], users[1], items[1], new_c)
        return factors, minimum + penalty + objective.constant

    @property
    def _prefers_steps(self) -> bool:
        """Whether conjugate gradient steps improve a row at less cost than its exact solution."""
        objective = self.objective
        has_many_unknowns = objective.n_unknowns >= MANY_UNKNOWNS
        return has_many_unknowns and objective.ridge > 0 and not objective.unobserved_weight


def best_constant(c: float, sum_of_item_offsets: float, total_weight: float, ridge: float) -> float:
    """The minimum over a penalised c, without a pass over the log.

    After the items' solve the weighted residuals of each item add up to ridge * b.
    """
    return c + ridge * (sum_of_item_offsets - c) / (total_weight + ridge)
