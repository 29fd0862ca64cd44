"""Where an imputation comes from: doubly robust intervals need one that has not seen the ratings.

An imputation that was fitted to the ratings of the log has learned their noise. Its errors on them
are too small, and intervals that are computed from these errors may hardly ever contain the truth.
So an unfitted model is cross-fitted here: each logged cell is imputed by a model that was fitted
without its fold. Any other imputation has intervals only if it is known to come from other ratings.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from numbers import Integral
from typing import Any, Protocol, TypeGuard, runtime_checkable

import numpy as np

from unskew.data.estimation import Unit
from unskew.data.propensities import Propensities
from unskew.data.ratings import Ratings
from unskew.errors import UsageError
from unskew.estimators.dispersion import MIN_EXCESS, Dispersion
from unskew.estimators.sums import ObservedCells
from unskew.evaluation.predictions import PredictionsLike
from unskew.evaluation.rating_distributions import FoldedPredictions, Folds, read_folds
from unskew.settings import WholeNumber, unfitted_copy
from unskew.tables import count_noun

N_FOLDS = 5
IN_SAMPLE = (
    "intervals are too narrow if an imputation has seen the ratings that it is compared with. Pass "
    "a model that is not fitted, which is then cross-fitted, or `imputation_independent=True` "
    "if it was fitted to other ratings"
)

SHARED_SELECTION = (
    "cells of one {unit} are selected together ({dispersion}), and the imputation of a cell has "
    "learned from such cells in other folds: dr and sndr are biased, and their intervals can miss "
    "the truth more often than they should; snips has no such bias"
)


@runtime_checkable
class FittableModel(Protocol):
    """A model of ratings that can be fitted, and says whether it is."""

    def get_params(self, deep: bool = True) -> dict[str, Any]: ...

    def fit(self, log: Ratings, propensities: Any = None, /) -> Any: ...

    def __sklearn_is_fitted__(self) -> bool: ...


@runtime_checkable
class _CountingModel(Protocol):
    """A fitted model that knows the cells it was fitted to."""

    def count_seen(self, log: Ratings, /) -> int: ...


@dataclass(frozen=True, slots=True, eq=False)
class ImputationSource:
    """An imputation, the folds of the logged cells, and what is known about its fit."""

    imputation: PredictionsLike | FoldedPredictions
    folds: Folds | None
    note: str
    """Where the imputation comes from, in words."""
    no_interval: str | None = None
    """Why doubly robust estimates have no interval; None if they have one."""

    def describe(self, cells: ObservedCells) -> Iterator[str]:
        """Where it comes from, and whether folds of cells are independent of one another."""
        yield self.note
        if self.folds is None or cells.propensities is None or self.no_interval is not None:
            return
        units: tuple[Unit, ...] = ("user", "item")
        for unit in units:
            dispersion = Dispersion.of(unit, cells)
            if dispersion.is_significant and dispersion.ratio > 1 + MIN_EXCESS:
                yield SHARED_SELECTION.format(unit=unit, dispersion=dispersion.describe())


def find_source(
    imputation: PredictionsLike | FoldedPredictions,
    folds: Folds | int | None,
    log: Ratings,
    propensities: Propensities | None,
    *,
    is_independent: bool,
    seed: int,
) -> ImputationSource:
    """Cross-fit an unfitted model; of any other imputation, find out whether it saw the log."""
    if getattr(imputation, "predicts_ratings", True) is False:
        raise UsageError(
            f"{type(imputation).__name__} ranks items and does not predict ratings, so it cannot "
            "impute them.",
            parameter="imputation",
            remedy="Pass a model of ratings, such as `unskew.MatrixFactorization()`.",
        )
    if _is_unfitted(imputation):
        return _cross_fit(imputation, folds, log, propensities, seed)
    if isinstance(folds, Integral):
        raise UsageError(
            "a number of folds is for a model that is not fitted yet, and this imputation is "
            "fitted.",
            parameter="imputation_folds",
            value=folds,
            remedy="Pass an unfitted model, or the fold of each logged cell.",
        )
    if folds is not None:
        labels, _ = read_folds(folds, log)
        note = f"imputation taken as cross-fitted in {len(labels)} folds"
        return ImputationSource(imputation, folds, note)
    if is_independent:
        return ImputationSource(imputation, None, "imputation taken as fitted to other ratings")
    return _check_fitted(imputation, log)


def _is_unfitted(imputation: object) -> TypeGuard[FittableModel]:
    return (
        isinstance(imputation, FittableModel)
        and not isinstance(imputation, type | Mapping)
        and not imputation.__sklearn_is_fitted__()
    )


def _cross_fit(
    model: FittableModel,
    folds: Folds | int | None,
    log: Ratings,
    propensities: Propensities | None,
    seed: int,
) -> ImputationSource:
    """For each fold, the model fitted without it, to the rest of the log."""
    if folds is None or isinstance(folds, Integral):
        folds = _draw_folds(N_FOLDS if folds is None else folds, log, seed)
    labels, code = read_folds(folds, log)
    models = {}
    for fold, label in enumerate(labels):
        rows = np.flatnonzero(code != fold)
        of_rest = None
        if propensities is not None:
            of_rest = Propensities(propensities.values[rows] * (rows.size / len(log)))
        models[label] = unfitted_copy(model).fit(log.take(rows), of_rest)
    note = (
        f"imputation by {type(model).__name__}, cross-fitted in {len(labels)} folds; intervals "
        "leave out its error, which matters if the propensities are wrong"
    )
    return ImputationSource(models, folds, note)


def _draw_folds(n_folds: Any, log: Ratings, seed: int) -> Folds:
    WholeNumber(least=2)("imputation_folds", n_folds)
    if n_folds > len(log):
        raise UsageError(
            f"`imputation_folds` must be at most the number of ratings, {len(log)}; got {n_folds}.",
            parameter="imputation_folds",
            value=n_folds,
        )
    folds: Folds = np.random.default_rng(seed).permutation(len(log)) % n_folds
    return folds


def _check_fitted(imputation: PredictionsLike, log: Ratings) -> ImputationSource:
    if isinstance(imputation, _CountingModel):
        n_seen = imputation.count_seen(log)
        if n_seen == 0:
            return ImputationSource(imputation, None, "imputation was fitted to other cells")
        name, ratings = type(imputation).__name__, count_noun(len(log), "rating")
        note = f"imputation by {name}, which was fitted to {n_seen:,} of these {ratings}"
        return ImputationSource(imputation, None, note, f"{note}; {IN_SAMPLE}")
    note = "it is unknown to which ratings the imputation was fitted"
    return ImputationSource(imputation, None, note, f"{note}; {IN_SAMPLE}")
