"""The distribution of the rating of each cell, over which deltas are imputed.

A model with ``predict_distribution`` gives a probability to each rating level. From any other model
the rating of a cell is its prediction G plus a residual. The residuals Y - G of the logged cells,
weighted by 1/P and centred, stand for those of all cells: the model is trusted for the mean of each
rating, and the log for the spread, which is taken to be the same in all cells. Ratings of 0 and 1
need no residuals, because their mean is the probability of a 1.

A fold of logged cells gets the residuals of the other folds, so that the imputed delta of a cell
does not depend on its own rating.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias, runtime_checkable

import numpy as np
import numpy.typing as npt

from unskew.data.ratings import Ratings
from unskew.errors import BadPredictionError, UsageError
from unskew.evaluation.predictions import (
    Predictions,
    PredictionsLike,
    ScoredCells,
    read_predictions,
)
from unskew.types import BoolVector, IntVector, Matrix, Vector

N_POINTS = 20
"""Points that stand for a distribution of residuals, all equally probable."""
SHARE_ERROR = 1e-6
"""How far the probabilities of a cell may be from adding up to 1."""

Points: TypeAlias = Iterator[tuple[Vector, Vector | float]]
"""Possible ratings of all cells, each with its probability in each cell."""
Folds: TypeAlias = npt.ArrayLike
FoldedPredictions: TypeAlias = Mapping[int, PredictionsLike]
"""By fold: an imputation that was fitted without it."""


@runtime_checkable
class DistributionModel(Protocol):
    """A fitted model that predicts the probability of each rating level."""

    levels_: Vector

    def predict_distribution(
        self, users: npt.NDArray[np.generic], items: npt.NDArray[np.generic], /
    ) -> npt.ArrayLike:
        """One row for each (user, item), one column for each of ``levels_``."""
        ...


class RatingDistribution(Protocol):
    """The possible ratings of some cells."""

    @property
    def is_finite(self) -> BoolVector:
        """Of each cell: whether its distribution is known."""
        ...

    def points(self, degree: int | None) -> Points:
        """Points with the same mean of any polynomial of this degree; None means any function."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class LevelShares:
    """The probability of each rating level."""

    levels: Vector
    share: Matrix
    """Cells x levels."""

    @property
    def is_finite(self) -> BoolVector:
        return np.asarray(np.isfinite(self.share).all(axis=1))

    def points(self, degree: int | None) -> Points:
        if degree == 1:
            yield self.share @ self.levels, 1.0
            return
        for level, share in zip(self.levels, self.share.T, strict=True):
            yield np.full(share.size, level), share


@dataclass(frozen=True, slots=True, eq=False)
class Residuals:
    """The residuals of a set of logged cells, around their mean."""

    points: Vector
    """N_POINTS equally probable ones: the means of as many quantile ranges."""
    std: float

    @classmethod
    def of(cls, residual: Vector, weight: Vector) -> Residuals:
        order = np.argsort(residual, kind="stable")
        share = weight[order] / weight.sum()
        mean = float(residual[order] @ share)
        centred = residual[order] - mean
        probability = np.append(0.0, np.cumsum(share))
        integral = np.append(0.0, np.cumsum(share * centred))
        edges = np.linspace(0.0, probability[-1], N_POINTS + 1)
        points = N_POINTS * np.diff(np.interp(edges, probability, integral))
        return cls(points, float(np.sqrt(share @ centred**2)))


@dataclass(frozen=True, slots=True, eq=False)
class MeanAndResiduals:
    """A mean rating of each cell, plus residuals."""

    mean: Vector
    residuals: Sequence[Residuals]
    fold: IntVector | None = None
    """Of each cell: which residuals it has; None for the first."""

    @property
    def is_finite(self) -> BoolVector:
        return np.isfinite(self.mean)

    def points(self, degree: int | None) -> Points:
        if degree == 1:
            yield self.mean, 1.0
            return
        stds = np.array([residuals.std for residuals in self.residuals])
        by_fold = np.stack([residuals.points for residuals in self.residuals], axis=1)
        deviations = np.stack([-stds, stds]) if degree == 2 else by_fold
        for deviation in deviations:
            shift = deviation[0] if self.fold is None else deviation[self.fold]
            yield self.mean + shift, 1.0 / len(deviations)


