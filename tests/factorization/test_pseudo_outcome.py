"""Factorisation of a pseudo-outcome over all cells, against dense linear algebra."""

from __future__ import annotations

import tracemalloc
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import optimize
from scipy.optimize import check_grad

from unskew.data.factors import Factors
from unskew.data.ratings import Ratings
from unskew.errors import UsageError
from unskew.factorization.checkpoints import Checkpoint
from unskew.factorization.penalty import Penalty
from unskew.factorization.pseudo_outcome import PseudoOutcome, PseudoOutcomeSolver
from unskew.factorization.solution import Solution, minimize
from unskew.threads import Workers, single_blas_thread

N_USERS, N_ITEMS = 23, 17
MODES = ("none", "free", "regularized")


def some_parameters(
    seed: int,
    n_factors: int,
    *,
    has_offsets: bool = True,
    shape: tuple[int, int] = (N_USERS, N_ITEMS),
) -> Factors:
    rng = np.random.default_rng(seed)
    users, items = (rng.normal(size=(n, n_factors)) for n in shape)
    offsets = [rng.normal(size=n) * has_offsets for n in shape]
    return Factors(users, items, offsets[0], offsets[1], 0.7 * has_offsets)


def some_log(
    seed: int = 0, shape: tuple[int, int] = (N_USERS, N_ITEMS)
) -> tuple[Ratings, np.ndarray]:
    """A third of all cells with a correction each; the first user and the last item have none."""
    rng = np.random.default_rng(seed)
    seen = rng.random(shape) < 0.35
    seen[0], seen[:, -1] = False, False
    user, item = np.nonzero(seen)
    return Ratings.from_codes(user, item, np.ones(user.size), shape=shape), rng.normal(
        1, 3, user.size
    )


def dense(parameters: Factors) -> np.ndarray:
    product = parameters.user_factors @ parameters.item_factors.T
    return (
        product
        + parameters.user_offset[:, None]
        + parameters.item_offset
        + parameters.global_offset
    )


def dense_outcome(log: Ratings, correction: np.ndarray, imputed: Factors | None) -> np.ndarray:
    outcome = np.zeros((log.n_users, log.n_items)) if imputed is None else dense(imputed)
    outcome[log.user, log.item] += correction
    return outcome


def fit(
    offsets: Any,
    l2: float = 2.0,
    *,
    imputed: Factors | None = None,
    dtype: str = "float64",
    n_threads: int = 1,
    **settings: Any,
) -> Solution[Factors]:
    log, correction = some_log()
    with Workers(n_threads) as workers, single_blas_thread():
        outcome = PseudoOutcome.of(log, correction, imputed=imputed, dtype=dtype)
        solver = PseudoOutcomeSolver(outcome, 3, offsets, Penalty.equal(l2, offsets), workers)
        start = some_parameters(1, 3, has_offsets=False)
        return minimize(solver, start, **{"max_iter": 3000, "tol": 1e-14, **settings})


def dense_objective(found: Factors, target: np.ndarray, l2: float, offsets: str) -> float:
    return float(
        np.square(dense(found) - target).sum()
        + l2 * found.squared_norm(with_offsets=offsets == "regularized")
    )


IMPUTED = [
    None,
    some_parameters(5, 2),
    some_parameters(6, 2, has_offsets=False),
    some_parameters(7, 0),
]


@pytest.mark.parametrize(("offsets", "imputed"), list(product(MODES, IMPUTED)))
def test_the_objective_is_that_of_the_dense_matrix(offsets: str, imputed: Factors | None) -> None:
    target = dense_outcome(*some_log(), imputed)

    for max_iter in (1, 2, 7):
        outcome = fit(offsets, imputed=imputed, max_iter=max_iter)
        assert outcome.history[-1] == pytest.approx(
            dense_objective(outcome.parameters, target, 2.0, offsets), rel=1e-12
        )


@pytest.mark.parametrize(("offsets", "imputed"), list(product(MODES, IMPUTED)))
def test_a_sweep_solves_the_normal_equations_of_every_row(
    offsets: str, imputed: Factors | None
) -> None:
    target, start = dense_outcome(*some_log(), imputed), some_parameters(1, 3, has_offsets=False)
    column = np.ones((max(N_USERS, N_ITEMS), int(offsets != "none")))
    ridge = np.diag([2.0] * 3 + [2.0 * (offsets == "regularized")] * column.shape[1])
    x = np.hstack([start.item_factors, column[:N_ITEMS]])
    users = np.linalg.solve(x.T @ x + ridge, x.T @ target.T).T
    y = np.hstack([users[:, :3], column[:N_USERS]])
    items = np.linalg.solve(y.T @ y + ridge, y.T @ (target - (users[:, 3:].sum(axis=1))[:, None])).T

    found = fit(offsets, imputed=imputed, max_iter=1).parameters

    np.testing.assert_allclose(
        np.hstack([found.user_factors, found.user_offset[:, None]])[:, : users.shape[1]],
        users,
        atol=1e-10,
    )
    np.testing.assert_allclose(
        np.hstack([found.item_factors, found.item_offset[:, None]])[:, : items.shape[1]],
        items,
        atol=1e-10,
    )
    error = target - (dense(found) - found.global_offset)
    best = error.sum() / (error.size + 2.0) if offsets == "regularized" else 0.0
    assert found.global_offset == pytest.approx(best, abs=1e-10)


