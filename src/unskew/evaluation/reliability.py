"""Which estimates of a result cannot be trusted, and why; whether a weight transform decides it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from unskew.data.estimation import Estimation
from unskew.errors import PropensityWarning, UnskewWarning
from unskew.estimators import ESTIMATORS, main_estimator
from unskew.estimators.estimate import SHARE, Estimate, Interval
from unskew.evaluation.weight_changes import EvaluationInputs
from unskew.metrics import metric_label
from unskew.metrics.metric import find_list_length
from unskew.tables import count_noun, join_words

MIN_SLOTS = 10.0
"""Too few items of a list were rated if the effective number of observed slots is below this."""
MIN_DEGREES, MAX_SKEWNESS = 10.0, 0.3
"""Beyond these, intervals of adverse samples covered less than their level in simulations."""
MAX_NOISE, MAX_NAMED = 4.0, 3
"""Noise does not explain a value that is more than this many standard errors outside its range. A
warning names at most this many models."""
METRICS_OF_USERS = frozenset({"recall", "ndcg", "map", "mrr", "hit_rate", "auc", "pooled_auc"})
"""Metrics that no self-normalised estimator keeps within their range."""
PER_POSITIVE = (
    "A metric per positive, such as mrr_per_positive or recall_per_positive@10, stays within the "
    "range, but is not right either if the propensities are wrong."
)
IS_NO_USER_MEAN = (
    "A metric per positive, such as mrr_per_positive or recall_per_positive@10, is not a mean of "
    "ratios of users."
)
IN_RANGE = "'snips' stays within the range, but is not right either if the propensities are wrong."
LONG_LOG = 100
"""With fewer users, items or cells than this, few degrees of freedom are nothing special. On
shorter logs, results describe their problems and do not warn."""


@dataclass(frozen=True, slots=True)
class SlotCount:
    """How much of one model's list was observed."""

    model: str
    metric: str
    estimator: str
    n: int
    effective: float


@dataclass(frozen=True, slots=True, order=True)
class TailedEstimate:
    """An estimate that a few cells decide, ordered by how few they are."""

    degrees: float
    skewness: float
    metric: str
    estimator: str
    model: str

    @property
    def metric_and_estimator(self) -> tuple[str, str]:
        return self.metric, self.estimator


