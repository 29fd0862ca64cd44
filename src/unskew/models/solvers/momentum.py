"""Alternation with momentum, whatever is alternated.

A sweep maps an item side to a better one. It starts a little beyond where the last one ended (Nesterov's step, with restarts as
in O'Donoghue & Candes 2015), which halves the sweeps of plain alternation or better; where the objective would rise, the sweep is
done again without momentum, so that it never does.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace

from unskew.models.parameters import Floats, Parameters


@dataclass(frozen=True, slots=True, eq=False)
class Items:
    """The side that a sweep begins from."""

    factors: Floats
    offset: Floats
    constant: float

    @classmethod
    def of(cls, parameters: Parameters) -> Items:
        """All but the users, who are solved first."""
        return cls(parameters.item_factors, parameters.item_offset, parameters.constant)


@dataclass(frozen=True, slots=True, eq=False)
class State:
    """Parameters, the items before them, and the objective."""

    parameters: Parameters
    previous: Items
    momentum: float
    """Nesterov's t: 1 is none yet."""
    value: float


class Sweeping(ABC):
    """A solver that sweeps over users and then items, each side solved exactly."""

    __slots__ = ()

    @abstractmethod
    def _sweep(self, now: Parameters) -> tuple[Parameters, float]:
        """Better parameters, from the item side of ``now`` alone, and the objective."""

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
        swept, value = self._sweep(ahead)
        if value > state.value:
            momentum = 1.0
            swept, value = self._sweep(state.parameters)
        return State(swept, Items.of(state.parameters), momentum, value)

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
