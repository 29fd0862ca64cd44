"""Blocks that share eigenvectors against a linear system for each row."""

from __future__ import annotations

import numpy as np

from unskew.optimization.row_hessians import RowHessians


def test_each_row_is_solved_with_its_block() -> None:
    rng = np.random.default_rng(0)
    design, right = rng.normal(size=(9, 3)), rng.normal(size=(4, 3))
    precision, weight = np.array([0.5, 2.0, 7.0]), np.array([0.0, 1.0, 3.0, 80.0])
    gram = design.T @ design

    solution = RowHessians.of(precision, weight, gram).solve(right)

    for row in range(4):
        expected = np.linalg.solve(np.diag(precision) + weight[row] * gram, right[row])
        np.testing.assert_allclose(solution[row], expected, rtol=1e-10)