@dataclass(frozen=True, slots=True, eq=False)
class Reliability:
    """The estimates of a result, checked one by one."""

    models: Sequence[str]
    estimates: Mapping[tuple[str, str], Estimate]
    """By (metric, estimator)."""
    level: float
    n_observed: int
    n_items: int | None = None
    """Items that could be recommended; None if unknown."""
    estimation: Estimation | None = None
    """How the propensities were estimated; None if they are taken as known."""

    def count_slots(self) -> Iterator[SlotCount]:
        """The observed slots behind each estimate that is normalised by slots."""
        for (metric, estimator), estimate in self.estimates.items():
            if estimate.slots is not None:
                sizes = zip(estimate.slots.count, estimate.slots.effective, strict=True)
                for model, (n, effective) in zip(self.models, sizes, strict=True):
                    yield SlotCount(model, metric, estimator, int(n), float(effective))

    def find_unusable(self) -> Iterator[tuple[str, str]]:
        """Pairs of metric and estimator with a value outside the range, or without an interval."""
        for name, estimate in self.estimates.items():
            intervals = [estimate.of(model, level=self.level) for model in range(len(self.models))]
            if estimate.is_outside.any() or any(math.isnan(each.low) for each in intervals):
                yield name

    def problems(self) -> Iterator[UnskewWarning]:
        """Everything that a reader of the result must know."""
        yield from self.warnings()
        yield from self.doubtful_intervals()

    def explain_unusable(self, models: Sequence[int]) -> Iterator[UnskewWarning]:
        """Why estimates of these models cannot be used: outside the range, or no interval."""
        for label, metric, estimate in self._group_estimates():
            yield from self._check_range(label, metric, estimate, models)
        yield from self.missing_intervals()

    def warnings(self) -> Iterator[UnskewWarning]:
        """Problems of estimates that look like any other."""
        for label, metric, estimate in self._group_estimates():
            yield from self._check_range(label, metric, estimate, range(len(self.models)))
            yield from self._check_slots(label, estimate)
        yield from self._check_lists()
        yield from self._check_tails()

    def doubtful_intervals(self) -> Iterator[UnskewWarning]:
        """Why estimates have no interval, or one that may miss the truth."""
        yield from self.missing_intervals()
        yield from self._check_estimation_bias()

    def missing_intervals(self) -> Iterator[UnskewWarning]:
        """Why estimates have no interval."""
        for label, metric, estimate in self._group_estimates():
            yield from self._check_bias(label, metric, estimate)
            yield from self._check_noise(label, estimate)
        yield from self._explain_imputation()

    def _group_estimates(self) -> Iterator[tuple[str, str, Estimate]]:
        """The label, metric and estimate of each estimator; those with the same numbers as one."""
        groups: dict[tuple[str, bytes, bytes, bool], tuple[Estimate, list[str]]] = {}
        for (metric, estimator), estimate in self.estimates.items():
            numbers = estimate.value.tobytes(), estimate.covariance.tobytes()
            key = metric, *numbers, estimate.slots is None
            groups.setdefault(key, (estimate, []))[1].append(_label(estimator))
        for key, (estimate, labels) in groups.items():
            yield f"{metric_label(key[0])} by {join_words(labels)}", key[0], estimate

    def _check_range(
        self, label: str, metric: str, estimate: Estimate, models: Sequence[int]
    ) -> Iterator[UnskewWarning]:
        outside = [model for model in models if estimate.is_outside[model]]
        if estimate.bounds is None or not outside:
            return
        low, high = estimate.bounds
        values = [f"{estimate.value[model]:.4g} for {self.models[model]!r}" for model in outside]
        others = len(values) - MAX_NAMED
        named = values[:MAX_NAMED] + ([f"{others} more"] if others > 0 else [])
        cause = "this estimator is too noisy here, or the propensities or the universe are wrong."
        if max(_count_errors_outside(estimate, model) for model in outside) > MAX_NOISE:
            cause = (
                "noise does not explain this. The propensities or the universe are wrong. For "
                "example, people may rate what they like, so that recommended items are logged "
                "more often."
            )
        yield PropensityWarning(
            f"{label} is {join_words(named)}, outside its range of {low:g} to {high:g}: {cause}",
            remedy=PER_POSITIVE if metric.partition("@")[0] in METRICS_OF_USERS else IN_RANGE,
        )

    def _check_slots(self, label: str, estimate: Estimate) -> Iterator[UnskewWarning]:
        if estimate.slots is None or not (estimate.slots.effective < MIN_SLOTS).any():
            return
        model = int(estimate.slots.effective.argmin())
        yield PropensityWarning(
            f"few items that {self.models[model]!r} recommends were rated: {label} rests on "
            f"{count_noun(float(estimate.slots.count[model]), 'observed slot')}, with an effective "
            f"sample size of {estimate.slots.effective[model]:.1f}.",
            remedy="Use more positions, or collect ratings of what this model recommends.",
        )

    def _check_estimation_bias(self) -> Iterator[UnskewWarning]:
        """A warning of the largest bias of fitted propensities above one standard error."""
        biases = []
        for (metric, estimator), estimate in self.estimates.items():
            for model, name in enumerate(self.models if estimate.bias is not None else ()):
                bias = float(estimate.bias[model])  # type: ignore[index]
                std_error = estimate.of(model, level=self.level).std_error
                if abs(bias) > std_error > 0:
                    label = f"{_name_estimate(metric, estimator)} of {name!r}"
                    biases.append((abs(bias) / std_error, bias, label))
        if not biases or self.estimation is None:
            return
        ratio, bias, label = max(biases)
        n_others = count_noun(len(biases) - 1, "other estimate")
        others = f" (and {n_others} by more than one)" if len(biases) > 1 else ""
        yield PropensityWarning(
            f"the {self.estimation.bias_source} of the propensity model changes {label} by "
            f"{bias:+.2g}, {ratio:.1f} standard errors{others}. This is subtracted, but only "
            "approximately: the interval may miss the truth.",
            remedy=self.estimation.bias_remedy,
        )

    def _check_lists(self) -> Iterator[UnskewWarning]:
        """Metrics of lists that hold every item, or no relevant one."""
        for metric in dict.fromkeys(metric for metric, _ in self.estimates):
            label, top = metric_label(metric), find_list_length(metric)
            if top is not None and self.n_items is not None and top > self.n_items:
                yield UnskewWarning(
                    f"{label} is about the first {top:,} items, but there are only "
                    f"{self.n_items:,}: every item is recommended.",
                    parameter="metrics",
                    value=metric,
                    remedy="Use a smaller k.",
                )
            parts = [part for (name, _), part in self.estimates.items() if name == metric]
            if (
                top is not None
                and all(part.bounds == SHARE for part in parts)
                and not any(part.value.any() for part in parts)
            ):
                yield UnskewWarning(
                    f"{label} is 0 for every model: no recommended item has a relevant rating in "
                    "this log.",
                    parameter="relevance_threshold",
                    remedy="Check that `relevance_threshold` is within the range of the ratings.",
                )
            with_slots = [part for part in parts if part.slots is not None]
            if with_slots and all((part.value == 1.0).all() for part in with_slots):
                yield UnskewWarning(
                    f"{label} is 1 for every model: all observed items of the lists are relevant. "
                    "In a log that has only clicks it cannot be otherwise.",
                    parameter="metrics",
                    value=metric,
                    remedy="Use a metric per positive, such as recall_per_positive@10, or a log "
                    "that also has what was not relevant.",
                )

    def _check_bias(self, label: str, metric: str, estimate: Estimate) -> Iterator[UnskewWarning]:
        """Name the models without interval: a mean of ratios whose bias is not small."""
        if estimate.ratio_bias is None:
            return
        biased = [
            model
            for model in range(len(self.models))
            if math.isnan(estimate.of(model, level=self.level).std_error)
            and not estimate.is_too_noisy(model)
        ]
        if biased:
            is_of_users = metric.partition("@")[0] in METRICS_OF_USERS
            bias = estimate.find_ratio_bias(biased[0])
            size = "is unknown" if math.isnan(bias) else f"is about {bias:+.2g}"
            more = f" and {count_noun(len(biased) - 1, 'more model')}" if biased[1:] else ""
            yield UnskewWarning(
                f"{label} has no interval for {self.models[biased[0]]!r}{more}: a mean of ratios "
                f"of few cells is biased. The bias{' of the first' if more else ''} {size}, its "
                f"standard error {estimate.plain_std_error(biased[0]):.2g}.",
                remedy=IS_NO_USER_MEAN if is_of_users else "Use 'snips'.",
            )

    def _check_noise(self, label: str, estimate: Estimate) -> Iterator[UnskewWarning]:
        noisy = [model for model in range(len(self.models)) if estimate.is_too_noisy(model)]
        if noisy:
            reason = "is outside its range"
            if not estimate.is_outside[noisy[0]]:
                reason = (
                    f"its standard error {estimate.plain_std_error(noisy[0]):.2g} exceeds "
                    f"{estimate.max_relative_error:.0%} of its value, so that the error itself "
                    "cannot be trusted"
                )
            yield UnskewWarning(
                f"{label} has no interval for {self.models[noisy[0]]!r}: it rests on products of "
                f"weights, and {reason}.",
                remedy=PER_POSITIVE,
            )

    def _explain_imputation(self) -> Iterator[UnskewWarning]:
        """Why imputing estimators have no interval; one sentence for all with the same reason."""
        estimators: dict[str, dict[str, None]] = {}
        for (_, estimator), estimate in self.estimates.items():
            if estimate.no_interval is not None:
                estimators.setdefault(estimate.no_interval, {})[_label(estimator)] = None
        for reason, labels in estimators.items():
            verb = "has" if len(labels) == 1 else "have"
            yield UnskewWarning(f"{join_words(list(labels))} {verb} no interval: {reason}.")

    def find_few_cells(self) -> Iterator[tuple[str, str]]:
        """Pairs of metric and estimator with an estimate that few cells decide."""
        yield from dict.fromkeys(each.metric_and_estimator for each in self._find_tails())

    def _find_tails(self) -> Iterator[TailedEstimate]:
        """Estimates with few degrees of freedom or a large skewness."""
        for (metric, estimator), estimate in self.estimates.items():
            n_units = estimate.n_clusters or self.n_observed
            has_tails = not (estimate.slots is not None and estimate.bounds == SHARE)
            if estimate.no_interval is not None:
                continue
            if estimate.moments is None or n_units < LONG_LOG or not has_tails:
                continue
            for model, name in enumerate(self.models):
                _, degrees, skewness = estimate.moments.of_contrast(model, None)
                if degrees < MIN_DEGREES or abs(skewness) > MAX_SKEWNESS:
                    yield TailedEstimate(degrees, abs(skewness), metric, estimator, name)

    def _check_tails(self) -> Iterator[UnskewWarning]:
        """A warning of the estimate with the fewest degrees of freedom or else most skewness."""
        doubtful = list(self._find_tails())
        if not doubtful:
            return
        first = min(doubtful)
        remedy = (
            "Collect more ratings where propensities are small. Clipping the weights narrows the "
            "interval, but removes a part of the correction."
        )
        n_others = count_noun(len(doubtful) - 1, "other estimate")
        others = f", and {n_others}" if len(doubtful) > 1 else ""
        label = _name_estimate(first.metric, first.estimator)
        yield PropensityWarning(
            f"few cells decide {label} of {first.model!r} ({first.degrees:.1f} degrees of freedom, "
            f"skewness {first.skewness:.2f}){others}: the cells that matter may not have been "
            "seen, and the interval may be too narrow.",
            remedy=remedy if _is_weighted(first.estimator) else "Collect more ratings.",
        )


def _count_errors_outside(estimate: Estimate, model: int) -> float:
    """How many standard errors a value is outside its range; 0 without a standard error."""
    low, high = estimate.bounds or (-math.inf, math.inf)
    value, std_error = float(estimate.value[model]), estimate.plain_std_error(model)
    return max(low - value, value - high) / std_error if std_error > 0 else 0.0


def _name_estimate(metric: str, estimator: str) -> str:
    return f"{metric_label(metric)} by {_label(estimator)}"


def _is_weighted(estimator: str) -> bool:
    return estimator not in ESTIMATORS or bool(ESTIMATORS[estimator].target.is_weighted)


def _label(estimator: str) -> str:
    return ESTIMATORS[estimator].label if estimator in ESTIMATORS else estimator


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
    if inputs.cells.n_transformed == 0:
        return None
    metric, deltas = next(iter(inputs.deltas.items()))
    name = main_estimator(list(inputs.estimators))
    estimator = inputs.estimators[name]
    if not estimator.is_weighted:
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
