"""The main function: the risks of models, estimated from a biased log.

Below it: the deltas, what each metric gives to each observed cell of each model.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Literal

import numpy as np

from unskew.data.propensities import PropensitiesLike
from unskew.data.ratings import Ratings, require_log
from unskew.data.universe import UniverseLike
from unskew.data.weights import WeightTransform
from unskew.errors import BadPredictionError, UsageError
from unskew.estimators.estimate import Estimate
from unskew.estimators.multiple_robust import ModelSums
from unskew.estimators.observed import Cluster, Deltas, Imputed, ObservedCells, Resampling
from unskew.estimators.point import Estimator
from unskew.estimators.user_functions import UserFunctions
from unskew.evaluation.arguments import (
    choose_estimators,
    find_metrics,
    find_universe,
    require_cluster,
    require_imputed,
    require_level,
    require_weight_transform,
    warn_about_scales,
)
from unskew.evaluation.cells import (
    TestedCells,
    choose_clusters,
    describe_intervals,
    explain_plug_ins,
    observe_cells,
    read_propensities,
    summarize_weights,
    warn_about_clusters,
)
from unskew.evaluation.imputation import Imputation, impute_deltas
from unskew.evaluation.model_set import ModelSet, read_model_set
from unskew.evaluation.predictions import (
    Predictions,
    PredictionsLike,
    name_models,
    read_models,
)
from unskew.evaluation.reliability import find_transform_effect
from unskew.evaluation.result import Evaluation
from unskew.evaluation.sequence import describe_sequence, estimate_sequences, plan_sequence
from unskew.evaluation.training_overlap import find_training_overlap
from unskew.evaluation.weight_changes import EvaluationInputs
from unskew.metrics.metric import (
    Delta,
    Metric,
    MetricInput,
    is_plug_in,
    max_relative_error,
    metric_bounds,
)
from unskew.ranking.candidates import CandidatesLike
from unskew.ranking.positions import Ranker
from unskew.settings import Flag, draw_seeds
from unskew.types import RandomState, Vector

NO_UNIVERSE = (
    "ips is left out, because nothing says how many users and items there are: pass "
    "universe=(n_users, n_items), or universe='log' if the log has all of them"
)


def evaluate(
    log: Ratings,
    predictions: Mapping[str, PredictionsLike] | PredictionsLike,
    *,
    propensities: PropensitiesLike | None = None,
    metrics: Sequence[str | Metric] = ("mse", "mae"),
    estimators: Sequence[str | Estimator] | None = None,
    universe: UniverseLike = None,
    position: str | Mapping[str, str] | None = None,
    exclude: Ratings | None = None,
    candidates: CandidatesLike | None = None,
    level: float = 0.95,
    cluster: Cluster | Literal["auto"] = "auto",
    propensities_known: bool = False,
    relevance_threshold: float | None = None,
    weight_transform: WeightTransform | None = None,
    imputation: Imputation | PredictionsLike | None = None,
    model_set: ModelSet | None = None,
    bootstrap: int | None = None,
    random_state: RandomState = 0,
    engine: str | Ranker = "auto",
    sequence: bool = False,
    planned_size: int | None = None,
) -> Evaluation:
    """Estimate the risks of models from a log whose ratings were not observed at random.

    Parameters
    ----------
    log
        The observed ratings.
    predictions
        By model name (or one model alone): predicted ratings in the order of the log (the index of
        a pandas Series must agree with that); a matrix with rows in the order of ``log.users`` and
        columns in the order of ``log.items``; a frame of user, item, prediction and perhaps
        position; a fitted model with ``predict(users, items)``, which gets ids; a fitted model of
        Surprise, implicit, LensKit and others (``unskew.evaluation.ADAPTERS`` lists the libraries,
        :func:`unskew.evaluation.wrap_model` adds ids to those that know only codes); or a callable
        that gets an array of user ids and one of item ids, and returns a row for each user with a
        score for each item.
        Ranking metrics need the position among all items: a matrix, a model, a callable, a frame
        of the predictions of all items for each logged user, or a frame with positions (see
        ``position``).
        Hold ratings out with :func:`unskew.split`: a model looks better than it is on cells that
        it was fitted to. Models of unskew know these cells, and there is a warning.
    propensities
        The probability with which each logged cell was observed: values in the order of the log, a
        matrix as for predictions, or a fitted propensity model. If the log is a part made by
        :func:`unskew.split`, they are the propensities of the whole log, and follow the part.
    metrics
        Names such as ``mse`` or ``dcg@10`` (``unskew.metrics.METRICS`` lists them), or your own
        metric objects.
    estimators
        Names such as ``snips`` (``unskew.estimators.ESTIMATORS`` lists them), or your own
        estimator objects. None is naive, ips and snips; ips is left out, with a note, if the
        universe is unknown.
    universe
        (n_users, n_items): all users and items that could have been logged. Ranking metrics and
        the estimators ``ips``, ``dr``, ``sndr``, ``eib`` and ``mr`` need it. ``"log"`` means that
        the users and items of the log are all there are. None is the universe of the log, if it
        was stated there or the log was built from a matrix, else that of a fitted propensity
        model.
    position
        For ranking metrics: the column of frames of predictions that has the positions, 1 for the
        item that the model ranks best; or the column by model name. No column is read as positions
        unless it is named: one that is called ``position`` may say where an item was shown.
    exclude
        A log, such as the training log: its items are not ranked for its users. Logged cells that
        are excluded leave the test; the result says how many. If both logs are parts of one split,
        the propensities follow. Otherwise pass the probability that a cell which is not excluded
        is in the log. Positions in a frame must be positions among the candidates already.
    candidates
        Item ids that are ranked for all users, or a frame of users and items; by default all items.
        Logged cells outside leave the test. IPS divides by the number of candidates.
    level
        Confidence level of the intervals.
    cluster
        ``"user"`` allows any dependence between the cells of a user and takes users as a sample
        of more users; ``"item"`` does the same for items, and ``"both"`` for users and items at
        once. None takes cells as independent given the propensities. ``"auto"`` is ``"user"`` if
        users have several cells, and ``"both"`` if, besides, the total weights of items vary
        significantly more than the propensities explain; the result says which and why.
    propensities_known
        Whether to take estimated propensities as known. The intervals then leave out the error
        of their estimation, and can be far too narrow or too wide. Estimates with a penalised
        ``LogisticPropensity`` change too: the bias of its penalty is not subtracted, because known
        propensities have none.
    relevance_threshold
        Ratings of at least this value are relevant, for precision, recall and atop.
    weight_transform
        ``Clip``, ``Switch``, ``Shrink``, ``SubGaussian`` or ``Dynamic``: what to use as weights in
        place of 1/P. The intervals do not include its bias.
    imputation
        For ``dr``, ``sndr`` and ``eib``: a model of the ratings of all cells. Pass a model that is
        not fitted, such as ``MatrixFactorization(5)``: it is cross-fitted, which means that each
        logged cell is imputed by a model that was fitted without it. A fitted model, a matrix or a
        callable (as for predictions) must not have seen these ratings. If it has, or if that is
        unknown, ``dr`` and ``sndr`` have no interval. An :class:`unskew.evaluation.Imputation`
        also says which folds are used, or that the model was fitted to other ratings.

        The imputed delta of a cell is E[delta] over the distribution of its rating. A model with
        ``predict_distribution`` gives this distribution. Of other models it is the predicted mean
        plus the residuals of the logged cells, weighted by 1/P, which are taken to have the same
        spread in all cells. If all ratings are 0 and 1, predict the probability of a 1.
    model_set
        For ``mr``: several propensity models and several imputations, of which one must be right.
        ``propensities`` are not read by ``mr``.
    bootstrap
        Number of resamples of users (or items) for percentile intervals. None computes analytic
        intervals.
    random_state
        Seed or generator of the bootstrap and of the folds of the imputation.
    engine
        Where factor models rank their items: ``"gpu"`` (needs the extra 'gpu'), a
        :class:`unskew.engines.GpuEngine`, or ``"local"``.
    sequence
        Whether the limits hold at every look at a growing log, so that one may look at any time
        and stop. For ``snips``, ``ips`` and ``naive``, with propensities that do not change. Users
        (or cells with ``cluster=None``) are taken as independent and complete when they arrive.
        Below an effective sample size of 100 the limits are infinite: it is too early.
    planned_size
        With ``sequence``: the number of users (or ratings with ``cluster=None``) at which the
        limits shall be narrowest. Fix it before the first look.

    Examples
    --------
    >>> import numpy as np
    >>> log = Ratings.from_dense([[5, 1, 0], [0, 5, 0]])
    >>> evaluate(
    ...     log,
    ...     {"always 5": np.full((2, 3), 5.0)},
    ...     propensities=[0.8, 0.25, 1.0],
    ...     metrics=["mae"],
    ...     estimators=["naive", "snips"],
    ... )
    model     metric  estimator  estimate  std_error  ci_low  ci_high  degrees
    always 5  mae     naive         1.333      0.889   0.000   30.777    1.000
    always 5  mae     snips         2.560      0.819   0.000   49.388    1.000
    3 observed cells of 2 users x 3 items; effective sample size 2; 95% intervals, clustered by user
    these propensities are taken as known, and nothing here can confirm them
    """
    require_log(log, for_frames="evaluate_frame(frame, ...)")
    require_level(level)
    require_weight_transform(weight_transform)
    require_cluster(cluster)
    Flag()("sequence", sequence)
    (seed,) = draw_seeds(random_state)
    models = name_models(predictions)
    all_cells = find_universe(log, universe, propensities)
    chosen_metrics = find_metrics(metrics, relevance_threshold=relevance_threshold)
    chosen_estimators = choose_estimators(
        estimators, chosen_metrics, all_cells, propensities, model_set
    )
    warn_about_scales(models, chosen_metrics, log)

    tested = TestedCells.find(log, all_cells, candidates, exclude)
    log_propensities, estimation = read_propensities(
        log, propensities, are_known=propensities_known, bootstrap=bootstrap
    )
    resampling = None if bootstrap is None else Resampling(bootstrap, seed)
    cells = observe_cells(tested, log_propensities, weight_transform, resampling)
    can_add_items = not sequence and bootstrap is None
    cells, clusters = choose_clusters(cluster, cells, chosen_estimators, can_add_items)
    if sequence or planned_size is not None:
        planned_size = plan_sequence(sequence, planned_size, chosen_estimators, cells)

    readers = read_models(models, log, tested.rows, engine=engine, position=position)
    training_overlap = find_training_overlap(
        models, tested.log, is_random_test=any(each.needs_random_test for each in chosen_estimators)
    )
    if not any(estimator.imputes for estimator in chosen_estimators):
        imputation = None
    deltas, notes = _measure_deltas(
        chosen_metrics, readers, imputation, model_set, tested, cells, log, seed
    )
    if imputation is not None:
        require_imputed(deltas, chosen_estimators)

    by_name = {estimator.name: estimator for estimator in chosen_estimators}
    inputs = EvaluationInputs(tuple(models), level, deltas, cells, by_name, tested.log.rating)
    if planned_size is None:
        intervals = describe_intervals(clusters.cluster, bootstrap)
        estimates = _estimate_risks(inputs)
    else:
        estimates = estimate_sequences(inputs, planned_size)
        intervals = describe_sequence(cells, planned_size, estimates)

    if estimators is None and all_cells is None:
        notes.append(NO_UNIVERSE)
    weight_summary = summarize_weights(cells, chosen_estimators)
    directions = {metric.name: metric.higher_is_better for metric in chosen_metrics}
    result = Evaluation(
        models=tuple(models),
        metrics=directions,
        estimators=tuple(by_name),
        estimates=estimates,
        level=level,
        n_observed=len(tested.log),
        intervals=intervals,
        universe=tested.universe,
        weight_summary=weight_summary,
        n_transformed=0 if weight_summary is None else cells.n_transformed,
        backend=log.backend,
        estimation=estimation,
        inputs=None if sequence else inputs,
        clusters=clusters,
        cluster_warning=warn_about_clusters(clusters, inputs, estimates, can_add_items),
        transform_effect=None if sequence else find_transform_effect(inputs, estimates, directions),
        notes=(
            *tested.describe(chosen_metrics),
            *describe_plug_ins(chosen_metrics, deltas, cells),
            *notes,
        ),
        relevance_threshold=relevance_threshold,
        training_overlap=training_overlap,
    )
    result.warn()
    return result


def _estimate_risks(inputs: EvaluationInputs) -> dict[tuple[str, str], Estimate]:
    """By (metric, estimator): the risks of all models."""
    inputs.cells.evaluate_together(inputs.deltas.values())
    return {
        (metric, name): estimator.estimate(deltas, inputs.cells)
        for metric, deltas in inputs.deltas.items()
        for name, estimator in inputs.estimators.items()
    }


def _measure_deltas(
    metrics: Sequence[Metric],
    models: Sequence[Predictions],
    imputation: Imputation | PredictionsLike | None,
    model_set: ModelSet | None,
    tested: TestedCells,
    cells: ObservedCells,
    log: Ratings,
    seed: int,
) -> tuple[dict[str, Deltas], list[str]]:
    """By metric: the deltas of all models and their imputations; and what the result says of them.

    ``log`` is the log of the caller, of which the tested cells are a part.
    """
    inputs = [read_input(model, tested, metrics) for model in models]
    imputed: Mapping[str, Imputed] = {}
    sums: Mapping[str, ModelSums] = {}
    notes: list[str] = []
    if imputation is not None:
        imputed, notes = impute_deltas(imputation, metrics, models, inputs, tested, cells, seed)
    if model_set is not None:
        sums, texts = read_model_set(model_set, metrics, models, inputs, tested, cells, log, seed)
        notes += texts
    return compute_deltas(metrics, inputs, imputed, tested.log, sums), notes


def read_input(
    predictions: Predictions, tested: TestedCells, metrics: Sequence[Metric]
) -> MetricInput:
    """What the metrics read of one model, computed once."""
    log, universe = tested.log, tested.universe
    n_items = None if universe is None else universe.n_items
    tops = [metric.top for metric in metrics if metric.ranks]
    positions = None
    if tops and n_items is not None:
        top = None if None in tops else max(top for top in tops if top is not None)
        positions = predictions.positions(log, n_items, top, tested.candidates)
    return MetricInput(
        log.rating,
        log.item,
        log.rating,
        prediction=None if all(metric.ranks for metric in metrics) else predictions.values(log),
        positions=positions,
        n_items=n_items,
        user=log.user,
        n_users=None if universe is None else universe.n_users,
        candidates=tested.counts,
    )


def compute_deltas(
    metrics: Sequence[Metric],
    inputs: Sequence[MetricInput],
    imputed: Mapping[str, Imputed],
    log: Ratings,
    model_sums: Mapping[str, ModelSums] = MappingProxyType({}),
) -> dict[str, Deltas]:
    """By metric: the deltas of all models, one row for each."""
    return {
        metric.name: replace(
            _stack_models(metric, inputs, imputed.get(metric.name), log),
            models=model_sums.get(metric.name),
        )
        for metric in metrics
    }


def _stack_models(
    metric: Metric, inputs: Sequence[MetricInput], imputed: Imputed | None, log: Ratings
) -> Deltas:
    measure = _interpolate if log.examination is not None else _apply
    deltas = [measure(metric, model_input) for model_input in inputs]
    value, base = np.stack([delta.value for delta in deltas]), deltas[0].base
    is_bad = ~np.isfinite(value)
    if is_bad.any():
        is_bad_cell = is_bad[int(is_bad.any(axis=1).argmax())]
        where = log.name_cell(int(is_bad_cell.argmax()))
        raise BadPredictionError(
            f"{metric.name} is not finite for {is_bad_cell.sum()} of {is_bad_cell.size} cells; "
            f"the first is {where}.",
            parameter="predictions",
            where=where,
            remedy="Check that the predictions are on the scale of the ratings.",
        )
    slots = [delta.slots for delta in deltas if delta.slots is not None]
    functions = tuple(delta.function for delta in deltas if delta.function is not None)
    return Deltas(
        value=value,
        base=base,
        is_mean_of_users=deltas[0].is_mean_of_users,
        imputed=None if base is not None else imputed,
        slots=np.stack(slots) if slots else None,
        bounds=metric_bounds(metric),
        functions=UserFunctions(functions) if functions else None,
        is_root=deltas[0].is_root,
        max_relative_error=max_relative_error(metric),
    )


def _apply(metric: Metric, cells: MetricInput) -> Delta:
    return metric(cells)


def _interpolate(metric: Metric, cells: MetricInput) -> Delta:
    """The delta d of relevances G estimated from clicks: d(0) + G (d(1) - d(0)).

    The delta of a binary rating Y is linear in Y, so this is unbiased if G is. (G - F)^2, with F
    the prediction, would add the variance of G. G can exceed 1.
    """

    def measure(rating: float) -> Delta:
        ratings = np.full(cells.rating.size, rating)
        return metric(replace(cells, rating=ratings, scale=np.array([0.0, 1.0])))

    relevant = measure(1.0)
    if relevant.function is not None:
        raise UsageError(
            f"{metric.name!r} is not linear in the relevance of each cell, so it cannot be "
            "estimated from clicks divided by examination.",
            parameter="metrics",
            value=metric.name,
            remedy="Use a linear metric, such as precision@10, dcg@10 or recall_per_positive@10.",
        )

    irrelevant = measure(0.0)

    def mix(at_zero: Vector, at_one: Vector) -> Vector:
        return at_zero + cells.rating * (at_one - at_zero)

    base = None
    if irrelevant.base is not None and relevant.base is not None:
        base = mix(irrelevant.base, relevant.base)
    return replace(relevant, value=mix(irrelevant.value, relevant.value), base=base)


def describe_plug_ins(
    metrics: Sequence[Metric], deltas: Mapping[str, Deltas], cells: ObservedCells
) -> Iterator[str]:
    """Which metrics are biased because users have few observed relevant items."""
    names = [metric.name for metric in metrics if is_plug_in(metric)]
    if not names or not (cells.weight > 1).any():
        return
    base = deltas[names[0]].base
    assert base is not None
    users = cells.users.code[base > 0]
    yield explain_plug_ins(names, users.size, np.unique(users).size)
