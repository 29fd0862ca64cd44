"""Weight transforms: what replaces 1/P to reduce variance at the price of some bias.

They are used only if the caller passes one.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unskew.estimators import WEIGHT_TRANSFORMS
from unskew.settings import Number, check_fields, setting
from unskew.types import Vector


@WEIGHT_TRANSFORMS.declare(
    "clip", label="Clip", summary="Limits each weight to a maximum: min(w, max_weight)."
)
@dataclass(frozen=True, slots=True)
class Clip:
    """h = min(w, max_weight), as if propensities below 1 / max_weight were raised to it."""

    max_weight: float = setting(check=Number(least=1, allow_infinity=True))

    def __post_init__(self) -> None:
        check_fields(self)

    def __call__(self, weight: Vector, /) -> Vector:
        return np.minimum(weight, self.max_weight)


@WEIGHT_TRANSFORMS.declare(
    "switch", label="Switch", summary="Drops cells whose weight exceeds a maximum."
)
@dataclass(frozen=True, slots=True)
class Switch:
    """h = w if w <= max_weight, else 0 (SWITCH).

    With an imputation, cells with larger weights are estimated by the imputation alone.
    """

    max_weight: float = setting(check=Number(least=1, allow_infinity=True))

    def __post_init__(self) -> None:
        check_fields(self)

    def __call__(self, weight: Vector, /) -> Vector:
        return np.where(weight <= self.max_weight, weight, 0.0)


@WEIGHT_TRANSFORMS.declare(
    "shrink", label="Shrink", summary="Shrinks large weights smoothly: s w / (w^2 + s)."
)
@dataclass(frozen=True, slots=True)
class Shrink:
    """h = s w / (w^2 + s), optimistic shrinkage (Su et al. 2020).

    The limit of large s is w; the limit of small s drops every cell.
    """

    strength: float = setting(check=Number(above=0, allow_infinity=True))

    def __post_init__(self) -> None:
        check_fields(self)

    def __call__(self, weight: Vector, /) -> Vector:
        return weight / (1.0 + weight * (weight / self.strength))


@WEIGHT_TRANSFORMS.declare(
    "sub_gaussian",
    label="Sub-Gaussian",
    summary="The harmonic mean of the weight and 1, bounded by 1 / mix.",
)
@dataclass(frozen=True, slots=True)
class SubGaussian:
    """h = w / ((1 - mix) + mix w) (Metelli et al. 2021), at most 1 / mix.

    mix = 0 gives w, mix = 1 gives 1.
    """

    mix: float = setting(check=Number(least=0, most=1))

    def __post_init__(self) -> None:
        check_fields(self)

    def __call__(self, weight: Vector, /) -> Vector:
        return weight / ((1 - self.mix) + self.mix * weight)


@WEIGHT_TRANSFORMS.declare(
    "dynamic",
    label="Dynamic",
    summary="Trades bias against variance in each cell (D-IPS, D-DR).",
)
@dataclass(frozen=True, slots=True)
class Dynamic:
    """h = 1 / max(log2(1 + P), 2 rho (1 - P)): the weight never exceeds about 1 / (2 rho).

    The closed form of a power of log2(1 + P) whose exponent balances variance and bias in every
    cell. ``rho`` is the cost of a unit of variance relative to a unit of bias. With IPS it is
    D-IPS, with doubly robust estimation D-DR ("Debiased recommendation with a dynamic estimator",
    2024).
    """

    rho: float = setting(0.1, Number(above=0, below=0.5))

    def __post_init__(self) -> None:
        check_fields(self)

    def __call__(self, weight: Vector, /) -> Vector:
        propensity = 1.0 / weight
        smallest = 2 * self.rho * (1.0 - propensity)
        transformed: Vector = 1.0 / np.maximum(np.log2(1.0 + propensity), smallest)
        return transformed
