"""Alternating least squares: each side solved in turn, then the constant, with momentum."""

from __future__ import annotations

from dataclasses import dataclass, replace

from unskew.factorization.momentum import Sweeping
from unskew.factorization.objective import Objective, SortedCells
from unskew.factorization.parameters import Floats, Parameters


@dataclass(frozen=True, slots=True, eq=False)
class Alternating(Sweeping):
    """A solver of squared loss. The objective is that before the last step of the constant."""

    problem: Objective

    def _sweep(self, now: Parameters) -> tuple[Parameters, float]:
        """Users, items, constant."""
        return self._alternate(now, is_rough=False)

    def _rough_sweep(self, now: Parameters) -> tuple[Parameters, float]:
        """The same, with a few steps for each row where they are cheaper than its solution."""
        return self._alternate(now, is_rough=self.problem.is_wide)

    def _alternate(self, now: Parameters, *, is_rough: bool) -> tuple[Parameters, float]:
        problem, constant, by_user, by_item = (
            self.problem,
            now.constant,
            self.problem.by_user,
            self.problem.by_item,
        )

        def lines(
            side: SortedCells, partners: Floats, begin: tuple[Floats, Floats], other: SortedCells
        ) -> tuple[Floats, float]:
            if is_rough:
                return problem.improve(side, partners, constant, begin=begin, other=other)
            return problem.solve(side, partners, constant)

        users, items = (now.user_factors, now.user_offset), (now.item_factors, now.item_offset)
        solutions, _ = lines(by_user, problem.as_partners(*items), users, by_item)
        users, partners = problem.from_solutions(solutions), problem.turned_to_partners(solutions)
        solutions, minimum = lines(by_item, partners, items, by_user)
        items = problem.from_solutions(solutions)
        own = (
            problem.penalty(by_user, *users) + problem.l2 * constant**2 * problem.penalizes_offsets
        )
        swept = Parameters(users[0], items[0], users[1], items[1], constant)
        return replace(swept, constant=self._best_constant(swept)), minimum + own + problem.fixed

    def _best_constant(self, swept: Parameters) -> float:
        """After the items' solve, sum w e = l2 sum b, so that the best step of c needs no pass over the log."""
        if not self.problem.penalizes_offsets:
            return swept.constant
        l2, total = self.problem.l2, float(self.problem.by_item.weight_of_rows.sum())
        return swept.constant + l2 * (float(swept.item_offset.sum()) - swept.constant) / (
            total + l2
        )
