"""The terms of the logistic model, and the cells that its likelihood sums over."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from unskew.data.cells import sample_unobserved_cells, user_and_item
from unskew.data.ratings import Ratings
from unskew.errors import UsageError
from unskew.propensity.cell_likelihood import (
    CellLikelihood,
    ExchangeableUnits,
    ListedCells,
    LogitTerms,
    UnitGrid,
)
from unskew.propensity.covariates import CovariateProfiles, varying_products
from unskew.tables import count_noun
from unskew.threads import Workers
from unskew.types import BoolVector, IntVector, Matrix, Vector

Interactions: TypeAlias = Literal["all", "user-item", "none"]
MAX_UNIT_PAIRS = 5 * 10**7
"""With more pairs of units than this, unobserved cells are sampled."""
NEGATIVES = 3.0
"""Sampled unobserved cells for each observed cell, by default."""


@dataclass(frozen=True, slots=True, eq=False)
class SideDesign:
    """The terms of all users, or of all items: covariates in standard units, and their pairs."""

    covariates: CovariateProfiles
    center: Vector
    scale: Vector
    first: IntVector
    """The first covariate of each pair of covariates of this side."""
    second: IntVector
    is_crossed: bool
    """Whether covariates are also multiplied by those of the other side."""
    has_offset: bool

    @classmethod
    def build(
        cls, covariates: CovariateProfiles, interactions: Interactions, *, has_offset: bool
    ) -> SideDesign:
        center, scale = covariates.standard_units()
        empty = np.empty(0, dtype=np.int32)
        side = cls(covariates, center, scale, empty, empty, interactions != "none", has_offset)
        if interactions != "all":
            return side
        first, second = varying_products(side.standardized)
        return replace(side, first=first, second=second)

    @property
    def standardized(self) -> Matrix:
        """Profiles x covariates, in standard units."""
        values: Matrix = (self.covariates.values - self.center) / self.scale
        return values

    @property
    def design(self) -> Matrix:
        """Profiles x columns: covariates, then products of pairs of them."""
        values = self.standardized
        return np.column_stack([values, values[:, self.first] * values[:, self.second]])

    @property
    def names(self) -> list[str]:
        """The names of the columns of ``design``."""
        names = self.covariates.names
        pairs = zip(self.first, self.second, strict=True)
        return [*names, *(f"{names[j]} x {names[k]}" for j, k in pairs)]

    def group_units(
        self,
        observed: IntVector,
        fold: IntVector,
        *,
        separate: bool,
        times: Vector | None = None,
    ) -> ExchangeableUnits:
        """The units of a fit to observed cells, given by their codes on this side.

        ``times`` says how often each was observed, if a code stands for several users.
        With ``separate``, each user with an offset is a unit; otherwise users with the same
        number of observations share one.
        """
        size = self.covariates.profile.size
        keys = []
        if self.has_offset:
            key = np.arange(size) if separate else np.bincount(observed, times, size)
            keys.append(key.astype(np.int32))
        return ExchangeableUnits.group(
            self.design,
            self.covariates.profile,
            *keys,
            n_crossed=len(self.covariates.names) if self.is_crossed else 0,
            has_offset=self.has_offset,
            fold=fold,
            size=self.covariates.size,
        )


@dataclass(frozen=True, slots=True, eq=False)
class CellFolds:
    """Folds of cells: cell (u, i) is in fold ``(user_fold[u] + item_fold[i]) % n``.

    If all item folds are 0, whole users are held out; if all user folds are 0, whole items.
    """

    n: int
    user: IntVector
    item: IntVector

    @classmethod
    def draw(
        cls, n: int, user: SideDesign, item: SideDesign, rng: np.random.Generator
    ) -> CellFolds:
        """Hold out users if they have no offsets, else items if they have none, else blocks."""
        is_split = (not user.has_offset or item.has_offset, user.has_offset)
        folds = []
        for side, split in zip((user, item), is_split, strict=True):
            size, kind = side.covariates.profile.size, side.covariates.kind
            if split and size < n:
                raise UsageError(
                    f"`ridge='cv'` holds out {kind}s in `n_folds={n}` folds, but there are only "
                    f"{count_noun(size, kind)}.",
                    parameter="n_folds",
                    remedy="Lower `n_folds`, or pass `ridge` as a number.",
                )
            folds.append(rng.permutation(size) % n if split else np.zeros(size))
        return cls(n, folds[0].astype(np.int32), folds[1].astype(np.int32))

    def is_training(self, fold: int, user: IntVector, item: IntVector) -> BoolVector:
        """Which of the given cells are not in fold ``fold``."""
        is_training: BoolVector = (self.user[user] + self.item[item]) % self.n != fold
        return is_training

    def training_pairs(self, fold: int) -> Matrix:
        """User folds x item folds: 1 if the cells are not in fold ``fold``, else 0."""
        user, item = np.arange(self.user.max() + 1), np.arange(self.item.max() + 1)
        return np.asarray((user[:, None] + item) % self.n != fold, dtype=np.float64)


@dataclass(frozen=True, slots=True, eq=False)
class LogisticData:
    """The observed cells, and a sample of the unobserved cells if there are too many of them."""

    log: Ratings
    user: SideDesign
    item: SideDesign
    unobserved: npt.NDArray[np.int64] | None
    """Cell numbers of the sample; None if all cells are summed over."""
    times: Vector | None = None
    """How often each cell was observed, if a code stands for several users; None if once."""

    @classmethod
    def prepare(
        cls,
        log: Ratings,
        user: SideDesign,
        item: SideDesign,
        negatives: float | None,
        rng: np.random.Generator,
    ) -> LogisticData:
        """Sample if ``negatives`` is a number, or if there are too many pairs of units."""
        data = cls(log, user, item, None)
        n_pairs = np.prod([len(units) for units in data._group_units()], dtype=float)
        if negatives is None and n_pairs <= MAX_UNIT_PAIRS:
            return data
        n_sampled = len(log) * (negatives or NEGATIVES)
        return cls(log, user, item, sample_unobserved_cells(log, n_sampled, rng))

    @property
    def sampled_share(self) -> float:
        """The share of the unobserved cells that are summed over."""
        if self.unobserved is None:
            return 1.0
        return self.unobserved.size / (self.log.n_cells - len(self.log))

    def likelihood(self, workers: Workers) -> CellLikelihood:
        """The likelihood of all cells, or of the sample."""
        user, item = self._group_units()
        cells = self._cells(user, item, None, 0, held_out=False)
        return CellLikelihood.of_cells(cells, self.log.user, self.log.item, workers, self.times)

    def split(
        self, folds: CellFolds, workers: Workers
    ) -> Iterator[tuple[CellLikelihood, CellLikelihood]]:
        """For each fold, the likelihoods of the other folds and of this one.

        Both are functions of the same coefficients.
        """
        for fold in range(folds.n):
            is_training = folds.is_training(fold, self.log.user, self.log.item)
            user, item = self._group_units(is_training, folds)
            training, held_out = (
                CellLikelihood.of_cells(
                    self._cells(user, item, folds, fold, held_out=is_held_out),
                    self.log.user[rows],
                    self.log.item[rows],
                    workers,
                )
                for is_held_out, rows in ((False, is_training), (True, ~is_training))
            )
            yield training, held_out

    def _group_units(
        self, is_training: BoolVector | None = None, folds: CellFolds | None = None
    ) -> tuple[ExchangeableUnits, ExchangeableUnits]:
        log, rows = self.log, slice(None) if is_training is None else is_training
        user_fold = folds.user if folds else np.zeros(log.n_users, dtype=np.int32)
        item_fold = folds.item if folds else np.zeros(log.n_items, dtype=np.int32)
        separate = self.unobserved is not None
        return (
            self.user.group_units(log.user[rows], user_fold, separate=separate, times=self.times),
            self.item.group_units(log.item[rows], item_fold, separate=separate, times=self.times),
        )

    def _cells(
        self,
        user: ExchangeableUnits,
        item: ExchangeableUnits,
        folds: CellFolds | None,
        fold: int,
        *,
        held_out: bool,
    ) -> UnitGrid | ListedCells:
        if self.unobserved is None:
            included = None
            if folds is not None:
                is_training = folds.training_pairs(fold)
                included = 1 - is_training if held_out else is_training
            return UnitGrid(user, item, included)
        sampled_user, sampled_item = user_and_item(self.unobserved, self.log.n_items)
        users = np.concatenate([self.log.user, sampled_user])
        items = np.concatenate([self.log.item, sampled_item])
        if folds is not None:
            rows = folds.is_training(fold, users, items) != held_out
            users, items = users[rows], items[rows]
        return ListedCells.sort(user, item, users, items)


def name_coefficients(user: SideDesign, item: SideDesign, fitted: LogitTerms) -> dict[str, float]:
    """Every coefficient by name, for covariates in the caller's units."""
    terms = _to_original_units(user, item, fitted)
    values = np.concatenate(([terms.intercept], terms.user, terms.item, terms.crossed.ravel()))
    return dict(zip(name_terms(user, item), values.tolist(), strict=True))


