"""The result of :func:`unskew.evaluate_policies`: values, comparisons, and a headline."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import combinations
from statistics import fmean
from typing import TYPE_CHECKING, Any, ClassVar

from unskew.data.probability_kind import KindCheck
from unskew.data.result import Result
from unskew.errors import PropensityWarning, UnskewWarning, UsageError
from unskew.estimators.estimate import Estimate, Interval
from unskew.estimators.intervals import adjust_p_values
from unskew.evaluation.pairs import PairwiseComparison, adjust_pairs
from unskew.evaluation.result import Comparison, wrap_footer
from unskew.policies import POLICY_ESTIMATORS
from unskew.policies.checks import MIN_REQUESTS, WeightCheck, explain_check
from unskew.settings import require_name
from unskew.tables import count_noun, format_p_value, join_words

if TYPE_CHECKING:
    from unskew.policies.columns import ArrayColumns
    from unskew.policies.sensitivity import PolicySensitivity


LOGGED = "logged"
"""The name of the logging policy, whose value is the mean reward of the log."""
MEAN = "mean"
"""The estimator of the logging policy's own value."""
VALUE = "value"
"""What is compared: the expected reward of a request."""
COLUMNS = ("policy", "estimator", "estimate", "std_error", "ci_low", "ci_high", "degrees")


