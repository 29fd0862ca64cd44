"""Risks of all models that are functions of each user's weights, added up over users."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from unskew.types import IndexVector, Matrix, UserFunction, Vector


@dataclass(frozen=True, slots=True, eq=False)
class UserFunctions:
    """One function for each model; all models have the same bases."""

    functions: tuple[UserFunction, ...]
    contrasts: Matrix | None = None
    """Rows of factors of the functions; None for the functions themselves."""

    def measure(self, weight: Vector) -> Matrix:
        """Users x (risks + 1): numerators and base, of users with a base."""
        results = [function.measure(weight) for function in self.functions]
        values = np.stack([result[:, 0] for result in results])
        if self.contrasts is not None:
            values = np.einsum("rk,ku->ru", self.contrasts, values)
        base = results[0][:, 1]
        by_user: Matrix = np.column_stack([values.T, base])[base != 0]
        return by_user

    def differentiate(self, weight: Vector, ratio: Vector) -> Matrix:
        """Risks x cells: derivative of numerator - ratio * base of the cell's user."""
        return self._change(weight, ratio)[0]

    def estimate_bias(self, weight: Vector, uncertainty: Vector, ratio: Vector) -> Vector:
        """The bias of the sum of numerators minus the ratio times the sum of bases.

        A function f of weights w = O h, with Var(w) = h^2 P (1 - P), has to first order the bias
        (1/2) sum over cells of Var(w) f'', which is estimated by the sum over observed cells of
        (1 - P) (f without the cell - f + h f'). ``uncertainty`` is 1 - P. It is 0 if f is linear
        in each weight.
        """
        derivative, change = self._change(weight, ratio)
        bias: Vector = np.einsum("n,rn->r", uncertainty, change + weight * derivative)
        return bias

    def _change(self, weight: Vector, ratio: Vector) -> tuple[Matrix, Matrix]:
        """Of numerator - ratio * base: derivatives, and changes if the cell is left out."""
        results = np.stack([function.differentiate(weight) for function in self.functions])
        values, bases = results[:, :, [0, 2]], results[0][:, [1, 3]]
        if self.contrasts is not None:
            values = np.einsum("rk,knd->rnd", self.contrasts, values)
        residuals = values - ratio[:, None, None] * bases
        return residuals[:, :, 0], residuals[:, :, 1]

    def take(self, rows: IndexVector) -> UserFunctions:
        """The functions of some of the cells."""
        return replace(self, functions=tuple(each.take(rows) for each in self.functions))

    def combine(self, contrast: Vector) -> UserFunctions:
        """One risk: the sum of ``contrast`` times the risks."""
        rows = contrast[None] if self.contrasts is None else contrast[None] @ self.contrasts
        return replace(self, contrasts=rows)
