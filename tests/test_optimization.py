from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.optimize import rosen, rosen_der

import unskew
from unskew.optimization import (
    Function,
    LbfgsState,
    ProductHessian,
    RowHessians,
    SideTerms,
    start_at,
    take_step,
)
from unskew.propensity.cell_likelihood import CellLikelihood


def minimise(objective: Function, point: np.ndarray, n_steps: int) -> LbfgsState:
    state = start_at(objective, point)
    for _ in range(n_steps):
        state = take_step(objective, state)
        if state.has_stalled:
            break
    return state


def test_a_quadratic_function_is_minimised() -> None:
    rng = np.random.default_rng(0)
    root = rng.normal(size=(30, 30))
    matrix, target = root @ root.T + np.eye(30), rng.normal(size=30)

    state = minimise(
        lambda x: (0.5 * x @ matrix @ x - target @ x, matrix @ x - target), np.zeros(30), 200
    )

    np.testing.assert_allclose(state.point, np.linalg.solve(matrix, target), atol=1e-6)


def test_the_rosenbrock_function_is_minimised() -> None:
    state = minimise(lambda x: (float(rosen(x)), rosen_der(x)), np.full(10, -1.0), 300)

    assert state.value < 1e-12


def test_the_value_never_rises() -> None:
    state = start_at(lambda x: (float(rosen(x)), rosen_der(x)), np.full(6, 2.0))
    for _ in range(50):
        after = take_step(lambda x: (float(rosen(x)), rosen_der(x)), state)
        assert after.value <= state.value
        state = after


def test_a_function_with_a_kink_is_minimised() -> None:
    scale = np.arange(1, 11)

    state = minimise(
        lambda x: (float((scale * np.abs(x)).sum()), scale * np.sign(x)),
        np.linspace(0.3, 2, 10),
        300,
    )

    assert state.value < 1e-3 * 86.5, "of the 86.5 at the start"


def test_each_row_is_solved_with_its_block() -> None:
    rng = np.random.default_rng(0)
    design, right = rng.normal(size=(9, 3)), rng.normal(size=(4, 3))
    precision, weight = np.array([0.5, 2.0, 7.0]), np.array([0.0, 1.0, 3.0, 80.0])
    gram = design.T @ design

    solution = RowHessians.of(precision, weight, gram).solve(right)

    for row in range(4):
        expected = np.linalg.solve(np.diag(precision) + weight[row] * gram, right[row])
        np.testing.assert_allclose(solution[row], expected, rtol=1e-10)


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


@pytest.mark.parametrize("is_cheap", [True, False])
def test_steps_by_the_diagonal_reach_the_same_optimum(
    is_cheap: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With many covariates, solving with the Hessian costs more than the sums over the cells."""
    rng = np.random.default_rng(3)
    log = unskew.Ratings.from_dense(np.where(rng.random((40, 30)) < 0.2, 3.0, 0.0))
    users, items = rng.normal(size=(40, 6)), rng.normal(size=(30, 4))
    model = unskew.LogisticPropensity(users, items, ridge=1.0, tol=1e-8)
    by_default = model.fit(log, universe="log").predict(log).values
    monkeypatch.setattr(CellLikelihood, "has_cheap_hessian", is_cheap)

    found = model.fit(log, universe="log").predict(log).values

    np.testing.assert_allclose(found, by_default, rtol=1e-6)


def test_the_hessian_is_used_only_if_it_costs_less_than_a_sum_over_cells(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rng = np.random.default_rng(3)
    log = unskew.Ratings.from_dense(np.where(rng.random((40, 30)) < 0.2, 3.0, 0.0))
    calls: list[int] = []
    hessian = CellLikelihood.hessian

    def count_calls(self: CellLikelihood, *args: Any) -> ProductHessian:
        calls.append(len(args))
        return hessian(self, *args)

    monkeypatch.setattr(CellLikelihood, "hessian", count_calls)
    unskew.LogisticPropensity(rng.normal(size=(40, 1)), ridge=1.0).fit(log, universe="log")
    assert calls
    calls.clear()
    many = rng.normal(size=(40, 6)), rng.normal(size=(30, 4))
    unskew.LogisticPropensity(*many, ridge=1.0).fit(log, universe="log")
    assert not calls