@dataclass(frozen=True, slots=True)
class PolicyValue:
    """The value of one policy by one estimator: the expected reward of a request."""

    policy: str
    estimator: str
    estimate: float
    std_error: float
    ci_low: float
    ci_high: float
    degrees: float = math.inf
    """Degrees of freedom of the standard error."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class PolicyEvaluation(Result):
    """Values of several policies by several estimators, from one log of impressions."""

    kind: ClassVar[str] = "policy_evaluation"
    policies: tuple[str, ...]
    """The target policies; the logging policy is always there, as ``"logged"``."""
    estimators: tuple[str, ...]
    estimates: Mapping[str, Estimate]
    """By estimator: the values of the policies that it can estimate."""
    estimated: Mapping[str, tuple[str, ...]]
    """By estimator: the policies in its estimate, the logging policy last."""
    level: float
    cluster: str
    n_requests: int
    n_impressions: int
    n_slots: int
    checks: tuple[WeightCheck, ...] = ()
    """The mean weights of the targets, which must be 1."""
    kind_check: KindCheck | None = None
    """Whether the logged probabilities are of the stated kind; None if that cannot be checked."""
    rewards: tuple[float, float] = (0.0, 1.0)
    """The smallest and the largest reward of the log."""
    incomplete: tuple[str, ...] = ()
    """Estimators whose intervals leave out an error: of a regression, of a known curve, or of a
    transform that changes the mean of the weights."""
    notes: tuple[str, ...] = ()
    """What the estimates take for granted, in words."""
    is_logging_stated: bool = False
    """Whether the caller says how the log was made, so that its probabilities follow."""
    backend: str | None = None
    inputs: Mapping[str, ArrayColumns] = field(default_factory=dict)
    """What the estimates were computed from, for :meth:`sensitivity`; empty if not kept."""

    def __iter__(self) -> Iterator[PolicyValue]:
        yield self.value(LOGGED, estimator=self.estimators[0])
        for policy in self.policies:
            for estimator in self.estimators:
                yield self.value(policy, estimator=estimator)

    def value(self, policy: str, *, estimator: str | None = None) -> PolicyValue:
        """The estimate of one policy with its interval, by default that of :meth:`headline`."""
        name = self._find_estimator(estimator)
        self._require_policy(policy)
        interval = Interval.unknown(math.nan)
        if policy in self.estimated[name]:
            index = self.estimated[name].index(policy)
            interval = self.estimates[name].of(index, level=self.level)
            if self._has_no_interval(policy, name):
                is_unknown = self._is_unknown(policy, name)
                interval = Interval.unknown(math.nan if is_unknown else interval.value)
        limits = interval.value, interval.std_error, interval.low, interval.high
        shown_name = MEAN if policy == LOGGED else name
        return PolicyValue(policy, shown_name, *limits, interval.degrees)

    def compare(
        self, first: str, second: str = LOGGED, *, estimator: str | None = None
    ) -> Comparison:
        """``first`` minus ``second``, paired request by request; by default as in the headline.

        The interval is usually narrower than the separate intervals of the two policies suggest.
        """
        name = self._find_estimator(estimator)
        for policy in (first, second):
            self._require_policy(policy)
        pair = [
            self.estimated[name].index(policy)
            for policy in (first, second)
            if policy in self.estimated[name]
        ]
        interval = Interval.unknown(math.nan)
        if len(pair) == 2:
            interval = self.estimates[name].difference(*pair, level=self.level)
            if any(self._has_no_interval(policy, name) for policy in (first, second)):
                is_unknown = any(self._is_unknown(policy, name) for policy in (first, second))
                interval = Interval.unknown(math.nan if is_unknown else interval.value)
        return Comparison(
            first,
            second,
            VALUE,
            name,
            interval.value,
            interval.std_error,
            interval.low,
            interval.high,
            interval.p_value,
            self.level,
            True,
            tuple(str(each) for each in self._problems_of((first, second), name)),
        )

    def headline(self) -> PolicyHeadline:
        """The estimator that decides by default, its best policy, and whether the others agree.

        It is the one that assumes least about users among those with reliable weights, and then
        that with the narrowest intervals. The guide to impressions has the whole rule.
        """
        return find_headline(self)

    def compare_all(self, *, estimator: str | None = None) -> PairwiseComparison:
        """All pairs of policies, with p-values adjusted for their number by Holm's method."""
        name = self._find_estimator(estimator)
        values = {
            policy: self.value(policy, estimator=name).estimate for policy in self.estimated[name]
        }
        ranked = sorted(values, key=lambda policy: -values[policy])
        if len(ranked) < 2:
            raise UsageError(
                f"{name!r} has estimates of fewer than two policies: nothing can be compared.",
                parameter="estimator",
                value=name,
                remedy="Evaluate several policies at once, or choose another estimator.",
            )
        comparisons = [self.compare(*pair, estimator=name) for pair in combinations(ranked, 2)]
        return adjust_pairs(comparisons, ranked, self.backend)

    def sensitivity(
        self,
        *,
        factors: tuple[float, ...] = (1.1, 1.25, 1.5, 2.0),
        clips: tuple[float, ...] = (5.0, 10.0, 20.0, 50.0),
    ) -> PolicySensitivity:
        """How much values change if weights are clipped, or if logged probabilities are wrong.

        See :func:`unskew.policies.sensitivity.vary_weights`.
        """
        from unskew.policies.sensitivity import vary_weights

        return vary_weights(self, factors=factors, clips=clips)

    def problems(self) -> Iterator[UnskewWarning]:
        """Everything that a reader of the estimates must know."""
        yield from self._list_problems_of_log()
        without_weight = {
            policy: [name for name in self.estimators if self._has_no_weight(policy, name)]
            for policy in self.policies
        }
        for policy, estimators in without_weight.items():
            if estimators:
                yield _no_weight_warning(policy, estimators)
        for check in self._worst_checks():
            problem = self._explain(check)
            if problem is not None and (check.n_positive or not without_weight[check.policy]):
                yield problem
        yield from self._list_outside()

    def _list_problems_of_log(self) -> Iterator[UnskewWarning]:
        """What makes every estimate of the log unusable."""
        if self._has_one_reward:
            yield UnskewWarning(
                f"all {self.n_impressions:,} rewards are {self.rewards[0]:g}: such a log says "
                "nothing about policies, and no estimate has an interval.",
                parameter="reward",
                value=self.rewards[0],
                remedy="A log of clicks alone must get the items that were shown and not clicked, "
                "with the reward 0.",
            )
        if self.kind_check is not None and self.kind_check.is_contradicted:
            remedy = (
                f"Pass `probability_is={self.kind_check.other!r}`, if those of the targets are of "
                "that kind too. If requests keep items for certain positions, which this check "
                "does not allow for,"
            )
            yield PropensityWarning(
                self.kind_check.describe(),
                parameter="probability_is",
                value=self.kind_check.stated,
                remedy=f"{remedy} use evaluate_policies_frame, which leaves it out.",
                shell_remedy=f"{remedy} pass `reader='duckdb'`, which leaves it out.",
            )

    @property
    def _has_one_reward(self) -> bool:
        return self.rewards[0] == self.rewards[1]

    def _worst_checks(self) -> Iterator[WeightCheck]:
        """By policy and kind of weight: the first position whose check fails."""
        told = set()
        for check in self.checks:
            key = check.policy, check.weight
            if key not in told and self._explain(check) is not None:
                told.add(key)
                yield check

    def _explain(self, check: WeightCheck) -> PropensityWarning | None:
        is_part = check.weight == "step" and not any(
            "step" in self._needs(name) for name in self.estimators
        )
        if is_part and not check.is_off:
            return None  # the weights of whole slates say more
        return explain_check(check, self.n_requests, is_logging_stated=self.is_logging_stated)

    def _list_outside(self) -> Iterator[UnskewWarning]:
        for name, estimate in self.estimates.items():
            for policy, is_outside in zip(self.estimated[name], estimate.is_outside, strict=True):
                if is_outside and estimate.bounds is not None:
                    low, high = estimate.bounds
                    yield PropensityWarning(
                        f"the value of {policy!r} by {name!r} is outside its range, {low:g} to "
                        f"{high:g}: the weights are too uneven.",
                        parameter="estimators",
                        value=name,
                        remedy="Use a self-normalised estimator.",
                    )

    def _problems_of(self, policies: tuple[str, ...], estimator: str) -> Iterator[UnskewWarning]:
        yield from self._list_problems_of_log()
        needs = self._list_checked(estimator)
        for check in self._worst_checks():
            if check.policy in policies and check.weight in needs and check.n_positive:
                problem = self._explain(check)
                if problem is not None:
                    yield problem
        for policy in policies:
            if self._has_no_weight(policy, estimator):
                yield _no_weight_warning(policy, [estimator])

    def _has_no_weight(self, policy: str, estimator: str) -> bool:
        """Whether weights that the estimator reads are 0 in all requests."""
        return policy not in self.estimated[estimator] or (
            policy != LOGGED
            and any(
                not check.n_positive
                for check in self.checks
                if check.policy == policy and check.weight in self._needs(estimator)
            )
        )

    def _has_no_interval(self, policy: str, estimator: str) -> bool:
        """Whether log or weights contradict the probabilities, or too few weights are positive."""
        if policy == LOGGED:
            return False
        if self._has_one_reward or (self.kind_check and self.kind_check.is_contradicted):
            return True
        needs = self._list_checked(estimator)
        return any(
            check.n_positive < MIN_REQUESTS or check.is_off
            for check in self.checks
            if check.policy == policy and check.weight in needs
        )

    def _is_unknown(self, policy: str, estimator: str) -> bool:
        """Whether the log has no rewards for the policy, and the estimator no regression."""
        needs = self._needs(estimator)
        return "regression" not in needs and any(
            check.lacks_rewards or not check.n_positive
            for check in self.checks
            if check.policy == policy and check.weight in needs
        )

    def _list_checked(self, estimator: str) -> tuple[str, ...]:
        """The weights whose means must be 1: the steps of a slate too."""
        needs = self._needs(estimator)
        return (*needs, "step") if "slate" in needs else needs

    @staticmethod
    def _needs(estimator: str) -> tuple[str, ...]:
        needs: tuple[str, ...] = POLICY_ESTIMATORS.find(estimator).traits["needs"]
        return needs

    def warn(self) -> None:
        """Warn about weights that contradict their own probabilities."""
        for problem in self.problems():
            warnings.warn(problem, stacklevel=3)

    def to_columns(self) -> dict[str, list[Any]]:
        """Policy, estimator, estimate, std_error, ci_low, ci_high, degrees."""
        rows = [asdict(value) for value in self]
        return {name: [row[name] for row in rows] for name in COLUMNS}

    def to_record(self) -> dict[str, Any]:
        """The table, the comparisons with the logging policy, and the checks of the weights."""
        declared = {name: POLICY_ESTIMATORS.find(name) for name in self.estimators}
        labels = {name: each.label for name, each in declared.items()}
        headline = self.headline()
        return {
            "level": self.level,
            "cluster": self.cluster,
            "n_requests": self.n_requests,
            "n_impressions": self.n_impressions,
            "n_slots": self.n_slots,
            "policies": list(self.policies),
            "estimators": list(self.estimators),
            "conditions": {name: each.traits["unbiased_if"] for name, each in declared.items()},
            "labels": labels,
            "headline": asdict(headline)
            | {
                "others": headline.describe(labels),
                "rank": headline.describe_rank(len(self.policies)),
            },
            "kind_check": None if self.kind_check is None else asdict(self.kind_check),
            "rows": [asdict(value) for value in self],
            "differences": [
                self.compare(policy, estimator=name).to_record()
                for name in self.estimators
                for policy in self.policies
            ],
            "checks": [asdict(check) | {"is_off": check.is_off} for check in self.checks],
            "warnings": [str(each) for each in self.problems()],
            "notes": list(self.notes),
        }

    def plot(self, ax: Any = None) -> Any:
        """Every value with its interval; returns the matplotlib figure."""
        return self._draw(ax)

    def describe(self) -> str:
        """What the numbers were computed from, and what they rest on, in a few lines."""
        facts = [
            f"{count_noun(self.n_requests, 'request')}, "
            f"{count_noun(self.n_impressions, 'impression')}, "
            f"up to {count_noun(self.n_slots, 'slot')}",
            f"{self.level:.0%} intervals, clusters of {self.cluster}s",
        ]
        conditions = dict[str, list[str]]()
        for name in self.estimators:
            condition = POLICY_ESTIMATORS.find(name).traits["unbiased_if"]
            conditions.setdefault(condition, []).append(name)
        lines = [*self._describe_headline()]
        lines += [f"{', '.join(names)}: right if {text}" for text, names in conditions.items()]
        return "\n".join(["; ".join(facts), *wrap_footer([*lines, *self.notes])])

    def _describe_headline(self) -> Iterator[str]:
        if len(self.estimators) > 1 or len(self.policies) > 1:
            headline = self.headline()
            parts = [f"{headline.policy!r} by {headline.estimator}", headline.describe({})]
            if len(self.policies) > 1:
                rank = headline.describe_rank(len(self.policies))
                parts[0] += (
                    f" {rank} and {headline.describe_verdict()} "
                    f"({format_p_value(headline.p_value)}, adjusted)"
                )
            is_known = not math.isnan(headline.p_value)
            verdict = "; ".join(filter(None, parts))
            yield f"headline: {verdict if is_known else 'no estimator has an interval'}"

    def _footer(self) -> list[str]:
        return [*map(str, self.problems()), self.describe()]

    def _find_estimator(self, estimator: str | None) -> str:
        if estimator is None:
            return self.headline().estimator
        name = POLICY_ESTIMATORS.find(estimator).name
        require_name("estimator of this evaluation", name, self.estimators, parameter="estimator")
        return name

    def _require_policy(self, policy: str) -> None:
        require_name(
            "policy of this evaluation", policy, (*self.policies, LOGGED), parameter="policy"
        )


