"""The columns of a request as expressions of a query, after its rows were pivoted by position.

A row of the log has the weight pi / mu of its item. The pivoted table has one row for each request:
``reward_2`` is the reward of its second slot, and so for all other values of a row. Without that
slot, ``shown_2`` is 0, the weight is 1, and other values are 0.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from operator import mul
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

Operand: TypeAlias = "Formula | float"


@dataclass(frozen=True, slots=True, eq=False)
class Formula:
    """A number for each row of a query; formulas of one text have equal values."""

    text: str
    expression: nw.Expr

    @classmethod
    def of_column(cls, name: str) -> Formula:
        """The values of a column."""
        return cls(name, nw.col(name))

    def __add__(self, other: Operand) -> Formula:
        return self._combine("+", operator.add, other)

    def __sub__(self, other: Operand) -> Formula:
        return self._combine("-", operator.sub, other)

    def __mul__(self, other: Operand) -> Formula:
        is_one = not isinstance(other, Formula) and other == 1.0
        return self if is_one else self._combine("*", operator.mul, other)

    __rmul__ = __mul__

    def is_nonzero(self) -> Formula:
        """1 where the number is not 0, else 0."""
        return Formula(f"({self.text} != 0)", (self.expression != 0).cast(nw.Float64))

    def _combine(
        self, sign: str, combine: Callable[[nw.Expr, nw.Expr | float], nw.Expr], other: Operand
    ) -> Formula:
        if isinstance(other, Formula):
            return Formula(
                f"({self.text} {sign} {other.text})", combine(self.expression, other.expression)
            )
        return Formula(f"({self.text} {sign} {other!r})", combine(self.expression, other))


Formulas: TypeAlias = list[Formula]
"""One formula for each slot."""


def slot_columns(name: str, n_slots: int) -> Formulas:
    """The pivoted value of each slot."""
    return [Formula.of_column(f"{name}_{slot}") for slot in range(1, n_slots + 1)]


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

    def find_exposure(self, curve: Sequence[float], n_shown: Formula | float) -> Formulas:
        """Sum over slots j of ``curve[j]`` P(the item shown at slot k is at slot j)."""
        size = n_shown.expression if isinstance(n_shown, Formula) else nw.lit(n_shown)

        def is_at(position: Formula, new: int) -> Formula:
            is_there = (position.expression == new) & (size >= new)
            return Formula(f"({position.text} is {new})", is_there.cast(nw.Float64))

        return [
            total([is_at(position, new) * examined for new, examined in enumerate(curve, 1)])
            for position in slot_columns(self.column, len(curve))
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
    is_complete: bool = False
    """Whether every request has all slots; no column then says which it has."""

    @property
    def n_slots(self) -> int:
        return len(self.worth)

    def find_weight(self) -> nw.Expr:
        """pi / mu of each row."""
        return self.target.find_factor() / self.logging.find_factor()

    def list_running_products(self) -> dict[str, nw.Expr]:
        """Columns to add: the product of weights down to each slot."""
        products = accumulate(self.marginal_weight, mul)
        return {
            f"running_{self.name}_{slot}": product.expression
            for slot, product in enumerate(products, 1)
        }

    def _scale(self, column: str) -> Formulas:
        values = zip(slot_columns(column, self.n_slots), self.worth.tolist(), strict=True)
        return [value * worth for value, worth in values]

    @property
    def reward(self) -> Formulas:
        return self._scale("reward")

    @property
    def is_shown(self) -> Sequence[Formula | float]:
        return [1.0] * self.n_slots if self.is_complete else slot_columns("shown", self.n_slots)

    @property
    def slate_weight(self) -> Formula:
        return self.step_weight[-1]

    @property
    def step_weight(self) -> Formulas:
        return slot_columns(f"running_{self.name}", self.n_slots)

    @property
    def weight_above(self) -> list[Formula | float]:
        return [1.0, *self.step_weight[:-1]]

    @property
    def marginal_weight(self) -> Formulas:
        return slot_columns(f"weight_{self.name}", self.n_slots)

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
    def exposure_weight(self) -> Formulas:
        if self.logging.kind is not None:  # one slot: exposure is in proportion to probability
            return self.marginal_weight
        new = self.target.find_exposure(self.examination, total(self.is_shown))
        slots = zip(new, self.examination, self.is_shown, strict=True)
        return [exposed * (1.0 / examined) * shown for exposed, examined, shown in slots]

    @property
    def additive_weight(self) -> Formula:
        if not self.logging.is_product:
            raise UsageError(
                "'pi' can be computed from a data frame only if the logging policy fills each "
                "slot independently of the others.",
                parameter="probability_is",
                remedy="If it does, pass `probability_is='product'`; otherwise leave out 'pi'.",
            )
        weight: Formula = total([each - 1.0 for each in self.marginal_weight]) + 1.0
        return weight

    @property
    def prediction(self) -> Formulas:
        self._require_regression()
        return self._scale(f"prediction_{self.name}")

    @property
    def policy_mean(self) -> Formulas:
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