def name_terms(user: SideDesign, item: SideDesign) -> list[str]:
    """The names of the coefficients in the order of their vector, without the offsets."""
    crossed = product(user.covariates.names, item.covariates.names) if user.is_crossed else ()
    return ["intercept", *user.names, *item.names, *(f"{one} x {other}" for one, other in crossed)]


def _to_original_units(user: SideDesign, item: SideDesign, fitted: LogitTerms) -> LogitTerms:
    """The coefficients of the same eta, with (x - center) / scale multiplied out."""
    crossed = fitted.crossed
    user_change, item_change = np.zeros(user.scale.size), np.zeros(item.scale.size)
    constant = 0.0
    if crossed.size:
        crossed = crossed / np.outer(user.scale, item.scale)
        user_change, item_change = -crossed @ item.center, -user.center @ crossed
        constant = float(user.center @ crossed @ item.center)
    user_terms, user_constant = _side_to_original_units(user, fitted.user, user_change)
    item_terms, item_constant = _side_to_original_units(item, fitted.item, item_change)
    return replace(
        fitted,
        intercept=fitted.intercept + constant + user_constant + item_constant,
        user=user_terms,
        item=item_terms,
        crossed=crossed,
    )


def _side_to_original_units(
    side: SideDesign, fitted: Vector, change: Vector
) -> tuple[Vector, float]:
    """The coefficients of one side, and what they add to the intercept.

    b (x_j - m_j)(x_k - m_k) = b x_j x_k - b m_k x_j - b m_j x_k + b m_j m_k. ``change`` is what
    products with the other side add to the coefficients of single covariates.
    """
    n, first, second, center = side.scale.size, side.first, side.second, side.center
    single, pair = fitted[:n] / side.scale, fitted[n:] / (side.scale[first] * side.scale[second])
    constant = float(pair @ (center[first] * center[second]) - single @ center)
    coefficients = single + change
    np.subtract.at(coefficients, first, pair * center[second])
    np.subtract.at(coefficients, second, pair * center[first])
    return np.concatenate([coefficients, pair]), constant
