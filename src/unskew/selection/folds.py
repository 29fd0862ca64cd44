"""Folds over ratings, with propensities that say how a cell came to be in a part of the log."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from unskew.data.checks import whole_number
from unskew.data.propensities import Propensities
from unskew.data.ratings import Ratings
from unskew.errors import UsageError


@dataclass(frozen=True, slots=True, eq=False)
class Fold:
    """One split. A cell got into the training part by being observed *and* drawn: P (k - 1) / k; into the other, P / k."""

    training: Ratings
    validation: Ratings
    training_propensities: Propensities | None
    validation_propensities: Propensities


def split(log: Ratings, propensities: Propensities | None, *, n_folds: int, random_state: int) -> Iterator[Fold]:
    """``n_folds`` random parts of n // k ratings, the last with the rest. Without propensities validation counts cells alike."""
    if whole_number("n_folds", n_folds, least=2) > len(log):
        raise UsageError(f"n_folds must be at most the number of ratings, {len(log)}; got {n_folds}.")
    order = np.random.default_rng(random_state).permutation(len(log))
    ends = [len(log) // n_folds * fold for fold in range(n_folds)] + [len(log)]
    uniform = Propensities(np.full(len(log), len(log) / log.n_cells))
    for fold in range(n_folds):
        held = order[ends[fold] : ends[fold + 1]]
        kept = np.concatenate([order[: ends[fold]], order[ends[fold + 1] :]])
        yield Fold(
            log.take(kept),
            log.take(held),
            None if propensities is None else Propensities(propensities.values[kept] * (n_folds - 1) / n_folds),
            Propensities((propensities or uniform).values[held] / n_folds),
        )
