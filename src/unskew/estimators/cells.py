"""What an estimator looks at: the deltas of the observed cells, their propensities, and where they lie."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np

from unskew.data.propensities import Propensities
from unskew.data.universe import Universe
from unskew.errors import UsageError
from unskew.estimators.sums import Clusters, weights_of
from unskew.estimators.transforms import WeightTransform
from unskew.types import Matrix, Vector


@dataclass(frozen=True, eq=False)
class Sample:
    """Where the observed cells lie, how likely each was, and how cells depend on one another."""

    users: Clusters
    items: Clusters
    propensities: Propensities | None = None
    transform: WeightTransform | None = None
    clusters: Clusters | None = None
    """``users`` or ``items`` for clustered standard errors; None takes cells as independent."""
    universe: Universe | None = None

    @property
    def clustered_by(self) -> Literal["user", "item"] | None:
        """What the clusters are."""
        if self.clusters is None:
            return None
        return "item" if self.clusters is self.items else "user"

    @property
    def n_observed(self) -> int:
        """How many cells were observed."""
        return self.users.code.size

    @cached_property
    def unit_weight(self) -> Vector:
        """1 for each cell: what the naive estimator weights by."""
        return np.ones(self.n_observed)

    @cached_property
    def weight(self) -> Vector:
        """1/P, transformed where that was asked for."""
        inverse = weights_of(self.propensities, self.n_observed)
        if self.transform is None:
            return inverse
        changed = np.asarray(self.transform(inverse), dtype=np.float64)
        if changed.shape != inverse.shape or not (
            np.isfinite(changed).all() and (changed >= 0).all()
        ):
            raise UsageError(
                f"the transform {self.transform!r} must give one finite weight of at least 0 for each cell."
            )
        return changed

    @property
    def n_touched(self) -> int:
        """How many weights the transform changed."""
        return int((self.weight != weights_of(self.propensities, self.n_observed)).sum())


@dataclass(frozen=True, slots=True, eq=False)
class Imputed:
    """Imputed deltas: of the observed cells (models x cells), and of all items added up for each user (users x models)."""

    observed: Matrix
    by_user: Matrix


@dataclass(frozen=True, slots=True, eq=False)
class Deltas:
    """One metric's deltas of the observed cells, one row a model."""

    value: Matrix
    base: Vector | None = None
    """Denominator of a ratio metric: 1 on the cells it is a mean over, 0 elsewhere. None: a mean over all cells."""
    is_mean_of_users: bool = False
    """Whether each user's ratio counts once, whatever the number of cells behind it."""
    imputed: Imputed | None = None
