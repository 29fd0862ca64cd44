"""The approximate Hessian against the sum over all cells."""

from __future__ import annotations

import numpy as np
import pytest

from unskew.propensity.logit_hessian import ProductHessian, SideTerms


@pytest.mark.parametrize(
    ("user_offset", "item_offset"), [(True, True), (True, False), (False, True), (False, False)]
)
def test_it_is_the_hessian_of_product_weights(user_offset: bool, item_offset: bool) -> None:
    rng = np.random.default_rng(0)
    x, z = rng.normal(size=(4, 2)), rng.normal(size=(5, 3))
    a, b = rng.random(4) + 0.5, rng.random(5) + 0.5
    b *= a.sum() / b.sum()
    hessian = 0.0
    for u in range(4):
        for i in range(5):
            terms = [[1.0], x[u], z[i], np.outer(x[u, :1], z[i, :2]).ravel()]
            terms += [np.eye(4)[u]] * user_offset + [np.eye(5)[i]] * item_offset
            term = np.concatenate(terms)
            hessian = hessian + a[u] * b[i] / a.sum() * np.outer(term, term)
    penalty = rng.random(len(hessian)) + 0.3  # type: ignore[arg-type]
    right = rng.normal(size=penalty.size)

    solved = ProductHessian.of(
        SideTerms(x, 1, user_offset, a), SideTerms(z, 2, item_offset, b), penalty
    ).solve(right)

    expected = np.linalg.solve(hessian + np.diag(penalty), right)
    np.testing.assert_allclose(solved, expected, rtol=1e-4, atol=1e-5)
