"""The estimators of a policy's value: functions from the columns of a request to terms.

With W = pi(s)/mu(s), omega_k = prod over j <= k of step_pi/step_mu, w_k = pi_k(s_k)/mu_k(s_k), the
reward c_k of slot k (times the worth of the slot), R = sum_k c_k, and regressions q and v:

    name         value of a request                      unbiased if the mean of c_k given the slate
    ips          W R                                     is anything
    rips         sum_k omega_k c_k                       depends on s_1, ..., s_k only (cascade)
    iips         sum_k w_k c_k                           depends on k and s_k only
    pbm          sum_k e(s_k) c_k                        is th_k g(s_k), th the examination curve
    pi           (q' G+ 1_s) R                           adds up over slots to sum_k phi(k, s_k)
    dm           sum_k v_k                               is q
    dr           W (R - sum_k q_k) + sum_k v_k           is anything
    iips-dr      sum_k w_k (c_k - q_k) + v_k             as for iips
    cascade-dr   sum_k omega_k (c_k - q_k) + omega_k-1 v_k     as for rips

Here e(a) = sum_j th_j pi_j(a) / sum_j th_j mu_j(a). Names that begin with ``sn`` are
self-normalised: they divide by the mean of their weights, slot by slot where weights differ by
slot, except for ``snpbm``, whose weights have mean 1 only over all slots together.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from unskew.policies import POLICY_ESTIMATORS, PolicyEstimator
from unskew.policies.columns import RequestColumns
from unskew.policies.terms import Column, Term, total


def _declare(
    name: str, label: str, summary: str, *, order: int, needs: str, unbiased_if: str
) -> Callable[[PolicyEstimator], PolicyEstimator]:
    traits = {
        "order": order,
        "needs": tuple(needs.split()),
        "unbiased_if": unbiased_if,
        "assumes": ASSUMES[unbiased_if],
    }
    return POLICY_ESTIMATORS.declare(name, label=label, summary=summary, traits=traits)


ANY_USERS = "the logged probabilities are right, whatever users do"
CASCADE = (
    "the logged probabilities are right, and the reward of a slot depends on the items shown down "
    "to it, not below it"
)
INDEPENDENT = (
    "the logged probabilities are right, and the reward of a slot depends on its item and position "
    "alone"
)
POSITION_BASED = (
    "the reward is the examination of the slot times the relevance of its item, and both the "
    "examination curve and the logged probabilities are right"
)
ADDITIVE = (
    "the logged probabilities are right, and the total reward is a sum of effects of items at "
    "positions"
)
REGRESSION = "the regression is right"
ASSUMES = {
    ANY_USERS: 0,
    CASCADE: 1,
    ADDITIVE: 1,
    INDEPENDENT: 2,
    POSITION_BASED: 3,
    REGRESSION: 4,
}
"""How much a condition assumes about users; a higher number includes those of lower ones."""


@_declare("ips", "IPS", "IPS weights each request by pi(slate) / mu(slate).",
          order=1, needs="slate", unbiased_if=ANY_USERS)  # fmt: skip
def ips(columns: RequestColumns) -> list[Term]:
    """W R: unbiased for any users."""
    return [Term(columns.slate_weight * total(columns.reward))]


@_declare("snips", "SNIPS", "SNIPS is IPS divided by the mean of its weights.",
          order=2, needs="slate", unbiased_if=ANY_USERS)  # fmt: skip
def snips(columns: RequestColumns) -> list[Term]:
    """sum W R / sum W, over all requests."""
    weight = columns.slate_weight
    return [Term(weight * total(columns.reward), weight)]


@_declare("rips", "RIPS", "RIPS weights each slot by the items shown down to it.",
          order=3, needs="step", unbiased_if=CASCADE)  # fmt: skip
def rips(columns: RequestColumns) -> list[Term]:
    """sum_k omega_k c_k: unbiased for cascade users."""
    return [Term(total([w * c for w, c in zip(columns.step_weight, columns.reward, strict=True)]))]


@_declare("snrips", "SNRIPS", "SNRIPS is RIPS with each slot divided by its mean weight.",
          order=4, needs="step", unbiased_if=CASCADE)  # fmt: skip
def snrips(columns: RequestColumns) -> list[Term]:
    """sum_k (sum omega_k c_k / sum omega_k), slot by slot."""
    return _normalize_slots(columns.step_weight, columns)


@_declare("iips", "IIPS", "IIPS weights each slot by the probabilities of its item there.",
          order=5, needs="marginal", unbiased_if=INDEPENDENT)  # fmt: skip
def iips(columns: RequestColumns) -> list[Term]:
    """sum_k w_k c_k: unbiased if a slot's reward depends on its item and position alone."""
    weights = columns.marginal_weight
    return [Term(total([w * c for w, c in zip(weights, columns.reward, strict=True)]))]


