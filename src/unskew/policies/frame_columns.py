"""The columns of a request as expressions of a query, after its rows were pivoted by position.

The pivoted table has one row for each request. ``shown_2`` is 1 if the request has a second slot,
and ``reward_2`` is the reward there, 0 without one; so for all other values of a row.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from operator import mul
from typing import TypeAlias

import narwhals.stable.v2 as nw

from unskew.data.impressions import ProbabilityKind
from unskew.errors import UsageError
from unskew.policies.targets import (
    KINDS,
    WORDS,
    Policy,
    TargetProbability,
    TargetRanking,
    unknown_kind_error,
)
from unskew.policies.terms import total
from unskew.types import Vector

Expressions: TypeAlias = list[nw.Expr]
"""One expression for each slot."""
RUNNING = "running_{policy}_{slot}"
"""The column with the product of step_pi / step_mu down to a slot."""


def slot_column(name: str, slot: int) -> nw.Expr:
    """The value of a slot, counted from 1."""
    return nw.col(f"{name}_{slot}")


class FramePolicy(ABC):
    """The probabilities of a policy as expressions; 1 where a request has no such slot."""

    provided: frozenset[str]
    is_product: bool = False

    @abstractmethod
    def at_position(self, n_slots: int) -> Expressions:
        """The probability of the shown item of each slot: step or marginal, whichever it is."""

    def exposure(self, curve: Vector) -> Expressions:
        """Sum over slots j of ``curve[j]`` P(the item shown at slot k is at slot j)."""
        return [probability * float(curve[0]) for probability in self.at_position(len(curve))]

    def slate(self, n_slots: int) -> nw.Expr:
        """The probability of the whole slate."""
        return reduce(mul, self.at_position(n_slots))


@dataclass(frozen=True, slots=True)
class FrameProbabilities(FramePolicy):
    """Probabilities from a column of the frame."""

    name: str
    """Of the pivoted columns."""
    kind: ProbabilityKind
    n_slots: int

    @property
    def provided(self) -> frozenset[str]:  # type: ignore[override]
        return frozenset(WORDS) if self.n_slots == 1 else KINDS[self.kind]

    @property
    def is_product(self) -> bool:  # type: ignore[override]
        return self.kind == "product" or self.n_slots == 1

    def at_position(self, n_slots: int) -> Expressions:
        return [
            slot_column(self.name, slot) + (1.0 - slot_column("shown", slot))
            for slot in range(1, n_slots + 1)
        ]

    def slate(self, n_slots: int) -> nw.Expr:
        if self.kind == "slate":
            return slot_column(self.name, 1)
        return FramePolicy.slate(self, n_slots)


@dataclass(frozen=True, slots=True)
class FrameRanking(FramePolicy):
    """A deterministic ranking: the new position of each shown item, 0 if it is not shown."""

    name: str
    provided = frozenset(WORDS)

    def at_position(self, n_slots: int) -> Expressions:
        return [
            nw.when(slot_column("shown", slot) == 0)
            .then(nw.lit(1.0))
            .otherwise((slot_column(self.name, slot) == slot).cast(nw.Float64))
            for slot in range(1, n_slots + 1)
        ]

    def exposure(self, curve: Vector) -> Expressions:
        size = total([slot_column("shown", slot) for slot in range(1, len(curve) + 1)])
        return [
            total(
                [
                    ((slot_column(self.name, slot) == new) & (size >= new)).cast(nw.Float64)
                    * float(examined)
                    for new, examined in enumerate(curve, 1)
                ]
            )
            for slot in range(1, len(curve) + 1)
        ]


class UnloggedFrame(FramePolicy):
    """A log without probabilities: each slate is taken as what its ranker always shows."""

    provided = frozenset({"exposure"})

    def at_position(self, n_slots: int) -> Expressions:
        raise NotImplementedError

    def exposure(self, curve: Vector) -> Expressions:
        return [nw.lit(float(examined)) for examined in curve]


def name_column(policy: Policy, name: str) -> str:
    """The column of the frame that a target policy reads; ``name`` is named in errors."""
    column = getattr(policy, "position", None) or getattr(policy, "probability", None)
    if not isinstance(column, str):
        raise UsageError(
            f"policy {name!r} is not a column of the frame, but {type(policy).__name__}.",
            parameter="targets",
            remedy="Add its probabilities or positions to the frame, or use evaluate_policies(), "
            "which ranks candidates in memory.",
        )
    return column


def bind_to_frame(
    policy: Policy, name: str, log_kind: ProbabilityKind | None, n_slots: int
) -> FramePolicy:
    """The probabilities of a target policy, whose pivoted columns are ``target_NAME``."""
    column = f"target_{name}"
    if isinstance(policy, TargetRanking):
        return FrameRanking(column)
    assert isinstance(policy, TargetProbability)
    kind = policy.probability_is or log_kind
    if kind is None:
        raise unknown_kind_error(name)
    return FrameProbabilities(column, kind, n_slots)


def require_provided(policy: FramePolicy, needs: Sequence[str], estimator: str, name: str) -> None:
    """Raise an error if the policy does not have the probabilities that an estimator needs."""
    missing = [kind for kind in needs if kind in WORDS and kind not in policy.provided]
    if missing:
        provided = ", ".join(sorted(policy.provided)) or "no probabilities"
        raise UsageError(
            f"{estimator!r} needs {WORDS[missing[0]]}, which the policy {name!r} does not have.",
            parameter="estimators",
            value=estimator,
            remedy=f"Use an estimator that reads {provided}.",
        )


@dataclass(frozen=True, slots=True)
class FrameColumns:
    """The columns of requests under one target policy, as expressions of the pivoted table."""

    name: str
    logging: FramePolicy
    target: FramePolicy
    worth: Vector
    curve: Vector | None = None
    regression: tuple[str, str] | None = None

    @property
    def n_slots(self) -> int:
        return len(self.worth)

    def _scale(self, column: str) -> Expressions:
        return [
            slot_column(column, slot) * float(worth) for slot, worth in enumerate(self.worth, 1)
        ]

    @property
    def reward(self) -> Expressions:
        return self._scale("reward")

    @property
    def is_shown(self) -> Expressions:
        return [slot_column("shown", slot) for slot in range(1, self.n_slots + 1)]

    @property
    def slate_weight(self) -> nw.Expr:
        return self.target.slate(self.n_slots) / self.logging.slate(self.n_slots)

    @property
    def step_weight(self) -> Expressions:
        names = [RUNNING.format(policy=self.name, slot=k) for k in range(1, self.n_slots + 1)]
        return [nw.col(name) for name in names]

    @property
    def weight_above(self) -> Expressions:
        return [nw.lit(1.0), *self.step_weight[:-1]]

    @property
    def marginal_weight(self) -> Expressions:
        targets = self.target.at_position(self.n_slots)
        logged = self.logging.at_position(self.n_slots)
        return [new / old for new, old in zip(targets, logged, strict=True)]

    @property
    def examination(self) -> list[float]:
        if self.curve is None:
            raise UsageError(
                "'pbm' needs the examination of each position.",
                parameter="examination",
                remedy="Pass `examination=...`: a list with a number for each position, or a "
                "fitted PositionBias.",
            )
        return [float(examined) for examined in self.curve]

    @property
    def exposure_weight(self) -> Expressions:
        assert self.curve is not None
        targets, logged = self.target.exposure(self.curve), self.logging.exposure(self.curve)
        return [
            new / old * shown
            for new, old, shown in zip(targets, logged, self.is_shown, strict=True)
        ]

    @property
    def additive_weight(self) -> nw.Expr:
        if not self.logging.is_product:
            raise UsageError(
                "'pi' has a closed form in a frame only for logging policies that fill slots "
                "independently.",
                parameter="probability_is",
                remedy="Say so with `probability_is='product'`, or use another estimator.",
            )
        excess = [
            (weight - 1.0) * shown
            for weight, shown in zip(self.marginal_weight, self.is_shown, strict=True)
        ]
        weight: nw.Expr = total(excess) + 1.0
        return weight

    @property
    def prediction(self) -> Expressions:
        return self._scale(f"prediction_{self._require_regression()}")

    @property
    def policy_mean(self) -> Expressions:
        return self._scale(f"mean_{self._require_regression()}")

    def _require_regression(self) -> str:
        if self.regression is None:
            raise UsageError(
                "doubly robust estimators and 'dm' need a regression: the predicted reward q of "
                "each shown item, and its mean v under the target policy.",
                parameter="regression",
                remedy="Pass `regression=('q', 'v')`, the names of two columns of the frame.",
            )
        return self.name

    def list_running_products(self) -> list[dict[str, nw.Expr]]:
        """Stages of columns to add: each product of step_pi / step_mu uses the one above it."""
        stages = []
        for slot, ratio in enumerate(self.marginal_weight, 1):
            name = RUNNING.format(policy=self.name, slot=slot)
            above = nw.col(RUNNING.format(policy=self.name, slot=slot - 1))
            stages.append({name: ratio if slot == 1 else above * ratio})
        return stages
