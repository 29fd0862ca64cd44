from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from unskew.latent.mechanisms import AtRandom, ByValue, ByValueAndItem, Effects, PseudoCells
from unskew.latent.value_effects import log_odds

from unskew.types import Matrix, Vector

RNG = np.random.default_rng(0)
LOGGED, UNLOGGED = RNG.uniform(0, 20, (6, 3)), RNG.uniform(50, 300, (6, 3))
START = Effects(np.array([-2.0, -1.0, 0.5]), RNG.normal(size=6))
PRIOR = PseudoCells(np.array([3.0, 2.0, 8.0]), np.array([40.0, 9.0, 30.0]))


def sigma(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


def score(value: Vector, item: Vector, prior: PseudoCells | None) -> float:
    """The expected log posterior, term by term."""
    total = 0.0
    for i in range(6):
        for r in range(3):
            p = sigma(value[r] + item[i])
            total += LOGGED[i, r] * np.log(p) + UNLOGGED[i, r] * np.log(1 - p)
    if prior is not None:
        total += float(
            (prior.logged * np.log(sigma(value)) + prior.unlogged * np.log(1 - sigma(value))).sum()
        )
    return total - float((item**2).sum()) / 20


def gradient(at: Vector, prior: PseudoCells | None) -> Vector:
    def of(x: Vector) -> float:
        return score(x[:3], x[3:], prior)

    return np.array([(of(at + h) - of(at - h)) / 2e-5 for h in 1e-5 * np.eye(9)])


def test_odds_and_chances() -> None:
    chance = np.array([0.2, 0.5, 0.9])
    effects = Effects(log_odds(chance), np.zeros(2))

    np.testing.assert_allclose(effects.logged, [chance, chance])
    yes, no = ByValue(None).log_chances(effects)
    np.testing.assert_allclose(np.exp(yes) + np.exp(no), 1)
    np.testing.assert_allclose(np.exp(yes), effects.logged)


def test_extreme_odds_stay_finite() -> None:
    yes, no = ByValue(None).log_chances(Effects(np.array([-800.0, 800.0]), np.zeros(1)))

    np.testing.assert_allclose(yes, [[-800, 0]])
    np.testing.assert_allclose(no, [[0, -800]])


@pytest.mark.parametrize("prior", [PRIOR, PseudoCells(np.ones(3), np.ones(3))])
def test_the_chance_of_a_value_is_the_share_of_its_logged_cells(prior: PseudoCells) -> None:
    found = ByValue(prior).improved(Effects(START.value, np.zeros(6)), LOGGED, UNLOGGED)

    logged, all_cells = (
        prior.logged + LOGGED.sum(axis=0),
        (LOGGED + UNLOGGED).sum(axis=0) + prior.logged + prior.unlogged,
    )
    np.testing.assert_allclose(found.logged[0], logged / all_cells)


@pytest.mark.parametrize("mechanism", [AtRandom(), ByValue(None)])
def test_what_is_known_stays(mechanism: Any) -> None:
    assert mechanism.improved(START, LOGGED, UNLOGGED) is START
    assert mechanism.log_prior(START) == 0


def test_the_log_prior_is_what_it_says() -> None:
    nothing: Matrix = np.zeros((6, 3))
    for prior in (PRIOR, None):
        expected = (
            score(START.value, START.item, prior)
            - score(START.value, START.item, None)
            - (START.item**2).sum() / 20
        )
        assert ByValueAndItem(prior).log_prior(START) == pytest.approx(expected)
        assert ByValueAndItem(prior)._score(START, nothing, nothing) == pytest.approx(expected)
    assert ByValue(PRIOR).log_prior(START) == pytest.approx(
        expected + PRIOR.log_density(START.value) + (START.item**2).sum() / 20
    )


def test_newtons_step_solves_the_full_system() -> None:
    """The Hessian of levels and items, written out as one 9 x 9 matrix of finite differences."""
    at = np.concatenate([START.value, START.item])
    hessian = np.array(
        [(gradient(at + h, PRIOR) - gradient(at - h, PRIOR)) / 2e-3 for h in 1e-3 * np.eye(9)]
    )

    step = ByValueAndItem(PRIOR)._step(START, LOGGED, UNLOGGED)

    expected = -np.linalg.solve(hessian, gradient(at, PRIOR))
    np.testing.assert_allclose(np.concatenate([step.value, step.item]), expected, atol=1e-4)


@pytest.mark.parametrize("prior", [PRIOR, None])
def test_newtons_method_rises_to_the_top(prior: PseudoCells | None) -> None:
    mechanism, now = ByValueAndItem(prior), START
    scores = [score(now.value, now.item, prior)]
    for _ in range(8):
        now = mechanism.improved(now, LOGGED, UNLOGGED)
        scores.append(score(now.value, now.item, prior))

    assert (np.diff(scores) >= -1e-9).all()
    slopes = gradient(np.concatenate([now.value, now.item]), prior)
    np.testing.assert_allclose(slopes[0 if prior else 3 :], 0, atol=1e-5)
    if prior is None:
        assert now.value.tolist() == START.value.tolist()


def test_a_step_that_would_fall_is_halved() -> None:
    """From far away Newton's step for a single item overshoots."""
    far = Effects(np.zeros(1), np.array([12.0]))
    mechanism = ByValueAndItem(None)
    logged, unlogged = np.array([[1.0]]), np.array([[1e4]])
    step = mechanism._step(far, logged, unlogged)
    whole = Effects(far.value, far.item + step.item)
    assert mechanism._score(whole, logged, unlogged) < mechanism._score(far, logged, unlogged)

    found = mechanism.improved(far, logged, unlogged)

    assert mechanism._score(found, logged, unlogged) > mechanism._score(far, logged, unlogged)
