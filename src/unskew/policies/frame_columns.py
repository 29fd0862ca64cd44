"""The columns of a request as expressions of a query, after its rows were pivoted by position.

A row of the log has the weight pi / mu of its item. The pivoted table has one row for each request:
``reward_2`` is the reward of its second slot, 0 without one; so for all other values of a row.
``shown_2`` is 1 if the request has that slot, else 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import narwhals.stable.v2 as nw

from unskew.data.impressions import ProbabilityKind
from unskew.errors import UsageError
from unskew.policies.probabilities import KINDS, WORDS
from unskew.policies.targets import (
    Policy,
    TargetProbability,
    TargetRanking,
    unknown_kind_error,
)
from unskew.policies.terms import total
from unskew.types import Vector

Expressions: TypeAlias = list[nw.Expr]
"""One expression for each slot."""


def slot_column(name: str, slot: int) -> nw.Expr:
    """The value of a slot, counted from 1."""
    return nw.col(f"{name}_{slot}")


@dataclass(frozen=True, slots=True)
class FramePolicy:
    """A policy whose probabilities are a column of the frame; without a kind it has none."""

    column: str
    kind: ProbabilityKind | None
    is_ranking: bool = False
    """Whether the column has the new position of each item, and probabilities are 0 or 1."""
    n_slots: int = 1

    @property
    def provided(self) -> frozenset[str]:
        """Which of slate, step, marginal and exposure can be computed."""
        if self.is_ranking or (self.n_slots == 1 and self.kind is not None):
            return frozenset(WORDS)
        return frozenset({"exposure"}) if self.kind is None else KINDS[self.kind]

    @property
    def is_product(self) -> bool:
        """Whether slots are filled independently."""
        return self.kind == "product" or self.n_slots == 1

    def find_factor(self) -> nw.Expr:
        """The factor of each row in the probability of its slate."""
        value = nw.col(self.column)
        if self.is_ranking:
            return (value == nw.col("position")).cast(nw.Float64)
        if self.kind == "slate":
            return nw.when(nw.col("position") == 1).then(value).otherwise(nw.lit(1.0))
        return value

    def find_exposure(self, curve: Sequence[float]) -> Expressions:
        """Sum over slots j of ``curve[j]`` P(the item shown at slot k is at slot j)."""
        slots = range(1, len(curve) + 1)
        if not self.is_ranking:
            return [nw.lit(examined) for examined in curve]
        size = total([slot_column("shown", slot) for slot in slots])
        return [
            total(
                [
                    ((slot_column(self.column, slot) == new) & (size >= new)).cast(nw.Float64)
                    * examined
                    for new, examined in enumerate(curve, 1)
                ]
            )
            for slot in slots
        ]

    def require_provided(self, needs: Sequence[str], estimator: str, name: str) -> None:
        """Raise an error if the policy does not have the probabilities that an estimator needs."""
        missing = [kind for kind in needs if kind in WORDS and kind not in self.provided]
        if missing:
            raise UsageError(
                f"{estimator!r} needs {WORDS[missing[0]]}, which the policy {name!r} does not "
                "have.",
                parameter="estimators",
                value=estimator,
                remedy=f"Use an estimator that reads {', '.join(sorted(self.provided))}.",
            )


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
    """The probabilities of a target policy, from the column ``target_NAME``."""
    if isinstance(policy, TargetRanking):
        return FramePolicy(f"target_{name}", "step", is_ranking=True, n_slots=n_slots)
    assert isinstance(policy, TargetProbability)
    kind = policy.probability_is or log_kind
    if kind is None:
        raise unknown_kind_error(name)
    return FramePolicy(f"target_{name}", kind, n_slots=n_slots)


@dataclass(frozen=True, slots=True)
class FrameColumns:
    """The columns of requests under one target policy, as expressions of the pivoted table."""

    name: str
    logging: FramePolicy
    target: FramePolicy
    worth: Vector
    curve: Vector | None = None
    has_regression: bool = False

    @property
    def n_slots(self) -> int:
        return len(self.worth)

    def find_weight(self) -> nw.Expr:
        """pi / mu of each row."""
        return self.target.find_factor() / self.logging.find_factor()

    def list_running_products(self) -> list[dict[str, nw.Expr]]:
        """Stages of columns to add: the product of weights down to a slot, from the one above."""
        stages = []
        for slot, weight in enumerate(self.marginal_weight, 1):
            above = slot_column(f"running_{self.name}", slot - 1)
            product = weight if slot == 1 else above * weight
            stages.append({f"running_{self.name}_{slot}": product})
        return stages

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
        return self.step_weight[-1]

    @property
    def step_weight(self) -> Expressions:
        return [slot_column(f"running_{self.name}", slot) for slot in range(1, self.n_slots + 1)]

    @property
    def weight_above(self) -> Expressions:
        return [nw.lit(1.0), *self.step_weight[:-1]]

    @property
    def marginal_weight(self) -> Expressions:
        return [
            slot_column(f"weight_{self.name}", slot) + (1.0 - shown)
            for slot, shown in enumerate(self.is_shown, 1)
        ]

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
        if self.logging.kind is not None:  # one slot: exposure is in proportion to probability
            return self.marginal_weight
        new = self.target.find_exposure(self.examination)
        slots = zip(new, self.examination, self.is_shown, strict=True)
        return [exposed * (1.0 / examined) * shown for exposed, examined, shown in slots]

    @property
    def additive_weight(self) -> nw.Expr:
        if not self.logging.is_product:
            raise UsageError(
                "'pi' has a closed form in a frame only for logging policies that fill slots "
                "independently.",
                parameter="probability_is",
                remedy="Say so with `probability_is='product'`, or use another estimator.",
            )
        weight: nw.Expr = total([each - 1.0 for each in self.marginal_weight]) + 1.0
        return weight

    @property
    def prediction(self) -> Expressions:
        self._require_regression()
        return self._scale(f"prediction_{self.name}")

    @property
    def policy_mean(self) -> Expressions:
        self._require_regression()
        return self._scale(f"mean_{self.name}")

    def _require_regression(self) -> None:
        if not self.has_regression:
            raise UsageError(
                "doubly robust estimators and 'dm' need a regression: the predicted reward q of "
                "each shown item, and its mean v under the target policy.",
                parameter="regression",
                remedy="Pass `regression=('q', 'v')`, the names of two columns of the frame.",
            )
