from __future__ import annotations

import numpy as np
from scipy.optimize import rosen, rosen_der

from unskew.optimization import lbfgs


def minimise(objective: lbfgs.Function, point: np.ndarray, n_steps: int) -> lbfgs.LbfgsState:
    state = lbfgs.start_at(objective, point)
    for _ in range(n_steps):
        state = lbfgs.take_step(objective, state)
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
    state = lbfgs.start_at(lambda x: (float(rosen(x)), rosen_der(x)), np.full(6, 2.0))
    for _ in range(50):
        after = lbfgs.take_step(lambda x: (float(rosen(x)), rosen_der(x)), state)
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
