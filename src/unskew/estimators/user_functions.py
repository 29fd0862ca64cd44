"""Risks of all models that are functions of each user's weights, added up over users."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from unskew.threads import Workers
from unskew.types import BoolVector, IndexVector, Matrix, UserFunction, Vector

KEPT_SHARE, N_THINNINGS, THINNING_SEED = 0.5, 8, 0
"""How the log is thinned to see how a bias grows: the share of cells that stays, and how often."""


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
        results = np.stack([function.differentiate(weight) for function in self.functions])
        values, bases = results[:, :, 0], results[0][:, 1]
        if self.contrasts is not None:
            values = np.einsum("rk,kn->rn", self.contrasts, values)
        residuals: Matrix = values - ratio[:, None] * bases
        return residuals

    def estimate_remaining_bias(
        self, weight: Vector, p_unobserved: Vector, is_observed_relevant: BoolVector, ratio: Vector
    ) -> Vector:
        """The bias of the risks that is left after the first-order bias was subtracted.

        Half of the observed cells are dropped at random, which halves the propensities, and the
        risks are estimated again. With r the mean of 1/P - 1 over relevant cells, the bias is taken
        to grow as r^2 / (1 + r): by its second order if r is small, more slowly if it is large.
        """
        inverse = 1.0 / (1.0 - p_unobserved[is_observed_relevant])
        growth = [
            _grow(float(np.average(thinned - 1.0, weights=weight[is_observed_relevant])))
            for thinned in (inverse, inverse / KEPT_SHARE)
        ]
        if growth[0] == 0.0:
            return np.zeros_like(ratio)
        rng = np.random.default_rng(THINNING_SEED)
        kept = [rng.random(weight.size) < KEPT_SHARE for _ in range(N_THINNINGS)]
        thinned_weight = weight / KEPT_SHARE
        p_dropped_or_unobserved = 1.0 - KEPT_SHARE * (1.0 - p_unobserved)

        def measure_kept(is_kept: BoolVector) -> Vector:
            sums: Vector = self.measure(thinned_weight * is_kept, p_dropped_or_unobserved).sum(0)
            return sums

        with Workers() as workers:
            sums = workers.map(measure_kept, kept)
        thinned = np.mean([each[:-1] / each[-1] for each in sums if each[-1] != 0], axis=0)
        bias: Vector = (thinned - ratio) / (growth[1] / growth[0] - 1.0)
        return bias

    def take(self, rows: IndexVector) -> UserFunctions:
        """The functions of some of the cells."""
        return replace(self, functions=tuple(each.take(rows) for each in self.functions))

    def combine(self, contrast: Vector) -> UserFunctions:
        """One risk: the sum of ``contrast`` times the risks."""
        rows = contrast[None] if self.contrasts is None else contrast[None] @ self.contrasts
        return replace(self, contrasts=rows)


def _grow(odds: float) -> float:
    return odds * odds / (1.0 + odds)
