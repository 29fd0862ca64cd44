"""Folds of users and of cells, observed or not."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from unskew.data.checks import whole_number
from unskew.errors import UsageError
from unskew.types import IntVector


def folds_of_users(n_users: int, *, n_folds: int, seed: int) -> IntVector:
    """A fold for each user: random, and as even as can be."""
    if whole_number("n_folds", n_folds, least=2) > n_users:
        raise UsageError(f"n_folds must be at most the number of users, {n_users}; got {n_folds}.")
    return (np.random.default_rng(seed).permutation(n_users) % n_folds).astype(np.int32)


def folds_of_cells(cell: npt.NDArray[np.int64], *, n_folds: int, seed: int) -> IntVector:
    """A fold for each cell, given by its number u I + i: a hash of it, so that all U I cells have one and none is stored."""
    start = np.random.SeedSequence(seed).generate_state(1, np.uint64)
    mixed = cell.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15) + start
    for shift, factor in (
        (30, 0xBF58476D1CE4E5B9),
        (27, 0x94D049BB133111EB),
    ):  # the finalizer of SplitMix64
        mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
    mixed ^= mixed >> np.uint64(31)
    return (mixed % np.uint64(n_folds)).astype(np.int32)