def _no_weight_warning(policy: str, estimators: Sequence[str]) -> PropensityWarning:
    return PropensityWarning(
        f"{join_words([repr(name) for name in estimators])} cannot estimate policy {policy!r}: all "
        "weights are 0 in some slot, because the log never shows what the policy would show.",
        parameter="estimators",
        value=estimators,
        remedy="Use an estimator that needs less overlap, or fewer slots.",
    )


@dataclass(frozen=True, slots=True)
class PolicyHeadline:
    """The estimator that a result speaks of first, and what the others say of its best policy."""

    estimator: str
    policy: str
    """The target policy with the highest value by this estimator."""
    better: str | None
    """The better of this policy and the logging policy; None if they cannot be told apart. The best
    of several policies often looks better by chance alone, so p-values are adjusted for all."""
    p_value: float
    """Of this difference, adjusted by Holm's method for the number of target policies."""
    agree: tuple[str, ...]
    """Estimators with the same verdict on the policy and the logged one, and a difference that
    fits the other interval."""
    undecided: tuple[str, ...]
    """Estimators whose interval includes 0, and that fit the difference of the headline."""
    decided: tuple[str, ...]
    """Estimators that name a better policy where the headline does not, and fit its difference."""
    disagree: tuple[str, ...]
    silent: tuple[str, ...]
    """Estimators without an interval."""
    n_policies: int
    """Target policies that have an interval by this estimator, of which it takes the highest."""

    def describe_verdict(self) -> str:
        """What this estimator finds about ``policy`` and the logging policy, in words."""
        if self.better is None:
            return "cannot be told apart from the logging policy"
        return f"is {'better' if self.better == self.policy else 'worse'} than the logging policy"

    def describe_rank(self, n_policies: int) -> str:
        """Which of the target policies it is, in words."""
        if self.n_policies == n_policies:
            return f"has the highest value of {n_policies} policies"
        if self.n_policies > 1:
            return f"has the highest value of the {self.n_policies} policies with an interval"
        return "is the only policy with an interval"

    def describe(self, labels: Mapping[str, str]) -> str:
        """What the other estimators find about ``policy`` and the logging policy, in words.

        It is empty if there are no others. ``labels`` are the names of estimators to print.
        """

        def name(estimators: tuple[str, ...]) -> str:
            return join_words([labels.get(each, each) for each in estimators])

        undecided = "cannot tell it from the logging policy"
        parts = [
            f"{name(names)} {one if len(names) == 1 else several}"
            for names, one, several in (
                (self.agree, "agrees", "agree"),
                (self.undecided, undecided, undecided),
                (
                    self.decided,
                    "tells it from the logging policy",
                    "tell it from the logging policy",
                ),
                (self.disagree, "disagrees", "disagree"),
                (self.silent, "has no interval", "have no interval"),
            )
            if names
        ]
        return "; ".join(parts)


