"""Alternation with momentum, whatever is alternated.

A sweep maps an item side to a better one. It starts a little beyond where the last one ended (Nesterov's step, with restarts as
in O'Donoghue & Candes 2015), which halves the sweeps of plain alternation or better; where the objective would rise, the sweep is
done again without momentum, so that it never does. As long as sweeps gain much, they may be rough ones.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace

from unskew.factorization.parameters import Floats, Parameters

SETTLED = 1e-4
"""Share of the objective that a rough sweep has to take off for the next to be rough, too."""


@dataclass(frozen=True, slots=True, eq=False)
class Items:
    """The side that a sweep begins from."""

    factors: Floats
    offset: Floats
    constant: float

    @classmethod
    def of(cls, parameters: Parameters) -> Items:
        """All but the users, who follow from them."""
        return cls(parameters.item_factors, parameters.item_offset, parameters.constant)


@dataclass(frozen=True, slots=True, eq=False)
class State:
    """Parameters, the items before them, and the objective."""

    parameters: Parameters
    previous: Items
    momentum: float
    """Nesterov's t: 1 is none yet."""
    value: float
    is_settled: bool = False
    """Whether sweeps have to be exact from here on."""


class Sweeping(ABC):
    """A solver that sweeps over users and then items, each side solved for in turn."""

    __slots__ = ()

    @abstractmethod
    def _sweep(self, now: Parameters) -> tuple[Parameters, float]:
        """Better parameters, from the item side of ``now`` alone, and the objective."""

    def _rough_sweep(self, now: Parameters) -> tuple[Parameters, float]:
        """Parameters that are nearly as good, at less cost, and the objective: until the objective is settled."""
        return self._sweep(now)

    @property
    def n_steps(self) -> int:
        """Each is one."""
        return 1

    def start(self, parameters: Parameters, /) -> State:
        """As given; the objective is known after the first sweep."""
        return State(parameters, Items.of(parameters), 1.0, math.inf)

    def advance(self, state: State, /) -> State:
        """One sweep from beyond the last; from where the last ended, if that would rise."""
        momentum = (1 + math.sqrt(1 + 4 * state.momentum**2)) / 2
        ahead = _extrapolated(state.previous, state.parameters, (state.momentum - 1) / momentum)
        sweep = self._sweep if state.is_settled else self._rough_sweep
        swept, value = sweep(ahead)
        if value > state.value:
            momentum = 1.0
            swept, value = sweep(state.parameters)
        is_settled = state.is_settled or state.value - value < SETTLED * abs(value)
        return State(swept, Items.of(state.parameters), momentum, value, is_settled)

    def value(self, state: State, /) -> float:
        """The objective, as the last sweep found it."""
        return state.value

    def has_stalled(self, state: State, /) -> bool:  # noqa: ARG002
        """It never does."""
        return False

    def parameters(self, state: State, /) -> Parameters:
        """As they stand."""
        return state.parameters


def _extrapolated(before: Items, now: Parameters, share: float) -> Parameters:
    """``share`` of the last step beyond ``now``."""
    return replace(
        now,
        item_factors=now.item_factors + share * (now.item_factors - before.factors),
        item_offset=now.item_offset + share * (now.item_offset - before.offset),
        constant=now.constant + share * (now.constant - before.constant),
    )
