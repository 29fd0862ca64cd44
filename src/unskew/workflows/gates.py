"""Limits on the numbers of a result, such as ``snips.mae.ci_high>0.9``. Nothing runs as code."""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias, TypeGuard

from unskew.errors import GateError, UsageError

COMPARISONS: Mapping[str, Callable[[float, float], bool]] = {
    "<=": operator.le,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    ">": operator.gt,
}
EXPRESSION = re.compile(
    r"\s*(?P<name>.+?)\s*(?P<sign><=|>=|==|!=|<|>)"
    r"\s*(?P<limit>[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?)\s*"
)

LOG = "the log"
"""The subject of numbers that do not belong to a model."""
GROUP = " where "
"""Separates the model from the group in a subject."""

Numbers: TypeAlias = Mapping[str, Mapping[str, float | None]]
"""By name and by subject (a model, perhaps in a group); None if it was not measured."""


@dataclass(frozen=True, slots=True)
class Gate:
    """A limit on all numbers with one name. It trips if the comparison is true for one of them."""

    text: str
    name: str
    sign: str
    limit: float

    @classmethod
    def parse(cls, text: str) -> Gate:
        """Parse ``NAME<NUMBER``, with any of ``< <= > >= == !=``."""
        parts = EXPRESSION.fullmatch(text)
        if parts is None:
            raise UsageError(
                f"a limit must be NAME<NUMBER, with one of {' '.join(COMPARISONS)}; got {text!r}.",
                parameter="fail_if",
                value=text,
                remedy="An example is 'snips.mae.ci_high>0.9'.",
            )
        return cls(text, parts["name"], parts["sign"], float(parts["limit"]))

    def find_violations(self, numbers: Numbers) -> Iterator[str]:
        """Each number beyond the limit, in words; an error for one that was not measured."""
        for subject, value in self._select(numbers).items():
            if not _is_measured(value):
                measured = [
                    name for name, of in numbers.items() if all(map(_is_measured, of.values()))
                ]
                raise UsageError(
                    f"{self.text!r} cannot be tested: {self.name} of {subject} was not measured.",
                    parameter="fail_if",
                    value=self.text,
                    remedy=f"Numbers that were measured are: {', '.join(measured)}."
                    if measured
                    else "",
                )
            if COMPARISONS[self.sign](value, self.limit):
                yield f"{self.text} is true for {subject}, whose value is {value:.6g}"

    def _select(self, numbers: Numbers) -> Mapping[str, float | None]:
        """The numbers with this name, or with this name for one model: ``NAME.MODEL``."""
        if self.name in numbers:
            return numbers[self.name]
        for name, values in numbers.items():
            by_model = {
                subject: value
                for subject, value in values.items()
                if self.name == f"{name}.{_find_model(subject)}"
            }
            if by_model:
                return by_model
        models = {_find_model(subject): None for values in numbers.values() for subject in values}
        suffixes = [f".{model}" for model in models if model != LOG]
        raise UsageError(
            f"unknown number {self.name!r} in {self.text!r}; "
            f"valid names are: {', '.join(numbers)}.",
            parameter="fail_if",
            value=self.text,
            remedy=f"Add {' or '.join(suffixes)} for the number of one model.",
        )


def _is_measured(value: float | None) -> TypeGuard[float]:
    return value is not None and not math.isnan(value)


def _find_model(subject: str) -> str:
    return subject.partition(GROUP)[0]


def check_gates(gates: Sequence[Gate], numbers: Numbers) -> tuple[str, ...]:
    """The numbers beyond the limits, in words."""
    return tuple(text for gate in gates for text in gate.find_violations(numbers))


def require_passed(violations: Sequence[str]) -> None:
    """Raise an error if a number is beyond a limit."""
    if violations:
        raise GateError("; ".join(violations))