def find_headline(result: PolicyEvaluation) -> PolicyHeadline:
    """Choose the estimator that a result speaks of first, and ask whether the others agree.

    The rule looks at weights, assumptions and the width of intervals, never at a verdict. The first
    estimator is the one

    1. with reliable intervals for most policies: weights have mean 1, and enough are above 0;
    2. whose intervals leave out no error, as those of 'dm' (of its regression) and of 'pbm' with an
       examination curve of plain numbers do, and, if weights are clipped, those of estimators that
       do not divide by their mean weight;
    3. that assumes least about users;
    4. with the narrowest intervals of the differences from the logging policy.

    A narrower interval under a stronger assumption does not come first: if the assumption is wrong,
    it misses the truth, and the wider interval of an estimator that assumes less seldom shows that.
    """
    comparisons = {
        estimator: [result.compare(policy, estimator=estimator) for policy in result.policies]
        for estimator in result.estimators
    }
    chosen = _choose(comparisons, result.incomplete)
    best = max(comparisons[chosen], key=lambda each: (_has_interval(each), each.difference))
    better, p_value = _adjust(best, comparisons[chosen])
    relations: dict[str, list[str]] = {
        name: [] for name in ("agree", "undecided", "decided", "disagree", "silent")
    }
    for estimator, listed in comparisons.items():
        if estimator != chosen:
            other = listed[result.policies.index(best.first)]
            relation = _compare_verdicts(best, better, other, _adjust(other, listed)[0])
            relations[relation].append(estimator)
    tuples = {name: tuple(names) for name, names in relations.items()}
    return PolicyHeadline(
        chosen,
        best.first,
        better,
        p_value,
        agree=tuples["agree"],
        undecided=tuples["undecided"],
        decided=tuples["decided"],
        disagree=tuples["disagree"],
        silent=tuples["silent"],
        n_policies=sum(map(_has_interval, comparisons[chosen])),
    )


