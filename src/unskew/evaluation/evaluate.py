"""The main function: the risks of models, estimated from a biased log."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from numbers import Integral
from typing import Any, Literal

import numpy as np

from unskew.data.estimation import Estimation, Strata, TakenAsKnown
from unskew.data.propensities import Propensities, PropensitiesLike, as_propensities
from unskew.data.ratings import Ratings, require_log
from unskew.data.universe import Universe, UniverseLike, parse_universe, resolve_universe
from unskew.data.weights import WeightTransform
from unskew.errors import BadPredictionError, UsageError
from unskew.estimators.dispersion import find_shared_variance
from unskew.estimators.point import Estimator
from unskew.estimators.sums import Cluster, Clusters, Deltas, Imputed, ObservedCells, Resampling
from unskew.estimators.user_functions import UserFunctions
from unskew.estimators.weight_summary import WeightSummary
from unskew.evaluation.adapters.wrap import adapt_model
from unskew.evaluation.arguments import (
    TAKEN_AS_KNOWN,
    choose_default_estimators,
    describe_intervals,
    find_estimators,
    find_metrics,
    require_cluster,
    require_compatible,
    require_level,
    require_weight_transform,
    warn_about_scales,
)
from unskew.evaluation.candidates import TestedCells, restrict_universe
from unskew.evaluation.clusters import ClusterChoice, choose_clusters, warn_about_clusters
from unskew.evaluation.cross_fitting import find_source
from unskew.evaluation.imputation import impute_deltas
from unskew.evaluation.predictions import (
    Predictions,
    PredictionsLike,
    name_positions,
    read_predictions,
)
from unskew.evaluation.rating_distributions import (
    FoldedPredictions,
    Folds,
    read_imputation,
)
from unskew.evaluation.result import Evaluation
from unskew.evaluation.sequence import describe_sequence, estimate_sequences, require_sequence
from unskew.evaluation.weight_changes import EvaluationInputs
from unskew.metrics.metric import (
    CandidateCounts,
    Metric,
    MetricInput,
    is_plug_in,
    max_relative_error,
    metric_bounds,
)
from unskew.ranking.candidates import CandidatesLike
from unskew.ranking.positions import Ranker, find_ranker
from unskew.settings import check_random_state
from unskew.types import Vector

NO_UNIVERSE = (
    "ips is left out, because nothing says how many users and items there are: pass "
    "universe=(n_users, n_items), or universe='log' if the log has all of them"
)
TIME_SPLIT = (
    "the log is the later part of a split by time, not a random part: that the propensities of the "
    "whole log times its share are those of this part is an assumption"
)
MASS_TOLERANCE = 0.01
"""Weights that miss the number of cells by more than this share do not add up to it by design."""


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
    imputation: PredictionsLike | FoldedPredictions | None = None,
    imputation_folds: Folds | int | None = None,
    imputation_independent: bool = False,
    bootstrap: int | None = None,
    random_state: int | np.random.Generator | None = 0,
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
        the estimators ``ips``, ``dr``, ``sndr`` and ``eib`` need it. ``"log"`` means that the
        users and items of the log are all there are. None is the universe of the log, if it was
        stated there or the log was built from a matrix, else that of a fitted propensity model.
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
        unknown, ``dr`` and ``sndr`` have no interval.

        The imputed delta of a cell is E[delta] over the distribution of its rating. A model with
        ``predict_distribution`` gives this distribution. Of other models it is the predicted mean
        plus the residuals of the logged cells, weighted by 1/P, which are taken to have the same
        spread in all cells. If all ratings are 0 and 1, predict the probability of a 1. With
        ``imputation_folds`` it may be a dict from each fold to a model that was fitted without it.
    imputation_folds
        For an unfitted model, the number of folds, by default 5. Or a whole number for each logged
        cell: the fold without which its imputed rating was, or shall be, fitted.
    imputation_independent
        Whether the imputation was fitted to other ratings than those of the log. Recommenders of
        this library know this themselves.
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
    require_log(log)
    require_level(level)
    require_weight_transform(weight_transform)
    require_cluster(cluster)
    models = name_models(predictions)
    all_cells = _find_universe(log, universe, propensities)
    tested = TestedCells.find(log, candidates, exclude)
    counts = None if all_cells is None else tested.count(all_cells)
    all_cells = restrict_universe(all_cells, counts)
    chosen_metrics = find_metrics(metrics, relevance_threshold=relevance_threshold)
    chosen_estimators = find_estimators(
        choose_default_estimators(all_cells) if estimators is None else estimators
    )
    require_compatible(chosen_metrics, chosen_estimators)
    warn_about_scales(models, chosen_metrics, log)
    _require_propensities(propensities, chosen_estimators)
    whole_propensities, estimation = _read_propensities(
        log, propensities, propensities_known, bootstrap
    )
    chosen_propensities = tested.take_propensities(whole_propensities)
    whole_log, log = log, tested.log
    seed = _choose_seed(random_state)
    cells = _observe_cells(
        log,
        all_cells,
        chosen_propensities,
        weight_transform,
        None if bootstrap is None else Resampling(bootstrap, seed),
    )
    can_change_clusters = not sequence and bootstrap is None
    choice = choose_clusters(
        cluster,
        cells,
        checks=any(estimator.is_weighted for estimator in chosen_estimators),
        adds_items=can_change_clusters,
    )
    cells = _set_clusters(cells, choice)
    if sequence:
        planned_size = require_sequence(
            chosen_estimators,
            cluster=choice.cluster,
            bootstrap=bootstrap,
            planned_size=planned_size,
            propensities=chosen_propensities,
        )
    elif planned_size is not None:
        raise UsageError(
            "`planned_size` is for limits that hold at every look.",
            parameter="planned_size",
            value=planned_size,
            remedy="Pass `sequence=True` too.",
        )
    ranker, position_columns = find_ranker(engine), name_positions(position, models)
    readers = [
        read_predictions(
            name,
            model,
            whole_log,
            ranker=ranker,
            rows=tested.rows,
            position=position_columns.get(name),
        )
        for name, model in models.items()
    ]
    inputs = [_read_input(reader, tested, all_cells, counts, chosen_metrics) for reader in readers]
    imputed: dict[str, Imputed] = {}
    imputing = [estimator for estimator in chosen_estimators if estimator.imputes]
    notes: tuple[str, ...] = ()
    if imputing and imputation is not None:
        source = find_source(
            imputation,
            tested.take(imputation_folds),
            log,
            chosen_propensities,
            is_independent=imputation_independent,
            seed=seed,
        )
        imputed_ratings = read_imputation(source.imputation, source.folds, log, cells.inverse)
        imputed = impute_deltas(
            chosen_metrics,
            readers,
            inputs,
            imputed_ratings,
            log,
            all_cells,
            tested.candidates,
            source.no_interval,
        )
        notes = tuple(source.describe(cells))
    deltas = {
        metric.name: _compute_deltas(metric, inputs, imputed.get(metric.name), log)
        for metric in chosen_metrics
    }
    if planned_size is not None:
        estimates = estimate_sequences(deltas, chosen_estimators, cells, planned_size)
        intervals = describe_sequence(choice.cluster, planned_size, estimates, chosen_propensities)
    else:
        estimates = {
            (metric, estimator.name): estimator.estimate(metric_deltas, cells)
            for metric, metric_deltas in deltas.items()
            for estimator in chosen_estimators
        }
        intervals = describe_intervals(choice.cluster, bootstrap)
    by_name = {estimator.name: estimator for estimator in chosen_estimators}
    first_metric, first_deltas = next(iter(deltas.items()))
    cluster_warning = warn_about_clusters(
        choice,
        first_metric,
        first_deltas,
        cells,
        by_name,
        estimates,
        can_change=can_change_clusters,
    )
    weight_summary = _summarize_weights(cells, chosen_estimators)
    is_transformed = weight_summary is not None and weight_transform is not None
    result = Evaluation(
        models=tuple(models),
        metrics={metric.name: metric.higher_is_better for metric in chosen_metrics},
        estimators=tuple(estimator.name for estimator in chosen_estimators),
        estimates=estimates,
        level=level,
        n_observed=len(log),
        intervals=intervals,
        universe=all_cells,
        weight_summary=weight_summary,
        n_transformed=cells.n_transformed if is_transformed else 0,
        backend=log.backend,
        estimation=estimation,
        inputs=None if sequence else EvaluationInputs(deltas, cells, by_name, log.rating),
        clusters=choice,
        cluster_warning=cluster_warning,
        notes=(
            *tested.describe(),
            *_describe_plug_ins(chosen_metrics, deltas, cells),
            *notes,
            *([NO_UNIVERSE] if estimators is None and all_cells is None else []),
            *([TIME_SPLIT] if log.part is not None and log.part.by == "time" else []),
        ),
        relevance_threshold=relevance_threshold,
    )
    result.warn()
    return result


def _find_universe(log: Ratings, universe: UniverseLike, propensities: object) -> Universe | None:
    """The universe that is stated, else that of the log, else that of a fitted model."""
    resolved = resolve_universe(log, universe)
    sizes = [getattr(propensities, name, None) for name in ("n_users_", "n_items_")]
    if resolved is not None or None in sizes:
        return resolved
    return resolve_universe(log, parse_universe(sizes))


def name_models(predictions: Any) -> dict[str, Any]:
    """Predictions by model name; the name of one model alone is "model".

    Models of other libraries become models that predict pairs of ids.
    """
    if not isinstance(predictions, Mapping):
        return {"model": adapt_model(predictions)}
    models = {str(name): adapt_model(model) for name, model in predictions.items()}
    if len(models) < len(predictions):
        raise UsageError(
            f"two models have the same name: {', '.join(map(repr, predictions))}.",
            parameter="predictions",
            remedy="Give them different names.",
        )
    if not models:
        raise UsageError("`predictions` is empty: there is no model.", parameter="predictions")
    return models


def _describe_plug_ins(
    metrics: Sequence[Metric], deltas: Mapping[str, Deltas], cells: ObservedCells
) -> Iterator[str]:
    """Which metrics are biased because users have few observed relevant items."""
    names = [metric.name for metric in metrics if is_plug_in(metric)]
    if not names or not (cells.weight > 1).any():
        return
    base = deltas[names[0]].base
    assert base is not None
    users = cells.users.code[base > 0]
    mean = users.size / max(np.unique(users).size, 1)
    yield (
        f"{' and '.join(names)} by weights {'is' if len(names) == 1 else 'are'} biased "
        f"while users have few observed relevant items; here {mean:.1f} per user who has some"
    )


def _require_propensities(propensities: object, estimators: Sequence[Estimator]) -> None:
    weighted = [estimator.name for estimator in estimators if estimator.is_weighted]
    if propensities is None and weighted:
        raise UsageError(
            f"`propensities` is missing; {' and '.join(weighted)} cannot weight without it.",
            parameter="propensities",
            remedy="Pass the probability with which each rating was observed, or a fitted model "
            "such as NaiveBayesPropensity. For the plain average over the log alone, pass "
            "`estimators=['naive']`.",
        )


def _read_propensities(
    log: Ratings,
    propensities: PropensitiesLike | None,
    propensities_known: bool,
    bootstrap: int | None,
) -> tuple[Propensities | None, Estimation | None]:
    """The propensities, and how they were estimated."""
    if propensities is None:
        return None, None
    values = as_propensities(log, propensities)
    estimation = values.estimation
    if propensities_known:
        return values.as_known(), estimation and estimation.as_known(TAKEN_AS_KNOWN)
    if isinstance(estimation, TakenAsKnown):
        return values, estimation
    if bootstrap is not None and estimation is not None:
        raise UsageError(
            f"a bootstrap that does not fit {estimation.model} again leaves out the error "
            "of the propensities.",
            parameter="bootstrap",
            value=bootstrap,
            remedy="Leave `bootstrap` out: the standard intervals include this error. Or pass "
            "`propensities_known=True`.",
        )
    return values, estimation


def _choose_seed(random_state: int | np.random.Generator | None) -> int:
    check_random_state("random_state", random_state)
    if isinstance(random_state, Integral):
        return int(random_state)
    return int(np.random.default_rng(random_state).integers(2**63))


def _observe_cells(
    log: Ratings,
    universe: Universe | None,
    propensities: Propensities | None,
    weight_transform: WeightTransform | None,
    resampling: Resampling | None,
) -> ObservedCells:
    n_users, n_items = log.n_users, log.n_items
    if universe is not None:
        n_users, n_items = universe.n_users, universe.n_items
    return ObservedCells(
        Clusters(log.user, n_users, resampling),
        Clusters(log.item, n_items, resampling),
        propensities,
        weight_transform,
        universe=universe,
    )


def _set_clusters(cells: ObservedCells, choice: ClusterChoice) -> ObservedCells:
    """The cells with the chosen clusters; a bootstrap draws users if cells are independent."""
    draws_users = choice.cluster is None and cells.users.resampling is not None
    return replace(cells, cluster="user" if draws_users else choice.cluster)


def _read_input(
    reader: Predictions,
    tested: TestedCells,
    universe: Universe | None,
    counts: CandidateCounts | None,
    metrics: Sequence[Metric],
) -> MetricInput:
    """What the metrics read of one model, computed once."""
    log, n_items = tested.log, None if universe is None else universe.n_items
    tops = [metric.top for metric in metrics if metric.ranks]
    positions = None
    if tops and n_items is not None:
        top = None if None in tops else max(top for top in tops if top is not None)
        positions = reader.positions(log, n_items=n_items, top=top, candidates=tested.candidates)
    return MetricInput(
        log.rating,
        log.item,
        log.rating,
        prediction=None if all(metric.ranks for metric in metrics) else reader.values(log),
        positions=positions,
        n_items=n_items,
        user=log.user,
        n_users=None if universe is None else universe.n_users,
        candidates=counts,
    )


def _compute_deltas(
    metric: Metric, inputs: Sequence[MetricInput], imputed: Imputed | None, log: Ratings
) -> Deltas:
    """The deltas of all models."""
    deltas = [metric(model_input) for model_input in inputs]
    value, base = np.stack([delta.value for delta in deltas]), deltas[0].base
    is_bad = ~np.isfinite(value)
    if is_bad.any():
        of_model = is_bad[int(is_bad.any(axis=1).argmax())]
        where = log.name_cell(int(of_model.argmax()))
        raise BadPredictionError(
            f"{metric.name} is not finite for {int(of_model.sum())} of {of_model.size} cells; "
            f"the first is {where}.",
            parameter="predictions",
            where=where,
            remedy="Check that the predictions are on the scale of the ratings.",
        )
    slots = [delta.slots for delta in deltas if delta.slots is not None]
    functions = tuple(delta.function for delta in deltas if delta.function is not None)
    return Deltas(
        value,
        base,
        deltas[0].is_mean_of_users,
        None if base is not None else imputed,
        np.stack(slots) if slots else None,
        metric_bounds(metric),
        UserFunctions(functions) if functions else None,
        deltas[0].is_root,
        max_relative_error(metric),
    )


def _has_mass(weight: Vector, n_cells: int | None) -> bool:
    """Whether the weights add up to the number of all cells, as those of strata do by design."""
    return n_cells is None or abs(float(weight.sum()) / n_cells - 1) < MASS_TOLERANCE


def _summarize_weights(
    cells: ObservedCells, estimators: Sequence[Estimator]
) -> WeightSummary | None:
    """The summary of the weights, with a warning if they are too uneven to trust."""
    if not any(estimator.is_weighted for estimator in estimators) or not cells.weight.any():
        return None
    n_cells = None
    if cells.universe is not None and cells.weight_transform is None:
        n_cells = cells.universe.n_cells
    is_balanced = isinstance(cells.estimation, Strata) and _has_mass(cells.weight, n_cells)
    summary = WeightSummary.of(cells.weight, n_cells=n_cells, is_balanced=is_balanced)
    if not summary.fits_universe:
        summary = replace(summary, shared_variance=find_shared_variance(cells))
    for warning in summary.warnings():
        warnings.warn(warning, stacklevel=3)
    return summary