class ImputedRatings(Protocol):
    """The distributions of the ratings of all cells."""

    @property
    def n_columns(self) -> int:
        """Numbers that are held in memory for each cell."""
        ...

    def observed(self, log: Ratings) -> RatingDistribution:
        """Of the logged cells, in the order of the log."""
        ...

    def blocks(self, log: Ratings, users: IntVector) -> Iterator[RatingDistribution]:
        """Of all items of some users, by the model of each fold."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class LevelImputation:
    """Models that predict the probability of each rating level."""

    models: Sequence[DistributionModel]
    fold: IntVector
    """Of each logged cell: its model."""
    levels: Vector

    @property
    def n_columns(self) -> int:
        return self.levels.size

    def observed(self, log: Ratings) -> LevelShares:
        share = np.empty((len(log), self.levels.size))
        for code, model in enumerate(self.models):
            rows = np.flatnonzero(self.fold == code)
            users, items = log.users[log.user[rows]], log.items[log.item[rows]]
            share[rows] = self._predict(model, users, items)
        return LevelShares(self.levels, share)

    def blocks(self, log: Ratings, users: IntVector) -> Iterator[LevelShares]:
        pairs = np.repeat(log.users[users], log.n_items), np.tile(log.items, users.size)
        for model in self.models:
            yield LevelShares(self.levels, self._predict(model, *pairs))

    def _predict(
        self,
        model: DistributionModel,
        users: npt.NDArray[np.generic],
        items: npt.NDArray[np.generic],
    ) -> Matrix:
        predicted = np.asarray(model.predict_distribution(users, items), dtype=np.float64)
        levels = np.asarray(model.levels_, dtype=np.float64)
        if predicted.shape != (len(users), levels.size):
            raise BadPredictionError(
                f"predict_distribution returned shape {predicted.shape} for {len(users)} pairs of "
                f"ids and {levels.size} levels.",
                parameter="imputation",
                remedy="Return one row for each pair and one column for each of `levels_`.",
            )
        error = np.abs(predicted.sum(axis=1) - 1.0)
        if (predicted < 0).any() or (error > SHARE_ERROR).any():
            raise BadPredictionError(
                "predict_distribution returned rows that are not probabilities: the least number "
                f"is {np.nanmin(predicted):g}, and one row adds up to "
                f"{predicted[np.nanargmax(error)].sum():g}.",
                parameter="imputation",
                remedy="Return probabilities that add up to 1 in each row.",
            )
        share = np.zeros((len(users), self.levels.size))
        share[:, np.searchsorted(self.levels, levels)] = predicted
        return share


@dataclass(frozen=True, slots=True, eq=False)
class MeanImputation:
    """Models that predict the mean rating.

    If all ratings are 0 and 1, the mean is the probability of a 1. Otherwise the residuals come
    from the log.
    """

    models: Sequence[ScoredCells]
    fold: IntVector
    """Of each logged cell: its model."""
    pooled: Residuals | None
    """Of all logged cells; None if all ratings are 0 and 1."""
    others: Sequence[Residuals] = ()
    """By fold: of the cells of all other folds."""
    residual_fold: IntVector | None = None
    """Of each logged cell: its entry of ``others``."""

    @property
    def n_columns(self) -> int:
        return 2 if self.pooled is None else 1

    def observed(self, log: Ratings) -> RatingDistribution:
        mean = _predict_logged(self.models, self.fold, log)
        if self.pooled is None:
            return _share_ones(mean)
        return MeanAndResiduals(mean, self.others, self.residual_fold)

    def blocks(self, log: Ratings, users: IntVector) -> Iterator[RatingDistribution]:
        for model in self.models:
            scores = model.block(log, users)
            mean = model.as_ratings(log, users, scores).astype(np.float64).ravel()
            if self.pooled is None:
                yield _share_ones(mean)
            else:
                yield MeanAndResiduals(mean, [self.pooled])


def _share_ones(mean: Vector) -> LevelShares:
    """The distribution of ratings of 0 and 1 with these means."""
    is_outside = (mean < 0) | (mean > 1)
    if is_outside.any():
        raise BadPredictionError(
            f"the log's ratings are 0 and 1, but an imputed one is {mean[is_outside.argmax()]:g}.",
            parameter="imputation",
            remedy="Impute the probability of a 1, in [0, 1].",
        )
    return LevelShares(np.array([0.0, 1.0]), np.column_stack([1.0 - mean, mean]))


def read_imputation(
    imputation: PredictionsLike | FoldedPredictions,
    folds: Folds | None,
    log: Ratings,
    weight: Vector,
) -> ImputedRatings:
    """Recognise models of distributions or of means, perhaps one for each fold of the log.

    ``weight`` is 1/P of the logged cells, by which residuals are weighted.
    """
    labels, code = read_folds(folds, log)
    if isinstance(imputation, Mapping):
        models, model_fold = _order_by_fold(imputation, labels, folds), code
    else:
        models, model_fold = [imputation], np.zeros(len(log), dtype=np.int32)
    distributions = [model for model in models if isinstance(model, DistributionModel)]
    if len(distributions) == len(models):
        levels = np.unique(np.concatenate([model.levels_ for model in distributions]))
        return LevelImputation(distributions, model_fold, levels.astype(np.float64))
    readers = [require_all_cells(read_predictions("imputation", model, log)) for model in models]
    if np.isin(log.rating, (0.0, 1.0)).all():
        return MeanImputation(readers, model_fold, None)
    residual = log.rating - _predict_logged(readers, model_fold, log)
    pooled = Residuals.of(residual, weight)
    others = [pooled]
    if folds is not None:
        others = [
            Residuals.of(residual[code != fold], weight[code != fold])
            for fold in range(len(labels))
        ]
    return MeanImputation(readers, model_fold, pooled, others, code)


def require_all_cells(model: Predictions) -> ScoredCells:
    """The model; an error if it predicts only logged cells."""
    if not isinstance(model, ScoredCells):
        raise BadPredictionError(
            "doubly robust estimation needs predictions for every cell.",
            remedy="Pass a model, a users x items matrix, or a callable that scores a block of "
            "users for all items, as predictions and as `imputation`.",
        )
    return model


def read_folds(folds: Folds | None, log: Ratings) -> tuple[list[int], IntVector]:
    """The distinct folds, and for each logged cell the index of its fold."""
    if folds is None:
        return [0], np.zeros(len(log), dtype=np.int32)
    values = np.asarray(folds)
    if values.shape != (len(log),) or values.dtype.kind not in "iu":
        raise UsageError(
            f"`folds` must have a whole number for each of the {len(log)} logged cells; "
            f"got {values.dtype} of shape {values.shape}.",
            parameter="folds",
            remedy="For each cell, pass the fold that was held out when its imputation was fitted.",
        )
    labels, code = np.unique(values, return_inverse=True)
    if labels.size < 2:
        raise UsageError(
            f"`folds` has only one fold, {labels[0]}.",
            parameter="folds",
            remedy="Use at least 2 folds, or leave `folds` out.",
        )
    return labels.tolist(), code.astype(np.int32)


def _order_by_fold(
    imputation: FoldedPredictions, labels: Sequence[int], folds: Folds | None
) -> list[PredictionsLike]:
    if folds is None:
        raise UsageError(
            "`imputation` has a model for each fold, but the folds of the logged cells are "
            "missing.",
            parameter="folds",
            remedy="Pass `Imputation(models, folds=...)` with the fold of each logged cell.",
        )
    if set(imputation) != set(labels):
        raise UsageError(
            f"`imputation` has models for the folds {sorted(imputation)}, but `folds` "
            f"has {list(labels)}.",
            parameter="imputation",
            remedy="Pass one model for each fold, fitted without it.",
        )
    return [imputation[label] for label in labels]


def _predict_logged(models: Sequence[ScoredCells], fold: IntVector, log: Ratings) -> Vector:
    """The prediction of each logged cell by the model of its fold."""
    if len(models) == 1:
        return models[0].values(log)
    by_model = np.stack([model.values(log) for model in models])
    return by_model[fold, np.arange(len(log))]
