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
from dataclasses import dataclass, replace
from typing import Literal, Protocol

from unskew.data.universe import Universe
from unskew.errors import UniverseError, UnknownNameError, UsageError
from unskew.estimators.cells import Deltas, Sample
from unskew.estimators.estimate import Estimate
from unskew.estimators.point import ips, self_normalized
from unskew.estimators.sums import Sums, common_part, sums_of_groups
from unskew.estimators.wanted import AddsUp, Scope, SumSpec, Unit
from unskew.types import Matrix, Vector


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
    """Eq. (5) and Eq. (11): sum h delta / sum h, or the mean of the users' own where the metric is one."""

    name: str
    is_weighted: bool
    imputes: bool = False

    def __call__(self, deltas: Deltas, sample: Sample, /) -> Estimate:
        """The weighted mean."""
        return _by_sums(self, deltas, sample)

    def wants(self, *, is_ratio: bool, is_mean_of_users: bool, cluster: Unit | None) -> SumSpec:  # noqa: ARG002
        """Sums to divide by their base."""
        if is_mean_of_users:
            return SumSpec(self.is_weighted, "user", of_ratios=True)
        return SumSpec(self.is_weighted, cluster, is_ratio=True)

    def estimate(self, wanted: SumSpec, sums: Sums, scope: Scope) -> Estimate:  # noqa: ARG002
        """The ratio."""
        if sums.n_clusters is None and scope.n_observed < 2:
            raise UsageError(
                f"{self.name!r} has no standard error on a single cell. Judge on a longer log."
            )
        return self_normalized(sums)


@dataclass(frozen=True, slots=True)
class FixedNormalizer:
    """Eq. (10): sum h delta / (U * I); for a ratio metric, the ratio of two of these."""

    name: str
    is_weighted: bool
    imputes: bool = False

    def __call__(self, deltas: Deltas, sample: Sample, /) -> Estimate:
        """The weighted sum over all cells there are."""
        return _by_sums(self, deltas, sample)

    def wants(self, *, is_ratio: bool, is_mean_of_users: bool, cluster: Unit | None) -> SumSpec:
        """Sums, whose base is known: the number of all cells."""
        if is_ratio:
            ratio = SelfNormalized(self.name, self.is_weighted)
            return ratio.wants(
                is_ratio=is_ratio, is_mean_of_users=is_mean_of_users, cluster=cluster
            )
        return SumSpec(self.is_weighted, cluster)

    def estimate(self, wanted: SumSpec, sums: Sums, scope: Scope) -> Estimate:
        """The sum over the number of cells."""
        if wanted.divides_by_base:
            return SelfNormalized(self.name, self.is_weighted).estimate(wanted, sums, scope)
        if sums.weight == 0:
            raise UsageError(
                f"every weight is zero, so that {self.name!r} would say 0 whatever the data. Loosen the transform."
            )
        return ips(sums, n_cells=_universe(self, scope).n_cells)


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
        return _by_sums(self, deltas, sample)

    def wants(self, *, is_ratio: bool, is_mean_of_users: bool, cluster: Unit | None) -> SumSpec:  # noqa: ARG002
        """Sums of the groups' ratios."""
        if is_ratio:
            raise UsageError(
                f"{self.name!r} is for metrics that are means over all cells, not for ratios such as recall."
            )
        return SumSpec(self.is_weighted, "user" if self.by == "users" else "item", of_ratios=True)

    def estimate(self, wanted: SumSpec, sums: Sums, scope: Scope) -> Estimate:  # noqa: ARG002
        """Their mean."""
        return self_normalized(sums)


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
            raise UsageError(
                f"{self.name!r} is for metrics that are means over all cells, not for ratios such as recall."
            )
        if deltas.imputed is None:
            raise UsageError(
                f"{self.name!r} needs imputed deltas: pass imputation=..., a model of the ratings themselves."
            )
        if sample.clusters is sample.items:
            raise UsageError(
                f"{self.name!r} has standard errors for independent cells and for clusters of users, not of items."
            )
        sums = Sums.of(
            deltas.value - deltas.imputed.observed,
            sample.propensities,
            weight=sample.weight if self.is_weighted else sample.unit_weight,
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


def _by_sums(estimator: AddsUp, deltas: Deltas, sample: Sample) -> Estimate:
    wanted = estimator.wants(
        is_ratio=deltas.base is not None,
        is_mean_of_users=deltas.is_mean_of_users,
        cluster=sample.clustered_by,
    )
    return estimator.estimate(wanted, _add_up(wanted, deltas, sample), sample)


def _add_up(wanted: SumSpec, deltas: Deltas, sample: Sample) -> Sums:
    """Sums of deltas; where they will be divided by their base, without what all cells share."""
    weight = sample.weight if wanted.is_weighted else sample.unit_weight
    if not wanted.divides_by_base or deltas.base is not None:
        return _sums(wanted, deltas.value, deltas, weight, sample)
    shift = common_part(deltas.value)
    value = deltas.value - shift[:, None] if shift.any() else deltas.value
    return replace(_sums(wanted, value, deltas, weight, sample), shift=shift)


def _sums(wanted: SumSpec, value: Matrix, deltas: Deltas, weight: Vector, sample: Sample) -> Sums:
    if wanted.of_ratios:
        groups = sample.users if wanted.unit == "user" else sample.items
        return sums_of_groups(value, weight=weight, base=deltas.base, groups=groups)
    return Sums.of(
        value,
        sample.propensities,
        weight=weight,
        base=deltas.base,
        clusters=sample.clusters,
        is_ratio=wanted.is_ratio,
    )


def without_universe(estimator: str) -> UniverseError:
    """That nobody said how many cells there are."""
    return UniverseError(
        f"{estimator!r} divides by the number of all cells, which a log alone does not tell. "
        "Pass universe=(n_users, n_items), counting all that could have been logged, "
        "or universe='log' if the log's own users and items are all there are."
    )


def _universe(estimator: Estimator, scope: Scope) -> Universe:
    if scope.universe is None:
        raise without_universe(estimator.name)
    return scope.universe
