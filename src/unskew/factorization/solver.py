"""What all solvers have in common."""

from __future__ import annotations

from typing import Protocol, TypeVar

S = TypeVar("S")
P = TypeVar("P")


class Solver(Protocol[S, P]):
    """Brings parameters down the objective, one step at a time. States are frozen records of arrays and numbers."""

    @property
    def n_steps(self) -> int:
        """Steps of the optimiser that one advance is made of."""
        ...

    def start(self, parameters: P, /) -> S:
        """The state before the first step."""
        ...

    def advance(self, state: S, /) -> S:
        """The state after one more step."""
        ...

    def value(self, state: S, /) -> float:
        """The objective."""
        ...

    def has_stalled(self, state: S, /) -> bool:
        """Whether no further step can be made."""
        ...

    def parameters(self, state: S, /) -> P:
        """What the state means."""
        ...
