"""Tiles against the likelihood that is added up cell by cell."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from unskew.kernels.ordinal import add_likelihood
from unskew.kernels.ordinal_rows import (
    ItemRows,
    LevelsByUser,
    RowExponentials,
    UserRows,
    pad_columns,
)
from unskew.latent.ordinal_tiles import SingleRows, TileSample, add_tiles

SHAPE = 23, 300
SIZES = list(product([1, 2, 5], [0, 3], [0, 2]))
"""Levels, factors, exposure factors."""


def make_rows(n_levels: int, n_factors: int, n_exposure: int) -> tuple[UserRows, ItemRows]:
    rng = np.random.default_rng(0)
    sides = []
    for n in SHAPE:
        parts = [rng.normal(size=(n, width)) for width in (n_factors, n_exposure, n_levels)]
        offset, noise, popularity = rng.normal(size=(3, n))
        sides.append(
            [pad_columns(parts[0]), offset, 0.3 * noise, popularity - 2, pad_columns(parts[1])]
        )
        sides[-1].append(0.5 * parts[2])
    cuts = np.cumsum(rng.uniform(0.3, 1.5, (SHAPE[1], n_levels - 1)), axis=1) - 1.5
    return UserRows(*sides[0]), ItemRows(*sides[1], cuts)


def make_log(n_levels: int) -> LevelsByUser:
    """No ratings, all, and a fifth of the items."""
    rng = np.random.default_rng(1)
    seen = rng.random(SHAPE) < 0.2
    seen[0], seen[1] = False, True
    user, item = np.nonzero(seen)
    starts = np.concatenate([[0], np.cumsum(seen.sum(axis=1))]).astype(np.int64)
    level = rng.integers(0, n_levels, user.size).astype(np.int32)
    return LevelsByUser(starts, item.astype(np.int32), level)


def zeros_like(rows: UserRows | ItemRows) -> UserRows | ItemRows:
    return type(rows)(*(np.zeros_like(part) for part in rows))


def add_by_cell(
    users: UserRows, items: ItemRows, log: LevelsByUser
) -> tuple[float, UserRows, ItemRows]:
    """The unobserved cells alone: all cells less the observed ones, in double precision."""
    parts = []
    for has_unobserved in (True, False):
        gradient = zeros_like(users), zeros_like(items)
        value = add_likelihood(
            (0, SHAPE[0]),
            log,
            users,
            items,
            RowExponentials.of(users, items),
            True,
            has_unobserved,
            gradient,
        )
        parts.append((value, *gradient))
    (value, by_user, by_item), (less, user_less, item_less) = parts
    return (
        value - less,
        UserRows(*(one - two for one, two in zip(by_user, user_less, strict=True))),
        ItemRows(*(one - two for one, two in zip(by_item, item_less, strict=True))),
    )


def add_by_tile(
    sample: TileSample, users: UserRows, items: ItemRows, log: LevelsByUser, sizes: tuple[int, int]
) -> tuple[float, UserRows, ItemRows]:
    gradient = zeros_like(users), zeros_like(items)
    rows = SingleRows.of(
        users,
        items,
        RowExponentials.of(users, items),
        n_factors=sizes[0],
        n_exposure_factors=sizes[1],
    )
    value = add_tiles((0, SHAPE[0]), sample, log, rows, True, gradient)
    return value, *gradient


@pytest.mark.parametrize(("n_levels", "n_factors", "n_exposure"), SIZES)
def test_tiles_of_all_cells_add_up_to_every_unobserved_cell(
    n_levels: int, n_factors: int, n_exposure: int
) -> None:
    users, items = make_rows(n_levels, n_factors, n_exposure)
    log, sample = make_log(n_levels), TileSample.of(1.0, SHAPE, 0)

    value, *gradient = add_by_tile(sample, users, items, log, (n_factors, n_exposure))

    expected, *by_cell = add_by_cell(users, items, log)
    assert value == pytest.approx(expected, rel=1e-6)
    for side, exact in zip(gradient, by_cell, strict=True):
        for part, exact_part in zip(side, exact, strict=True):
            np.testing.assert_allclose(part, exact_part, rtol=1e-4, atol=2e-4)


def test_a_sample_is_right_on_average() -> None:
    """Means over draws of value and gradient are those of all cells, within four errors."""
    users, items = make_rows(3, 2, 1)
    log = make_log(3)
    expected, by_user, by_item = add_by_cell(users, items, log)

    draws = [
        add_by_tile(TileSample.of(0.3, SHAPE, seed), users, items, log, (2, 1))
        for seed in range(400)
    ]

    for found, exact in (
        (np.array([value for value, _, _ in draws]), expected),
        (np.array([user.activity for _, user, _ in draws]), by_user.activity),
        (np.array([item.cuts for _, _, item in draws]), by_item.cuts),
    ):
        error = found.std(axis=0) / np.sqrt(len(draws))
        assert (np.abs(found.mean(axis=0) - exact) <= 4.5 * error + 1e-6).all()


@pytest.mark.parametrize("share", [0.1, 0.25, 0.5, 0.7, 0.9])
def test_items_are_in_about_as_many_blocks(share: float) -> None:
    sample = TileSample.of(share, (2000, 40), 3)

    n_blocks = np.bincount(sample.items.ravel(), minlength=40)
    assert sample.share == pytest.approx(share)
    assert (np.diff(sample.items, axis=1) > 0).all()
    # A permutation is used up before the next one: about one block of each permutation is missed.
    per_permutation = int(1 / min(share, 1 - share))
    slack = 1 + len(sample.items) / per_permutation * (1 - per_permutation * min(share, 1 - share))
    assert np.abs(n_blocks - share * len(sample.items)).max() <= 1 + 6 * np.sqrt(slack)


def test_tiles_have_fewer_users_where_an_item_would_be_in_few_of_them() -> None:
    assert TileSample.of(0.5, (6400, 100), 0).users_per_tile == 16
    assert TileSample.of(0.5, (320, 100), 0).users_per_tile == 10
    assert TileSample.of(0.01, (100, 100), 0).users_per_tile == 1
    assert TileSample.of(1.0, (320, 100), 0).users_per_tile == 16


def test_far_off_scores_have_finite_values() -> None:
    users, items = make_rows(5, 0, 0)
    log, sample = make_log(5), TileSample.of(1.0, SHAPE, 0)

    for far in (600.0, -600.0):
        users.offset[:], users.activity[:] = far, far
        value, by_user, by_item = add_by_tile(sample, users, items, log, (0, 0))
        assert np.isfinite(value)
        assert all(np.isfinite(part).all() for side in (by_user, by_item) for part in side)
