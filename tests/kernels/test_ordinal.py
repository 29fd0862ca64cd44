"""The kernel against enumeration of the levels of every cell, and against finite differences."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from unskew.kernels import ordinal as kernel
from unskew.kernels.ordinal import LARGEST, exponentiate
from unskew.kernels.ordinal_rows import (
    ItemRows,
    LevelsByUser,
    RowExponentials,
    UserRows,
    pad_columns,
)

N_USERS, N_ITEMS = 4, 5
SIZES = list(product([1, 2, 3, 5], [0, 2], [0, 2]))
"""Levels, factors, exposure factors."""
SEEN = ((0, 2, 4), (), (0, 1, 2, 3, 4), (3,))
"""Observed items of each user: a few, none, all, one."""


def make_rows(
    n_levels: int, n_factors: int, n_exposure: int, seed: int = 0
) -> tuple[UserRows, ItemRows]:
    rng = np.random.default_rng(seed)

    def side(n: int) -> list[np.ndarray]:
        factors, exposure, effect = (
            rng.normal(size=(n, width)) for width in (n_factors, n_exposure, n_levels)
        )
        return [
            pad_columns(factors),
            rng.normal(size=n),
            0.3 * rng.normal(size=n),
            rng.normal(size=n),
            pad_columns(exposure),
            effect,
        ]

    cuts = np.cumsum(rng.uniform(0.3, 1.5, (N_ITEMS, n_levels - 1)), axis=1) - 1.5
    return UserRows(*side(N_USERS)), ItemRows(*side(N_ITEMS), cuts)


def make_log(n_levels: int) -> LevelsByUser:
    lengths = [len(items) for items in SEEN]
    item = np.array([i for items in SEEN for i in items], np.int32)
    level = np.random.default_rng(1).integers(0, n_levels, item.size).astype(np.int32)
    return LevelsByUser(np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64), item, level)


def zeros_like(rows: UserRows | ItemRows) -> UserRows | ItemRows:
    return type(rows)(*(np.zeros_like(part) for part in rows))


def evaluate(
    users: UserRows,
    items: ItemRows,
    log: LevelsByUser,
    *,
    has_selection: bool = True,
) -> tuple[float, UserRows, ItemRows]:
    gradient = zeros_like(users), zeros_like(items)
    exponentials = RowExponentials.of(users, items)
    return kernel.add_likelihood(
        (0, N_USERS), log, users, items, exponentials, has_selection, has_selection, gradient
    ), *gradient


def sigma(x: np.ndarray | float) -> np.ndarray | float:
    return 1 / (1 + np.exp(-x))


def level_probabilities(users: UserRows, items: ItemRows, u: int, i: int) -> np.ndarray:
    """P_r of one cell."""
    score = users.factors[u] @ items.factors[i] + users.offset[u] + items.offset[i]
    up_to = sigma((items.cuts[i] - score) / np.exp(users.noise[u] + items.noise[i]))
    return np.diff(np.concatenate([[0.0], up_to, [1.0]]))


def observed_probabilities(users: UserRows, items: ItemRows, u: int, i: int) -> np.ndarray:
    """P(O = 1 | r) of one cell."""
    shared = users.activity[u] + items.popularity[i] + users.exposure[u] @ items.exposure[i]
    return sigma(shared + users.effect[u] + items.effect[i])


def levels_by_cell(log: LevelsByUser) -> dict[tuple[int, int], int]:
    user = np.repeat(np.arange(N_USERS), np.diff(log.starts))
    return {
        (int(u), int(i)): int(level) for u, i, level in zip(user, log.item, log.level, strict=True)
    }


def likelihood_by_cell(
    users: UserRows, items: ItemRows, log: LevelsByUser, *, has_selection: bool = True
) -> float:
    """The log likelihood, added up cell by cell."""
    seen, total = levels_by_cell(log), 0.0
    for u, i in product(range(N_USERS), range(N_ITEMS)):
        level, observed = (
            level_probabilities(users, items, u, i),
            observed_probabilities(users, items, u, i),
        )
        if (u, i) in seen:
            total += np.log(level[seen[u, i]]) + (
                np.log(observed[seen[u, i]]) if has_selection else 0.0
            )
        elif has_selection:
            total += np.log(level @ (1 - observed))
    return total


@pytest.mark.parametrize("has_selection", [False, True])
@pytest.mark.parametrize(("n_levels", "n_factors", "n_exposure"), SIZES)
def test_the_likelihood_is_that_of_every_cell(
    n_levels: int, n_factors: int, n_exposure: int, has_selection: bool
) -> None:
    users, items = make_rows(n_levels, n_factors, n_exposure)
    log = make_log(n_levels)

    value, _, _ = evaluate(users, items, log, has_selection=has_selection)

    assert value == pytest.approx(
        likelihood_by_cell(users, items, log, has_selection=has_selection), rel=1e-12, abs=1e-12
    )


def test_the_likelihood_is_the_sum_over_all_complete_matrices() -> None:
    """2 users x 2 items x 3 levels: 81 complete matrices; only those that match the log count."""
    users, items = make_rows(3, 2, 1)
    log = LevelsByUser(
        np.array([0, 1, 1], np.int64), np.array([1], np.int32), np.array([2], np.int32)
    )
    users, items = UserRows(*(part[:2] for part in users)), ItemRows(*(part[:2] for part in items))
    cells = list(product(range(2), range(2)))
    total = 0.0
    for matrix in product(range(3), repeat=4):
        probability = 1.0
        for (u, i), level in zip(cells, matrix, strict=True):
            p_level, observed = (
                level_probabilities(users, items, u, i)[level],
                observed_probabilities(users, items, u, i)[level],
            )
            probability *= p_level * (
                (observed if level == 2 else 0.0) if (u, i) == (0, 1) else 1 - observed
            )
        total += probability

    gradient = zeros_like(users), zeros_like(items)
    value = kernel.add_likelihood(
        (0, 2), log, users, items, RowExponentials.of(users, items), True, True, gradient
    )

    assert value == pytest.approx(np.log(total), rel=1e-12)


@pytest.mark.parametrize("has_selection", [False, True])
@pytest.mark.parametrize(("n_levels", "n_factors", "n_exposure"), SIZES)
def test_gradients_are_those_of_finite_differences(
    n_levels: int, n_factors: int, n_exposure: int, has_selection: bool
) -> None:
    sides = make_rows(n_levels, n_factors, n_exposure, seed=3)
    log = make_log(n_levels)
    _, *gradients = evaluate(*sides, log, has_selection=has_selection)

    for side, gradient in zip(sides, gradients, strict=True):
        for part, expected in zip(side, gradient, strict=True):
            for position in np.ndindex(part.shape):
                middle, around = part[position], []
                for step in (1e-6, -1e-6):
                    part[position] = middle + step
                    around.append(evaluate(*sides, log, has_selection=has_selection)[0])
                part[position] = middle
                assert (around[0] - around[1]) / 2e-6 == pytest.approx(expected[position], abs=2e-7)


def test_levels_that_are_far_off_have_finite_logarithms_and_gradients() -> None:
    users, items = make_rows(3, 0, 0)
    users.noise[:], items.noise[:] = 0, 0
    log = make_log(3)._replace(level=np.ones(9, np.int32))

    for far in (600.0, -600.0):
        users.offset[:] = far
        value, by_user, _ = evaluate(users, items, log, has_selection=False)
        gap = items.cuts[log.item, 1] - items.cuts[log.item, 0]
        nearest = items.cuts[log.item, 1 if far > 0 else 0] - far - items.offset[log.item]
        assert value == pytest.approx((np.log(-np.expm1(-gap)) - np.abs(nearest)).sum(), rel=1e-9)
        np.testing.assert_allclose(by_user.offset[[0, 2, 3]], -np.sign(far) * np.array([3, 5, 1]))


@pytest.mark.parametrize("n_levels", [1, 2, 5])
def test_distributions_are_those_of_unobserved_cells(n_levels: int) -> None:
    users, items = make_rows(n_levels, 2, 1)
    pairs = [
        np.array(codes, np.int32)
        for codes in zip(*product(range(N_USERS), range(N_ITEMS)), strict=True)
    ]
    plain, unobserved = np.empty((20, n_levels)), np.empty((20, n_levels))

    for has_selection, probabilities in ((False, plain), (True, unobserved)):
        kernel.fill_distribution(
            *pairs, users, items, RowExponentials.of(users, items), has_selection, probabilities
        )

    for row, (u, i) in enumerate(zip(*pairs, strict=True)):
        level = level_probabilities(users, items, u, i)
        joint = level * (1 - observed_probabilities(users, items, u, i))
        np.testing.assert_allclose(plain[row], level, atol=1e-14)
        np.testing.assert_allclose(unobserved[row], joint / joint.sum(), atol=1e-14)


def exponentials_of(x: np.ndarray) -> np.ndarray:
    values = x.copy()
    exponentiate(values, x.size, np.empty(x.size))
    return values


def test_exponentials_have_full_precision() -> None:
    rng = np.random.default_rng(0)
    edges = np.array([0.0, -0.0, 1e-300, -1e-20, LARGEST, -LARGEST, 0.5 * np.log(2)])
    x = np.concatenate([edges, rng.uniform(-LARGEST, LARGEST, 5000), rng.normal(size=5000)])

    np.testing.assert_allclose(exponentials_of(x), np.exp(x), rtol=1e-15)


def test_numbers_out_of_range_have_the_last_exponential_and_nan_stays() -> None:
    x = np.array([-np.inf, -1000.0, 1000.0, np.inf, np.nan])

    ends = np.exp([-LARGEST, -LARGEST, LARGEST, LARGEST, np.nan])
    np.testing.assert_allclose(exponentials_of(x), ends, rtol=1e-15)


@pytest.mark.parametrize("n", [0, 3])
def test_only_the_first_numbers_are_replaced(n: int) -> None:
    x = np.arange(5.0)
    exponentiate(x, n, np.empty(5))

    np.testing.assert_allclose(x[:n], np.exp(np.arange(n)), rtol=1e-15)
    np.testing.assert_array_equal(x[n:], np.arange(5.0)[n:])
