"""Which cells are logged: at random, by their rating, or by rating and item (Marlin & Zemel 2009).

Each mechanism gives P(O = 1 | Y = r) of item i as sigma(s_r + t_i), and improves s and t given how many cells of each level were
logged and, by what else is known, how many were not.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from unskew.types import Matrix, Vector

ITEM_VARIANCE = 10.0
"""Of the normal prior of t_i."""
HALVINGS = 30


@dataclass(frozen=True, slots=True, eq=False)
class Effects:
    """log odds of being logged: ``value[r] + item[i]``."""

    value: Vector
    item: Vector

    @property
    def odds(self) -> Matrix:
        """Items x levels, as logarithms."""
        return self.item[:, None] + self.value

    @property
    def logged(self) -> Matrix:
        """P(O = 1 | Y = r), items x levels."""
        return np.exp(_log_sigma(self.odds))


@dataclass(frozen=True, slots=True, eq=False)
class PseudoCells:
    """A Beta prior of each sigma(s_r), as cells logged and not logged that were seen before."""

    logged: Vector
    unlogged: Vector

    def log_density(self, value: Vector) -> float:
        """Up to a constant."""
        return float(self.logged @ _log_sigma(value) + self.unlogged @ _log_sigma(-value))


class Mechanism(Protocol):
    """How cells come to be logged."""

    def log_chances(self, effects: Effects, /) -> tuple[Matrix, Matrix]:
        """Logarithms of P(O = 1 | Y = r) and P(O = 0 | Y = r), items x levels."""
        ...

    def improved(self, effects: Effects, logged: Matrix, unlogged: Matrix, /) -> Effects:
        """Effects that suit these numbers of cells, items x levels, no worse."""
        ...

    def log_prior(self, effects: Effects, /) -> float:
        """Up to a constant."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class AtRandom:
    """Selection says nothing about ratings: the likelihood is that of the logged ones alone."""

    def log_chances(self, effects: Effects, /) -> tuple[Matrix, Matrix]:
        """As if given: both are 1."""
        nothing = np.zeros((effects.item.size, effects.value.size))
        return nothing, nothing

    def improved(self, effects: Effects, logged: Matrix, unlogged: Matrix, /) -> Effects:  # noqa: ARG002
        """As they are."""
        return effects

    def log_prior(self, effects: Effects, /) -> float:  # noqa: ARG002
        """None."""
        return 0.0


@dataclass(frozen=True, slots=True, eq=False)
class ByValue:
    """CPT-v: sigma(s_r), the same for all items. Without a prior s is taken as known."""

    prior: PseudoCells | None

    def log_chances(self, effects: Effects, /) -> tuple[Matrix, Matrix]:
        """Logged, not logged."""
        return _log_sigma(effects.odds), _log_sigma(-effects.odds)

    def improved(self, effects: Effects, logged: Matrix, unlogged: Matrix, /) -> Effects:
        """The share of logged cells at each level, those of the prior included."""
        if self.prior is None:
            return effects
        odds = (self.prior.logged + logged.sum(axis=0)) / (
            self.prior.unlogged + unlogged.sum(axis=0)
        )
        return Effects(np.log(odds), effects.item)

    def log_prior(self, effects: Effects, /) -> float:
        """Of the levels."""
        return 0.0 if self.prior is None else self.prior.log_density(effects.value)


@dataclass(frozen=True, slots=True, eq=False)
class ByValueAndItem:
    """Logit-vd: sigma(s_r + t_i), t_i ~ N(0, 10). Without a prior s is taken as known."""

    prior: PseudoCells | None

    def log_chances(self, effects: Effects, /) -> tuple[Matrix, Matrix]:
        """Logged, not logged."""
        return _log_sigma(effects.odds), _log_sigma(-effects.odds)

    def improved(self, effects: Effects, logged: Matrix, unlogged: Matrix, /) -> Effects:
        """One step of Newton's method, halved until it does no harm."""
        step, before = self._step(effects, logged, unlogged), self._score(effects, logged, unlogged)
        for halving in range(HALVINGS):
            share = 0.5**halving
            ahead = Effects(effects.value + share * step.value, effects.item + share * step.item)
            if self._score(ahead, logged, unlogged) >= before:
                return ahead
        return effects

    def log_prior(self, effects: Effects, /) -> float:
        """Of levels and items."""
        of_items = -float(np.square(effects.item).sum()) / (2 * ITEM_VARIANCE)
        return of_items if self.prior is None else of_items + self.prior.log_density(effects.value)

    def _score(self, effects: Effects, logged: Matrix, unlogged: Matrix) -> float:
        """sum_ir [A log sigma + (C - A) log(1 - sigma)], and the prior."""
        yes, no = self.log_chances(effects)
        return float((logged * yes).sum() + (unlogged * no).sum()) + self.log_prior(effects)

    def _step(self, effects: Effects, logged: Matrix, unlogged: Matrix) -> Effects:
        """Newton's step; items, which meet only through the levels, are eliminated first."""
        chance = effects.logged
        rise, bend = (
            logged - (logged + unlogged) * chance,
            (logged + unlogged) * chance * (1 - chance),
        )
        item_rise, item_bend = (
            rise.sum(axis=1) - effects.item / ITEM_VARIANCE,
            bend.sum(axis=1) + 1 / ITEM_VARIANCE,
        )
        if self.prior is None:
            return Effects(np.zeros_like(effects.value), item_rise / item_bend)
        own, cells = np.exp(_log_sigma(effects.value)), self.prior.logged + self.prior.unlogged
        value_rise = rise.sum(axis=0) + self.prior.logged - cells * own
        value_bend = np.diag(bend.sum(axis=0) + cells * own * (1 - own))
        reduced = bend / item_bend[:, None]
        value = np.linalg.solve(value_bend - reduced.T @ bend, value_rise - reduced.T @ item_rise)
        return Effects(value, (item_rise - bend @ value) / item_bend)


def _log_sigma(odds: Matrix) -> Matrix:
    """log(1 / (1 + exp(-x))), without overflow."""
    values: Matrix = -np.logaddexp(0.0, -odds)
    return values
