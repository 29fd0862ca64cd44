"""The deltas of an evaluation: what each metric gives to each observed cell of each model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

import numpy as np

from unskew.data.ratings import Ratings
from unskew.errors import BadPredictionError, UsageError
from unskew.estimators.multiple_robust import ModelSums
from unskew.estimators.observed import Deltas, Imputed, ObservedCells
from unskew.estimators.user_functions import UserFunctions
from unskew.evaluation.candidates import TestedCells
from unskew.evaluation.predictions import Predictions
from unskew.metrics.metric import (
    Delta,
    Metric,
    MetricInput,
    is_plug_in,
    max_relative_error,
    metric_bounds,
)
from unskew.tables import join_words
from unskew.types import Vector


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
    mean = users.size / max(np.unique(users).size, 1)
    yield (
        f"{join_words(names)} by weights {'is' if len(names) == 1 else 'are'} biased "
        f"while users have few observed relevant items; here {mean:.1f} per user who has some"
    )