@pytest.mark.parametrize(("is_free", "imputed"), list(product([False, True], IMPUTED[:2])))
def test_the_optimum_is_the_soft_thresholded_svd(is_free: bool, imputed: Factors | None) -> None:
    """F = sum of (s - ridge)_+ u v' over the largest singular values.

    With free offsets, row and column means are subtracted first.
    """
    target = dense_outcome(*some_log(), imputed)
    centred = target - target.mean(axis=0) - target.mean(axis=1, keepdims=True) + target.mean()
    left, values, right = np.linalg.svd(centred if is_free else target)
    kept = np.maximum(values[:3] - 2.0, 0)
    expected = (left[:, :3] * kept) @ right[:3] + (target - centred) * is_free

    outcome = fit("free" if is_free else "none", imputed=imputed)

    assert outcome.history[-1] == pytest.approx(
        float(np.square(values).sum() - np.square(kept).sum()), rel=1e-10
    )
    np.testing.assert_allclose(dense(outcome.parameters), expected, atol=1e-4)


@pytest.mark.parametrize(("offsets", "imputed"), list(product(MODES, IMPUTED[:2])))
def test_the_optimum_is_a_point_that_brute_force_does_not_improve(
    offsets: str, imputed: Factors | None
) -> None:
    target = dense_outcome(*some_log(), imputed)
    sizes = np.cumsum([N_USERS * 3, N_ITEMS * 3, N_USERS, N_ITEMS])
    has, penalizes = offsets != "none", offsets == "regularized"

    def unpack(point: np.ndarray) -> Factors:
        users, items, a, b, c = np.split(point, sizes)
        return Factors(
            users.reshape(-1, 3), items.reshape(-1, 3), a * has, b * has, float(c[0]) * has
        )

    def objective(point: np.ndarray) -> float:
        return dense_objective(unpack(point), target, 2.0, offsets)

    def slope(point: np.ndarray) -> np.ndarray:
        at = unpack(point)
        error = 2 * (dense(at) - target)
        users, items = (
            error @ at.item_factors + 4 * at.user_factors,
            error.T @ at.user_factors + 4 * at.item_factors,
        )
        rest = [error.sum(axis=1) * has, error.sum(axis=0) * has, [error.sum() * has]]
        offset = np.concatenate([at.user_offset, at.item_offset, [at.global_offset]]) * penalizes
        return np.concatenate([users.ravel(), items.ravel(), np.concatenate(rest) + 4 * offset])

    outcome = fit(offsets, imputed=imputed)

    found = outcome.parameters
    parts = (
        found.user_factors.ravel(),
        found.item_factors.ravel(),
        found.user_offset,
        found.item_offset,
        [found.global_offset],
    )
    point = np.concatenate(parts)
    assert check_grad(objective, slope, point) < 1e-3
    assert np.abs(slope(point)).max() < 1e-3
    brute = optimize.minimize(
        objective, point, jac=slope, method="L-BFGS-B", options={"ftol": 1e-15, "gtol": 1e-9}
    )
    assert outcome.history[-1] == pytest.approx(brute.fun, rel=1e-9)


def test_doubly_robust_risk_is_the_pseudo_outcome_s_squared_error_but_for_a_constant() -> None:
    """sum_D (G - F)^2 + sum_O h ((Y - F)^2 - (G - F)^2) = sum_D (F - T)^2 + constant.

    T = G + O h (Y - G).
    """
    (log, rating), rng = some_log(), np.random.default_rng(3)
    imputed, weight = some_parameters(5, 2), rng.uniform(1, 20, len(log))
    cells = log.user, log.item
    guess = dense(imputed)
    target = dense_outcome(log, weight * (rating - guess[cells]), imputed)

    def difference(prediction: np.ndarray) -> float:
        on_log = np.square(rating - prediction[cells]) - np.square((guess - prediction)[cells])
        return float(
            np.square(guess - prediction).sum()
            + weight @ on_log
            - np.square(prediction - target).sum()
        )

    constant = float(
        np.square(guess).sum() - np.square(target).sum() + weight @ (rating**2 - guess[cells] ** 2)
    )
    for seed in range(3):
        assert difference(dense(some_parameters(seed, 4))) == pytest.approx(constant, rel=1e-10)


