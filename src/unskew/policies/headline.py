"""Which estimator a result speaks of first, and whether the others agree.

The rule looks at assumptions and at the width of intervals, before any verdict:

1. Only estimators with an interval count, for as many policies as any estimator has one. Those
   whose intervals leave out an error, that of a regression ('dm') or of an examination curve given
   as numbers ('pbm'), count only if there are no others.
2. The narrowest intervals of the differences from the logged policy come first, by the mean of
   their standard errors.
3. Each of its differences must lie in the intervals of all estimators that assume less about
   users. Otherwise its assumption is doubtful, and the next one is taken.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING

from unskew.policies import POLICY_ESTIMATORS
from unskew.tables import join_words

if TYPE_CHECKING:
    from unskew.evaluation.result import Comparison
    from unskew.policies.result import PolicyEvaluation


@dataclass(frozen=True, slots=True)
class PolicyHeadline:
    """The estimator that a result speaks of first, and what the others say of its best policy."""

    estimator: str
    policy: str
    """The target policy with the highest value by this estimator."""
    agree: tuple[str, ...]
    """Estimators with the same verdict on the policy and the logged one, and a difference that
    fits the other interval."""
    undecided: tuple[str, ...]
    """Estimators whose interval includes 0, and that fit the difference of the headline."""
    disagree: tuple[str, ...]
    silent: tuple[str, ...]
    """Estimators without an interval."""

    def describe(self, labels: Mapping[str, str]) -> str:
        """What the others say, in a sentence; empty if there are none."""

        def name(estimators: tuple[str, ...]) -> str:
            return join_words([labels.get(each, each) for each in estimators])

        parts = [
            f"{name(names)} {one if len(names) == 1 else several}"
            for names, one, several in (
                (self.agree, "agrees", "agree"),
                (self.undecided, "cannot tell them apart", "cannot tell them apart"),
                (self.disagree, "disagrees", "disagree"),
                (self.silent, "has no interval", "have no interval"),
            )
            if names
        ]
        return "; ".join(parts)


def find_headline(result: PolicyEvaluation) -> PolicyHeadline:
    """Choose the estimator of the headline by the rule of the module docstring."""
    comparisons = {
        estimator: [result.compare(policy, estimator=estimator) for policy in result.policies]
        for estimator in result.estimators
    }
    chosen = _choose(comparisons, result.incomplete)
    best = max(comparisons[chosen], key=lambda each: (_has_interval(each), each.difference))
    said: dict[str, list[str]] = {"agree": [], "undecided": [], "disagree": [], "silent": []}
    for estimator, listed in comparisons.items():
        if estimator != chosen:
            other = listed[result.policies.index(best.first)]
            said[_compare_verdicts(best, other)].append(estimator)
    return PolicyHeadline(
        chosen, best.first, **{name: tuple(names) for name, names in said.items()}
    )


def _choose(comparisons: Mapping[str, list[Comparison]], incomplete: tuple[str, ...]) -> str:
    n_usable = {name: sum(map(_has_interval, each)) for name, each in comparisons.items()}
    most = max(n_usable.values())
    usable = [name for name, number in n_usable.items() if number == most]
    if most == 0:
        return usable[0]
    usable = [name for name in usable if name not in incomplete] or usable
    usable.sort(key=lambda name: fmean(_list_errors(comparisons[name])))
    for name in usable:
        weaker = [other for other in usable if _assumes(other) < _assumes(name)]
        if not any(_contradicts(comparisons[other], comparisons[name]) for other in weaker):
            return name
    raise AssertionError("the estimators that assume least are contradicted by none")


def _has_interval(comparison: Comparison) -> bool:
    return not (math.isnan(comparison.ci_low) or math.isnan(comparison.ci_high))


def _list_errors(comparisons: list[Comparison]) -> list[float]:
    return [each.std_error for each in comparisons if _has_interval(each)]


def _assumes(estimator: str) -> int:
    """How much the estimator assumes about users: a higher number includes lower ones."""
    number: int = POLICY_ESTIMATORS.find(estimator).traits["assumes"]
    return number


def _contradicts(weaker: list[Comparison], stronger: list[Comparison]) -> bool:
    """Whether a difference by the stronger assumption is outside the other interval."""
    return any(
        not each.ci_low <= other.difference <= each.ci_high
        for each, other in zip(weaker, stronger, strict=True)
        if _has_interval(each) and _has_interval(other)
    )


def _compare_verdicts(headline: Comparison, other: Comparison) -> str:
    if not _has_interval(other):
        return "silent"
    wide, narrow = sorted((headline, other), key=lambda each: -each.std_error)
    if not wide.ci_low <= narrow.difference <= wide.ci_high:
        return "disagree"
    if other.better == headline.better:
        return "agree"
    return "undecided" if other.better is None else "disagree"
