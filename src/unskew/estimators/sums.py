"""The sums over observed cells from which estimates and their covariances follow.

Every cell carries ``x = (delta of model 1, ..., delta of model k, base)``. The base is 1 where the risk is a mean over all
cells; a ratio metric such as recall puts 1 on relevant cells and 0 on the others. With weight ``h`` and propensity ``P``:

    total  = sum h x
    moment = sum h^2 (1 - P) x x'            independent cells: Var(O) = P (1 - P), and each cell stands for 1/P of them
    moment = sum_c A_c A_c',  A_c = sum h x  over the cells of cluster c: any dependence inside a cluster
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from unskew.data.propensities import Propensities
from unskew.errors import UsageError
from unskew.types import IntVector, Matrix, Vector

CHUNK = 1 << 17
ALIKE = 1e-3
"""Deltas that differ by no more than this share of themselves have hardly any spread beside what they share."""


@dataclass(frozen=True, slots=True)
class Resampling:
    """Bootstrap: how many times clusters are drawn anew, and from which seed."""

    n_resamples: int
    seed: int = 0

    def __post_init__(self) -> None:
        if self.n_resamples < 2:
            raise UsageError(
                f"the bootstrap needs at least 2 resamples, better 1000; got {self.n_resamples}."
            )


@dataclass(frozen=True, slots=True, eq=False)
class Clusters:
    """Which cluster each observed cell belongs to. ``n`` counts clusters without a cell too; codes are below it."""

    code: IntVector
    n: int
    resampling: Resampling | None = None

    def add_up(self, columns: Matrix) -> Matrix:
        """Sums of each row of ``columns`` by cluster: (k, cells) to (clusters up to the last with a cell, k)."""
        return np.stack([np.bincount(self.code, weights=column) for column in columns], axis=1)

    def resample(self, by_cluster: Matrix) -> Matrix | None:
        """Totals of ``by_cluster`` over clusters drawn with replacement, one row a draw; all ``n`` clusters can be drawn."""
        if self.resampling is None:
            return None
        rng = np.random.default_rng(self.resampling.seed)
        draws = (rng.integers(0, self.n, self.n) for _ in range(self.resampling.n_resamples))
        counts = (np.bincount(draw, minlength=self.n)[: len(by_cluster)] for draw in draws)
        return np.stack([np.einsum("c,ck->k", count, by_cluster) for count in counts])


@dataclass(frozen=True, slots=True, eq=False)
class Sums:
    """Addable over disjoint sets of cells (over disjoint sets of clusters where there are clusters)."""

    total: Vector
    moment: Matrix
    n_clusters: int | None = None
    """Independent units, where cells are not: users, say."""
    n_left_out: int = 0
    """Groups with cells but without weight, which a mean over groups leaves out."""
    replicates: Matrix | None = None
    """``total`` again for each bootstrap resample."""
    shift: Vector | float = 0.0
    """What was taken off each model's deltas, and a ratio of the sums lacks."""

    @classmethod
    def of(
        cls,
        delta: Matrix | Vector,
        propensities: Propensities | None = None,
        *,
        weight: Vector | None = None,
        base: Vector | None = None,
        clusters: Clusters | None = None,
        is_ratio: bool = False,
        known: Matrix | None = None,
    ) -> Sums:
        """Sums of ``delta``, one row a model, weighted by 1/P or by ``weight``.

        ``is_ratio`` says that the total will be divided by its own base, so that a cluster without any is no part of the sample.
        ``known`` (clusters x models) is a part of each cluster's sum that no observation changes, such as imputed deltas.
        """
        deltas = np.atleast_2d(delta)
        weights = weights_of(propensities, deltas.shape[1]) if weight is None else weight
        if clusters is None:
            return _of_cells(deltas, propensities, weights, base, known)
        by_cluster = clusters.add_up(_stack(deltas, base) * weights)
        if known is not None:
            by_cluster = _pad(by_cluster, len(known))
            by_cluster[:, :-1] += known
        if is_ratio:
            by_cluster = by_cluster[by_cluster[:, -1] > 0]
            clusters = replace(clusters, n=len(by_cluster))
        return sums_of_clusters(by_cluster, clusters)

    def __add__(self, other: Sums) -> Sums:
        if (self.n_clusters is None) != (other.n_clusters is None):
            raise UsageError("sums over clusters and sums over independent cells cannot be added.")
        if self.replicates is not None or other.replicates is not None:
            raise UsageError("bootstrap replicates of parts cannot be added; resample the whole.")
        if not np.array_equal(self.shift, other.shift):
            raise UsageError("sums of deltas that were shifted differently cannot be added.")
        n_clusters = (
            None
            if self.n_clusters is None or other.n_clusters is None
            else self.n_clusters + other.n_clusters
        )
        n_left_out = self.n_left_out + other.n_left_out
        return Sums(
            self.total + other.total,
            self.moment + other.moment,
            n_clusters,
            n_left_out,
            shift=self.shift,
        )

    @property
    def weighted_delta(self) -> Vector:
        """Sum of h * delta, for each model."""
        return self.total[:-1]

    @property
    def weight(self) -> float:
        """Sum of h (times the base, where there is one)."""
        return float(self.total[-1])

    def covariance(self, influence: Matrix) -> Matrix:
        """Cov of an estimate whose error is the sum over cells of ``influence @ (h x)``."""
        spread = influence @ self.moment @ influence.T
        if self.n_clusters is None:
            return spread
        mean = influence @ self.total
        return (
            self.n_clusters
            / (self.n_clusters - 1)
            * (spread - np.outer(mean, mean) / self.n_clusters)
        )


