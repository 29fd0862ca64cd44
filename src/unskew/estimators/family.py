"""The estimators by name: which weights, which normaliser, with or without imputation.

    Rhat = (1/C) sum over all cells of [ imputed + O h (delta - imputed) ]

    name              h         C                          imputed
    naive             1         n observed                 no
    ips               1/P       U * I                      no
    snips             1/P       sum h                      no
    user_normalized   1/P       sum h, user by user        no
    item_normalized   1/P       sum h, item by item        no
    eib               1         U * I                      yes
    dr                1/P       U * I                      yes

A weight transform replaces 1/P by its own h in any of them. A ratio metric has no known C, so that there IPS, a ratio of two
IPS estimates, is SNIPS.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, Protocol

from unskew.data.universe import Universe
from unskew.errors import UniverseError, UnknownNameError, UsageError
from unskew.estimators.cells import Deltas, Sample
from unskew.estimators.estimate import Estimate
from unskew.estimators.point import ips, self_normalized
from unskew.estimators.sums import Sums, sums_of_groups
from unskew.types import Vector


class Estimator(Protocol):
    """Turns deltas into risks with a covariance."""

    @property
    def name(self) -> str:
        """How users call it."""
        ...

    @property
    def is_weighted(self) -> bool:
        """Whether it reads propensities."""
        ...

    @property
    def imputes(self) -> bool:
        """Whether it reads imputed deltas."""
        ...

    def __call__(self, deltas: Deltas, sample: Sample, /) -> Estimate:
        """The risk of each model."""
        ...


@dataclass(frozen=True, slots=True)
class SelfNormalized:
    """Eq. (5) and Eq. (11): sum h delta / sum h."""

    name: str
    is_weighted: bool
    imputes: bool = False

    def __call__(self, deltas: Deltas, sample: Sample, /) -> Estimate:
        """The weighted mean, or the mean of the users' weighted means where the metric is one."""
        weight = _weight(self, sample)
        if deltas.is_mean_of_users:
            return self_normalized(sums_of_groups(deltas.value, weight=weight, base=deltas.base, groups=sample.users))
        if sample.clusters is None and sample.n_observed < 2:
            raise UsageError(f"{self.name!r} has no standard error on a single cell. Judge on a longer log.")
        sums = Sums.of(
            deltas.value, sample.propensities, weight=weight, base=deltas.base, clusters=sample.clusters, is_ratio=True
        )
        return self_normalized(sums)


@dataclass(frozen=True, slots=True)
class FixedNormalizer:
    """Eq. (10): sum h delta / (U * I)."""

    name: str
    is_weighted: bool
    imputes: bool = False

    def __call__(self, deltas: Deltas, sample: Sample, /) -> Estimate:
        """The weighted sum over all cells there are; for a ratio metric, the ratio of two of these."""
        if deltas.base is not None:
            return SelfNormalized(self.name, self.is_weighted)(deltas, sample)
        weight = _weight(self, sample)
        if not weight.any():
            raise UsageError(f"every weight is zero, so that {self.name!r} would say 0 whatever the data. Loosen the transform.")
        sums = Sums.of(deltas.value, sample.propensities, weight=weight, clusters=sample.clusters)
        return ips(sums, n_cells=_universe(self, sample).n_cells)


@dataclass(frozen=True, slots=True)
class GroupNormalized:
    """The mean over users (or items) with data of each one's own SNIPS: everyone counts once.

    They are the sample, too, whatever the clusters: its standard error is that of a mean over them.
    """

    name: str
    by: Literal["users", "items"]
    is_weighted: bool = True
    imputes: bool = False

    def __call__(self, deltas: Deltas, sample: Sample, /) -> Estimate:
        """Ratios of groups, averaged."""
        if deltas.base is not None:
            raise UsageError(f"{self.name!r} is for metrics that are means over all cells, not for ratios such as recall.")
        groups = sample.users if self.by == "users" else sample.items
        return self_normalized(sums_of_groups(deltas.value, weight=sample.weight, base=None, groups=groups))


@dataclass(frozen=True, slots=True)
class DoublyRobust:
    """Mean imputed delta plus IPS of (delta - imputed delta): right if the propensities or the imputation are.

    Unweighted, it is error imputation (EIB): observed deltas where there are any, imputed ones elsewhere.
    """

    name: str
    is_weighted: bool
    imputes: bool = True

    def __call__(self, deltas: Deltas, sample: Sample, /) -> Estimate:
        """IPS of the residuals, the imputed deltas being the known part."""
        if deltas.base is not None:
            raise UsageError(f"{self.name!r} is for metrics that are means over all cells, not for ratios such as recall.")
        if deltas.imputed is None:
            raise UsageError(f"{self.name!r} needs imputed deltas: pass imputation=..., a model of the ratings themselves.")
        if sample.clusters is sample.items:
            raise UsageError(f"{self.name!r} has standard errors for independent cells and for clusters of users, not of items.")
        sums = Sums.of(
            deltas.value - deltas.imputed.observed,
            sample.propensities,
            weight=_weight(self, sample),
            clusters=sample.clusters,
            known=deltas.imputed.by_user,
        )
        return ips(sums, n_cells=_universe(self, sample).n_cells)


ESTIMATORS: Mapping[str, Estimator] = {
    estimator.name: estimator
    for estimator in (
        SelfNormalized("naive", is_weighted=False),
        FixedNormalizer("ips", is_weighted=True),
        SelfNormalized("snips", is_weighted=True),
        GroupNormalized("user_normalized", by="users"),
        GroupNormalized("item_normalized", by="items"),
        DoublyRobust("eib", is_weighted=False),
        DoublyRobust("dr", is_weighted=True),
    )
}


def find_estimator(name: str | Estimator) -> Estimator:
    """The estimator of that name; an estimator passes through."""
    if not isinstance(name, str):
        return name
    if name not in ESTIMATORS:
        raise UnknownNameError("estimator", name, ESTIMATORS)
    return ESTIMATORS[name]


def _weight(estimator: Estimator, sample: Sample) -> Vector:
    return sample.weight if estimator.is_weighted else sample.unit_weight


def _universe(estimator: Estimator, sample: Sample) -> Universe:
    if sample.universe is None:
        raise UniverseError(
            f"{estimator.name!r} divides by the number of all cells, which a log alone does not tell. "
            "Pass universe=(n_users, n_items), counting all that could have been logged, "
            "or universe='log' if the log's own users and items are all there are."
        )
    return sample.universe
