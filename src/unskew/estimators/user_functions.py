"""Risks of all models that are functions of each user's weights, added up over users."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from unskew.threads import Workers
from unskew.types import BoolVector, IndexVector, IntVector, Matrix, UserFunction, Vector

KEPT_SHARE, N_THINNINGS, THINNING_SEED = 0.5, 8, 0
"""How the log is thinned to see how a bias grows: the share of cells that stays, and how often."""
MIN_CELLS_PER_USER = 2.0
"""With fewer observed relevant cells per user, the bias of a function of them is not estimated."""
MIN_OBSERVED_SHARE = 0.4
"""The same if a smaller share of the relevant cells was observed."""


@dataclass(frozen=True, slots=True, eq=False)
class UserFunctions:
    """One function for each model; all models have the same bases."""

    functions: tuple[UserFunction, ...]
    contrasts: Matrix | None = None
    """Rows of factors of the functions; None for the functions themselves."""

    @property
    def has_bias(self) -> bool:
        """Whether a function is not linear in each weight."""
        return any(function.has_bias for function in self.functions)

    def measure(self, weight: Vector, p_unobserved: Vector | None = None) -> Matrix:
        """Users x (risks + 1): numerators and base, of users with a base.

        With ``p_unobserved``, 1 - P of each cell, the first-order bias of each user is subtracted.
        A function f of weights w = O h, with Var(w) = h^2 P (1 - P), has the bias (1/2) sum over
        cells of Var(w) f'', which is estimated by the sum over observed cells of
        (1 - P) (f without the cell - f + h f'). It is 0 if f is linear in each weight.
        """
        results = [function.measure(weight, p_unobserved) for function in self.functions]
        values = np.stack([result[:, 0] for result in results])
        if self.contrasts is not None:
            values = np.einsum("rk,ku->ru", self.contrasts, values)
        base = results[0][:, 1]
        by_user: Matrix = np.column_stack([values.T, base])[base != 0]
        return by_user

    def differentiate(self, weight: Vector, ratio: Vector) -> Matrix:
        """Risks x cells: derivative of numerator - ratio * base of the cell's user."""
        *values, bases = self.differentiate_parts(weight)
        residuals: Matrix = np.stack(values) - ratio[:, None] * bases
        return residuals

    def differentiate_parts(self, weight: Vector) -> Matrix:
        """(Risks + 1) x cells: derivatives of the numerators, and of the base, of its user."""
        results = np.stack([function.differentiate(weight) for function in self.functions])
        values, bases = results[:, :, 0], results[0][:, 1]
        if self.contrasts is not None:
            values = np.einsum("rk,kn->rn", self.contrasts, values)
        return np.vstack([values, bases])

    def take(self, rows: IndexVector) -> UserFunctions:
        """The functions of some of the cells."""
        return replace(self, functions=tuple(each.take(rows) for each in self.functions))

    def combine(self, contrast: Vector) -> UserFunctions:
        """One risk: the sum of ``contrast`` times the risks."""
        rows = contrast[None] if self.contrasts is None else contrast[None] @ self.contrasts
        return replace(self, contrasts=rows)


@dataclass(frozen=True, slots=True, eq=False)
class BiasSums:
    """What the bias that first-order corrections leave is estimated from; sums over users.

    Half of the observed cells are dropped at random, which halves the propensities, and the risks
    are estimated again. With r the mean of 1/P - 1 over relevant cells, the bias is taken to grow
    as r^2 / (1 + r): by its second order if r is small, more slowly if it is large.
    """

    thinned: Matrix
    """Thinnings x (risks + 1): numerators and base without the dropped cells."""
    n_cells: int
    """Relevant cells with weight."""
    n_users: int
    """Users who have such cells."""
    weight: float
    """The sum of the weights of these cells."""
    weighted_odds: float
    """The sum of their weights times 1/P - 1."""

    @classmethod
    def of(
        cls,
        functions: UserFunctions,
        weight: Vector,
        p_unobserved: Vector,
        relevant_users: IntVector,
        is_relevant: BoolVector,
        draws: Iterable[BoolVector],
        n_threads: int | None = None,
    ) -> BiasSums:
        """From the cells; ``draws`` say :data:`N_THINNINGS` times which of them stay.

        ``is_relevant`` are relevant cells with weight, and ``relevant_users`` their users.
        """
        p_thinned = 1.0 - KEPT_SHARE * (1.0 - p_unobserved)

        def measure(draw: BoolVector) -> Vector:
            sums: Vector = functions.measure(weight / KEPT_SHARE * draw, p_thinned).sum(axis=0)
            return sums

        with Workers(n_threads) as workers:
            thinned = workers.map(measure, draws)
        relevant_weight, odds = weight[is_relevant], 1.0 / (1.0 - p_unobserved[is_relevant]) - 1.0
        return cls(
            np.stack(thinned),
            n_cells=relevant_users.size,
            n_users=np.unique(relevant_users).size,
            weight=float(relevant_weight.sum()),
            weighted_odds=float((relevant_weight * odds).sum()),
        )

    def __add__(self, other: BiasSums) -> BiasSums:
        return BiasSums(
            self.thinned + other.thinned,
            self.n_cells + other.n_cells,
            self.n_users + other.n_users,
            self.weight + other.weight,
            self.weighted_odds + other.weighted_odds,
        )

    def estimate(self, ratio: Vector) -> Vector:
        """The bias of the risks ``ratio``; NaN if too few relevant cells were observed.

        It is 0 if nothing is unobserved.
        """
        odds = self.weighted_odds / self.weight if self.weight > 0 else 0.0
        if odds == 0.0:
            return np.zeros_like(ratio)
        used = self.thinned[self.thinned[:, -1] != 0]
        thinned = (used[:, :-1] / used[:, -1:]).mean(axis=0)
        growth = _grow((1.0 + odds) / KEPT_SHARE - 1.0) / _grow(odds)
        bias: Vector = (thinned - ratio) / (growth - 1.0)
        n_needed = max(MIN_CELLS_PER_USER * self.n_users, MIN_OBSERVED_SHARE * self.weight)
        if self.n_cells < n_needed:
            bias[bias != 0] = np.nan
        return bias


def _grow(odds: float) -> float:
    return odds * odds / (1.0 + odds)
