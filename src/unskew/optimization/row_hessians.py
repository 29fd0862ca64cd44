"""An approximate Hessian by the factors and intercepts of all users, or of all items."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np

from unskew.types import Matrix, Vector


@dataclass(frozen=True, slots=True, eq=False)
class RowHessians:
    """One block for each row: H_r = diag(precision) + weight_r G, with the same G for all rows.

    In coordinates in which the precision is 1, all blocks have the eigenvectors of G, so solving
    costs two matrix products.
    """

    root_precision: Vector
    axes: Matrix
    eigenvalues: Matrix
    """Rows x columns."""

    @classmethod
    def of(cls, precision: Vector, weight: Vector, gram: Matrix) -> Self:
        """``precision`` has a positive number for each column, ``weight`` one for each row."""
        root = np.sqrt(precision)
        values, axes = np.linalg.eigh(gram / np.outer(root, root))
        return cls(root, axes, 1 + weight[:, None] * np.maximum(values, 0))

    def solve(self, right: Matrix) -> Matrix:
        """z with H_r z_r = ``right[r]``."""
        solution: Matrix = (right / self.root_precision) @ self.axes / self.eigenvalues
        return solution @ self.axes.T / self.root_precision
