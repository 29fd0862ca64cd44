"""Folds over ratings, with propensities that say how a cell came to be in a part of the log."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from unskew.data.binarize import apply_threshold
from unskew.data.checks import whole_number
from unskew.data.propensities import Propensities
from unskew.data.ratings import Ratings
from unskew.data.universe import Universe
from unskew.errors import UsageError
from unskew.evaluation.evaluate import evaluate
from unskew.metrics.names import find_metric


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """Ratings to fit to."""

    log: Ratings
    propensities: Propensities | None

    @property
    def n_ratings(self) -> int:
        """How many."""
        return len(self.log)

    def fit(self, model: Any, *, clip: float | None = None, warm_start: Any = None) -> Any:
        """``model`` fitted to them, no weight above ``clip``."""
        propensities = self.propensities
        if clip is not None and propensities is not None:
            propensities = Propensities(np.maximum(propensities.values, 1.0 / clip))
        if warm_start is not None and "warm_start" in inspect.signature(model.fit).parameters:
            return model.fit(self.log, propensities, warm_start=warm_start)
        return model.fit(self.log, propensities)


@dataclass(frozen=True, slots=True, eq=False)
class Fold:
    """One split. A cell got into the training part by being observed *and* drawn: P (k - 1) / k; into the other, P / k."""

    training: Ratings
    validation: Ratings
    training_propensities: Propensities | None
    validation_propensities: Propensities
    relevant: float | None = None
    """Ratings from here on count as relevant, for metrics that ask."""

    def fit(self, model: Any, *, clip: float | None = None, warm_start: Any = None) -> Any:
        """``model`` fitted to the training part."""
        return Part(self.training, self.training_propensities).fit(
            model, clip=clip, warm_start=warm_start
        )

    def score(self, fitted: Any, *, metric: str, estimator: str) -> float:
        """The risk over all cells that the other part promises; a model of clicks is judged on clicks."""
        validation, threshold = self.validation, getattr(fitted, "threshold", None)
        if threshold is not None and not find_metric(metric, relevant=self.relevant).ranks:
            validation = apply_threshold(validation, threshold)
        result = evaluate(
            validation,
            fitted,
            propensities=self.validation_propensities,
            metrics=[metric],
            relevant=self.relevant,
            estimators=[estimator],
            universe=Universe(validation.n_users, validation.n_items),
        )
        return result.risk("model", metric=metric, estimator=estimator).estimate


def split(
    log: Ratings,
    propensities: Propensities | None,
    *,
    n_folds: int,
    random_state: int,
    relevant: float | None = None,
) -> Iterator[Fold]:
    """``n_folds`` random parts of n // k ratings, the last with the rest. Without propensities validation counts cells alike."""
    if whole_number("n_folds", n_folds, least=2) > len(log):
        raise UsageError(
            f"n_folds must be at most the number of ratings, {len(log)}; got {n_folds}."
        )
    order = np.random.default_rng(random_state).permutation(len(log))
    ends = [len(log) // n_folds * fold for fold in range(n_folds)] + [len(log)]
    uniform = Propensities(np.full(len(log), len(log) / log.n_cells))
    for fold in range(n_folds):
        held = order[ends[fold] : ends[fold + 1]]
        kept = np.concatenate([order[: ends[fold]], order[ends[fold + 1] :]])
        yield Fold(
            log.take(kept),
            log.take(held),
            None
            if propensities is None
            else Propensities(propensities.values[kept] * (n_folds - 1) / n_folds),
            Propensities((propensities or uniform).values[held] / n_folds),
            relevant,
        )