def _adjust(chosen: Comparison, comparisons: Sequence[Comparison]) -> tuple[str | None, float]:
    """The better policy of one of several comparisons, and its p-value by Holm's method."""
    if not _has_interval(chosen):
        return None, math.nan
    listed = [each for each in comparisons if _has_interval(each)]
    adjusted = adjust_p_values([each.p_value for each in listed])
    p_value = adjusted[listed.index(chosen)]
    return (chosen.better if p_value < 1 - chosen.level else None), p_value


def _choose(comparisons: Mapping[str, list[Comparison]], incomplete: tuple[str, ...]) -> str:
    def rank(name: str) -> tuple[float, ...]:
        with_interval = [each for each in comparisons[name] if _has_interval(each)]
        n_reliable = sum(not each.warnings for each in with_interval)
        errors = [each.std_error for each in with_interval] or [math.inf]
        assumes = POLICY_ESTIMATORS.find(name).traits["assumes"]
        return -n_reliable, -len(with_interval), name in incomplete, assumes, fmean(errors)

    return min(comparisons, key=rank)


def _has_interval(comparison: Comparison) -> bool:
    return not (math.isnan(comparison.ci_low) or math.isnan(comparison.ci_high))


def _compare_verdicts(
    headline: Comparison, verdict: str | None, other: Comparison, other_verdict: str | None
) -> str:
    """How another estimator relates to that of the headline; each verdict is the better policy."""
    if not _has_interval(other):
        return "silent"
    wide, narrow = sorted((headline, other), key=lambda each: -each.std_error)
    if not wide.ci_low <= narrow.difference <= wide.ci_high:
        return "disagree"
    if other_verdict == verdict:
        return "agree"
    return "undecided" if other_verdict is None else "decided"
