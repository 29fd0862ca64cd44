"""Limits on the numbers of a result: ``snips.mae.ci_high>0.9`` fails where that is above 0.9. Nothing is run as code."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from unskew.errors import GateError, UsageError

COMPARISONS: Mapping[str, Callable[[float, float], bool]] = {
    "<=": operator.le,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    ">": operator.gt,
}
FORM = re.compile(
    r"\s*(?P<name>.+?)\s*(?P<sign><=|>=|==|!=|<|>)\s*(?P<limit>[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?)\s*"
)

LOG = "the log"
GROUP = " where "
"""Between what a number is of and the group it is of."""

Numbers: TypeAlias = Mapping[str, Mapping[str, float | None]]
"""By name, and by what they are of (a model, perhaps in a group); None where it was not measured."""


@dataclass(frozen=True, slots=True)
class Gate:
    """A limit on a number, or on all numbers of one name."""

    text: str
    name: str
    sign: str
    limit: float

    @classmethod
    def parse(cls, text: str) -> Gate:
        """``NAME<NUMBER``, with any of ``< <= > >= == !=``."""
        found = FORM.fullmatch(text)
        if found is None:
            raise UsageError(
                f"a gate reads NAME<NUMBER, with one of {' '.join(COMPARISONS)}; got {text!r}."
            )
        return cls(text, found["name"], found["sign"], float(found["limit"]))

    def trips(self, numbers: Numbers) -> Iterator[str]:
        """What is beyond the limit. A name that is not there, or a number that was not measured, is an error."""
        for of, value in self._meant(numbers).items():
            if value is None or value != value:  # not measured
                raise UsageError(
                    f"the gate {self.text!r} cannot be checked: {self.name} of {of} was not measured."
                )
            if COMPARISONS[self.sign](value, self.limit):
                yield f"{self.text}: it is {value:.6g} for {of}"

    def _meant(self, numbers: Numbers) -> Mapping[str, float | None]:
        if self.name in numbers:
            return numbers[self.name]
        for name, values in numbers.items():
            meant = {
                of: value for of, value in values.items() if self.name == f"{name}.{_model(of)}"
            }
            if meant:
                return meant
        models = dict.fromkeys(
            _model(of) for values in numbers.values() for of in values if _model(of) != LOG
        )
        raise UsageError(
            f"unknown number {self.name!r} in the gate {self.text!r}; valid ones are: {', '.join(numbers)}; "
            f"to mean one model's, add {' or '.join(f'.{model}' for model in models)}."
        )


def _model(of: str) -> str:
    return of.partition(GROUP)[0]


def check_gates(gates: Sequence[Gate], numbers: Numbers) -> tuple[str, ...]:
    """Every gate that trips, in words."""
    return tuple(said for gate in gates for said in gate.trips(numbers))


def refuse_tripped(tripped: Sequence[str]) -> None:
    """Raise where a gate tripped."""
    if tripped:
        raise GateError("; ".join(tripped))
