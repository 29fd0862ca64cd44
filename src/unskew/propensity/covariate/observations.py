"""The cells that a logistic fit sums over, whole or in parts: which are trained on and which are held out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from unskew.data.ratings import Ratings
from unskew.errors import UsageError
from unskew.propensity.covariate.cells import Unobserved, draw_unobserved
from unskew.propensity.covariate.design import Side
from unskew.propensity.covariate.likelihood import Grid, Problem, Sample, Units
from unskew.threads import Workers
from unskew.types import BoolVector, IntVector, Matrix

MOST_PAIRS = 5 * 10**7
"""Pairs of units that are summed over at every step; with more, unobserved cells are sampled."""
NEGATIVES = 3.0
"""Sampled unobserved cells for each observed one, where that is not said."""


@dataclass(frozen=True, slots=True, eq=False)
class Folds:
    """Cell (u, i) is in part (part of u + part of i) mod n: whole users where all items are in part 0, whole items likewise."""

    n: int
    user: IntVector
    item: IntVector

    @classmethod
    def of(cls, n: int, user: Side, item: Side, rng: np.random.Generator) -> Folds:
        """Hold out users that have no offset of their own, else items that have none, else blocks of both."""
        sizes = [side.covariates.profile.size for side in (user, item)]
        is_split = (not user.has_offset or item.has_offset, user.has_offset)
        for kind, size, split in zip(("users", "items"), sizes, is_split, strict=True):
            if split and size < n:
                raise UsageError(
                    f"n_folds={n} parts need as many {kind}; there are {size}. Lower n_folds, or give l2 as a number."
                )
        parts = [
            rng.permutation(size) % n if split else np.zeros(size)
            for size, split in zip(sizes, is_split, strict=True)
        ]
        return cls(n, parts[0].astype(np.int32), parts[1].astype(np.int32))

    def are_trained(self, fold: int, user: IntVector, item: IntVector) -> BoolVector:
        """Which of the given cells are not in part ``fold``."""
        trained: BoolVector = (self.user[user] + self.item[item]) % self.n != fold
        return trained

    def trained(self, fold: int) -> Matrix:
        """1 for the parts of users and of items whose cells are not in part ``fold``, 0 for the others."""
        user, item = np.arange(self.user.max() + 1), np.arange(self.item.max() + 1)
        return np.asarray((user[:, None] + item) % self.n != fold, dtype=np.float64)


@dataclass(frozen=True, slots=True, eq=False)
class Observations:
    """The observed cells, and a sample of the others where they are too many to sum over."""

    log: Ratings
    user: Side
    item: Side
    unobserved: Unobserved | None

    @classmethod
    def of(
        cls, log: Ratings, user: Side, item: Side, negatives: float | None, rng: np.random.Generator
    ) -> Observations:
        """Sample where ``negatives`` says so, or the pairs of units are too many."""
        all_cells = cls(log, user, item, None)
        if (
            negatives is None
            and np.prod([len(units) for units in all_cells._units()], dtype=float) <= MOST_PAIRS
        ):
            return all_cells
        return cls(log, user, item, draw_unobserved(log, len(log) * (negatives or NEGATIVES), rng))

    def problem(self, workers: Workers) -> Problem:
        """The likelihood of all cells, or of the sample."""
        user, item = self._units()
        return Problem.of(self._cells(user, item), self.log.user, self.log.item, workers)

    def split(self, folds: Folds, workers: Workers) -> Iterator[tuple[Problem, Problem]]:
        """For each part, the likelihood of the other parts and its own, as functions of the same coefficients."""
        for fold in range(folds.n):
            kept = folds.are_trained(fold, self.log.user, self.log.item)
            user, item = self._units(kept, folds)
            yield tuple(  # type: ignore[misc]
                Problem.of(
                    self._cells(user, item, folds, fold, held_out),
                    self.log.user[rows],
                    self.log.item[rows],
                    workers,
                )
                for held_out, rows in ((False, kept), (True, ~kept))
            )

    def _units(
        self, kept: BoolVector | None = None, folds: Folds | None = None
    ) -> tuple[Units, Units]:
        rows = slice(None) if kept is None else kept
        parts = (
            (folds.user, folds.item)
            if folds
            else (np.zeros(n, dtype=np.int32) for n in (self.log.n_users, self.log.n_items))
        )
        sides, codes = (self.user, self.item), (self.log.user[rows], self.log.item[rows])
        user, item = (
            side.units(code, part, apart=self.unobserved is not None)
            for side, code, part in zip(sides, codes, parts, strict=True)
        )
        return user, item

    def _cells(
        self,
        user: Units,
        item: Units,
        folds: Folds | None = None,
        fold: int = 0,
        held_out: bool = False,
    ) -> Grid | Sample:
        if self.unobserved is None:
            trained = folds.trained(fold) if folds else None
            return Grid(user, item, 1 - trained if held_out and trained is not None else trained)
        users = np.concatenate([self.log.user, self.unobserved.user])
        items = np.concatenate([self.log.item, self.unobserved.item])
        if folds is not None:
            rows = folds.are_trained(fold, users, items) != held_out
            users, items = users[rows], items[rows]
        return Sample.of(user, item, users, items)
