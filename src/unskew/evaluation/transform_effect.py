"""Whether a weight transform, rather than the data, decides a result."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from unskew.errors import PropensityWarning
from unskew.estimators import main_estimator
from unskew.estimators.estimate import Estimate, Interval
from unskew.evaluation.weight_changes import EvaluationInputs
from unskew.metrics import metric_label


@dataclass(frozen=True, slots=True)
class TransformEffect:
    """A value with a weight transform that lies outside its interval without the transform."""

    metric: str
    estimator: str
    first: str
    second: str | None
    """The value is ``first`` minus ``second``, or the risk of ``first``."""
    value: float
    """With the transform."""
    estimate: float
    """Without it, and its interval."""
    ci_low: float
    ci_high: float
    higher_is_better: bool

    @property
    def better(self) -> str | None:
        """The better model without the transform, if it is told apart."""
        if self.second is None or self.ci_low <= 0 <= self.ci_high:
            return None
        return self.first if (self.estimate > 0) == self.higher_is_better else self.second

    def to_record(self) -> dict[str, Any]:
        """All fields and the better model."""
        return asdict(self) | {"better": self.better}

    def to_warning(self) -> PropensityWarning:
        """The warning that the interval leaves out the bias of the transform."""
        label = f"{metric_label(self.metric)} by {self.estimator}"
        name = (
            f"the difference of {self.first!r} and {self.second!r} in {label}"
            if self.second is not None
            else f"{label} of {self.first!r}"
        )
        return PropensityWarning(
            f"the weight transform decides {name}: it is {self.value:.4g}, and without the "
            f"transform {self.estimate:.4g} [{self.ci_low:.4g}, {self.ci_high:.4g}]. Intervals "
            "leave this bias out.",
            parameter="weight_transform",
            remedy="Leave it out, or use one that changes the weights less.",
        )


def find_transform_effect(
    inputs: EvaluationInputs,
    estimates: Mapping[tuple[str, str], Estimate],
    metrics: Mapping[str, bool],
) -> TransformEffect | None:
    """The largest effect on the first metric, by the estimator of the headline.

    The first metric is computed once more without the transform. None if there is no transform, or
    if all its values lie within the intervals without it.
    """
    metric, deltas = next(iter(inputs.deltas.items()))
    name = main_estimator(list(inputs.estimators))
    estimator = inputs.estimators[name]
    if inputs.cells.n_transformed == 0 or not estimator.is_weighted:
        return None
    before = estimates[metric, name]
    after = estimator.estimate(deltas, replace(inputs.cells, weight_transform=None))
    effects = [
        (abs(value - interval.value) / interval.std_error, pair, value, interval)
        for pair, value, interval in _list_values(before, after, inputs.level)
        if not interval.low <= value <= interval.high and interval.std_error > 0
    ]
    if not effects:
        return None
    _, pair, value, interval = max(effects, key=lambda effect: effect[0])
    models = [inputs.models[index] for index in pair]
    second = models[1] if len(models) > 1 else None
    limits = interval.value, interval.low, interval.high
    return TransformEffect(metric, name, models[0], second, value, *limits, metrics[metric])


def _list_values(
    before: Estimate, after: Estimate, level: float
) -> Iterator[tuple[tuple[int, ...], float, Interval]]:
    """Each difference of two models, or the risk of a single one: before, and with its interval."""
    n_models = before.value.size
    if n_models == 1:
        yield (0,), float(before.value[0]), after.of(0, level=level)
    for second in range(n_models):
        for first in range(second):
            value = float(before.value[first] - before.value[second])
            yield (first, second), value, after.difference(first, second, level=level)
