"""The result of :func:`unskew.evaluate`: risks with intervals, and comparisons of models."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from itertools import combinations
from pathlib import Path
from textwrap import fill
from typing import Any, ClassVar

import numpy as np

from unskew.data.estimation import (
    Estimation,
    Strata,
    TakenAsKnown,
    describe_assumption,
    describe_condition,
)
from unskew.data.result import DrawableResult, Result
from unskew.data.universe import Universe
from unskew.errors import PropensityWarning, UnskewWarning, UsageError, warn_caller
from unskew.estimators import ESTIMATORS, main_estimator
from unskew.estimators.estimate import Estimate
from unskew.estimators.weight_checks import WeightSummary
from unskew.evaluation.cells import ClusterChoice
from unskew.evaluation.pairs import PairwiseComparison, adjust_pairs, describe_caution
from unskew.evaluation.reliability import LONG_LOG, Reliability, SlotCount, TransformEffect
from unskew.evaluation.training_overlap import TrainingOverlap
from unskew.evaluation.weight_changes import (
    EvaluationInputs,
    LeadRobustness,
    describe_distributions,
    find_robustness,
)
from unskew.settings import Flag, require_name
from unskew.tables import UNDECIDED, count_noun, format_p_value, join_words

COLUMNS = (
    "model",
    "metric",
    "estimator",
    "estimate",
    "std_error",
    "ci_low",
    "ci_high",
    "degrees",
)
FOOTER_WIDTH = 100
EVEN_WEIGHTS, ALIKE = 0.98, 0.05
"""Weights correct almost nothing if the effective sample size is at least this share of the log, or
if a random sample differs from the log by a p-value of more than the second number."""
UNEXPLAINED = 2.0
"""From this ratio of variances on, the propensities leave out much of how items are selected."""
SMALL_BIAS = 0.25
"""A bias below this share of the standard error is not mentioned."""


@dataclass(frozen=True, slots=True)
class Risk:
    """One model's value of one metric by one estimator."""

    model: str
    metric: str
    estimator: str
    estimate: float
    std_error: float
    ci_low: float
    ci_high: float
    std_error_known: float | None = None
    """The standard error if the estimated propensities were known; None if they are."""
    degrees: float = math.inf
    """Degrees of freedom of the standard error; infinite if the interval is a normal one."""


@dataclass(frozen=True, slots=True)
class Premise:
    """What estimates that use propensities rest on."""

    condition: str
    """What must hold, such as ``if the propensities are right``."""
    sees_ratings: bool
    """Whether the propensities can depend on ratings."""
    adjusts_for: str | None
    """What else they depend on, in words; None if they are taken as known."""
    doubt: str | None
    """What shows that they do not fit the log; None if nothing does."""

    def describe_caution(self, consequence: str) -> str:
        """Why an order by these estimates may be wrong, in words; empty without a reason."""
        if self.doubt is not None:
            return f"not reliable, a check failed: {self.doubt}"
        if self.sees_ratings:
            return ""
        scope = f"adjusted for {self.adjusts_for} only" if self.adjusts_for else "not adjusted"
        return f"{scope}: if people rate what they like, {consequence}"


