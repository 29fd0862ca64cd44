"""Weights of a target policy: whether their mean is 1, as it must be, and how uneven they are."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from unskew.errors import PropensityWarning
from unskew.policies.columns import RequestColumns
from unskew.policies.terms import Column, Term, TermSums, total
from unskew.tables import join_words
from unskew.types import Vector

MAX_ERRORS = 4.0
"""A mean is reported if it is above 1 by more standard errors than this, or below 1 by more than
an interval of the same level reaches up."""
LEVEL = math.erf(MAX_ERRORS / math.sqrt(2))
ROUNDING = 1e-9
FEW_REQUESTS = 30
"""With fewer requests of positive weight, an interval is not reliable."""
MIN_REQUESTS = 5
"""With fewer requests of positive weight, there is no interval."""
WEIGHT_KINDS = ("slate", "step", "marginal", "exposure", "additive")


@dataclass(frozen=True, slots=True)
class WeightCheck:
    """The weights of one kind that a target policy has at one position."""

    policy: str
    weight: str
    """slate, step (a running product), marginal, exposure or additive."""
    position: int | None
    """None for a weight of the whole slate."""
    mean: float
    """Its expectation is 1 if all probabilities are right and both policies can show the same."""
    std_error: float
    low: float
    high: float
    """Limits of the mean, which leave out 1 by chance as seldom as a normal error exceeds 4
    standard errors. The upper one allows for skewed weights and few degrees of freedom: a log that
    lacks rare large weights has a small mean and a small error. The lower one is 4 standard errors
    away: large weights raise the mean and its error together."""
    n_positive: int
    """Requests whose weight is not 0."""
    effective: float
    """The effective sample size: (sum w)^2 / sum w^2."""
    largest: float

    @property
    def is_off(self) -> bool:
        """Whether the mean is further from 1 than its error explains."""
        return not self.low - ROUNDING <= 1.0 <= self.high + ROUNDING

    @property
    def lacks_rewards(self) -> bool:
        """Whether a part of the examination goes to items that the requests do not show."""
        return self.weight == "exposure" and self.is_off and self.mean < 1

    @property
    def place_text(self) -> str:
        """``step weights at position 2``: how messages refer to these weights."""
        where = "" if self.position is None else f" at position {self.position}"
        return f"{self.weight} weights{where}"


def list_weight_terms(
    policy: str, columns: RequestColumns, kinds: Sequence[str]
) -> Iterator[tuple[str, Term, Column]]:
    """The checks that weights have mean 1: the name, the term of the mean, and the weights.

    There is one check for each kind, but one for each slot for weights of single slots.
    """
    for kind in kinds:
        if kind == "slate":
            yield _name(policy, kind, 0), Term(columns.slate_weight), columns.slate_weight
        elif kind == "additive":
            yield _name(policy, kind, 0), Term(columns.additive_weight), columns.additive_weight
        elif kind == "exposure":
            curve = [
                th * shown for th, shown in zip(columns.examination, columns.is_shown, strict=True)
            ]
            weights = columns.exposure_weight
            covered = total([e * th for e, th in zip(weights, curve, strict=True)])
            yield _name(policy, kind, 0), Term(covered, total(curve)), covered
        else:
            weights = columns.step_weight if kind == "step" else columns.marginal_weight
            for slot, (weight, shown) in enumerate(zip(weights, columns.is_shown, strict=True), 1):
                yield _name(policy, kind, slot), Term(weight * shown, shown), weight * shown


def _name(policy: str, kind: str, position: int) -> str:
    return f"{position}|{kind}|{policy}"


def summarize_weights(weights: Mapping[str, Vector]) -> dict[str, Vector]:
    """By name: sum, sum of squares, number of non-zero weights, and largest weight."""
    return {
        name: np.array([w.sum(), np.square(w).sum(), (w != 0).sum(), w.max(initial=0.0)])
        for name, w in weights.items()
    }


def combine_summaries(parts: Sequence[Mapping[str, Vector]]) -> dict[str, Vector]:
    """The summaries of all parts of a log together."""
    combined: dict[str, Vector] = {}
    for part in parts:
        for name, summary in part.items():
            before = combined.get(name, np.zeros(4))
            combined[name] = np.append(before[:3] + summary[:3], max(before[3], summary[3]))
    return combined


def make_checks(sums: TermSums, summaries: Mapping[str, Vector]) -> tuple[WeightCheck, ...]:
    """The checks, from the sums of their terms and the summaries of their weights."""
    if not sums.names:
        return ()
    estimate = sums.estimate()
    checks = []
    for index, name in enumerate(sums.names):
        position, kind, policy = name.split("|", 2)
        total, squares, n_positive, largest = summaries[name]
        mean = estimate.of(index, level=LEVEL)
        checks.append(
            WeightCheck(
                policy=policy,
                weight=kind,
                position=int(position) or None,
                mean=mean.value,
                std_error=mean.std_error,
                low=mean.value - MAX_ERRORS * mean.std_error,
                high=mean.high,
                n_positive=int(n_positive),
                effective=float(total**2 / squares) if squares > 0 else 0.0,
                largest=float(largest),
            )
        )
    return tuple(checks)


def describe_reordered(checks: Sequence[WeightCheck], policies: Sequence[str]) -> Iterator[str]:
    """Which of the policies give all examination of each request to the items that it showed."""
    equal = [
        repr(check.policy)
        for check in checks
        if check.policy in policies
        and check.weight == "exposure"
        and max(abs(check.mean - 1), check.std_error) <= ROUNDING
    ]
    if equal:
        verb, their = ("shows", "its") if len(equal) == 1 else ("show", "their")
        yield (
            f"{join_words(equal)} {verb} in each request the same items as the log, which is wrong "
            f"if {their} positions are places among the shown items of a longer ranking"
        )


def explain_check(
    check: WeightCheck, n_requests: int, *, is_logging_stated: bool
) -> PropensityWarning | None:
    """What is wrong with these weights; None if nothing is.

    ``is_logging_stated`` says that logged probabilities follow from a policy that the caller names.
    """
    if check.lacks_rewards:
        keep = "Evaluate a policy that shows items of the log to the same users."
        return PropensityWarning(
            f"policy {check.policy!r} gives {1 - check.mean:.2%} of the examination to items that "
            "are not in the requests it is evaluated on: their rewards are unknown, so 'pbm' and "
            "'snpbm' have no value.",
            parameter="targets",
            value=check.mean,
            remedy=keep
            if is_logging_stated
            else "If the requests come from several rankings, as in an A/B test, pass "
            f"`logging=PolicyMixture([...])` of all of them. {keep}",
            shell_remedy=keep
            if is_logging_stated
            else "If the requests come from several rankings, as in an A/B test, name the column "
            f"of positions of every one with `arm=...`. {keep}",
        )
    if not check.n_positive:
        return PropensityWarning(
            f"no request has {check.place_text} above 0 under policy {check.policy!r}: the log "
            "never shows what it would show.",
            parameter="targets",
            value=0,
            remedy="Evaluate a policy that is nearer to the log, or use an estimator that needs "
            "less overlap.",
        )
    if check.is_off:
        return PropensityWarning(
            f"the mean of the {check.place_text} of policy {check.policy!r} is {check.mean:.4g} "
            f"(standard error {check.std_error:.2g}), but it must be 1.",
            parameter="probability_is",
            value=check.mean,
            remedy=_list_causes(check, is_logging_stated=is_logging_stated),
        )
    if check.n_positive < FEW_REQUESTS:
        return PropensityWarning(
            f"only {check.n_positive:,} of {n_requests:,} requests have {check.place_text} above 0 "
            f"under policy {check.policy!r}: intervals are not reliable.",
            parameter="targets",
            value=check.n_positive,
            remedy="Use a longer log, fewer slots, or a policy that is nearer to the log.",
        )
    return None


def _list_causes(check: WeightCheck, *, is_logging_stated: bool) -> str:
    """Why the mean of some weights is not 1: a list that says what to look at."""
    causes = []
    if check.mean < 1:
        causes.append("the policy shows items that the log never shows")
    if is_logging_stated:
        causes.append(
            "the log was made in another way than stated: by other scores, shares, candidates or "
            "another temperature"
        )
    elif check.weight != "exposure":
        causes.append(
            "the probabilities are of another kind than stated ('step' and 'marginal' are easily "
            "confused), or they are wrong"
        )
    else:
        causes.append("the logged probabilities are wrong")
    if check.weight == "exposure":
        causes.append("the examination curve is wrong")
    causes.append("the policy was trained on this log")
    if check.mean > 1:
        causes.append(
            "its new positions are places among the shown items instead of among all candidates"
        )
    return f"Either {', or '.join(causes)}."
