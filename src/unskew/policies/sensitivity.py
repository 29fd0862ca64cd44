"""How values of policies change if weights are clipped, or if logged probabilities are wrong.

If each weight is only known up to a factor F, it lies within [w / F, w F]. A value is linear in the
weights or a ratio of two linear functions, so it is largest at a corner of this box. Weights of
different slots are varied on their own, which can only make the range wider.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from scipy.optimize import brentq

from unskew.data.result import Result
from unskew.errors import UsageError
from unskew.estimators.odds import WeightBox, largest_ratio
from unskew.estimators.transforms import Clip
from unskew.policies import POLICY_ESTIMATORS
from unskew.policies.columns import ArrayColumns
from unskew.settings import Number, require_list
from unskew.types import Vector

if TYPE_CHECKING:
    from unskew.policies.result import PolicyEvaluation

CLIP, FACTOR = "clip", "factor"
LARGEST_FACTOR = 100.0

WeightedRewards = list[tuple[Vector, Vector]]
"""Weights and rewards of requests: one pair for the slate, or one for each slot."""
WEIGHTED: Mapping[str, tuple[Callable[[ArrayColumns], WeightedRewards], bool]] = {
    "ips": (lambda c: [(c.slate_weight, c.reward.sum(axis=0))], False),
    "snips": (lambda c: [(c.slate_weight, c.reward.sum(axis=0))], True),
    "rips": (lambda c: list(zip(c.step_weight, c.reward, strict=True)), False),
    "snrips": (lambda c: list(zip(c.step_weight * c.is_shown, c.reward, strict=True)), True),
    "iips": (lambda c: list(zip(c.marginal_weight, c.reward, strict=True)), False),
    "sniips": (lambda c: list(zip(c.marginal_weight * c.is_shown, c.reward, strict=True)), True),
    "pbm": (lambda c: list(zip(c.exposure_weight, c.reward, strict=True)), False),
}
"""By estimator: its weights and rewards, and whether each pair is divided by its weights."""


@dataclass(frozen=True, slots=True)
class PolicyShift:
    """A value under changed weights."""

    policy: str
    estimator: str
    change: str
    """clip or factor."""
    amount: float
    low: float
    """Lowest value; with clipped weights, the value."""
    high: float
    share_clipped: float | None = None


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class PolicySensitivity(Result):
    """Values of policies under clipped weights and under wrong logged probabilities."""

    kind: ClassVar[str] = "policy_sensitivity"
    shifts: tuple[PolicyShift, ...]
    flips_at: Mapping[tuple[str, str], float]
    """By policy and estimator: the factor at which its order with the logging policy can change."""
    logged: float
    notes: tuple[str, ...] = ()
    backend: str | None = None

    def to_columns(self) -> dict[str, list[Any]]:
        """Policy, estimator, change, amount, low, high, share_clipped."""
        names = [each.name for each in fields(PolicyShift)]
        return {name: [getattr(shift, name) for shift in self.shifts] for name in names}

    def to_record(self) -> dict[str, Any]:
        """The table, and the factor at which each order can change."""
        flips = [
            {"policy": policy, "estimator": estimator, "factor": factor}
            for (policy, estimator), factor in self.flips_at.items()
        ]
        return {
            "rows": [asdict(shift) for shift in self.shifts],
            "flips_at": flips,
            "logged": self.logged,
            "notes": list(self.notes),
        }

    def describe(self) -> str:
        """At which factor each order can change, one line each."""
        return "\n".join([*self._list_flips(), *self.notes])

    def _list_flips(self) -> Iterator[str]:
        for (policy, estimator), factor in self.flips_at.items():
            if math.isinf(factor):
                text = f"does not change for factors up to {LARGEST_FACTOR:g}"
            else:
                text = f"can change if weights are wrong by a factor of {factor:.3g}"
            yield f"the order of {policy} and logged by {estimator} {text}"

    def _footer(self) -> list[str]:
        return [self.describe()]


def vary_weights(
    result: PolicyEvaluation, *, factors: tuple[float, ...], clips: tuple[float, ...]
) -> PolicySensitivity:
    """The values of a result if weights are clipped, or are wrong by a factor.

    Parameters
    ----------
    result
        Of :func:`unskew.evaluate_policies`.
    factors
        Each weight is divided and multiplied by up to this number: the logged probabilities are
        wrong by at most this factor.
    clips
        Largest weights. If a value changes much, a few large weights carry it.
    """
    if not result.inputs:
        raise UsageError(
            "this evaluation did not keep the requests it was computed from.",
            remedy="Evaluate a log in memory with evaluate_policies.",
        )
    for name, amounts, least in (("factors", factors, 1), ("clips", clips, 0)):
        require_list(name, amounts, of="numbers", allow_none=False)
        for amount in amounts:
            Number(least=least)(name, amount)
    shifts: list[PolicyShift] = []
    flips = {}
    logged = result.value("logged").estimate
    used = [name for name in result.estimators if name in WEIGHTED]
    for policy, columns in result.inputs.items():
        for estimator in used:
            if policy not in result.estimated[estimator]:
                continue
            shifts += _clip(policy, estimator, columns, clips)
            for factor in factors:
                low, high = _find_range(estimator, columns, factor)
                shifts.append(PolicyShift(policy, estimator, FACTOR, factor, low, high))
            flips[policy, estimator] = _find_flip(estimator, columns, logged)
    others = [name for name in result.estimators if name not in WEIGHTED]
    notes = (f"not varied: {', '.join(others)}",) if others else ()
    return PolicySensitivity(tuple(shifts), flips, logged, notes, result.backend)


def _clip(
    policy: str, estimator: str, columns: ArrayColumns, clips: tuple[float, ...]
) -> Iterator[PolicyShift]:
    pairs, _ = WEIGHTED[estimator]
    weights = np.stack([weight for weight, _ in pairs(replace(columns, transform=None))])
    for largest in clips:
        terms = POLICY_ESTIMATORS.find(estimator).target(replace(columns, transform=Clip(largest)))
        value = sum(
            float(term.numerator.sum() / _sum(term.base, columns) * _mean(term.expected, columns))
            for term in terms
        )
        share = float((weights > largest).mean())
        yield PolicyShift(policy, estimator, CLIP, largest, value, value, share)


def _sum(column: Vector | None, columns: ArrayColumns) -> float:
    return float(columns.shown.n_requests if column is None else column.sum())


def _mean(column: Vector | None, columns: ArrayColumns) -> float:
    return _sum(column, columns) / columns.shown.n_requests


def _find_range(estimator: str, columns: ArrayColumns, factor: float) -> tuple[float, float]:
    """The lowest and the highest value if each weight is wrong by at most ``factor``."""
    pairs, is_ratio = WEIGHTED[estimator]
    low = high = 0.0
    listed = pairs(columns)
    shares = columns.is_shown.mean(axis=1) if len(listed) > 1 else np.ones(1)
    for (weight, reward), share in zip(listed, shares.tolist(), strict=True):
        if is_ratio:
            used = weight > 0
            box = WeightBox(weight[used] / factor, weight[used], weight[used] * factor)
            high += share * _ratio(largest_ratio(reward[used], box).weight, reward[used])
            low += share * _ratio(largest_ratio(-reward[used], box).weight, reward[used])
        else:
            parts = weight * reward
            up, down = parts[parts > 0].sum(), parts[parts < 0].sum()
            n = columns.shown.n_requests
            high += float(up * factor + down / factor) / n
            low += float(up / factor + down * factor) / n
    return low, high


def _ratio(weight: Vector, reward: Vector) -> float:
    return float(weight @ reward / weight.sum())


def _find_flip(estimator: str, columns: ArrayColumns, logged: float) -> float:
    """The factor at which the range of a value begins to include the logged value."""
    low, _ = _find_range(estimator, columns, 1.0)
    if low == logged:
        return 1.0
    end = 0 if low > logged else 1

    def distance(log_factor: float) -> float:
        return _find_range(estimator, columns, math.exp(log_factor))[end] - logged

    if (distance(math.log(LARGEST_FACTOR)) > 0) == (distance(0.0) > 0):
        return math.inf
    return math.exp(brentq(distance, 0.0, math.log(LARGEST_FACTOR), xtol=1e-6))