@dataclass(frozen=True, slots=True, repr=False)
class Comparison(DrawableResult):
    """The risk of one model minus that of another, paired cell by cell."""

    kind: ClassVar[str] = "comparison"
    first: str
    second: str
    metric: str
    estimator: str
    difference: float
    std_error: float
    ci_low: float
    ci_high: float
    p_value: float
    level: float
    higher_is_better: bool
    warnings: tuple[str, ...] = ()
    """Why the two estimates cannot be used, such as values outside the range of the metric."""
    premise: Premise | None = None
    """What a weighted estimator rests on; None for one without weights."""

    @property
    def better(self) -> str | None:
        """The better model, or None if the interval includes zero."""
        if not (self.ci_low > 0 or self.ci_high < 0):
            return None
        return self.first if (self.difference > 0) == self.higher_is_better else self.second

    def __str__(self) -> str:
        if math.isnan(self.ci_low) or math.isnan(self.ci_high):
            return (
                f"{self.first} minus {self.second} on {self.metric} by {self.estimator}: "
                f"difference {self.difference:+.4g}, without an interval{self._list_warnings()}"
            )
        verdict, consequence = "cannot be told apart from", "either can be better"
        if self.better is not None:
            verdict = "beats" if self.better == self.first else "loses to"
            consequence = "the order can also be the other way round"
        caution = describe_caution(self.estimator, self.premise, consequence)
        if caution and self.better is not None:
            verdict = "is ahead of" if self.better == self.first else "is behind"
        statement = (
            f"{self.first} {verdict} {self.second} on {self.metric} by {self.estimator}: "
            f"difference {self.difference:+.4g} [{self.ci_low:+.4g}, {self.ci_high:+.4g}] "
            f"at {self.level:.0%}, {format_p_value(self.p_value)}"
        )
        parts = [statement, caution] if caution else [statement]
        if self.better is not None and self.premise is not None and self.premise.doubt is not None:
            parts.reverse()  # what withdraws an order comes before it
        return "; ".join(parts) + self._list_warnings()

    def _shown_columns(self) -> dict[str, list[Any]]:
        shown = self.to_columns() | {"better": [self.better or UNDECIDED]}
        return {name: shown[name] for name in shown if name not in ("level", "higher_is_better")}

    def _headline(self) -> str:
        return str(self).removesuffix(self._list_warnings())

    def _footer(self) -> tuple[str, ...]:
        return self.warnings

    def to_columns(self) -> dict[str, list[Any]]:
        """The numbers and the better model, as a table of one row."""
        record = self.to_record()
        del record["warnings"], record["premise"]
        return {name: [value] for name, value in record.items()}

    def to_record(self) -> dict[str, Any]:
        """All fields and the better model."""
        return asdict(self) | {"better": self.better}

    def _list_warnings(self) -> str:
        return "".join(f"\n{text}" for text in self.warnings)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Evaluation(Result):
    """Risks of several models by several metrics and estimators, from one log."""

    kind: ClassVar[str] = "evaluation"
    models: tuple[str, ...]
    metrics: Mapping[str, bool]
    """By name: whether higher is better."""
    estimators: tuple[str, ...]
    estimates: Mapping[tuple[str, str], Estimate]
    """By (metric, estimator)."""
    level: float
    n_observed: int
    intervals: str
    """How the intervals were computed, in words."""
    universe: Universe | None = None
    weight_summary: WeightSummary | None = None
    """How uneven the weights are; None if no estimator uses weights."""
    n_transformed: int = 0
    """The number of weights that the weight transform changed."""
    backend: str | None = None
    estimation: Estimation | None = None
    """How the propensities were estimated; None if they are taken as known."""
    inputs: EvaluationInputs | None = None
    """What the estimates were computed from, for :func:`unskew.sensitivity`; None if not kept."""
    n_dropped: int = 0
    """Rows that were dropped because of a bad value, if the caller allowed it."""
    clusters: ClusterChoice | None = None
    """Which clusters the intervals use, and why."""
    cluster_warning: UnskewWarning | None = None
    """What is wrong with these clusters; None if nothing is."""
    transform_effect: TransformEffect | None = None
    """What the weight transform decides; None if nothing, or if it was not computed."""
    notes: tuple[str, ...] = ()
    """What the estimates take for granted, in words."""
    relevance_threshold: float | None = None
    """The least relevant rating, if the caller said so."""
    training_overlap: TrainingOverlap | None = None
    """Models that were fitted to tested cells; None if no model was looked at."""

    def __iter__(self) -> Iterator[Risk]:
        for metric in self.metrics:
            for model in self.models:
                for estimator in self.estimators:
                    yield self.risk(model, metric=metric, estimator=estimator)

    def risk(self, model: str, *, metric: str, estimator: str) -> Risk:
        """The estimate of one model, with its interval."""
        estimate, index = self._find_estimate(metric, estimator), self._find_model(model)
        interval = estimate.of(index, level=self.level)
        limits = interval.value, interval.std_error, interval.low, interval.high
        std_error_known = estimate.known_std_error(index)
        return Risk(model, metric, estimator, *limits, std_error_known, interval.degrees)

    def compare(
        self, first: str, second: str, *, metric: str | None = None, estimator: str | None = None
    ) -> Comparison:
        """``first`` minus ``second``, paired.

        By default on the first metric and by the estimator of the headline, such as SNIPS. The
        interval is usually narrower than the separate intervals of the two models suggest.
        """
        metric, estimator = self._choose(metric, estimator)
        estimate = self._find_estimate(metric, estimator)
        pair = self._find_model(first), self._find_model(second)
        interval = estimate.difference(*pair, level=self.level)
        reliability = Reliability(
            self.models, {(metric, estimator): estimate}, self.level, self.n_observed
        )
        return Comparison(
            first,
            second,
            metric,
            estimator,
            interval.value,
            interval.std_error,
            interval.low,
            interval.high,
            interval.p_value,
            self.level,
            self.metrics[metric],
            tuple(map(str, reliability.explain_unusable(pair))),
            self._find_premise(estimator),
        )

    def _find_premise(self, estimator: str) -> Premise | None:
        is_weighted = estimator not in ESTIMATORS or ESTIMATORS[estimator].target.is_weighted
        if self.weight_summary is None or not is_weighted:
            return None
        return Premise(
            describe_condition(self.estimation),
            self.estimation is None or self.estimation.sees_ratings,
            None if self.estimation is None else self.estimation.adjusts_for,
            self.doubt,
        )

    @property
    def doubt(self) -> str | None:
        """What shows that the propensities do not fit the log; None if nothing does."""
        if not self._fits_universe:
            return "the propensities do not fit this log"
        return self._describe_unexplained()

    def compare_all(
        self, *, metric: str | None = None, estimator: str | None = None
    ) -> PairwiseComparison:
        """All pairs of models, with p-values adjusted for their number by Holm's method."""
        metric, estimator = self._choose(metric, estimator)
        if len(self.models) < 2:
            raise UsageError(
                "there is only one model, and nothing to compare it with.",
                parameter="predictions",
                remedy="Evaluate several models at once.",
            )
        values = self._find_estimate(metric, estimator).value
        ranked = np.argsort(-values if self.metrics[metric] else values, kind="stable")
        models = [self.models[index] for index in ranked]
        comparisons = [
            self.compare(*pair, metric=metric, estimator=estimator)
            for pair in combinations(models, 2)
        ]
        return adjust_pairs(comparisons, models, self.backend)

    def _choose(self, metric: str | None, estimator: str | None) -> tuple[str, str]:
        """The metric and estimator asked for, else the first metric and the main estimator."""
        if metric is None:
            metric = next(iter(self.metrics))
        return metric, main_estimator(self.estimators) if estimator is None else estimator

    def differences(self) -> Iterator[Comparison]:
        """By metric and estimator: the model with the best estimate against each other model."""
        for metric, higher_is_better in self.metrics.items():
            for estimator in self.estimators:
                values = self.estimates[metric, estimator].value
                best = self.models[int(values.argmax() if higher_is_better else values.argmin())]
                for model in self.models:
                    if model != best:
                        yield self.compare(best, model, metric=metric, estimator=estimator)

    def to_columns(self) -> dict[str, list[Any]]:
        """Model, metric, estimator, estimate, std_error, ci_low, ci_high, degrees."""
        rows = [asdict(risk) for risk in self]
        return {name: [row[name] for row in rows] for name in COLUMNS}

    def to_record(self) -> dict[str, Any]:
        """The table, how it was computed, and the histograms of its page."""
        universe, weights, texts = None, None, []
        if self.universe is not None:
            universe = [self.universe.n_users, self.universe.n_items]
        if self.weight_summary is not None:
            weights = asdict(self.weight_summary) | {
                "n_touched": self.n_transformed,
                "fits_universe": self.weight_summary.fits_universe,
                "mass_z": self.weight_summary.mass_z,
            }
            texts = self.weight_summary.warning_texts()
        record = {
            "level": self.level,
            "intervals": self.intervals,
            "clusters": None if self.clusters is None else self.clusters.sentence,
            "propensities": self.describe_propensities(with_effect=False),
            "propensity_effect": self._describe_effect(),
            "assumption": self.assumption,
            "condition": "" if self.weight_summary is None else describe_condition(self.estimation),
            "sees_ratings": self.estimation is None or self.estimation.sees_ratings,
            "adjusts_for": None if self.estimation is None else self.estimation.adjusts_for,
            "n_random": self._count_random_ratings(),
            "item_check": self._describe_item_check(),
            "no_correction": self._explain_no_correction(),
            "unexplained": self._describe_unexplained(),
            "transform_effect": self.transform_effect and self.transform_effect.to_record(),
            "n_observed": self.n_observed,
            "universe": universe,
            "weights": weights,
            "rows": [asdict(risk) for risk in self],
            "models": list(self.models),
            "metrics": dict(self.metrics),
            "estimators": list(self.estimators),
            "differences": [each.to_record() for each in self.differences()],
            "slots": [asdict(count) for count in self.reliability.count_slots()],
            "unusable": [list(name) for name in self.reliability.find_unusable()],
            "few_cells": [list(name) for name in self.reliability.find_few_cells()],
            "warnings": [
                *texts,
                *map(str, self.problems()),
                *(f"{text}." for text in self._describe_left_out()),
            ],
        } | describe_distributions(self.inputs)
        record |= self._describe_robustness()
        record |= {"notes": list(self.notes)} if self.notes else {}
        if self.relevance_threshold is not None:
            record |= {"relevance_threshold": self.relevance_threshold}
        return record | ({"n_dropped": self.n_dropped} if self.n_dropped else {})

    def to_html(self, path: str | Path) -> Path:
        """Write the result as one self-contained HTML file; returns its path."""
        if self._is_early():
            raise UsageError(
                f"there is no page of an evaluation without limits ({self.intervals}).",
                remedy="Evaluate again when the log is longer.",
            )
        return Result.to_html(self, path)

    def _headline(self) -> str:
        return "" if self._is_early() else Result._headline(self)

    def _is_early(self) -> bool:
        return any(
            each.clock is not None and each.clock.is_early for each in self.estimates.values()
        )

    def plot(self, ax: Any = None) -> Any:
        """Every usable estimate with its interval, one panel for each metric that has some.

        Returns a new matplotlib figure, or None if ``ax``, one axes for each panel, is given.
        """
        return self._draw(ax)

    @property
    def reliability(self) -> Reliability:
        """Which estimates cannot be trusted."""
        n_items = None if self.universe is None else self.universe.n_items
        return Reliability(
            self.models, self.estimates, self.level, self.n_observed, n_items, self.estimation
        )

    def warn(self) -> None:
        """Warn about models that know the test, and, unless the log is short, about estimates
        that cannot be trusted.
        """
        for problem in self._check_training():
            warn_caller(problem)
        if self.n_observed >= LONG_LOG:
            for problem in (*self.reliability.warnings(), *self._list_other_warnings()):
                warn_caller(problem)

    def problems(self) -> Iterator[UnskewWarning]:
        """Everything that a reader of the estimates must know."""
        yield from self._check_training()
        yield from self.reliability.problems()
        yield from self._list_other_warnings()
        yield from self._check_popularity()
        yield from self._check_capped()

    def _check_training(self) -> Iterator[UnskewWarning]:
        """Models that were fitted to tested cells."""
        if self.training_overlap is not None:
            yield from self.training_overlap.warnings()

    def _check_popularity(self) -> Iterator[UnskewWarning]:
        """Item totals that vary more than the propensities explain."""
        dispersion = None if self.clusters is None else self.clusters.dispersion
        estimation = self.estimation
        if dispersion is None or self.n_observed < LONG_LOG or not self._fits_universe:
            return
        if isinstance(estimation, Strata) and estimation.kind == "rating":
            yield PropensityWarning(
                f"{dispersion.describe()}. Propensities of {estimation.model} depend on the rating "
                f"alone, and leave out that some {dispersion.unit}s are logged more often than "
                "others. This speaks against the assumption that selection depends on the rating "
                "alone. It does not say how much this changes the estimates."
            )
        elif dispersion.ratio >= UNEXPLAINED:
            yield PropensityWarning(
                f"{dispersion.describe()}: they leave out something that decides which "
                f"{dispersion.unit}s are logged. Intervals include this, but if it has to do with "
                "the errors of the models, the estimates are biased."
            )

    @property
    def _fits_universe(self) -> bool:
        """Whether the weights add up; if not, totals of items show nothing else."""
        return self.weight_summary is None or self.weight_summary.fits_universe

    def _describe_item_check(self) -> dict[str, Any] | None:
        """Whether item totals fit the propensities, and the words; None if that was not tested."""
        problem = next(self._check_popularity(), None)
        if problem is not None:
            return {"passed": False, "text": str(problem)}
        clusters, estimation = self.clusters, self.estimation
        if clusters is None or not clusters.is_checked or clusters.dispersion is not None:
            return None
        if estimation is not None and "items" in estimation.adjusts_for:
            return None
        text = (
            "item totals vary hardly more than the propensities explain. This does not show that "
            "they are right"
        )
        return {"passed": True, "text": text}

    def _count_random_ratings(self) -> int | None:
        """How many random ratings the propensities were fitted with; None if with none."""
        estimation = self.estimation
        if not isinstance(estimation, Strata) or estimation.sample is None:
            return None
        return int(estimation.sample.size)

    def _describe_unexplained(self) -> str | None:
        """What the propensities leave out, if it is much; None if it is not."""
        dispersion = None if self.clusters is None else self.clusters.dispersion
        if dispersion is None or self.n_observed < LONG_LOG or dispersion.ratio < UNEXPLAINED:
            return None
        return dispersion.describe()

    def _check_capped(self) -> Iterator[UnskewWarning]:
        """Propensities that a small random sample put above 1."""
        estimation = self.estimation
        if not isinstance(estimation, Strata) or estimation.sample is None:
            return
        n_capped = int(((estimation.propensity >= 1) & (estimation.n_observed > 0)).sum())
        if n_capped:
            yield PropensityWarning(
                f"{estimation.model} would set the propensity of {n_capped} of "
                f"{estimation.propensity.size} ratings above 1: the log has more such ratings than "
                "the random sample says there are cells. The sample is too small, or not random, "
                "and intervals may miss the truth."
            )

    def _list_other_warnings(self) -> Iterator[UnskewWarning]:
        """Warnings of clusters and of the weight transform."""
        if self.cluster_warning is not None and self.n_observed >= LONG_LOG:
            yield self.cluster_warning
        if self.transform_effect is not None and self.n_observed >= LONG_LOG:
            yield self.transform_effect.to_warning()

    def _footer(self) -> list[str]:
        return [*map(str, self.problems()), self.describe()]

    def describe(self) -> str:
        """What the numbers were computed from, and what they rest on, in a few lines."""
        universe = "" if self.universe is None else f" of {self.universe}"
        notes = [f"{count_noun(self.n_observed, 'observed cell')}{universe}"]
        if self.weight_summary is not None:
            size = self.weight_summary.effective_sample_size
            notes.append(f"effective sample size {size:,.0f}")
        notes.append(f"{self.level:.0%} intervals, {self.intervals}")
        if self.n_transformed:
            notes.append(f"{count_noun(self.n_transformed, 'weight')} transformed")
        if self.n_dropped:
            notes.append(f"{count_noun(self.n_dropped, 'bad row')} dropped")
        facts = [*notes, *self.describe_gaps()]
        return "\n".join(["; ".join(facts), *wrap_footer(self.describe_conditions())])

    def describe_gaps(self) -> Iterator[str]:
        """How much of each list was observed, and how much has no data."""
        yield from self._describe_slots()
        yield from self._describe_left_out()

    def describe_conditions(self, *, with_effect: bool = True) -> list[str]:
        """What the estimates take for granted, as sentences.

        ``with_effect`` adds how much estimating the propensities changes the standard errors.
        """
        Flag()("with_effect", with_effect)
        clusters = self.clusters
        texts = [
            "" if clusters is None or clusters.is_expected else clusters.sentence,
            *self.notes,
            self.describe_propensities(with_effect=with_effect),
            self.assumption,
        ]
        return [text for text in texts if text]

    def problems_without_warning(self) -> Iterator[UnskewWarning]:
        """Problems that the printed result states and :meth:`warn` does not."""
        if self.n_observed < LONG_LOG:
            yield from self.reliability.problems()
        else:
            yield from self.reliability.doubtful_intervals()
            yield from self._check_popularity()
            yield from self._check_capped()

    def _find_robustness(self) -> LeadRobustness | None:
        """How wrong the propensities may be until the verdict on the first metric changes."""
        weighted = [name for name in ("snips", "ips") if name in self.estimators]
        if self.weight_summary is None or not weighted or not self.weight_summary.fits_universe:
            return None
        metric, higher_is_better = next(iter(self.metrics.items()))
        values = self.estimates[metric, weighted[0]].value
        best = self.models[int(values.argmax() if higher_is_better else values.argmin())]
        return find_robustness(self.inputs, best)

    def _describe_robustness(self) -> dict[str, Any]:
        """The robustness of the order in words, and the models whose order is fragile."""
        robustness = self._find_robustness()
        if robustness is None:
            return {"robustness": None, "fragile_pair": None, "flips_at": None}
        sees_ratings = self.estimation is None or self.estimation.sees_ratings
        sees_ratings = sees_ratings and self._explain_no_correction() is None
        text = robustness.describe(sees_ratings=sees_ratings)
        return {
            "robustness": text,
            "fragile_pair": list(robustness.pair) if robustness.is_fragile else None,
            "flips_at": robustness.flips_at if robustness.is_fragile else None,
        }

    def _explain_no_correction(self) -> str | None:
        """The reasons why weights that should correct change almost nothing; None if they do."""
        summary, estimation = self.weight_summary, self.estimation
        if summary is None or self.n_transformed:
            return None
        if estimation is not None and not estimation.sees_ratings:
            return None
        is_even = summary.sample_share >= EVEN_WEIGHTS
        if isinstance(estimation, Strata) and estimation.sample is not None:
            if not (is_even or estimation.sample_p_value > ALIKE):
                return None
            size = f"{estimation.sample.size:,}"
            few = "" if is_even else f"{size} random ratings are too few to show selection; "
            return (
                f"Possible reasons: the {size} ratings were not drawn at random from all cells; "
                f"selection depends on more than the rating; {few}people do not rate what they "
                "like here"
            )
        if not is_even:
            return None
        return (
            "Possible reasons: the propensities leave out why people rate; the log has ratings of "
            "almost random cells"
        )

    @property
    def assumption(self) -> str:
        """What must be true for the weights to be right; empty if no estimator uses weights."""
        if self.weight_summary is None:
            return ""
        fits_log = self.weight_summary.fits_universe and self._describe_unexplained() is None
        return describe_assumption(self.estimation, fits_log=fits_log)

    def describe_propensities(self, *, with_effect: bool = True) -> str:
        """Where the propensities come from, and what that means for the intervals."""
        Flag()("with_effect", with_effect)
        if self.weight_summary is None or self.estimation is None:
            return ""
        text = (
            f"propensities were estimated by {self.estimation.model} from {self.estimation.origin}"
        )
        if isinstance(self.estimation, TakenAsKnown) and not self.estimation.has_interval:
            return f"{text}; weighted estimates have no interval, because {self.estimation.reason}"
        if isinstance(self.estimation, TakenAsKnown):
            return (
                f"{text}; intervals leave out the error of this, because {self.estimation.reason}"
            )
        effect = self._describe_effect() if with_effect else ""
        effect = f", which {effect}" if effect else ""
        largest = max(
            (
                float(abs(each.bias).max())
                for each in self.estimates.values()
                if each.bias is not None
                and any(
                    abs(bias) > SMALL_BIAS * each.plain_std_error(model) > 0
                    for model, bias in enumerate(each.bias)
                )
            ),
            default=0.0,
        )
        bias = ""
        if largest:
            bias = (
                f"; the bias of its {self.estimation.bias_source}, up to {largest:.2g}, is "
                "subtracted from the estimates"
            )
        return (
            f"{text}; intervals include this{effect}, but not whether it is the right kind of "
            f"model{bias}"
        )

    def _describe_effect(self) -> str:
        """How much estimating the propensities widens intervals; empty if it does not.

        Propensities that are fitted to the log follow its chance variation and cancel a part of it.
        So errors can become smaller, and the propensities are not closer to the truth for that.
        """
        ratios = [
            risk.std_error / risk.std_error_known
            for risk in self
            if risk.std_error_known and risk.std_error > 0
        ]
        if not ratios:
            return ""
        low, high = f"{min(ratios):.2g}", f"{max(ratios):.2g}"
        if low == high == "1":
            return "hardly changes standard errors"
        if float(high) <= 1:
            return ""
        times = f"{low} to {high}" if float(low) >= 1 else f"up to {high}"
        times = high if low == high else times
        return f"makes standard errors {times} times as large as with known propensities"

    def _describe_slots(self) -> Iterator[str]:
        """How many recommended items were rated, for each metric of lists.

        A slot is a place in the list that a model recommends to a user. Of several models, it is
        the one with the fewest rated slots.
        """
        smallest: dict[str, SlotCount] = {}
        for count in self.reliability.count_slots():
            before = smallest.get(count.metric, count)
            smallest[count.metric] = min(before, count, key=lambda each: each.effective)
        for metric, count in smallest.items():
            least = "at least " if len(self.models) > 1 else ""
            slots = count_noun(count.n, "observed slot")
            yield f"{metric} rests on {least}{slots} (effective {count.effective:,.0f})"

    def _describe_left_out(self) -> Iterator[str]:
        """How many users (or items) without data each mean leaves out, alike ones together."""
        names: dict[str, dict[str, None]] = {}
        for (metric, estimator), estimate in self.estimates.items():
            if estimate.n_left_out:
                is_by_item = estimator == "item_normalized"
                label = f"{metric} by {estimator}" if is_by_item else metric
                count = count_noun(estimate.n_left_out, "item" if is_by_item else "user")
                names.setdefault(count, {})[label] = None
        for count, labels in names.items():
            verb = "leaves" if len(labels) == 1 else "leave"
            yield f"{join_words(list(labels))} {verb} out {count} without data"

    def _find_estimate(self, metric: str, estimator: str) -> Estimate:
        require_name("metric of this evaluation", metric, self.metrics, parameter="metric")
        require_name(
            "estimator of this evaluation", estimator, self.estimators, parameter="estimator"
        )
        return self.estimates[metric, estimator]

    def _find_model(self, name: str) -> int:
        require_name("model of this evaluation", name, self.models, parameter="model")
        return self.models.index(name)


def wrap_footer(sentences: Iterable[str]) -> list[str]:
    """Sentences in lines of the width of a footer."""
    return [fill(each, FOOTER_WIDTH, break_on_hyphens=False) for each in sentences]
