"""The deltas of an evaluation: what each metric gives to each observed cell of each model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from unskew.data.ratings import Ratings
from unskew.errors import BadPredictionError
from unskew.estimators.sums import Deltas, Imputed, ObservedCells
from unskew.estimators.user_functions import UserFunctions
from unskew.evaluation.candidates import TestedCells
from unskew.evaluation.predictions import Predictions
from unskew.metrics.metric import (
    Metric,
    MetricInput,
    is_plug_in,
    max_relative_error,
    metric_bounds,
)


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
        positions = predictions.positions(
            log, n_items=n_items, top=top, candidates=tested.candidates
        )
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
) -> dict[str, Deltas]:
    """By metric: the deltas of all models, one row for each."""
    return {
        metric.name: _stack_models(metric, inputs, imputed.get(metric.name), log)
        for metric in metrics
    }


def _stack_models(
    metric: Metric, inputs: Sequence[MetricInput], imputed: Imputed | None, log: Ratings
) -> Deltas:
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
        f"{' and '.join(names)} by weights {'is' if len(names) == 1 else 'are'} biased "
        f"while users have few observed relevant items; here {mean:.1f} per user who has some"
    )