@_declare("sniips", "SNIIPS", "SNIIPS is IIPS with each slot divided by its mean weight.",
          order=6, needs="marginal", unbiased_if=INDEPENDENT)  # fmt: skip
def sniips(columns: RequestColumns) -> list[Term]:
    """sum_k (sum w_k c_k / sum w_k), slot by slot."""
    return _normalize_slots(columns.marginal_weight, columns)


def _normalize_slots(weights: Sequence[Column], columns: RequestColumns) -> list[Term]:
    """One ratio for each slot, over the requests that have the slot."""
    slots = zip(weights, columns.reward, columns.is_shown, strict=True)
    return [Term(weight * reward, weight * shown, shown) for weight, reward, shown in slots]


@_declare("pbm", "PBM", "PBM compares how much examination both policies give to an item.",
          order=7, needs="exposure", unbiased_if=POSITION_BASED)  # fmt: skip
def pbm(columns: RequestColumns) -> list[Term]:
    """sum_k e(s_k) c_k: unbiased for position-based users with the given examination curve."""
    weights = columns.exposure_weight
    return [Term(total([e * c for e, c in zip(weights, columns.reward, strict=True)]))]


@_declare("snpbm", "SNPBM", "SNPBM is PBM divided by the share of examination that it covers.",
          order=8, needs="exposure", unbiased_if=POSITION_BASED)  # fmt: skip
def snpbm(columns: RequestColumns) -> list[Term]:
    """Self-normalised PBM: sum e c / sum th e, times the mean of sum th, over all slots.

    e is the exposure weight, c the reward and th the examination of a slot.
    """
    (term,) = pbm(columns)
    slots = zip(columns.examination, columns.exposure_weight, columns.is_shown, strict=True)
    parts = [(th * e * shown, th * shown) for th, e, shown in slots]
    base, expected = (total(each) for each in zip(*parts, strict=True))
    return [Term(term.numerator, base, expected)]


@_declare("pi", "PI", "PI (the pseudo-inverse estimator) reads the total reward of a slate only.",
          order=9, needs="additive", unbiased_if=ADDITIVE)  # fmt: skip
def pseudo_inverse(columns: RequestColumns) -> list[Term]:
    """(q' G+ 1_s) R: unbiased if the total reward is additive over slots."""
    return [Term(columns.additive_weight * total(columns.reward))]


@_declare("snpi", "SNPI", "SNPI is PI divided by the mean of its weights.",
          order=10, needs="additive", unbiased_if=ADDITIVE)  # fmt: skip
def self_normalized_pseudo_inverse(columns: RequestColumns) -> list[Term]:
    """PI divided by the mean of its weights, over all requests."""
    weight = columns.additive_weight
    return [Term(weight * total(columns.reward), weight)]


@_declare("dm", "DM", "DM (the direct method) is the mean prediction of a regression.",
          order=11, needs="regression", unbiased_if=REGRESSION)  # fmt: skip
def direct_method(columns: RequestColumns) -> list[Term]:
    """sum_k v_k, with v_k the mean of the regression at slot k under the target policy."""
    return [Term(total(columns.policy_mean))]


@_declare("dr", "DR", "DR corrects a regression by the weighted errors of whole slates.",
          order=12, needs="slate regression", unbiased_if=ANY_USERS)  # fmt: skip
def doubly_robust(columns: RequestColumns) -> list[Term]:
    """W (R - sum q) + sum v: unbiased for any users and any regression."""
    error = total(columns.reward) - total(columns.prediction)
    return [Term(columns.slate_weight * error + total(columns.policy_mean))]


@_declare("iips-dr", "IIPS-DR", "IIPS-DR corrects a regression slot by slot.",
          order=13, needs="marginal regression", unbiased_if=INDEPENDENT)  # fmt: skip
def doubly_robust_iips(columns: RequestColumns) -> list[Term]:
    """sum_k w_k (c_k - q_k) + v_k: unbiased where iips is, for any regression."""
    slots = zip(
        columns.marginal_weight,
        columns.reward,
        columns.prediction,
        columns.policy_mean,
        strict=True,
    )
    return [Term(total([w * (c - q) + v for w, c, q, v in slots]))]


@_declare("cascade-dr", "Cascade-DR", "Cascade-DR corrects a regression down the slate.",
          order=14, needs="step regression", unbiased_if=CASCADE)  # fmt: skip
def cascade_doubly_robust(columns: RequestColumns) -> list[Term]:
    """sum_k omega_k (c_k - q_k) + omega_k-1 v_k, with v_k the mean of q_k given the slots above.

    The best q_k is the value of slots k to K under the target policy.
    """
    slots = zip(
        columns.step_weight,
        columns.weight_above,
        columns.reward,
        columns.prediction,
        columns.policy_mean,
        strict=True,
    )
    return [Term(total([w * (c - q) + above * v for w, above, c, q, v in slots]))]
