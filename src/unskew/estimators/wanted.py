"""Which sums an estimate is made of: the seam at which arrays, data frames and SQL engines are alike."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias, runtime_checkable

from unskew.data.universe import Universe
from unskew.estimators.estimate import Estimate
from unskew.estimators.sums import Sums

Unit: TypeAlias = Literal["user", "item"]


@dataclass(frozen=True, slots=True)
class SumSpec:
    """Sums of h x, where x are the deltas of the models and the base, and of their products; see ``estimators.sums``."""

    is_weighted: bool
    """h is 1/P, or its transform; else 1."""
    unit: Unit | None = None
    """What is independent: users or items, else cells."""
    is_ratio: bool = False
    """The total is divided by its own base, so that a unit without any is no part of the sample."""
    of_ratios: bool = False
    """Every unit counts once, by its own ratio: the sum of those, and how many they are."""

    @property
    def divides_by_base(self) -> bool:
        """Whether the sums know what to divide by, so that the number of all cells does not matter."""
        return self.is_ratio or self.of_ratios


class Scope(Protocol):
    """How much there is."""

    @property
    def n_observed(self) -> int:
        """How many cells were observed."""
        ...

    @property
    def universe(self) -> Universe | None:
        """How many there are, where that is known."""
        ...


@runtime_checkable
class AddsUp(Protocol):
    """An estimator that looks at nothing but sums, so that any engine can add them up."""

    def wants(self, *, is_ratio: bool, is_mean_of_users: bool, cluster: Unit | None) -> SumSpec:
        """The sums it is made of, for a metric that has a base or is a mean of users' ratios."""
        ...

    def estimate(self, wanted: SumSpec, sums: Sums, scope: Scope) -> Estimate:
        """The risk of each model."""
        ...
