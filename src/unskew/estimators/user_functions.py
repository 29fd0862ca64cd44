"""Risks of all models that are functions of each user's weights, added up over users."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from unskew.types import IntVector, Matrix, UserFunction, Vector


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
        return np.column_stack([values.T, base])[base > 0]

    def differentiate(self, weight: Vector, ratio: Vector) -> Matrix:
        """Risks x cells: derivative of numerator - ratio * base of the cell's user."""
        slopes = [function.differentiate(weight) for function in self.functions]
        values = np.stack([slope[:, 0] for slope in slopes])
        if self.contrasts is not None:
            values = np.einsum("rk,kn->rn", self.contrasts, values)
        return values - np.outer(ratio, slopes[0][:, 1])

    def take(self, rows: IntVector) -> UserFunctions:
        """The functions of some of the cells."""
        return replace(self, functions=tuple(each.take(rows) for each in self.functions))

    def combine(self, contrast: Vector) -> UserFunctions:
        """One risk: the sum of ``contrast`` times the risks."""
        rows = contrast[None] if self.contrasts is None else contrast[None] @ self.contrasts
        return replace(self, contrasts=rows)
