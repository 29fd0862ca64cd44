"""Imputed deltas of all cells, for doubly robust estimation, and the model they come from.

The imputed delta of a cell is E[delta] over the distribution of its rating, not the delta at its
mean rating: E[(Y - F)^2] = (E[Y] - F)^2 + Var[Y].

An imputation that was fitted to the ratings of the log has learned their noise. Its errors on them
are too small, and intervals that are computed from these errors may hardly ever contain the truth.
So an unfitted model is cross-fitted: each logged cell is imputed by a model that was fitted without
its fold. Any other imputation has intervals only if it is known to come from other ratings.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from numbers import Integral
from typing import Any, Protocol, TypeGuard, runtime_checkable

import numpy as np

from unskew.data.cells import cell_numbers, group_rows
from unskew.data.estimation import Unit
from unskew.data.ids import format_id
from unskew.data.propensities import Propensities
from unskew.data.ratings import Ratings
from unskew.data.universe import require_all_ids
from unskew.errors import BadPredictionError, UsageError
from unskew.estimators.observed import Imputed, ObservedCells
from unskew.estimators.weight_checks import MIN_EXCESS, Dispersion
from unskew.evaluation.cells import TestedCells
from unskew.evaluation.predictions import Predictions, PredictionsLike, ScoredCells
from unskew.evaluation.rating_distributions import (
    FoldedPredictions,
    Folds,
    ImputedRatings,
    RatingDistribution,
    read_folds,
    read_imputation,
    require_all_cells,
)
from unskew.evaluation.training_overlap import CountingModel
from unskew.metrics.metric import CandidateCounts, Metric, MetricInput, rating_degree
from unskew.ranking.candidates import Candidates
from unskew.ranking.positions import compute_positions
from unskew.settings import WholeNumber, unfitted_copy
from unskew.tables import count_noun
from unskew.types import BoolVector, IntVector, Matrix, Scores, Vector

N_FOLDS = 5
IN_SAMPLE = (
    "intervals are too narrow if an imputation has seen the ratings that it is compared with. Pass "
    "a model that is not fitted, which is then cross-fitted, or "
    "`imputation=Imputation(model, is_independent=True)` if it was fitted to other ratings"
)
SHARED_SELECTION = (
    "cells of one {unit} are selected together ({dispersion}), and the imputation of a cell has "
    "learned from such cells in other folds: dr and sndr are biased, and their intervals can miss "
    "the truth more often than they should; snips has no such bias"
)
BLOCK_CELLS = 1 << 18
"""Cells whose deltas are imputed at once; they fit into the cache of a processor."""


@dataclass(frozen=True, slots=True, eq=False)
class Imputation:
    """A model of the ratings of all cells, and which ratings it was, or shall be, fitted to."""

    model: PredictionsLike | FoldedPredictions
    """A model that is not fitted; or a fitted model, a matrix or a callable, as for predictions; or
    a dict from each fold to a model that was fitted without it."""
    folds: Folds | int | None = None
    """For an unfitted model, the number of folds, by default 5. Or a whole number for each logged
    cell: the fold without which its imputed rating was, or shall be, fitted."""
    is_independent: bool = False
    """Whether the model was fitted to other ratings than those of the log. Recommenders of this
    library know this themselves."""


@runtime_checkable
class FittableModel(Protocol):
    """A model of ratings that can be fitted, and says whether it is."""

    def get_params(self, deep: bool = True) -> dict[str, Any]: ...

    def fit(self, log: Ratings, propensities: Any = None, /) -> Any: ...

    def __sklearn_is_fitted__(self) -> bool: ...


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


def impute_deltas(
    imputation: Imputation | PredictionsLike,
    metrics: Sequence[Metric],
    models: Sequence[Predictions],
    inputs: Sequence[MetricInput],
    tested: TestedCells,
    cells: ObservedCells,
    seed: int,
) -> tuple[dict[str, Imputed], list[str]]:
    """By metric: the expected deltas of each model over the distributions of the ratings.

    They are given on the log, and summed over all cells of every user and of every item, or over
    their candidates. A logged cell has the model of its fold in both; the others have the mean
    over the models. Ratio metrics have none. The texts say where the imputation comes from.
    """
    log, candidates = tested.log, tested.candidates
    if not isinstance(imputation, Imputation):
        imputation = Imputation(imputation)
    imputation = replace(imputation, folds=tested.take(imputation.folds))
    source = find_source(imputation, log, cells.propensities, seed)
    ratings = read_imputation(source.imputation, source.folds, log, cells.inverse)
    means = [metric for metric in metrics if metric(inputs[0]).base is None]
    if not means:
        return {}, list(source.describe(cells))
    scorers = [require_all_cells(model) for model in models]
    if tested.universe is not None:
        require_all_ids(log, tested.universe, "so not every cell can be imputed")
    logged, levels = [ratings.observed(log)], np.unique(log.rating)
    observed = {
        metric.name: np.stack(
            [_expect(metric, replace(each, scale=levels), logged) for each in inputs]
        )
        for metric in means
    }
    counts = tested.counts
    sums = _sum_all_cells(means, scorers, ratings, observed, log, levels, candidates, counts)
    imputed = {
        name: Imputed(deltas, *sums[name], no_interval=source.no_interval)
        for name, deltas in observed.items()
    }
    return imputed, list(source.describe(cells))


def find_source(
    imputation: Imputation, log: Ratings, propensities: Propensities | None, seed: int
) -> ImputationSource:
    """Cross-fit an unfitted model; of any other imputation, find out whether it saw the log."""
    model, folds = imputation.model, imputation.folds
    if getattr(model, "predicts_ratings", True) is False:
        raise UsageError(
            f"{type(model).__name__} ranks items and does not predict ratings, so it cannot "
            "impute them.",
            parameter="imputation",
            remedy="Pass a model of ratings, such as `unskew.MatrixFactorization()`.",
        )
    if _is_unfitted(model):
        return _cross_fit(model, folds, log, propensities, seed)
    if isinstance(folds, Integral):
        raise UsageError(
            f"`folds` is a number, {folds}, but the imputation is fitted already: only an unfitted "
            "model can be cross-fitted.",
            parameter="folds",
            value=folds,
            remedy="Pass an unfitted model; or, as `folds`, one whole number for each logged cell: "
            "the fold without which its imputed rating was fitted.",
        )
    if folds is not None:
        labels, _ = read_folds(folds, log)
        note = f"imputation taken as cross-fitted in {len(labels)} folds"
        return ImputationSource(model, folds, note)
    if imputation.is_independent:
        return ImputationSource(model, None, "imputation taken as fitted to other ratings")
    return _check_fitted(model, log)


def _is_unfitted(model: object) -> TypeGuard[FittableModel]:
    return (
        isinstance(model, FittableModel)
        and not isinstance(model, type | Mapping)
        and not model.__sklearn_is_fitted__()
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
        training_propensities = None
        if propensities is not None:
            training_propensities = Propensities(propensities.values[rows] * (rows.size / len(log)))
        models[label] = unfitted_copy(model).fit(log.take(rows), training_propensities)
    note = (
        f"imputation by {type(model).__name__}, cross-fitted in {len(labels)} folds; intervals "
        "leave out its error, which matters if the propensities are wrong"
    )
    return ImputationSource(models, folds, note)


def _draw_folds(n_folds: Any, log: Ratings, seed: int) -> Folds:
    WholeNumber(least=2)("folds", n_folds)
    if n_folds > len(log):
        raise UsageError(
            f"`folds` must be at most the number of ratings, {len(log)}; got {n_folds}.",
            parameter="folds",
            value=n_folds,
        )
    folds: Folds = np.random.default_rng(seed).permutation(len(log)) % n_folds
    return folds


def _check_fitted(model: PredictionsLike, log: Ratings) -> ImputationSource:
    if not isinstance(model, CountingModel):
        note = "it is unknown to which ratings the imputation was fitted"
        return ImputationSource(model, None, note, f"{note}; {IN_SAMPLE}")
    n_seen = model.count_seen(log)
    if n_seen == 0:
        return ImputationSource(model, None, "imputation was fitted to other cells")
    name, ratings = type(model).__name__, count_noun(len(log), "rating")
    note = f"imputation by {name}, which was fitted to {n_seen:,} of these {ratings}"
    return ImputationSource(model, None, note, f"{note}; {IN_SAMPLE}")


def _sum_all_cells(
    metrics: Sequence[Metric],
    models: Sequence[ScoredCells],
    ratings: ImputedRatings,
    observed: Mapping[str, Matrix],
    log: Ratings,
    levels: Vector,
    candidates: Candidates | None,
    counts: CandidateCounts | None,
) -> dict[str, tuple[Matrix, Matrix]]:
    """By metric: imputed deltas of candidates added up by user and by item, in blocks of users.

    ``observed`` has those of the logged cells.
    """
    n_models = len(models)
    sums = {
        metric.name: (np.zeros((log.n_users, n_models)), np.zeros((log.n_items, n_models)))
        for metric in metrics
    }
    starts, order = group_rows(log.user, log.n_users)
    size = max(1, BLOCK_CELLS // (log.n_items * ratings.n_columns))
    for first in range(0, log.n_users, size):
        users = np.arange(first, min(first + size, log.n_users), dtype=np.int32)
        rows = order[starts[first] : starts[users[-1] + 1]]
        logged = cell_numbers(log.user[rows] - first, log.item[rows], log.n_items)
        distributions = list(ratings.blocks(log, users))
        is_finite = np.logical_and.reduce([each.is_finite for each in distributions])
        is_hidden = mask_non_candidates(users, log.n_items, candidates)
        for column, model in enumerate(models):
            scores = model.block(log, users)
            for metric in metrics:
                used = scores if metric.ranks else model.as_ratings(log, users, scores)
                cells = _make_input(metric, used, levels, users, candidates, counts)
                delta = np.where(is_hidden, 0.0, _expect(metric, cells, distributions))
                _require_finite(delta, is_finite, model, log, users)
                delta[logged] = observed[metric.name][column, rows]
                by_user, by_item = sums[metric.name]
                by_user[users, column] = delta.reshape(scores.shape).sum(axis=1)
                by_item[:, column] += delta.reshape(scores.shape).sum(axis=0)
    return sums


def _expect(
    metric: Metric, cells: MetricInput, distributions: Sequence[RatingDistribution]
) -> Vector:
    """The expected delta of each cell over the distribution of its rating.

    It is the mean over ``distributions`` if there are several, one for each fold.
    """
    degree = rating_degree(metric)
    total: Vector | float = 0.0
    for distribution in distributions:
        for rating, share in distribution.points(degree):
            total = total + share * metric(replace(cells, rating=rating)).value
    expected: Vector = np.asarray(total) / len(distributions)
    return expected


def mask_non_candidates(
    users: IntVector, n_items: int, candidates: Candidates | None
) -> BoolVector | np.bool_:
    """Whether each cell of a block of users is no candidate, user by user; one False if all are."""
    if candidates is None:
        return np.bool_(False)
    scores = np.zeros((users.size, n_items))
    candidates.hide_others(users, scores)
    return np.isneginf(scores.ravel())


def _require_finite(
    delta: Vector, is_finite: BoolVector, model: ScoredCells, log: Ratings, users: IntVector
) -> None:
    bad = np.flatnonzero(~(np.isfinite(delta) & is_finite))
    if bad.size:
        row, column = divmod(int(bad[0]), log.n_items)
        user, item = format_id(log.users[users[row]]), format_id(log.items[column])
        raise BadPredictionError(
            f"{model.name!r} or 'imputation' has no finite prediction for "
            f"{count_noun(bad.size, 'cell')} outside the log; the first is user {user}, "
            f"item {item}.",
            parameter="imputation",
            where=f"user {user}, item {item}",
            remedy="Doubly robust estimation reads every cell: also predict those.",
        )


def _make_input(
    metric: Metric,
    scores: Scores,
    levels: Vector,
    users: IntVector,
    candidates: Candidates | None,
    counts: CandidateCounts | None,
) -> MetricInput:
    """All cells of a block of users; their ratings are filled in later.

    Cells that are not candidates get any position.
    """
    n_users, n_items = scores.shape
    item = np.tile(np.arange(n_items, dtype=np.int32), n_users)
    empty: Matrix = np.empty(0)
    if not metric.ranks:
        prediction = scores.astype(np.float64).ravel()
        return MetricInput(empty, item, levels, prediction=prediction, n_items=n_items)
    user = np.repeat(np.arange(n_users, dtype=np.int32), n_items)
    positions = compute_positions(
        user,
        item,
        n_users,
        n_items,
        scores.__getitem__,
        top=metric.top,
        candidates=None if candidates is None else candidates.take(users),
    )
    if counts is not None:
        counts = replace(counts, of_cell=counts.by_user[users][user])
    return MetricInput(empty, item, levels, positions=positions, n_items=n_items, candidates=counts)
