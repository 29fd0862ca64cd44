"""The kernel against a slow twin that enumerates the levels of every cell, and against finite differences."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from unskew.kernels import ordinal as kernel
from unskew.kernels.ordinal_lines import Draws, Exponentials, Items, LevelLog, Users

N_USERS, N_ITEMS = 4, 5
SIZES = list(product([1, 2, 3, 5], [0, 2], [0, 2]))
"""Levels, factors, exposure factors."""
SEEN = ((0, 2, 4), (), (0, 1, 2, 3, 4), (3,))
"""Items of each user: some, none, all, one."""


def lines(n_levels: int, n_factors: int, n_exposure: int, seed: int = 0) -> tuple[Users, Items]:
    rng = np.random.default_rng(seed)

    def side(n: int) -> list[np.ndarray]:
        factors, exposure, effect = (
            rng.normal(size=(n, width)) for width in (n_factors, n_exposure, n_levels)
        )
        return [
            factors,
            rng.normal(size=n),
            0.3 * rng.normal(size=n),
            rng.normal(size=n),
            exposure,
            effect,
        ]

    cuts = np.cumsum(rng.uniform(0.3, 1.5, (N_ITEMS, n_levels - 1)), axis=1) - 1.5
    return Users(*side(N_USERS)), Items(*side(N_ITEMS), cuts)


def some_log(n_levels: int) -> LevelLog:
    lengths = [len(items) for items in SEEN]
    item = np.array([i for items in SEEN for i in items], np.int32)
    level = np.random.default_rng(1).integers(0, n_levels, item.size).astype(np.int32)
    return LevelLog(np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64), item, level)


def all_unlogged() -> Draws:
    return Draws(
        np.array([N_ITEMS - len(items) for items in SEEN], np.int64), np.linspace(0, 0.9, N_USERS)
    )


def zeros_like(each: Users | Items) -> Users | Items:
    return type(each)(*(np.zeros_like(part) for part in each))


def evaluate(
    users: Users, items: Items, log: LevelLog, draws: Draws, *, selects: bool = True
) -> tuple[float, Users, Items]:
    by = zeros_like(users), zeros_like(items)
    known = Exponentials.of(users, items)
    return kernel.add_likelihood((0, N_USERS), log, draws, users, items, known, selects, by), *by


def sigma(x: np.ndarray | float) -> np.ndarray | float:
    return 1 / (1 + np.exp(-x))


def level_chances(users: Users, items: Items, u: int, i: int) -> np.ndarray:
    """P_r of one cell."""
    score = users.factors[u] @ items.factors[i] + users.offset[u] + items.offset[i]
    up_to = sigma((items.cuts[i] - score) / np.exp(users.noise[u] + items.noise[i]))
    return np.diff(np.concatenate([[0.0], up_to, [1.0]]))


def logged_chances(users: Users, items: Items, u: int, i: int) -> np.ndarray:
    """P(O = 1 | r) of one cell."""
    shared = users.activity[u] + items.popularity[i] + users.exposure[u] @ items.exposure[i]
    return sigma(shared + users.effect[u] + items.effect[i])


def levels_by_cell(log: LevelLog) -> dict[tuple[int, int], int]:
    user = np.repeat(np.arange(N_USERS), np.diff(log.starts))
    return {
        (int(u), int(i)): int(level) for u, i, level in zip(user, log.item, log.level, strict=True)
    }


def likelihood_by_cell(users: Users, items: Items, log: LevelLog, *, selects: bool = True) -> float:
    """The logarithm of what each cell is worth, added up."""
    seen, total = levels_by_cell(log), 0.0
    for u, i in product(range(N_USERS), range(N_ITEMS)):
        level, logged = level_chances(users, items, u, i), logged_chances(users, items, u, i)
        if (u, i) in seen:
            total += np.log(level[seen[u, i]]) + (np.log(logged[seen[u, i]]) if selects else 0.0)
        elif selects:
            total += np.log(level @ (1 - logged))
    return total


@pytest.mark.parametrize("selects", [False, True])
@pytest.mark.parametrize(("n_levels", "n_factors", "n_exposure"), SIZES)
def test_the_likelihood_is_that_of_every_cell(
    n_levels: int, n_factors: int, n_exposure: int, selects: bool
) -> None:
    users, items = lines(n_levels, n_factors, n_exposure)
    log = some_log(n_levels)

    value, _, _ = evaluate(users, items, log, all_unlogged(), selects=selects)

    assert value == pytest.approx(
        likelihood_by_cell(users, items, log, selects=selects), rel=1e-12, abs=1e-12
    )


def test_the_likelihood_is_the_sum_over_all_complete_matrices() -> None:
    """2 users x 2 items x 3 levels: 81 complete matrices, of which the log leaves those that agree with it."""
    users, items = lines(3, 2, 1)
    log = LevelLog(np.array([0, 1, 1], np.int64), np.array([1], np.int32), np.array([2], np.int32))
    users, items = Users(*(part[:2] for part in users)), Items(*(part[:2] for part in items))
    cells = list(product(range(2), range(2)))
    total = 0.0
    for matrix in product(range(3), repeat=4):
        worth = 1.0
        for (u, i), level in zip(cells, matrix, strict=True):
            chance, logged = (
                level_chances(users, items, u, i)[level],
                logged_chances(users, items, u, i)[level],
            )
            worth *= chance * ((logged if level == 2 else 0.0) if (u, i) == (0, 1) else 1 - logged)
        total += worth

    by = zeros_like(users), zeros_like(items)
    draws = Draws(np.array([1, 2], np.int64), np.zeros(2))
    value = kernel.add_likelihood(
        (0, 2), log, draws, users, items, Exponentials.of(users, items), True, by
    )

    assert value == pytest.approx(np.log(total), rel=1e-12)


@pytest.mark.parametrize("selects", [False, True])
@pytest.mark.parametrize(("n_levels", "n_factors", "n_exposure"), SIZES)
def test_slopes_are_those_of_finite_differences(
    n_levels: int, n_factors: int, n_exposure: int, selects: bool
) -> None:
    sides = lines(n_levels, n_factors, n_exposure, seed=3)
    log, draws = some_log(n_levels), all_unlogged()
    _, *slopes = evaluate(*sides, log, draws, selects=selects)

    for side, slope in zip(sides, slopes, strict=True):
        for part, expected in zip(side, slope, strict=True):
            for place in np.ndindex(part.shape):
                middle, around = part[place], []
                for step in (1e-6, -1e-6):
                    part[place] = middle + step
                    around.append(evaluate(*sides, log, draws, selects=selects)[0])
                part[place] = middle
                assert (around[0] - around[1]) / 2e-6 == pytest.approx(expected[place], abs=2e-7)


def test_a_sample_of_unlogged_cells_is_right_on_average() -> None:
    """Every place where the comb may begin, in equal parts: the mean is the sum over all cells, for values and slopes."""
    users, items = lines(3, 2, 1)
    log, exact = some_log(3), all_unlogged()
    n_drawn = np.minimum(exact.n_drawn, [1, 2, 0, 3])
    places = [(k + 0.5) / 60 for k in range(60)]

    found = [
        evaluate(users, items, log, Draws(n_drawn, np.full(N_USERS, place))) for place in places
    ]

    value, by_user, by_item = evaluate(users, items, log, exact)
    assert np.mean([each[0] for each in found]) == pytest.approx(value, rel=1e-12)
    np.testing.assert_allclose(
        np.mean([each[1].effect for each in found], axis=0), by_user.effect, atol=1e-12
    )
    np.testing.assert_allclose(
        np.mean([each[2].cuts for each in found], axis=0), by_item.cuts, atol=1e-12
    )


def test_levels_that_are_far_off_have_finite_logarithms_and_slopes() -> None:
    users, items = lines(3, 0, 0)
    users.noise[:], items.noise[:] = 0, 0
    log = some_log(3)._replace(level=np.ones(9, np.int32))

    for far in (600.0, -600.0):
        users.offset[:] = far
        value, by_user, _ = evaluate(users, items, log, all_unlogged(), selects=False)
        gap = items.cuts[log.item, 1] - items.cuts[log.item, 0]
        nearest = items.cuts[log.item, 1 if far > 0 else 0] - far - items.offset[log.item]
        assert value == pytest.approx((np.log(-np.expm1(-gap)) - np.abs(nearest)).sum(), rel=1e-9)
        np.testing.assert_allclose(by_user.offset[[0, 2, 3]], -np.sign(far) * np.array([3, 5, 1]))


@pytest.mark.parametrize("n_levels", [1, 2, 5])
def test_distributions_are_those_of_unlogged_cells(n_levels: int) -> None:
    users, items = lines(n_levels, 2, 1)
    pairs = [
        np.array(codes, np.int32)
        for codes in zip(*product(range(N_USERS), range(N_ITEMS)), strict=True)
    ]
    plain, unlogged = np.empty((20, n_levels)), np.empty((20, n_levels))

    for selects, shares in ((False, plain), (True, unlogged)):
        kernel.fill_distribution(
            *pairs, users, items, Exponentials.of(users, items), selects, shares
        )

    for row, (u, i) in enumerate(zip(*pairs, strict=True)):
        level = level_chances(users, items, u, i)
        stays = level * (1 - logged_chances(users, items, u, i))
        np.testing.assert_allclose(plain[row], level, atol=1e-14)
        np.testing.assert_allclose(unlogged[row], stays / stays.sum(), atol=1e-14)