def sums_of_clusters(by_cluster: Matrix, clusters: Clusters) -> Sums:
    """Sums from one row of sums a cluster; clusters without a row are all zero."""
    require_clusters(clusters.n)
    return Sums(
        total=by_cluster.sum(axis=0),
        moment=np.einsum("ci,cj->ij", by_cluster, by_cluster),
        n_clusters=clusters.n,
        replicates=clusters.resample(by_cluster),
    )


def sums_of_groups(
    deltas: Matrix,
    *,
    weight: Vector,
    base: Vector | None,
    groups: Clusters,
) -> Sums:
    """Sums whose ratio is the mean over non-empty groups of each group's own ratio: total = (sum_g R_g, number of groups).

    The groups are the sample: the spread between them holds the noise within them too.
    """
    by_group = groups.add_up(_stack(deltas, base) * weight)
    filled = by_group[:, -1] > 0
    require_groups(int(filled.sum()))
    rates = by_group[filled, :-1] / by_group[filled, -1:]
    sums = sums_of_clusters(
        np.column_stack([rates, np.ones(len(rates))]), replace(groups, n=len(rates))
    )
    return replace(sums, n_left_out=int((np.bincount(groups.code) > 0).sum()) - len(rates))


def common_part(deltas: Matrix) -> Vector:
    """The first delta of each model whose deltas are all but the same, 0 for others.

    Sums without it keep the digits that a small spread needs; that of a constant is exactly 0.
    """
    first = deltas[:, 0]
    return np.where(np.ptp(deltas, axis=1) <= ALIKE * np.abs(first), first, 0.0)


def require_clusters(n: int) -> None:
    """Refuse to tell the spread of one."""
    if n < 2:
        raise UsageError(
            f"a standard error over users or items needs at least 2 of them with data; there is {n}. "
            "Use cluster=None and no bootstrap."
        )


def require_groups(n_filled: int) -> None:
    """Refuse a mean over nothing."""
    if n_filled == 0:
        raise UsageError("no user or item has any weight: there is nothing to take a mean over.")


def weights_of(propensities: Propensities | None, n_observed: int) -> Vector:
    """1/P, or 1 where nothing is known of P."""
    return np.ones(n_observed) if propensities is None else propensities.inverse


def _of_cells(
    deltas: Matrix,
    propensities: Propensities | None,
    weight: Vector,
    base: Vector | None,
    known: Matrix | None,
) -> Sums:
    """In chunks, so that memory stays flat; no BLAS, whose order of addition depends on its threads."""
    n_models, n_observed = deltas.shape
    total, moment = np.zeros(n_models + 1), np.zeros((n_models + 1, n_models + 1))
    for start in range(0, n_observed, CHUNK):
        rows = slice(start, start + CHUNK)
        weighted = _stack(deltas[:, rows], None if base is None else base[rows]) * weight[rows]
        total += weighted.sum(axis=1)
        if propensities is not None:
            weighted *= np.sqrt(1.0 - propensities.values[rows])
        moment += np.einsum("in,jn->ij", weighted, weighted)
    if known is not None:
        total[:-1] += known.sum(axis=0)
    return Sums(total, moment)


def _stack(deltas: Matrix, base: Vector | None) -> Matrix:
    return np.vstack([deltas, np.ones(deltas.shape[1]) if base is None else base])


def _pad(rows: Matrix, length: int) -> Matrix:
    return np.vstack([rows, np.zeros((length - len(rows), rows.shape[1]))])
