"""Sums of the terms of an estimator over requests, and the values that follow from them.

A term has three numbers for each request r: a numerator N, a base B and an expected base E, whose
mean is that of B for a correct policy. With n requests, the value of a policy is

    V = sum over terms of (sum N / sum B) (sum E / n)

A plain mean has B = E = 1. Self-normalised estimators have weights as B. By the delta method the
error of V is the sum over requests of

    sum over terms of (sum E / n) (N - R B) / sum B + (R / n) (E - sum E / n),   R = sum N / sum B

It is linear in the sums of each cluster, so a table of sums by cluster is all that is needed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import add
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from unskew.data.ids import Ids
from unskew.errors import UsageError
from unskew.estimators.estimate import Estimate
from unskew.estimators.intervals import Moments, covariance_of_contrasts
from unskew.estimators.sums import Sums
from unskew.types import IntVector, Matrix, Vector

Column: TypeAlias = Any
"""A number for each request: an array, or an expression of a query."""
SLACK = 1e-12
"""A sum of weights below this share of the number of requests is 0."""


@dataclass(frozen=True, slots=True, eq=False)
class Term:
    """A part of an estimator: numerator, base and expected base of each request; None is 1."""

    numerator: Column
    base: Column = None
    expected: Column = None


def total(columns: Sequence[Column]) -> Column:
    """The sum of the columns of all slots."""
    return reduce(add, columns)


@dataclass(frozen=True, slots=True, eq=False)
class TermSums:
    """Sums by cluster of the terms of several quantities, such as the values of policies.

    Those of disjoint sets of requests can be combined, even if they share clusters.
    """

    names: tuple[str, ...]
    """The quantities."""
    n_terms: tuple[int, ...]
    """How many terms each quantity has."""
    clusters: Ids
    n_requests: Vector
    """Requests of each cluster."""
    numerator: Matrix
    """Clusters x terms of all quantities."""
    base: Matrix
    expected: Matrix

    @classmethod
    def of(
        cls,
        quantities: Mapping[str, Sequence[Term]],
        cluster: IntVector,
        clusters: Ids,
    ) -> TermSums:
        """Add up columns of arrays; ``cluster`` is the code of each request."""
        n_requests = np.bincount(cluster, minlength=len(clusters)).astype(np.float64)
        terms = [term for each in quantities.values() for term in each]

        def add_up(column: Column) -> Vector:
            if column is None:
                return n_requests
            sums = np.bincount(cluster, weights=column, minlength=len(clusters))
            return sums.astype(np.float64, copy=False)

        tables = [
            np.column_stack([add_up(getattr(term, part)) for term in terms])
            if terms
            else np.zeros((len(clusters), 0))
            for part in ("numerator", "base", "expected")
        ]
        sizes = tuple(len(each) for each in quantities.values())
        return cls(tuple(quantities), sizes, clusters, n_requests, *tables)

    @classmethod
    def combine(cls, parts: Sequence[TermSums]) -> TermSums:
        """The sums of all parts; clusters with the same id are one cluster.

        A part without some quantity, or with fewer terms of it, has zeros there.
        """
        if len(parts) == 1:
            return parts[0]
        sizes: dict[str, int] = {}
        for part in parts:
            for name, size in zip(part.names, part.n_terms, strict=True):
                sizes[name] = max(size, sizes.get(name, 0))
        starts = dict(zip(sizes, np.cumsum([0, *sizes.values()]).tolist(), strict=False))
        clusters, code = np.unique(
            np.concatenate([part.clusters for part in parts]), return_inverse=True
        )
        cuts = np.cumsum([len(part.clusters) for part in parts])[:-1]
        tables = np.zeros((3, len(clusters), sum(sizes.values())))
        n_requests = np.zeros(len(clusters))
        for part, rows in zip(parts, np.split(code, cuts), strict=True):
            columns = [
                starts[name] + k
                for name, size in zip(part.names, part.n_terms, strict=True)
                for k in range(size)
            ]
            cells = np.ix_(rows, columns)
            n_requests[rows] += part.n_requests
            for table, each in zip(tables, (part.numerator, part.base, part.expected), strict=True):
                table[cells] += each
        return cls(tuple(sizes), tuple(sizes.values()), clusters, n_requests, *tables)

    def list_usable(self) -> tuple[str, ...]:
        """The quantities with weight in every term: others would be divided by 0."""
        is_empty = np.abs(self.base.sum(axis=0)) <= SLACK * self.n_requests.sum()
        empty = np.add.reduceat(is_empty, self._starts)
        return tuple(name for name, n in zip(self.names, empty, strict=True) if n == 0)

    def take(self, names: Sequence[str]) -> TermSums:
        """The sums of some of the quantities."""
        if tuple(names) == self.names:
            return self
        indices = [self.names.index(name) for name in names]
        columns = np.concatenate(
            [self._starts[index] + np.arange(self.n_terms[index]) for index in indices]
        )
        tables = (self.numerator, self.base, self.expected)
        return TermSums(
            tuple(names),
            tuple(self.n_terms[index] for index in indices),
            self.clusters,
            self.n_requests,
            *(table[:, columns] for table in tables),
        )

    @property
    def _starts(self) -> npt.NDArray[np.int64]:
        return np.cumsum([0, *self.n_terms[:-1]])

    def find_values(self) -> Vector:
        """The value of each quantity."""
        return self._find_influence()[0]

    def estimate(
        self,
        *,
        bounds: tuple[float, float] | None = None,
        added_influence: Matrix | None = None,
        added_covariance: Matrix | None = None,
    ) -> Estimate:
        """The value of each quantity and their covariance, by cluster.

        ``added_influence`` (clusters x quantities) holds errors of estimates that were made from
        the same requests, such as an examination curve; ``added_covariance`` the covariance of
        errors that are independent of them.
        """
        is_used = self.n_requests > 0
        n_clusters = int(is_used.sum())
        if n_clusters < 2:
            raise UsageError(
                f"standard errors need at least 2 clusters (users, or requests with "
                f"`cluster='request'`); the log has {n_clusters}.",
                parameter="cluster",
                remedy="Use a longer log. If it has several requests of one user that are "
                "independent, pass `cluster='request'`.",
            )
        value, influence = self._find_influence()
        if added_influence is not None:
            influence = influence + added_influence
        influence = influence[is_used]
        sums = Sums(influence.sum(axis=0), np.einsum("ci,cj->ij", influence, influence), n_clusters)
        small_sample_factor = np.sqrt(n_clusters / (n_clusters - 1))
        covariance = sums.covariance(np.eye(value.size))
        moments = Moments.of(np.ascontiguousarray(influence.T) * small_sample_factor)
        if added_covariance is not None:
            covariance = covariance + added_covariance
            second_moment = moments.second + covariance_of_contrasts(added_covariance)
            moments = replace(moments, second=second_moment)
        return Estimate(value, covariance, n_clusters, moments=moments, bounds=bounds)

    def _find_influence(self) -> tuple[Vector, Matrix]:
        """The values, and clusters x quantities: what each cluster adds to the errors."""
        n = self.n_requests.sum()
        numerator, base, expected = (
            table.sum(axis=0) for table in (self.numerator, self.base, self.expected)
        )
        ratio, share = numerator / base, expected / n
        by_term = (self.numerator - ratio * self.base) * (share / base)
        by_term += (self.expected - share * self.n_requests[:, None]) * (ratio / n)
        starts = self._starts
        return np.add.reduceat(ratio * share, starts), np.add.reduceat(by_term, starts, axis=1)
