"""Which estimates of a result cannot be trusted, and why."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from unskew.errors import PropensityWarning, UnskewWarning
from unskew.estimators import ESTIMATORS
from unskew.estimators.estimate import SHARE, Estimate
from unskew.metrics import metric_label
from unskew.tables import count_noun

MIN_SLOTS = 10.0
"""A list was hardly seen if the effective number of its observed slots is below this."""
MIN_DEGREES, MAX_SKEWNESS = 10.0, 0.3
"""Beyond these, intervals of adverse samples covered less than their level in simulations."""
METRICS_OF_USERS = frozenset({"ndcg", "map", "mrr", "hit_rate", "auc", "pooled_auc"})
"""Metrics that no self-normalised estimator keeps within their range."""
PER_POSITIVE = (
    "Use a metric per positive, such as mrr_per_positive or recall_per_positive@10, which stays "
    "within the range."
)
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


@dataclass(frozen=True, slots=True, eq=False)
class Reliability:
    """The estimates of a result, checked one by one."""

    models: Sequence[str]
    estimates: Mapping[tuple[str, str], Estimate]
    """By (metric, estimator)."""
    level: float
    n_observed: int

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
        yield from self.missing_intervals()

    def warnings(self) -> Iterator[UnskewWarning]:
        """Problems of estimates that look like any other."""
        for (metric, estimator), estimate in self.estimates.items():
            label = _name_estimate(metric, estimator)
            yield from self._check_range(label, metric, estimate)
            yield from self._check_slots(label, estimate)
        yield from self._check_tails()

    def missing_intervals(self) -> Iterator[UnskewWarning]:
        """Why estimates have no interval."""
        for (metric, estimator), estimate in self.estimates.items():
            label = _name_estimate(metric, estimator)
            yield from self._check_bias(label, metric, estimate)
            yield from self._check_noise(label, estimate)

    def _check_range(self, label: str, metric: str, estimate: Estimate) -> Iterator[UnskewWarning]:
        if estimate.bounds is None or not estimate.is_outside.any():
            return
        model = int(estimate.is_outside.argmax())
        low, high = estimate.bounds
        yield PropensityWarning(
            f"{label} is {estimate.value[model]:.3g} for {self.models[model]!r}, outside its range "
            f"of {low:g} to {high:g}: this estimator is too noisy here, or the propensities or "
            "the universe are wrong.",
            remedy=PER_POSITIVE
            if metric.partition("@")[0] in METRICS_OF_USERS
            else "Use 'snips', which stays within the range.",
        )

    def _check_slots(self, label: str, estimate: Estimate) -> Iterator[UnskewWarning]:
        if estimate.slots is None or not (estimate.slots.effective < MIN_SLOTS).any():
            return
        model = int(estimate.slots.effective.argmin())
        yield PropensityWarning(
            f"the list of {self.models[model]!r} was hardly seen: {label} rests on "
            f"{count_noun(float(estimate.slots.count[model]), 'observed slot')}, with an effective "
            f"sample size of {estimate.slots.effective[model]:.1f}.",
            remedy="Use more positions, or collect ratings of what this model recommends.",
        )

    def _check_bias(self, label: str, metric: str, estimate: Estimate) -> Iterator[UnskewWarning]:
        if estimate.ratio_bias is None:
            return
        is_of_users = metric.partition("@")[0] in METRICS_OF_USERS
        for model, name in enumerate(self.models):
            is_unknown = math.isnan(estimate.of(model, level=self.level).std_error)
            if is_unknown and not estimate.is_too_noisy(model):
                bias, std_error = estimate.find_ratio_bias(model), estimate.plain_std_error(model)
                size = "is unknown" if math.isnan(bias) else f"is about {bias:+.2g}"
                yield UnskewWarning(
                    f"{label} has no interval for {name!r}: a mean of ratios of few cells "
                    f"is biased. Its bias {size}, its standard error {std_error:.2g}.",
                    remedy=PER_POSITIVE if is_of_users else "Use 'snips'.",
                )
                return

    def _check_noise(self, label: str, estimate: Estimate) -> Iterator[UnskewWarning]:
        noisy = [model for model in range(len(self.models)) if estimate.is_too_noisy(model)]
        if noisy:
            yield UnskewWarning(
                f"{label} has no interval for {self.models[noisy[0]]!r}: it rests on products of "
                f"weights, and its standard error {estimate.plain_std_error(noisy[0]):.2g} "
                f"exceeds {estimate.max_relative_error:.0%} of its value, so that the error itself "
                "cannot be trusted.",
                remedy=PER_POSITIVE,
            )

    def _check_tails(self) -> Iterator[UnskewWarning]:
        """The estimate with the fewest degrees of freedom, or else with the largest skewness."""
        doubtful = []
        for (metric, estimator), estimate in self.estimates.items():
            n_units = estimate.n_clusters or self.n_observed
            has_tails = not (estimate.slots is not None and estimate.bounds == SHARE)
            if estimate.moments is None or n_units < LONG_LOG or not has_tails:
                continue
            for model, name in enumerate(self.models):
                _, degrees, skewness = estimate.moments.of_contrast(model, None)
                if degrees < MIN_DEGREES or abs(skewness) > MAX_SKEWNESS:
                    label = _name_estimate(metric, estimator)
                    doubtful.append((degrees, abs(skewness), label, name))
        if not doubtful:
            return
        degrees, skewness, label, name = min(doubtful)
        others = f", and {len(doubtful) - 1} more like it" if len(doubtful) > 1 else ""
        yield PropensityWarning(
            f"few cells decide {label} of {name!r} ({degrees:.1f} degrees of freedom, skewness "
            f"{skewness:.2f}){others}: the cells that matter may not have been seen, and the "
            "interval may be too narrow.",
            remedy="Collect more ratings where propensities are small, or clip the weights.",
        )


def _name_estimate(metric: str, estimator: str) -> str:
    label = ESTIMATORS[estimator].label if estimator in ESTIMATORS else estimator
    return f"{metric_label(metric)} by {label}"
