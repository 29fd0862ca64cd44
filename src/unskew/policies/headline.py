"""Which estimator a result speaks of first, and whether the others agree.

The rule looks at weights, assumptions and the width of intervals, never at a verdict. The first
estimator is the one

1. with reliable intervals for most policies: weights have mean 1, and enough of them are above 0;
2. whose intervals leave out no error, as those of 'dm' (of its regression) and of 'pbm' with an
   examination curve of plain numbers do;
3. that assumes least about users;
4. with the narrowest intervals of the differences from the logging policy.

A narrower interval under a stronger assumption does not come first: if the assumption is wrong, it
misses the truth, and the wider interval of an estimator that assumes less seldom shows that.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
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
    decided: tuple[str, ...]
    """Estimators that name a better policy where the headline does not, and fit its difference."""
    disagree: tuple[str, ...]
    silent: tuple[str, ...]
    """Estimators without an interval."""

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
    """Choose the estimator of the headline by the rule of the module docstring."""
    comparisons = {
        estimator: [result.compare(policy, estimator=estimator) for policy in result.policies]
        for estimator in result.estimators
    }
    chosen = _choose(comparisons, result.incomplete)
    best = max(comparisons[chosen], key=lambda each: (_has_interval(each), each.difference))
    names = [field.name for field in fields(PolicyHeadline)][2:]
    verdicts: dict[str, list[str]] = {name: [] for name in names}
    for estimator, listed in comparisons.items():
        if estimator != chosen:
            other = listed[result.policies.index(best.first)]
            verdicts[_compare_verdicts(best, other)].append(estimator)
    return PolicyHeadline(
        chosen, best.first, **{name: tuple(names) for name, names in verdicts.items()}
    )


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


def _compare_verdicts(headline: Comparison, other: Comparison) -> str:
    if not _has_interval(other):
        return "silent"
    wide, narrow = sorted((headline, other), key=lambda each: -each.std_error)
    if not wide.ci_low <= narrow.difference <= wide.ci_high:
        return "disagree"
    if other.better == headline.better:
        return "agree"
    return "undecided" if other.better is None else "decided"
