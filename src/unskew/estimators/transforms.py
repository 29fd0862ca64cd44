"""Weight transforms: what is put in place of 1/P to trade a little bias for less variance. Never applied unasked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from unskew.errors import UsageError
from unskew.types import Vector


class WeightTransform(Protocol):
    """Maps inverse propensities to the weights that are used."""

    def __call__(self, weight: Vector, /) -> Vector:
        """The weights in place of ``weight``."""
        ...


@dataclass(frozen=True, slots=True)
class Clip:
    """h = min(w, max_weight): the same as raising propensities to 1 / max_weight."""

    max_weight: float

    def __post_init__(self) -> None:
        _require(
            self.max_weight >= 1, f"Clip(max_weight=...) must be at least 1; got {self.max_weight}."
        )

    def __call__(self, weight: Vector, /) -> Vector:
        """The clipped weights."""
        return np.minimum(weight, self.max_weight)


@dataclass(frozen=True, slots=True)
class Switch:
    """h = w where w <= max_weight, else 0: with an imputation, trust it where weights are large (SWITCH)."""

    max_weight: float

    def __post_init__(self) -> None:
        _require(
            self.max_weight >= 1,
            f"Switch(max_weight=...) must be at least 1; got {self.max_weight}.",
        )

    def __call__(self, weight: Vector, /) -> Vector:
        """The weights, zero where they are too large."""
        return np.where(weight <= self.max_weight, weight, 0.0)


@dataclass(frozen=True, slots=True)
class Shrink:
    """h = s w / (w^2 + s), optimistic shrinkage (Su et al. 2020): s to infinity leaves w, s to 0 drops every cell."""

    strength: float

    def __post_init__(self) -> None:
        _require(self.strength > 0, f"Shrink(strength=...) must be positive; got {self.strength}.")

    def __call__(self, weight: Vector, /) -> Vector:
        """The shrunk weights."""
        return weight / (1.0 + weight * (weight / self.strength))


@dataclass(frozen=True, slots=True)
class SubGaussian:
    """h = w / ((1 - mix) + mix w) (Metelli et al. 2021): bounded by 1 / mix; mix = 0 leaves w, mix = 1 gives 1."""

    mix: float

    def __post_init__(self) -> None:
        _require(0 <= self.mix <= 1, f"SubGaussian(mix=...) must lie in [0, 1]; got {self.mix}.")

    def __call__(self, weight: Vector, /) -> Vector:
        """The harmonic mean of ``weight`` and 1, by ``mix``."""
        return weight / ((1 - self.mix) + self.mix * weight)


@dataclass(frozen=True, slots=True)
class Dynamic:
    """h = 1 / max(log2(1 + P), 2 rho (1 - P)): P is first raised, and never taken for less than about 2 rho.

    The closed form of a power of log2(1 + P) whose exponent weighs variance against bias in every cell, ``rho`` being how much a
    unit of the one counts beside the other. In IPS it is D-IPS, in doubly robust estimation D-DR ("Debiased recommendation with
    a dynamic estimator", 2024).
    """

    rho: float = 0.1

    def __post_init__(self) -> None:
        _require(
            0 < self.rho < 0.5, f"Dynamic(rho=...) must lie between 0 and 0.5; got {self.rho}."
        )

    def __call__(self, weight: Vector, /) -> Vector:
        """The dynamic weights."""
        propensity = 1.0 / weight
        raised: Vector = 1.0 / np.maximum(
            np.log2(1.0 + propensity), 2 * self.rho * (1.0 - propensity)
        )
        return raised


def _require(holds: bool, message: str) -> None:
    if not holds:
        raise UsageError(message)
