"""What a caller asks an evaluation for, checked before any work is done."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from unskew.data.checks import is_finite_number
from unskew.data.ratings import Ratings
from unskew.errors import UnknownNameError, UnskewWarning, UsageError
from unskew.estimators.family import Estimator, find_estimator
from unskew.estimators.wanted import Unit
from unskew.metrics.metric import Metric
from unskew.metrics.names import find_metric


def chosen_metrics(given: object, *, relevant: float | None) -> list[Metric]:
    """Metrics by name, each once."""
    found = [find_metric(name, relevant=relevant) for name in _listed("metrics", given)]
    _require_names("metrics", [metric.name for metric in found])
    return found


def chosen_estimators(given: object) -> list[Estimator]:
    """Estimators by name, each once."""
    found = [find_estimator(name) for name in _listed("estimators", given)]
    _require_names("estimators", [estimator.name for estimator in found])
    return found


def require_level(level: object) -> None:
    """A confidence level is a share."""
    if not (isinstance(level, float) and 0 < level < 1):
        raise UsageError(f"level must lie strictly between 0 and 1, such as 0.95; got {level!r}.")


def require_transform(transform: object) -> None:
    """A weight transform is an object, not its class."""
    if transform is not None and (isinstance(transform, type) or not callable(transform)):
        raise UsageError(f"transform must be an object such as Clip(50), not {transform!r}.")


def require_cluster(cluster: object) -> None:
    """Cells are independent, or users are, or items are."""
    if not (cluster is None or (isinstance(cluster, str) and cluster in ("user", "item"))):
        raise UnknownNameError("cluster", cluster, ("None", "user", "item"))


def describe_intervals(cluster: Unit | None, bootstrap: int | None = None) -> str:
    """How the intervals were made, in words."""
    if bootstrap is not None:
        return f"bootstrap of {cluster or 'user'}s ({bootstrap} resamples)"
    return "cells independent" if cluster is None else f"clustered by {cluster}"


def _listed(what: str, given: object) -> Sequence[Any]:
    """One name, one object, or several of them."""
    if isinstance(given, str) or (callable(given) and not isinstance(given, type)):
        return [given]
    if not isinstance(given, Sequence):
        raise UsageError(f"{what} must be a list of names, such as {what}=[...]; got {given!r}.")
    return given


SCORES = "rank items and are no ratings"


def warn_of_scores(models: Mapping[str, object], metrics: Sequence[Metric]) -> None:
    """Say so where scores that only rank are compared with ratings."""
    scored = [
        repr(name)
        for name, model in models.items()
        if getattr(model, "predicts_ratings", True) is False
    ]
    rating = [metric.name for metric in metrics if not metric.ranks]
    if scored and rating:
        warnings.warn(
            f"the scores of {' and '.join(scored)} {SCORES}, yet {' and '.join(rating)} would compare them with ratings. "
            "Judge by a ranking metric, such as dcg@10.",
            UnskewWarning,
            stacklevel=3,
        )


def warn_of_clicks(models: Mapping[str, Any], metrics: Sequence[Metric], log: Ratings) -> None:
    """Say so where a model that was fitted to clicks is compared with stars."""
    rate = {
        name: model
        for name, model in models.items()
        if getattr(model, "predicts_ratings", None) is True
    }
    cut = {
        name: model.threshold
        for name, model in rate.items()
        if is_finite_number(getattr(model, "threshold", None))
    }
    rating = [metric.name for metric in metrics if not metric.ranks]
    if cut and rating and not np.isin(log.rating, (0.0, 1.0)).all():
        name, threshold = next(iter(cut.items()))
        warnings.warn(
            f"{name!r} predicts how likely a rating of {threshold:g} or more is, yet {' and '.join(rating)} would compare that "
            "with the ratings themselves. Judge it on a log whose ratings are 0 and 1.",
            UnskewWarning,
            stacklevel=3,
        )


def _require_names(what: str, names: Sequence[str]) -> None:
    if not names:
        raise UsageError(f"there are no {what} to evaluate by.")
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        raise UsageError(
            f"several {what} are called {', '.join(map(repr, repeated))}; the table could show only one of each."
        )
