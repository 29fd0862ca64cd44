"""Propensities that balance kernel functions of users and items."""

from __future__ import annotations

import numpy as np
import pytest

import unskew
from unskew.data.factors import Factors
from unskew.errors import UsageError
from unskew.factorization.balancing import (
    BalanceFeatures,
    KernelFunctions,
    balance_propensities,
    choose_functions,
    find_balance_ridge,
)
from unskew.models import AKBDR, AKBIPS


def some_factors(n_users: int = 80, n_items: int = 60, seed: int = 0) -> Factors:
    rng = np.random.default_rng(seed)
    shapes = (n_users, 2), (n_items, 2), n_users, n_items
    return Factors(*(rng.standard_normal(shape) for shape in shapes), 3.0)


def draw(
    factors: Factors, strength: float, seed: int = 0
) -> tuple[unskew.Ratings, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    score = factors(np.arange(factors.n_users, dtype=np.int32))
    propensity = 1 / (1 + np.exp(1.5 - strength * (score - 3)))
    seen = rng.random(score.shape) < propensity
    user, item = np.nonzero(seen)
    log = unskew.Ratings.from_arrays(
        user,
        item,
        score[seen] + 0.3 * rng.standard_normal(user.size),
        users=np.arange(factors.n_users),
        items=np.arange(factors.n_items),
    )
    return log, propensity, score


FACTORS = some_factors()


def test_totals_are_sums_over_all_cells() -> None:
    kernels = KernelFunctions.around(FACTORS, np.array([3, 7]), np.array([1, 2]))
    user, item = np.divmod(np.arange(80 * 60), 60)

    values = kernels.evaluate(user.astype(np.int32), item.astype(np.int32))

    assert kernels.totals == pytest.approx(values.sum(axis=0))
    assert values[3 * 60 + 1, 0] == pytest.approx(1)
    assert values.max() <= 1 + 1e-12


def test_kernels_are_in_balance_without_a_ridge_and_nearly_so_with_one() -> None:
    log, _, _ = draw(FACTORS, 0.5)
    uniform = np.full(len(log), len(log) / log.n_cells)
    kernels = KernelFunctions.around(FACTORS, log.user[:6], log.item[:6])
    features = BalanceFeatures.of_kernels(log, kernels)

    def imbalance(ridge: float) -> float:
        weight = 1 / balance_propensities(uniform, features, ridge=ridge)
        assert weight.sum() == pytest.approx(log.n_cells)
        return float(np.abs(weight @ features.on_log - features.totals).max())

    assert imbalance(0.0) < 1e-4
    assert 1e-4 < imbalance(50.0) < imbalance(5000.0)


def test_the_ridge_is_small_for_wrong_propensities_and_large_for_right_ones() -> None:
    log, propensity, _ = draw(FACTORS, 0.6)
    kernels = KernelFunctions.around(FACTORS, log.user[:10], log.item[:10])
    features = BalanceFeatures.of_kernels(log, kernels)
    uniform = np.full(len(log), len(log) / log.n_cells)

    wrong = find_balance_ridge(uniform, features)
    right = find_balance_ridge(propensity[log.user, log.item], features)

    assert wrong < 0.1 * right


def test_the_kernels_that_explain_the_error_are_chosen() -> None:
    log, _, _ = draw(FACTORS, 0.0)
    kernels = KernelFunctions.around(FACTORS, log.user[:20], log.item[:20])
    columns = kernels.evaluate(log.user, log.item)
    error = columns[:, 4] - 2 * columns[:, 11]

    chosen = choose_functions(columns, error, np.ones(len(log)), 2)

    assert chosen.size == 2
    left = np.linalg.lstsq(
        np.column_stack([np.ones(len(log)), columns[:, chosen]]), error, rcond=None
    )[1]
    assert left[0] < 0.2 * np.square(error - error.mean()).sum()


@pytest.mark.parametrize("preset", [AKBIPS, AKBDR])
def test_balance_improves_wrong_propensities(preset: object) -> None:
    """Selection by users and items, of which uniform propensities know nothing."""
    log, propensity, _ = draw(some_factors(200, 150), 0.6)
    uniform = np.full(len(log), len(log) / log.n_cells)

    model = preset(4).fit(log, uniform)  # type: ignore[operator]

    right = np.log(propensity[log.user, log.item])
    error = [np.std(np.log(each) - right) for each in (model.propensities_, uniform)]
    assert error[0] < 0.8 * error[1]


def test_propensities_are_needed() -> None:
    log, _, _ = draw(FACTORS, 0.0)

    with pytest.raises(UsageError, match="needs propensities to balance") as caught:
        AKBIPS().fit(log)
    assert caught.value.parameter == "propensities"
