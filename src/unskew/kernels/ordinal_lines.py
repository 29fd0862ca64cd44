"""What the kernels of ordinal ratings are given: lines of numbers for users and items, and the log. Loads no compiler."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from unskew.types import IntVector, Matrix, Vector

Counts: TypeAlias = npt.NDArray[np.int64]


class Users(NamedTuple):
    """A line for each user; slopes have the same form."""

    factors: Matrix
    offset: Vector
    noise: Vector
    """Logarithm of the scale of the noise."""
    activity: Vector
    exposure: Matrix
    effect: Matrix
    """Users x levels, what all users share included."""


class Items(NamedTuple):
    """A line for each item; slopes have the same form."""

    factors: Matrix
    offset: Vector
    noise: Vector
    popularity: Vector
    exposure: Matrix
    effect: Matrix
    cuts: Matrix
    """Items x (levels - 1), rising."""


class Exponentials(NamedTuple):
    """What cells would otherwise compute again and again."""

    user_precision: Vector
    item_precision: Vector
    user_odds: Matrix
    item_odds: Matrix

    @classmethod
    def of(cls, users: Users, items: Items) -> Exponentials:
        """exp(-noise) and exp(effect) of both sides."""
        return cls(
            np.exp(-users.noise), np.exp(-items.noise), np.exp(users.effect), np.exp(items.effect)
        )


class LevelLog(NamedTuple):
    """The log by user, the items of each rising: user u's cells are ``starts[u]`` to ``starts[u + 1]``."""

    starts: Counts
    item: IntVector
    level: IntVector


class Draws(NamedTuple):
    """How many of each user's unlogged cells are taken, and where between two of them the first is, from 0 up to 1."""

    n_drawn: Counts
    place: Vector
