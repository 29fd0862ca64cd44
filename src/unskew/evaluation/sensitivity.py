"""How much estimates and comparisons depend on the propensities being right."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar

import numpy as np

from unskew.data.estimation import TakenAsKnown
from unskew.data.result import DrawableResult, Result
from unskew.errors import UnknownNameError, UsageError
from unskew.estimators.odds import Constraint
from unskew.evaluation.result import Evaluation
from unskew.evaluation.weight_changes import (
    CLIP,
    MEASURED,
    MEASURED_SELECTION,
    EvaluationInputs,
    Shift,
    VariedEstimate,
)
from unskew.settings import Instance, is_finite_number, require_name
from unskew.tables import count_noun

CLIP_QUANTILES = (0.9, 0.95, 0.99, 1.0)
CONSTRAINTS: Mapping[Constraint | None, str] = {
    "mass": "the weights of all cells keep their sum",
    "item": "the weights of each item keep their sum",
    "user": "the weights of each user keep their sum",
    None: "the weights may add up to anything",
}
"""What is assumed about the true weights besides the odds error."""


def sensitivity(
    evaluation: Evaluation,
    *,
    max_weight: Sequence[float] | None = None,
    odds_error: Sequence[float] = (1.0, 1.1, 1.25, 1.5, 2.0),
    constraint: Constraint | None = "mass",
    benchmark: Mapping[str, float] | None = None,
) -> Sensitivity:
    """How estimates change if large weights are clipped, or if the propensities are wrong.

    Clipping replaces 1/P by min(1/P, max_weight). If the estimates hardly change, they do not
    depend on a few large weights.

    An odds error Gamma >= 1 means that the true odds P / (1 - P) of every observed cell are within
    a factor Gamma of the assumed ones, so each weight w = 1/P lies in
    [1 + (w - 1) / Gamma, 1 + (w - 1) * Gamma]. ``low`` and ``high`` are the exact least and largest
    estimate for such propensities. ``ci_low`` is the lower confidence limit at the propensities
    that give ``low``, and ``ci_high`` the upper one at those that give ``high``; each takes its
    propensities as the true ones. If the assumed propensities were estimated, the limits include
    the error of the estimation, under which the extreme propensities move with the assumed ones.
    Imputed deltas stay as they are.

    True weights also add up to the number of all cells, apart from random variation.
    ``constraint="mass"`` uses this: the weights keep the sum of the assumed weights. For ``ips``
    and ``dr`` of a mean over all cells the sum may also be the number of all cells, or between the
    two. The range is narrower than with free weights.
    ``"item"`` keeps the sum of each item's weights, and is right if the propensities are right on
    average over each item's cells, as those of an item popularity are; ``"user"`` likewise. Its
    limits are widened for small groups, and groups of one cell are taken together. Means over users
    or items of their own ratios always have free weights.

    Parameters
    ----------
    evaluation
        The result of :func:`unskew.evaluate`, without a weight transform.
    max_weight
        Largest weights to allow, each at least 1. By default the 90, 95, 99 and 100 % quantiles
        of the weights.
    odds_error
        Factors Gamma, each at least 1; 1 gives the estimate itself.
    constraint
        Which sums of weights are held fixed under an odds error: "mass" (all cells), "item",
        "user", or None for free weights.
    benchmark
        Odds errors by name that the result shows for comparison, such as
        ``{"leaving out genre": odds_error_between(with_genre, without_genre, log)}``.

    Examples
    --------
    >>> from unskew.data.ratings import Ratings
    >>> from unskew.evaluation.evaluate import evaluate
    >>> log = Ratings.from_dense([[5, 1, 0], [0, 5, 0]])
    >>> result = evaluate(
    ...     log,
    ...     {"fives": np.full(3, 5.0)},
    ...     propensities=[0.8, 0.25, 1.0],
    ...     metrics=["mae"],
    ...     estimators=["ips"],
    ...     cluster=None,
    ... )
    >>> sensitivity(result, max_weight=[2], odds_error=[1.0, 1.5])
    model  metric  estimator  change      amount    low   high  ci_low  ci_high
    fives  mae     ips        odds_error   1.000  2.667  2.667   0.000   28.523
    fives  mae     ips        odds_error   1.500  2.417  2.722   0.000   28.365
    fives  mae     ips        clip         2.000  1.333  1.333   0.000   14.262
    3 observed cells; 95% intervals, cells independent
    under an odds error the weights of all cells keep their sum
    """
    inputs = _require_inputs(evaluation)
    weighted = [name for name, estimator in inputs.estimators.items() if estimator.is_weighted]
    if not weighted:
        raise UsageError(
            f"there is nothing to vary: no weights are used by {', '.join(inputs.estimators)}.",
            remedy="Evaluate with `estimators=['snips']`, for example.",
        )
    limits = _default_limits(inputs)
    if max_weight is not None:
        limits = _check_amounts("max_weight", max_weight)
    odds_errors = _check_amounts("odds_error", odds_error)
    _check_constraint(constraint)
    Instance(Mapping, remedy="Pass odds errors by name.", allow_none=True)("benchmark", benchmark)
    benchmarks = {} if benchmark is None else dict(benchmark)
    _check_amounts("benchmark", list(benchmarks.values()))
    if not limits and not odds_errors:
        raise UsageError("there is nothing to vary: `max_weight` and `odds_error` are empty.")
    return Sensitivity(
        models=evaluation.models,
        metrics=evaluation.metrics,
        estimators=tuple(weighted),
        level=evaluation.level,
        n_observed=evaluation.n_observed,
        intervals=evaluation.intervals,
        shifts=tuple(_shift_all(inputs, weighted, limits, odds_errors, constraint)),
        constraint=constraint,
        benchmark=benchmarks,
        notes=(
            *_describe_limits(inputs, constraint, has_odds_errors=bool(odds_errors)),
            *_describe_training(evaluation),
        ),
        doubt=evaluation.doubt,
        backend=evaluation.backend,
        inputs=inputs,
    )


def _describe_training(evaluation: Evaluation) -> Iterator[str]:
    """Models that were fitted to tested cells: no propensities make up for that."""
    if evaluation.training_overlap is not None:
        for warning in evaluation.training_overlap.warnings():
            yield warning.problem.removesuffix(".")


def _require_inputs(evaluation: object) -> EvaluationInputs:
    if not isinstance(evaluation, Evaluation):
        raise UsageError(
            "sensitivity() needs an Evaluation, the result of evaluate(); got "
            f"{type(evaluation).__name__}.",
            remedy="Values of policies have a method: result.sensitivity()."
            if hasattr(evaluation, "sensitivity")
            else "",
        )
    if evaluation.inputs is None:
        raise UsageError(
            "this evaluation did not keep the cells it was computed from.",
            remedy="Run unskew.evaluate on a log in memory.",
        )
    if evaluation.inputs.cells.weight_transform is not None:
        raise UsageError(
            "the weights of this evaluation are already transformed by "
            f"{evaluation.inputs.cells.weight_transform!r}.",
            remedy="Evaluate without `weight_transform`, and vary the weights here.",
        )
    return evaluation.inputs


def _check_amounts(parameter: str, amounts: Sequence[float]) -> list[float]:
    is_list = isinstance(amounts, list | tuple) or (
        isinstance(amounts, (Sequence, np.ndarray)) and np.ndim(amounts) == 1
    )
    values: list[Any] = list(amounts) if is_list else [amounts]
    for value in values:
        if not (is_finite_number(value) and value >= 1):
            raise UsageError(
                f"`{parameter}` must be a list of finite numbers of at least 1, such as [2, 10]; "
                f"got {value!r}.",
                parameter=parameter,
                value=value,
            )
    return sorted({float(value) for value in values})


def _check_constraint(constraint: object) -> None:
    if not isinstance(constraint, str | None) or constraint not in CONSTRAINTS:
        raise UnknownNameError("constraint", constraint, [name for name in CONSTRAINTS if name])


def _default_limits(inputs: EvaluationInputs) -> list[float]:
    return sorted({float(limit) for limit in np.quantile(inputs.cells.weight, CLIP_QUANTILES)})


def _shift_all(
    inputs: EvaluationInputs,
    estimators: Sequence[str],
    limits: Sequence[float],
    odds_errors: Sequence[float],
    constraint: Constraint | None,
) -> Iterator[Shift]:
    for metric in inputs.deltas:
        for model in inputs.models:
            for name in estimators:
                varied = inputs.vary(model, metric=metric, estimator=name, constraint=constraint)
                yield from map(varied.clip, limits)
                if varied.has_worst_case:
                    yield from map(varied.distort_odds, odds_errors)


def _describe_limits(
    inputs: EvaluationInputs, constraint: Constraint | None, *, has_odds_errors: bool
) -> Iterator[str]:
    if has_odds_errors:
        yield f"under an odds error {CONSTRAINTS[constraint]}"
        yield from _describe_free_weights(inputs, constraint)
        estimation = inputs.cells.estimation
        if estimation is not None and not isinstance(estimation, TakenAsKnown):
            yield f"limits include the error of propensities by {estimation.model}"
    for name, estimator in inputs.estimators.items():
        if estimator.has_own_models:
            yield f"{name} has propensity models of its own, whose weights are not changed here"
        elif not estimator.is_weighted:
            yield f"{name} uses no weights and does not change"
        elif not estimator.has_worst_case:
            yield f"the worst case of {name} under an odds error is unknown: clipping only"
    for metric, deltas in inputs.deltas.items():
        if deltas.functions is not None:
            yield f"the worst case of {metric} under an odds error is unknown: clipping only"


def _describe_free_weights(
    inputs: EvaluationInputs, constraint: Constraint | None
) -> Iterator[str]:
    """Which ranges do not use the constraint."""
    if constraint is None:
        return
    for name, estimator in inputs.estimators.items():
        if estimator.is_weighted and estimator.has_worst_case:
            free = [metric for metric in inputs.deltas if not inputs.can_fix_sums(metric, name)]
            if free:
                yield f"not so for {', '.join(free)} by {name}: {CONSTRAINTS[None]}"


@dataclass(frozen=True, slots=True, repr=False)
class Robustness(DrawableResult):
    """The difference of two models, and how wrong propensities may be until it changes sign."""

    kind: ClassVar[str] = "robustness"
    first: str
    second: str
    metric: str
    estimator: str
    difference: float
    higher_is_better: bool
    level: float
    flips_at: float
    """The smallest odds error at which the difference can have the other sign, or infinity."""
    unsure_at: float
    """The smallest odds error at which the interval can include zero, or infinity. NaN if there is
    no interval."""
    shifts: tuple[Shift, ...]
    """The difference under the weight limits and odds errors of the sensitivity."""
    constraint: Constraint | None = None
    """Which sums of weights are held fixed under an odds error."""
    benchmark: Mapping[str, float] = field(default_factory=dict)
    """Odds errors by name, for comparison."""
    caution: str = ""
    """Why the propensities can be further off than ``flips_at``."""

    @property
    def better(self) -> str | None:
        """The model with the better estimate, whatever the interval; None if they are equal."""
        if self.difference == 0:
            return None
        return self.first if (self.difference > 0) == self.higher_is_better else self.second

    def __str__(self) -> str:
        if self.better is None:
            return f"{self.first} and {self.second} are equal on {self.metric} by {self.estimator}"
        worse = self.second if self.better == self.first else self.first
        order = "at any odds error"
        if math.isfinite(self.flips_at):
            order = f"up to odds error {self.flips_at:.3g}"
        interval = f"excludes zero up to {self.unsure_at:.3g}"
        if math.isnan(self.unsure_at):
            interval = "is unknown"
        elif math.isinf(self.unsure_at):
            interval = "never includes zero"
        statement = (
            f"{self.better} is ahead of {worse} on {self.metric} by {self.estimator} {order}; "
            f"the {self.level:.0%} interval of the difference {interval}"
        )
        if self.unsure_at == 1:
            statement = (
                f"{self.better} and {worse} cannot be told apart on {self.metric} by "
                f"{self.estimator}, even if the propensities are right: the {self.level:.0%} "
                f"interval of the difference includes zero. The estimate of {self.better} stays "
                f"ahead {order}"
            )
        return (
            f"{statement}; assumed: {CONSTRAINTS[self.constraint]}"
            + "".join(f"\n{line}" for line in _describe_benchmark(self.benchmark))
            + (f"\n{self.caution}" if self.caution else "")
        )

    def to_columns(self) -> dict[str, list[Any]]:
        """The shifts of the difference."""
        return _shift_columns(self.shifts)

    def to_record(self) -> dict[str, Any]:
        """All fields and the better model."""
        return asdict(self) | {"better": self.better}

    def _shown_columns(self) -> dict[str, list[Any]]:
        return _hide_share_clipped(self.to_columns())

    def _footer(self) -> list[str]:
        return [str(self)]


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Sensitivity(Result):
    """Every estimate under clipped weights and under wrong propensities."""

    kind: ClassVar[str] = "sensitivity"
    models: tuple[str, ...]
    metrics: Mapping[str, bool]
    """By name: whether higher is better."""
    estimators: tuple[str, ...]
    """Only those that use weights."""
    level: float
    n_observed: int
    intervals: str
    shifts: tuple[Shift, ...]
    constraint: Constraint | None = None
    """Which sums of weights are held fixed under an odds error, where the estimator allows it."""
    benchmark: Mapping[str, float] = field(default_factory=dict)
    """Odds errors by name, for comparison."""
    notes: tuple[str, ...] = ()
    """What does not apply to which estimator."""
    doubt: str | None = None
    """What shows that the propensities do not fit the log; None if nothing does."""
    backend: str | None = None
    inputs: EvaluationInputs | None = None

    def compare(self, first: str, second: str, *, metric: str, estimator: str) -> Robustness:
        """``first`` minus ``second``: its range, and the odds error at which their order can flip.

        The same wrong propensities apply to both models, so the range of the difference is narrower
        than two separate ranges suggest.
        """
        self._require("model", first, self.models)
        self._require("model", second, self.models)
        self._require("metric", metric, self.metrics)
        self._require("estimator", estimator, self.estimators)
        varied = self._vary_difference(first, second, metric, estimator)
        difference = varied.extreme(1.0, is_largest=True).value
        is_positive = difference > 0
        flips_at = varied.find_flip(is_positive=is_positive)
        changes = dict.fromkeys(
            (shift.change, shift.amount) for shift in self.shifts if shift.estimator == estimator
        )
        return Robustness(
            first,
            second,
            metric,
            estimator,
            difference,
            self.metrics[metric],
            self.level,
            flips_at=flips_at,
            unsure_at=varied.find_unsure(is_positive=is_positive, flips_at=flips_at),
            shifts=tuple(
                varied.clip(amount) if change == CLIP else varied.distort_odds(amount)
                for change, amount in changes
            ),
            constraint=varied.constraint,
            benchmark=self.benchmark,
            caution=self._describe_caution(flips_at),
        )

    def _describe_caution(self, flips_at: float) -> str:
        """That a check failed; or, for propensities that never saw a rating, what self-selection
        was in a real log.
        """
        if self.doubt is not None:
            return f"Not reliable, a check failed: {self.doubt}."
        estimation = None if self.inputs is None else self.inputs.cells.estimation
        if estimation is None or estimation.sees_ratings or flips_at >= MEASURED_SELECTION:
            return ""
        return f"These propensities never saw a rating. {MEASURED}."

    def _vary_difference(
        self, first: str, second: str, metric: str, estimator: str
    ) -> VariedEstimate:
        if self.inputs is None:
            raise UsageError(
                "this sensitivity did not keep the cells it was computed from.",
                remedy="Run unskew.sensitivity again.",
            )
        varied = self.inputs.vary(
            first, second, metric=metric, estimator=estimator, constraint=self.constraint
        )
        if not varied.has_worst_case:
            raise UsageError(
                f"the worst case of {estimator!r} under an odds error is unknown.",
                remedy="Compare by 'ips' or 'snips'.",
            )
        return varied

    def _compare_leaders(self) -> Robustness | None:
        """The two best models by the first metric; None if their worst case is unknown."""
        metric, estimator = next(iter(self.metrics)), self._main_estimator()
        if len(self.models) < 2 or self.inputs is None or not self._has_odds_errors(estimator):
            return None
        varied = [
            self.inputs.vary(model, metric=metric, estimator=estimator, constraint=self.constraint)
            for model in self.models
        ]
        estimates = [each.extreme(1.0, is_largest=True).value for each in varied]
        order = np.argsort(estimates)[:: -1 if self.metrics[metric] else 1]
        best, second = (self.models[index] for index in order[:2])
        try:
            return self.compare(best, second, metric=metric, estimator=estimator)
        except UsageError:  # a difference of roots, or of ratios with bases of their own
            return None

    def _has_odds_errors(self, estimator: str) -> bool:
        changes = {shift.change for shift in self.shifts if shift.estimator == estimator}
        return changes - {CLIP} != set()

    def to_columns(self) -> dict[str, list[Any]]:
        """Model, metric, estimator, change, amount, low, high, ci_low, ci_high, share_clipped."""
        return _shift_columns(self.shifts)

    def to_record(self) -> dict[str, Any]:
        """The table, how it was computed, and the robustness of the order of the best two."""
        leaders = self._compare_leaders()
        return {
            "leaders": None if leaders is None else leaders.to_record(),
            "level": self.level,
            "intervals": self.intervals,
            "n_observed": self.n_observed,
            "constraint": self.constraint,
            "benchmark": dict(self.benchmark),
            "notes": list(self.notes),
            "rows": [asdict(shift) for shift in self.shifts],
            "models": list(self.models),
            "metrics": dict(self.metrics),
            "estimators": list(self.estimators),
        }

    def plot(
        self, ax: Any = None, *, metric: str | None = None, estimator: str | None = None
    ) -> Any:
        """Draw the estimates under clipped weights, and their ranges under odds errors.

        Shows one metric by one estimator, by default the first metric by SNIPS, or by the first
        estimator if there is no SNIPS. Returns a new matplotlib figure, or None if ``ax`` is given.
        ``ax`` holds two axes, or one if only weights or only odds were changed.
        """
        metric = next(iter(self.metrics)) if metric is None else metric
        estimator = self._main_estimator() if estimator is None else estimator
        self._require("metric", metric, self.metrics)
        self._require("estimator", estimator, self.estimators)
        return self._draw(ax, metric=metric, estimator=estimator)

    def _main_estimator(self) -> str:
        return "snips" if "snips" in self.estimators else self.estimators[0]

    def _shown_columns(self) -> dict[str, list[Any]]:
        """The rows of one estimator, odds errors before weight limits."""
        shown = [shift for shift in self.shifts if shift.estimator == self._main_estimator()]
        return _hide_share_clipped(
            _shift_columns(sorted(shown, key=lambda row: row.change == CLIP))
        )

    def _footer(self) -> list[str]:
        cells = count_noun(self.n_observed, "observed cell")
        footer = [f"{cells}; {self.level:.0%} intervals, {self.intervals}", *self.notes]
        if self.doubt is not None:
            footer.append(f"not reliable, a check failed: {self.doubt}")
        if others := [name for name in self.estimators if name != self._main_estimator()]:
            footer.append(f"rows of {', '.join(others)}: to_frame()")
        if len(self.models) > 1:
            footer.append("odds error that could reverse two models: compare(first, second, ...)")
        return [*footer, *_describe_benchmark(self.benchmark)]

    def _require(self, kind: str, name: str, valid: Sequence[str] | Mapping[str, bool]) -> None:
        require_name(f"{kind} of this sensitivity", name, valid, parameter=kind)


def _describe_benchmark(benchmark: Mapping[str, float]) -> Iterator[str]:
    if benchmark:
        listed = ", ".join(f"{name} {amount:.3g}" for name, amount in benchmark.items())
        yield f"odds errors for comparison: {listed}"


def _shift_columns(shifts: Sequence[Shift]) -> dict[str, list[Any]]:
    return {name: [getattr(shift, name) for shift in shifts] for name in Shift.__slots__}


def _hide_share_clipped(columns: dict[str, list[Any]]) -> dict[str, list[Any]]:
    """The columns without the last one, for which a terminal is too narrow."""
    return {name: values for name, values in columns.items() if name != "share_clipped"}
