"""Arguments of evaluations: checked before any work is done."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from unskew.data.ratings import Ratings
from unskew.data.universe import Universe, UniverseLike, parse_universe, resolve_universe
from unskew.errors import UnknownNameError, UnskewWarning, UsageError, warn_caller
from unskew.estimators.observed import Deltas
from unskew.estimators.point import Estimator, find_estimator
from unskew.evaluation.model_set import ModelSet
from unskew.metrics.metric import Metric, compares_logged_cells, find_metric
from unskew.settings import is_finite_number
from unskew.tables import join_words

CLUSTERS = ("auto", "user", "item", "both")


def find_metrics(metrics: object, *, relevance_threshold: float | None) -> list[Metric]:
    """Metrics from one name or object, or from a list of them."""
    chosen = [
        find_metric(metric, relevance_threshold=relevance_threshold)
        for metric in _as_list("metrics", metrics, example="mse")
    ]
    _require_distinct_names("metrics", [metric.name for metric in chosen])
    return chosen


def find_universe(log: Ratings, universe: UniverseLike, propensities: object) -> Universe | None:
    """The universe that is stated, else that of the log, else that of a fitted model."""
    resolved = resolve_universe(log, universe)
    sizes = [getattr(propensities, name, None) for name in ("n_users_", "n_items_")]
    if resolved is not None or None in sizes:
        return resolved
    return resolve_universe(log, parse_universe(sizes))


def find_estimators(estimators: object, universe: Universe | None = None) -> list[Estimator]:
    """Estimators from one name or object, or from a list of them.

    None is naive, IPS and SNIPS; without IPS if the universe is unknown.
    """
    if estimators is None:
        estimators = ("naive", "snips") if universe is None else ("naive", "ips", "snips")
    names = _as_list("estimators", estimators, example="snips")
    chosen = [find_estimator(estimator) for estimator in names]
    _require_distinct_names("estimators", [estimator.name for estimator in chosen])
    return chosen


def choose_estimators(
    estimators: object,
    metrics: Sequence[Metric],
    universe: Universe | None,
    propensities: object,
    model_set: object,
) -> list[Estimator]:
    """The estimators; an error if one cannot estimate the metrics from what was passed."""
    chosen = find_estimators(estimators, universe)
    _require_compatible(metrics, chosen)
    _require_propensities(propensities, chosen)
    _require_model_set(model_set, chosen)
    return chosen


def _require_compatible(metrics: Sequence[Metric], estimators: Sequence[Estimator]) -> None:
    """Raise an error if weights are to correct a metric that they cannot correct."""
    corrected = [each.name for each in estimators if each.is_weighted or each.imputes]
    for metric in metrics:
        if corrected and compares_logged_cells(metric):
            raise UsageError(
                f"{metric.name!r} ranks the logged items among each other. Weights cannot correct "
                f"for which items were logged, so it cannot be estimated by {corrected[0]!r}.",
                parameter="metrics",
                value=metric.name,
                remedy="Use `estimators=['naive']` on a test log whose cells were drawn uniformly "
                "at random, or a metric of all items such as dcg@10.",
            )


def require_imputed(deltas: Mapping[str, Deltas], estimators: Sequence[Estimator]) -> None:
    """Raise an error if an imputation was passed, but a metric cannot be imputed."""
    imputing = [each.name for each in estimators if each.imputes]
    for metric, each in deltas.items():
        if imputing and each.imputed is None:
            raise UsageError(
                f"the metric {metric!r} cannot be estimated by {imputing[0]!r} of `estimators`: it "
                "divides by the number of relevant items of each user, which is unknown where "
                "ratings are not observed.",
                parameter="metrics",
                value=metric,
                remedy="Evaluate it with `estimators=['snips']` in a call of its own, or use a "
                "metric that is a mean over all cells, such as mse, precision@10 or dcg@10.",
            )


def _require_propensities(propensities: object, estimators: Sequence[Estimator]) -> None:
    weighted = [estimator.name for estimator in estimators if estimator.is_weighted]
    if propensities is None and weighted:
        raise UsageError(
            f"`propensities` is missing; {' and '.join(weighted)} cannot weight without it.",
            parameter="propensities",
            remedy="Pass the probability with which each rating was observed, or a fitted model "
            "such as PopularityPropensity().fit(log). For the plain average over the log alone, "
            "pass `estimators=['naive']`.",
        )


def _require_model_set(model_set: object, estimators: Sequence[Estimator]) -> None:
    """Raise an error if ``model_set`` is no ModelSet, or if no estimator reads it."""
    reading = [estimator.name for estimator in estimators if estimator.has_own_models]
    if model_set is not None and not isinstance(model_set, ModelSet):
        raise UsageError(
            f"`model_set` must be a ModelSet; got {type(model_set).__name__}.",
            parameter="model_set",
            remedy="Pass `ModelSet(propensities=[...], imputations=[...])` of unskew.evaluation.",
        )
    if model_set is not None and not reading:
        raise UsageError(
            "`model_set` is for the estimator 'mr', which is not among `estimators`.",
            parameter="model_set",
            remedy="Add 'mr' to `estimators`, or leave `model_set` out.",
        )


def require_level(level: object) -> None:
    if not (isinstance(level, float) and 0 < level < 1):
        raise UsageError(
            f"`level` must lie strictly between 0 and 1, such as 0.95; got {level!r}.",
            parameter="level",
            value=level,
        )


def require_weight_transform(weight_transform: object) -> None:
    is_object = callable(weight_transform) and not isinstance(weight_transform, type)
    if weight_transform is not None and not is_object:
        raise UsageError(
            f"`weight_transform` must be an object such as Clip(50); got {weight_transform!r}.",
            parameter="weight_transform",
            value=weight_transform,
        )


def require_cluster(cluster: object) -> None:
    if isinstance(cluster, str) and cluster == "None":
        raise UsageError(
            f"`cluster` must be None without quotes, or one of {', '.join(CLUSTERS)}; got 'None'.",
            parameter="cluster",
            value=cluster,
        )
    if not (cluster is None or (isinstance(cluster, str) and cluster in CLUSTERS)):
        raise UnknownNameError("cluster", cluster, ("None", *CLUSTERS))


def warn_about_scales(models: Mapping[str, Any], metrics: Sequence[Metric], log: Ratings) -> None:
    """Warn if predictions that are not ratings would be compared with ratings.

    These are scores of models that only rank items, and (if ``log`` has other ratings than 0 and 1)
    probabilities of models that were fitted to binarized ratings.
    """
    rating_metrics = " and ".join(
        metric.name for metric in metrics if not (metric.ranks or compares_logged_cells(metric))
    )
    if not rating_metrics:
        return
    rankers = [
        repr(name)
        for name, model in models.items()
        if getattr(model, "predicts_ratings", True) is False
    ]
    if rankers:
        warn_caller(
            UnskewWarning(
                f"the scores of {join_words(rankers)} only rank items, but {rating_metrics} "
                "would compare them with ratings.",
                remedy="Use a ranking metric, such as dcg@10.",
            )
        )
    thresholds = {
        name: getattr(model, "relevance_threshold", None)
        for name, model in models.items()
        if getattr(model, "predicts_ratings", None) is True
    }
    thresholds = {name: value for name, value in thresholds.items() if is_finite_number(value)}
    if thresholds and not np.isin(log.rating, (0.0, 1.0)).all():
        name, threshold = next(iter(thresholds.items()))
        warn_caller(
            UnskewWarning(
                f"{name!r} predicts the probability of a rating of {threshold:g} or more: "
                f"{rating_metrics} would compare it with the ratings themselves.",
                remedy="Evaluate it on a log whose ratings are 0 and 1.",
            )
        )


def _as_list(parameter: str, value: object, *, example: str) -> Sequence[Any]:
    """``value``, or a list of it alone if it is one name or one object."""
    is_single = (callable(value) or isinstance(value, Estimator)) and not isinstance(value, type)
    if isinstance(value, str) or is_single:
        return [value]
    if not isinstance(value, Sequence):
        raise UsageError(
            f"`{parameter}` must be a list of names; got {value!r}.",
            parameter=parameter,
            value=value,
            remedy=f"Pass names of unskew.{parameter}, such as `{parameter}=['{example}']`.",
        )
    return value


def _require_distinct_names(parameter: str, names: Sequence[str]) -> None:
    if not names:
        raise UsageError(
            f"`{parameter}` is empty: there is nothing to evaluate.",
            parameter=parameter,
            remedy=f"Name at least one, or leave out `{parameter}` to use the default ones.",
        )
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        raise UsageError(
            f"several {parameter} have the same name: {', '.join(map(repr, repeated))}.",
            parameter=parameter,
            remedy="Pass each of them once, or give them different names.",
        )