def test_the_sum_of_squares_is_over_all_cells() -> None:
    log, correction = some_log()
    for imputed in IMPUTED:
        expected = np.square(dense_outcome(log, correction, imputed)).sum()
        assert PseudoOutcome.of(log, correction, imputed=imputed).sum_of_squares == pytest.approx(
            expected, rel=1e-12
        )


@pytest.mark.parametrize(("offsets", "imputed"), list(product(MODES, IMPUTED[:2])))
def test_the_objective_never_rises_and_momentum_needs_fewer_sweeps(
    offsets: str, imputed: Factors | None
) -> None:
    outcome = fit(offsets, 0.05, imputed=imputed, tol=1e-11)
    log, correction = some_log()
    with Workers(1) as workers:
        solver = PseudoOutcomeSolver(
            PseudoOutcome.of(log, correction, imputed=imputed),
            3,
            offsets,
            Penalty.equal(0.05, offsets),
            workers,
        )
        plain, value = some_parameters(1, 3, has_offsets=False), np.inf
        for _ in range(len(outcome.history) - 1):
            plain, value = solver._sweep(plain, is_exact=True)

    assert all(later <= earlier * (1 + 1e-13) for earlier, later in pairwise(outcome.history))
    assert outcome.history[-1] <= value * (1 + 1e-12)


@pytest.mark.parametrize("offsets", MODES)
def test_threads_are_not_seen_and_float32_is_close(
    offsets: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("unskew.factorization.objective.CELLS_PER_TASK", 20)
    fits = [fit(offsets, imputed=IMPUTED[1], n_threads=n, max_iter=40) for n in (1, 2, 3)]

    for other in fits[1:]:
        assert other.history == fits[0].history
        assert np.array_equal(other.parameters.user_factors, fits[0].parameters.user_factors)
    single = fit(offsets, imputed=IMPUTED[1], dtype="float32", max_iter=40)
    assert single.parameters.item_factors.dtype == np.float32
    assert single.history[-1] == pytest.approx(fits[0].history[-1], rel=1e-4)


def test_a_run_goes_on_from_its_checkpoint_to_the_same_bits(tmp_path: Path) -> None:
    checkpoint = Checkpoint(tmp_path / "run", 5, "this")
    fit("regularized", tol=0.0, max_iter=13, checkpoint=checkpoint)

    resumed = fit("regularized", tol=0.0, max_iter=25, checkpoint=checkpoint)

    assert resumed.history == fit("regularized", tol=0.0, max_iter=25).history


def test_rows_without_a_cell_follow_the_imputation() -> None:
    """With enough factors and next to no penalty F is G there."""
    imputed = some_parameters(5, 2, has_offsets=False)
    log, correction = some_log()
    with Workers(1) as workers:
        outcome = PseudoOutcome.of(log, np.zeros_like(correction), imputed=imputed)
        found = minimize(
            PseudoOutcomeSolver(outcome, 3, "none", Penalty(1e-9), workers),
            some_parameters(1, 3),
            max_iter=500,
            tol=1e-15,
        )

    np.testing.assert_allclose(dense(found.parameters), dense(imputed), atol=1e-4)


def test_no_matrix_of_users_by_items_is_ever_built() -> None:
    shape = (3000, 3000)
    rng = np.random.default_rng(0)
    user, item = rng.permutation(3000), rng.permutation(3000)
    log = Ratings.from_codes(user, item, np.ones(3000), shape=shape)
    imputed, start = some_parameters(0, 2, shape=shape), some_parameters(1, 3, shape=shape)
    tracemalloc.start()
    with Workers(1) as workers:
        solver = PseudoOutcomeSolver(
            PseudoOutcome.of(log, rng.normal(size=3000), imputed=imputed),
            3,
            "regularized",
            Penalty.equal(1.0, "regularized"),
            workers,
        )
        minimize(solver, start, max_iter=2, tol=0.0)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert peak < 8 * shape[0] * shape[1] / 10


def test_factors_that_are_not_determined_ask_for_a_penalty() -> None:
    log, correction = some_log()
    with Workers(1) as workers:
        solver = PseudoOutcomeSolver(
            PseudoOutcome.of(log, correction), 20, "none", Penalty(0.0), workers
        )
        with pytest.raises(
            UsageError,
            match=r"factors of every \w+ has no unique, finite solution with a ridge of 0\.",
        ):
            minimize(solver, some_parameters(1, 20), max_iter=3, tol=0.0)
