"""The main call: which model is better, really?"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from numbers import Integral
from typing import Any, Literal

import numpy as np

from unskew.data.propensities import PropensitiesLike, as_propensities
from unskew.data.ratings import Ratings, require_log
from unskew.data.universe import Universe, UniverseLike, resolve_universe
from unskew.errors import BadPredictionError, PropensityWarning, UsageError
from unskew.estimators.cells import Deltas, Imputed, Sample
from unskew.estimators.family import Estimator
from unskew.estimators.health import WeightSummary
from unskew.estimators.sums import Clusters, Resampling
from unskew.estimators.transforms import WeightTransform
from unskew.evaluation.arguments import (
    chosen_estimators,
    chosen_metrics,
    describe_intervals,
    require_cluster,
    require_level,
    require_transform,
    warn_of_clicks,
    warn_of_scores,
)
from unskew.evaluation.evidence import Evidence
from unskew.evaluation.imputation import impute, scored
from unskew.evaluation.predictions import Predictions, PredictionsLike, read_predictions
from unskew.evaluation.result import Evaluation
from unskew.metrics.metric import Metric, MetricInput
from unskew.ranking.positions import Ranker, ranker_named
from unskew.types import Vector


def evaluate(
    log: Ratings,
    predictions: Mapping[str, PredictionsLike] | PredictionsLike,
    *,
    propensities: PropensitiesLike | None = None,
    metrics: Sequence[str | Metric] = ("mse", "mae"),
    estimators: Sequence[str | Estimator] = ("naive", "ips", "snips"),
    universe: UniverseLike = None,
    level: float = 0.95,
    cluster: Literal["user", "item"] | None = None,
    relevant: float | None = None,
    transform: WeightTransform | None = None,
    imputation: PredictionsLike | None = None,
    bootstrap: int | None = None,
    random_state: int = 0,
    engine: str | Ranker = "auto",
) -> Evaluation:
    """Judge models on a log whose ratings were not observed at random.

    Parameters
    ----------
    log
        The observed ratings.
    predictions
        By model name (or one model alone): predicted ratings in the order of the log (a Series counts by position, not by index);
        a matrix whose rows are ``log.users`` and whose columns are ``log.items``; a frame of user, item, prediction and perhaps
        position; a fitted model with ``predict(users, items)``, which is given ids; or a callable that is given codes of users
        (places in ``log.users``) and returns their scores of all ``log.items``. Ranking metrics need the place among all items: a
        matrix, a model, a callable, or a frame with a position column (1 is the user's best item).
    propensities
        How likely each logged cell was to be observed: values in the order of the log, a matrix as for predictions, or a fitted
        propensity model, whose ``predict(log)`` gives the values. Judging on a held-out part of a log, scale them by its share.
    metrics
        ``mse mae accuracy dcg dcg@k cg@k precision@k recall@k stratified_recall@k atop``, or objects of your own.
    estimators
        ``naive ips snips user_normalized item_normalized eib dr``.
    universe
        (n_users, n_items): all that could have been logged. Needed by ``ips``, ``dr``, ``eib`` and ranking metrics. ``"log"``
        says that the log's own users and items are all there are; a log built from a matrix knows already.
    level
        Confidence level of the intervals.
    cluster
        None takes cells as independent given the propensities; ``"user"`` allows any dependence inside a user and counts users as
        a sample of more users, which is wider and right for most real logs.
    relevant
        Ratings from here on count as relevant, for precision, recall and atop.
    transform
        ``Clip``, ``Switch``, ``Shrink``, ``SubGaussian`` or ``Dynamic``: what to weight by in place of 1/P. The intervals leave
        out its bias.
    imputation
        For ``dr`` and ``eib``: a model of the ratings themselves: a matrix, a model, or a callable, as for predictions.
    bootstrap
        Number of resamples of users (of clusters) for percentile intervals in place of analytic ones.
    random_state
        Seed of the bootstrap.
    engine
        Where models of factors rank their items: ``"gpu"`` (needs the extra 'gpu'), a :class:`unskew.GpuEngine`, or here.

    Examples
    --------
    >>> import numpy as np
    >>> log = Ratings.from_dense([[5, 1, 0], [0, 5, 0]])
    >>> predictions = {"always 5": np.full((2, 3), 5.0)}
    >>> evaluate(log, predictions, propensities=[0.8, 0.25, 1.0], metrics=["mae"], estimators=["naive", "snips"])
    model     metric  estimator  estimate  std_error  ci_low  ci_high
    always 5  mae     naive         1.333      0.795  -0.225    2.892
    always 5  mae     snips         2.560      0.830   0.933    4.187
    3 observed cells of 2 users x 3 items; 95% intervals, cells independent; effective sample size 2
    """
    _check_arguments(log, level, transform, bootstrap)
    named = named_models(predictions)
    if not named:
        raise UsageError("there are no predictions to evaluate.")
    log = replace(log, universe=resolve_universe(log, universe))
    asked_metrics = chosen_metrics(metrics, relevant=relevant)
    warn_of_scores(named, asked_metrics)
    warn_of_clicks(named, asked_metrics, log)
    asked_estimators = chosen_estimators(estimators)
    resampling = None if bootstrap is None else Resampling(bootstrap, random_state)
    sample = _sample(log, propensities, asked_estimators, cluster, transform, resampling)
    ranker = ranker_named(engine)
    models = [read_predictions(name, given, log, ranker=ranker) for name, given in named.items()]
    judged = [_judge(model, log, asked_metrics) for model in models]
    fill = _fill(imputation, models, judged, log, asked_estimators)
    deltas = {metric.name: _deltas(metric, judged, fill, log) for metric in asked_metrics}
    estimates = {
        (metric, estimator.name): estimator(found, sample)
        for metric, found in deltas.items()
        for estimator in asked_estimators
    }
    health = _check_weights(sample, asked_estimators)
    return Evaluation(
        models=tuple(named),
        metrics={metric.name: metric.higher_is_better for metric in asked_metrics},
        estimators=tuple(estimator.name for estimator in asked_estimators),
        estimates=estimates,
        level=level,
        n_observed=len(log),
        intervals=describe_intervals(cluster, bootstrap),
        universe=log.universe,
        health=health,
        n_touched=0 if health is None or transform is None else sample.n_touched,
        backend=log.backend,
        cells=Evidence(
            deltas,
            sample,
            {estimator.name: estimator for estimator in asked_estimators},
            log.rating,
        ),
    )


def named_models(given: Any) -> dict[str, Any]:
    """By name, which is text; one alone is called "model"."""
    named = (
        {str(name): each for name, each in given.items()}
        if isinstance(given, Mapping)
        else {"model": given}
    )
    if isinstance(given, Mapping) and len(named) < len(given):
        raise UsageError(
            f"two models have one name: {', '.join(map(repr, given))}. Name them apart."
        )
    return named


def _check_arguments(log: object, level: object, transform: object, bootstrap: object) -> None:
    require_log(log)
    require_level(level)
    require_transform(transform)
    if bootstrap is not None and not isinstance(bootstrap, Integral):
        raise UsageError(f"bootstrap is a number of resamples, such as 1000; got {bootstrap!r}.")


def _sample(
    log: Ratings,
    propensities: PropensitiesLike | None,
    estimators: Sequence[Estimator],
    cluster: str | None,
    transform: WeightTransform | None,
    resampling: Resampling | None,
) -> Sample:
    weighted = [estimator.name for estimator in estimators if estimator.is_weighted]
    require_cluster(cluster)
    if propensities is None and weighted:
        raise UsageError(
            f"propensities=... is missing, which {' and '.join(weighted)} weight by; "
            "for the plain average over the log alone say estimators=['naive']."
        )
    universe = log.universe or Universe(log.n_users, log.n_items)
    users = Clusters(log.user, universe.n_users, resampling)
    items = Clusters(log.item, universe.n_items, resampling)
    kinds = {None: None if resampling is None else users, "user": users, "item": items}
    checked = None if propensities is None else as_propensities(log, propensities)
    return Sample(users, items, checked, transform, kinds[cluster], log.universe)


def _judge(model: Predictions, log: Ratings, metrics: Sequence[Metric]) -> MetricInput:
    """Ask a model once for whatever the metrics read."""
    ranking = [metric.top for metric in metrics if metric.ranks]
    top = (
        None if None in ranking else max((top for top in ranking if top is not None), default=None)
    )
    n_items = None if log.universe is None else log.universe.n_items
    return MetricInput(
        log.rating,
        log.item,
        log.rating,
        prediction=None if all(metric.ranks for metric in metrics) else model.values(log),
        positions=model.positions(log, n_items=n_items, top=top)
        if ranking and n_items is not None
        else None,
        n_items=n_items,
    )


def _fill(
    imputation: PredictionsLike | None,
    models: Sequence[Predictions],
    judged: Sequence[MetricInput],
    log: Ratings,
    estimators: Sequence[Estimator],
) -> Callable[[Metric], Imputed] | None:
    """How to impute the deltas of a metric, where an estimator wants that and the caller says with what."""
    if imputation is None or not any(estimator.imputes for estimator in estimators):
        return None
    rating_model = scored(read_predictions("imputation", imputation, log))
    return lambda metric: impute(metric, models, judged, rating_model, log)


def _deltas(
    metric: Metric,
    judged: Sequence[MetricInput],
    fill: Callable[[Metric], Imputed] | None,
    log: Ratings,
) -> Deltas:
    deltas = [metric(cells) for cells in judged]
    for delta in deltas:
        _refuse_infinite(metric, delta.value, log)
    is_mean = deltas[0].base is None
    return Deltas(
        np.stack([delta.value for delta in deltas]),
        deltas[0].base,
        deltas[0].is_mean_of_users,
        fill(metric) if fill is not None and is_mean else None,
    )


def _refuse_infinite(metric: Metric, delta: Vector, log: Ratings) -> None:
    bad = ~np.isfinite(delta)
    if bad.any():
        row = int(bad.argmax())
        raise BadPredictionError(
            f"{metric.name} is not a finite number for {int(bad.sum())} of {bad.size} cells; the first is {log.name_cell(row)}. "
            "Are the predictions on the scale of the ratings?"
        )


def _check_weights(sample: Sample, estimators: Sequence[Estimator]) -> WeightSummary | None:
    """Warn, with numbers, where the weights say that the data can hardly answer."""
    if not any(estimator.is_weighted for estimator in estimators) or not sample.weight.any():
        return None
    compare_mass = sample.universe is not None and sample.transform is None
    health = WeightSummary.of(
        sample.weight, n_cells=sample.universe.n_cells if sample.universe and compare_mass else None
    )
    for complaint in health.warning_texts():
        warnings.warn(complaint, PropensityWarning, stacklevel=3)
    return health
