"""A sample of unobserved cells as tiles, and its part of the ordinal likelihood."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Self

import numpy as np

from unskew.kernels.ordinal_rows import ItemRows, LevelsByUser, RowExponentials, UserRows
from unskew.threads import stop_if_interrupted
from unskew.types import IntVector, RandomState, Singles

MAX_USERS = 16
"""Users of a tile. They lack the same items, and factors of exposure fit this pattern as well."""
TILES_PER_ITEM = 16
"""The fewest tiles that an item is in, on average; if there are fewer, tiles get fewer users."""
CELLS_PER_TILE = 1 << 18
"""Wide tiles get fewer users, so that their matrices stay in the cache."""


@dataclass(frozen=True, slots=True, eq=False)
class TileSample:
    """Random items for each block of users; observed cells among them do not count.

    All users of a block have the same items, so that scores are matrix products. Each cell is in
    the sample with probability ``share``. The items of neighbouring blocks, or the items that they
    lack, are disjoint parts of one permutation, so that all items are in about as many blocks.
    """

    n_items: int
    users_per_tile: int
    items: IntVector
    """Blocks x items: the items of each block in ascending order."""

    @classmethod
    def of(cls, share: float, shape: tuple[int, int], random_state: RandomState) -> Self:
        """At least a ``share`` of all cells."""
        n_users, n_items = shape
        n_chosen = min(n_items, int(np.ceil(share * n_items)))
        most_users = min(MAX_USERS, max(4, CELLS_PER_TILE // n_chosen))
        if n_chosen < n_items:
            most_users = min(most_users, int(share * n_users / TILES_PER_ITEM))
        users_per_tile = max(1, most_users)
        n_blocks = -(-n_users // users_per_tile)
        return cls(n_items, users_per_tile, _draw_items(n_blocks, n_chosen, n_items, random_state))

    @property
    def share(self) -> float:
        """The probability that a cell is in the sample."""
        return float(self.items.shape[1] / self.n_items)

    def blocks(self, first: int, end: int) -> Iterator[tuple[int, int, int]]:
        """The number, first user and end of each block of users ``first`` to ``end``."""
        for start in range(first, end, self.users_per_tile):
            yield start // self.users_per_tile, start, min(start + self.users_per_tile, end)


def _draw_items(n_blocks: int, n_chosen: int, n_items: int, random_state: RandomState) -> IntVector:
    """Windows of permutations, each sorted. A new permutation follows when one is used up."""
    if n_chosen == n_items:
        return np.broadcast_to(np.arange(n_items, dtype=np.int32), (n_blocks, n_items))
    rng, shift = np.random.default_rng(random_state), min(n_chosen, n_items - n_chosen)
    per_permutation = max(1, n_items // shift)
    items, order = np.empty((n_blocks, n_chosen), np.int32), np.arange(n_items, dtype=np.int32)
    for block in range(n_blocks):
        number = block % per_permutation
        order = rng.permutation(order) if number == 0 else order
        items[block] = np.sort(np.roll(order, -number * shift)[:n_chosen])
    return items


@dataclass(frozen=True, slots=True, eq=False)
class SingleRows:
    """The parameters of all users and items in single precision, as factors of two products.

    score = ``user_score`` @ ``item_score``', with offsets and ones as columns; log odds alike.
    """

    user_score: Singles
    item_score: Singles
    user_log_odds: Singles
    item_log_odds: Singles
    user_precision: Singles
    item_precision: Singles
    user_odds: Singles
    item_odds: Singles
    """Levels x items."""
    cuts: Singles
    """(levels - 1) x items, times the precision of the item."""

    @classmethod
    def of(
        cls,
        users: UserRows,
        items: ItemRows,
        exponentials: RowExponentials,
        *,
        n_factors: int,
        n_exposure_factors: int,
    ) -> Self:
        """Without the padding of rows."""
        d, e = n_factors, n_exposure_factors
        user_one, item_one = np.ones(users.offset.size), np.ones(items.offset.size)
        precision = exponentials.item_precision
        arrays = (
            np.column_stack([users.factors[:, :d], users.offset, user_one]),
            np.column_stack([items.factors[:, :d], item_one, items.offset]),
            np.column_stack([users.exposure[:, :e], users.activity, user_one]),
            np.column_stack([items.exposure[:, :e], item_one, items.popularity]),
            exponentials.user_precision,
            precision,
            exponentials.user_odds,
            exponentials.item_odds.T,
            (items.cuts * precision[:, None]).T,
        )
        return cls(*(np.ascontiguousarray(array, np.float32) for array in arrays))


def add_tiles(
    rows: tuple[int, int],
    sample: TileSample,
    log: LevelsByUser,
    parameters: SingleRows,
    has_effects: bool,
    gradient: tuple[UserRows, ItemRows],
) -> float:
    """The sum of log m over the sample's unobserved cells of users ``rows``, over ``share``.

    Its gradient is added to ``gradient``; that by the effects only with ``has_effects``.
    """
    total = 0.0
    with np.errstate(over="ignore", invalid="ignore"):
        for block, first, end in sample.blocks(*rows):
            stop_if_interrupted()
            users, chosen = slice(first, end), sample.items[block]
            total += _add_tile(users, chosen, sample, log, parameters, has_effects, gradient)
    return total / sample.share


def _add_tile(
    rows: slice,
    chosen: IntVector,
    sample: TileSample,
    log: LevelsByUser,
    parameters: SingleRows,
    has_effects: bool,
    gradient: tuple[UserRows, ItemRows],
) -> float:
    from unskew.kernels.ordinal_tiles import (
        TileGradient,
        TileItems,
        TileUsers,
        add_items,
        add_users,
        exclude_observed,
        weigh_tile,
    )

    position = np.full(sample.n_items, -1, np.int32)
    position[chosen] = np.arange(chosen.size)
    sides = (
        (parameters.user_score[rows], parameters.item_score.take(chosen, axis=0)),
        (parameters.user_log_odds[rows], parameters.item_log_odds.take(chosen, axis=0)),
    )
    score, log_odds = (np.matmul(of_user, of_item.T) for of_user, of_item in sides)
    users = TileUsers(rows.start, parameters.user_precision[rows], parameters.user_odds[rows])
    items = TileItems(
        parameters.item_precision[chosen],
        parameters.cuts.take(chosen, axis=1),
        parameters.item_odds.take(chosen, axis=1),
    )
    tile = TileGradient(
        np.full(score.shape, 1 / sample.share, np.float32),
        np.zeros_like(items.cuts),
        np.zeros_like(items.odds),
        np.zeros_like(users.odds),
    )
    exclude_observed(users, log, position, tile.noise)
    value = weigh_tile(score, log_odds, users, items, has_effects, tile)
    by_user, by_item = gradient
    user_score, user_odds = np.matmul(score, sides[0][1]), np.matmul(log_odds, sides[1][1])
    add_users(rows.start, user_score, user_odds, tile.noise.sum(axis=1), tile.user_odds, by_user)
    item_score, item_odds = np.matmul(score.T, sides[0][0]), np.matmul(log_odds.T, sides[1][0])
    add_items(chosen, item_score, item_odds, items, tile, by_item)
    return value
