"""Folds of a log, with propensities that account for the random split."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias, runtime_checkable

import numpy as np

from unskew.data.clicks import apply_threshold
from unskew.data.propensities import Propensities
from unskew.data.ratings import Ratings
from unskew.data.universe import Universe
from unskew.data.weights import WeightTransform, transform_weights
from unskew.errors import UsageError
from unskew.evaluation.evaluate import evaluate
from unskew.metrics.metric import find_metric
from unskew.models.engine_choice import refuse_other_engines
from unskew.settings import WholeNumber, unfitted_copy
from unskew.types import RandomState

Frame: TypeAlias = Any
"""A data frame of an engine, such as one of Spark."""


class TrainingRatings(Protocol):
    """Ratings that a model is fitted to, in this process or elsewhere."""

    @property
    def n_ratings(self) -> int: ...

    def fit(
        self,
        model: Any,
        /,
        *,
        weight_transform: WeightTransform | None = None,
        initial_factors: Any = None,
    ) -> Any:
        """Fit ``model`` and return it.

        ``weight_transform`` is for models that have no setting of this name.
        """
        ...


class ValidationFold(Protocol):
    """Ratings to fit a model to, and other ratings to score it on."""

    @property
    def training(self) -> TrainingRatings: ...

    def score(self, fitted: Any, /, *, metric: str, estimator: str) -> float:
        """The risk over all cells, estimated from the other ratings."""
        ...


@runtime_checkable
class FrameFolds(Protocol):
    """An engine that cross-validates on its own data frames."""

    def split(
        self, frame: Frame, propensity: Any, /, *, n_folds: int, random_state: RandomState
    ) -> tuple[TrainingRatings, Sequence[ValidationFold]]:
        """The whole log, and its folds. ``propensity`` names a column."""
        ...

    def check_criterion(self, *, metric: str, estimator: str) -> None:
        """Raise an error if folds cannot be scored by this metric and this estimator."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class LocalTraining:
    """Ratings with their propensities, in this process."""

    log: Ratings
    propensities: Propensities | None
    engine: Any = None
    """Where models are fitted; None is this process."""

    @property
    def n_ratings(self) -> int:
        return len(self.log)

    def fit(
        self,
        model: Any,
        /,
        *,
        weight_transform: WeightTransform | None = None,
        initial_factors: Any = None,
    ) -> Any:
        """Fit ``model`` and return it; see :class:`TrainingRatings`.

        Models that take no ``initial_factors`` are fitted without them.
        """
        propensities = self.propensities
        if weight_transform is not None and propensities is not None:
            propensities = _transform_propensities(propensities, weight_transform, model)
        parameters, options = inspect.signature(model.fit).parameters, {}
        if initial_factors is not None and "initial_factors" in parameters:
            options["initial_factors"] = initial_factors
        if self.engine is not None:
            if "engine" not in parameters:
                refuse_other_engines(model, self.engine)
            options["engine"] = self.engine
        return model.fit(self.log, propensities, **options)


@dataclass(frozen=True, slots=True, eq=False)
class Fold:
    """One split of a log.

    A cell is in the training part if it was observed and drawn, with propensity P (k - 1) / k, and
    in the validation part with propensity P / k.
    """

    training: LocalTraining
    validation: Ratings
    validation_propensities: Propensities
    relevance_threshold: float | None = None
    imputation: Any = None
    """A model fitted to the training part, for estimators that impute ratings."""

    def score(self, fitted: Any, /, *, metric: str, estimator: str) -> float:
        """The risk over all cells, estimated from the validation part.

        Ratings are converted to 0 and 1 first if the model was fitted to such ratings.
        """
        validation, threshold = self.validation, getattr(fitted, "relevance_threshold", None)
        is_ranking = find_metric(metric, relevance_threshold=self.relevance_threshold).ranks
        if threshold is not None and not is_ranking:
            validation = apply_threshold(validation, threshold)
        name = type(fitted).__name__
        evaluation = evaluate(
            validation,
            {name: fitted},
            propensities=self.validation_propensities,
            metrics=[metric],
            relevance_threshold=self.relevance_threshold,
            estimators=[estimator],
            imputation=self.imputation,
            universe=Universe(validation.n_users, validation.n_items),
        )
        return evaluation.risk(name, metric=metric, estimator=estimator).estimate


def split(
    log: Ratings,
    propensities: Propensities | None,
    *,
    n_folds: int,
    random_state: RandomState,
    relevance_threshold: float | None = None,
    imputer: Any = None,
    engine: Any = None,
) -> Iterator[Fold]:
    """Split a log into ``n_folds`` random parts of n // k ratings; the last also has the remainder.

    The propensities of both parts are multiplied by the share of the log that they hold. Without
    propensities, all validation cells have the same weight. ``imputer``, a model that is not
    fitted, is fitted to the training part of each fold. ``engine`` fits all models.
    """
    WholeNumber(least=2)("n_folds", n_folds)
    if n_folds > len(log):
        raise UsageError(
            f"`n_folds` must be at most the number of ratings, {len(log)}; got {n_folds}.",
            parameter="n_folds",
            value=n_folds,
        )
    order = np.random.default_rng(random_state).permutation(len(log))
    ends = [len(log) // n_folds * fold for fold in range(n_folds)] + [len(log)]
    uniform = Propensities(np.full(len(log), len(log) / log.n_cells))
    for fold in range(n_folds):
        held_out = order[ends[fold] : ends[fold + 1]]
        kept = np.concatenate([order[: ends[fold]], order[ends[fold + 1] :]])
        training_propensities = None
        if propensities is not None:
            training_values = propensities.values[kept] * (n_folds - 1) / n_folds
            training_propensities = Propensities(training_values)
        training = LocalTraining(log.take(kept), training_propensities, engine)
        yield Fold(
            training,
            log.take(held_out),
            Propensities((propensities or uniform).values[held_out] / n_folds),
            relevance_threshold,
            None if imputer is None else training.fit(unfitted_copy(imputer)),
        )


def _transform_propensities(
    propensities: Propensities, weight_transform: WeightTransform, model: object
) -> Propensities:
    """1 / h(1 / P), for models that take propensities only; h must be at least 1."""
    weight = transform_weights(propensities.inverse, weight_transform)
    if weight.min() < 1:
        raise UsageError(
            f"{weight_transform!r} gives weights below 1, such as {weight.min():g}. "
            f"{type(model).__name__} takes propensities, not weights: each weight is passed as "
            "a propensity of 1 / weight, which must be at most 1.",
            parameter="weight_transform",
            value=weight_transform,
            remedy="Use a transform that keeps weights at 1 or more, such as Clip(100).",
        )
    return Propensities(1.0 / weight)
